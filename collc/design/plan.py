"""Schedules written out: which chunks of which shard cross which link in which step.

Here the eager broadcast of any fabric with one-hop links; `expanded` has what expansions make of a
base's schedule. A shard is cut into equal chunks; chunk counts are whole, so nothing is rounded later.

Source: arXiv:2202.03356; the transport by maximum flow is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from collc.design.graph import Graph
from collc.errors import InfeasibleError
from collc.solve import FlowNetwork


class Lane(NamedTuple):
    """A link from one vertex to another.

    Attributes:
        tail, head: vertices.
        capacity: in whole units that all lanes share.
    """

    tail: int
    head: int
    capacity: int = 1


class Move(NamedTuple):
    """Chunks `first` to `first + n_chunks - 1` of a source's shard cross a lane in a step."""

    step: int
    source: int
    first: int
    n_chunks: int
    lane: int


@dataclass(frozen=True)
class Lanes:
    """A fabric as a schedule sees it.

    Attributes:
        n: vertices.
        lanes: the links; several may join the same two.
        leaving, entering: by vertex, what all its lanes out (in) share at most; None for no limit.
    """

    n: int
    lanes: tuple[Lane, ...]
    leaving: tuple[int | None, ...] = ()
    entering: tuple[int | None, ...] = ()

    def leaves(self, vertex: int) -> int | None:
        """The limit on what leaves a vertex."""
        return self.leaving[vertex] if self.leaving else None

    def enters(self, vertex: int) -> int | None:
        """The limit on what enters a vertex."""
        return self.entering[vertex] if self.entering else None

    def reversed(self) -> Lanes:
        """Every lane turned round."""
        return Lanes(
            self.n,
            tuple(Lane(lane.head, lane.tail, lane.capacity) for lane in self.lanes),
            self.entering,
            self.leaving,
        )


def lanes_of(graph: Graph) -> Lanes:
    """A lane for each port: port p of vertex u has the number u * degree + p. Dead ports stay, unused."""
    return Lanes(graph.n, tuple(Lane(u, v) for u, row in enumerate(graph.heads) for v in row))


@dataclass(frozen=True)
class Plan:
    """An allgather, chunk by chunk.

    Attributes:
        lanes: what it runs on.
        n_chunks: chunks of each shard.
        moves: in order of step; a step's moves read the state that the step before left.
    """

    lanes: Lanes
    n_chunks: int
    moves: tuple[Move, ...]

    @property
    def loads(self) -> tuple[Fraction, ...]:
        """By step, shards on the busiest link, per unit of its capacity."""
        carried: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for move in self.moves:
            carried[move.step][move.lane] += move.n_chunks
        return tuple(self._busiest(carried[step]) / self.n_chunks for step in range(1 + max(carried, default=-1)))

    def _busiest(self, carried: dict[int, int]) -> Fraction:
        busiest = max((Fraction(load, self.lanes.lanes[lane].capacity) for lane, load in carried.items()), default=0)
        for limits, end in ((self.lanes.leaving, 0), (self.lanes.entering, 1)):
            shared: dict[int, int] = defaultdict(int)
            for lane, load in carried.items():
                shared[self.lanes.lanes[lane][end]] += load
            for vertex, load in shared.items():
                if limits and (limit := limits[vertex]):
                    busiest = max(busiest, Fraction(load, limit))
        return Fraction(busiest)


def plan_time(plan: Plan, degree: int) -> Fraction:
    """T_B of a plan on links of capacity one [M/B]."""
    return Fraction(degree, plan.lanes.n) * sum(plan.loads)


# --- eager -----------------------------------------------------------------------------------------


def eager_plan(lanes: Lanes, n_chunks: int | None = None) -> Plan:
    """The breadth-first broadcast with the least load in every step.

    Args:
        n_chunks: chunks of a shard; None takes the fewest that lose nothing.

    Raises:
        InfeasibleError: some vertex cannot be reached from some other.
    """
    steps = [_Step(lanes, wants) for wants in _wants(lanes)]
    ratios = [step.ratio() for step in steps]
    if n_chunks is None:
        capacities = {lane.capacity for lane in lanes.lanes} | {c for c in (*lanes.leaving, *lanes.entering) if c}
        n_chunks = lcm(*((ratio * capacity).denominator for ratio in ratios for capacity in capacities))
    moves: list[Move] = []
    for number, (step, ratio) in enumerate(zip(steps, ratios, strict=True)):
        moves += step.moves(number, ratio, n_chunks)
    return Plan(lanes, n_chunks, tuple(moves))


# (vertex, lanes into it from nearer vertices) -> sources that are to come through them
_Wants = dict[tuple[int, tuple[int, ...]], list[int]]


def _wants(lanes: Lanes) -> list[_Wants]:
    """By step, who needs which shards and by which lanes they can come."""
    into: list[list[int]] = [[] for _ in range(lanes.n)]
    out: list[list[int]] = [[] for _ in range(lanes.n)]
    for number, lane in enumerate(lanes.lanes):
        if lane.tail != lane.head:
            into[lane.head].append(number)
            out[lane.tail].append(lane.head)
    found: list[_Wants] = []
    for source in range(lanes.n):
        far = _distances(out, source)
        for vertex, distance in enumerate(far):
            if distance < 0:
                raise InfeasibleError(f"vertex {vertex} cannot be reached from {source}")
            if distance:
                nearer = tuple(lane for lane in into[vertex] if far[lanes.lanes[lane].tail] == distance - 1)
                while len(found) < distance:
                    found.append({})
                found[distance - 1].setdefault((vertex, nearer), []).append(source)
    return found


def _distances(out: Sequence[Sequence[int]], source: int) -> list[int]:
    far = [-1] * len(out)
    far[source] = 0
    waiting = [source]
    for vertex in waiting:
        for head in out[vertex]:
            if far[head] < 0:
                far[head] = far[vertex] + 1
                waiting.append(head)
    return far


class _Step:
    """One step's transport: wants -> lanes -> what the lanes' tails may send -> sink."""

    def __init__(self, lanes: Lanes, wants: _Wants) -> None:
        self._lanes = lanes
        self._wants = list(wants.items())
        self._used = sorted({lane for _, nearer in wants for lane in nearer})
        self._senders = sorted(
            {lanes.lanes[lane].tail for lane in self._used if lanes.leaves(lanes.lanes[lane].tail) is not None}
        )
        n_wants, n_lanes = len(self._wants), len(self._used)
        place = {lane: n_wants + index for index, lane in enumerate(self._used)}
        sender = {vertex: n_wants + n_lanes + index for index, vertex in enumerate(self._senders)}
        self._source = n_wants + n_lanes + len(self._senders)
        sink = self._source + 1
        arcs = [(self._source, index) for index in range(n_wants)]
        arcs += [(place[lane], sender.get(lanes.lanes[lane].tail, sink)) for lane in self._used]
        arcs += [(vertex, sink) for vertex in sender.values()]
        self._choices = [(index, lane) for index, ((_, nearer), _) in enumerate(self._wants) for lane in nearer]
        arcs += [(index, place[lane]) for index, lane in self._choices]
        self._network = FlowNetwork(sink + 1, [tail for tail, _ in arcs], [head for _, head in arcs])
        self._counts = [len(sources) for _, sources in self._wants]
        self._limits = [lanes.lanes[lane].capacity for lane in self._used]
        self._limits += [lanes.leaving[vertex] or 0 for vertex in self._senders]

    def ratio(self) -> Fraction:
        """The least load, by discrete Newton from what the vertices' own limits force."""
        n_wants = len(self._wants)
        ratio = self._forced()
        while not self._fits(
            [count * ratio.denominator for count in self._counts], [limit * ratio.numerator for limit in self._limits]
        ):
            inside = self._network.source_side()
            wanted = sum(count for index, count in enumerate(self._counts) if inside[index])
            crossed = 0
            for index, limit in enumerate(self._limits):
                # A lane that leads to its sender's vertex crosses only where that is outside.
                if inside[n_wants + index] and not self._leads_inside(index, inside):
                    crossed += limit
            ratio = Fraction(wanted, crossed)
        return ratio

    def _leads_inside(self, index: int, inside: Sequence[bool]) -> bool:
        if index >= len(self._used):
            return False
        tail = self._lanes.lanes[self._used[index]].tail
        if self._lanes.leaves(tail) is None:
            return False
        return inside[len(self._wants) + len(self._used) + self._senders.index(tail)]

    def _forced(self) -> Fraction:
        arriving: dict[int, int] = defaultdict(int)
        ratio = Fraction(0)
        for ((vertex, nearer), _), count in zip(self._wants, self._counts, strict=True):
            arriving[vertex] += count
            ratio = max(ratio, Fraction(count, sum(self._lanes.lanes[lane].capacity for lane in nearer)))
        for vertex, count in arriving.items():
            if limit := self._lanes.enters(vertex):
                ratio = max(ratio, Fraction(count, limit))
        return ratio

    def _fits(self, offers: list[int], limits: list[int]) -> bool:
        total = sum(offers)
        self._network.set_capacities(offers + limits + [total] * len(self._choices))
        return self._network.max_flow(self._source, self._source + 1) == total

    def moves(self, step: int, ratio: Fraction, n_chunks: int) -> list[Move]:
        """The step's moves; where the chunks are too coarse for the ratio, the next that they allow."""
        offers = [count * n_chunks for count in self._counts]
        while not self._fits(offers, [int(ratio * limit * n_chunks) for limit in self._limits]):
            ratio = min(Fraction(int(ratio * limit * n_chunks) + 1, limit * n_chunks) for limit in self._limits)
        first_choice = len(offers) + len(self._limits)
        parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, (index, lane) in enumerate(self._choices):
            if amount := self._network.flow(first_choice + number):
                parts[index].append((lane, amount))
        made = []
        for index, (_, sources) in enumerate(self._wants):
            made += dealt(step, sources, parts[index], n_chunks)
        return made


def dealt(step: int, sources: Sequence[int], parts: Sequence[tuple[int, int]], n_chunks: int) -> list[Move]:
    """Sources' chunks in order, dealt to lanes in order, so that few shards are cut."""
    made: list[Move] = []
    supply = iter(parts)
    lane, left = next(supply)
    for source in sources:
        first = 0
        while first < n_chunks:
            if not left:
                lane, left = next(supply)
            count = min(left, n_chunks - first)
            made.append(Move(step, source, first, count, lane))
            first += count
            left -= count
    return made
