"""Sends -> instructions on slots, rank by rank, in one global order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from collc.errors import UnsupportedError
from collc.ir.collective import Chunk, Collective
from collc.ir.program import Buffer, Op, Slot
from collc.ir.schedule import Send


@dataclass
class Connection:
    """What one rank sends another on one channel of the schedule.

    Attributes:
        transfers: in order; (the sender's node, the receiver's nodes: the receive and what follows it).
    """

    src: int
    dst: int
    channel: int
    transfers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


@dataclass
class Node:
    """An instruction before it has a threadblock; `after` holds positions in the rank's node list."""

    op: Op
    src: Slot | None
    dst: Slot | None
    count: int
    after: list[int] = field(default_factory=list)


@dataclass
class _Held:
    """Where a rank holds its value of a piece, and which node put it there."""

    slot: Slot
    writer: int | None = None


class Builder:
    """Makes nodes, one send at a time, in the global order.

    Attributes:
        nodes: [rank] instructions in the global order.
        scratch: [rank] slots of scratch in use.
        connections: by (src, dst, channel).
    """

    def __init__(self, collective: Collective, sends: tuple[Send, ...], max_count: int) -> None:
        self.collective = collective
        self.sends = sorted(sends, key=lambda send: (send.step, send.chunk, send.route.src, send.route.dst))
        self.max_count = max_count
        self.nodes: list[list[Node]] = [[] for _ in range(collective.n_ranks)]
        self.scratch = [0] * collective.n_ranks
        self.connections: dict[tuple[int, int, int], Connection] = {}
        self.held: dict[tuple[int, int], _Held] = {}
        self.copies: list[tuple[int, int, int]] = []  # rank, first chunk, last chunk + 1
        self.reads: dict[tuple[int, int], list[int]] = defaultdict(list)

    @cached_property
    def bounds(self) -> list[int]:
        """Chunk indices at which some send starts or ends, or the buffers' order breaks."""
        chunks = self.collective.chunks
        marks = {0, len(chunks)}
        marks.update(i for i in range(1, len(chunks)) if not _continues(chunks[i - 1], chunks[i]))
        for send in self.sends:
            marks.update((send.chunk, send.chunk + send.count))
        edges = sorted(marks)
        cut = [at for start, end in pairwise(edges) for at in range(start, end, self.max_count)]
        return [*cut, len(chunks)]

    @cached_property
    def passed_up(self) -> set[tuple[int, int]]:
        """(rank, chunk) pairs whose partial sum the rank hands on, so that it is not its final place."""
        return {
            (send.route.src, start)
            for send in self.sends
            if send.reduce
            for start, _ in self._pieces(send.chunk, send.count)
        }

    def _pieces(self, chunk: int, count: int) -> list[tuple[int, int]]:
        """The (first chunk, count) that a range is made of."""
        low, high = bisect_left(self.bounds, chunk), bisect_left(self.bounds, chunk + count)
        return [(self.bounds[i], self.bounds[i + 1] - self.bounds[i]) for i in range(low, high)]

    def build(self) -> None:
        """Make the nodes of every send, then those of the local copies."""
        for send in self.sends:
            for start, count in self._pieces(send.chunk, send.count):
                self._transfer(send, start, count)
        self._deliver()

    def _transfer(self, send: Send, start: int, count: int) -> None:
        src, dst = send.route.src, send.route.dst
        connection = self.connections.setdefault((src, dst, send.channel), Connection(src, dst, send.channel))
        held = self._holding(src, start)
        if held is None:
            raise UnsupportedError(f"step {send.step}: rank {src} sends chunk {start}, which it does not hold")
        sent = self._node(src, Op.SEND, held.slot, None, count, [held.writer])
        self._note_read(src, held.slot, count, sent)
        first = len(self.nodes[dst])
        if send.reduce:
            self._receive_sum(dst, start, count)
        else:
            self._receive_copy(dst, start, count)
        connection.transfers.append((sent, tuple(range(first, len(self.nodes[dst])))))

    def _holding(self, rank: int, start: int) -> _Held | None:
        """What the rank holds of a piece: what it received or made, else its own contribution."""
        if (rank, start) in self.held:
            return self.held[rank, start]
        own = self.collective.chunks[start].precondition.get(rank)
        return None if own is None else _Held(Slot(Buffer.INPUT, own))

    def _receive_copy(self, rank: int, start: int, count: int) -> None:
        wanted = self.collective.chunks[start].postcondition.get(rank)
        slot = (
            self._new_scratch(rank, count)
            if wanted is None or self._is_taken(rank, start)
            else Slot(Buffer.OUTPUT, wanted)
        )
        node = self._node(rank, Op.RECV, None, slot, count, [])
        if slot.buffer is Buffer.SCRATCH and wanted is not None:
            self.copies.append((rank, start, start + count))
        self.held[rank, start] = _Held(slot, node)

    def _is_taken(self, rank: int, start: int) -> bool:
        """Whether, in place, the piece's output slot is where the rank keeps input of another piece."""
        if not self.collective.inplace:
            return False
        chunk = self.collective.chunks[start]
        place = chunk.postcondition[rank] - self.collective.shift[rank]
        return place != chunk.precondition.get(rank) and 0 <= place < self.collective.input_chunks

    def _receive_sum(self, rank: int, start: int, count: int) -> None:
        """Receive into scratch and add; the sum stays in scratch, or goes to the output where it is final."""
        chunk = self.collective.chunks[start]
        held = self.held.get((rank, start))
        own = chunk.precondition.get(rank)
        wanted = None if (rank, start) in self.passed_up else chunk.postcondition.get(rank)
        received = self._new_scratch(rank, count)
        node = self._node(rank, Op.RECV, None, received, count, [])
        if held is not None:
            total = self._node(rank, Op.REDUCE, received, held.slot, count, [held.writer])
            self.held[rank, start] = _Held(held.slot, total)
        elif wanted is not None:
            self._first_sum_at_root(rank, start, count, received, own, Slot(Buffer.OUTPUT, wanted))
        else:
            if own is not None:
                node = self._node(rank, Op.REDUCE, Slot(Buffer.INPUT, own), received, count, [])
            self.held[rank, start] = _Held(received, node)

    def _first_sum_at_root(
        self, rank: int, start: int, count: int, received: Slot, own: int | None, output: Slot
    ) -> None:
        # The own contribution first, then the sum into it: this order is also right in place, where
        # both are one slot and the copy does nothing.
        if own is None:
            node = self._node(rank, Op.COPY, received, output, count, [])
        else:
            if not self._is_same(rank, own, output.offset):
                self._node(rank, Op.COPY, Slot(Buffer.INPUT, own), output, count, [])
            node = self._node(rank, Op.REDUCE, received, output, count, [])
        self.held[rank, start] = _Held(output, node)

    def _is_same(self, rank: int, own: int, output: int) -> bool:
        return self.collective.inplace and own + self.collective.shift[rank] == output

    def _deliver(self) -> None:
        """Local copies, last of all: a rank's own data, and what had to wait for its slot in place."""
        own: list[tuple[int, int, int]] = []
        for start, end in pairwise(self.bounds):
            chunk = self.collective.chunks[start]
            own += [
                (rank, start, end)
                for rank in chunk.postcondition
                if (rank, start) not in self.held and rank in chunk.precondition
            ]
        for rank, start, end in _merged(own, self.collective, self.max_count):
            chunk = self.collective.chunks[start]
            source, target = chunk.precondition[rank], chunk.postcondition[rank]
            if not self._is_same(rank, source, target):
                self._node(rank, Op.COPY, Slot(Buffer.INPUT, source), Slot(Buffer.OUTPUT, target), end - start, [])
        for rank, start, end in self.copies:
            held = self.held[rank, start]
            target = self.collective.chunks[start].postcondition[rank]
            waits = [held.writer, *self._readers(rank, target, end - start)]
            self._node(rank, Op.COPY, held.slot, Slot(Buffer.OUTPUT, target), end - start, waits)

    def _note_read(self, rank: int, slot: Slot, count: int, node: int) -> None:
        if self.collective.inplace and slot.buffer is Buffer.INPUT:
            for offset in range(slot.offset, slot.offset + count):
                self.reads[rank, offset].append(node)

    def _readers(self, rank: int, output: int, count: int) -> list[int]:
        first = output - self.collective.shift[rank]
        return sorted({node for offset in range(first, first + count) for node in self.reads[rank, offset]})

    def _node(self, rank: int, op: Op, src: Slot | None, dst: Slot | None, count: int, after: list[int | None]) -> int:
        self.nodes[rank].append(Node(op, src, dst, count, [node for node in after if node is not None]))
        return len(self.nodes[rank]) - 1

    def _new_scratch(self, rank: int, count: int) -> Slot:
        slot = Slot(Buffer.SCRATCH, self.scratch[rank])
        self.scratch[rank] += count
        return slot


def _continues(before: Chunk, after: Chunk) -> bool:
    """Whether two chunks lie side by side, in this order, in every buffer that holds them."""
    return all(
        a.ranks == b.ranks and isinstance(a.offsets, int) and isinstance(b.offsets, int) and a.offsets + 1 == b.offsets
        for a, b in ((before.precondition, after.precondition), (before.postcondition, after.postcondition))
    )


def _merged(ranges: list[tuple[int, int, int]], collective: Collective, max_count: int) -> list[tuple[int, int, int]]:
    """Joins ranges of one rank that continue each other, up to `max_count` chunks."""
    joined: list[tuple[int, int, int]] = []
    for rank, start, end in sorted(ranges):
        if joined:
            last, first, until = joined[-1]
            fits = last == rank and until == start and end - first <= max_count
            if fits and _continues(collective.chunks[start - 1], collective.chunks[start]):
                joined[-1] = (rank, first, end)
                continue
        joined.append((rank, start, end))
    return joined
