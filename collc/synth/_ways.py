"""From ways of pairs of ranks to a flow schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

from collc import cost
from collc.ir.collective import Problem
from collc.ir.flow import Bound, FlowSchedule, Tree
from collc.ir.topology import Route, Topology

# (vertex names from the sender to the receiver, share of what the pair exchanges)
Way = tuple[tuple[str, ...], Fraction]


def refusal(name: str, problem: Problem) -> str | None:
    """Why a synthesizer that only knows pairs does not serve a problem; None where it does."""
    if problem.collective.shapes <= {(1, 1)}:
        return None
    return f"{name} moves each chunk from one rank to one rank; {problem.collective.name} copies or adds"


def schedule(
    problem: Problem,
    ways: Mapping[tuple[int, int], Sequence[Way]],
    bound: Bound | None,
    notes: tuple[str, ...] = (),
) -> FlowSchedule:
    """Every chunk takes the ways of its pair of ranks, in their shares."""
    trees = tuple(_trees(problem, ways))
    return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), bound, notes)


def _trees(problem: Problem, ways: Mapping[tuple[int, int], Sequence[Way]]) -> Iterator[Tree]:
    cut = _Cutter(problem.topology)
    for index, chunk in enumerate(problem.collective.chunks):
        src, dst = chunk.precondition.ranks[0], chunk.postcondition.ranks[0]
        if src == dst:
            yield Tree(index, Fraction(1), src)
            continue
        for path, share in ways[src, dst]:
            yield Tree(index, share, src, broadcast=cut.routes(path))


class _Cutter:
    """Cuts ways into routes, from each GPU on them to the next; equal ways and routes are one object."""

    def __init__(self, topology: Topology) -> None:
        self._rank_of = topology.rank_of
        self._route = cache(lambda path: Route(self._rank_of[path[0]], self._rank_of[path[-1]], path))

    def routes(self, path: tuple[str, ...]) -> tuple[Route, ...]:
        stops = [place for place, vertex in enumerate(path) if vertex in self._rank_of]
        return tuple(self._route(path[start : stop + 1]) for start, stop in pairwise(stops))
