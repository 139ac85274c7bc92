"""Stage 3, pack: spanning trees that use up no more than each link's capacity.

Trees are grown by a rule of thumb, a batch at a time, and one oracle pass tells whether the rest can
still be packed. If not, the violated sets are learned, the batch is taken back as far as they demand,
and later trees respect them. A tree that cannot go on is tested with its partial self as a source:
either a set is violated and learned, or fewer copies can go on; with one copy Edmonds' theorem says
that some path works, and all are tried. So the packing is exact, and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collc.synth.forestcoll.grow import Growth
from collc.synth.forestcoll.scale import Instance
from collc.synth.forestcoll.sets import TightSets

# Sets learned from one root before its tree is tried with half as many copies.
_PATIENCE = 6


@dataclass(frozen=True)
class Packed:
    """A tree of the packing.

    Attributes:
        copies: trees of this shape.
        paths: the links of each hop between GPUs, each after the one that feeds it.
    """

    root: int
    copies: int
    paths: tuple[tuple[int, ...], ...]

    def height(self, instance: Instance) -> int:
        """Hops between GPUs on the longest way down."""
        depth = {self.root: 0}
        for path in self.paths:
            depth[instance.heads[path[-1]]] = depth[instance.tails[path[0]]] + 1
        return max(depth.values())


def pack(instance: Instance, depth_cost: int, effort: int | None = None) -> tuple[Packed, ...] | None:
    """Trees that together root `instance.trees` at each rank and span all GPUs.

    Args:
        instance: feasible, with switches in balance.
        depth_cost: how much a level of depth costs, in links of scarcity one.
        effort: oracle passes after which to give up and return None; no limit by default.
    """
    return _Packer(instance, depth_cost, effort).run()


class _Packer:
    def __init__(self, instance: Instance, depth_cost: int, effort: int | None) -> None:
        self.instance = instance
        self.effort = effort
        self.passes = 0
        self.capacities = list(instance.capacities)
        self.trees = list(instance.trees)
        self.oracle = instance.oracle()
        self.sets = TightSets(instance)
        self.growth = Growth(instance, self.capacities, self.sets, depth_cost)
        self.done: list[Packed] = []

    def run(self) -> tuple[Packed, ...] | None:
        """Batches of trees; each that passes doubles the next."""
        batch, misses = 1, 0
        while sum(self.trees):
            if self.effort is not None and self.passes > self.effort:
                return None
            before = len(self.done)
            while sum(self.trees) and len(self.done) < before + batch and self._grow(misses):
                pass
            grown = len(self.done) - before
            self._take_back()
            kept = len(self.done) - before
            misses = 0 if kept else misses + 1
            batch = 2 * batch if kept == grown > 0 else max(1, kept)
        return tuple(self.done)

    def _take_back(self) -> None:
        """Drop the last trees until what is left can be packed."""
        while True:
            while any(self._slack(index) < 0 for index in range(self.sets.n_sets)):
                self._undo(self.done.pop())
            violated = self._violated()
            if not violated:
                return
            if not self.sets.learn(violated):
                raise RuntimeError("a set was violated that has slack left")

    def _grow(self, misses: int) -> bool:
        """Add a tree; False where a violated set was learned instead."""
        root = max(range(self.instance.n_ranks), key=lambda rank: (self.trees[rank], -rank))
        copies = max(1, self.trees[root] >> (misses // _PATIENCE))
        self._start(root, copies, ())
        while not self.growth.is_complete:
            if self.growth.advance():
                continue
            if violated := self._violated(self.growth.reached, self.growth.copies):
                paths = tuple(self.growth.paths)
                self._undo(Packed(root, self.growth.copies, paths))
                if not self.sets.learn(violated):
                    raise RuntimeError("a partial tree broke a set that it was to respect")
                return False
            if self.growth.copies > 1:
                self._shrink(root)
            else:
                self._extend_by_trial()
        self.done.append(Packed(root, self.growth.copies, tuple(self.growth.paths)))
        return True

    def _start(self, root: int, copies: int, paths: tuple[tuple[int, ...], ...]) -> None:
        slacks = [self._slack(index) for index in range(self.sets.n_sets)]
        self.sets.start(root, copies, slacks)
        self.growth.start(root, copies, sum(self.trees))
        self.trees[root] -= copies
        for path in paths:
            self.growth.take(path)

    def _shrink(self, root: int) -> None:
        """Go on with fewer copies: as many as some link out of the tree can take, or half."""
        paths, copies = tuple(self.growth.paths), self.growth.copies
        width = self.growth.width()
        self._undo(Packed(root, copies, paths))
        self._start(root, width if 0 < width < copies else copies // 2, paths)

    def _extend_by_trial(self) -> None:
        for path in self.growth.candidates():
            for arc in path:
                self.capacities[arc] -= 1
            violated = self._violated([*self.growth.reached, self.instance.heads[path[-1]]], 1)
            for arc in path:
                self.capacities[arc] += 1
            if not violated:
                self.growth.take(path)
                return
        raise RuntimeError("no path extends a tree that can be packed; are the switches in balance?")

    def _violated(self, reached: Sequence[int] = (), copies: int = 0) -> list[list[bool]]:
        self.passes += 1
        return self.oracle.violated(self.capacities, self.trees, reached, copies)

    def _slack(self, index: int) -> int:
        return self.sets.slack(index, self.capacities, self.trees)

    def _undo(self, tree: Packed) -> None:
        self.trees[tree.root] += tree.copies
        for path in tree.paths:
            for arc in path:
                self.capacities[arc] += tree.copies
