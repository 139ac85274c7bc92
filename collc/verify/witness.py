"""Re-adds the witness of a bound: what the data must cross or pay, and what the fabric offers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import takewhile

from collc.ir.collective import Collective, Problem
from collc.ir.flow import Bound, Cut, Prices
from collc.ir.topology import Topology
from collc.verify import fares
from collc.verify.findings import Finding
from collc.verify.orbit import Renamed


def bound_faults(problem: Problem, bound: Bound, time: Fraction, renamed: Renamed | None = None) -> Iterator[Finding]:
    """Where a bound is not what its witness proves, or a stated time beats it.

    Args:
        time: of the schedule that carries the bound [s/GB of message size].
        renamed: renamings of the fabric, checked to take some ranks to every rank once: if they keep the
            prices, these ranks tell what all must pay.
    """
    stated = bound.time
    faults = list(
        _cut_faults(problem.topology, bound.witness)
        if isinstance(bound.witness, Cut)
        else _price_faults(problem.topology, bound.witness)
    )
    if faults:
        yield from faults
        return
    if isinstance(bound.witness, Cut):
        crossing, offered, what = *_across(problem, bound.witness), "bandwidth leaving the cut"
    else:
        crossing, offered, what = *_owed(problem, bound.witness, renamed), "bandwidth at the stated prices"
    if not offered:
        yield Finding("bound", "error", f"the witness offers no {what}; it proves nothing")
        return
    proven = crossing / offered
    if proven != stated:
        yield Finding(
            "bound",
            "error",
            f"the stated bound is {stated} s/GB; its witness proves {proven}: "
            f"{crossing} of the message over {offered} GB/s of {what}",
        )
    if time < proven:
        yield Finding("bound-beaten", "error", f"the stated time {time} s/GB is less than the proven bound {proven}")


# --- cuts ----------------------------------------------------------------------------------------


def _cut_faults(topology: Topology, cut: Cut) -> Iterator[Finding]:
    known = {*topology.gpus, *topology.switches}
    for vertex in cut.inside:
        if vertex not in known:
            yield Finding("witness", "error", f"the bound's cut names '{vertex}', which is no vertex")


def _across(problem: Problem, cut: Cut) -> tuple[Fraction, Fraction]:
    """Share of the message that must leave the cut, and the bandwidth leaving it [GB/s]."""
    topology, collective = problem.topology, problem.collective
    inside = set(cut.inside)
    ranks_inside = {rank for rank, gpu in enumerate(topology.gpus) if gpu in inside}
    leaving = sum(
        (link.bandwidth for link in topology.links if link.src in inside and link.dst not in inside), Fraction()
    )
    if collective.shapes == {(1, 1)}:
        import numpy

        within = numpy.array([gpu in inside for gpu in topology.gpus])
        table = collective.columns
        crossing = fares.total(table.counts[within[table.sources] & ~within[table.sinks]])
        return Fraction(crossing, collective.size_chunks), leaving
    # Chunks share their rules, so each list of ranks is looked through once.
    begins: dict[Sequence[int], bool] = {}
    ends: dict[Sequence[int], bool] = {}
    slots = 0
    for chunk in collective.chunks:
        before, after = chunk.precondition.ranks, chunk.postcondition.ranks
        if before not in begins:
            begins[before] = any(rank in ranks_inside for rank in before)
        if after not in ends:
            ends[after] = any(rank not in ranks_inside for rank in after)
        if begins[before] and ends[after]:
            slots += chunk.count
    return Fraction(slots, collective.size_chunks), leaving


# --- prices --------------------------------------------------------------------------------------


def _price_faults(topology: Topology, prices: Prices) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for src, dst, price in prices.price:
        if (src, dst) not in topology.link:
            yield Finding("witness", "error", f"the bound prices a link {src} -> {dst}, which does not exist")
        if (src, dst) in seen:
            yield Finding("witness", "error", f"the bound prices link {src} -> {dst} twice")
        if price < 0:
            yield Finding("witness", "error", f"the bound prices link {src} -> {dst} at {price}; expected zero or more")
        seen.add((src, dst))


def _owed(problem: Problem, prices: Prices, renamed: Renamed | None) -> tuple[Fraction, Fraction]:
    """What the chunks must pay for the share of the message they are, and what the fabric can be paid [GB/s].

    A chunk with one contributor and one consumer pays at least the distance between them. Ranks, and
    switches that copy or add, that a free way joins count as one group, whatever its direction; any other
    chunk pays at least the least distance between two groups for each transfer it needs between groups.
    Under a bound for schedules of trees, a chunk pays the cheapest tree, or the cheapest pair of trees into
    a rank and out of it, among the ranks that contribute or consume.
    """
    topology, collective = problem.topology, problem.collective
    unit = math.lcm(*(price.denominator for *_, price in prices.price))
    price_of = {(src, dst): int(price * unit) for src, dst, price in prices.price}
    told = renamed.owed(price_of) if renamed is not None else None
    owed = told if told is not None else _owed_by_pairs(topology, collective, price_of)
    known = _Fares(topology, price_of)
    for chunk in () if collective.shapes == {(1, 1)} else collective.chunks:
        before, after = chunk.precondition.ranks, chunk.postcondition.ranks
        if len(before) == len(after) == 1:
            continue
        if prices.rooted and not known.switches:
            pays = known.trees(before, after)
        else:
            pays = known.least * known.transfers(before, after)
        owed += pays * chunk.count
    offered = sum((topology.link[hop].bandwidth * price for hop, price in price_of.items()), Fraction())
    return Fraction(owed, unit * collective.size_chunks), offered / unit


def _owed_by_pairs(topology: Topology, collective: Collective, price_of: Mapping[tuple[str, str], int]) -> int:
    """What the chunks from one rank to one rank pay."""
    import numpy

    table = collective.columns
    alone = numpy.flatnonzero((table.contributors == 1) & (table.consumers == 1))
    if not len(alone):
        return 0
    origins, row = numpy.unique(table.sources[alone], return_inverse=True)
    pays = fares.cheapest(topology, price_of, origins.tolist())[row, table.sinks[alone]]
    counts = table.counts[alone]
    if int(pays.max()) * int(counts.max()) >= 1 << 62:
        pays = pays.astype(object)
    return fares.total(pays * counts)


def transfers(before: Collection[int], after: Collection[int], n_groups: int) -> int:
    """The least number of transfers between groups that a chunk needs, by the groups at its ends.

    Every contributor must be joined to every consumer, which takes one transfer less than there are
    groups involved; where all groups contribute and all consume it is gossip by one-way calls.

    Source: Harary and Schwenk, The communication problem on graphs and digraphs, J. Franklin
        Institute 297 (1974): 2n - 2 one-way calls.
    """
    if len(before) == len(after) == n_groups and n_groups > 1:
        return 2 * n_groups - 2
    if len(before) == 1:
        return len({*after} - {*before})
    if len(after) == 1:
        return len({*before} - {*after})
    return len({*before, *after}) - 1


class _Fares:
    """Least prices between ranks, in whole units; each rank's are found once, when asked for.

    Attributes:
        switches: those that copy or add. What they send is theirs, so they are numbered on after the ranks.
    """

    def __init__(self, topology: Topology, price_of: Mapping[tuple[str, str], int]) -> None:
        self._n_ranks = topology.n_ranks
        self.switches = tuple(dict.fromkeys(topology.multicast + topology.reduce))
        self._stops = topology.gpus + self.switches
        self._stop_of = {vertex: stop for stop, vertex in enumerate(self._stops)}
        self._ways = {
            vertex: [(head, price_of.get((vertex, head), 0)) for head in heads]
            for vertex, heads in topology.successors.items()
        }
        self._ends: dict[Sequence[int], frozenset[int]] = {}
        self._cheapest: dict[frozenset[int], tuple[dict[int, int], dict[int, int]]] = {}

    @cached_property
    def least(self) -> int:
        """The least price between any two groups; ranks of one group that have a dear way count too."""
        firsts = (next((fare for _, fare in self._walk(stop) if fare), 0) for stop in range(len(self._stops)))
        return min((fare for fare in firsts if fare), default=0)

    def trees(self, before: Sequence[int], after: Sequence[int]) -> int:
        """The least price of trees that join a chunk's contributors and consumers, who alone take part.

        From one contributor to all that consume; to one consumer from all that contribute; where the same
        ranks do both, into some rank and out of it. Any other chunk pays nothing.
        """
        both = frozenset(before) | frozenset(after)
        if both not in self._cheapest:
            self._cheapest[both] = self._cheapest_among(both)
        outward, inward = self._cheapest[both]
        if len(before) == 1:
            return outward[before[0]]
        if len(after) == 1:
            return inward[after[0]]
        if len(before) == len(after) == len(both):
            return min(outward[rank] + inward[rank] for rank in both)
        return 0

    def _cheapest_among(self, ranks: frozenset[int]) -> tuple[dict[int, int], dict[int, int]]:
        """The cheapest tree out of each rank, and into it."""
        order = sorted(ranks)
        fares = []
        for src in order:
            walked = dict(self._walk(src, ranks))
            fares.append([walked.get(dst, 0) for dst in order])
        outward, inward = cheapest_trees(fares), cheapest_trees(list(zip(*fares, strict=True)))
        return dict(zip(order, outward, strict=True)), dict(zip(order, inward, strict=True))

    @cached_property
    def _group_of(self) -> tuple[int, ...]:
        """Rank or switch -> the first of its group."""
        n = len(self._stops)
        free: list[set[int]] = [set() for _ in range(n)]
        for src in range(n):
            for dst, _ in takewhile(lambda step: step[1] == 0, self._walk(src)):
                free[src].add(dst)
                free[dst].add(src)
        group = [-1] * n
        for first in range(n):
            front = [first] if group[first] < 0 else []
            while front:
                rank = front.pop()
                if group[rank] < 0:
                    group[rank] = first
                    front.extend(free[rank])
        return tuple(group)

    def transfers(self, before: Sequence[int], after: Sequence[int]) -> int:
        """The least number of transfers between groups for a chunk of these contributors and consumers."""
        for ranks in (before, after):
            if ranks not in self._ends:
                self._ends[ranks] = frozenset(self._group_of[rank] for rank in ranks)
        found = transfers(self._ends[before], self._ends[after], len(set(self._group_of[: self._n_ranks])))
        # A switch in no rank's group serves many groups by one transfer.
        return found if max(self._group_of) < self._n_ranks else min(found, 1)

    def _walk(self, src: int, among: frozenset[int] | None = None) -> Iterator[tuple[int, int]]:
        """(rank, least price) of the other ranks and switches, cheapest first (Dijkstra).

        Args:
            among: ways lead through no other ranks than these.
        """
        start = self._stops[src]
        best = {start: 0}
        queue = [(0, start)]
        while queue:
            price, vertex = heapq.heappop(queue)
            if price > best[vertex]:
                continue
            stop = self._stop_of.get(vertex)
            if stop is not None and vertex != start:
                yield stop, price
            if among is not None and stop is not None and stop not in among:
                continue
            for head, fare in self._ways[vertex]:
                if price + fare < best.get(head, price + fare + 1):
                    best[head] = price + fare
                    heapq.heappush(queue, (price + fare, head))


# --- trees ---------------------------------------------------------------------------------------


def cheapest_trees(fares: Sequence[Sequence[int]]) -> list[int]:
    """By rank, the price of the cheapest tree from it to all others.

    Ranks pay for their cheapest way in; where that closes a circle, the circle becomes one that pays for
    its cheapest way in on top, until all are one. Each of these sets must be entered by every tree whose
    root is outside, and no way in counts for more than its price, so a tree from r costs at least what
    the sets without r pay; and there is one that enters each of them once, over the ways paid for. So
    one pass serves all roots.

    Args:
        fares: [from][to], zero or more.

    Source: Edmonds, Optimum branchings, J. Res. Nat. Bur. Standards 71B(4), 1967.
    """
    n = len(fares)
    # What is left to pay on the ways between those that are not part of a larger set yet.
    left = {src: {dst: fares[src][dst] for dst in range(n) if dst != src} for src in range(n)}
    joined: dict[int, int] = {}
    paid = [0] * (2 * n)
    chain, new = [0], n
    while len(left) > 1:
        last = chain[-1]
        paid[last], source = min((others[last], src) for src, others in left.items() if src != last)
        if source not in chain:
            chain.append(source)
            continue
        start = chain.index(source)
        circle = chain[start:]
        _join(left, circle, paid, new)
        joined |= dict.fromkeys(circle, new)
        chain[start:] = [new]
        new += 1
    return [sum(paid) - _paid_around(rank, joined, paid) for rank in range(n)]


def _join(left: dict[int, dict[int, int]], circle: Sequence[int], paid: Sequence[int], new: int) -> None:
    """Make one set of those on a circle."""
    outward = {dst: min(left[src][dst] for src in circle) for dst in left if dst not in circle}
    for src in outward:
        left[src][new] = min(left[src].pop(dst) - paid[dst] for dst in circle)
    for src in circle:
        del left[src]
    left[new] = outward


def _paid_around(rank: int, joined: Mapping[int, int], paid: Sequence[int]) -> int:
    """What the sets with a rank in them pay."""
    total, inside = paid[rank], rank
    while inside in joined:
        inside = joined[inside]
        total += paid[inside]
    return total
