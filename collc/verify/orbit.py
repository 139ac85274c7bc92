"""Checks trees that renamings of the fabric make of a few ranks' trees, without making them.

A renaming that takes vertices one to one, GPUs to GPUs and links to links of equal bandwidth takes what
serves a chunk to what serves the chunk between the renamed ranks. So if the base serves all chunks of its
ranks, and the renamings take these ranks to every rank once, every chunk is served once; loads of links are
those of the base, added up wherever a renaming takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc.ir.collective import Collective
from collc.ir.flow import Orbit
from collc.ir.topology import Route, Topology
from collc.verify import fares, forest
from collc.verify.findings import Finding

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_BATCH = 1 << 21  # links of all renamings looked at together; bounds the memory


class Renamed:
    """An orbit on its fabric."""

    def __init__(self, topology: Topology, orbit: Orbit) -> None:
        self._topology = topology
        self._orbit = orbit
        self._number = {name: vertex for vertex, name in enumerate(topology.gpus + topology.switches)}

    def faults(self) -> Iterator[Finding]:
        """What keeps the renamings from taking every way of the fabric to a way of the fabric."""
        import numpy

        images, n = self._orbit.images, self._topology.n_ranks
        every = numpy.arange(images.shape[1])
        for start in range(0, len(images), self._width):
            some = images[start : start + self._width]
            for row in numpy.flatnonzero((numpy.sort(some, axis=1) != every).any(axis=1)).tolist():
                yield _fault(start + row, "takes two vertices to one")
            for row in numpy.flatnonzero((some[:, :n] >= n).any(axis=1)).tolist():
                yield _fault(start + row, "takes a GPU to a switch")
        widths = [link.bandwidth for link in self._topology.links]
        kinds = {width: kind for kind, width in enumerate(dict.fromkeys(widths))}
        kind_of = numpy.array([kinds[width] for width in widths], dtype=numpy.int64)
        for start, links in self._links():
            wrong = (links < 0) | (kind_of[links] != kind_of)
            for row, at in zip(*(found.tolist() for found in _firsts(wrong)), strict=True):
                link = self._topology.links[at]
                gone = links[row, at] < 0
                yield _fault(
                    start + row,
                    f"takes link {link.src} -> {link.dst} "
                    + ("to where there is none" if gone else "to one of another bandwidth"),
                )

    def unserved(self) -> Iterator[Finding]:
        """Where a chunk's shares do not add to one, in the base, or as renamings repeat it."""
        import numpy

        base, n, per_pair = self._orbit.base, self._topology.n_ranks, self._orbit.per_pair
        roots = self.origins
        row = numpy.searchsorted(roots, base.chunks // (n * per_pair))
        place = row * n * per_pair + base.chunks % (n * per_pair)
        total = numpy.zeros(len(roots) * n * per_pair, dtype=object)
        numpy.add.at(total, place, base.numerators.astype(object))
        sink = numpy.arange(n * per_pair) // per_pair
        stays = (sink == roots[:, None]).ravel()
        for at in numpy.flatnonzero((total != base.denominator) & ((total != 0) | ~stays)).tolist():
            chunk = int(roots[at // (n * per_pair)]) * n * per_pair + at % (n * per_pair)
            weight = Fraction(total[at], base.denominator)
            yield Finding("weights", "error", f"the weights of chunk {chunk}'s trees add to {weight}; expected 1")
        times = numpy.bincount(self._orbit.images[:, roots].ravel(), minlength=n)
        for rank in numpy.flatnonzero(times != 1).tolist():
            yield Finding(
                "weights",
                "error",
                f"renamings make trees for the chunks of rank {rank} {times[rank]} times; expected once",
                rank=rank,
            )

    def hop_loads(self, collective: Collective) -> tuple[Mapping[tuple[str, str], int], Fraction] | None:
        """Load of each link in whole units, and the unit [share of the message]; None where 64 bits do not do."""
        import numpy

        if (found := forest.hop_loads(self._orbit.base, collective)) is None:
            return None
        base, unit = found
        kind = self._sums(base)
        ends = [(link.src, link.dst) for link in self._topology.links]
        own = numpy.array([base.get(hop, 0) for hop in ends], dtype=kind)
        total = numpy.zeros_like(own)
        for _, links in self._links():
            for row in links:
                total[row] += own  # a renaming takes no two links to one
        return dict(zip(ends, total.tolist(), strict=True)), unit

    def route_loads(self, collective: Collective) -> tuple[Mapping[Route, int], Fraction] | None:
        """Load of each route in whole units, and the unit [share of the message]; None where 64 bits do not do."""
        import numpy

        if (found := forest.route_loads(self._orbit.base, collective)) is None:
            return None
        base, unit = found
        kind = self._sums(base)
        names = self._orbit.base.names
        total: dict[tuple[int, ...], int] = {}
        for length in sorted({len(route.path) for route in base}):
            stops = [[self._number[stop] for stop in route.path] for route in base if len(route.path) == length]
            loads = numpy.array([load for route, load in base.items() if len(route.path) == length], dtype=kind)
            width = max(1, _BATCH // len(stops))
            for start in range(0, len(self._orbit.images), width):
                paths = self._orbit.images[start : start + width][:, stops].reshape(-1, length)
                key = paths[:, 0].astype(numpy.int64)
                for stop in paths.T[1:]:
                    _, first, key = numpy.unique(key * len(names) + stop, return_index=True, return_inverse=True)
                sums = numpy.zeros(len(first), dtype=kind)
                numpy.add.at(sums, key.reshape(-1), numpy.tile(loads, len(paths) // len(stops)))
                for path, load in zip(paths[first].tolist(), sums.tolist(), strict=True):
                    total[tuple(path)] = total.get(tuple(path), 0) + load
        return {
            Route(path[0], path[-1], tuple(names[stop] for stop in path)): load for path, load in total.items()
        }, unit

    def owed(self, price_of: Mapping[tuple[str, str], int]) -> int | None:
        """What the cheapest ways of all chunks cost; None where renamings do not keep the prices.

        Where they do, a renaming takes cheapest ways to cheapest ways of the same price.
        """
        import numpy

        prices = [price_of.get((link.src, link.dst), 0) for link in self._topology.links]
        kinds = {price: kind for kind, price in enumerate(dict.fromkeys(prices))}
        kind_of = numpy.array([kinds[price] for price in prices], dtype=numpy.int64)
        if any((kind_of[links] != kind_of).any() for _, links in self._links()):
            return None
        own = fares.total(fares.cheapest(self._topology, price_of, self.origins.tolist()))
        return own * self._orbit.per_pair * len(self._orbit.images)

    def _sums(self, base: Mapping[Any, int]) -> Any:
        """The type that holds what renamings add up in one place; each of them takes one thing there."""
        import numpy

        most = max(base.values(), default=0) * len(self._orbit.images)
        return numpy.dtype(numpy.int64 if most < 1 << 62 else object)

    @cached_property
    def origins(self) -> Array:
        """The ranks whose chunks the base serves."""
        import numpy

        return numpy.unique(self._orbit.base.chunks // (self._topology.n_ranks * self._orbit.per_pair))

    @property
    def _width(self) -> int:
        return max(1, _BATCH // max(1, len(self._topology.links), len(self._number)))

    @cached_property
    def _place(self) -> Array:
        """[vertices x vertices] the number of the link between them; -1 where there is none."""
        import numpy

        links, number = self._topology.links, self._number
        place = numpy.full((len(number), len(number)), -1, dtype=numpy.int32)
        place[[number[link.src] for link in links], [number[link.dst] for link in links]] = numpy.arange(len(links))
        return place

    def _links(self) -> Iterator[tuple[int, Array]]:
        """The first of some renamings, and where each of them takes each link (-1: nowhere)."""
        import numpy

        tails = numpy.array([self._number[link.src] for link in self._topology.links], dtype=numpy.int64)
        heads = numpy.array([self._number[link.dst] for link in self._topology.links], dtype=numpy.int64)
        for start in range(0, len(self._orbit.images), self._width):
            some = self._orbit.images[start : start + self._width]
            yield start, self._place[some[:, tails], some[:, heads]]


def _firsts(wrong: Array) -> tuple[Array, Array]:
    """Rows in which something is wrong, and the first place in each."""
    import numpy

    rows = numpy.flatnonzero(wrong.any(axis=1))
    return rows, wrong[rows].argmax(axis=1)


def _fault(image: int, what: str) -> Finding:
    return Finding("symmetry", "error", f"renaming {image} {what}, so it does not take ways to ways")
