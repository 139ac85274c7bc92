"""A topology as lanes between ranks: cables, or ways from one rank's only port to another's."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from collc import cost
from collc.design.graph import Graph
from collc.design.plan import Lane, Lanes, Plan
from collc.design.schedule import best_plan, reverse_plan
from collc.errors import InputError, UnsupportedError
from collc.ir.topology import Route, Topology
from collc.synth.bfb.ways import Way

_MOST_PORTS = 64


@dataclass(frozen=True)
class Fabric:
    """Lanes, and the routes they stand for.

    Attributes:
        lanes: with capacities in whole units.
        routes: by lane.
        unit: what a capacity of one is [GB/s].
        unsuited: why the topology cannot be read as lanes; None where it can.
    """

    lanes: Lanes
    routes: tuple[Route, ...]
    unit: Fraction
    unsuited: str | None = None

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every lane has a twin the other way, and what leaves a rank may enter it."""
        return self._twins is not None

    @cached_property
    def _twins(self) -> tuple[int, ...] | None:
        number = {(lane.tail, lane.head): index for index, lane in enumerate(self.lanes.lanes)}
        twins = []
        for lane in self.lanes.lanes:
            twin = number.get((lane.head, lane.tail))
            if twin is None or self.lanes.lanes[twin].capacity != lane.capacity:
                return None
            twins.append(twin)
        return tuple(twins) if self.lanes.leaving == self.lanes.entering else None

    @property
    def ports(self) -> int | None:
        """Unit links out of every rank, where all have equally many and share no port; else None."""
        if self.lanes.leaving or self.lanes.entering:
            return None
        counts: Counter[int] = Counter()
        for lane in self.lanes.lanes:
            counts[lane.tail] += lane.capacity
        return counts[0] if len(set(counts.values())) == 1 and len(counts) == self.lanes.n else None

    def reversed(self) -> Fabric:
        """The fabric with every lane turned round; its routes stay those of the lanes as they were."""
        return replace(self, lanes=self.lanes.reversed())

    def turned(self, plan: Plan) -> Plan:
        """A plan of a symmetric fabric as one of the reversed fabric: every lane for its twin."""
        twins = self._twins
        if twins is None:
            raise RuntimeError("only the plan of a symmetric fabric can be turned")
        moves = tuple(move._replace(lane=twins[move.lane]) for move in plan.moves)
        return Plan(self.lanes.reversed(), plan.n_chunks, moves)

    def carried(self, plan: Plan, lane_of: Mapping[tuple[int, int], int]) -> Plan:
        """A plan of the fabric's graph, on the fabric's lanes."""
        ends = plan.lanes.lanes
        moves = tuple(move._replace(lane=lane_of[ends[move.lane][:2]]) for move in plan.moves)
        return Plan(self.lanes, plan.n_chunks, moves)

    def falling(self, way: Way) -> tuple[Route, ...]:
        """The routes of a broadcast, from the root outwards."""
        return tuple(self.routes[lane] for lane in way.lanes)

    def rising(self, way: Way) -> tuple[Route, ...]:
        """The routes of a reduction along lanes that a broadcast of the reversed fabric takes."""
        return tuple(self.routes[lane] for lane in reversed(way.lanes))


@lru_cache(maxsize=8)
def _cached(topology: Topology) -> Fabric:
    return _read(topology)


def as_fabric(topology: Topology) -> Fabric:
    """The lanes of a topology, or why it has none."""
    return _cached(topology)


def _read(topology: Topology) -> Fabric:
    owner = _owners(topology)
    routes = [route for rank in range(topology.n_ranks) for route in _routes(topology, rank, owner)]
    unit = cost.common_unit([link.bandwidth for link in topology.links])
    units = {(link.src, link.dst): int(link.bandwidth / unit) for link in topology.links}
    lanes = [Lane(route.src, route.dst, min(units[hop] for hop in route.hops)) for route in routes]
    shared = _shared(routes)
    leaving: list[int | None] = [None] * topology.n_ranks
    entering: list[int | None] = [None] * topology.n_ranks
    unsuited = None
    for hop, users in shared.items():
        tails, heads = {lanes[lane].tail for lane in users}, {lanes[lane].head for lane in users}
        if len(tails) == 1 and hop[0] in topology.rank_of and _covers(lanes, users, min(tails), 0):
            leaving[min(tails)] = units[hop]
        elif len(heads) == 1 and hop[1] in topology.rank_of and _covers(lanes, users, min(heads), 1):
            entering[min(heads)] = units[hop]
        else:
            unsuited = (
                f"ranks must be joined by cables, or by one port each; link {hop[0]} -> {hop[1]} "
                f"is shared by {len(users)} ways between ranks"
            )
            break
    limits = [tuple(side) if any(limit is not None for limit in side) else () for side in (leaving, entering)]
    return Fabric(Lanes(topology.n_ranks, tuple(lanes), limits[0], limits[1]), tuple(routes), unit, unsuited)


def _shared(routes: Sequence[Route]) -> dict[tuple[str, str], list[int]]:
    """Links that several lanes use, and which."""
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    for lane, route in enumerate(routes):
        for hop in route.hops:
            users[hop].append(lane)
    return {hop: lanes for hop, lanes in users.items() if len(lanes) > 1}


def _covers(lanes: Sequence[Lane], users: Sequence[int], rank: int, end: int) -> bool:
    """Whether a shared link carries all that leaves (end 0) or enters (end 1) a rank."""
    return len(users) == sum(lane[end] == rank for lane in lanes)


def _owners(topology: Topology) -> dict[str, str]:
    """Switch -> the one GPU it serves, for those (a NIC, say) that serve one alone."""
    served: dict[str, set[str]] = defaultdict(set)
    for link in topology.links:
        for gpu, other in ((link.src, link.dst), (link.dst, link.src)):
            if gpu in topology.rank_of and other not in topology.rank_of:
                served[other].add(gpu)
    return {switch: min(gpus) for switch, gpus in served.items() if len(gpus) == 1}


def _routes(topology: Topology, rank: int, owner: Mapping[str, str]) -> Iterator[Route]:
    """Ways to other ranks that pass no GPU and no port of a third: what is further goes by way of ranks."""
    start = topology.gpus[rank]
    before: dict[str, str] = {start: ""}
    waiting = deque([start])
    while waiting:
        vertex = waiting.popleft()
        foreign = owner.get(vertex, start) != start
        for head in topology.successors[vertex]:
            if head in before or (foreign and head != owner[vertex]):
                continue
            before[head] = vertex
            if head not in topology.rank_of:
                waiting.append(head)
                continue
            path = [head]
            while before[path[-1]]:
                path.append(before[path[-1]])
            yield Route(rank, topology.rank_of[head], tuple(reversed(path)))


def as_graph(fabric: Fabric) -> tuple[Graph, dict[tuple[int, int], int]]:
    """The fabric as a regular graph, a port for each unit of capacity; and (tail, head) -> lane.

    Raises:
        UnsupportedError: ranks have different numbers of ports, or share them.
    """
    ports = fabric.ports
    if ports is None or ports > _MOST_PORTS:
        raise UnsupportedError("bfb: this option wants ranks with equally many equal cables, shared by no one")
    rows: list[list[int]] = [[] for _ in range(fabric.lanes.n)]
    for lane in fabric.lanes.lanes:
        rows[lane.tail] += [lane.head] * lane.capacity
    try:
        graph = Graph("the topology", "", tuple(map(tuple, rows)))
    except InputError as error:
        raise UnsupportedError(f"bfb: {error.message}") from None
    return graph, {(lane.tail, lane.head): index for index, lane in enumerate(fabric.lanes.lanes)}


def by_recipe(fabric: Fabric, recipe: str, *, is_reversed: bool = False) -> Plan:
    """The schedule of a recipe on the topology it built, or on its reverse.

    Raises:
        InputError: the recipe does not build this topology.
    """
    graph, plan = best_plan(recipe)
    units = {(lane.tail, lane.head): lane.capacity for lane in fabric.lanes.lanes}
    if fabric.unsuited or graph.n != fabric.lanes.n or dict(graph.arcs) != units:
        raise InputError(
            f"bfb: option recipe: {recipe} is another graph than the topology; expected the one it was built by"
        )
    lane_of = {(lane.tail, lane.head): index for index, lane in enumerate(fabric.lanes.lanes)}
    if not is_reversed:
        return fabric.carried(plan, lane_of)
    back = {(head, tail): lane for (tail, head), lane in lane_of.items()}
    return fabric.reversed().carried(reverse_plan(recipe, graph, plan), back)
