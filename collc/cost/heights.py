"""How low trees can be: hops that no schedule, or none at its bandwidth, does without.

Three reasons, the strongest counts. Some GPU lies that far from a root. A root whose links are too
narrow to serve all others itself needs a second hop. And where the trees from outside a part of the
fabric fill all links into it, each enters it once: the GPU it enters must reach the rest from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

from collc.ir.collective import Collective
from collc.ir.flow import FlowSchedule
from collc.kernels import LIMIT
from collc.kernels.oracle import Oracle
from collc.symmetry import Graph, find_group

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Vertices, times ranks to be tested, from which on a compiled test pays for its loading.
_COMPILE_FROM = 100_000
# Parts of the fabric looked at.
_PARTS = 64


@dataclass(frozen=True)
class Least:
    """A limit on heights.

    Attributes:
        hops: between ranks, on the longest way of some tree.
        why: what proves it, a sentence.
    """

    hops: int
    why: str


@dataclass(frozen=True)
class Roots:
    """Trees to be rooted, on links that carry so many.

    Attributes:
        names: of vertices; the first n_ranks are GPUs.
        tails, heads, capacities: by link; a capacity counts trees.
        trees: by rank, how many are rooted there.
        hosts: ranks that belong together, where symmetries are looked for.
    """

    n_ranks: int
    names: Sequence[str]
    tails: Sequence[int]
    heads: Sequence[int]
    capacities: Sequence[int]
    trees: Sequence[int]
    hosts: Sequence[Sequence[int]] = ()


def height_bound(flow: FlowSchedule, *, any_rate: bool = False) -> Least | None:
    """The least height of schedules of trees as fast as this one; None where nothing is known of it.

    For chunks that spread from one rank each to all, or come together from all; for all-reduce, how far
    ranks are from each other.

    Args:
        any_rate: of all schedules, however slow.
    """
    topology, collective = flow.problem.topology, flow.problem.collective
    if not flow.time or flow.in_network or len(collective.groups) > 1:
        return None
    n, shapes = collective.n_ranks, collective.shapes
    if shapes == {(n, 1)}:
        topology, slots = topology.reversed(), _slots(collective, inward=True)
    elif shapes == {(1, n)}:
        slots = _slots(collective, inward=False)
    elif shapes == {(n, n)}:
        # Any root will do, so all that is sure is that data gets from each rank to each.
        slots = [0] * n
    else:
        return None
    names = topology.gpus + topology.switches
    number = {name: vertex for vertex, name in enumerate(names)}
    carried = [link.bandwidth * flow.time * collective.size_chunks for link in topology.links]
    unit = lcm(*(value.denominator for value in carried))
    roots = Roots(
        n,
        names,
        [number[link.src] for link in topology.links],
        [number[link.dst] for link in topology.links],
        [int(value * unit) for value in carried],
        [count * unit for count in slots],
        topology.hosts,
    )
    return least_height(roots, any_rate=any_rate)


def _slots(collective: Collective, inward: bool) -> list[int]:
    slots = [0] * collective.n_ranks
    for chunk in collective.chunks:
        slots[(chunk.postcondition if inward else chunk.precondition).ranks[0]] += chunk.count
    return slots


def least_height(roots: Roots, *, any_rate: bool = False) -> Least:
    """The least height of trees within these capacities; with no roots at all, of any trees that join all ranks."""
    import numpy

    tails, heads = numpy.array(roots.tails, dtype=numpy.int64), numpy.array(roots.heads, dtype=numpy.int64)
    used = numpy.array([capacity > 0 for capacity in roots.capacities], dtype=bool)
    rooted = [rank for rank, trees in enumerate(roots.trees) if trees] or list(range(roots.n_ranks))
    hops, start, end = _farthest(tails[used], heads[used], roots.n_ranks, len(roots.names), rooted)
    best = Least(hops, f"{roots.names[end]} is {_hops(hops)} from {roots.names[start]}")
    if any_rate:
        return best
    if best.hops < 2 and (narrow := _narrow(roots)):
        best = Least(2, f"{narrow} cannot send to all others itself at this bandwidth")
    for inside in _filled(roots):
        members = numpy.frombuffer(inside, dtype=numpy.uint8) > 0
        within = used & members[tails] & members[heads]
        ranks = numpy.nonzero(members[: roots.n_ranks])[0].tolist()
        radius = _radius(tails[within], heads[within], roots, ranks)
        if 1 + radius > best.hops:
            few = ", ".join(roots.names[rank] for rank in ranks[:3]) + (", ..." if len(ranks) > 3 else "")
            best = Least(1 + radius, f"trees fill all links to {few}, so each goes there once and {_hops(radius)} on")
    return best


def _hops(count: int) -> str:
    return f"{count} hop{'s' if count > 1 else ''}"


def _narrow(roots: Roots) -> str | None:
    """A root that cannot serve all others itself."""
    leaving = [0] * len(roots.names)
    for tail, capacity in zip(roots.tails, roots.capacities, strict=True):
        leaving[tail] += capacity
    for rank, trees in enumerate(roots.trees):
        if trees * (roots.n_ranks - 1) > leaving[rank]:
            return roots.names[rank]
    return None


def _filled(roots: Roots) -> list[bytes]:
    """Parts of the fabric with no more ways in than trees that must come in."""
    n = roots.n_ranks
    # A little more from each root, too little to matter but where nothing is to spare.
    capacities = [capacity * (n + 1) for capacity in roots.capacities]
    trees = [count * (n + 1) + 1 if count else 0 for count in roots.trees]
    if not any(trees) or sum(capacities) + (n + 2) * sum(trees) >= LIMIT:
        return []
    size = len(roots.names)
    graph = Graph(size, roots.trees, roots.tails, roots.heads, roots.capacities, roots.hosts)
    orbits = find_group(graph).orbits(n)
    compiled = len(orbits) * size >= _COMPILE_FROM
    oracle = Oracle(n, size, roots.tails, roots.heads, orbits=orbits, compiled=compiled)
    return oracle.next_violated(oracle.begin(capacities, trees), _PARTS)


def _farthest(tails: Array, heads: Array, n_ranks: int, n_vertices: int, starts: Sequence[int]) -> tuple[int, int, int]:
    """The most hops from any start to any rank, and between which two that is."""
    import numpy

    hops, new, before = 0, None, None
    for reached in _levels(tails, heads, n_ranks, n_vertices, starts):
        before, new = new, reached
        hops += 1
    if new is None or before is None:
        return 0, 0, 0
    rank, start = (int(place) for place in numpy.argwhere(new & ~before)[0])
    return hops - 1, starts[start], rank


def _radius(tails: Array, heads: Array, roots: Roots, ranks: Sequence[int]) -> int:
    """The fewest hops within which some rank reaches all these over some links; those that cannot do not count."""
    wanted = list(ranks)
    for hops, reached in enumerate(_levels(tails, heads, roots.n_ranks, len(roots.names), wanted)):
        if reached[wanted].all(axis=0).any():
            return hops
    return 0


def _levels(tails: Array, heads: Array, n_ranks: int, n_vertices: int, starts: Sequence[int]) -> Any:
    """By vertex and start, whether it is reached: in no hop, in one, and so on until nothing is new."""
    import numpy

    order = numpy.argsort(heads, kind="stable")
    tails, heads = tails[order], heads[order]
    first = numpy.nonzero(numpy.diff(heads, prepend=-1))[0]
    ends = heads[first]
    to_switch = ends >= n_ranks
    reached = numpy.zeros((n_vertices, len(starts)), dtype=bool)
    reached[starts, numpy.arange(len(starts))] = True
    while True:
        yield reached
        if not len(first):
            return
        # Ranks hand on what they had before the hop; switches pass on at once.
        onward = reached.copy()
        while True:
            arrived = numpy.logical_or.reduceat(onward[tails], first, axis=0)
            through = onward[ends[to_switch]] | arrived[to_switch]
            if (through == onward[ends[to_switch]]).all():
                break
            onward[ends[to_switch]] = through
        grown = onward
        grown[ends[~to_switch]] |= arrived[~to_switch]
        if (grown[:n_ranks] == reached[:n_ranks]).all():
            return
        reached = grown
