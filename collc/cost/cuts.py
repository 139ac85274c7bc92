"""The cut that limits a collective: slots that must leave a part of the fabric / bandwidth leaving it.

Source: ForestColl (arXiv:2402.06787), optimality cut; Dinkelbach, Management Science 13(7), 1967.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm

from collc.cost.demand import Demand
from collc.cost.sweeps import swept_cuts
from collc.errors import InfeasibleError
from collc.ir.flow import Bound, Cut
from collc.ir.topology import Topology
from collc.kernels.oracle import Oracle
from collc.solve import FlowNetwork
from collc.symmetry import Graph, find_group


def best_cut(topology: Topology, demand: Demand) -> Bound:
    """The bound of the best cut found; the optimum where `demand.cuts_are_exact`."""
    forward = _CutSearch(topology, demand)
    forward.consider_single_ranks()
    if not demand.cuts_are_exact and len(topology.hosts) > 1:
        for host in topology.hosts:
            forward.consider_group(host)
            forward.consider_group(sorted(frozenset(range(topology.n_ranks)) - frozenset(host)))
    if demand.pairs.any():
        forward.consider_sweeps()
    if any(demand.spread) or demand.others or demand.pairs.any():
        forward.consider_sinks()
    backward = _CutSearch(topology.reversed(), demand.reversed(), is_reversed=True)
    backward.ratio = forward.ratio
    if any(demand.gathered) or demand.others or demand.pairs.any():
        backward.consider_sinks()
    if backward.inside is not None:
        # What leaves a part of the reversed fabric is what enters it: the witness is the other part.
        forward.ratio, forward.inside = backward.ratio, [not within for within in backward.inside]
    return forward.bound()


def rank_cut(topology: Topology, demand: Demand) -> Bound:
    """The bound of the best cut around one rank, or around all others."""
    search = _CutSearch(topology, demand)
    search.consider_single_ranks()
    return search.bound()


def swept_cut(topology: Topology, demand: Demand) -> Bound:
    """The bound of the best cut around one rank or along an order of the vertices."""
    search = _CutSearch(topology, demand)
    search.consider_single_ranks()
    search.consider_sweeps()
    return search.bound()


class _CutSearch:
    """The cut with the largest ratio of crossing slots to bandwidth leaving, over one direction.

    Bandwidths are whole multiples of `unit` [GB/s]; `ratio` is in slots per unit.
    """

    def __init__(self, topology: Topology, demand: Demand, is_reversed: bool = False) -> None:
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
        self.hosts = topology.hosts
        self.current: tuple[Fraction, list[int]] | None = None
        self.source = len(self.vertices)

    @cached_property
    def network(self) -> FlowNetwork:
        """The links, and one more vertex with a link to each rank."""
        n = self.demand.n_ranks
        return FlowNetwork(self.source + 1, self.tails + [self.source] * n, self.heads + list(range(n)))

    def bound(self) -> Bound:
        """What the best cut so far proves."""
        if self.inside is None:
            raise RuntimeError("data must move, yet no cut is crossed")
        inside = tuple(vertex for vertex, within in zip(self.vertices, self.inside, strict=True) if within)
        return Bound(self.ratio / self.unit / self.demand.size, Cut(inside))

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
        """The best of the cuts around each rank and around all others."""
        leaving, entering = [0] * len(self.vertices), [0] * len(self.vertices)
        for tail, head, bandwidth in zip(self.tails, self.heads, self.bandwidths, strict=True):
            leaving[tail] += bandwidth
            entering[head] += bandwidth
        best = Fraction(0)
        for rank, (sent, got) in enumerate(zip(self.demand.sent, self.demand.got, strict=True)):
            for slots, width, is_inside in ((sent, leaving[rank], True), (got, entering[rank], False)):
                if slots and (not width or slots * best.denominator > best.numerator * width):
                    self.consider([(vertex == rank) == is_inside for vertex in range(len(self.vertices))])
                    best = self.ratio

    def consider_sweeps(self) -> None:
        """Cuts along orders of the vertices."""
        import numpy

        ends = numpy.array(self.tails), numpy.array(self.heads)
        widths = numpy.array(self.bandwidths, dtype=numpy.float64)
        for inside in swept_cuts(len(self.vertices), *ends, widths, self.demand.pairs):
            self.consider(inside.tolist())

    def consider_sinks(self) -> None:
        """Raise the ratio until no cut that keeps a sink from its sources is worse.

        Discrete Newton: links carry ratio x bandwidth, sources offer their slots; where a sink gets
        too little, the minimum cut has a larger ratio. Sinks that passed stay good as the ratio rises.
        """
        if self.demand.spreads_only:
            self._consider_all()
            return
        for sink in range(self.demand.n_ranks):
            sources = self.demand.sources_for(sink)
            while any(sources) and (cut := self._violated(sink, sources)):
                before = self.ratio
                self.consider(cut)
                if self.ratio == before:
                    raise RuntimeError("a violated cut did not raise the ratio")

    def _consider_all(self) -> None:
        """The same where all sinks have the same sources, so that they are tested together.

        What symmetries make alike is tested once.
        """
        spread = self.demand.spread
        graph = Graph(len(self.vertices), spread, self.tails, self.heads, self.bandwidths, self.hosts)
        orbits = find_group(graph).orbits(self.demand.n_ranks)
        oracle = Oracle(self.demand.n_ranks, len(self.vertices), self.tails, self.heads, orbits=orbits)
        fill = oracle.begin
        while True:
            supply = [weight * self.ratio.denominator for weight in spread]
            needed = fill([bandwidth * self.ratio.numerator for bandwidth in self.bandwidths], supply)
            if not (found := oracle.next_violated(needed, 1)):
                return
            before = self.ratio
            self.consider([not within for within in found[0]])
            if self.ratio == before:
                raise RuntimeError("a violated cut did not raise the ratio")
            fill = oracle.go_on

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
