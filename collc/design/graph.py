"""A direct-connect design: vertices with equally many ports each way, and where each port leads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    import numpy

    Matrix = numpy.ndarray[tuple[int, int], numpy.dtype[Any]]
    Row = numpy.ndarray[tuple[int], numpy.dtype[Any]]

# What a finder or a schedule is asked for at most; whole-graph work takes memory of its square.
MOST_VERTICES = 4096
MOST_PORTS = 2**21

Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """A regular directed multigraph.

    Attributes:
        name: for eyes, as the paper writes it.
        recipe: builds it again (`collc.design.recipe`).
        heads: by vertex, where each of its ports leads; a port that leads back to it is dead.
        symmetries: automorphisms, as images of the vertices; they are checked before they are used.
    """

    name: str
    recipe: str
    heads: tuple[tuple[int, ...], ...]
    symmetries: tuple[Permutation, ...] = ()

    def __post_init__(self) -> None:
        if not self.heads or not self.heads[0]:
            raise InputError(f"{self.name}: expected at least one vertex with at least one port")
        entering = Counter(head for row in self.heads for head in row)
        for vertex, row in enumerate(self.heads):
            if len(row) != self.degree or entering[vertex] != self.degree:
                raise InputError(
                    f"{self.name}: vertex {vertex} has {len(row)} ports out and {entering[vertex]} in; "
                    f"expected {self.degree} each, as vertex 0 has out"
                )
        if max(entering) >= self.n or min(entering) < 0:
            raise InputError(f"{self.name}: a port leads to no vertex; expected 0 to {self.n - 1}")

    @property
    def n(self) -> int:
        """Vertices."""
        return len(self.heads)

    @property
    def degree(self) -> int:
        """Ports of a vertex each way, dead ones included."""
        return len(self.heads[0])

    @cached_property
    def n_loops(self) -> int:
        """Dead ports: those that lead back to their own vertex."""
        return sum(row.count(vertex) for vertex, row in enumerate(self.heads))

    @cached_property
    def arcs(self) -> Mapping[tuple[int, int], int]:
        """(tail, head) -> how many links join them; dead ports are left out."""
        return Counter((tail, head) for tail, row in enumerate(self.heads) for head in row if tail != head)

    @cached_property
    def is_two_way(self) -> bool:
        """Whether every link has a twin the other way, so that full-duplex cables can carry it."""
        return all(self.arcs.get((head, tail)) == count for (tail, head), count in self.arcs.items())

    @cached_property
    def transpose(self) -> Graph:
        """Every link turned round; an allgather on it is a reduce-scatter on this one."""
        rows: list[list[int]] = [[] for _ in range(self.n)]
        for tail, row in enumerate(self.heads):
            for head in row:
                rows[head].append(tail)
        recipe = self.recipe[8:-1] if self.recipe.startswith("reverse(") else f"reverse({self.recipe})"
        return Graph(f"{self.name}^T", recipe, tuple(map(tuple, rows)), self.symmetries)

    @cached_property
    def tails(self) -> Matrix:
        """[n x degree] where each port into a vertex comes from."""
        import numpy

        return numpy.array(self.transpose.heads, dtype=numpy.int32)

    @cached_property
    def digest(self) -> bytes:
        """A short key of the links and the symmetries."""
        import numpy

        content = hashlib.sha256(repr((self.n, self.degree)).encode())
        for rows in (self.heads, self.symmetries):
            content.update(numpy.array(rows, dtype=numpy.int32).tobytes())
        return content.digest()

    def renamed(self, name: str, recipe: str) -> Graph:
        """The same graph under another name."""
        return replace(self, name=name, recipe=recipe)

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """One vertex of each class that the checked symmetries map onto each other.

        Raises:
            InputError: a stated symmetry is none.
        """
        for image in self.symmetries:
            if not is_symmetry(self.heads, image):
                raise InputError(f"{self.name}: a stated symmetry does not map links onto links")
        return _orbit_firsts(self.n, self.symmetries)

    @cached_property
    def is_transitive(self) -> bool:
        """Whether the stated symmetries, once checked, map every vertex onto every other."""
        return self.representatives == (0,)

    @property
    def is_symmetric(self) -> bool:
        """Whether searching from the representatives alone is quicker than from all vertices at once."""
        return len(self.representatives) * (self.degree + 2) * 8 < self.n

    def distances_to(self, vertex: int) -> Row:
        """[n] links on the shortest way from each vertex to this one.

        Raises:
            InfeasibleError: there is no way from some vertex.
        """
        import numpy

        far = numpy.full(self.n, -1, dtype=numpy.int16)
        far[vertex] = 0
        front = numpy.array([vertex])
        step = 0
        while front.size:
            step += 1
            near = self.tails[front].ravel()
            far[near[far[near] < 0]] = step
            front = numpy.flatnonzero(far == step)
        if far.min() < 0:
            raise InfeasibleError(f"{self.name}: vertex {vertex} cannot be reached from {int(far.argmin())}")
        return far

    @cached_property
    def distances(self) -> Matrix:
        """[n x n] links on the shortest way; row: where it ends, column: where it starts.

        Raises:
            InfeasibleError: there is no way between some vertices.
        """
        import numpy

        n, words = self.n, -(-self.n // 64)
        reached = numpy.zeros((n, words), dtype=numpy.uint64)
        every = numpy.arange(n)
        reached[every, every // 64] = numpy.left_shift(numpy.uint64(1), (every % 64).astype(numpy.uint64))
        far = numpy.zeros((n, n), dtype=numpy.int16)
        while True:
            bits = numpy.unpackbits(reached.view(numpy.uint8), axis=1, count=n, bitorder="little")
            if bits.all():
                return far
            far += 1 - bits
            further = reached.copy()
            for port in range(self.degree):
                further |= reached[self.tails[:, port]]
            if (further == reached).all():
                lost = numpy.argwhere(bits == 0)[0]
                raise InfeasibleError(f"{self.name}: vertex {lost[0]} cannot be reached from {lost[1]}")
            reached = further

    @cached_property
    def diameter(self) -> int:
        """Links on the longest shortest way, by a full search from every class of vertices.

        Raises:
            InfeasibleError: there is no way between some vertices.
        """
        if self.is_symmetric:
            return max(int(self.distances_to(vertex).max()) for vertex in self.representatives)
        return int(self.distances.max())


def is_symmetry(heads: Sequence[Sequence[int]], image: Sequence[int]) -> bool:
    """Whether renaming vertices to their images leaves a graph as it is.

    >>> is_symmetry(((1,), (2,), (0,)), (1, 2, 0)), is_symmetry(((1,), (2,), (0,)), (1, 0, 2))
    (True, False)
    """
    import numpy

    found, moved = numpy.array(heads), numpy.array(image)
    if not numpy.array_equal(numpy.sort(moved), numpy.arange(len(heads))):
        return False
    expected = numpy.sort(moved[found], axis=1)
    return bool(numpy.array_equal(expected, numpy.sort(found, axis=1)[moved]))


def _orbit_firsts(n: int, symmetries: Sequence[Permutation]) -> tuple[int, ...]:
    """The least vertex of each orbit: symmetries have finite order, so going forward reaches all of it."""
    seen = [False] * n
    firsts = []
    for start in range(n):
        if seen[start]:
            continue
        firsts.append(start)
        seen[start] = True
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            for image in symmetries:
                if not seen[image[vertex]]:
                    seen[image[vertex]] = True
                    waiting.append(image[vertex])
    return tuple(firsts)


def check_scale(name: str, n: int, degree: int) -> None:
    """Refuse a graph that would not fit, before it is built.

    Raises:
        InputError: too many vertices or ports, or too few.
    """
    if n < 2 or degree < 1:
        raise InputError(f"{name}: {n} vertices of degree {degree}; expected 2 or more, of degree 1 or more")
    if n > 8 * MOST_VERTICES or n * degree > MOST_PORTS:
        raise InputError(
            f"{name}: {n} vertices of degree {degree}; expected {8 * MOST_VERTICES} vertices "
            f"and {MOST_PORTS} ports in all at most"
        )
