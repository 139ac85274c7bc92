"""All-to-all on shortest ways, each chosen around the load of those before it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import ClassVar

from collc import cost
from collc.errors import InfeasibleError
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.synth import _ways
from collc.synth._network import Network


@dataclass(frozen=True)
class Shortest:
    """One shortest way per pair: fewest links, then the least load so far, source after source.

    Guarantee: none; a baseline for mcf.
    Supports: alltoall, alltoallv, scatter, gather on every fabric.
    Source: load-aware single-source shortest paths (DFSSSP: Hoefler, Schneider, Lumsdaine, Hot Interconnects 2009).
    """

    in_auto: ClassVar[bool] = False

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return _ways.refusal("shortest", problem)

    def run(self, problem: Problem) -> FlowSchedule:
        """A tree of ways from each rank; ranks in order.

        Raises:
            InfeasibleError: a rank cannot be reached.
        """
        network = Network.of(problem)
        common = lcm(*network.bandwidths.tolist())
        loads = [0] * network.n_links
        weights = [common // width for width in network.bandwidths.tolist()]
        ways: dict[tuple[int, int], list[_ways.Way]] = {}
        for source in network.demand.sum(axis=1).nonzero()[0].tolist():
            before = _tree(network, source, [load * weight for load, weight in zip(loads, weights, strict=True)])
            for dst in network.demand[source].nonzero()[0].tolist():
                links = _walk(network, before, source, dst)
                for link in links:
                    loads[link] += int(network.demand[source, dst])
                path = (network.vertices[source], *(network.vertices[network.heads[link]] for link in links))
                ways[source, dst] = [(path, Fraction(1))]
        return _ways.schedule(problem, ways, cost.bound(problem))


def _tree(network: Network, source: int, loads: list[int]) -> dict[int, int]:
    """Vertex -> the link by which it is reached."""
    heads, leaving = network.heads.tolist(), network.leaving
    before: dict[int, int] = {}
    waiting = [(0, 0, -1, source)]
    done = set()
    while waiting:
        hops, load, link, vertex = heapq.heappop(waiting)
        if vertex in done:
            continue
        done.add(vertex)
        before[vertex] = link
        for onward in leaving[vertex]:
            if heads[onward] not in done:
                heapq.heappush(waiting, (hops + 1, load + loads[onward], onward, heads[onward]))
    return before


def _walk(network: Network, before: dict[int, int], source: int, dst: int) -> list[int]:
    if dst not in before:
        raise InfeasibleError(f"rank {dst} cannot be reached from rank {source}")
    links = []
    while dst != source:
        links.append(before[dst])
        dst = int(network.tails[before[dst]])
    return links[::-1]
