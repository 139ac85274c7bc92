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

from functools import lru_cache

from collc.cost.demand import Demand
from collc.cost.rates import Part, Rates, best_rates
from collc.ir.collective import Collective
from collc.ir.flow import Bound
from collc.ir.topology import Topology

# Ranks up to which the program is solved; seconds of CPU at the limit.
MOST_RANKS = 256


@lru_cache(maxsize=16)
def allreduce_rates(topology: Topology, *, even: bool = False) -> Rates | None:
    """The roots' rates and the shares of both `allreduce_parts`; None where they were not found.

    The topology must connect all ranks, both ways.

    Args:
        even: roots' rates are to differ as little as the best total allows, so that trees are lower.
    """
    n = topology.n_ranks
    if not 1 < n <= MOST_RANKS:
        return None
    return best_rates(topology, allreduce_parts(topology), [1] * n, even=range(n if even else 0))


def allreduce_parts(topology: Topology) -> tuple[Part, Part]:
    """Sums and copies; rank r's rate as a root of both is number r.

    A switch that adds (copies) is reached by every tree of sums (copies), like a GPU that has no data.
    """
    roots = tuple((gpu, rank, 1) for rank, gpu in enumerate(topology.gpus))
    return (
        Part(topology.gpus + topology.reduce, roots, inward=True),
        Part(topology.gpus + topology.multicast, roots),
    )


def rooted_bound(topology: Topology, collective: Collective) -> Bound | None:
    """What link prices prove for schedules of trees; None where they prove nothing."""
    demand = Demand.of(collective)
    everyone = frozenset(range(collective.n_ranks))
    if demand.others != ((everyone, everyone, demand.size),) or topology.multicast or topology.reduce:
        return None
    rates = allreduce_rates(topology)
    if rates is None:
        return None
    return Bound(1 / rates.total, rates.witness(topology))
