"""What limits an all-to-all, side by side: distances, the Moore bound, cuts, and what a rank can send or get.

Each is a limit that no schedule beats. The price bound of `mcf` is at least as good as the first two; they
tell why it is what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from collc.cost.cuts import best_cut, common_unit, rank_cut, swept_cut
from collc.cost.demand import Demand
from collc.cost.ways import paid_by_pairs
from collc.ir.collective import Problem
from collc.ir.topology import Topology

# Ranks up to which a cut is looked for around every rank; beyond, only along orders of the vertices.
_MOST_CUT = 256
# Ranks x links up to which ways are measured in time as well as in links.
_MOST_WEIGHED = 2**23
# Sums beyond are left to Python's own integers.
_LARGE = 2**62


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        kind: distance, moore, cut or host.
        algbw: what no schedule is faster than [GB/s]; None where it says nothing.
        because: why it says nothing.
    """

    kind: str
    algbw: Fraction | None
    because: str = ""


def alltoall_limits(problem: Problem) -> tuple[Limit, ...]:
    """The four limits of a table whose every chunk goes from one rank to one rank; none for other tables.

    Raises:
        InfeasibleError: some rank cannot be reached from another that it needs data of.
    """
    demand = Demand.of(problem.collective)
    if any(demand.spread) or any(demand.gathered) or demand.others or not demand.moves:
        return ()
    topology = problem.topology
    cut = best_cut(topology, demand) if topology.n_ranks <= _MOST_CUT else swept_cut(topology, demand)
    return (
        Limit("distance", _distance(topology, demand)),
        _moore(topology, demand),
        Limit("cut", cut.algbw),
        Limit("host", rank_cut(topology, demand).algbw),
    )


def limits_document(limits: Sequence[Limit]) -> dict[str, Any]:
    """The limits as data [GB/s, exactly], and which is least; nothing for other tables."""
    told = {limit.kind: limit.algbw for limit in limits if limit.algbw is not None}
    if not told:
        return {}
    return {
        "bounds_exact": {limit.kind: None if limit.algbw is None else str(limit.algbw) for limit in limits},
        "bounds_left_out": {limit.kind: limit.because for limit in limits if limit.algbw is None},
        "binds": min(told, key=lambda kind: told[kind]),
    }


def _distance(topology: Topology, demand: Demand) -> Fraction:
    """All links together carry every slot over as many links as its ways have at least.

    Where links differ, ways are also measured by the time that a slot takes on each.
    """
    links = [(link.src, link.dst) for link in topology.links]
    total = sum((link.bandwidth for link in topology.links), Fraction(0))
    best = paid_by_pairs(topology, demand, dict.fromkeys(links, 1)) / total
    if len({link.bandwidth for link in topology.links}) > 1 and len(links) * demand.n_ranks <= _MOST_WEIGHED:
        unit = common_unit([1 / link.bandwidth for link in topology.links])
        times = {ends: int(1 / link.bandwidth / unit) for ends, link in zip(links, topology.links, strict=True)}
        best = max(best, paid_by_pairs(topology, demand, times) * unit / len(links))
    return demand.size / best


def _moore(topology: Topology, demand: Demand) -> Limit:
    """Ports could lead to so many ranks at most by each number of links; a rank's largest blocks go to the nearest."""
    import numpy

    if topology.switches:
        return Limit("moore", None, "the fabric has switches")
    ports = max(map(len, topology.successors.values()))
    layers = moore_layers(demand.n_ranks, ports)
    if sum(layers) < demand.n_ranks:
        return Limit("moore", None, "no ports")
    hops = numpy.repeat(numpy.arange(len(layers)), layers)[1:]
    blocks = demand.pairs.copy()
    numpy.fill_diagonal(blocks, 0)
    blocks.sort(axis=1)
    if int(blocks.sum(axis=1).max()) * int(hops[-1]) >= _LARGE:
        blocks = blocks.astype(object)
    paid = sum(map(int, (blocks[:, :0:-1] * hops).sum(axis=1)))
    total = sum((link.bandwidth for link in topology.links), Fraction(0))
    return Limit("moore", demand.size * total / paid)


def moore_layers(n: int, degree: int, *, two_way: bool = False) -> list[int]:
    """By distance, the most vertices there can be, up to n in all."""
    layers, left = [1], n - 1
    grows = degree
    while left > 0:
        reached = min(left, grows)
        layers.append(reached)
        left -= reached
        grows *= max(1, degree - 1) if two_way else degree
        if two_way and degree == 1:
            break
    return layers
