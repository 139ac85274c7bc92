"""The best all-reduce by trees: every share is summed on a tree into one rank and copied out on another.

Equal shares for all roots, a reduce-scatter and an allgather, make every rank send and receive almost
everything twice. Where GPUs or hosts are uneven, it is better to let the strong ones be roots: the
program of `rates` chooses each root's rate and splits each link between sums and copies.

What it proves holds for schedules of that kind only (`Prices.rooted`), which is all that `Tree` can
say; no proof is known to us that sums which meet in no single rank cannot do better. In a switch that
adds or copies, trees may join and branch; the bound there is that of cuts, which holds for everything.

Source: the linear program is our own; ForestColl (arXiv:2402.06787) describes one of the same purpose.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from collc.cost.demand import Demand
from collc.cost.rates import Part, Rates, best_rates
from collc.ir.collective import Collective
from collc.ir.flow import Bound, Prices
from collc.ir.topology import Topology

# Ranks up to which the program is solved; seconds of CPU at the limit.
MOST_RANKS = 256


@lru_cache(maxsize=16)
def allreduce_rates(topology: Topology) -> Rates | None:
    """The roots' rates and both kinds' shares of the links, sums first; None where they were not found.

    A switch that adds (copies) is reached by every tree of sums (copies), like a GPU that has no data.
    The topology must connect all ranks, both ways.
    """
    n = topology.n_ranks
    if not 1 < n <= MOST_RANKS:
        return None
    roots = tuple((gpu, rank, 1) for rank, gpu in enumerate(topology.gpus))
    parts = (
        Part(topology.gpus + topology.reduce, roots, inward=True),
        Part(topology.gpus + topology.multicast, roots),
    )
    return best_rates(topology, parts, [1] * n)


def rooted_bound(topology: Topology, collective: Collective) -> Bound | None:
    """What link prices prove for schedules of trees; None where they prove nothing."""
    demand = Demand.of(collective)
    everyone = frozenset(range(collective.n_ranks))
    if demand.others != ((everyone, everyone, demand.size),) or topology.multicast or topology.reduce:
        return None
    rates = allreduce_rates(topology)
    if rates is None:
        return None
    # Prices add up, over bandwidths, to the total: what a byte must pay is one, exactly.
    price = tuple(
        (link.src, link.dst, price) for link, price in zip(topology.links, rates.prices, strict=True) if price
    )
    return Bound(Fraction(1) / rates.total, Prices(price, rooted=True))
