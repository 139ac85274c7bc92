"""How deep each queue must be, what is left of the runtime's, and up to which message size that lasts.

What one connection needs is asked with all others as deep as the runtime has them. A send that must be
done before a receive earlier in its queue, by whatever way through the program, has to find a place
beside everything in between; the farthest such pair says how many places there must be.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from collc.verify.graph import Connection, Graph
from collc.verify.liveness import WHOLE, Run, rendezvous, story

_MAX_TRANSFERS = 1 << 22  # that a run may make; a second or two for each million
_MAX_WORK = 1 << 30  # bytes that the search for a connection's own need may move
_MOST_CHUNKS = 72  # per instruction; no runtime takes more, so a file of few steps is no reason for a long run


@dataclass(frozen=True)
class Transfers:
    """How a runtime cuts the chunks of an instruction into transfers.

    Attributes:
        n_chunks: chunks of a message.
        buffer_bytes: what a transfer holds at most [bytes].
        most_chunks: chunks a transfer holds at most.
        max_bytes: the largest message served [bytes]; None: no limit.
    """

    n_chunks: int
    buffer_bytes: int
    most_chunks: int
    max_bytes: int | None

    @property
    def width(self) -> int:
        """Chunks that a transfer holds in the largest message served."""
        if self.max_bytes is None:
            return 1
        chunk_bytes = max(1, self.max_bytes // self.n_chunks)
        return max(1, min(self.most_chunks, self.buffer_bytes // chunk_bytes))

    def largest_bytes(self, width: int) -> int | None:
        """The largest message [bytes] in which transfers hold at least so many chunks; None: any."""
        return None if width <= 1 else self.n_chunks * (self.buffer_bytes // width)


@dataclass(frozen=True)
class Depth:
    """What a connection needs.

    Attributes:
        connection: which.
        needed: the least depth with which the program ends, the other queues being as deep as they are; 0
            where nothing is sent.
        slack: places beyond that; None where nobody says how many there are.
    """

    connection: Connection
    needed: int
    slack: int | None


@dataclass(frozen=True)
class Depths:
    """What all connections need where transfers hold so many chunks.

    Attributes:
        width: chunks of a transfer.
        needed: the least depth of all queues alike.
        slack: places beyond that; None where nobody says how many there are.
        connections: those that need most first.
    """

    width: int
    needed: int
    slack: int | None
    connections: tuple[Depth, ...]


@dataclass(frozen=True)
class Liveness:
    """How a program comes to its end.

    Attributes:
        graph: whose.
        available: places of a queue, where known.
        order: a legal order of the instructions, as far as they run.
        ends: whether the program ends, if queues are deep enough.
        needed: the least depth of all queues alike where an instruction's chunks go in one transfer.
        large: the same where transfers hold `narrowest` chunks.
        narrowest: chunks of the narrowest transfers that were looked at; 1 but for vast programs.
        least_width: chunks a transfer must hold for the program to end with the depth available.
        trusts_nothing: whether it ends without any queue.
    """

    graph: Graph
    available: int | None
    order: list[int]
    ends: bool
    needed: int
    large: int
    narrowest: int
    least_width: int
    trusts_nothing: bool

    def at(self, width: int) -> Depths:
        """What the connections need where a transfer holds so many chunks (or as many as were looked at)."""
        width = max(width, self.narrowest)
        depth, deepest = self.available, 1
        needs = [min(1, len(one.sends)) for one in self.graph.connections]
        if not self.trusts_nothing:
            deepest = self.large if width == self.narrowest else Run(self.graph, width).depth
            if deepest > 1:
                needs = _needs(self.graph, width, deepest, max(deepest, depth or 1))
        slack = [None if depth is None else depth - need for need in needs]
        found = sorted(map(Depth, self.graph.connections, needs, slack), key=lambda one: -one.needed)
        return Depths(width, deepest, None if depth is None else depth - deepest, tuple(found))


def examine(graph: Graph, available: int | None) -> Liveness:
    """How a program ends with queues of a depth, or with any where it is not known.

    Complexity: linear in transfers.
    """
    order = rendezvous(graph)
    if order is not None:
        return Liveness(graph, available, order, True, 1, 1, 1, 1, True)
    run = Run(graph)
    most = max([item.count for item in graph.instructions], default=1)
    if not run.ends or (available is not None and run.depth > available):
        return Liveness(graph, available, run.order, run.ends, run.depth, run.depth, WHOLE, WHOLE, False)
    narrowest = _narrowest(graph)
    large = Run(graph, narrowest).depth if most > 1 else run.depth
    low, high = narrowest, narrowest
    if available is not None and large > available:
        # Hangs at low, ends at high.
        high = most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if Run(graph, middle, limit=available).ends else (middle, high)
    return Liveness(graph, available, run.order, True, run.depth, large, narrowest, high, False)


def _narrowest(graph: Graph) -> int:
    """The narrowest width with which a run is not too long."""
    limit = min(_MAX_TRANSFERS, _MOST_CHUNKS * len(graph.instructions))
    counts = [item.count for item in graph.instructions if item.op.sends]
    width = 1
    while width < max(counts, default=1) and sum([-(-count // width) for count in counts]) > limit:
        width *= 2
    return width


def hang(graph: Graph, width: int, depth: int) -> tuple[int, str]:
    """Where and why a program hangs with transfers of a width and queues of a depth."""
    return story(Run(graph, width, limit=depth))


def _needs(graph: Graph, width: int, deepest: int, depth: int) -> list[int]:
    """Per connection the least depth, the others having `depth`; `deepest` at most where finding it takes long."""
    totals = [sum([-(-graph.instructions[send].count // width) for send in one.sends]) for one in graph.connections]
    if sum(totals) ** 2 // 4 > _MAX_WORK:
        return [min(total, deepest) for total in totals]
    run = Run(graph, width, depth=depth, traced=True)
    first = [0]  # connection -> the bit of its first transfer
    for total in totals:
        first.append(first[-1] + total)
    before = [0] * len(graph.spans)  # threadblock -> the transfers that are done before what it does next
    ended: dict[int, int] = {}  # instruction others wait for -> the transfers done before it ended
    awaited = {other for waits in graph.waits for other in waits}
    put: list[deque[int]] = [deque() for _ in totals]  # what was known when each transfer in a queue was put in
    got: list[deque[int]] = [deque() for _ in totals]  # and when each place that is free became so
    sent, taken, needs = [0] * len(totals), [0] * len(totals), [min(1, total) for total in totals]
    for number, count in run.moves:
        block = graph.serial[number]
        into, out_of = run.into[number], run.out_of[number]
        known = before[block]
        for other in graph.waits[number]:
            known |= ended[other]
        for _ in range(count):
            if into >= 0:
                known |= put[into].popleft()
            if out_of >= 0:
                if sent[out_of] >= run.depth:
                    known |= got[out_of].popleft()
                known |= 1 << first[out_of] + sent[out_of]
                put[out_of].append(known)
                sent[out_of] += 1
            if into >= 0:
                mine = known >> first[into] & (1 << totals[into]) - 1
                needs[into] = max(needs[into], mine.bit_length() - taken[into])
                got[into].append(known)
                taken[into] += 1
        before[block] = known
        if number in awaited:
            ended[number] = known
    return needs
