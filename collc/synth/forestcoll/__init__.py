"""ForestColl: spanning trees that reach the exact throughput optimum, on any fabric.

Stages, one file each: `scale` (bandwidths -> whole numbers of trees), `balance` (switches get equal
capacity in and out), `pack` (trees within those capacities; `sets` and the kernels serve it), `renew`
and `lower` (the same packing, of lower trees), `forests` and `ways` (trees -> routes).
All stages know one thing only: chunks that spread from their roots to all ranks. Reductions are the
same on the reversed fabric, turned round; all-reduce lays one over the other, with equal shares for all
roots where that is the best there is, else with shares of their own (`allreduce`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd

from collc import cost
from collc.errors import InputError, UnsupportedError
from collc.ir.collective import Collective, Problem
from collc.ir.flow import Bound, FlowSchedule, Forest, Tree
from collc.ir.topology import Topology
from collc.ir.variants import with_shares
from collc.synth.forestcoll.allreduce import in_network_allreduce, uneven_allreduce
from collc.synth.forestcoll.balance import balance
from collc.synth.forestcoll.forests import gathered, spread, summed
from collc.synth.forestcoll.groups import grouped, refusal
from collc.synth.forestcoll.renew import pack_low
from collc.synth.forestcoll.scale import scale
from collc.synth.forestcoll.ways import Way, overlay

# By how much links may carry more in the variants of one tree per rank, for ever smaller messages.
_SLACKS = ("1/4", "1", "3", "15")
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
        within: with no trees_per_rank, the share of the optimum that is enough: 0.99 takes the least k that
            attains that.
        slack: how much more than they must links may carry, so that trees are lower: 1/2 is half as much again.
        in_network: whether switches that add and copy may do so, where the fabric has such.
    """

    trees_per_rank: int | None = None
    within: Fraction = Fraction(1)
    slack: Fraction = Fraction(0)
    in_network: bool = True

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return refusal(problem.collective)

    def variants(self, flow: FlowSchedule) -> list[dict[str, str]]:
        """Options under which trees are fewer or lower than these of no options, at the cost of bandwidth.

        None where trees are as low as can be, which few trees are.
        """
        trees = flow.trees
        few = {"trees_per_rank": "1"}
        roots = set(trees.roots.tolist()) if isinstance(trees, Forest) else {tree.root for tree in trees}
        is_few = len(trees) == len(roots)
        least = cost.height_bound(flow, any_rate=True)
        if least is None or (is_few and cost.max_height(trees) == least.hops):
            return []
        return [few] * (not is_few) + [few | {"slack": slack} for slack in _SLACKS]

    def run(self, problem: Problem) -> FlowSchedule:
        """Trees at the optimum.

        Raises:
            InputError: trees_per_rank below one, within not a share, or slack below zero.
            UnsupportedError: a switch that cannot be balanced, or capacities beyond 64 bits.
            InfeasibleError: a rank cannot be reached.
        """
        if self.trees_per_rank is not None and self.trees_per_rank < 1:
            raise InputError(f"forestcoll: option trees_per_rank: {self.trees_per_rank}; expected 1 or more")
        if not 0 < self.within <= 1:
            raise InputError(
                f"forestcoll: option within: {self.within}; expected a share of the optimum, above 0 up to 1"
            )
        if self.slack < 0:
            raise InputError(f"forestcoll: option slack: {self.slack}; expected 0 or more")
        if not self.in_network:
            problem = replace(problem, topology=problem.topology.without_branching())
        limit = cost.tree_bound(problem)
        if limit is None:
            trees: tuple[Tree, ...] = tuple(
                Tree(index, Fraction(1), chunk.postcondition.ranks[0])
                for index, chunk in enumerate(problem.collective.chunks)
            )
            return FlowSchedule(problem, trees, Fraction(0))
        if len(problem.collective.groups) > 1:
            return grouped(problem, limit)
        try:
            return self._of_one_group(problem, limit)
        except UnsupportedError:
            # Switches that cannot be balanced at the rate of the best cut can be at a lower one.
            if self.trees_per_rank is not None or problem.topology.n_ranks > cost.MOST_RANKS:
                raise
            with suppress(UnsupportedError):
                return grouped(problem, limit)
            raise

    def _of_one_group(self, problem: Problem, limit: Bound) -> FlowSchedule:
        sums = all(before == after > 1 for before, after in problem.collective.shapes)
        is_free = self.trees_per_rank is None and not self.slack
        if sums and is_free and (flow := in_network_allreduce(problem, limit)):
            return flow
        found = self._trees(problem)
        flow = FlowSchedule(problem, found, cost.bandwidth_time(problem, found), limit)
        if not sums:
            return flow
        equal = replace(flow, notes=(_COMPOSED,))
        # Halves whose busiest links differ may be optimal together though neither looks like it.
        is_enough = equal.is_optimal or self.within * equal.time <= limit.time
        better = uneven_allreduce(equal) if is_free and not is_enough else None
        return better or equal

    def _trees(self, problem: Problem) -> tuple[Tree, ...] | Forest:
        topology, chunks = problem.topology, tuple(enumerate(problem.collective.chunks))
        copies = {chunk.precondition.ranks[0]: index for index, chunk in chunks if len(chunk.precondition) == 1}
        sums = {chunk.postcondition.ranks[0]: index for index, chunk in chunks if len(chunk.postcondition) == 1}
        if copies:
            return self._down(topology, copies, _slots(problem.collective, copies))
        if sums:
            return gathered(self._down(_turned(topology), sums, _slots(problem.collective, sums)))
        # Every rank is root of an equal share of each chunk.
        n = problem.collective.n_ranks
        everyone, equal = dict.fromkeys(range(n), 0), [1] * n
        downs = self._down(topology, everyone, equal)
        if topology.is_symmetric:
            return summed(downs, len(chunks))
        ups = gathered(self._down(_turned(topology), everyone, equal))
        pairs = overlay(
            [Way(tree.root, tree.weight, tree.reduce) for tree in ups],
            [Way(tree.root, tree.weight, tree.broadcast) for tree in downs],
        )
        return tuple(
            Tree(index, up.share / n, up.root, reduce=up.routes, broadcast=down.routes)
            for index, _ in chunks
            for up, down in pairs
        )

    def _down(self, topology: Topology, chunk_of: dict[int, int], slots: Sequence[int]) -> Forest:
        """Out-trees from each root to all ranks, by the chunk that it spreads; `slots` are what each rank has."""
        instance = balance(
            scale(Problem(topology, with_shares("allgather", slots)), self.trees_per_rank, self.within, self.slack)
        )
        return spread(instance, pack_low(instance), chunk_of)


def _slots(collective: Collective, chunk_of: Mapping[int, int]) -> list[int]:
    """By rank, the slots of the chunk that has its root there, in the largest unit."""
    counts = [collective.chunks[chunk_of[rank]].count if rank in chunk_of else 0 for rank in range(collective.n_ranks)]
    unit = gcd(*counts)
    return [count // unit for count in counts]


def _turned(topology: Topology) -> Topology:
    """The reversed fabric; itself where that is the same."""
    return topology if topology.is_symmetric else topology.reversed()
