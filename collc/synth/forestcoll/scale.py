"""Stage 1, scale: bandwidths become whole numbers of trees that a link may carry.

With 1/x* = U/k in lowest terms, a link of bandwidth b carries U x b trees and every root grows k:
whole numbers, and exactly the optimum. Under a fixed k, U is the least for which the capacities
floor(U x b) still suffice; it is found from below, each step forced by a violated cut.

Source: ForestColl (arXiv:2402.06787), scaling; letters U and k are the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc import cost
from collc.errors import UnsupportedError
from collc.ir.collective import Problem
from collc.ir.topology import Topology
from collc.kernels import LIMIT
from collc.kernels.oracle import Oracle
from collc.symmetry import Graph, Group, find_group, trivial_group

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True)
class Instance:
    """A packing problem in flat arrays: vertices 0 .. n_ranks - 1 are the GPUs, switches follow.

    Attributes:
        names: vertex names.
        tails, heads, capacities: by link; a capacity counts trees.
        trees: by rank, how many trees must be rooted there.
        hosts: ranks that belong together, where symmetries are looked for.
    """

    n_ranks: int
    names: tuple[str, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    capacities: tuple[int, ...]
    trees: tuple[int, ...]
    hosts: tuple[tuple[int, ...], ...] = ()

    @property
    def n_trees(self) -> int:
        """Trees to pack, each reaching all GPUs."""
        return sum(self.trees)

    @cached_property
    def leaving(self) -> list[list[int]]:
        """By vertex, the links that start there."""
        return _by_end(len(self.names), self.tails)

    @cached_property
    def entering(self) -> list[list[int]]:
        """By vertex, the links that end there."""
        return _by_end(len(self.names), self.heads)

    @property
    def fits_compiled(self) -> bool:
        """Whether all sums stay within a compiled kernel's numbers."""
        return sum(self.capacities) + (self.n_ranks + 2) * self.n_trees < LIMIT

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Tails and heads as arrays."""
        import numpy

        return numpy.array(self.tails, dtype=numpy.int64), numpy.array(self.heads, dtype=numpy.int64)

    @cached_property
    def group(self) -> Group:
        """Symmetries: they keep capacities and trees."""
        return find_group(Graph(len(self.names), self.trees, self.tails, self.heads, self.capacities, self.hosts))

    @property
    def no_group(self) -> Group:
        """The group of order one."""
        return trivial_group(len(self.names), len(self.tails))

    def slots(self, group: Group) -> tuple[list[int], list[int], list[int]]:
        """By link, the number of its orbit; by orbit, how many elements leave a link alone, and its capacity."""
        n = len(self.tails)
        if group.order == 1:
            return list(range(n)), [1] * n, list(self.capacities)
        number: dict[int, int] = {}
        slot = [number.setdefault(first, len(number)) for first in group.links.min(axis=0).tolist()]
        members = [0] * len(number)
        for one in slot:
            members[one] += 1
        return slot, [group.order // count for count in members], [self.capacities[first] for first in number]

    def oracle(self, group: Group | None = None) -> Oracle:
        """The feasibility test on this graph; ranks that a group makes alike are tested at once.

        Args:
            group: keeps all capacities and trees that will be asked about.
        """
        orbits = [] if group is None else group.orbits(self.n_ranks)
        return Oracle(self.n_ranks, len(self.names), self.tails, self.heads, orbits=orbits)


def _by_end(n_vertices: int, ends: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(n_vertices)]
    for arc, vertex in enumerate(ends):
        found[vertex].append(arc)
    return found


def scale(
    problem: Problem, trees_per_rank: int | None, within: Fraction = Fraction(1), slack: Fraction = Fraction(0)
) -> Instance:
    """The packing problem of a collective that spreads one chunk from each root to all ranks.

    Args:
        problem: such a collective; its bound is the optimum.
        trees_per_rank: k, for each slot of a root's chunk; None takes the least that attains the optimum.
        within: with no k given, the share of the optimum that is enough: the least k that attains it.
        slack: what links may carry beyond what that needs, as a share of it.

    Raises:
        InfeasibleError: a rank cannot be reached.
        UnsupportedError: capacities beyond 64-bit integers.
    """
    topology = problem.topology
    best = cost.bound(problem)
    if best is None:
        raise ValueError("nothing moves, so there is nothing to scale")
    unit = cost.common_unit([link.bandwidth for link in topology.links])
    bandwidths = [int(link.bandwidth / unit) for link in topology.links]
    # Chunks that cross the optimal cut, per unit of bandwidth that leaves it.
    inverse = best.time * unit * problem.collective.size_chunks
    counts = {chunk.precondition.ranks[0]: chunk.count for chunk in problem.collective.chunks}
    slots = [counts.get(rank, 0) for rank in range(topology.n_ranks)]
    # Quality does not always rise with k, so every one is tried.
    if trees_per_rank:
        tried = range(trees_per_rank, trees_per_rank + 1)
    else:
        tried = range(1 if within < 1 else inverse.denominator, inverse.denominator + 1)
    for k in tried:
        scaled = inverse * k
        if scaled.denominator != 1:
            scaled = _least_scale(_instance(topology, slots, k, bandwidths), scaled)
        if inverse * k >= within * scaled:
            break
    scaled *= 1 + slack
    instance = _instance(topology, slots, k, [int(scaled * bandwidth) for bandwidth in bandwidths])
    if not instance.fits_compiled:
        raise UnsupportedError(
            f"forestcoll: the exact optimum takes {k} trees per rank, too many for 64-bit capacities; "
            "give a smaller number with trees_per_rank=K"
        )
    return instance


def _instance(topology: Topology, slots: Sequence[int], k: int, capacities: Sequence[int]) -> Instance:
    names = topology.gpus + topology.switches
    number = {name: vertex for vertex, name in enumerate(names)}
    trees = tuple(k * count for count in slots)
    return Instance(
        topology.n_ranks,
        names,
        tuple(number[link.src] for link in topology.links),
        tuple(number[link.dst] for link in topology.links),
        tuple(capacities),
        trees,
        topology.hosts,
    )


def _least_scale(shape: Instance, start: Fraction) -> Fraction:
    """The least U >= start for which capacities floor(U x bandwidth) allow the packing.

    Args:
        shape: with bandwidths for capacities.
    """
    scaled, oracle, bandwidths = start, shape.oracle(shape.group), shape.capacities
    while True:
        capacities = [int(scaled * bandwidth) for bandwidth in bandwidths]
        violated = oracle.violated(capacities, shape.trees)
        if not violated:
            return scaled
        for inside in violated:
            needed = shape.n_trees - sum(k for k, within in zip(shape.trees, inside, strict=False) if within)
            entering = [bandwidths[arc] for arc in _entering(shape, inside)]
            scaled = max(scaled, _least_for_cut(entering, needed, scaled))


def _entering(shape: Instance, inside: bytes) -> Iterator[int]:
    return (arc for arc, (a, b) in enumerate(zip(shape.tails, shape.heads, strict=True)) if inside[b] and not inside[a])


def _least_for_cut(bandwidths: Sequence[int], needed: int, start: Fraction) -> Fraction:
    """The least U >= start with sum of floor(U x bandwidth) >= needed."""
    scaled = max(start, Fraction(needed, sum(bandwidths)))
    while sum(int(scaled * bandwidth) for bandwidth in bandwidths) < needed:
        # The sum next changes where some U x bandwidth becomes whole.
        scaled = min(Fraction(int(scaled * bandwidth) + 1, bandwidth) for bandwidth in set(bandwidths))
    return scaled
