"""Several groups at the same time -> what each does by itself: a runtime loads files for one communicator."""

from __future__ import annotations

from dataclasses import replace

from collc import cost
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.topology import Route
from collc.ir.variants import part_of


def by_group(flow: FlowSchedule) -> tuple[FlowSchedule, ...]:
    """The flow of each group on the fabric as the group has it, by its own ranks."""
    problem = flow.problem
    groups = problem.collective.groups
    if len(groups) == 1:
        return (flow,)
    made = []
    for number, ranks in enumerate(groups):
        fabric = replace(problem.topology.restricted(ranks), name=f"{problem.topology.name}-group{number}")
        part = replace(problem, topology=fabric, collective=part_of(problem.collective, ranks))
        trees = _trees(flow, ranks)
        made.append(FlowSchedule(part, trees, cost.bandwidth_time(part, trees)))
    return tuple(made)


def _trees(flow: FlowSchedule, ranks: tuple[int, ...]) -> tuple[Tree, ...]:
    chunks = [i for i, chunk in enumerate(flow.problem.collective.chunks) if chunk.precondition.ranks[0] in ranks]
    number = {chunk: place for place, chunk in enumerate(chunks)}
    first = ranks[0]

    def moved(routes: tuple[Route, ...]) -> tuple[Route, ...]:
        return tuple(Route(route.src - first, route.dst - first, route.path) for route in routes)

    return tuple(
        Tree(number[tree.chunk], tree.weight, tree.root - first, moved(tree.reduce), moved(tree.broadcast))
        for tree in flow.trees
        if tree.chunk in number
    )
