"""Whether a program can hang, and how deep its queues must be.

Threadblocks that only wait for items, for free places and for each other form a Kahn network: whether
it comes to a stop, and where, does not depend on the order the hardware picks. So it is run once, with
queues of depth one; whenever nothing can move, they become deeper by one. The depth at the end is the
least with which the program ends, and if it stops for any other reason than a full queue, it hangs at
every depth. That a large message goes through the program slice by slice changes nothing: one pass
after the other is an order the hardware may pick, and leaves the queues empty in between.

An instruction moves its chunks in one transfer or in several, each with a queue place of its own, by
how many chunks a transfer holds (its width). Narrower is never safer: a program that hangs with
transfers of some width hangs with all narrower ones, as their circle of waits contains the other.

Most programs end even without queues, each send handing over to its receive at once; that takes one
sort to see, and then they end with any queues and any width.

Source: Kahn, The semantics of a simple language for parallel programming, 1974; Parks, Bounded
scheduling of process networks, 1995 (growing the queues only when everything waits).
"""

from __future__ import annotations

from collections.abc import Sequence

from collc.verify.graph import Graph

_SHOWN = 8  # lines of a story; longer circles are cut
WHOLE = 1 << 62  # a width that holds any instruction's chunks


def rendezvous(graph: Graph) -> list[int] | None:
    """The instructions in an order in which each send is followed by its receive; None if there is none.

    With such an order a program ends whatever the depth of its queues and the width of a transfer.

    Complexity: linear in instructions and waits.
    """
    feeder, receiver = graph.feeder, graph.receiver
    head = list(range(len(feeder)))  # instruction -> the first send of its chain of send and receive
    for number, feed in enumerate(feeder):
        if feed >= 0 > feeder[feed]:
            head[number] = feed
            while receiver[number] >= 0:
                number = receiver[number]
                head[number] = feed
    waiting = [0] * len(head)
    followers: list[list[int]] = [[] for _ in head]
    for span in graph.spans:
        before = -1
        for number in span:
            mine = head[number]
            for other in graph.waits[number]:
                followers[head[other]].append(mine)
                waiting[mine] += 1
            if before >= 0:
                followers[before].append(mine)
                waiting[mine] += 1
            before = mine
    # What no chain begins is a circle of receives; its members stay their own heads and never come up.
    ready = [number for number, count in enumerate(waiting) if not count and feeder[number] < 0]
    order: list[int] = []
    while ready:
        number = ready.pop()
        for other in followers[number]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
        while number >= 0:
            order.append(number)
            number = receiver[number]
    return order if len(order) == len(head) else None


class Run:
    """A run of a program, with queues no deeper than they must be.

    Attributes:
        graph: whose run.
        width: chunks that one transfer holds.
        order: the instructions in the order in which they ended, without those that never do.
        depth: places each queue has in the end.
        moves: (instruction, transfers) in the order in which they were made.
        sent, taken: number of a connection -> transfers put into it and taken out.
        at: number of a threadblock -> the instruction it has come to; `part`: the transfers of it made.

    Complexity: linear in transfers and waits, without memory for each transfer unless asked for `moves`.
    """

    def __init__(
        self, graph: Graph, width: int = WHOLE, *, depth: int = 1, limit: int | None = None, traced: bool = False
    ) -> None:
        """Run it.

        Args:
            depth: places the queues have at first.
            limit: the queues do not grow beyond this depth.
            traced: whether to keep `moves`.
        """
        self.graph = graph
        self.width = width
        self.depth = depth
        self.order: list[int] = []
        self.moves: list[tuple[int, int]] = []
        self.at = [span.start for span in graph.spans]
        self.part = [0] * len(self.at)
        self.out_of = [-1] * len(graph.instructions)  # instruction -> the connection it sends into
        self.into = [-1] * len(graph.instructions)  # and the one it receives from
        for index, connection in enumerate(graph.connections):
            for number in connection.sends:
                self.out_of[number] = index
            for number in connection.receives:
                self.into[number] = index
        self.sent = [0] * len(graph.connections)
        self.taken = [0] * len(graph.connections)
        self._traced = traced
        self._starved: dict[int, int] = {}  # connection -> the threadblock that finds it empty
        self._parked: dict[int, int] = {}  # connection -> the threadblock that finds it full
        self._waiting: dict[int, list[int]] = {}  # instruction -> the threadblocks that wait for its end
        self._run(limit)

    @property
    def ends(self) -> bool:
        """Whether the program comes to its end."""
        return len(self.order) == len(self.graph.instructions)

    def transfers(self, number: int) -> int:
        """How many transfers an instruction makes, or one step where it makes none."""
        if self.into[number] < 0 and self.out_of[number] < 0:
            return 1
        return max(1, -(-self.graph.instructions[number].count // self.width))

    def unfinished(self, number: int) -> int | None:
        """An instruction that another waits for and that has not ended; None if there is none."""
        for other in self.graph.waits[number]:
            if self.at[self.graph.serial[other]] <= other:
                return other
        return None

    def _run(self, limit: int | None) -> None:
        ready = list(range(len(self.at) - 1, -1, -1))
        while ready:
            block = ready.pop()
            end = self.graph.spans[block].stop
            while self.at[block] < end and self._step(block, ready):
                pass
            if not ready and self._parked and (limit is None or self.depth < limit):
                self.depth += 1
                ready += self._parked.values()
                self._parked.clear()

    def _step(self, block: int, ready: list[int]) -> bool:
        """Make as many transfers of a threadblock's instruction as can be; whether there was any."""
        number = self.at[block]
        part = self.part[block]
        if not part and self.graph.waits[number] and (other := self.unfinished(number)) is not None:
            self._waiting.setdefault(other, []).append(block)
            return False
        into, out_of = self.into[number], self.out_of[number]
        total = self.transfers(number)
        count = total - part
        if into >= 0:
            count = min(count, self.sent[into] - self.taken[into])
            if not count:
                self._starved[into] = block
                return False
        if out_of >= 0:
            count = min(count, self.depth + self.taken[out_of] - self.sent[out_of])
            if not count:
                self._parked[out_of] = block
                return False
            self.sent[out_of] += count
            if out_of in self._starved:
                ready.append(self._starved.pop(out_of))
        if into >= 0:
            self.taken[into] += count
            if into in self._parked:
                ready.append(self._parked.pop(into))
        if self._traced:
            self.moves.append((number, count))
        self._advance(block, part + count, total, ready)
        return True

    def _advance(self, block: int, part: int, total: int, ready: list[int]) -> None:
        if part < total:
            self.part[block] = part
            return
        number = self.at[block]
        self.order.append(number)
        self.part[block] = 0
        self.at[block] = number + 1
        if number in self._waiting:
            ready += self._waiting.pop(number)


def story(run: Run) -> tuple[int, str]:
    """Why a run that came to a stop did so.

    Returns:
        The number of an instruction in the circle, and the circle in words.
    """
    graph = run.graph
    seen: dict[int, int] = {}
    lines: list[str] = []
    block = next(block for block, span in enumerate(graph.spans) if run.at[block] < span.stop)
    while block not in seen:
        seen[block] = len(lines)
        number = run.at[block]
        wanted, why = _blocker(run, number, block)
        lines.append(f"{graph.name(number)} waits for {why}")
        block = graph.serial[wanted]
    circle = lines[seen[block] :]
    told = "; ".join(circle[:_SHOWN])
    if len(circle) > _SHOWN:
        told += f"; and so on, {len(circle)} in the circle"
    return run.at[block], told


def _blocker(run: Run, number: int, block: int) -> tuple[int, str]:
    """An instruction that has not ended and that keeps another from going on, and what it would bring."""
    graph = run.graph
    if not run.part[block] and (other := run.unfinished(number)) is not None:
        return other, graph.name(other)
    into, out_of = run.into[number], run.out_of[number]
    if into >= 0 and run.sent[into] == run.taken[into]:
        feeder = graph.feeder[number]
        return feeder, f"what {graph.name(feeder)} is to send"
    connection = graph.connections[out_of]
    wanted = _holding(run, connection.receives, run.taken[out_of])
    return wanted, (
        f"a free place to rank {connection.dst} on channel {connection.channel}, which holds {run.depth} "
        f"until {graph.name(wanted)} receives"
    )


def _holding(run: Run, receives: Sequence[int], taken: int) -> int:
    """The receive that is to take the next transfer out of a connection."""
    for receive in receives:
        taken -= run.transfers(receive)
        if taken < 0:
            return receive
    raise ValueError(f"{len(receives)} receives take fewer transfers than were sent")
