"""All-to-all on grids: one dimension after the other, the short way round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import ClassVar, Literal

from collc import cost
from collc.errors import UnsupportedError
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.ir.topology import Topology
from collc.synth import _ways

# A way round one dimension: the digits it visits after the first.
_Walk = tuple[int, ...]


@dataclass(frozen=True)
class DimensionOrdered:
    """Ways along the first dimension, then the second, and so on, as routers of grids go.

    Rank numbers are read as digits, the first dimension's first. Half-way round an even ring both ways are
    equally short: `ties` splits the data over both, or sends all of it upwards.

    Guarantee: none; a baseline for mcf.
    Supports: alltoall, alltoallv, scatter, gather on meshes, tori and hypercubes without switches.
    Source: Dally & Towles, Principles and Practices of Interconnection Networks, chapter 8.

    Attributes:
        ties: what happens half-way round.
    """

    in_auto: ClassVar[bool] = False
    ties: Literal["split", "up"] = "split"

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        if reason := _ways.refusal("dimension_ordered", problem):
            return reason
        if _dimensions(problem.topology) is None:
            return f"dimension_ordered needs a mesh or torus of GPUs; {problem.topology.name} is none"
        return None

    def run(self, problem: Problem) -> FlowSchedule:
        """The ways of every pair.

        Raises:
            UnsupportedError: the fabric is no grid.
        """
        topology = problem.topology
        dims = _dimensions(topology)
        if dims is None:
            raise UnsupportedError(f"dimension_ordered: {topology.name} is no grid")
        found: dict[tuple[int, int], list[_ways.Way]] = {}
        for chunk in problem.collective.chunks:
            src, dst = chunk.precondition.ranks[0], chunk.postcondition.ranks[0]
            if src != dst and (src, dst) not in found:
                found[src, dst] = list(self._ways(topology, dims, src, dst))
        return _ways.schedule(problem, found, cost.bound(problem))

    def _ways(self, topology: Topology, dims: tuple[int, ...], src: int, dst: int) -> Iterator[_ways.Way]:
        at, end = _digits(src, dims), _digits(dst, dims)
        wraps = [
            (_rank((*([0] * axis), size - 1, *([0] * (len(dims) - axis - 1))), dims)) for axis, size in enumerate(dims)
        ]
        closed = [(topology.gpus[0], topology.gpus[rank]) in topology.link for rank in wraps]
        options = [self._walks(*ends) for ends in zip(at, end, dims, closed, strict=True)]
        total = prod(map(len, options))
        for walks in product(*options):
            here, path = list(at), [topology.gpus[src]]
            for axis, walk in enumerate(walks):
                for digit in walk:
                    here[axis] = digit
                    path.append(topology.gpus[_rank(tuple(here), dims)])
            yield tuple(path), Fraction(1, total)

    def _walks(self, start: int, end: int, size: int, is_closed: bool) -> list[_Walk]:
        """The short ways from one digit to another."""
        up, down = (end - start) % size, (start - end) % size
        rise = tuple((start + step) % size for step in range(1, up + 1))
        fall = tuple((start - step) % size for step in range(1, down + 1))
        if not is_closed:
            return [rise if end >= start else fall]
        if up == down and up and size > 2 and self.ties == "split":
            return [rise, fall]
        return [rise if up <= down else fall]


def _dimensions(topology: Topology) -> tuple[int, ...] | None:
    """The sides of the grid that the fabric's links are those of, with or without the closing ones."""
    if topology.switches or topology.n_ranks < 2:
        return None
    ends = {(topology.rank_of[link.src], topology.rank_of[link.dst]) for link in topology.links}
    for dims in _factorings(topology.n_ranks):
        open_links, closing = set[tuple[int, int]](), set[tuple[int, int]]()
        for rank in range(topology.n_ranks):
            digits = _digits(rank, dims)
            for axis, size in enumerate(dims):
                onward = _rank((*digits[:axis], (digits[axis] + 1) % size, *digits[axis + 1 :]), dims)
                (closing if digits[axis] == size - 1 else open_links).update({(rank, onward), (onward, rank)})
        closing -= open_links
        if open_links <= ends and ends <= open_links | closing and ends & closing in (set(), closing):
            return dims
    return None


def _factorings(n: int) -> Iterator[tuple[int, ...]]:
    """Ordered products of factors above one that make n."""
    for factor in range(2, n + 1):
        if factor == n:
            yield (n,)
        elif n % factor == 0:
            yield from ((factor, *rest) for rest in _factorings(n // factor))


def _digits(rank: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    digits = []
    for size in reversed(dims):
        digits.append(rank % size)
        rank //= size
    return tuple(reversed(digits))


def _rank(digits: tuple[int, ...], dims: tuple[int, ...]) -> int:
    rank = 0
    for digit, size in zip(digits, dims, strict=True):
        rank = rank * size + digit
    return rank
