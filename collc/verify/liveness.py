"""Whether a program can hang, and how deep its queues must be.

Threadblocks that only wait for items, for free places and for each other form a Kahn network: whether
it comes to a stop, and where, does not depend on the order the hardware picks. So it is run once, with
queues of depth one; whenever nothing can move, the depth grows by the least that frees a sender. The
depth at the end is the least with which the program ends, and if it stops for any other reason than a
full queue, it hangs at every depth.

Source: Kahn, The semantics of a simple language for parallel programming, 1974; Parks, Bounded
scheduling of process networks, 1995 (growing the queues only when everything waits).
"""

from __future__ import annotations

from dataclasses import dataclass

from collc.verify.graph import Connection, Graph

_SHOWN = 8  # lines of a story; longer circles are cut


@dataclass(frozen=True)
class Operations:
    """The queue operations of a program: one per instruction, or several where it moves many chunks.

    Attributes:
        graph: whose they are.
        owner: operation number -> instruction number.
        predecessors: operation number -> what it comes after, apart from full queues.
        connections: as in the graph, in operation numbers.
    """

    graph: Graph
    owner: list[int]
    predecessors: list[list[int]]
    connections: list[Connection]

    def followers(self) -> list[list[int]]:
        """Operation number -> those that come after it."""
        found: list[list[int]] = [[] for _ in self.owner]
        for number, before in enumerate(self.predecessors):
            for other in before:
                found[other].append(number)
        return found


def whole(graph: Graph) -> Operations:
    """One operation per instruction."""
    return Operations(graph, list(range(len(graph.instructions))), graph.predecessors(), list(graph.connections))


def split(graph: Graph) -> Operations:
    """One operation per chunk, which is how large messages move."""
    counts = [max(1, instruction.count) for instruction in graph.instructions]
    first: list[int] = []
    owner: list[int] = []
    for number, count in enumerate(counts):
        first.append(len(owner))
        owner += [number] * count
    predecessors: list[list[int]] = []
    for number, before in enumerate(graph.predecessors()):
        feeder = graph.feeder[number]
        ends = [first[other] + counts[other] - 1 for other in before if other != feeder]
        for index in range(counts[number]):
            mine = ends if index == 0 else [len(predecessors) - 1]
            predecessors.append([*mine, first[feeder] + index] if feeder >= 0 else mine)
    connections = [
        Connection(
            connection.src,
            connection.dst,
            connection.channel,
            tuple(first[send] + index for send in connection.sends for index in range(counts[send])),
            tuple(first[receive] + index for receive in connection.receives for index in range(counts[receive])),
        )
        for connection in graph.connections
    ]
    return Operations(graph, owner, predecessors, connections)


def run(operations: Operations, limit: int | None = None) -> tuple[list[int], int]:
    """Run a program with queues no deeper than they must be.

    Args:
        limit: the queues do not grow beyond this depth.

    Returns:
        The operations in an order they can run in, without those that can never run, and the depth of
        the queues.

    Complexity: linear in operations and waits.
    """
    followers = operations.followers()
    waiting = [len(before) for before in operations.predecessors]
    queues = _Queues(operations)
    ready = [number for number, count in enumerate(waiting) if count == 0]
    done: list[int] = []
    while ready:
        number = ready.pop()
        if not queues.must_wait(number):
            done.append(number)
            ready += queues.released_by(number)
            for other in followers[number]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    ready.append(other)
        if not ready:
            ready += queues.grow(limit)
    return done, queues.depth


class _Queues:
    """The queues of a run, and the sends that found theirs full.

    Attributes:
        depth: places each has.
    """

    def __init__(self, operations: Operations) -> None:
        self.depth = 1
        total = len(operations.owner)
        self._sends_on = [-1] * total
        self._takes_from = [-1] * total
        self._index = [0] * total
        for queue, connection in enumerate(operations.connections):
            for index, send in enumerate(connection.sends):
                self._sends_on[send] = queue
                self._index[send] = index
            for receive in connection.receives:
                self._takes_from[receive] = queue
        self._taken = [0] * len(operations.connections)
        self._parked: dict[int, int] = {}  # queue -> the send that waits; only one threadblock sends there

    def must_wait(self, number: int) -> bool:
        """Whether an operation sends into a full queue; it is then parked."""
        queue = self._sends_on[number]
        if queue < 0 or self._index[number] - self._taken[queue] < self.depth:
            return False
        self._parked[queue] = number
        return True

    def released_by(self, number: int) -> list[int]:
        """The parked send that finds a place once an operation has run."""
        queue = self._takes_from[number]
        if queue < 0:
            return []
        self._taken[queue] += 1
        return [self._parked.pop(queue)] if queue in self._parked else []

    def grow(self, limit: int | None) -> list[int]:
        """Deepen the queues by the least that frees a send; those that are free then."""
        needed = {queue: self._index[number] - self._taken[queue] + 1 for queue, number in self._parked.items()}
        if not needed or (limit is not None and min(needed.values()) > limit):
            return []
        self.depth = min(needed.values())
        return [self._parked.pop(queue) for queue, depth in needed.items() if depth == self.depth]


def story(operations: Operations, limit: int | None = None) -> tuple[int, str]:
    """Why a program that hangs, with queues up to a depth, does so.

    Returns:
        The number of an instruction in the circle, and the circle in words.
    """
    graph = operations.graph
    order, depth = run(operations, limit)
    done = set(order)
    fronts: dict[int, int] = {}
    for number in range(len(operations.owner)):
        if number not in done:
            fronts.setdefault(graph.serial[operations.owner[number]], number)
    blockers = _Blockers(operations, done, depth)
    seen: dict[int, int] = {}
    lines: list[str] = []
    front = next(iter(fronts.values()))
    while front not in seen:
        seen[front] = len(lines)
        wanted, why = blockers.of(front)
        lines.append(f"{graph.name(operations.owner[front])} waits for {why}")
        front = fronts[graph.serial[operations.owner[wanted]]]
    circle = lines[seen[front] :]
    told = "; ".join(circle[:_SHOWN])
    if len(circle) > _SHOWN:
        told += f"; and so on, {len(circle)} in the circle"
    return operations.owner[front], told


class _Blockers:
    """What the first unfinished operation of a threadblock waits for."""

    def __init__(self, operations: Operations, done: set[int], depth: int) -> None:
        self._operations = operations
        self._done = done
        self._depth = depth
        self._sent = {
            send: (connection, index)
            for connection in operations.connections
            for index, send in enumerate(connection.sends)
        }

    def of(self, front: int) -> tuple[int, str]:
        """An operation that has not run, and what it would bring."""
        graph = self._operations.graph
        owner = self._operations.owner
        for wanted in self._operations.predecessors[front]:
            if wanted in self._done:
                continue
            fed = graph.feeder[owner[front]] == owner[wanted]
            return wanted, ("what " if fed else "") + graph.name(owner[wanted]) + (" is to send" if fed else "")
        # Everything else is there, so it is the queue that is full.
        connection, index = self._sent[front]
        wanted = connection.receives[index - self._depth]
        return wanted, (
            f"a free place to rank {connection.dst} on channel {connection.channel}, which holds {self._depth} "
            f"until {graph.name(owner[wanted])} receives"
        )
