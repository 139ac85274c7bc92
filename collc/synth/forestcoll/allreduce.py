"""All-reduce with a share for each root as large as the fabric wants it: the rates of `cost`, packed.

Sums and copies have links of their own, so each half is a packing problem by itself. A switch that
adds (copies) takes the place of a GPU there: every tree of that half reaches it and may branch in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from collc import cost
from collc.errors import UnsupportedError
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import Bound, FlowSchedule, Tree
from collc.ir.topology import Topology
from collc.solve import CAPACITY_LIMIT
from collc.synth.forestcoll.renew import pack_low
from collc.synth.forestcoll.scale import Instance
from collc.synth.forestcoll.ways import Way, overlay, routes_of
from collc.units import format_rate


def uneven_allreduce(problem: Problem, limit: Bound) -> FlowSchedule | None:
    """The all-reduce at the best rates; None where equal shares for all roots are as fast, or there are no rates.

    Switches of the fabric that add or copy do so where that is faster.

    Args:
        limit: the bound it is to carry.
    """
    equal = _equal_time(problem)
    fabrics = dict.fromkeys((problem.topology, problem.topology.without_branching()))
    rated = [(rates, fabric) for fabric in fabrics if (rates := cost.allreduce_rates(fabric)) is not None]
    for rates, fabric in sorted(rated, key=lambda pair: -pair[0].total):
        if 1 / rates.total >= equal:
            break
        try:
            trees = _trees(problem, fabric, rates)
        except UnsupportedError:
            continue
        in_network = bool(fabric.multicast or fabric.reduce)
        time = cost.bandwidth_time(problem, trees, in_network=in_network)
        note = f"{_how(fabric)}; equal shares of a reduce-scatter and an allgather reach {format_rate(1 / equal)} GB/s"
        return FlowSchedule(problem, trees, time, limit, (note,), in_network)
    return None


def _equal_time(problem: Problem) -> Fraction:
    """Time of a reduce-scatter and an allgather, both optimal [s/GB of message size]."""
    n = problem.topology.n_ranks
    halves = (
        cost.bound(Problem(problem.topology, make_collective(name, n))) for name in ("reduce_scatter", "allgather")
    )
    return sum((half.time for half in halves if half is not None), Fraction(0))


def _how(fabric: Topology) -> str:
    branching = tuple(dict.fromkeys(fabric.reduce + fabric.multicast))
    if not branching:
        return "shares per root chosen by linear program"
    few = ", ".join(branching[:3]) + (f" and {len(branching) - 3} more" if len(branching) > 3 else "")
    return f"switches add and copy ({few}), shares per root chosen by linear program"


def _trees(problem: Problem, fabric: Topology, found: cost.Rates) -> tuple[Tree, ...]:
    ups = _ways(fabric.reversed(), fabric.reduce, found.shares[0], found.rates)
    downs = _ways(fabric, fabric.multicast, found.shares[1], found.rates)
    pairs = overlay([way.reversed() for way in ups], downs)
    return tuple(
        Tree(index, up.share * found.rates[up.root] / found.total, up.root, reduce=up.routes, broadcast=down.routes)
        for index in range(len(problem.collective.chunks))
        for up, down in pairs
    )


def _ways(
    topology: Topology, branching: Sequence[str], shares: Sequence[Fraction], rates: Sequence[Fraction]
) -> list[Way]:
    """Ways from each root to all ranks."""
    instance = _instance(topology, branching, shares, rates)
    return [
        Way(
            tree.root,
            Fraction(tree.copies, instance.trees[tree.root]),
            routes_of(instance, tree.paths, topology.n_ranks),
        )
        for tree in pack_low(instance)
    ]


def _instance(
    topology: Topology, branching: Sequence[str], shares: Sequence[Fraction], rates: Sequence[Fraction]
) -> Instance:
    """The packing problem of one half, in the largest unit that all rates and shares are multiples of."""
    common = lcm(*(value.denominator for value in (*shares, *rates)))
    whole = [int(value * common) for value in (*shares, *rates)]
    unit = gcd(*whole)
    capacities, trees = (
        [value // unit for value in whole[: len(shares)]],
        [value // unit for value in whole[len(shares) :]],
    )
    if sum(capacities) + (len(trees) + 2) * sum(trees) >= CAPACITY_LIMIT // 2:
        raise UnsupportedError("forestcoll: the best rates for all-reduce need capacities beyond 64 bits")
    names = (*topology.gpus, *branching, *(name for name in topology.switches if name not in branching))
    number = {name: vertex for vertex, name in enumerate(names)}
    return Instance(
        topology.n_ranks + len(branching),
        names,
        tuple(number[link.src] for link in topology.links),
        tuple(number[link.dst] for link in topology.links),
        tuple(capacities),
        (*trees, *[0] * len(branching)),
    )
