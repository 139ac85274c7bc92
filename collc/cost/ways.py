"""The cheapest ways from many ranks at once, under prices on links, and what the slots of all pairs pay at least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collc.cost.demand import Demand
from collc.errors import InfeasibleError
from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ranks whose ways are measured at the same time; their fares stay in the cache.
_AT_ONCE = 128
_LARGE = 2**62


def paid_by_pairs(topology: Topology, demand: Demand, prices: Mapping[tuple[str, str], int]) -> int:
    """Sum over pairs of ranks of slots times the least price of a way; links without a price are free.

    Raises:
        InfeasibleError: a rank cannot be reached from another that it needs data of.
    """
    import numpy

    n = demand.n_ranks
    index = {vertex: number for number, vertex in enumerate(topology.gpus + topology.switches)}
    tails = numpy.array([index[link.src] for link in topology.links])
    heads = numpy.array([index[link.dst] for link in topology.links])
    whole = [prices.get((link.src, link.dst), 0) for link in topology.links]
    apart = demand.pairs[~numpy.eye(n, dtype=bool)]
    if set(whole) == {1} and (apart == apart[0]).all():
        return int(apart[0]) * _hops(len(index), tails, heads, n)
    return _weighed(len(index), tails, heads, numpy.array(whole, dtype=object), demand)


def _hops(n_vertices: int, tails: Array, heads: Array, n_ranks: int) -> int:
    """Links on the shortest ways from every rank to every other, in all; a bit tells whether one is reached."""
    import numpy

    order = numpy.argsort(heads, kind="stable")
    ends, firsts = numpy.unique(heads[order], return_index=True)
    starts = tails[order]
    ranks = numpy.arange(n_ranks)
    reached = numpy.zeros((n_vertices, -(-n_ranks // 64)), dtype=numpy.uint64)
    reached[ranks, ranks // 64] = numpy.left_shift(numpy.uint64(1), (ranks % 64).astype(numpy.uint64))
    total, known = 0, n_ranks
    while known < n_ranks**2:
        total += n_ranks**2 - known
        further = numpy.bitwise_or.reduceat(reached[starts], firsts, axis=0)
        stuck = numpy.array_equal(reached[ends] | further, reached[ends])
        reached[ends] |= further
        known = int(numpy.unpackbits(reached[:n_ranks].view(numpy.uint8)).sum())
        if stuck:
            raise InfeasibleError(f"{n_ranks**2 - known} pairs of ranks are joined by no way")
    return total


def _weighed(n_vertices: int, tails: Array, heads: Array, prices: Array, demand: Demand) -> int:
    """Slots times the cheapest ways of their pairs."""
    import numpy

    far = never(n_vertices, prices)
    paid = 0
    for first in range(0, demand.n_ranks, _AT_ONCE):
        ranks = numpy.arange(first, min(first + _AT_ONCE, demand.n_ranks))
        found = fares(n_vertices, tails, heads, prices, ranks)[: demand.n_ranks]
        slots = demand.pairs[ranks].T
        lost = (found >= far) & (slots > 0)
        if lost.any():
            to, from_ = numpy.argwhere(lost)[0]
            raise InfeasibleError(f"rank {to} cannot be reached from rank {first + from_}")
        found[found >= far] = 0
        if int(found.max()) * max(1, int(slots.sum(axis=0).max())) >= _LARGE:
            found = found.astype(object)
        paid += sum(map(int, (found * slots).sum(axis=0)))
    return paid


def never(n_vertices: int, prices: Array) -> int:
    """A fare that no way has."""
    return max(_LARGE // 2, (1 + int(prices.max(initial=0))) * n_vertices)


def fares(n_vertices: int, tails: Array, heads: Array, prices: Array, origins: Array) -> Array:
    """[vertices x origins] the least sum of prices on a way from each origin; `never` where none leads.

    Bellman-Ford, from all origins at once: the first links into all vertices, the second ones, and so on.

    Args:
        prices: by link, whole numbers, zero or more; of any size.
    """
    import numpy

    far = never(n_vertices, prices)
    kind = numpy.dtype(numpy.int64 if far == _LARGE // 2 else object)
    order = numpy.argsort(heads, kind="stable")
    counts = numpy.bincount(heads, minlength=n_vertices)
    port = numpy.arange(len(order)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    rounds = [order[port == place] for place in range(counts.max(initial=0))]
    steps = [(tails[links], heads[links], prices[links].astype(kind)[:, None]) for links in rounds]
    found = numpy.full((n_vertices, len(origins)), far, dtype=kind)
    found[origins, numpy.arange(len(origins))] = 0
    for first in range(0, len(origins), _AT_ONCE):
        some = found[:, first : first + _AT_ONCE].copy()
        before = None
        while before is None or not numpy.array_equal(some, before):
            before = some.copy()
            for starts, ends, price in steps:
                some[ends] = numpy.minimum(some[ends], some[starts] + price)
        found[:, first : first + _AT_ONCE] = some
    return found
