"""Whether a program can hang, and how deep its queues must be.

Threadblocks that only wait for items, for free places and for each other form a Kahn network: whether
it comes to a stop does not depend on the order the hardware picks. So one graph decides: an
instruction comes after the one before it, after what it waits for, after the send that feeds it, and,
with queues of depth d, the k-th send after the (k-d)-th receive. The program hangs exactly when that
graph has a cycle.

Source: Kahn, The semantics of a simple language for parallel programming, 1974; Parks, Bounded
scheduling of process networks, 1995 (a queue's bound as an edge back to the sender).
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


def order(operations: Operations, depth: int | None = None) -> list[int]:
    """A legal order of the operations with queues of that depth (unlimited by default).

    Operations that can never run are left out, so the program hangs if any is missing.
    """
    predecessors = operations.predecessors
    waiting = [len(before) for before in predecessors]
    followers: list[list[int]] = [[] for _ in predecessors]
    for number, before in enumerate(predecessors):
        for other in before:
            followers[other].append(number)
    if depth is not None:
        for connection in operations.connections:
            for send, receive in zip(connection.sends[depth:], connection.receives, strict=False):
                followers[receive].append(send)
                waiting[send] += 1
    ready = [number for number, count in enumerate(waiting) if count == 0]
    for number in ready:
        for other in followers[number]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    return ready


def least_depth(operations: Operations) -> int | None:
    """The least depth of all queues with which the program ends; None if it hangs at any depth."""

    def ends(depth: int | None) -> bool:
        return len(order(operations, depth)) == len(operations.owner)

    if not ends(None):
        return None
    high = 1
    while not ends(high):
        high *= 2
    low = high // 2  # hangs at low (or low is 0), ends at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ends(middle) else (middle, high)
    return high


def story(operations: Operations, depth: int | None = None) -> tuple[int, str]:
    """Why a program that hangs does so.

    Returns:
        The number of an instruction in the circle, and the circle in words.
    """
    graph = operations.graph
    done = set(order(operations, depth))
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

    def __init__(self, operations: Operations, done: set[int], depth: int | None) -> None:
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
        wanted = connection.receives[index - (self._depth or 0)]
        return wanted, (
            f"a free place to rank {connection.dst} on channel {connection.channel}, which holds {self._depth} "
            f"until {graph.name(owner[wanted])} receives"
        )
