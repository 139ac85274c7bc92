"""Rings through all ranks, as many as the links carry, each with its own share of the data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collc import cost
from collc.errors import UnsupportedError
from collc.ir.collective import Chunk, Problem, make_collective
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.routes import all_routes
from collc.ir.topology import Route, Topology

# Steps of a search per rank, from one start: where a ring exists, another start is better than patience.
_STEPS = 8
# Searches with other tie-breaks; the set of rings with the most bandwidth is kept.
_TRIES = 4

_Ring = tuple[Route, ...]
_Room = dict[tuple[str, str], Fraction]


@dataclass(frozen=True)
class Ring:
    """Pipelined rings, in both directions and over disjoint links where the fabric has them.

    A ring enters each host once, so that hosts' links carry each byte once per ring.

    Guarantee: none; optimal on one switch, near it where the links between hosts are few.
    Supports: allgather, reduce_scatter, allreduce, broadcast, reduce where a ring through all ranks exists.
    Source: Patarasuk & Yuan, J. Parallel Distrib. Comput. 69(2), 2009; NCCL's rings.

    Attributes:
        max_rings: rings at most; each direction counts.
    """

    max_rings: int = 16

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        n = problem.collective.n_ranks
        if n > 1 and problem.collective.shapes not in ({(1, n)}, {(n, 1)}, {(n, n)}):
            return f"ring spreads or sums over all ranks; {problem.collective.name} does not"
        return None

    def run(self, problem: Problem) -> FlowSchedule:
        """A chain along each ring for each chunk.

        Raises:
            InfeasibleError: a rank cannot be reached.
            UnsupportedError: no ring through all ranks was found.
        """
        limit = cost.tree_bound(problem)
        n = problem.topology.n_ranks
        rings = _find_rings(problem.topology, self.max_rings) if n > 1 else [((), Fraction(1))]
        whole = _total(rings)
        trees = tuple(
            tree
            for ring, rate in rings
            for index, chunk in enumerate(problem.collective.chunks)
            for tree in _trees(index, chunk, ring, rate / whole)
        )
        return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), limit)


def _trees(index: int, chunk: Chunk, ring: _Ring, share: Fraction) -> Iterator[Tree]:
    before, after = chunk.precondition.ranks, chunk.postcondition.ranks
    roots = before if len(before) == 1 else after
    place = {route.src: position for position, route in enumerate(ring)}
    for root in roots:
        start = place.get(root, 0)
        around = ring[start:] + ring[:start]
        # Data leaves the root over around[0]; sums come from the rank after it, all the way round.
        yield Tree(
            index,
            share / len(roots),
            root,
            reduce=around[1:] if len(before) > 1 else (),
            broadcast=around[:-1] if len(after) > 1 else (),
        )


def _find_rings(topology: Topology, most: int) -> list[tuple[_Ring, Fraction]]:
    """Rings and the bandwidth [GB/s] of each, within what all links have."""
    every = all_routes(topology)
    local = _without_detours(topology, every)
    # Each ring could carry a broadcast, so together they carry no more than one.
    widest = cost.bound(Problem(topology, make_collective("broadcast", topology.n_ranks)))
    best: list[tuple[_Ring, Fraction]] = []
    for turn in range(2 * _TRIES):
        if turn == _TRIES and best:
            break
        found = _fill(topology, local if turn < _TRIES else every, most, turn)
        if _total(found) > _total(best):
            best = found
        if widest is None or _total(best) == widest.algbw:
            break
    if not best:
        raise UnsupportedError(
            f"ring: no ring through all {topology.n_ranks} ranks of '{topology.name}' was found; try forestcoll"
        )
    return best


def _without_detours(topology: Topology, routes: Sequence[Mapping[int, Route]]) -> list[dict[int, Route]]:
    """Routes without those that leave a host's own switches to reach a rank of the same host.

    Switches between hosts are the scarce ones, and a ring needs them for going from host to host.
    """
    host = topology.host_of
    shared = {
        vertex
        for onward in routes
        for route in onward.values()
        if host[route.src] != host[route.dst]
        for vertex in route.path[1:-1]
    }
    return [
        {dst: route for dst, route in onward.items() if host[route.src] != host[dst] or shared.isdisjoint(route.path)}
        for onward in routes
    ]


def _total(rings: Iterable[tuple[_Ring, Fraction]]) -> Fraction:
    return sum((rate for _, rate in rings), Fraction(0))


def _fill(
    topology: Topology, routes: Sequence[Mapping[int, Route]], most: int, turn: int
) -> list[tuple[_Ring, Fraction]]:
    room = {(link.src, link.dst): link.bandwidth for link in topology.links}
    widths = sorted({link.bandwidth for link in topology.links}, reverse=True)
    found: list[tuple[_Ring, Fraction]] = []
    # Where a ring must cross some link several times, its rate is a part of the narrowest width.
    parts = [widths[-1] / 2**power for power in range(1, 7)]
    while (widths or (parts and not found)) and len(found) < most:
        widths = widths or [parts.pop(0)]
        ring = _Search(topology, routes, room, widths[0], len(found) + turn).run()
        if ring is None:
            widths.pop(0)
            continue
        for way in (ring, _backwards(ring, routes)):
            if way and len(found) < most and (rate := _rate(way, room)):
                found.append((way, rate))
                _use(way, room, rate)
    return found


def _backwards(ring: _Ring, routes: Sequence[Mapping[int, Route]]) -> _Ring | None:
    back = tuple(routes[route.dst].get(route.src) for route in reversed(ring))
    return None if None in back else tuple(route for route in back if route is not None)


def _rate(ring: Iterable[Route], room: _Room) -> Fraction:
    """What a ring can carry; a link it crosses twice gives half."""
    crossings: dict[tuple[str, str], int] = {}
    for route in ring:
        for hop in route.hops:
            crossings[hop] = crossings.get(hop, 0) + 1
    return min(room[hop] / count for hop, count in crossings.items())


def _use(ring: Iterable[Route], room: _Room, rate: Fraction) -> None:
    for route in ring:
        for hop in route.hops:
            room[hop] -= rate


class _Search:
    """A depth-first search for a ring whose links have room for a rate, host by host."""

    def __init__(
        self, topology: Topology, routes: Sequence[Mapping[int, Route]], room: _Room, rate: Fraction, turn: int
    ) -> None:
        self.topology, self.routes, self.rate = topology, routes, rate
        self.room = dict(room)
        self.hosts = [list(host[turn % len(host) :] + host[: turn % len(host)]) for host in topology.hosts]
        self.order = {rank: place for host in self.hosts for place, rank in enumerate(host)}
        self.steps = 0

    def run(self) -> _Ring | None:
        """The first ring found from any rank of the first host."""
        if not self._has_ways():
            return None
        for start in self.hosts[0]:
            self.start = start
            self.visited = {start}
            self.steps = _STEPS * self.topology.n_ranks
            ring: list[Route] = []
            if self._extend(ring):
                return tuple(ring)
        return None

    def _has_ways(self) -> bool:
        """Whether every rank has an open route out and one in; most hopeless searches end here."""
        outs, ins = set(), set()
        for rank, onward in enumerate(self.routes):
            for route in onward.values():
                if self._has_room(route):
                    outs.add(rank)
                    ins.add(route.dst)
        return len(outs) == len(ins) == self.topology.n_ranks

    def _extend(self, ring: list[Route]) -> bool:
        # An explicit stack of choices, since rings of a thousand ranks are deeper than Python's own.
        choices = [self._choices(self.start)]
        while choices and self.steps:
            route = next(choices[-1], None)
            if route is None:
                choices.pop()
                if ring:
                    self._give_back(ring.pop())
                continue
            if not self._has_room(route):
                continue
            self.steps -= 1
            self._take(route)
            ring.append(route)
            if len(ring) == self.topology.n_ranks:
                return True
            choices.append(self._choices(route.dst))
        while ring:
            self._give_back(ring.pop())
        return False

    def _choices(self, rank: int) -> Iterator[Route]:
        """Routes onward: within the host until all its ranks are visited, then to the next host."""
        host = self.topology.host_of[rank]
        if len(self.visited) == self.topology.n_ranks:
            home = self.routes[rank].get(self.start)
            return iter([home] if home else [])
        if not self._left(host):
            host = (host + 1) % len(self.hosts)
        onward = [self.routes[rank][head] for head in self._left(host) if head in self.routes[rank]]
        # Fewest ways on first (Warnsdorff's rule): ranks that are hard to reach later come early.
        return iter(sorted(onward, key=lambda route: (self._ways_on(route.dst), self.order[route.dst])))

    def _left(self, host: int) -> list[int]:
        return [rank for rank in self.hosts[host] if rank not in self.visited]

    def _ways_on(self, rank: int) -> int:
        left = self._left(self.topology.host_of[rank])
        return sum(1 for head in left if head in self.routes[rank] and self._has_room(self.routes[rank][head]))

    def _has_room(self, route: Route) -> bool:
        return all(self.room[hop] >= self.rate for hop in route.hops)

    def _take(self, route: Route) -> None:
        self.visited.add(route.dst)
        for hop in route.hops:
            self.room[hop] -= self.rate

    def _give_back(self, route: Route) -> None:
        if route.dst != self.start:
            self.visited.discard(route.dst)
        for hop in route.hops:
            self.room[hop] += self.rate
