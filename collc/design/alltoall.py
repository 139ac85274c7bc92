"""The exact optimum of all-to-all on designs whose symmetries leave few kinds of vertices and links.

Averaging over the symmetries makes every optimal schedule one flow for each kind of vertex, and lets the
links of a kind share their load evenly. That is a small program (`collc.cost.one_source`): a Cayley graph
has one kind of vertex and a kind of link for each generator, its line graph the square of that.

Source: own; vertex-transitive graphs as in arXiv:2309.13541, whose linear program it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from collc.cost.one_source import OneSource, Priced, best_mixture
from collc.design.graph import Graph

if TYPE_CHECKING:
    from collc.design.graph import Row

# Kinds of vertices and of links up to which the optimum is quick.
_MOST_SOURCES = 16
_MOST_CLASSES = 20


def alltoall_optimum(graph: Graph) -> Fraction | None:
    """T of the best all-to-all [M/B, M: what one vertex sends]; None where stated symmetries leave too many kinds.

    Raises:
        InfeasibleError: a vertex cannot be reached.
    """
    if len(graph.representatives) > _MOST_SOURCES:
        return None
    kinds = _Kinds(graph)
    if len(kinds.widths) > _MOST_CLASSES:
        return None
    found = best_mixture(kinds.widths, kinds.cheapest)
    return None if found is None else found.time * Fraction(graph.degree, graph.n)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """A graph by the orbits of its symmetries; loads are those of one vertex of each kind, times how many there are."""

    graph: Graph

    @cached_property
    def _links(self) -> tuple[Row, Row]:
        """(tail * n + head, how many links join them), sorted."""
        import numpy

        n = self.graph.n
        heads = numpy.array(self.graph.heads, dtype=numpy.int64)
        keys = (numpy.arange(n)[:, None] * n + heads)[heads != numpy.arange(n)[:, None]]
        found: tuple[Row, Row] = numpy.unique(keys, return_counts=True)
        return found

    @cached_property
    def _moves(self) -> list[Row]:
        import numpy

        return [numpy.array(image) for image in self.graph.symmetries]

    @cached_property
    def _classes(self) -> Row:
        """By link, the number of its orbit."""
        import numpy

        keys, _ = self._links
        n = self.graph.n
        tails, heads = numpy.divmod(keys, n)
        return _orbits(len(keys), [numpy.searchsorted(keys, move[tails] * n + move[heads]) for move in self._moves])

    @cached_property
    def widths(self) -> list[int]:
        """By class, links."""
        import numpy

        return [int(width) for width in numpy.bincount(self._classes, self._links[1])]

    @cached_property
    def _sources(self) -> list[tuple[int, OneSource]]:
        """How many vertices there are of each kind, and one of them."""
        import numpy

        n = self.graph.n
        tails, heads = numpy.divmod(self._links[0], n)
        sizes = numpy.bincount(_orbits(n, self._moves))
        found = []
        for size, source in zip(sizes.tolist(), self.graph.representatives, strict=True):
            demand = numpy.ones(n, dtype=numpy.int64)
            demand[source] = 0
            found.append((size, OneSource(tails, heads, self._classes, demand, source)))
        return found

    def cheapest(self, prices: Sequence[int]) -> Priced[None]:
        """Loads of the cheapest trees from all vertices."""
        loads = [0] * len(prices)
        for size, source in self._sources:
            loads = [load + size * more for load, more in zip(loads, source.cheapest(prices).loads, strict=True)]
        return Priced(tuple(loads), None)


def _orbits(n: int, images: Sequence[Row]) -> Row:
    """[n] the number of the orbit of each thing, by the least thing in it."""
    import numpy

    least = numpy.arange(n)
    while True:
        before = least
        for image in images:
            joined = numpy.minimum(least, least[image])
            least = joined.copy()
            least[image] = numpy.minimum(joined[image], joined)
        least = least[least]
        if numpy.array_equal(least, before):
            found: Row = numpy.unique(least, return_inverse=True)[1]
            return found
