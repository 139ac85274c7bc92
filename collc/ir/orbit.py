"""Trees of a few ranks that stand for everybody's, by renamings of the fabric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from collc.errors import InputError
from collc.ir.chunks import AllPairs, Chunk
from collc.ir.forest import Forest, Tree
from collc.ir.lazy import Lazy
from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Orbit(Lazy[Tree]):
    """Trees of a few ranks' chunks and the renamings that make all others of them; one is made when it is asked for.

    For tables by the rule `AllPairs`: a renaming takes the i-th chunk from one rank to another to the i-th
    chunk between the ranks that these become. Trees are listed by renaming, each time in the order of the base.

    Attributes:
        base: the trees of some ranks' chunks.
        images: [renamings x vertices] where each takes a vertex, in the order of `base.names`.
        per_pair: as the table has it.
    """

    base: Forest
    images: Array
    per_pair: int = 1

    def __post_init__(self) -> None:
        n_vertices = len(self.base.names)
        if self.images.ndim != 2 or self.images.shape[1] != n_vertices or not self.images.size:
            raise InputError(
                f"orbit: images of shape {self.images.shape}; expected one or more rows for {n_vertices} vertices"
            )
        least, most = int(self.images.min()), int(self.images.max())
        if least < 0 or most >= n_vertices:
            raise InputError(f"orbit: images hold {least}..{most}; expected 0..{n_vertices - 1}")
        if self.per_pair < 1:
            raise InputError(f"orbit: {self.per_pair} chunks for each pair of ranks; expected 1 or more")

    def __len__(self) -> int:
        return len(self.images) * len(self.base)

    def make(self, index: int) -> Tree:
        """The tree at an index."""
        image, tree = divmod(index, len(self.base))
        return self.moved(image)[tree]

    def __iter__(self) -> Iterator[Tree]:
        for image in range(len(self.images)):
            yield from self.moved(image)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Orbit):
            return NotImplemented
        same = self.per_pair == other.per_pair and self.images.shape == other.images.shape
        return same and bool((self.images == other.images).all()) and self.base == other.base

    def __hash__(self) -> int:
        return hash((self.per_pair, self.images.shape, self.base))

    @property
    def lowest_denominator(self) -> int:
        """The least common denominator of all weights."""
        return self.base.lowest_denominator

    def moved(self, image: int) -> Forest:
        """The trees that one renaming makes.

        Raises:
            InputError: it makes a switch of a GPU.
        """
        row = self.images[image].astype("int64")
        base, n = self.base, self.base.n_ranks
        pair, part = base.chunks // self.per_pair, base.chunks % self.per_pair
        return replace(
            base,
            chunks=(row[pair // n] * n + row[pair % n]) * self.per_pair + part,
            roots=row[base.roots],
            vertices=row[base.vertices],
        )

    def check_fits(self, topology: Topology, chunks: Sequence[Chunk]) -> None:
        """Nothing, where vertices are the topology's and the table is the rule that the trees go by.

        Raises:
            InputError: they are not.
        """
        if chunks != AllPairs(self.base.n_ranks, self.per_pair):
            raise InputError(
                f"orbit: the table is not {self.per_pair} chunks from each of {self.base.n_ranks} ranks to each"
            )
        self.base.check_fits(topology, len(chunks))
