"""From a problem as the rest of collc states it to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collc.errors import UnsupportedError
from collc.fast.machine import machine_of
from collc.fast.plan import Plan, plan
from collc.ir.collective import Collective, Problem

if TYPE_CHECKING:
    Numbers = Any


def refusal(problem: Problem) -> str | None:
    """Why there is no plan for a problem; None where there is one."""
    for index, chunk in enumerate(() if problem.collective.shapes == {(1, 1)} else problem.collective.chunks):
        if len(chunk.precondition) != 1 or len(chunk.postcondition) != 1:
            return (
                f"contributors and consumers of chunk {index} of {problem.collective.name}: {len(chunk.precondition)} "
                f"and {len(chunk.postcondition)}; expected one of each, as in all-to-all"
            )
    try:
        machine_of(problem.topology)
    except UnsupportedError as error:
        return str(error)
    return None


def demand_of(collective: Collective) -> Numbers:
    """[ranks x ranks] slots from each rank to each.

    Only for collectives that `refusal` has nothing against.
    """
    import numpy as np

    demand = np.zeros((collective.n_ranks, collective.n_ranks), dtype=np.int64)
    for chunk in collective.chunks:
        demand[chunk.precondition.ranks[0], chunk.postcondition.ranks[0]] += chunk.count
    return demand


def slot_bytes(problem: Problem) -> int | None:
    """Bytes of a slot at the problem's size; None without a size, or where slots are no whole bytes."""
    if problem.nbytes is None or problem.nbytes % problem.collective.size_chunks:
        return None
    return problem.nbytes // problem.collective.size_chunks


def plan_problem(problem: Problem) -> Plan:
    """The plan for a problem; in the large-message limit where it has no size.

    Raises:
        UnsupportedError: `refusal` says why.
    """
    if reason := refusal(problem):
        raise UnsupportedError(reason)
    machine, demand = machine_of(problem.topology), demand_of(problem.collective)
    nbytes = slot_bytes(problem)
    if nbytes is None:
        # Whatever a slot is, latencies are nothing to it.
        return plan(demand, machine.without_latency(), method="staged")
    most = int(demand.max()) * nbytes
    return plan(demand.astype(object) * nbytes if most >= 2**62 else demand * nbytes, machine)
