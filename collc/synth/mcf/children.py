"""From a floating-point flow to an exact one, and from each source's flow to ways of its pairs.

Each source's flow is made whole by a cheapest flow within its rounded share of the links: no cycles, no
detours, and every byte delivered exactly, however rough the linear program was. Then the widest way to
each destination is taken off until nothing is left.

Source: arXiv:2309.13541, child programs and widest-path extraction; the cheapest flow in place of the
child's linear program is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from collc.solve import cheapest_flow
from collc.synth._network import Network
from collc.synth.mcf.master import Fractional

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# A flow whose entries are multiples of 1/q, to this accuracy, is tried as exactly that.
_SHARP = 1e-11
_MOST_PARTS = 10**9
_MOST_PARTS_OF_ONE = 20_000
# What a flow in floating point may be off.
_NEAR = 1e-7
# By how much of a link's flow a child may exceed it, where the linear program left it short.
_SLACKS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
# Total units of a source stay well inside 64 bits, also times the length of their ways.
_UNITS = 2**44


class Way(NamedTuple):
    """Units that go to a rank over some links."""

    dst: int
    links: tuple[int, ...]
    units: int


def common_denominator(values: Array) -> int | None:
    """The least q up to a limit such that all values are multiples of 1/q, or nearly; None without one."""
    import numpy

    scale = 1
    rest = values
    while True:
        rest = rest[numpy.abs(rest - numpy.rint(rest * scale) / scale) > _SHARP]
        if not len(rest):
            return scale
        first = float(rest[0])
        near = Fraction(first).limit_denominator(_MOST_PARTS_OF_ONE)
        scale = lcm(scale, near.denominator)
        if scale > _MOST_PARTS or abs(first - near) > _SHARP:
            return None


def fine_scale(network: Network) -> int:
    """Units per slot that lose nothing worth mentioning, a power of two."""
    most = int(network.demand.sum(axis=1).max(initial=1))
    return 1 << max(10, (_UNITS // max(1, most)).bit_length() - 1)


def settle(network: Network, found: Fractional, scale: int, *, exactly: bool) -> Array | None:
    """[sources x links] whole flows, in 1/scale slots, that deliver exactly what is asked.

    Args:
        exactly: round to the nearest unit and allow no more; None if some source cannot do with that.
    """
    import numpy

    settled = numpy.zeros(found.flows.shape, dtype=numpy.int64)
    for row, (source, flow) in enumerate(zip(found.sources, found.flows, strict=True)):
        supplies = numpy.zeros(network.n_vertices, dtype=numpy.int64)
        supplies[: network.n_ranks] = -network.demand[source] * scale
        supplies[source] = -supplies.sum()
        for slack in (0.0,) if exactly else _SLACKS:
            whole = numpy.rint(flow * scale) if exactly else numpy.ceil(flow * scale * (1 + slack))
            room = whole.astype(numpy.int64) + int(slack * scale)
            used = numpy.flatnonzero(room)
            costs = numpy.ones(len(used), dtype=numpy.int64)
            carried = cheapest_flow(
                network.n_vertices, network.tails[used], network.heads[used], room[used], costs, supplies
            )
            if carried is not None:
                settled[row, used] = carried
                break
        else:
            return None
    return settled


def peel(network: Network, source: int, flow: Array, demand: Array, scale: int) -> Iterator[Way]:
    """The ways that a source's flow is made of, widest first for each destination.

    Args:
        flow: by link, whole units; without cycles, and delivering `demand` x `scale`.
        demand: by rank, slots.
    """
    left = {int(link): int(flow[link]) for link in flow.nonzero()[0]}
    tails = {link: int(network.tails[link]) for link in left}
    into: dict[int, list[int]] = defaultdict(list)
    for link in left:
        into[int(network.heads[link])].append(link)
    place = _order(source, left, tails, into)
    for dst in demand.nonzero()[0].tolist():
        wanted = int(demand[dst]) * scale
        while wanted:
            links = _widest(source, dst, left, tails, into, place)
            units = min(wanted, min(left[link] for link in links))
            for link in links:
                left[link] -= units
            wanted -= units
            yield Way(dst, links, units)


def _order(source: int, left: dict[int, int], tails: dict[int, int], into: dict[int, list[int]]) -> dict[int, int]:
    """Vertex -> its place in an order in which all links of the flow lead upwards."""
    leaving: dict[int, list[int]] = defaultdict(list)
    waits: dict[int, int] = {}
    for head, links in into.items():
        waits[head] = len(links)
        for link in links:
            leaving[tails[link]].append(head)
    ready, place = [source], dict[int, int]()
    for vertex in ready:
        place[vertex] = len(place)
        for head in leaving[vertex]:
            waits[head] -= 1
            if not waits[head]:
                ready.append(head)
    if len(place) <= len(waits):
        raise RuntimeError(f"the flow of rank {source} runs in a circle")
    return place


def _widest(
    source: int,
    dst: int,
    left: dict[int, int],
    tails: dict[int, int],
    into: dict[int, list[int]],
    place: dict[int, int],
) -> tuple[int, ...]:
    """The way from source to destination whose narrowest link has most left, looking back from the destination."""
    cone = {dst}
    waiting = [dst]
    while waiting:
        for link in into[waiting.pop()]:
            if left[link] and tails[link] not in cone:
                cone.add(tails[link])
                waiting.append(tails[link])
    width, best = {source: 1 << 62}, {}
    for vertex in sorted(cone - {source}, key=place.__getitem__):
        width[vertex], best[vertex] = max(
            (min(left[link], width[tails[link]]), -link) for link in into[vertex] if left[link]
        )
    links = []
    while dst != source:
        links.append(-best[dst])
        dst = tails[links[-1]]
    return tuple(reversed(links))


def round_off(network: Network, found: Fractional, scale: int) -> Array:
    """[sources x links] whole flows, in 1/scale slots, for a coarse scale.

    Rounding errors are not left to chance: what earlier sources put on a link beyond its fractional
    load makes it dear for those that follow.
    """
    import numpy

    settled = numpy.zeros(found.flows.shape, dtype=numpy.int64)
    excess = numpy.zeros(network.n_links)
    for row, (source, flow) in enumerate(zip(found.sources, found.flows, strict=True)):
        supplies = numpy.zeros(network.n_vertices, dtype=numpy.int64)
        supplies[: network.n_ranks] = -network.demand[source] * scale
        supplies[source] = -supplies.sum()
        used = numpy.flatnonzero(flow > _NEAR)
        exact = flow[used] * scale
        room = numpy.floor(exact * (1 + _NEAR) + _NEAR).astype(numpy.int64) + 1
        costs = (100 + 20 * excess[used]).clip(10, 1000).astype(numpy.int64)
        carried = cheapest_flow(network.n_vertices, network.tails[used], network.heads[used], room, costs, supplies)
        if carried is None:
            raise RuntimeError(f"the flow of rank {source} does not deliver what is asked")
        settled[row, used] = carried
        excess[used] += carried - exact
    return settled
