"""Symmetries of a fabric: ways to renumber its vertices that leave every link where it was.

Candidates come from how fabrics are built: like hosts one after the other, blocks of ranks that
repeat, rows and columns of a torus. Each is completed to the switches and then checked link by link;
what is no symmetry is dropped, so that nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Rounds in which vertices are told apart by their neighbours; more would only tell apart more.
_ROUNDS = 6


@dataclass(frozen=True)
class Graph:
    """What a symmetry must keep.

    Attributes:
        marks: by rank, what it must share with those it is taken to.
        tails, heads, widths: by link; a link is taken to one of equal width.
        hosts: ranks that belong together.
    """

    n_vertices: int
    marks: Sequence[int]
    tails: Sequence[int]
    heads: Sequence[int]
    widths: Sequence[int]
    hosts: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Group:
    """Symmetries that form a group.

    Attributes:
        vertices: [elements x vertices] where each element takes a vertex; the first leaves all alone.
        links: [elements x links] the same for links.
    """

    vertices: Array
    links: Array

    @property
    def order(self) -> int:
        """How many elements."""
        return len(self.vertices)

    def orbits(self, n_ranks: int) -> list[list[int]]:
        """Ranks by where the elements take them."""
        found: dict[int, list[int]] = {}
        for rank, first in enumerate(self.vertices[:, :n_ranks].min(axis=0).tolist()):
            found.setdefault(first, []).append(rank)
        return list(found.values())

    def times(self, other: Group) -> Group:
        """All products of an element and one of another group that commutes with this one."""
        import numpy

        if self.order == 1:
            return other
        vertices = numpy.concatenate([self.vertices[:, element] for element in other.vertices])
        links = numpy.concatenate([self.links[:, element] for element in other.links])
        first: dict[bytes, int] = {}
        for index, element in enumerate(vertices):
            first.setdefault(element.tobytes(), index)
        kept = list(first.values())
        return Group(vertices[kept], links[kept])


def trivial_group(n_vertices: int, n_links: int) -> Group:
    """The group of order one."""
    import numpy

    return Group(numpy.arange(n_vertices, dtype=numpy.int32)[None], numpy.arange(n_links, dtype=numpy.int32)[None])


def find_group(graph: Graph) -> Group:
    """A large group of symmetries that commute; of order one where nothing repeats."""
    search = _Search(graph)
    group = trivial_group(graph.n_vertices, len(graph.tails))
    colours = search.colours()[: len(graph.marks)]
    for ranks in _candidates(graph, colours):
        if group.order * 2 > len(graph.marks):
            break
        # The cheap questions first.
        known = group.vertices[:, : len(ranks)]
        if (colours[ranks] != colours).any() or not _commutes(known, ranks) or (known == ranks).all(axis=1).any():
            continue
        if (generator := search.completed(ranks)) is None or not _commutes(group.vertices, generator):
            continue
        powers = search.powers(generator, len(graph.marks) // group.order)
        if powers is not None:
            group = group.times(powers)
    return group


def _commutes(elements: Array, generator: Array) -> bool:
    return bool((elements[:, generator] == generator[elements]).all())


def _candidates(graph: Graph, colours: Array) -> Iterator[Array]:
    """Ways to renumber the ranks that may be symmetries, those that move furthest first."""
    n = len(graph.marks)
    yield from _alike_hosts(graph, colours)
    sizes = {len(host) for host in graph.hosts} if len(graph.hosts) > 1 else {1}
    least = min(sizes) if len(sizes) == 1 else n
    yield from _rotations(n, least)


def _rotations(n: int, least: int = 1) -> Iterator[Array]:
    """Places taken in blocks of equal length, all turned by the same step, `least` or more."""
    import numpy

    places = numpy.arange(n)
    for block in _divisors(n):
        for step in _divisors(block)[::-1]:
            if least <= step < block:
                yield places // block * block + (places % block + step) % block


def _divisors(n: int) -> list[int]:
    """From the largest."""
    return [d for d in range(n, 0, -1) if n % d == 0]


def _alike_hosts(graph: Graph, colours: Array) -> Iterator[Array]:
    """The largest class of like hosts, turned in blocks; all others stay."""
    import numpy

    classes: dict[tuple[int, ...], list[Sequence[int]]] = {}
    for host in graph.hosts:
        classes.setdefault(tuple(int(colours[rank]) for rank in host), []).append(host)
    largest: list[Sequence[int]] = max(classes.values(), key=len, default=[])
    here = numpy.array(largest, dtype=numpy.int64)
    for places in _rotations(len(largest)):
        moved = numpy.arange(len(graph.marks))
        moved[here] = here[places]
        yield moved


class _Search:
    """Completes and checks candidates on one graph."""

    def __init__(self, graph: Graph) -> None:
        import numpy

        self._graph = graph
        self._tails = numpy.array(graph.tails, dtype=numpy.int64)
        self._heads = numpy.array(graph.heads, dtype=numpy.int64)
        self._widths = _numbered(graph.widths)
        self._marks = _numbered(graph.marks)
        keys = self._tails * graph.n_vertices + self._heads
        self._order = numpy.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def colours(self) -> Array:
        """By vertex, a number that all it can be taken to share."""
        import numpy

        return self._refined(self._marks.astype(numpy.uint64) + numpy.uint64(1))

    def completed(self, ranks: Array) -> Array | None:
        """Where every vertex goes if ranks go there; None where some link has no place to go to."""
        import numpy

        # Two colourings that would be equal if the candidate were a symmetry; like switches keep their order.
        before = self._refined(ranks.astype(numpy.uint64) + numpy.uint64(1))
        after = self._refined(numpy.arange(len(ranks), dtype=numpy.uint64) + numpy.uint64(1))
        here, there = numpy.argsort(before, kind="stable"), numpy.argsort(after, kind="stable")
        if (before[here] != after[there]).any():
            return None
        moved = numpy.empty(self._graph.n_vertices, dtype=numpy.int32)
        moved[here] = there
        if (moved[: len(ranks)] != ranks).any() or self._links_of(moved) is None:
            return None
        return moved if (self._marks[ranks] == self._marks).all() else None

    def powers(self, generator: Array, most: int) -> Group | None:
        """The group that one symmetry generates, if its order is at most that."""
        import numpy

        links = self._links_of(generator)
        if links is None:
            return None
        identity = trivial_group(len(generator), len(self._tails))
        vertices_of, links_of = [identity.vertices[0]], [identity.links[0]]
        while len(vertices_of) <= most:
            vertices_of.append(generator[vertices_of[-1]])
            links_of.append(links[links_of[-1]])
            if (vertices_of[-1] == vertices_of[0]).all():
                return Group(numpy.stack(vertices_of[:-1]), numpy.stack(links_of[:-1]))
        return None

    def _links_of(self, moved: Array) -> Array | None:
        """Where every link goes if vertices go there; None where it has no place to go to."""
        import numpy

        keys = moved[self._tails].astype(numpy.int64) * self._graph.n_vertices + moved[self._heads]
        places = numpy.searchsorted(self._keys, keys)
        if len(keys) and ((places == len(keys)).any() or (self._keys[places % len(keys)] != keys).any()):
            return None
        links = self._order[places].astype(numpy.int32)
        return links if (self._widths[links] == self._widths).all() else None

    def _refined(self, ranks: Array) -> Array:
        """Colours of vertices from colours of ranks: each round adds those of the neighbours."""
        import numpy

        n, width = self._graph.n_vertices, self._widths.astype(numpy.uint64)
        colours = numpy.zeros(n, dtype=numpy.uint64)
        colours[: len(ranks)] = mixed(ranks)
        for _ in range(_ROUNDS):
            told = numpy.zeros(n, dtype=numpy.uint64)
            numpy.add.at(told, self._heads, mixed(colours[self._tails] + mixed(width * numpy.uint64(2))))
            numpy.add.at(
                told, self._tails, mixed(colours[self._heads] + mixed(width * numpy.uint64(2) + numpy.uint64(1)))
            )
            colours = mixed(colours + mixed(told))
        return colours


def _numbered(values: Sequence[int]) -> Array:
    """The same number for equal values, from zero in order of appearance; values may be of any size."""
    import numpy

    numbers: dict[int, int] = {}
    return numpy.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=numpy.int64)


def mixed(values: Array) -> Array:
    """Numbers spread over 64 bits, equal for equal ones.

    Source: Steele, Lea & Flood, Fast splittable pseudorandom number generators, OOPSLA 2014 (splitmix64).
    """
    import numpy

    mixed = values + numpy.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> numpy.uint64(31))
