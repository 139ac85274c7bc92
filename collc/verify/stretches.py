"""Slots that always move together: a stretch of them counts as one place of memory.

Files move many chunks by one instruction. What happens to the slots of such a range differs only where
another instruction, or the table of the collective, cuts it. So every end of a range is a cut, a cut in
a range is one in each range that moves with it (source, destination, and the peer's), and this is
followed until nothing changes. Between two cuts the slots share one fate, and looking at the first is
enough. It is exact, whatever the program does; only the number of places depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from collc.ir.collective import Chunk, Collective, Places
from collc.ir.program import Buffer, Op
from collc.verify.graph import Graph

_LONGEST = 1 << 16  # slots of a line up to which cuts are looked for
_MOST_SWEEPS = 16  # a program whose cuts keep running is taken slot by slot
_WORTH_IT = 2  # chunks per instruction below which there is little to gain

Line = tuple[int, int]  # number of a line, offset within it
Group = tuple[int, list[Line]]  # ranges of one length that move together


class Overlay:
    """Where the slots of a rank's buffers lie when the output lies over the input as in-place calls have it.

    Lines are stretches of memory: two for each rank, one for both buffers and one for scratch.

    Attributes:
        input, output: per rank, the offset of the first slot in the line.
        length: per rank, of the line.
        lines: buffer -> per rank, where its first slot lies.
    """

    def __init__(self, collective: Collective) -> None:
        n_in, n_out = collective.input_chunks, collective.output_chunks
        self.input: list[int] = []
        self.output: list[int] = []
        self.length: list[int] = []
        for shift in collective.shift:
            # Where the two do not overlap, they stand side by side.
            apart = shift >= n_out or shift + n_in <= 0
            left = 0 if apart else min(0, shift)
            self.output.append(n_in if apart else -left)
            self.input.append(0 if apart else shift - left)
            self.length.append(n_in + n_out if apart else max(n_out, shift + n_in) - left)
        self.lines: dict[Buffer, list[Line]] = {
            Buffer.INPUT: [(2 * rank, start) for rank, start in enumerate(self.input)],
            Buffer.OUTPUT: [(2 * rank, start) for rank, start in enumerate(self.output)],
            Buffer.SCRATCH: [(2 * rank + 1, 0) for rank in range(len(self.length))],
        }


def cuts(graph: Graph, overlay: Overlay) -> list[int] | None:
    """Number of a line -> a bit for each offset where a stretch begins; None: take each slot for itself.

    Complexity: linear in instructions per sweep, with numbers as long as a line; two or three sweeps as
    a rule, a fixed number at most.
    """
    moved = sum([item.count for item in graph.instructions])
    longest = max(overlay.length, default=0)
    if moved < _WORTH_IT * len(graph.instructions) or longest > _LONGEST:
        return None
    groups = list(_groups(graph, overlay))
    if any(length + at > _LONGEST for length, lines in groups for _, at in lines):
        return None
    found = [1] * (2 * len(overlay.length))
    collective = graph.program.collective
    for rank, length in enumerate(overlay.length):
        ends = (overlay.input[rank], collective.input_chunks), (overlay.output[rank], collective.output_chunks)
        found[2 * rank] |= 1 << length
        for start, count in ends:
            found[2 * rank] |= 1 << start | 1 << start + count
    concerned = groups
    for _ in range(_MOST_SWEEPS):
        changed = _sweep(concerned, found)
        if not changed:
            return found
        concerned = [group for group in groups if any(number in changed for number, _ in group[1])]
    return None


def _sweep(groups: list[Group], found: list[int]) -> set[int]:
    """Make the cuts of ranges that move together the same; the lines that got new ones."""
    changed = set()
    for length, lines in groups:
        cut = 1 | 1 << length
        for number, at in lines:
            cut |= found[number] >> at
        cut &= (2 << length) - 1
        for number, at in lines:
            old = found[number]
            new = old | cut << at
            if new != old:
                found[number] = new
                changed.add(number)
    return changed


def _groups(graph: Graph, overlay: Overlay) -> Iterator[Group]:
    yield from _of_table(graph.program.collective, overlay)
    instructions, receiver, where = graph.instructions, graph.receiver, graph.where
    for first, feed in enumerate(graph.feeder):
        if feed >= 0 or instructions[first].op is Op.NOP:
            continue
        lines = []
        number = first
        while number >= 0:
            item, rank = instructions[number], where[number][0]
            op, src, dst = item.op, item.src, item.dst
            if src and op.reads_src:
                line, start = overlay.lines[src.buffer][rank]
                lines.append((line, start + src.offset))
            if dst and op.writes_dst:
                line, start = overlay.lines[dst.buffer][rank]
                lines.append((line, start + dst.offset))
            number = receiver[number]
        yield instructions[first].count, lines


def _of_table(collective: Collective, overlay: Overlay) -> Iterator[Group]:
    """The chunks of the table, those that lie side by side on every rank as one range."""
    first, length = None, 0
    for chunk in collective.chunks:
        if first is not None and _follows(first, length, chunk):
            length += chunk.count
            continue
        if first is not None:
            yield length, _lines(first, overlay)
        first, length = chunk, chunk.count
    if first is not None:
        yield length, _lines(first, overlay)


def _follows(first: Chunk, length: int, chunk: Chunk) -> bool:
    return _is_moved(first.precondition, length, chunk.precondition) and _is_moved(
        first.postcondition, length, chunk.postcondition
    )


def _is_moved(places: Places, by: int, other: Places) -> bool:
    if isinstance(places.offsets, int) and isinstance(other.offsets, int):
        return places.offsets + by == other.offsets and places.ranks == other.ranks
    return dict(other) == {rank: offset + by for rank, offset in places.items()}


def _lines(chunk: Chunk, overlay: Overlay) -> list[Line]:
    inputs = [(2 * rank, overlay.input[rank] + offset) for rank, offset in chunk.precondition.items()]
    return inputs + [(2 * rank, overlay.output[rank] + offset) for rank, offset in chunk.postcondition.items()]
