"""Prices on links: what all transfers must pay at least / what the links can earn in unit time.

Rule of prices: ranks that a free way joins, in either direction, count as one group. Switches that copy
or add count as ranks, since what they send is their own. A chunk needs at
least t transfers between groups, and each costs at least the cheapest way between two of them. With
one group contributing, t = other groups that consume; with one group consuming, t = other groups that
contribute; with all G groups on both sides, t = 2G - 2 (one-way gossip: Harary & Schwenk, Journal of
the Franklin Institute 297(6), 1974); else t = groups concerned - 1, which join them. A chunk with one
contributor and one consumer pays the cheapest way between those two ranks.

Prices on what leaves the parts of a partition then prove a partition bound: an all-reduce must cross
between hosts, or between the devices of an uneven mesh, 2G - 2 times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from collc.cost.demand import Demand
from collc.cost.ways import paid_by_pairs
from collc.ir.flow import Bound, Prices
from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

T = TypeVar("T")
LinkPrices = Mapping[tuple[str, str], int]


# Partitions tried, from the one into single GPUs upwards.
_PARTITIONS = 16


def candidate_prices(topology: Topology) -> list[LinkPrices]:
    """Prices worth trying: one on all links; one on all out of, or into, the parts of a partition."""
    found: dict[tuple[tuple[str, str], ...], None] = {}
    for part_of in _partitions(topology):
        crossing = [link for link in topology.links if part_of.get(link.src) != part_of.get(link.dst)]
        found[tuple((link.src, link.dst) for link in crossing if link.src in part_of)] = None
        found[tuple((link.src, link.dst) for link in crossing if link.dst in part_of)] = None
    found[tuple((link.src, link.dst) for link in topology.links)] = None
    return [dict.fromkeys(links, 1) for links in found if links]


def _partitions(topology: Topology) -> Iterator[dict[str, int]]:
    """Vertex -> part, for single GPUs, then for what links above each bandwidth hold together.

    Vertices without a GPU in their part are left out: they lie between the parts.
    """
    yield {gpu: rank for rank, gpu in enumerate(topology.gpus)}
    parts = _Groups(topology.gpus + topology.switches)
    widths = sorted({link.bandwidth for link in topology.links}, reverse=True)[:_PARTITIONS]
    for width in widths:
        for link in topology.links:
            if link.bandwidth == width:
                parts.join(link.src, link.dst)
        holding = {parts.of(gpu): rank for rank, gpu in enumerate(topology.gpus)}
        if len(holding) > 1:
            roots = {vertex: parts.of(vertex) for vertex in topology.gpus + topology.switches}
            yield {vertex: holding[root] for vertex, root in roots.items() if root in holding}


class _Groups(Generic[T]):
    """Disjoint groups of things, which can be joined."""

    def __init__(self, members: Iterable[T]) -> None:
        self._above = {member: member for member in members}

    def of(self, member: T) -> T:
        """The one that stands for a member's group."""
        while (above := self._above[member]) != member:
            self._above[member] = self._above[above]
            member = above
        return member

    def join(self, one: T, other: T) -> None:
        """Make two groups one."""
        self._above[self.of(one)] = self.of(other)


def price_bound(topology: Topology, demand: Demand, prices: LinkPrices) -> Bound | None:
    """What those prices, all of them one, prove; None where that is next to nothing."""
    earned = sum((topology.link[ends].bandwidth * price for ends, price in prices.items()), Fraction(0))
    if not (any(demand.spread) or any(demand.gathered) or demand.others):
        return _bound(paid_by_pairs(topology, demand, prices), earned, demand, prices)
    n = demand.n_ranks
    stops = topology.gpus + tuple(dict.fromkeys(topology.multicast + topology.reduce))
    groups, dear = _groups(topology, prices, stops)
    group = groups[:n]
    if not set(groups) <= set(group):
        return None  # a switch between the groups serves many of them by one transfer
    n_groups = len(set(group))
    transfers = sum(slots * (n_groups - 1) for slots in (*demand.spread, *demand.gathered))
    for before, after, slots in demand.others:
        ends = {group[rank] for rank in before}, {group[rank] for rank in after}
        transfers += slots * _n_transfers(*ends, n_groups)
    paid = transfers * dear + (paid_by_pairs(topology, demand, prices) if demand.pairs.any() else 0)
    return _bound(paid, earned, demand, prices)


def _bound(paid: int, earned: Fraction, demand: Demand, prices: LinkPrices) -> Bound:
    witness = Prices(tuple((src, dst, Fraction(price)) for (src, dst), price in prices.items()))
    return Bound(Fraction(paid, demand.size) / earned, witness)


def _groups(topology: Topology, prices: LinkPrices, stops: Sequence[str]) -> tuple[list[int], int]:
    """By stop, the group that free ways join it to; and the least price of a way that is not free, or 0."""
    import numpy

    vertices = topology.gpus + topology.switches
    number = {vertex: place for place, vertex in enumerate(vertices)}
    free = [(number[link.src], number[link.dst]) for link in topology.links if (link.src, link.dst) not in prices]
    paid = [(number[src], number[dst]) for src, dst in prices]
    at = [number[stop] for stop in stops]
    # By vertex and stop, whether the way there that was paid so far suffices.
    reached = numpy.zeros((len(vertices), len(stops)), dtype=bool)
    reached[at, numpy.arange(len(stops))] = True
    reached = _along(free, reached, far=True)
    joined = reached[at] | reached[at].T
    label = numpy.arange(len(stops))
    while True:
        lower = numpy.where(joined, label, len(stops)).min(axis=1)
        if (lower == label).all():
            break
        label = lower
    price, now = 0, reached
    while (now[at] == reached[at]).all():
        further = _along(free, _along(paid, now), far=True)
        if (further == now).all():
            return label.tolist(), 0
        price, now = price + 1, further
    return label.tolist(), price


def _along(links: Sequence[tuple[int, int]], reached: Array, *, far: bool = False) -> Array:
    """What is reached over one more of these links, or over any number of them."""
    import numpy

    if not links:
        return reached
    tails, heads = numpy.array(sorted(links, key=lambda link: link[1])).T
    first = numpy.nonzero(numpy.diff(heads, prepend=-1))[0]
    while True:
        further = reached.copy()
        further[heads[first]] |= numpy.logical_or.reduceat(reached[tails], first, axis=0)
        if not far or (further == reached).all():
            return further
        reached = further


def _n_transfers(before: set[int], after: set[int], n_groups: int) -> int:
    """Transfers between groups that a chunk needs at least (the rule of prices)."""
    if len(before) == 1:
        return len(after - before)
    if len(after) == 1:
        return len(before - after)
    if len(before) == len(after) == n_groups:
        return 2 * n_groups - 2
    return len(before | after) - 1
