"""Stage 3, pack: spanning trees that use up no more than each link's capacity.

Trees are grown by a rule of thumb, a batch at a time, and one oracle pass tells whether the rest can
still be packed. If not, the violated sets are learned, the batch is taken back as far as they demand,
and later trees respect them. A tree that cannot go on is tested with its partial self as a source:
either a set is violated and learned, or fewer copies can go on; with one copy Edmonds' theorem says
that some path works, and all are tried. So the packing is exact, and ends.

Where the fabric repeats, a tree is grown once and laid with all its images, as far as that goes: no
theorem promises that such a packing exists, so what is left after a failure is packed tree by tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from collc.kernels import filled, ints, load
from collc.kernels.oracle import Oracle
from collc.symmetry import Group
from collc.synth.forestcoll.packing import Grown, Packing
from collc.synth.forestcoll.scale import Instance
from collc.synth.forestcoll.sets import TightSets

# Sets learned from one root before its tree is tried with half as many copies.
_PATIENCE = 6
# Batches in a row that brought no progress, after which each hop is made sure of.
_STALE = 6
# Costs of depth with which symmetry is tried again from fewer trees, one after the other, before it is given up.
_SYMMETRIC_COSTS = (8, 0, 1, 4, 16, 2, 3, 8, 0, 1, 4, 16)
# Labels mended in one search: many, per vertex, for lower trees where trees or vertices are few; few, since the next
# search costs less, for more than so many vertices.
_MENDS, _FEW_MENDS, _CAREFUL = 8, 16, 256
# Tree edges from which on compiled kernels pay for their loading: of one packing, and of many.
_COMPILE_FROM, _COMPILE_MANY_FROM = 20_000, 1000
# Oracle passes of a packing that needs no compiled kernels though it has that many edges.
_EASY = 12


def pack(
    instance: Instance,
    depth_cost: int,
    effort: int | None = None,
    group: Group | None = None,
    *,
    compiled: bool | None = None,
) -> Packing | None:
    """Trees that together root `instance.trees` at each rank and span all GPUs.

    Args:
        instance: feasible, with switches in balance.
        depth_cost: how much a level of depth costs, in links of scarcity one.
        effort: oracle passes after which to give up and return None; no limit by default.
        group: symmetries of the instance to make use of.
        compiled: whether by compiled kernels; None for what costs less where this is the only packing.
    """
    group = instance.no_group if group is None else group
    n_edges = instance.n_ranks * sum(1 for orbit in group.orbits(instance.n_ranks) if instance.trees[orbit[0]])
    if compiled is None and _COMPILE_MANY_FROM <= n_edges < _COMPILE_FROM and instance.fits_compiled:
        # Most are easy where hosts are alike; it takes a try to know.
        packer = _Packer(instance, depth_cost, _EASY if effort is None else min(effort, _EASY), group, False)
        if packer.run():
            return Packing.grown(packer.done, group)
        compiled = True
    if compiled is None:
        compiled = n_edges >= _COMPILE_FROM and instance.fits_compiled
    packer = _Packer(instance, depth_cost, effort, group, compiled)
    if group.order == 1:
        return Packing.grown(packer.done) if packer.run() else None
    packer.run()
    laid = Packing.grown(packer.done, group)
    if not sum(packer.trees):
        return laid
    rest = replace(instance, capacities=tuple(packer.left()), trees=tuple(packer.trees))
    # Where symmetry fails, much is to be learned.
    others = pack(rest, depth_cost, effort, compiled=compiles_many(instance))
    return None if others is None else laid.and_then(others)


def compiles_many(instance: Instance) -> bool:
    """Whether compiled kernels pay for their loading in many packings of an instance or parts of it."""
    n_edges = instance.n_ranks * sum(1 for trees in instance.trees if trees)
    return n_edges >= _COMPILE_MANY_FROM and instance.fits_compiled


class _Packer:
    """Packs tree by tree, each with its images under a group."""

    def __init__(self, instance: Instance, depth_cost: int, effort: int | None, group: Group, compiled: bool) -> None:
        self.instance, self.effort, self.group = instance, effort, group
        self.passes = 0
        self.trees = list(instance.trees)
        self.done: list[Grown] = []
        self.most: list[Grown] = []
        self.retries = 0
        self.urgent: int | None = None
        orbits = group.orbits(instance.n_ranks)
        # Links that symmetries make alike share a slot, so that all images of a tree are laid at once.
        self.slot, weights, capacities = instance.slots(group)
        self.kernel: Any = load("growth", compiled)
        self.oracle = Oracle(
            instance.n_ranks,
            len(instance.names),
            instance.tails,
            instance.heads,
            slot=self.slot,
            orbits=orbits,
            compiled=compiled,
        )
        self.sets = TightSets(instance, self.kernel, group, compiled)
        self.tree = self._tree(capacities, weights, compiled)
        self.tree.now[self.kernel.DEPTH_COST] = depth_cost
        n_vertices = len(instance.names)
        is_careful = group.order > 1 or n_vertices <= _CAREFUL
        self.tree.now[self.kernel.MOST_MENDS] = _MENDS * n_vertices if is_careful else _FEW_MENDS
        self.orbit_of = {rank: orbit for orbit in orbits for rank in orbit}
        self.roots = [(-self._copies_left(orbit[0]), orbit[0]) for orbit in orbits]
        heapq.heapify(self.roots)

    def _tree(self, capacities: Sequence[int], weights: Sequence[int], compiled: bool) -> Any:
        instance = self.instance
        n_vertices, n_switches = len(instance.names), len(instance.names) - instance.n_ranks
        room = {
            "depth": n_vertices,
            "path_arcs": min(instance.n_ranks * (n_switches + 1), 1 << 22),
            "path_start": instance.n_ranks + 1,
            "now": 8,
            "label": n_vertices,
            "via": n_vertices,
            "path": n_vertices + 1,
        }
        lists = {"out": instance.leaving, "in": instance.entering}
        return self.kernel.Tree(
            tails=ints(instance.tails, compiled),
            heads=ints(instance.heads, compiled),
            slot=ints(self.slot, compiled),
            capacity=ints(capacities, compiled),
            weight=ints(weights, compiled),
            **{f"{side}_start": ints(_starts(arcs), compiled) for side, arcs in lists.items()},
            **{f"{side}_arcs": ints([arc for some in arcs for arc in some], compiled) for side, arcs in lists.items()},
            **{name: filled(length, 0, compiled) for name, length in room.items()},
        )

    def left(self) -> list[int]:
        """Capacity that is left on each link."""
        return [int(self.tree.capacity[slot]) for slot in self.slot]

    def run(self) -> bool:
        """Batches of trees; each that passes doubles the next. Whether all could be packed."""
        batch, misses = 1, 0
        fewest, stale = sum(self.trees), 0
        while sum(self.trees):
            if self.effort is not None and self.passes > self.effort:
                return False
            before, families = len(self.done), self.sets.n_families
            if stale > _STALE and self.group.order == 1:
                self._grow_surely(misses)
            while sum(self.trees) and len(self.done) < before + batch and self._grow(misses):
                pass
            grown = len(self.done) - before
            self._take_back()
            kept = len(self.done) - before
            misses = 0 if kept else misses + 1
            stale = 0 if sum(self.trees) < fewest else stale + 1
            fewest = min(fewest, sum(self.trees))
            if self.group.order > 1 and not kept and self.sets.n_families == families and not self._go_back():
                return not sum(self.trees)
            batch = 2 * batch if kept == grown > 0 else max(1, kept)
        return True

    def _go_back(self) -> bool:
        """Take back the last trees, more each time, and go on with the root that got stuck; False to give up.

        What was the most that symmetry could lay is then laid again.
        """
        # An attempt of limited effort is one of several, and the next one is as good a try.
        if not self._next_copies(0) or self.retries == len(_SYMMETRIC_COSTS) or self.effort is not None:
            if len(self.done) < len(self.most):
                while self.done:
                    self._drop(self.done.pop())
                for grown in self.most:
                    self._drop(replace(grown, copies=-grown.copies))
                self.done = self.most
            return False
        if len(self.done) > len(self.most):
            self.most = list(self.done)
        self.urgent = self._next_root()
        for _ in range(min(len(self.done), 2 << self.retries)):
            self._drop(self.done.pop())
        self.tree.now[self.kernel.DEPTH_COST] = _SYMMETRIC_COSTS[self.retries]
        self.retries += 1
        return True

    def _copies_left(self, root: int) -> int:
        """Copies of a tree with all images that the trees left at its root and its like allow."""
        return self.trees[root] * len(self.orbit_of[root]) // self.group.order

    def _next_root(self) -> int:
        """The rank that got stuck before, or else the one with most copies left, the first of those."""
        if self.urgent is not None and self._copies_left(self.urgent):
            return self.urgent
        while True:
            negative, rank = self.roots[0]
            if -negative == self._copies_left(rank):
                return rank
            heapq.heapreplace(self.roots, (-self._copies_left(rank), rank))

    def _next_copies(self, misses: int) -> int:
        """Copies of the next tree; none where its images would take more roots than are left."""
        most = self._copies_left(self._next_root())
        return max(min(1, most), most >> (misses // _PATIENCE))

    def _take_back(self) -> None:
        """Drop the last trees until what is left can be packed."""
        while True:
            while any(slack < 0 for slack in self.sets.slacks):
                self._drop(self.done.pop())
            violated = self._violated()
            if not violated:
                return
            if not self._learn(violated):
                raise RuntimeError("a set was violated that has slack left")

    def _grow(self, misses: int) -> bool:
        """Add a tree; False where a violated set was learned instead, or symmetry does not go on."""
        root = self._next_root()
        copies = self._next_copies(misses)
        if not copies:
            return False
        self._start(root, copies, ())
        while not self.kernel.advance(self.tree, self.sets.arrays, self.instance.n_ranks):
            copies = int(self.tree.now[self.kernel.COPIES])
            if self.group.order > 1:
                # The oracle knows one partial tree, not all its images.
                self._undo(root, copies)
                return self._halve(root, copies)
            if violated := self._violated(self._reached(), copies):
                self._undo(root, copies)
                if not self._learn(violated):
                    raise RuntimeError("a partial tree broke a set that it was to respect")
                return False
            if copies > 1:
                self._shrink(root, copies)
            else:
                self._extend_by_trial()
        self._lay(root)
        return True

    def _grow_surely(self, misses: int) -> None:
        """Add a tree after which the rest can be packed: of one that breaks a set, the hops before that are kept."""
        root = self._next_root()
        copies = self._next_copies(misses)
        paths: list[list[int]] = []
        while True:
            self._start(root, copies, paths)
            is_whole = self.kernel.advance(self.tree, self.sets.arrays, self.instance.n_ranks)
            violated = self._violated(self._reached(), copies)
            if not violated and is_whole:
                self._lay(root)
                return
            hops = self._undo(root, copies)
            if violated:
                self._learn(violated)
                paths = self._sound(root, copies, len(paths), hops)
            elif copies > 1:
                copies, paths = copies // 2, hops
            else:
                self._start(root, copies, hops)
                self._extend_by_trial()
                paths = self._undo(root, copies)

    def _sound(self, root: int, copies: int, low: int, hops: list[list[int]]) -> list[list[int]]:
        """As many of the first hops as the rest can be packed with, `low` at least."""
        high = len(hops)
        while high - low > 1:
            self._start(root, copies, ())
            # Sets learned meanwhile may refuse a hop.
            middle = (low + high) // 2
            taken = next((at for at, hop in enumerate(hops[:middle]) if not self._takes(hop)), middle)
            violated = self._violated(self._reached(), copies)
            self._undo(root, copies)
            if violated:
                self._learn(violated)
                high = taken
            else:
                low, high = taken, high if taken == middle else taken + 1
        return hops[:low]

    def _halve(self, root: int, copies: int) -> bool:
        while copies > 1:
            copies //= 2
            self._start(root, copies, ())
            if self.kernel.advance(self.tree, self.sets.arrays, self.instance.n_ranks):
                self._lay(root)
                return True
            self._undo(root, copies)
        return False

    def _start(self, root: int, copies: int, paths: Sequence[Sequence[int]]) -> None:
        n = self.instance.n_ranks
        arrays = self.sets.arrays
        self.kernel.begin(self.tree, arrays, self.sets.n_families, n, root, copies, sum(self.trees))
        self._root(root, -copies)
        for path in paths:
            self._take(path)

    def _takes(self, path: Sequence[int]) -> bool:
        for at, arc in enumerate(path):
            self.tree.path[at] = arc
        return bool(self.kernel.take(self.tree, self.sets.arrays, self.instance.n_ranks, len(path)))

    def _take(self, path: Sequence[int]) -> None:
        if not self._takes(path):
            raise RuntimeError("a path that was tested is not allowed")

    def _root(self, root: int, copies: int) -> None:
        """Change the trees left at a root and its images."""
        orbit = self.orbit_of[root]
        for rank in orbit:
            self.trees[rank] += copies * (self.group.order // len(orbit))
        heapq.heappush(self.roots, (-self._copies_left(root), orbit[0]))

    def _lay(self, root: int) -> None:
        now, kernel = self.tree.now, self.kernel
        copies, hops, n_arcs = int(now[kernel.COPIES]), int(now[kernel.HOPS]), int(now[kernel.ARCS])
        arcs, starts = self.tree.path_arcs[:n_arcs], self.tree.path_start[: hops + 1]
        if not isinstance(arcs, list):
            arcs, starts = arcs.copy(), starts.copy()
        kernel.settle(self.sets.arrays, self.sets.n_families, self.instance.n_ranks, root, copies, arcs)
        self.done.append(Grown(root, copies, arcs, starts))

    def _drop(self, grown: Grown) -> None:
        """Take back a whole tree."""
        families, n = self.sets.n_families, self.instance.n_ranks
        self.kernel.settle(self.sets.arrays, families, n, grown.root, -grown.copies, grown.arcs)
        self.kernel.spend(self.tree, -grown.copies, grown.arcs)
        self._root(grown.root, grown.copies)

    def _undo(self, root: int, copies: int) -> list[list[int]]:
        """Take back the tree under way; its hops."""
        hops = int(self.tree.now[self.kernel.HOPS])
        starts = [int(start) for start in self.tree.path_start[: hops + 1]]
        arcs = self.tree.path_arcs[: starts[-1]]
        self.kernel.spend(self.tree, -copies, arcs)
        self._root(root, copies)
        return [[int(arc) for arc in arcs[a:b]] for a, b in pairwise(starts)]

    def _shrink(self, root: int, copies: int) -> None:
        """Go on with fewer copies: as many as some link out of the tree can take, or half."""
        width = int(self.kernel.width(self.tree, self.instance.n_ranks))
        paths = self._undo(root, copies)
        self._start(root, width if 0 < width < copies else copies // 2, paths)

    def _reached(self) -> list[int]:
        return [rank for rank in range(self.instance.n_ranks) if self.tree.depth[rank] >= 0]

    def _extend_by_trial(self) -> None:
        capacity = self.tree.capacity
        for path in self._candidates():
            for arc in path:
                capacity[arc] -= 1
            violated = self._violated([*self._reached(), self.instance.heads[path[-1]]], 1)
            for arc in path:
                capacity[arc] += 1
            if not violated:
                self._take(path)
                return
        raise RuntimeError("no path extends a tree that can be packed; are the switches in balance?")

    def _candidates(self) -> Iterator[tuple[int, ...]]:
        """Every simple path by which the tree could go on, as far as capacities tell."""
        for rank in self._reached():
            yield from self._walk([rank], [])

    def _walk(self, seen: list[int], path: list[int]) -> Iterator[tuple[int, ...]]:
        for arc in self.instance.leaving[seen[-1]]:
            head = self.instance.heads[arc]
            if (
                self.tree.capacity[arc] < 1
                or self.sets.arrays.blocked[arc]
                or head in seen
                or self.tree.depth[head] >= 0
            ):
                continue
            if head < self.instance.n_ranks:
                yield (*path, arc)
            else:
                yield from self._walk([*seen, head], [*path, arc])

    def _violated(self, reached: Sequence[int] = (), copies: int = 0) -> list[bytes]:
        self.passes += 1
        return self.oracle.violated(self.tree.capacity, self.trees, reached, copies)

    def _learn(self, violated: Sequence[bytes]) -> int:
        return self.sets.learn(violated, self.tree.capacity, self.slot, self.trees)


def _starts(lists: Sequence[Sequence[int]]) -> list[int]:
    starts = [0]
    for one in lists:
        starts.append(starts[-1] + len(one))
    return starts
