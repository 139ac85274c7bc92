"""Stage 5, lower: the highest trees trade links with others, so that latency falls and no load changes.

Two hops whose paths meet in a switch, or end in the same GPU, can exchange what they use before that
point: every link carries what it carried. A hop can also move to capacity that no tree uses. A trade
is made if the highest tree gains and its partner stays below the height that was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from collc.synth.forestcoll.packing import Packed
from collc.synth.forestcoll.scale import Instance

# Partners for a trade looked at in all: what more could find takes longer than it is worth.
_EFFORT = 300_000


class _Shape:
    """A tree that can be changed: by GPU, the links of the hop that ends there."""

    def __init__(self, instance: Instance, tree: Packed) -> None:
        self._instance = instance
        self.root, self.copies = tree.root, tree.copies
        self.path: list[tuple[int, ...]] = [()] * instance.n_ranks
        for path in tree.paths:
            self.path[instance.heads[path[-1]]] = path
        self.refresh()

    def refresh(self) -> None:
        """Bring parents, depths and heights up to date with the paths."""
        n = self._instance.n_ranks
        self.parent = [self._instance.tails[path[0]] if path else -1 for path in self.path]
        children: list[list[int]] = [[] for _ in range(n)]
        for rank, parent in enumerate(self.parent):
            if parent >= 0:
                children[parent].append(rank)
        self.order = [self.root]
        for rank in self.order:
            self.order.extend(children[rank])
        self.depth = [0] * n
        for rank in self.order[1:]:
            self.depth[rank] = self.depth[self.parent[rank]] + 1
        # Hops below each rank, and how many ranks lie that deep.
        self.below = [(0, 1)] * n
        for rank in reversed(self.order):
            deepest = max((self.below[child][0] for child in children[rank]), default=-1)
            if deepest >= 0:
                count = sum(self.below[child][1] for child in children[rank] if self.below[child][0] == deepest)
                self.below[rank] = (deepest + 1, count)

    @property
    def key(self) -> tuple[int, int]:
        """Height, and how many ranks lie that deep."""
        return self.below[self.root]

    def has_above(self, rank: int, ancestor: int) -> bool:
        """Whether a rank is in the part of the tree that hangs on another."""
        while self.depth[rank] > self.depth[ancestor]:
            rank = self.parent[rank]
        return rank == ancestor

    def packed(self) -> Packed:
        """The tree as it is now."""
        return Packed(self.root, self.copies, tuple(self.path[rank] for rank in self.order[1:]))


def lower(instance: Instance, trees: Sequence[Packed], most: int) -> tuple[Packed, ...]:
    """The same packing with lower trees, and `most` trees at most.

    Complexity: a trade looks at every hop through the same switch.
    """
    return _Trader(instance, trees, remaining(instance, trees), most).run()


def remaining(instance: Instance, trees: Sequence[Packed]) -> list[int]:
    """Capacity that some trees leave on each link."""
    free = list(instance.capacities)
    for tree in trees:
        for path in tree.paths:
            for arc in path:
                free[arc] -= tree.copies
    return free


class _Trader:
    def __init__(self, instance: Instance, trees: Sequence[Packed], free: list[int], most: int) -> None:
        self.instance = instance
        self.shapes = [_Shape(instance, tree) for tree in trees]
        self.free = free
        self.most = most
        self.effort = _EFFORT
        # By vertex: the hops that lead through it or end there, as (tree, GPU it ends in).
        self.hops: list[dict[tuple[int, int], None]] = [{} for _ in instance.names]
        for index, shape in enumerate(self.shapes):
            for rank, path in enumerate(shape.path):
                self._enlist(index, rank, path)

    def run(self) -> tuple[Packed, ...]:
        """Trade until nothing helps the highest trees; each trade lowers one, so it ends."""
        while True:
            top = max(shape.key[0] for shape in self.shapes)
            highest = [index for index, shape in enumerate(self.shapes) if shape.key[0] == top]
            if top <= 1 or self.effort < 0 or not any(self._improve(index) for index in highest):
                break
        return tuple(shape.packed() for shape in self.shapes)

    def _improve(self, index: int) -> bool:
        shape = self.shapes[index]
        height = shape.key[0]
        for rank in shape.order[1:]:
            # Only hops on the way to a deepest rank can help.
            if shape.depth[rank] + shape.below[rank][0] == height and (
                self._move(index, rank) or self._trade(index, rank, height)
            ):
                return True
        return False

    def _move(self, index: int, rank: int) -> bool:
        """Reach a rank from a less deep one over free capacity."""
        shape = self.shapes[index]
        copies = shape.copies
        for arc in shape.path[rank]:
            self.free[arc] += copies
        best: tuple[int, tuple[int, ...]] | None = None
        for path in self._paths_to(rank, copies):
            parent = self.instance.tails[path[0]]
            if shape.depth[parent] < shape.depth[rank] - 1 and (best is None or shape.depth[parent] < best[0]):
                best = shape.depth[parent], path
        if best is not None:
            self._replace(index, rank, best[1])
        for arc in shape.path[rank]:
            self.free[arc] -= copies
        return best is not None

    def _paths_to(self, rank: int, copies: int) -> Iterator[tuple[int, ...]]:
        """A shortest path of free links from each GPU that has one."""
        seen = {rank}
        waiting: deque[tuple[int, tuple[int, ...]]] = deque([(rank, ())])
        while waiting:
            vertex, path = waiting.popleft()
            for arc in self.instance.entering[vertex]:
                tail = self.instance.tails[arc]
                if tail in seen or self.free[arc] < copies:
                    continue
                seen.add(tail)
                if tail < self.instance.n_ranks:
                    yield (arc, *path)
                else:
                    waiting.append((tail, (arc, *path)))

    def _trade(self, index: int, rank: int, height: int) -> bool:
        shape = self.shapes[index]
        path = shape.path[rank]
        for cut, arc in enumerate(path, start=1):
            vertex = self.instance.heads[arc]
            self.effort -= len(self.hops[vertex])
            if self.effort < 0:
                return False
            for other, end in self.hops[vertex]:
                if other == index or not self._gains(index, rank, other, end, height):
                    continue
                theirs = self.shapes[other].path[end]
                at = next(place for place, arc in enumerate(theirs, start=1) if self.instance.heads[arc] == vertex)
                ours, others = theirs[:at] + path[cut:], path[:cut] + theirs[at:]
                if self._is_simple(ours) and self._is_simple(others):
                    self._exchange(index, rank, ours, other, end, others)
                    return True
        return False

    def _is_simple(self, path: Sequence[int]) -> bool:
        return len({self.instance.heads[arc] for arc in path}) == len(path)

    def _gains(self, index: int, rank: int, other: int, end: int, height: int) -> bool:
        mine, theirs = self.shapes[index], self.shapes[other]
        old, new = mine.parent[rank], theirs.parent[end]
        return (
            mine.depth[new] < mine.depth[rank] - 1
            and theirs.depth[old] + 1 + theirs.below[end][0] < height
            and (mine.copies == theirs.copies or (mine.copies < theirs.copies and len(self.shapes) < self.most))
            and not theirs.has_above(old, end)
        )

    def _exchange(
        self, index: int, rank: int, ours: tuple[int, ...], other: int, end: int, others: tuple[int, ...]
    ) -> None:
        spare = self.shapes[other].copies - self.shapes[index].copies
        if spare:
            self._fork(other, spare)
        self._replace(index, rank, ours)
        self._replace(other, end, others)

    def _fork(self, index: int, copies: int) -> None:
        """Part that many copies from a tree; they stay as they are."""
        shape = self.shapes[index]
        shape.copies -= copies
        twin = shape.packed()
        self.shapes.append(_Shape(self.instance, Packed(twin.root, copies, twin.paths)))
        for rank, path in enumerate(shape.path):
            self._enlist(len(self.shapes) - 1, rank, path)

    def _replace(self, index: int, rank: int, path: tuple[int, ...]) -> None:
        shape = self.shapes[index]
        for arc in shape.path[rank]:
            self.hops[self.instance.heads[arc]].pop((index, rank), None)
        shape.path[rank] = path
        shape.refresh()
        self._enlist(index, rank, path)

    def _enlist(self, index: int, rank: int, path: tuple[int, ...]) -> None:
        for arc in path:
            self.hops[self.instance.heads[arc]][index, rank] = None
