"""Breadth-first broadcast: every rank gets each shard by a shortest way, split so that no link is overloaded.

The schedule is planned chunk by chunk on lanes (`collc.design.plan`), then each shard's chunks are
read as trees: a chunk reaches every rank once, so its lanes form one. A reduce-scatter is the
broadcast of the reversed fabric turned round, and an all-reduce both, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from collc import cost
from collc.design.patient import patient_plan
from collc.design.plan import Plan, eager_plan
from collc.errors import InfeasibleError, InputError
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule, Tree
from collc.synth.bfb.fabric import Fabric, as_fabric, as_graph, by_recipe
from collc.synth.bfb.ways import Way, overlay, ways

_MOST_RANKS = 512


@dataclass(frozen=True)
class Bfb:
    """Breadth-first broadcast, the least load in every step by exact maximum flows.

    Guarantee: fewest steps; every step's busiest link carries the least; BW-optimal on many direct-connect designs.
    Supports: allgather, reduce_scatter, allreduce where ranks are joined by cables, or by one switch port each.
    Source: arXiv:2202.03356; the transport by maximum flow and the schedules of more steps are our own.

    Attributes:
        chunks: chunks of a shard; None takes the fewest that lose nothing.
        extra_steps: steps beyond the diameter, to keep every port busy where eager cannot (small designs).
        recipe: of the design that the topology is (`collc topo find`): its own schedule is taken.
    """

    chunks: int | None = None
    extra_steps: int = 0
    recipe: str = ""

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        n = problem.collective.n_ranks
        if n < 2:
            return "there is one rank, so nothing moves"
        if n > _MOST_RANKS:
            return f"it writes every rank's every hop out; {n} ranks, expected {_MOST_RANKS} at most"
        shapes = problem.collective.shapes
        if shapes not in ({(1, n)}, {(n, 1)}, {(n, n)}) or (shapes != {(n, n)} and len(problem.collective.chunks) < n):
            return f"it spreads or sums from and to every rank; {problem.collective.name} does not"
        return as_fabric(problem.topology).unsuited

    def run(self, problem: Problem) -> FlowSchedule:
        """Trees of least height.

        Raises:
            InputError: an option that does not fit the topology.
            UnsupportedError: the topology is too large or too irregular for the option.
            InfeasibleError: a rank cannot be reached, or no schedule has so few steps (proven).
        """
        self._check()
        limit = cost.tree_bound(problem)
        fabric = as_fabric(problem.topology)
        shapes = problem.collective.shapes
        spreads, sums = any(after > 1 for _, after in shapes), any(before > 1 for before, _ in shapes)
        down = self._plan(fabric) if spreads else None
        back = self._back(fabric, down) if sums else None
        trees = _trees(problem, fabric, down, back)
        notes = [_told(fabric, plan, word) for plan, word in ((back, "reduce-scatter"), (down, "allgather")) if plan]
        return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), limit, tuple(notes))

    def _check(self) -> None:
        if self.chunks is not None and not 1 <= self.chunks <= 4096:
            raise InputError(f"bfb: option chunks: {self.chunks}; expected 1 to 4096")
        if not 0 <= self.extra_steps <= 8:
            raise InputError(f"bfb: option extra_steps: {self.extra_steps}; expected 0 to 8")
        if self.recipe and (self.chunks or self.extra_steps):
            raise InputError(
                "bfb: option recipe brings its own schedule; expected neither chunks nor extra_steps beside it"
            )

    def _plan(self, fabric: Fabric) -> Plan:
        if self.recipe:
            return by_recipe(fabric, self.recipe)
        if not self.extra_steps:
            return eager_plan(fabric.lanes, self.chunks)
        graph, lane_of = as_graph(fabric)
        plan = patient_plan(graph, graph.diameter + self.extra_steps, self.chunks)
        if plan is None:
            raise InfeasibleError(
                f"bfb: no BW-optimal schedule has {graph.diameter + self.extra_steps} steps with these chunks (proven)"
            )
        return fabric.carried(plan, lane_of)

    def _back(self, fabric: Fabric, down: Plan | None) -> Plan:
        """The broadcast of the reversed fabric, on lanes numbered as the fabric's."""
        if fabric.is_symmetric and not self.recipe:
            return fabric.turned(down or self._plan(fabric))
        if self.recipe:
            return by_recipe(fabric, self.recipe, is_reversed=True)
        return self._plan(fabric.reversed())


def _trees(problem: Problem, fabric: Fabric, down: Plan | None, back: Plan | None) -> tuple[Tree, ...]:
    chunks = problem.collective.chunks
    n = problem.topology.n_ranks
    if back is None and down is not None:
        rows = {chunk.precondition.ranks[0]: index for index, chunk in enumerate(chunks)}
        return tuple(_broadcast(fabric, rows[way.source], way) for way in ways(down))
    if down is None and back is not None:
        rows = {chunk.postcondition.ranks[0]: index for index, chunk in enumerate(chunks)}
        return tuple(_reduce(fabric, rows[way.source], way) for way in ways(back))
    if down is None or back is None:
        raise RuntimeError("neither half of the schedule was wanted")
    # Every rank is root of an equal share of each chunk.
    return tuple(
        Tree(index, share / n, up.source, fabric.rising(up), fabric.falling(way))
        for index in range(len(chunks))
        for share, up, way in overlay(ways(back), ways(down))
    )


def _broadcast(fabric: Fabric, index: int, way: Way) -> Tree:
    return Tree(index, way.share, way.source, broadcast=fabric.falling(way))


def _reduce(fabric: Fabric, index: int, way: Way) -> Tree:
    return Tree(index, way.share, way.source, reduce=fabric.rising(way))


def _told(fabric: Fabric, plan: Plan, word: str) -> str:
    """What the schedule costs in lockstep: steps, and the time of every step's busiest link."""
    loads = plan.loads
    time = sum(loads, Fraction(0)) / fabric.unit / plan.lanes.n
    rate = f"{float(1 / time):.6g}"
    cut = f"{plan.n_chunks} chunk{'s' * (plan.n_chunks > 1)} per shard"
    told = f"{word}: {len(loads)} steps; step by step at most {rate} GB/s algbw; {cut}"
    ports = fabric.ports
    return told if ports is None else f"{told}; T_L {len(loads)}, T_B {Fraction(ports, plan.lanes.n) * sum(loads)} M/B"
