"""Which slots of a rank are one and the same memory, and which each instruction touches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from collc.ir.program import Buffer, Slot
from collc.verify.graph import Graph
from collc.verify.stretches import Overlay, cuts

Touched = tuple[range, range]
_NOTHING: Touched = (range(0), range(0))


@dataclass(frozen=True, slots=True)
class _View:
    """A buffer of a rank: its slot x lies in place `base + index[start + x]`."""

    base: int
    index: Sequence[int]
    start: int

    def places(self, offset: int, count: int) -> range:
        at = self.start + offset
        return range(self.base + self.index[at], self.base + self.index[at + count])

    def first_slot(self, place: int) -> int:
        return max(0, bisect_left(self.index, place - self.base) - self.start)


class Memory:
    """The places in all ranks' memory, numbered through; slots that overlap in place share a number.

    A place is a stretch of slots that always move together; see `stretches`.

    Attributes:
        inputs, outputs: rank -> the places of the buffer.
        touched: instruction number -> the places of its source and of its destination, both empty where it
            has none; a copy onto itself touches nothing.
        moves: places that all instructions touch, each counted as often as it is.
    """

    def __init__(
        self, graph: Graph, overlay: Overlay, found: Sequence[int] | None, *, inplace: bool, both: bool = False
    ) -> None:
        """Lay out the buffers of a kind of call.

        Args:
            overlay, found: as `stretches` gives them, for both kinds of call alike.
            both: in place, but copies onto themselves touch what they would out of place: whatever two
                instructions both touch in a call of either kind, they both touch here.
        """
        self._both = both
        self._views: dict[Buffer, list[_View]] = {buffer: [] for buffer in Buffer}
        self._alias: list[int] = []
        self.inputs: list[range] = []
        self.outputs: list[range] = []
        n_in, n_out = graph.program.collective.input_chunks, graph.program.collective.output_chunks
        free = 0
        for gpu in graph.program.gpus:
            rank = gpu.rank
            index = range(overlay.length[rank] + 1) if found is None else _index(found[2 * rank])
            starts = overlay.input[rank], overlay.output[rank]
            first, second = (free - index[start] for start in starts)
            if inplace:
                first = second = free
            else:
                second += index[starts[0] + n_in] - index[starts[0]]
            self._alias.append(second - first)
            views = _View(first, index, starts[0]), _View(second, index, starts[1])
            self.inputs.append(views[0].places(0, n_in))
            self.outputs.append(views[1].places(0, n_out))
            free = max(free, self.inputs[-1].stop, self.outputs[-1].stop)
            # A range, so that a scratch of a billion chunks costs nothing.
            index = range(gpu.scratch_chunks + 1) if found is None else _index(found[2 * rank + 1])
            for buffer, view in zip(Buffer, (*views, _View(free, index, 0)), strict=True):
                self._views[buffer].append(view)
            free += index[-1]
        self.touched = [self._touches(graph, number) for number in range(len(graph.instructions))]
        self.moves = sum([len(source) + len(target) for source, target in self.touched])

    def _touches(self, graph: Graph, number: int) -> Touched:
        instruction, rank = graph.instructions[number], graph.where[number][0]
        op, src, dst = instruction.op, instruction.src, instruction.dst
        source = target = _NOTHING[0]
        if op.reads_src and src is not None:
            source = self._views[src.buffer][rank].places(src.offset, instruction.count)
        if op.writes_dst and dst is not None:
            target = self._views[dst.buffer][rank].places(dst.offset, instruction.count)
            if source == target and not (op.receives or op.reads_dst or self._both):
                return _NOTHING
        return source, target

    def place(self, buffer: Buffer, rank: int, offset: int) -> int:
        """The place of a slot."""
        view = self._views[buffer][rank]
        return view.base + view.index[view.start + offset]

    def shared(self, rank: int, inputs: range) -> range:
        """The places out of place of the outputs that in place are the same memory as these inputs.

        Some of them are no outputs, where the buffers overlap in part only.
        """
        by = self._alias[rank]
        return range(inputs.start + by, inputs.stop + by)

    def begins(self, buffer: Buffer, rank: int, offset: int) -> bool:
        """Whether a slot is the first of its place."""
        return offset == 0 or self.place(buffer, rank, offset) != self.place(buffer, rank, offset - 1)

    def width(self, buffer: Buffer, rank: int, offset: int) -> int:
        """Slots of the place that begins with this one."""
        view = self._views[buffer][rank]
        after = bisect_left(view.index, view.index[view.start + offset] + 1)
        return after - view.start - offset

    def slot(self, rank: int, like: Slot, place: int) -> Slot:
        """The first slot of a place, in the buffer of another slot."""
        return Slot(like.buffer, self._views[like.buffer][rank].first_slot(place))


def layout(graph: Graph) -> tuple[Overlay, list[int] | None]:
    """What `Memory` needs to know, for both kinds of call alike."""
    overlay = Overlay(graph.program.collective)
    return overlay, cuts(graph, overlay)


@lru_cache(maxsize=64)
def _index(line: int) -> list[int]:
    """Offset -> number of the stretch it lies in, from the bits where stretches begin."""
    return [count - 1 for count in accumulate(map(int, bin(line)[:1:-1]))] if line else [0]
