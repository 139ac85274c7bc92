"""All-reduce with a share for each root as large as the fabric wants it: the rates of `cost`, packed.

Sums and copies have links of their own, so each half is a packing problem by itself. A switch that
adds (copies) takes the place of a GPU there: every tree of that half reaches it and may branch in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

from collc import cost
from collc.cost.rates import Part
from collc.errors import UnsupportedError
from collc.ir.collective import Problem
from collc.ir.flow import Bound, FlowSchedule, Tree
from collc.ir.topology import Topology
from collc.solve import CAPACITY_LIMIT
from collc.synth.forestcoll.renew import pack_low
from collc.synth.forestcoll.scale import Instance
from collc.synth.forestcoll.ways import Way, overlay, routes_of
from collc.units import format_rate


def uneven_allreduce(equal: FlowSchedule) -> FlowSchedule | None:
    """An all-reduce at the best rates; None where they are not better than what equal shares reached."""
    fabric = equal.problem.topology.without_branching()
    rates = cost.allreduce_rates(fabric)
    if rates is None or 1 / rates.total >= equal.time:
        return None
    said = f"equal shares for all roots reach {format_rate(1 / equal.time)} GB/s"
    return _at_best_rates(equal.problem, equal.bound, fabric, f"shares per root chosen by linear program; {said}")


def in_network_allreduce(problem: Problem, limit: Bound) -> FlowSchedule | None:
    """An all-reduce whose trees join and branch in switches; None where that is no better than any without.

    Args:
        limit: the bound to carry.
    """
    fabric = problem.topology
    if not (fabric.multicast or fabric.reduce):
        return None
    plain = cost.allreduce_rates(fabric.without_branching())
    if plain is None or 1 / plain.total <= limit.time:
        return None
    rates = cost.allreduce_rates(fabric)
    if rates is None or rates.total <= plain.total:
        return None
    branching = tuple(dict.fromkeys(fabric.reduce + fabric.multicast))
    few = ", ".join(branching[:3]) + (f" and {len(branching) - 3} more" if len(branching) > 3 else "")
    said = f"without, trees reach {format_rate(plain.total)} GB/s at most"
    return _at_best_rates(problem, limit, fabric, f"switches add and copy ({few}); {said}")


def _at_best_rates(problem: Problem, limit: Bound | None, fabric: Topology, note: str) -> FlowSchedule | None:
    """A flow at the best rates of a fabric, which is the problem's or that with switches that only forward."""
    rates = cost.allreduce_rates(fabric, even=True) or cost.allreduce_rates(fabric)
    if rates is None:
        return None
    try:
        trees = _trees(problem, fabric, rates)
    except UnsupportedError:
        return None
    in_network = bool(fabric.multicast or fabric.reduce)
    time = cost.bandwidth_time(problem, trees, in_network=in_network)
    return FlowSchedule(problem, trees, time, limit, (note,), in_network)


def _trees(problem: Problem, fabric: Topology, found: cost.Rates) -> tuple[Tree, ...]:
    rates = dict(zip(fabric.gpus, found.rates, strict=True))
    sums, copies = (
        pack_share(fabric, part, share, rates)
        for part, share in zip(cost.allreduce_parts(fabric), found.shares, strict=True)
    )
    return tuple(
        Tree(index, up.share * found.rates[up.root] / found.total, up.root, reduce=up.routes, broadcast=down.routes)
        for index in range(len(problem.collective.chunks))
        for up, down in overlay(sums, copies)
    )


def pack_share(topology: Topology, part: Part, share: Sequence[Fraction], rates: Mapping[str, Fraction]) -> list[Way]:
    """Ways from each root to all that a part reaches, or from all to each root, by their places in `part.spanned`.

    Args:
        share: what the part has of each link [GB/s].
        rates: of the roots, by vertex [GB/s].

    Raises:
        UnsupportedError: capacities beyond 64 bits.
    """
    fabric = topology.reversed() if part.inward else topology
    instance = _instance(fabric, part, share, rates)
    n_gpus = sum(vertex in topology.rank_of for vertex in part.spanned)
    ways = [
        Way(tree.root, Fraction(tree.copies, instance.trees[tree.root]), routes_of(instance, tree.paths, n_gpus))
        for tree in pack_low(instance)
    ]
    return [way.reversed() for way in ways] if part.inward else ways


def _instance(topology: Topology, part: Part, share: Sequence[Fraction], rates: Mapping[str, Fraction]) -> Instance:
    """The packing problem of a part, in the largest unit that all rates and shares are multiples of."""
    values = [*share, *(rates.get(vertex, Fraction(0)) for vertex in part.spanned)]
    common = lcm(*(value.denominator for value in values))
    unit = gcd(*(int(value * common) for value in values))
    whole = [int(value * common) // unit for value in values]
    capacities, trees = whole[: len(share)], whole[len(share) :]
    if sum(capacities) + (len(trees) + 2) * sum(trees) >= CAPACITY_LIMIT // 2:
        raise UnsupportedError("forestcoll: the best rates need capacities beyond 64 bits")
    others = (name for name in topology.gpus + topology.switches if name not in part.spanned)
    names = (*part.spanned, *(name for name in others if name not in part.absent))
    number = {name: vertex for vertex, name in enumerate(names)}
    links = [
        (number[link.src], number[link.dst], capacity)
        for link, capacity in zip(topology.links, capacities, strict=True)
        if capacity
    ]
    return Instance(
        len(part.spanned),
        names,
        tuple(tail for tail, _, _ in links),
        tuple(head for _, head, _ in links),
        tuple(capacity for _, _, capacity in links),
        tuple(trees),
    )
