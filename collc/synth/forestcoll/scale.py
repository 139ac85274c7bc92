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

from collc import cost
from collc.errors import UnsupportedError
from collc.ir.collective import Problem
from collc.ir.topology import Topology
from collc.solve import CAPACITY_LIMIT
from collc.synth.forestcoll.oracle import Oracle


@dataclass(frozen=True)
class Instance:
    """A packing problem in flat arrays: vertices 0 .. n_ranks - 1 are the GPUs, switches follow.

    Attributes:
        names: vertex names.
        tails, heads, capacities: by link; a capacity counts trees.
        trees: by rank, how many trees must be rooted there.
    """

    n_ranks: int
    names: tuple[str, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    capacities: tuple[int, ...]
    trees: tuple[int, ...]

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

    def oracle(self) -> Oracle:
        """The feasibility test on this graph."""
        return Oracle(self.n_ranks, len(self.names), self.tails, self.heads)


def _by_end(n_vertices: int, ends: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(n_vertices)]
    for arc, vertex in enumerate(ends):
        found[vertex].append(arc)
    return found


def scale(problem: Problem, roots: Sequence[int], trees_per_rank: int | None) -> Instance:
    """The packing problem of a collective that spreads one chunk from each root to all ranks.

    Args:
        problem: such a collective; its bound is the optimum.
        trees_per_rank: k; None takes the least that attains the optimum.

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
    k = trees_per_rank or inverse.denominator
    shape = _instance(topology, roots, k, [0] * len(bandwidths))
    scaled = inverse * k
    if scaled.denominator != 1:
        scaled = _least_scale(shape, bandwidths, scaled)
    return _instance(topology, roots, k, [int(scaled * bandwidth) for bandwidth in bandwidths])


def _instance(topology: Topology, roots: Sequence[int], k: int, capacities: Sequence[int]) -> Instance:
    names = topology.gpus + topology.switches
    number = {name: vertex for vertex, name in enumerate(names)}
    trees = tuple(k if rank in roots else 0 for rank in range(topology.n_ranks))
    # The oracle adds supplies of up to all trees per rank to the capacities.
    if sum(capacities) + (len(roots) + 2) * sum(trees) >= CAPACITY_LIMIT:
        raise UnsupportedError(
            f"forestcoll: the exact optimum takes {k} trees per rank, too many for 64-bit capacities; "
            "give a smaller number with trees_per_rank=K"
        )
    return Instance(
        topology.n_ranks,
        names,
        tuple(number[link.src] for link in topology.links),
        tuple(number[link.dst] for link in topology.links),
        tuple(capacities),
        trees,
    )


def _least_scale(shape: Instance, bandwidths: Sequence[int], start: Fraction) -> Fraction:
    """The least U >= start for which capacities floor(U x bandwidth) allow the packing."""
    scaled, oracle = start, shape.oracle()
    while True:
        capacities = [int(scaled * bandwidth) for bandwidth in bandwidths]
        violated = oracle.violated(capacities, shape.trees)
        if not violated:
            return scaled
        for inside in violated:
            needed = shape.n_trees - sum(k for k, within in zip(shape.trees, inside, strict=False) if within)
            entering = [bandwidths[arc] for arc in _entering(shape, inside)]
            scaled = max(scaled, _least_for_cut(entering, needed, scaled))


def _entering(shape: Instance, inside: Sequence[bool]) -> Iterator[int]:
    return (arc for arc, (a, b) in enumerate(zip(shape.tails, shape.heads, strict=True)) if inside[b] and not inside[a])


def _least_for_cut(bandwidths: Sequence[int], needed: int, start: Fraction) -> Fraction:
    """The least U >= start with sum of floor(U x bandwidth) >= needed."""
    scaled = max(start, Fraction(needed, sum(bandwidths)))
    while sum(int(scaled * bandwidth) for bandwidth in bandwidths) < needed:
        # The sum next changes where some U x bandwidth becomes whole.
        scaled = min(Fraction(int(scaled * bandwidth) + 1, bandwidth) for bandwidth in set(bandwidths))
    return scaled
