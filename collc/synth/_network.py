"""A fabric and who sends what to whom, in numbers: what the synthesizers for all-to-all work on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc.cost import common_unit, ways
from collc.cost.demand import Demand
from collc.errors import InfeasibleError, UnsupportedError
from collc.ir.collective import Problem
from collc.ir.flow import Bound, Prices
from collc.ir.topology import Topology
from collc.solve import CAPACITY_LIMIT

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Network:
    """A fabric as arrays. Vertices are numbered, GPUs first, by rank; links as in the topology.

    Attributes:
        topology: the fabric.
        tails, heads: by link, its ends.
        bandwidths: by link, in multiples of `unit`.
        unit: [GB/s].
        demand: [ranks x ranks] slots that row's rank sends to column's rank.
        size: slots of the message size.
    """

    topology: Topology
    tails: Array
    heads: Array
    bandwidths: Array
    unit: Fraction
    demand: Array
    size: int

    @staticmethod
    def of(problem: Problem) -> Network:
        """The network of a problem in which every chunk goes from one rank to one rank."""
        import numpy

        topology = problem.topology
        index = {vertex: number for number, vertex in enumerate(topology.gpus + topology.switches)}
        unit = common_unit([link.bandwidth for link in topology.links])
        demand = Demand.of(problem.collective)
        return Network(
            topology,
            numpy.array([index[link.src] for link in topology.links], dtype=numpy.int64),
            numpy.array([index[link.dst] for link in topology.links], dtype=numpy.int64),
            numpy.array([int(link.bandwidth / unit) for link in topology.links], dtype=numpy.int64),
            unit,
            demand.pairs,
            demand.size,
        )

    @property
    def n_ranks(self) -> int:
        """GPUs."""
        return len(self.topology.gpus)

    @property
    def n_vertices(self) -> int:
        """GPUs and switches."""
        return len(self.topology.gpus) + len(self.topology.switches)

    @property
    def n_links(self) -> int:
        """Directed links."""
        return len(self.tails)

    @cached_property
    def vertices(self) -> tuple[str, ...]:
        """Names by number."""
        return self.topology.gpus + self.topology.switches

    @cached_property
    def entering(self) -> Array:
        """[vertices x most links into one] the links into each vertex; `n_links` where there are fewer."""
        import numpy

        counts = numpy.bincount(self.heads, minlength=self.n_vertices)
        table = numpy.full((self.n_vertices, max(counts.max(initial=0), 1)), self.n_links)
        order = numpy.argsort(self.heads, kind="stable")
        firsts = numpy.cumsum(counts) - counts
        table[self.heads[order], numpy.arange(self.n_links) - firsts[self.heads[order]]] = order
        return table

    @cached_property
    def entering_tails(self) -> Array:
        """[vertices x most links into one] where the links into each vertex come from; 0 where there are fewer."""
        import numpy

        return numpy.append(self.tails, 0)[self.entering]

    @cached_property
    def leaving(self) -> list[list[int]]:
        """By vertex, the links out of it."""
        found: list[list[int]] = [[] for _ in range(self.n_vertices)]
        for link, tail in enumerate(self.tails.tolist()):
            found[tail].append(link)
        return found

    def short_ways(self, extra: int, most: int) -> dict[tuple[int, int], list[tuple[str, ...]]]:
        """The ways of every pair that have at most `extra` links beyond the fewest and meet no vertex twice.

        Raises:
            InfeasibleError: a rank cannot be reached.
            UnsupportedError: a pair has more than `most` such ways.
        """
        import numpy

        heads = self.heads.tolist()
        turned = replace(self, tails=self.heads, heads=self.tails)
        left = turned.fares(numpy.ones(self.n_links, dtype=numpy.int64)).tolist()
        found = {}
        for src, dst in numpy.argwhere(self.demand).tolist():
            if left[dst][src] > self.n_vertices:
                raise InfeasibleError(f"rank {dst} cannot be reached from rank {src}")
            paths: list[tuple[int, ...]] = []
            waiting: list[tuple[int, ...]] = [(src,)]
            while waiting:
                path = waiting.pop()
                if path[-1] == dst:
                    paths.append(path)
                    if len(paths) > most:
                        raise UnsupportedError(f"rank {src} has more than {most} short ways to rank {dst}")
                    continue
                room = left[dst][src] + extra - len(path)
                onward = (heads[link] for link in self.leaving[path[-1]])
                waiting += [(*path, head) for head in onward if left[dst][head] <= room and head not in path]
            found[src, dst] = [tuple(self.vertices[at] for at in path) for path in sorted(paths)]
        return found

    def time(self, loads: Array, scale: int) -> Fraction:
        """Time [s/GB of message size] of exact loads by link, in slots times `scale`."""
        worst = max(
            (Fraction(int(load), int(width)) for load, width in zip(loads, self.bandwidths, strict=True)),
            default=Fraction(0),
        )
        return worst / self.unit / self.size / scale

    def fares(self, prices: Array, n_ranks: int | None = None) -> Array:
        """[ranks x vertices] the least sum of prices on a way from each rank; more than any way has where none leads.

        Args:
            prices: by link, whole numbers.
            n_ranks: only from the first of them.
        """
        import numpy

        origins = numpy.arange(n_ranks or self.n_ranks)
        return ways.fares(self.n_vertices, self.tails, self.heads, prices, origins).T

    def price_bound(self, prices: Array, *, alike: bool = False) -> Bound:
        """What whole prices prove: what all pairs must pay at least / what the links earn in unit time.

        Args:
            alike: whether all ranks pay what rank 0 does.
        """
        payers = 1 if alike else self.n_ranks
        fares = self.fares(prices, payers)[:, : self.n_ranks]
        demand = self.demand[:payers]
        is_small = int(demand.max()) * int(fares.max()) * self.n_ranks**2 < CAPACITY_LIMIT
        owed = int(((demand if is_small else demand.astype(object)) * fares).sum()) * self.n_ranks // payers
        earned = sum(int(price) * int(width) for price, width in zip(prices, self.bandwidths, strict=True))
        links = self.topology.links
        witness = Prices(tuple((links[at].src, links[at].dst, Fraction(int(prices[at]))) for at in prices.nonzero()[0]))
        return Bound(Fraction(owed, earned) / self.unit / self.size, witness)
