"""Tree weights -> whole numbers of chunks."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Literal

from collc.cost import bandwidth_time
from collc.errors import UnsupportedError
from collc.ir.flow import FlowSchedule, Tree
from collc.units import format_rate


@dataclass(frozen=True)
class RoundWeights:
    """Rounds tree weights so that every tree carries a whole number of chunks.

    A file whose chunk count is a power of two serves power-of-two message sizes; one with 48 chunks
    never does. The rounding keeps each chunk's total and moves single units between its trees while
    that lowers the load of the busiest link.

    Attributes:
        chunks: chunks per rank block. "pow2" takes the smallest power of two that loses at most
            `loss` of the bandwidth, or the best one within `most`; "exact" the least number that
            keeps the weights; a number takes that number.
        loss: share of the bandwidth that "pow2" may lose.
        most: largest number of slots in a rank's buffer.
    """

    chunks: Literal["pow2", "exact"] | int = "pow2"
    loss: Fraction = Fraction(1, 50)
    most: int = 32768

    def run(self, flow: FlowSchedule) -> FlowSchedule:
        """The same trees with weights that are multiples of 1/chunks.

        Raises:
            UnsupportedError: "exact" or the number asked for needs more slots than `most`.
        """
        slots = flow.problem.collective.size_chunks
        if self.chunks == "exact":
            return self._exact(flow, slots)
        if slots <= self.most:
            # Each is looked at many times, and those of a forest or an orbit are made at each look.
            flow = replace(flow, trees=tuple(flow.trees))
        if isinstance(self.chunks, int):
            self._check(self.chunks, slots)
            return self._told(flow, _rounded(flow, self.chunks), self.chunks)
        best, best_chunks = None, 1
        # With fewer chunks than trees some would get nothing, and their links would stand idle.
        chunks = min(
            _power_of_two(max(Counter(tree.chunk for tree in flow.trees).values(), default=1)), self.largest(slots)
        )
        while chunks * slots <= self.most:
            rounded = _rounded(flow, chunks)
            if best is None or rounded.time < best.time:
                best, best_chunks = rounded, chunks
            if flow.time >= (1 - self.loss) * rounded.time:
                break
            chunks *= 2
        if best is None:
            self._check(1, slots)
            raise AssertionError("unreachable: one chunk was refused")
        return self._told(flow, best, best_chunks)

    def largest(self, slots: int) -> int:
        """The largest power of two of chunks that fits, one at least."""
        return 1 << max(1, self.most // slots).bit_length() - 1

    def _exact(self, flow: FlowSchedule, slots: int) -> FlowSchedule:
        self._check(flow.chunks_per_slot, slots)
        return flow

    def _check(self, chunks: int, slots: int) -> None:
        if slots > self.most:
            raise UnsupportedError(f"the buffers have {slots} slots at the least; the runtime addresses {self.most}")
        if chunks * slots > self.most:
            raise UnsupportedError(
                f"{chunks} chunks per rank block need {chunks * slots} slots in a buffer; the runtime addresses "
                f"{self.most}; at most {self.most // slots} chunks fit (fewer trees per rank, or rounded weights)"
            )

    def _told(self, flow: FlowSchedule, rounded: FlowSchedule, chunks: int) -> FlowSchedule:
        if rounded.time <= flow.time:
            return rounded
        kept = flow.time / rounded.time
        note = (
            f"weights rounded to {chunks} chunks per rank block: {format_rate(1 / rounded.time)} of "
            f"{format_rate(1 / flow.time)} GB/s kept ({float(kept):.4f})"
        )
        return replace(rounded, notes=(*rounded.notes, note))


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least `least`."""
    return 1 << (max(1, least) - 1).bit_length()


def _rounded(flow: FlowSchedule, chunks: int) -> FlowSchedule:
    """The flow with weights rounded to multiples of 1/chunks; trees left with nothing are dropped."""
    rows: dict[int, list[int]] = defaultdict(list)
    for index, tree in enumerate(flow.trees):
        rows[tree.chunk].append(index)
    units = [0] * len(flow.trees)
    for row, members in rows.items():
        total = chunks * flow.problem.collective.chunks[row].count
        _apportion([flow.trees[index].weight * total for index in members], members, total, units)
    _Balance(flow, rows, units).run()
    trees = tuple(
        replace(tree, weight=Fraction(units[index], chunks * flow.problem.collective.chunks[tree.chunk].count))
        for index, tree in enumerate(flow.trees)
        if units[index]
    )
    return replace(flow, trees=trees, time=bandwidth_time(flow.problem, trees))


def _apportion(shares: list[Fraction], members: list[int], total: int, units: list[int]) -> None:
    """Largest remainders: whole units that add up to `total`."""
    for index, share in zip(members, shares, strict=True):
        units[index] = int(share)
    by_remainder = sorted(zip(shares, members, strict=True), key=lambda item: (int(item[0]) - item[0], item[1]))
    for _, index in by_remainder[: total - sum(units[index] for index in members)]:
        units[index] += 1


class _Balance:
    """Moves single units between the trees of a row while the busiest link gets less busy.

    Loads are compared as integers: units on a link times (least common multiple of all bandwidths /
    its bandwidth).
    """

    def __init__(self, flow: FlowSchedule, rows: dict[int, list[int]], units: list[int]) -> None:
        links = flow.problem.topology.link
        common = lcm(*(link.bandwidth.numerator for link in links.values())) if links else 1
        per_unit = {ends: int(common / link.bandwidth) for ends, link in links.items()}
        self.rows, self.units = rows, units
        self.row_of = {index: row for row, members in rows.items() for index in members}
        self.use = [_busy(tree, per_unit) for tree in flow.trees]
        self.load: dict[tuple[str, str], int] = defaultdict(int)
        self.users: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, use in enumerate(self.use):
            for ends, amount in use.items():
                self.load[ends] += amount * units[index]
                self.users[ends].append(index)

    def run(self) -> None:
        # Each accepted move lowers (busiest load, links that carry it) and so this ends.
        while self.load:
            peak = max(self.load.values())
            if not any(self._relieve(ends, peak) for ends in sorted(self.load) if self.load[ends] == peak):
                return

    def _relieve(self, ends: tuple[str, str], peak: int) -> bool:
        for giver in self.users[ends]:
            if not self.units[giver]:
                continue
            for taker in self.rows[self.row_of[giver]]:
                if (
                    taker != giver
                    and self.use[taker].get(ends, 0) < self.use[giver][ends]
                    and self._fits(giver, taker, peak)
                ):
                    self._move(giver, taker)
                    return True
        return False

    def _fits(self, giver: int, taker: int, peak: int) -> bool:
        less = self.use[giver]
        return all(self.load[ends] + more - less.get(ends, 0) < peak for ends, more in self.use[taker].items())

    def _move(self, giver: int, taker: int) -> None:
        self.units[giver] -= 1
        self.units[taker] += 1
        for ends, amount in self.use[giver].items():
            self.load[ends] -= amount
        for ends, amount in self.use[taker].items():
            self.load[ends] += amount


def _busy(tree: Tree, per_unit: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """How long each link is busy with one unit of the tree, in a common measure."""
    use: dict[tuple[str, str], int] = defaultdict(int)
    for route in tree.reduce + tree.broadcast:
        for ends in route.hops:
            use[ends] += per_unit[ends]
    return dict(use)
