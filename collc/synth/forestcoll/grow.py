"""One tree with many copies, grown from its root over paths GPU -> switches -> GPU.

The next GPU is the one with the cheapest path from the tree (Prim's order); a link costs more the
scarcer it is, and each level of depth costs extra, so that low trees come first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from collc.synth.forestcoll.scale import Instance
from collc.synth.forestcoll.sets import TightSets

_UNSEEN = 1 << 62
# Link costs are whole multiples of 1 / _COST, so that they are the same on every machine.
_COST = 1 << 10
# Labels mended in one search, per vertex, before the next search is the better remedy.
_MENDS = 8


class Growth:
    """A tree under way. Takes its copies off `capacities` as it grows.

    Attributes:
        depth: by vertex, hops from the root; -1 for switches and GPUs not yet reached.
        paths: the links of each hop, in the order in which the tree grew.
    """

    def __init__(self, instance: Instance, capacities: list[int], sets: TightSets, depth_cost: int) -> None:
        self._instance, self._capacities, self._sets = instance, capacities, sets
        self._depth_cost = depth_cost * _COST
        self.depth: list[int] = []
        self.paths: list[tuple[int, ...]] = []
        self.copies = 0
        self._n_left = self._n_trees = self._n_mends = 0
        self._label: list[int] = []
        self._via: list[int] = []
        self._waiting: list[tuple[int, int]] = []

    def start(self, root: int, copies: int, n_trees: int) -> None:
        """Begin at a root; `n_trees` are left to pack and price the links."""
        self.depth = [-1] * len(self._instance.names)
        self.depth[root] = 0
        self.paths = []
        self.copies = copies
        self._n_left = self._instance.n_ranks - 1
        self._n_trees = n_trees * _COST

    @property
    def is_complete(self) -> bool:
        """Whether the tree reaches all GPUs."""
        return not self._n_left

    @property
    def reached(self) -> list[int]:
        """Ranks in the tree."""
        return [rank for rank in range(self._instance.n_ranks) if self.depth[rank] >= 0]

    def take(self, path: tuple[int, ...]) -> None:
        """Let the tree go over these links to the GPU at their end."""
        tail, rank = self._instance.tails[path[0]], self._instance.heads[path[-1]]
        for arc in path:
            self._capacities[arc] -= self.copies
        self._sets.take(path, rank)
        self.depth[rank] = self.depth[tail] + 1
        self.paths.append(path)
        self._n_left -= 1

    def advance(self) -> bool:
        """Grow as far as one search leads; whether that was anywhere."""
        before = self._n_left
        self._label = [_UNSEEN] * len(self.depth)
        self._via = [-1] * len(self.depth)
        self._waiting = []
        self._n_mends = 0
        for rank in self.reached:
            self._settle(rank)
        while self._waiting and self._n_left:
            key, vertex = heapq.heappop(self._waiting)
            if key != self._label[vertex] or self.depth[vertex] >= 0:
                continue
            path = self._path_to(vertex)
            if path is None:
                continue
            if vertex >= self._instance.n_ranks:
                self._relax(vertex)
            elif self._sets.allows(path, vertex):
                self.take(path)
                self._settle(vertex)
        return self._n_left < before

    def width(self) -> int:
        """Copies that some path out of the tree has capacity for."""
        widest = [0] * len(self.depth)
        waiting = [(-_UNSEEN, rank) for rank in self.reached]
        while waiting:
            width, vertex = heapq.heappop(waiting)
            if vertex < self._instance.n_ranks and self.depth[vertex] < 0:
                return -width
            for arc in self._instance.leaving[vertex]:
                head = self._instance.heads[arc]
                room = min(-width, self._capacities[arc])
                if self.depth[head] < 0 and room > widest[head]:
                    widest[head] = room
                    heapq.heappush(waiting, (-room, head))
        return 0

    def candidates(self) -> Iterator[tuple[int, ...]]:
        """Every simple path by which the tree could go on, as far as capacities tell."""
        for rank in self.reached:
            yield from self._walk([rank], [])

    def _walk(self, seen: list[int], path: list[int]) -> Iterator[tuple[int, ...]]:
        for arc in self._instance.leaving[seen[-1]]:
            head = self._instance.heads[arc]
            if not self._is_open(arc) or head in seen or self.depth[head] >= 0:
                continue
            if head < self._instance.n_ranks:
                yield (*path, arc)
            else:
                yield from self._walk([*seen, head], [*path, arc])

    def _is_open(self, arc: int) -> bool:
        return self._capacities[arc] >= self.copies and not self._sets.blocked[arc]

    def _settle(self, rank: int) -> None:
        self._label[rank] = self._depth_cost * self.depth[rank]
        self._relax(rank)

    def _relax(self, vertex: int) -> None:
        base = self._label[vertex]
        for arc in self._instance.leaving[vertex]:
            head = self._instance.heads[arc]
            if self.depth[head] < 0 and self._is_open(arc):
                key = base + self._n_trees // self._capacities[arc]
                if key < self._label[head]:
                    self._set_label(head, key, arc)

    def _set_label(self, vertex: int, key: int, arc: int) -> None:
        self._label[vertex], self._via[vertex] = key, arc
        heapq.heappush(self._waiting, (key, vertex))

    def _path_to(self, vertex: int) -> tuple[int, ...] | None:
        """The labelled path, or None after mending the label of where it no longer holds."""
        path: list[int] = []
        at = vertex
        while self.depth[at] < 0:
            arc = self._via[at]
            if arc < 0 or not self._is_open(arc):
                self._mend(at, vertex)
                return None
            if arc in path:
                # Mended labels rise, and an older, lower one may then point in a circle.
                self._mend(vertex, vertex)
                return None
            path.append(arc)
            at = self._instance.tails[arc]
        return tuple(reversed(path))

    def _mend(self, broken: int, vertex: int) -> None:
        self._n_mends += 1
        if self._n_mends > _MENDS * len(self.depth):
            return
        if not self._relabel(broken):
            if broken != vertex:
                self._relabel(vertex)
        elif broken != vertex:
            # The mended part leads on to the vertex over the links its label names.
            self._label[vertex] += 1
            heapq.heappush(self._waiting, (self._label[vertex], vertex))

    def _relabel(self, vertex: int) -> bool:
        best = (_UNSEEN, -1)
        for arc in self._instance.entering[vertex]:
            tail = self._instance.tails[arc]
            if self._label[tail] < _UNSEEN and self._is_open(arc) and self._holds(tail, vertex):
                best = min(best, (self._label[tail] + self._n_trees // self._capacities[arc], arc))
        self._label[vertex], self._via[vertex] = best
        if best[1] >= 0:
            heapq.heappush(self._waiting, (best[0], vertex))
        return best[1] >= 0

    def _holds(self, vertex: int, without: int) -> bool:
        """Whether the labelled path to a vertex is open and does not lead over another."""
        for _ in range(len(self.depth)):
            if self.depth[vertex] >= 0:
                return True
            arc = self._via[vertex]
            if vertex == without or vertex < self._instance.n_ranks or arc < 0 or not self._is_open(arc):
                return False
            vertex = self._instance.tails[arc]
        return False
