"""Whether two graphs are the same but for their vertices' names, and a renaming that shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from collc.design.graph import Graph, Permutation

_MOST_TRIES = 200_000


def isomorphism(one: Graph, other: Graph) -> Permutation | None:
    """By vertex of one graph its image in the other; None where none was found.

    Depth-first from vertex 0 along links, matching vertices that look alike. Exhaustive up to a fixed
    number of tries, so that None is a proof only for small or very regular graphs.
    """
    if (one.n, one.degree, one.n_loops) != (other.n, other.degree, other.n_loops):
        return None
    mine, theirs = _kinds(one), _kinds(other)
    if sorted(mine) != sorted(theirs):
        return None
    return _Matcher(one, other, mine, theirs).run()


def _kinds(graph: Graph) -> list[tuple[int, ...]]:
    """By vertex, how many others lie at each distance to it and from it."""
    far = graph.distances
    kinds = []
    for vertex in range(graph.n):
        to, back = Counter(far[vertex].tolist()), Counter(far[:, vertex].tolist())
        kinds.append(tuple(to[step] for step in range(graph.n)) + tuple(back[step] for step in range(graph.n)))
    return kinds


class _Matcher:
    def __init__(self, one: Graph, other: Graph, mine: Sequence[object], theirs: Sequence[object]) -> None:
        self._one, self._other = one, other
        self._mine, self._theirs = mine, theirs
        self._order, self._parent = _walk(one)
        self._image: dict[int, int] = {}
        self._taken: set[int] = set()
        self._tries = 0

    def run(self) -> Permutation | None:
        if self._extend(0):
            return tuple(self._image[vertex] for vertex in range(self._one.n))
        return None

    def _extend(self, depth: int) -> bool:
        # One stack entry for each vertex: choices left to try for it.
        stack = [iter(self._choices(depth))]
        while stack:
            if len(stack) <= len(self._image):
                self._taken.discard(self._image.pop(self._order[len(stack) - 1]))
            chosen = next((image for image in stack[-1] if self._fits(self._order[len(stack) - 1], image)), None)
            self._tries += 1
            if self._tries > _MOST_TRIES:
                return False
            if chosen is None:
                stack.pop()
                continue
            self._image[self._order[len(stack) - 1]] = chosen
            self._taken.add(chosen)
            if len(self._image) == self._one.n:
                return True
            stack.append(iter(self._choices(len(stack))))
        return False

    def _choices(self, depth: int) -> Sequence[int]:
        parent = self._parent[self._order[depth]]
        return range(self._other.n) if parent is None else sorted(set(self._other.heads[self._image[parent]]))

    def _fits(self, vertex: int, image: int) -> bool:
        if image in self._taken or self._mine[vertex] != self._theirs[image]:
            return False
        arcs, others = self._one.arcs, self._other.arcs
        return all(
            arcs.get((vertex, known), 0) == others.get((image, moved), 0)
            and arcs.get((known, vertex), 0) == others.get((moved, image), 0)
            for known, moved in self._image.items()
        )


def _walk(graph: Graph) -> tuple[list[int], Mapping[int, int | None]]:
    """Vertices breadth-first from 0, and from which each was reached."""
    parent: dict[int, int | None] = {0: None}
    order = [0]
    for vertex in order:
        for head in graph.heads[vertex]:
            if head not in parent:
                parent[head] = vertex
                order.append(head)
    return order, parent
