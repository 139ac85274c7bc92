"""A packing of trees in flat arrays, and as a sequence of trees for whoever looks at them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from collc.ir.lazy import Lazy
from collc.synth.forestcoll.scale import Instance

if TYPE_CHECKING:
    import numpy

    from collc.symmetry import Group

    Array = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True)
class Packed:
    """A tree of the packing.

    Attributes:
        copies: trees of this shape.
        paths: the links of each hop between GPUs, each after the one that feeds it.
    """

    root: int
    copies: int
    paths: tuple[tuple[int, ...], ...]

    def height(self, instance: Instance) -> int:
        """Hops between GPUs on the longest way down."""
        depth = {self.root: 0}
        for path in self.paths:
            depth[instance.heads[path[-1]]] = depth[instance.tails[path[0]]] + 1
        return max(depth.values())


@dataclass(frozen=True)
class Grown:
    """A tree as the kernel leaves it.

    Attributes:
        arcs: the links of all hops, one after the other.
        starts: where each hop begins in `arcs`, and the end.
    """

    root: int
    copies: int
    arcs: Sequence[int]
    starts: Sequence[int]


@dataclass(frozen=True, eq=False)
class Packing(Lazy[Packed]):
    """Trees in arrays: tree t has the hops first[t] .. first[t + 1] - 1, hop h the links
    arcs[starts[h]] .. arcs[starts[h + 1] - 1].
    """

    roots: Array
    copies: Array
    first: Array
    starts: Array
    arcs: Array

    @staticmethod
    def of(trees: Iterable[Packed]) -> Packing:
        """Trees one by one, as arrays."""
        flat = [
            Grown(tree.root, tree.copies, [arc for path in tree.paths for arc in path], _ends(tree.paths))
            for tree in trees
        ]
        return Packing.grown(flat)

    @staticmethod
    def grown(trees: Sequence[Grown], group: Group | None = None) -> Packing:
        """Trees as the kernel leaves them, each with all its images under a group."""
        import numpy

        order = 1 if group is None else group.order
        roots = [_images(None if group is None else group.vertices, [tree.root]) for tree in trees]
        arcs = [_images(None if group is None else group.links, tree.arcs) for tree in trees]
        lengths = [[b - a for a, b in pairwise(tree.starts)] for tree in trees]
        hops = [numpy.tile(numpy.array(length, dtype=numpy.int64), order) for length in lengths]
        return Packing(
            _joined(roots),
            numpy.repeat(numpy.array([tree.copies for tree in trees], dtype=numpy.int64), order),
            _sums(numpy.repeat(numpy.array([len(tree.starts) - 1 for tree in trees], dtype=numpy.int64), order)),
            _sums(_joined(hops)),
            _joined(arcs),
        )

    def and_then(self, other: Packing) -> Packing:
        """The trees of both."""
        import numpy

        return Packing(
            numpy.concatenate([self.roots, other.roots]),
            numpy.concatenate([self.copies, other.copies]),
            numpy.concatenate([self.first, other.first[1:] + self.first[-1]]),
            numpy.concatenate([self.starts, other.starts[1:] + self.starts[-1]]),
            numpy.concatenate([self.arcs, other.arcs]),
        )

    def __len__(self) -> int:
        return len(self.roots)

    def make(self, index: int) -> Packed:
        """The tree at an index."""
        first, last = int(self.first[index]), int(self.first[index + 1])
        starts = self.starts[first : last + 1].tolist()
        arcs = self.arcs[starts[0] : starts[-1]].tolist()
        paths = tuple(tuple(arcs[a - starts[0] : b - starts[0]]) for a, b in pairwise(starts))
        return Packed(int(self.roots[index]), int(self.copies[index]), paths)


def _ends(paths: Sequence[Sequence[int]]) -> list[int]:
    ends = [0]
    for path in paths:
        ends.append(ends[-1] + len(path))
    return ends


def _images(elements: Array | None, places: Sequence[int]) -> Array:
    import numpy

    array: Array = numpy.asarray(places, dtype=numpy.int64)
    return array if elements is None else elements[:, array].ravel()


def _joined(parts: Sequence[Array]) -> Array:
    import numpy

    return numpy.concatenate([numpy.zeros(0, dtype=numpy.int64), *parts])


def _sums(lengths: Array) -> Array:
    import numpy

    return numpy.concatenate([numpy.zeros(1, dtype=numpy.int64), numpy.cumsum(lengths)])
