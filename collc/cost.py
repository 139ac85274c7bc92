"""What a schedule costs and what no schedule can beat, exactly.

Costs are loads of links: a share of a chunk that crosses a link takes its bytes there. Bounds come
from the chunk table alone, whatever the collective is called, and carry the witness that a checker
re-adds. Two witnesses are tried:

* a cut: slots that must leave a part of the fabric / bandwidth leaving it;
* prices on links: what all transfers must pay at least / what the links can earn in unit time.

Rule of prices: a chunk needs at least t transfers between ranks, and each costs at least the
cheapest way between two distinct ranks. With one contributor p, t = consumers other than p; with one
consumer, or some of each, t = ranks concerned - 1, which join them; with all n ranks on both sides,
t = 2n - 2 (one-way gossip: Harary & Schwenk, Journal of the Franklin Institute 297(6), 1974). A
chunk with one contributor and one consumer pays the cheapest way between those two.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import TYPE_CHECKING

from collc.errors import InfeasibleError
from collc.ir.collective import Collective, Problem
from collc.ir.flow import Bound, Cut, FlowSchedule, Prices, Tree
from collc.ir.topology import Route, Topology
from collc.solve import FlowNetwork

if TYPE_CHECKING:
    import numpy

# Software latency of one rank-to-rank hop [us]: NCCL's own model takes 3.4 us for a ring hop over
# NVLink under Simple (src/graph/tuning.cc, hwLat). Wire latency comes from the topology's links.
HOP_LATENCY = Fraction(17, 5)


# --- costs ---------------------------------------------------------------------------------------


def link_loads(problem: Problem, trees: Iterable[Tree]) -> dict[tuple[str, str], Fraction]:
    """Bytes that cross each link, per byte of message size, by (src, dst); idle links are absent."""
    trees = tuple(trees)
    chunks = problem.collective.chunks
    unit = lcm(*(tree.weight.denominator for tree in trees))
    shares: dict[tuple[str, str], int] = {}
    for tree in trees:
        share = int(tree.weight * unit) * chunks[tree.chunk].count
        for route in (*tree.reduce, *tree.broadcast):
            for hop in route.hops:
                shares[hop] = shares.get(hop, 0) + share
    whole = unit * problem.collective.size_chunks
    return {hop: Fraction(share, whole) for hop, share in sorted(shares.items())}


def bandwidth_time(problem: Problem, trees: Iterable[Tree]) -> Fraction:
    """Time [s/GB of message size] in which the busiest link carries its load; zero if nothing moves."""
    link = problem.topology.link
    loads = link_loads(problem, trees)
    return max((load / link[hop].bandwidth for hop, load in loads.items()), default=Fraction(0))


def algbw(time: Fraction) -> Fraction | None:
    """Message size / time [GB/s], as nccl-tests counts; None where nothing moves (one rank)."""
    return 1 / time if time else None


def bus_factor(collective: Collective) -> Fraction:
    """What algbw is multiplied by to give busbw, as nccl-tests defines it; zero for one rank.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    n = collective.n_ranks
    match collective.name:
        case "allreduce":
            return Fraction(2 * (n - 1), n)
        case "broadcast" | "reduce":
            return Fraction(1)
        case _:
            return Fraction(n - 1, n)


def busbw(collective: Collective, algbw: Fraction) -> Fraction:
    """Bus bandwidth [GB/s] of an algorithm bandwidth."""
    return algbw * bus_factor(collective)


def predict(flow: FlowSchedule, nbytes: int) -> Fraction:
    """Time [us] by the alpha-beta model: the longest way of any tree, then the bytes at full rate."""
    rise = max((_height(flow.problem.topology, tree) for tree in flow.trees), default=Fraction(0))
    return rise + flow.time * nbytes / 1000


def _height(topology: Topology, tree: Tree) -> Fraction:
    """Latency [us] of the longest way from a contributor through the root to a consumer."""

    def latency(route: Route) -> Fraction:
        return HOP_LATENCY + sum(topology.link[hop].latency for hop in route.hops)

    down = {tree.root: Fraction(0)}
    for route in tree.broadcast:
        down[route.dst] = down.get(route.src, Fraction(0)) + latency(route)
    up = {tree.root: Fraction(0)}
    for route in reversed(tree.reduce):
        up[route.src] = up.get(route.dst, Fraction(0)) + latency(route)
    return max(down.values()) + max(up.values())


# --- bounds --------------------------------------------------------------------------------------


def bound(problem: Problem) -> Bound | None:
    """The best limit on time [s/GB of message size] that cuts and prices prove; None if nothing must move.

    Exact (attained by some schedule) for tables in which every chunk has one contributor and goes to
    all ranks, or the reverse, and for those with one common consumer or contributor.

    Raises:
        InfeasibleError: some rank cannot be reached from another that it needs data of.

    Complexity: some rounds of n_ranks integer max-flows.
    Source: ForestColl (arXiv:2402.06787), optimality cut; Dinkelbach, Management Science 13(7), 1967.
    """
    demand = _Demand.of(problem.collective)
    if not demand.moves:
        return None
    best = _best_cut(problem.topology, demand)
    if demand.cuts_are_exact or problem.topology.multicast or problem.topology.reduce:
        return best
    for prices in _candidate_prices(problem.topology):
        found = _price_bound(problem.topology, demand, prices)
        if found.time > best.time:
            best = found
    return best


@dataclass(frozen=True)
class _Demand:
    """The chunk table by shape, so that a cut is evaluated without walking all chunks.

    Attributes:
        spread: slots of one contributor, by rank, that all ranks consume.
        gathered: slots of one consumer, by rank, that all ranks contribute to.
        pairs: [n x n] slots from one contributor to one consumer.
        others: (contributors, consumers, slots) of the rest.
        size: slots of the message size.
    """

    n_ranks: int
    spread: tuple[int, ...]
    gathered: tuple[int, ...]
    pairs: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]
    others: tuple[tuple[frozenset[int], frozenset[int], int], ...]
    size: int

    @staticmethod
    def of(collective: Collective) -> _Demand:
        """The demand of a table; chunks that stay where they are count for nothing."""
        import numpy

        n = collective.n_ranks
        spread, gathered = [0] * n, [0] * n
        pairs = numpy.zeros((n, n), dtype=numpy.int64)
        others: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for chunk in collective.chunks:
            before, after = chunk.precondition.ranks, chunk.postcondition.ranks
            if len(before) == 1 and len(after) == 1:
                pairs[before[0], after[0]] += chunk.count if before[0] != after[0] else 0
            elif len(before) == 1 and len(after) == n:
                spread[before[0]] += chunk.count
            elif len(before) == n and len(after) == 1:
                gathered[after[0]] += chunk.count
            else:
                key = (frozenset(before), frozenset(after))
                others[key] = others.get(key, 0) + chunk.count
        rest = tuple((before, after, slots) for (before, after), slots in others.items())
        return _Demand(n, tuple(spread), tuple(gathered), pairs, rest, collective.size_chunks)

    @cached_property
    def moves(self) -> bool:
        """Whether any data must change its rank."""
        return self.n_ranks > 1 and bool(any(self.spread) or any(self.gathered) or self.others or self.pairs.any())

    @cached_property
    def cuts_are_exact(self) -> bool:
        """Whether the best cut is the optimum, by max-flow/min-cut or Edmonds' branching theorem."""
        kinds = [any(self.spread), any(self.gathered), bool(self.pairs.any()), bool(self.others)]
        if sum(kinds) != 1 or self.others:
            return False
        rows, columns = self.pairs.any(axis=1).sum(), self.pairs.any(axis=0).sum()
        return not kinds[2] or rows == 1 or columns == 1

    def crossing(self, inside: Sequence[bool]) -> int:
        """Slots with a contributor inside and a consumer outside."""
        import numpy

        if all(inside) or not any(inside):
            return 0
        mask = numpy.array(inside)
        slots = int(self.pairs[mask][:, ~mask].sum())
        slots += sum(weight for weight, within in zip(self.spread, inside, strict=True) if within)
        slots += sum(weight for weight, within in zip(self.gathered, inside, strict=True) if not within)
        for before, after, weight in self.others:
            if any(inside[rank] for rank in before) and not all(inside[rank] for rank in after):
                slots += weight
        return slots

    def sources_for(self, sink: int) -> list[int]:
        """By rank, slots that must come from it to the sink (each chunk from one contributor only).

        What the sink itself holds counts too: it has no way to go, and all sinks get equal sources.
        """
        weights = [a + int(b) for a, b in zip(self.spread, self.pairs[:, sink], strict=True)]
        for before, after, slots in self.others:
            away = before - {sink}
            if sink in after and away:
                weights[min(away)] += slots
        return weights

    def reversed(self) -> _Demand:
        """The demand on the reversed fabric that the same schedules serve, turned round."""
        others = tuple((after, before, slots) for before, after, slots in self.others)
        return _Demand(self.n_ranks, self.gathered, self.spread, self.pairs.T, others, self.size)


class _CutSearch:
    """The cut with the largest ratio of crossing slots to bandwidth leaving, over one direction.

    Bandwidths are whole multiples of `unit` [GB/s]; `ratio` is in slots per unit.
    """

    def __init__(self, topology: Topology, demand: _Demand, is_reversed: bool = False) -> None:
        self.demand = demand
        self.is_reversed = is_reversed
        self.vertices = topology.gpus + topology.switches
        index = {vertex: number for number, vertex in enumerate(self.vertices)}
        self.tails = [index[link.src] for link in topology.links]
        self.heads = [index[link.dst] for link in topology.links]
        self.unit = common_unit([link.bandwidth for link in topology.links])
        self.bandwidths = [int(link.bandwidth / self.unit) for link in topology.links]
        self.ratio = Fraction(0)
        self.inside: list[bool] | None = None
        self.current: tuple[Fraction, list[int]] | None = None
        n = demand.n_ranks
        self.source = len(self.vertices)
        self.network = FlowNetwork(self.source + 1, self.tails + [self.source] * n, self.heads + list(range(n)))

    def consider(self, inside: Sequence[bool]) -> None:
        """Keep a cut if it is the best so far."""
        slots = self.demand.crossing(inside[: self.demand.n_ranks])
        if not slots:
            return
        leaving = self._leaving(inside)
        if not leaving:
            raise InfeasibleError(self._words(inside))
        if Fraction(slots, leaving) > self.ratio:
            self.ratio, self.inside = Fraction(slots, leaving), list(inside)

    def consider_single_ranks(self) -> None:
        """The cuts around each rank and around all others."""
        for rank in range(self.demand.n_ranks):
            alone = [vertex == rank for vertex in range(len(self.vertices))]
            self.consider(alone)
            self.consider([not within for within in alone])

    def consider_sinks(self) -> None:
        """Raise the ratio until no cut that keeps a sink from its sources is worse.

        Discrete Newton: links carry ratio x bandwidth, sources offer their slots; where a sink gets
        too little, the minimum cut has a larger ratio. Sinks that passed stay good as the ratio rises.
        """
        for sink in range(self.demand.n_ranks):
            sources = self.demand.sources_for(sink)
            while any(sources) and (cut := self._violated(sink, sources)):
                before = self.ratio
                self.consider(cut)
                if self.ratio == before:
                    raise RuntimeError("a violated cut did not raise the ratio")

    def consider_group(self, ranks: Sequence[int]) -> None:
        """The narrowest cut around some ranks."""
        total = sum(self.bandwidths) + 1
        members = frozenset(ranks)
        others = [rank for rank in range(self.demand.n_ranks) if rank not in members]
        # The sink stands for all other ranks: links into them end in the first of them.
        network = FlowNetwork(
            self.source + 1,
            self.tails + [self.source] * len(ranks) + others[1:],
            self.heads + list(ranks) + [others[0]] * (len(others) - 1),
        )
        network.set_capacities(self.bandwidths + [total] * (self.demand.n_ranks - 1))
        network.max_flow(self.source, others[0])
        self.consider(network.source_side()[: self.source])

    def _violated(self, sink: int, sources: Sequence[int]) -> list[bool] | None:
        offers = [weight * self.ratio.denominator for weight in sources]
        if (self.ratio, offers) != self.current:
            self.network.set_capacities([bandwidth * self.ratio.numerator for bandwidth in self.bandwidths] + offers)
            self.current = (self.ratio, offers)
        if self.network.max_flow(self.source, sink) >= sum(offers):
            return None
        return self.network.source_side()[: self.source]

    def _leaving(self, inside: Sequence[bool]) -> int:
        links = zip(self.tails, self.heads, self.bandwidths, strict=True)
        return sum(bandwidth for tail, head, bandwidth in links if inside[tail] and not inside[head])

    def _words(self, inside: Sequence[bool]) -> str:
        n = self.demand.n_ranks
        within = [vertex for vertex, there in zip(self.vertices[:n], inside, strict=False) if there != self.is_reversed]
        without = [vertex for vertex in self.vertices[:n] if vertex not in within]
        return f"GPUs {_some(without)} cannot be reached from {_some(within)}: no link leads there"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def common_unit(values: Iterable[Fraction]) -> Fraction:
    """The largest number that all values are whole multiples of.

    >>> common_unit([Fraction(25, 2), Fraction(50)])
    Fraction(25, 2)
    """
    values = tuple(values)
    denominator = lcm(*(value.denominator for value in values))
    return Fraction(gcd(*(int(value * denominator) for value in values)) or 1, denominator)


def _best_cut(topology: Topology, demand: _Demand) -> Bound:
    forward = _CutSearch(topology, demand)
    forward.consider_single_ranks()
    if not demand.cuts_are_exact and len(topology.hosts) > 1:
        for host in topology.hosts:
            forward.consider_group(host)
            forward.consider_group(sorted(frozenset(range(topology.n_ranks)) - frozenset(host)))
    if any(demand.spread) or demand.others or demand.pairs.any():
        forward.consider_sinks()
    backward = _CutSearch(topology.reversed(), demand.reversed(), is_reversed=True)
    backward.ratio = forward.ratio
    if any(demand.gathered) or demand.others or demand.pairs.any():
        backward.consider_sinks()
    if backward.inside is not None:
        # What leaves a part of the reversed fabric is what enters it: the witness is the other part.
        forward.ratio, forward.inside = backward.ratio, [not within for within in backward.inside]
    if forward.inside is None:
        raise RuntimeError("data must move, yet no cut is crossed")
    inside = tuple(vertex for vertex, within in zip(forward.vertices, forward.inside, strict=True) if within)
    return Bound(forward.ratio / forward.unit / demand.size, Cut(inside))


# --- prices --------------------------------------------------------------------------------------

_LinkPrices = Mapping[tuple[str, str], int]


def _candidate_prices(topology: Topology) -> list[_LinkPrices]:
    gpus = topology.rank_of
    wanted: tuple[Callable[[str, str], bool], ...] = (
        lambda src, dst: src in gpus,
        lambda src, dst: dst in gpus,
        lambda src, dst: True,
    )
    return [{(link.src, link.dst): 1 for link in topology.links if priced(link.src, link.dst)} for priced in wanted]


def _price_bound(topology: Topology, demand: _Demand, prices: _LinkPrices) -> Bound:
    earned = sum((topology.link[ends].bandwidth * price for ends, price in prices.items()), Fraction(0))
    n = demand.n_ranks
    distances = [_distances(topology, prices, rank) for rank in range(n)]
    least = min(distances[a][b] for a in range(n) for b in range(n) if a != b and b in distances[a])
    transfers = sum(slots * (n - 1) for slots in (*demand.spread, *demand.gathered))
    transfers += sum(slots * _n_transfers(before, after, n) for before, after, slots in demand.others)
    paid = transfers * least
    for src, dst in zip(*demand.pairs.nonzero(), strict=True):
        paid += int(demand.pairs[src, dst]) * distances[src][dst]
    witness = Prices(tuple((src, dst, Fraction(price)) for (src, dst), price in prices.items()))
    return Bound(Fraction(paid, demand.size) / earned, witness)


def _n_transfers(before: frozenset[int], after: frozenset[int], n_ranks: int) -> int:
    """Rank-to-rank transfers that a chunk needs at least (the rule of prices)."""
    if len(before) == 1:
        return len(after - before)
    if len(before) == n_ranks and len(after) == n_ranks:
        return 2 * n_ranks - 2
    return len(before | after) - 1


def _distances(topology: Topology, prices: _LinkPrices, rank: int) -> dict[int, int]:
    """Rank -> least sum of prices on a way there, through anything."""
    done: dict[str, int] = {}
    waiting = [(0, topology.gpus[rank])]
    while waiting:
        distance, vertex = heapq.heappop(waiting)
        if vertex in done:
            continue
        done[vertex] = distance
        for head in topology.successors[vertex]:
            if head not in done:
                heapq.heappush(waiting, (distance + prices.get((vertex, head), 0), head))
    return {topology.rank_of[vertex]: distance for vertex, distance in done.items() if vertex in topology.rank_of}
