"""Shortest routes between ranks: through switches only, since a GPU in between is another rank's hop."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from fractions import Fraction

from collc.ir.topology import Route, Topology

# Fewest links first, then least latency, then the order of the topology's links: the same on every run.
_Key = tuple[int, Fraction, int]


def routes_from(topology: Topology, rank: int) -> Mapping[int, Route]:
    """The shortest route to every rank that can be reached without a GPU in between, by rank."""
    start = topology.gpus[rank]
    before: dict[str, str | None] = {start: None}
    waiting: list[tuple[_Key, str, str | None]] = []
    ticket = 0

    def leave(vertex: str, hops: int, latency: Fraction) -> None:
        nonlocal ticket
        for head in topology.successors[vertex]:
            if head not in before:
                key = (hops + 1, latency + topology.link[vertex, head].latency, ticket)
                heapq.heappush(waiting, (key, head, vertex))
                ticket += 1

    leave(start, 0, Fraction(0))
    found = {}
    while waiting:
        (hops, latency, _), vertex, previous = heapq.heappop(waiting)
        if vertex in before:
            continue
        before[vertex] = previous
        if vertex in topology.rank_of:
            found[topology.rank_of[vertex]] = Route(rank, topology.rank_of[vertex], _walk(before, vertex))
        else:
            leave(vertex, hops, latency)
    return dict(sorted(found.items()))


def _walk(before: Mapping[str, str | None], vertex: str) -> tuple[str, ...]:
    path = [vertex]
    while (previous := before[path[-1]]) is not None:
        path.append(previous)
    return tuple(reversed(path))


def all_routes(topology: Topology) -> tuple[Mapping[int, Route], ...]:
    """`routes_from` for every rank."""
    return tuple(routes_from(topology, rank) for rank in range(topology.n_ranks))
