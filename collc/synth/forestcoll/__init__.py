"""ForestColl: spanning trees that reach the exact throughput optimum, on any fabric.

Stages, one file each: `scale` (bandwidths -> whole numbers of trees), `balance` (switches get equal
capacity in and out), `pack` (trees within those capacities; `oracle`, `sets` and `grow` serve it),
`renew` and `lower` (the same packing, of lower trees), `ways` (trees -> routes).
All stages know one thing only: chunks that spread from their roots to all ranks. Reductions are the
same on the reversed fabric, turned round; all-reduce lays one over the other, with equal shares for all
roots where that is the best there is, else with shares of their own (`allreduce`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from collc import cost
from collc.errors import InputError
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.topology import Topology
from collc.synth.forestcoll.allreduce import uneven_allreduce
from collc.synth.forestcoll.balance import balance
from collc.synth.forestcoll.renew import pack_low
from collc.synth.forestcoll.scale import scale
from collc.synth.forestcoll.ways import Way, overlay, routes_of

_COMPOSED = "composed of an optimal reduce-scatter and an optimal allgather with equal shares per root"


@dataclass(frozen=True)
class ForestColl:
    """Throughput-optimal spanning trees.

    Guarantee: optimal; for allreduce among schedules of trees, up to 256 ranks.
    Supports: allgather, reduce_scatter, allreduce, broadcast, reduce on any fabric with balanced switches.
    Source: ForestColl (arXiv:2402.06787); packing by lazily learned cuts is our own.

    Attributes:
        trees_per_rank: k; None takes the least that attains the optimum. Quality does not always
            rise with k.
        in_network: whether switches that add and copy may do so, where the fabric has such.
    """

    trees_per_rank: int | None = None
    in_network: bool = True

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        n = problem.collective.n_ranks
        shapes = {(len(chunk.precondition), len(chunk.postcondition)) for chunk in problem.collective.chunks}
        if n > 1 and shapes not in ({(1, n)}, {(n, 1)}, {(n, n)}):
            return f"forestcoll spreads or sums over all ranks; {problem.collective.name} does not"
        return None

    def run(self, problem: Problem) -> FlowSchedule:
        """Trees at the optimum.

        Raises:
            InputError: trees_per_rank below one.
            UnsupportedError: a switch that cannot be balanced, or capacities beyond 64 bits.
            InfeasibleError: a rank cannot be reached.
        """
        if self.trees_per_rank is not None and self.trees_per_rank < 1:
            raise InputError(f"forestcoll: option trees_per_rank: {self.trees_per_rank}; expected 1 or more")
        if not self.in_network:
            problem = replace(problem, topology=problem.topology.without_branching())
        limit = cost.tree_bound(problem)
        if limit is None:
            trees: tuple[Tree, ...] = tuple(
                Tree(index, Fraction(1), chunk.postcondition.ranks[0])
                for index, chunk in enumerate(problem.collective.chunks)
            )
            return FlowSchedule(problem, trees, Fraction(0))
        notes: tuple[str, ...] = ()
        if all(len(chunk.precondition) == len(chunk.postcondition) > 1 for chunk in problem.collective.chunks):
            if self.trees_per_rank is None and (flow := uneven_allreduce(problem, limit)):
                return flow
            notes = (_COMPOSED,)
        trees = self._trees(problem)
        return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), limit, notes)

    def _trees(self, problem: Problem) -> tuple[Tree, ...]:
        chunks = tuple(enumerate(problem.collective.chunks))
        n = problem.collective.n_ranks
        copies = {chunk.precondition.ranks[0]: index for index, chunk in chunks if len(chunk.precondition) == 1}
        sums = {chunk.postcondition.ranks[0]: index for index, chunk in chunks if len(chunk.postcondition) == 1}
        if copies:
            return tuple(
                Tree(copies[way.root], way.share, way.root, broadcast=way.routes)
                for way in self._down(problem.topology, tuple(copies))
            )
        if sums:
            return tuple(
                Tree(sums[way.root], way.share, way.root, reduce=way.routes)
                for way in self._up(problem.topology, tuple(sums))
            )
        # Every rank is root of an equal share of each chunk.
        ranks = tuple(range(n))
        downs = self._down(problem.topology, ranks)
        ups = [way.reversed() for way in downs] if problem.topology.is_symmetric else self._up(problem.topology, ranks)
        pairs = overlay(ups, downs)
        return tuple(
            Tree(index, up.share / n, up.root, reduce=up.routes, broadcast=down.routes)
            for index, _ in chunks
            for up, down in pairs
        )

    def _down(self, topology: Topology, roots: Sequence[int]) -> list[Way]:
        """Ways from each root to all ranks."""
        n = topology.n_ranks
        spread = make_collective("allgather", n) if len(roots) == n else make_collective("broadcast", n, root=roots[0])
        instance = balance(scale(Problem(topology, spread), roots, self.trees_per_rank))
        return [
            Way(tree.root, Fraction(tree.copies, instance.trees[tree.root]), routes_of(instance, tree.paths, n))
            for tree in pack_low(instance)
        ]

    def _up(self, topology: Topology, roots: Sequence[int]) -> list[Way]:
        """Ways from all ranks to each root: those of the reversed fabric, walked backwards."""
        fabric = topology if topology.is_symmetric else topology.reversed()
        return [way.reversed() for way in self._down(fabric, roots)]
