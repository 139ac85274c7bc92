"""Instructions -> threadblocks and channels, within the runtime's limits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest

from collc.errors import UnsupportedError
from collc.ir.program import Instruction, Threadblock
from collc.passes.lower_schedule.nodes import Connection, Node
from collc.runtimes import Runtime


@dataclass
class _Block:
    """A threadblock in the making: the nodes it runs, in the rank's order."""

    channel: int
    send_peer: int | None
    recv_peer: int | None
    nodes: list[int]


def arrange(nodes: list[list[Node]], connections: list[Connection], runtime: Runtime) -> list[tuple[Threadblock, ...]]:
    """Threadblocks of each rank.

    A connection gets a sending and a receiving threadblock of its own, as many channels as its steps
    need, and the same channels both ways between two ranks. Where that makes too many threadblocks,
    sending and receiving ones are joined in pairs.

    Raises:
        UnsupportedError: channels, threadblocks or steps run out.
    """
    # A wait names the threadblock in a signed byte, so ids beyond its range are as good as none.
    limit = min(runtime.max_threadblocks, runtime.max_waited_threadblock + 1)
    most = 0
    for joined in (False, True):
        # A joined threadblock holds the steps of both its halves.
        budget = runtime.max_steps // 2 if joined else runtime.max_steps
        parts = [part for connection in connections for part in _split(connection, nodes, budget, runtime)]
        channels = _channels(parts, runtime)
        blocks = [_blocks(rank, parts, channels, nodes, joined) for rank in range(len(nodes))]
        for rank, found in enumerate(blocks):
            _add_local(found, nodes[rank], runtime.max_steps)
        most = max(map(len, blocks))
        if most <= limit:
            return [_finish(found, nodes[rank]) for rank, found in enumerate(blocks)]
    raise UnsupportedError(f"{runtime.name}: a rank needs {most} threadblocks; the limit is {limit}")


def _steps(node: Node) -> int:
    """Steps in the file: a second wait and those after it take a step each."""
    return max(1, len(node.after))


def _split(connection: Connection, nodes: list[list[Node]], budget: int, runtime: Runtime) -> list[Connection]:
    """Deals a connection's transfers out to as many as its two threadblocks need."""
    sender, receiver = nodes[connection.src], nodes[connection.dst]
    for n_parts in range(1, len(connection.transfers) + 1):
        dealt = [connection.transfers[part::n_parts] for part in range(n_parts)]
        if all(
            sum(_steps(sender[sent]) for sent, _ in transfers) <= budget
            and sum(_steps(receiver[node]) for _, received in transfers for node in received) <= budget
            for transfers in dealt
        ):
            return [Connection(connection.src, connection.dst, connection.channel, transfers) for transfers in dealt]
    raise UnsupportedError(
        f"{runtime.name}: one transfer from rank {connection.src} to rank {connection.dst} needs more than "
        f"{budget} steps in a threadblock"
    )


def _channels(parts: list[Connection], runtime: Runtime) -> list[int]:
    """A channel for each part: the lowest that is free between its two ranks, and not full at either."""
    between: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, part in enumerate(parts):
        pair = (min(part.src, part.dst), max(part.src, part.dst))
        between[pair][part.src, part.dst].append(index)
    full: dict[tuple[int, int, bool], int] = defaultdict(int)
    chosen = [0] * len(parts)
    for pair in sorted(between):
        channel = -1
        for together in zip_longest(*(between[pair][ends] for ends in sorted(between[pair]))):
            members = [index for index in together if index is not None]
            ends = [(rank, sends) for i in members for rank, sends in ((parts[i].src, True), (parts[i].dst, False))]
            channel += 1
            while any(full[rank, channel, sends] >= runtime.max_threadblocks_per_channel for rank, sends in ends):
                channel += 1
            for rank, sends in ends:
                full[rank, channel, sends] += 1
            for index in members:
                chosen[index] = channel
    needed = 1 + max(chosen, default=0)
    if needed > runtime.max_channels:
        raise UnsupportedError(
            f"{runtime.name}: the program needs {needed} channels; the limit is {runtime.max_channels}"
        )
    return chosen


def _blocks(
    rank: int, parts: list[Connection], channels: list[int], nodes: list[list[Node]], joined: bool
) -> list[_Block]:
    """The threadblocks of a rank, channel by channel."""
    sending: dict[int, list[_Block]] = defaultdict(list)
    receiving: dict[int, list[_Block]] = defaultdict(list)
    for part, channel in zip(parts, channels, strict=True):
        if part.src == rank:
            sending[channel].append(_Block(channel, part.dst, None, [sent for sent, _ in part.transfers]))
        if part.dst == rank:
            received = [node for _, several in part.transfers for node in several]
            receiving[channel].append(_Block(channel, None, part.src, received))
    blocks = []
    for channel in sorted({*sending, *receiving}):
        ours = sorted(receiving[channel], key=lambda block: (-len(block.nodes), block.recv_peer))
        theirs = sorted(sending[channel], key=lambda block: (len(block.nodes), block.send_peer))
        if not joined:
            blocks += sorted(ours, key=lambda block: block.recv_peer or 0)
            blocks += sorted(theirs, key=lambda block: block.send_peer or 0)
            continue
        for one, other in zip_longest(ours, theirs):
            blocks.append(_join(one, other) if one and other else one or other)
    return blocks


def _join(receiving: _Block, sending: _Block) -> _Block:
    return _Block(receiving.channel, sending.send_peer, receiving.recv_peer, sorted(receiving.nodes + sending.nodes))


def _add_local(blocks: list[_Block], nodes: list[Node], max_steps: int) -> None:
    """Gives instructions that belong to no connection to the threadblock with the fewest steps."""
    placed = {node for block in blocks for node in block.nodes}
    load = [sum(_steps(nodes[node]) for node in block.nodes) for block in blocks]
    for index, node in enumerate(nodes):
        if index in placed:
            continue
        least = min(range(len(blocks)), key=lambda block: (load[block], block), default=None)
        if least is None or load[least] + _steps(node) > max_steps:
            blocks.append(_Block(0, None, None, []))
            load.append(0)
            least = len(blocks) - 1
        blocks[least].nodes.append(index)
        load[least] += _steps(node)


def _finish(blocks: list[_Block], nodes: list[Node]) -> tuple[Threadblock, ...]:
    place = {node: (block, at) for block, found in enumerate(blocks) for at, node in enumerate(found.nodes)}
    return tuple(
        Threadblock(block.send_peer, block.recv_peer, block.channel, _instructions(number, block, nodes, place))
        for number, block in enumerate(blocks)
    )


def _instructions(
    number: int, block: _Block, nodes: list[Node], place: dict[int, tuple[int, int]]
) -> tuple[Instruction, ...]:
    """With only the waits that neither the threadblock's order nor an earlier wait of it implies."""
    seen: dict[int, int] = {number: len(block.nodes)}
    instructions = []
    for index in block.nodes:
        node = nodes[index]
        waits: dict[int, int] = {}
        for other, at in sorted(place[before] for before in node.after):
            if at > seen.get(other, -1):
                waits[other] = seen[other] = at
        instructions.append(Instruction(node.op, node.src, node.dst, node.count, tuple(sorted(waits.items()))))
    return tuple(instructions)
