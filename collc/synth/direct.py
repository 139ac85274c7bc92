"""Every rank sends straight to every rank that wants its data: least latency, one hop per tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collc import cost
from collc.errors import InfeasibleError
from collc.ir.collective import Chunk, Problem
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.routes import all_routes
from collc.ir.topology import Route, Topology

_Parents = Mapping[int, Route]


@dataclass(frozen=True)
class Direct:
    """Straight from each holder to each consumer, on shortest routes.

    Ranks that no switch joins are reached over as few other ranks as possible.

    Guarantee: none on bandwidth; the fewest rank-to-rank hops.
    Supports: every collective on every fabric.
    Source: the all-pairs pattern of nccl-tests' alltoall; breadth-first trees.
    """

    def supports(self, problem: Problem) -> str | None:
        """None: it serves every problem."""
        return None

    def run(self, problem: Problem) -> FlowSchedule:
        """Trees of least height.

        Raises:
            InfeasibleError: a rank cannot be reached from another.
        """
        limit = cost.tree_bound(problem)
        down = _shortest_ways(problem.topology)
        # A reduction runs down the ways of the reversed fabric, walked backwards.
        up = down if problem.topology.is_symmetric else _shortest_ways(problem.topology.reversed())
        trees = tuple(
            tree for index, chunk in enumerate(problem.collective.chunks) for tree in _trees(index, chunk, down, up)
        )
        return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), limit)


def _trees(index: int, chunk: Chunk, down: Sequence[_Parents], up: Sequence[_Parents]) -> Iterable[Tree]:
    before, after = chunk.precondition.ranks, chunk.postcondition.ranks
    # A copy starts where it is; a sum may be complete at any consumer, and all take an equal share.
    roots = before if len(before) == 1 else after
    for root in roots:
        yield Tree(
            index,
            Fraction(1, len(roots)),
            root,
            reduce=tuple(route.reversed() for route in reversed(_tree_to(root, before, up[root]))),
            broadcast=_tree_to(root, after, down[root]),
        )


def _shortest_ways(topology: Topology) -> list[dict[int, Route]]:
    """For each rank a breadth-first tree of routes to all others: rank -> the route that ends there."""
    routes = all_routes(topology)
    ways = []
    for root in range(topology.n_ranks):
        parents: dict[int, Route] = {}
        waiting = deque([root])
        while waiting:
            rank = waiting.popleft()
            for route in routes[rank].values():
                if route.dst != root and route.dst not in parents:
                    parents[route.dst] = route
                    waiting.append(route.dst)
        ways.append(parents)
    return ways


def _tree_to(root: int, wanted: Iterable[int], parents: _Parents) -> tuple[Route, ...]:
    """The part of a tree that leads to the wanted ranks, from the root outwards."""
    chosen: dict[int, Route] = {}
    for rank in wanted:
        branch = []
        while rank != root and rank not in chosen:
            if rank not in parents:
                raise InfeasibleError(f"rank {rank} cannot be reached from rank {root}")
            branch.append(parents[rank])
            rank = parents[rank].src
        chosen.update((route.dst, route) for route in reversed(branch))
    return tuple(chosen.values())
