"""Trees, one by one and many in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any

from collc.errors import InputError
from collc.ir.lazy import Lazy
from collc.ir.topology import Route, Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True)
class Tree:
    """A share of one chunk and the way it takes.

    Attributes:
        chunk: index in the collective's table.
        weight: share of that chunk, 0 < weight <= 1.
        root: rank where the sum is complete and the copies start.
        reduce: in-tree, contributors towards the root; every edge after those that feed it.
        broadcast: out-tree, root towards consumers; every edge after the one that feeds it.
            Point-to-point is an out-tree of one route.
    """

    chunk: int
    weight: Fraction
    root: int
    reduce: tuple[Route, ...] = ()
    broadcast: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise InputError(f"tree of chunk {self.chunk}: weight {self.weight}; expected 0 < weight <= 1")

    @property
    def height(self) -> int:
        """Rank-to-rank hops on the longest way from a contributor to a consumer."""
        depth = {self.root: 0}
        for route in self.broadcast:
            depth[route.dst] = depth.get(route.src, 0) + 1
        down = max(depth.values())
        rise = {self.root: 0}
        for route in reversed(self.reduce):
            rise[route.src] = rise.get(route.dst, 0) + 1
        return down + max(rise.values())


@dataclass(frozen=True, eq=False)
class Forest(Lazy[Tree]):
    """Many trees in arrays, so that a million edges cost some megabytes; a tree is made when it is asked for.

    Attributes:
        names: vertex names; the first n_ranks are the GPUs, by rank.
        denominator: of all weights.
        chunks, numerators, roots: by tree.
        reduces, broadcasts: by edge, the route it takes; those of tree t start at
            reduce_starts[t] and broadcast_starts[t].
        vertices: by route, the vertices it visits; those of route r start at route_starts[r].
    """

    names: tuple[str, ...]
    n_ranks: int
    denominator: int
    chunks: Array
    numerators: Array
    roots: Array
    reduces: Array
    reduce_starts: Array
    broadcasts: Array
    broadcast_starts: Array
    vertices: Array
    route_starts: Array

    def __post_init__(self) -> None:
        n, routes = len(self.chunks), len(self.route_starts) - 1
        if len(self.numerators) != n or len(self.roots) != n:
            raise InputError(f"forest: {n} chunks, {len(self.numerators)} numerators, {len(self.roots)} roots")
        _check_starts("reduce_starts", self.reduce_starts, n, len(self.reduces))
        _check_starts("broadcast_starts", self.broadcast_starts, n, len(self.broadcasts))
        _check_starts("route_starts", self.route_starts, routes, len(self.vertices), least=2)
        _check_range("numerators", self.numerators, 1, self.denominator + 1)
        _check_range("roots", self.roots, 0, self.n_ranks)
        _check_range("reduces", self.reduces, 0, routes)
        _check_range("broadcasts", self.broadcasts, 0, routes)
        _check_range("vertices", self.vertices, 0, len(self.names))
        # A route joins two ranks.
        for end in (self.vertices[self.route_starts[:-1]], self.vertices[self.route_starts[1:] - 1]):
            _check_range("ends of routes", end, 0, self.n_ranks)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return {name: value for name, value in vars(self).items() if name in ARRAYS}

    def __len__(self) -> int:
        return len(self.chunks)

    def make(self, index: int) -> Tree:
        """The tree at an index."""
        return Tree(
            int(self.chunks[index]),
            Fraction(int(self.numerators[index]), self.denominator),
            int(self.roots[index]),
            self._routes(self.reduces, self.reduce_starts, index),
            self._routes(self.broadcasts, self.broadcast_starts, index),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Forest):
            return NotImplemented
        same = (self.names, self.n_ranks, self.denominator) == (other.names, other.n_ranks, other.denominator)
        pairs = zip(self.arrays.values(), other.arrays.values(), strict=True)
        return same and all(len(a) == len(b) and bool((a == b).all()) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.denominator, *(len(array) for array in self.arrays.values())))

    def check_fits(self, topology: Topology, n_chunks: int) -> None:
        """Nothing, where vertices are the topology's and chunks within the table.

        Raises:
            InputError: they are not.
        """
        if self.names != topology.gpus + topology.switches or self.n_ranks != topology.n_ranks:
            raise InputError(f"forest: its vertices are not those of topology '{topology.name}'")
        _check_range("chunks", self.chunks, 0, n_chunks)

    @property
    def lowest_denominator(self) -> int:
        """The least common denominator of all weights."""
        return self.denominator // gcd(self.denominator, *map(int, set(self.numerators.tolist())))

    def route(self, index: int) -> Route:
        """A route of the table."""
        if index not in self._made:
            path = self.vertices[self.route_starts[index] : self.route_starts[index + 1]].tolist()
            self._made[index] = Route(path[0], path[-1], tuple(self.names[vertex] for vertex in path))
        return self._made[index]

    @cached_property
    def _made(self) -> dict[int, Route]:
        return {}

    def _routes(self, edges: Array, starts: Array, index: int) -> tuple[Route, ...]:
        return tuple(self.route(edge) for edge in edges[starts[index] : starts[index + 1]].tolist())


# Names of the arrays, as text forms list them.
ARRAYS = (
    *("chunks", "numerators", "roots", "reduces", "reduce_starts", "broadcasts", "broadcast_starts"),
    *("vertices", "route_starts"),
)


def _check_starts(name: str, starts: Array, n: int, end: int, least: int = 0) -> None:
    ends = len(starts) == n + 1 and starts[0] == 0 and starts[-1] == end
    if not ends or (n and int((starts[1:] - starts[:-1]).min()) < least):
        raise InputError(f"forest: {name} is not {n + 1} numbers that rise from 0 to {end} by {least} or more")


def _check_range(name: str, values: Array, low: int, high: int) -> None:
    if len(values) and not (low <= int(values.min()) and int(values.max()) < high):
        raise InputError(f"forest: {name} holds {values.min()}..{values.max()}; expected {low}..{high - 1}")
