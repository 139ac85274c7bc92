"""The flow level: which share of a chunk takes which tree over which links; no time, no order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from collc.errors import InputError
from collc.ir.collective import AllPairs, Problem
from collc.ir.forest import Forest, Tree
from collc.ir.orbit import Orbit

__all__ = ["OPTIMAL_WITHIN", "Bound", "Cut", "FlowSchedule", "Forest", "Orbit", "Prices", "Tree"]

# Gap up to which a schedule counts as optimal.
OPTIMAL_WITHIN = Fraction(1, 10**9)


@dataclass(frozen=True)
class Cut:
    """Witness: data that must leave a part of the fabric, and the bandwidth it leaves by.

    A chunk with a contributor inside and a consumer outside crosses at least once, so no schedule
    takes less than (crossing slots / size slots) / (bandwidth leaving) [s/GB].

    Attributes:
        inside: vertex names, GPUs and switches.
    """

    inside: tuple[str, ...]


@dataclass(frozen=True)
class Prices:
    """Witness: a price on links, so that every byte moved must pay, while time pays for them all.

    Each rank-to-rank transfer costs at least the cheapest path between its ends; ranks that a free path
    joins count as one, and what must pass between such groups pays for each passage. So no schedule
    takes less than (sum of what the chunks must pay) / (sum of bandwidth x price) [s/GB].

    A switch that copies or adds counts as a rank there, since what it sends is its own; if one is in no
    rank's group, each chunk pays for one passage only.

    A chunk pays more where every share of it is summed on a tree into one rank and copied out from there
    on another, as `Tree` says it, and no ranks take part but those that contribute or consume: the least,
    over these ranks, of the cheapest tree that leads all to that rank plus the cheapest that leads from
    it to all. (With one contributor or consumer, one of the two.) `rooted` bounds use that rule.

    Attributes:
        price: (src, dst) -> price per byte, zero where absent.
        rooted: whether the limit is one for schedules made of trees; False: for all schedules.
    """

    price: tuple[tuple[str, str, Fraction], ...]
    rooted: bool = False


@dataclass(frozen=True)
class Bound:
    """A proven limit.

    Attributes:
        time: no schedule takes less [s/GB of message size].
        witness: what proves it; a checker re-adds it.
    """

    time: Fraction
    witness: Cut | Prices

    @property
    def algbw(self) -> Fraction:
        """The same limit as a bandwidth [GB/s]."""
        return 1 / self.time


@dataclass(frozen=True)
class FlowSchedule:
    """Trees that together serve a problem.

    Attributes:
        problem: what they serve.
        trees: the weights of each chunk's trees add to one.
        time: [s/GB of message size] in which the busiest link carries its load.
        bound: a limit no schedule can beat; equal to `time` where the schedule is optimal.
            None where nothing moves (one rank).
        notes: what the user should know (composition, rounding loss), a sentence each.
        in_network: whether it counts on the switches that add and copy. Routes of one tree that leave the
            same rank then run as one stream as long as they have the same way to a switch that copies
            before them, and those that arrive at the same rank do from a switch that adds.
    """

    problem: Problem
    trees: tuple[Tree, ...] | Forest | Orbit
    time: Fraction
    bound: Bound | None = None
    notes: tuple[str, ...] = ()
    in_network: bool = False

    def __post_init__(self) -> None:
        if self.in_network and not (self.problem.topology.multicast or self.problem.topology.reduce):
            raise InputError(f"in_network: no switch of topology '{self.problem.topology.name}' adds or copies")
        n_chunks = len(self.problem.collective.chunks)
        if isinstance(self.trees, Orbit):
            self.trees.check_fits(self.problem.topology, self.problem.collective.chunks)
            return
        if isinstance(self.trees, Forest):
            self.trees.check_fits(self.problem.topology, n_chunks)
            return
        for index, tree in enumerate(self.trees):
            if not 0 <= tree.chunk < n_chunks:
                raise InputError(f"tree {index}: chunk {tree.chunk}; the table has {n_chunks}")

    @property
    def chunks_per_slot(self) -> int:
        """The least number of chunks a slot is cut into so that every tree carries whole ones."""
        table = self.problem.collective.chunks
        alike = isinstance(table, AllPairs) or all(chunk.count == 1 for chunk in table)
        if isinstance(self.trees, Forest | Orbit) and alike:
            return self.trees.lowest_denominator
        return lcm(*((tree.weight * table[tree.chunk].count).denominator for tree in self.trees))

    @property
    def is_optimal(self) -> bool:
        """Whether the bound is reached, to one part in a billion (flows of linear programs are rounded)."""
        return self.bound is not None and self.time - self.bound.time <= self.time * OPTIMAL_WITHIN
