"""Vertex sets that were once violated, and what they allow a tree that is being grown.

A set S with slack = capacity entering S + trees rooted in S - trees left can take a tree of m copies
that enters it at most (1 if the root is outside) + slack // m times. While a tree has not reached any
GPU in S, one of those entries is kept for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collc.synth.forestcoll.scale import Instance


class TightSets:
    """Learned sets, and for the tree under way the links they close.

    Attributes:
        blocked: by link, how many sets forbid it now.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._members: list[list[bool]] = []
        self._known: set[tuple[bool, ...]] = set()
        self._entering: list[list[int]] = []
        self._leaving: list[list[int]] = []
        self._entered_by: list[list[int]] = [[] for _ in instance.tails]
        self._holding: list[list[int]] = [[] for _ in range(instance.n_ranks)]
        self.blocked = [0] * len(instance.tails)
        self._free: list[int] = []
        self._unreached: list[bool] = []
        self._state: list[tuple[bool, bool]] = []

    def learn(self, found: Iterable[list[bool]]) -> int:
        """Remember sets; how many of them were new."""
        before = len(self._members)
        for inside in found:
            if (key := tuple(inside)) in self._known:
                continue
            self._known.add(key)
            index = len(self._members)
            self._members.append(inside)
            ends = list(zip(self._instance.tails, self._instance.heads, strict=True))
            self._entering.append([arc for arc, (a, b) in enumerate(ends) if inside[b] and not inside[a]])
            self._leaving.append([arc for arc, (a, b) in enumerate(ends) if inside[a] and not inside[b]])
            for arc in self._entering[index]:
                self._entered_by[arc].append(index)
            for rank in range(self._instance.n_ranks):
                if inside[rank]:
                    self._holding[rank].append(index)
            self._free.append(0)
            self._unreached.append(True)
            self._state.append((False, False))
        return len(self._members) - before

    def slack(self, index: int, capacities: Sequence[int], trees: Sequence[int]) -> int:
        """Ways into a set beyond the trees left."""
        rooted = sum(count for count, within in zip(trees, self._members[index], strict=False) if not within)
        return sum(capacities[arc] for arc in self._entering[index]) - rooted

    def start(self, root: int, copies: int, slacks: Sequence[int]) -> None:
        """Begin a tree of that many copies at a root; `slacks` is each set's before the tree."""
        for index, members in enumerate(self._members):
            self._unreached[index] = not members[root]
            self._free[index] = self._unreached[index] + slacks[index] // copies
            self._update(index)

    def allows(self, path: Sequence[int], rank: int) -> bool:
        """Whether the tree may go on over these links to that rank."""
        entries: dict[int, int] = {}
        for arc in path:
            for index in self._entered_by[arc]:
                entries[index] = entries.get(index, 0) + 1
        return all(
            count <= self._free[index] - (self._unreached[index] and not self._members[index][rank])
            for index, count in entries.items()
        )

    def take(self, path: Sequence[int], rank: int) -> None:
        """Note that the tree went over these links to that rank."""
        for arc in path:
            for index in self._entered_by[arc]:
                self._free[index] -= 1
                self._update(index)
        for index in self._holding[rank]:
            if self._unreached[index]:
                self._unreached[index] = False
                self._update(index)

    @property
    def n_sets(self) -> int:
        """Sets learned so far."""
        return len(self._members)

    def _update(self, index: int) -> None:
        # No way in when the entries are used up. With only the kept entry left, it must end inside,
        # so there is no way out.
        state = (self._free[index] <= 0, self._unreached[index] and self._free[index] <= 1)
        for side, now, old in zip((self._entering, self._leaving), state, self._state[index], strict=True):
            if now != old:
                change = 1 if now else -1
                for arc in side[index]:
                    self.blocked[arc] += change
        self._state[index] = state
