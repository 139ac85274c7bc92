"""The cheapest ways of all pairs of ranks at once, under prices on links: what their slots pay at least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collc.cost.demand import Demand
from collc.errors import InfeasibleError
from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ranks whose ways are measured at the same time.
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
    # Sums of so many prices and slots stay within 64 bits, or are added up as Python's integers.
    is_large = (1 + max(whole)) * len(index) * max(1, int(demand.pairs.sum(axis=1).max())) >= _LARGE
    return _weighed(len(index), tails, heads, numpy.array(whole, dtype=object if is_large else numpy.int64), demand)


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
        known = int(numpy.bitwise_count(reached[:n_ranks]).sum())
        if stuck:
            raise InfeasibleError(f"{n_ranks**2 - known} pairs of ranks are joined by no way")
    return total


def _weighed(n_vertices: int, tails: Array, heads: Array, prices: Array, demand: Demand) -> int:
    """Slots times the cheapest ways of their pairs."""
    import numpy

    order = numpy.argsort(heads, kind="stable")
    ends, firsts = numpy.unique(heads[order], return_index=True)
    starts, steps = tails[order], prices[order]
    never = (1 + int(prices.max())) * n_vertices
    paid = 0
    for first in range(0, demand.n_ranks, _AT_ONCE):
        ranks = numpy.arange(first, min(first + _AT_ONCE, demand.n_ranks))
        far = numpy.full((n_vertices, len(ranks)), never, dtype=prices.dtype)
        far[ranks, ranks - first] = 0
        while True:
            ways = numpy.minimum.reduceat(far[starts] + steps[:, None], firsts, axis=0)
            better = numpy.minimum(far[ends], ways)
            if numpy.array_equal(better, far[ends]):
                break
            far[ends] = better
        slots = demand.pairs[ranks].T
        lost = (far[: demand.n_ranks] >= never) & (slots > 0)
        if lost.any():
            to, from_ = numpy.argwhere(lost)[0]
            raise InfeasibleError(f"rank {to} cannot be reached from rank {first + from_}")
        paid += sum(map(int, (far[: demand.n_ranks] * slots).sum(axis=0)))
    return paid
