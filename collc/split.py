"""Several groups at the same time -> what each does by itself: a runtime loads files for one communicator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from collc import cost
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route
from collc.ir.variants import part_of


def by_group(made: FlowSchedule | Schedule) -> tuple[FlowSchedule | Schedule, ...]:
    """The schedule of each group on the fabric as the group has it, by its own ranks."""
    groups = made.problem.collective.groups
    if len(groups) == 1:
        return (made,)
    return tuple(_part(made, number, ranks) for number, ranks in enumerate(groups))


def _part(made: FlowSchedule | Schedule, number: int, ranks: tuple[int, ...]) -> FlowSchedule | Schedule:
    problem = made.problem
    fabric = replace(problem.topology.restricted(ranks), name=f"{problem.topology.name}-group{number}")
    part = replace(problem, topology=fabric, collective=part_of(problem.collective, ranks))
    if isinstance(made, FlowSchedule):
        trees = _trees(made, ranks)
        return FlowSchedule(part, trees, cost.bandwidth_time(part, trees))
    sends = _sends(made, ranks)
    return Schedule(
        part, sends, cost.steps_time(part, sends, synchronous=made.synchronous), synchronous=made.synchronous
    )


def _numbers(problem: Problem, ranks: Sequence[int]) -> dict[int, int]:
    """The group's chunks, and their places in its own table."""
    chunks = [i for i, chunk in enumerate(problem.collective.chunks) if chunk.precondition.ranks[0] in ranks]
    return {chunk: place for place, chunk in enumerate(chunks)}


def _trees(flow: FlowSchedule, ranks: tuple[int, ...]) -> tuple[Tree, ...]:
    number, first = _numbers(flow.problem, ranks), ranks[0]

    def moved(routes: tuple[Route, ...]) -> tuple[Route, ...]:
        return tuple(Route(route.src - first, route.dst - first, route.path) for route in routes)

    return tuple(
        Tree(number[tree.chunk], tree.weight, tree.root - first, moved(tree.reduce), moved(tree.broadcast))
        for tree in flow.trees
        if tree.chunk in number
    )


def _sends(schedule: Schedule, ranks: tuple[int, ...]) -> tuple[Send, ...]:
    """The group's sends; chunks that lie side by side are of one group, and stay so."""
    number, first = _numbers(schedule.problem, ranks), ranks[0]
    moved = cache(lambda route: Route(route.src - first, route.dst - first, route.path))
    return tuple(
        replace(send, chunk=number[send.chunk], route=moved(send.route))
        for send in schedule.sends
        if send.chunk in number
    )
