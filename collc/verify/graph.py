"""A program as one list of instructions and what each comes after; its well-formedness.

Everything the other checks need is decided here once: which threadblock an instruction runs in, which
instructions it waits for, and which send feeds which receive. A program that has such a form is
well-formed; any other is described by findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock
from collc.verify.rules import Collector

Where = tuple[int, int, int]  # rank, threadblock, step


@dataclass(frozen=True)
class Connection:
    """A queue from one rank to another: the k-th send feeds the k-th receive.

    Attributes:
        src, dst, channel: which.
        sends, receives: instruction numbers, in order; as many of each.
    """

    src: int
    dst: int
    channel: int
    sends: tuple[int, ...]
    receives: tuple[int, ...]

    @property
    def path(self) -> str:
        """Which it is, in words."""
        return f"from rank {self.src} to rank {self.dst} on channel {self.channel}"


@dataclass(frozen=True)
class Graph:
    """The instructions of all ranks, numbered through.

    Attributes:
        program: whose they are.
        instructions: in order of rank, threadblock, step.
        where: instruction number -> rank, threadblock, step.
        serial: instruction number -> number of its threadblock, counted over all ranks.
        spans: number of a threadblock -> its instructions.
        waits: instruction number -> the instructions its `after` names.
        feeder: instruction number -> the send whose item it receives; -1 where it receives nothing.
        receiver: instruction number -> the receive that takes what it sends; -1 where it sends nothing.
        connections: sorted by (src, dst, channel).
    """

    program: Program
    instructions: Sequence[Instruction]
    where: Sequence[Where]
    serial: Sequence[int]
    spans: Sequence[range]
    waits: Sequence[tuple[int, ...]]
    feeder: Sequence[int]
    receiver: Sequence[int]
    connections: Sequence[Connection]

    def predecessors(self) -> list[list[int]]:
        """Instruction number -> what must be done before it starts, whatever the queues hold."""
        found = []
        for number, waits in enumerate(self.waits):
            before = list(waits)
            if self.where[number][2]:
                before.append(number - 1)
            if self.feeder[number] >= 0:
                before.append(self.feeder[number])
            found.append(before)
        return found

    def name(self, number: int) -> str:
        """An instruction in words, such as `rank 0 threadblock 1 step 3`."""
        return in_words(self.where[number])


def in_words(where: Where) -> str:
    """A place in a program in words."""
    return f"rank {where[0]} threadblock {where[1]} step {where[2]}"


def slot_name(slot: Slot, index: int = 0) -> str:
    """A slot in words, such as `output[3]`."""
    return f"{slot.buffer.value}[{slot.offset + index}]"


def build(program: Program, found: Collector) -> Graph | None:
    """The graph of a program, or None with findings where it is not well-formed."""
    for gpu in program.gpus:
        _check_gpu(program, gpu, found)
    if found.has_errors:
        return None
    spans: list[range] = []
    serials: dict[tuple[int, int], int] = {}  # rank, threadblock -> its number
    for gpu in program.gpus:
        for block, threadblock in enumerate(gpu.threadblocks):
            first = spans[-1].stop if spans else 0
            serials[gpu.rank, block] = len(spans)
            spans.append(range(first, first + len(threadblock.instructions)))
    instructions = [item for gpu in program.gpus for block in gpu.threadblocks for item in block.instructions]
    where = [(*key, step) for key, serial in serials.items() for step in range(len(spans[serial]))]
    connections = _connect(program, serials, spans, where, instructions, found)
    if found.has_errors:
        return None
    feeder, receiver = [-1] * len(instructions), [-1] * len(instructions)
    for connection in connections:
        for send, receive in zip(connection.sends, connection.receives, strict=True):
            feeder[receive], receiver[send] = send, receive
    starts = [[spans[serials[gpu.rank, block]].start for block in range(len(gpu.threadblocks))] for gpu in program.gpus]
    waits = [
        tuple([starts[rank][block] + step for block, step in item.after]) if item.after else ()
        for (rank, _, _), item in zip(where, instructions, strict=True)
    ]
    serial = [number for number, span in enumerate(spans) for _ in span]
    return Graph(program, instructions, where, serial, spans, waits, feeder, receiver, connections)


def _check_gpu(program: Program, gpu: Gpu, found: Collector) -> None:
    room = {
        Buffer.INPUT: program.collective.input_chunks,
        Buffer.OUTPUT: program.collective.output_chunks,
        Buffer.SCRATCH: gpu.scratch_chunks,
    }
    lengths = [len(threadblock.instructions) for threadblock in gpu.threadblocks]
    for block, threadblock in enumerate(gpu.threadblocks):
        _check_peers(program, gpu.rank, block, threadblock, found)
        has_peer = threadblock.send_peer is not None, threadblock.recv_peer is not None
        for step, instruction in enumerate(threadblock.instructions):
            if not _is_well_formed(instruction, has_peer, lengths, room):
                _tell(instruction, (gpu.rank, block, step), threadblock, lengths, room, found)


def _is_well_formed(
    instruction: Instruction, has_peer: tuple[bool, bool], lengths: Sequence[int], room: dict[Buffer, int]
) -> bool:
    """Whether `_tell` has nothing to say; most instructions are asked only this."""
    op, count = instruction.op, instruction.count
    for block, step in instruction.after:
        if not (0 <= block < len(lengths) and 0 <= step < lengths[block]):
            return False
    if (op.sends and not has_peer[0]) or (op.receives and not has_peer[1]):
        return False
    for needed, slot in ((op.reads_src, instruction.src), (op.writes_dst, instruction.dst)):
        if needed and (slot is None or slot.offset < 0 or slot.offset + count > room[slot.buffer]):
            return False
    return count >= 1 or op is Op.NOP


def _tell(
    instruction: Instruction,
    where: Where,
    threadblock: Threadblock,
    lengths: Sequence[int],
    room: dict[Buffer, int],
    found: Collector,
) -> None:
    _check_waits(instruction, where, lengths, found)
    if instruction.op is not Op.NOP:
        _check_operands(instruction, where, room, found)
    for needed, peer, verb in (
        (instruction.op.sends, threadblock.send_peer, "send to"),
        (instruction.op.receives, threadblock.recv_peer, "receive from"),
    ):
        if needed and peer is None:
            found.add(
                "peer",
                f"{in_words(where)} ({instruction.op.value}): its threadblock has no peer to {verb}",
                where,
            )


def _check_peers(program: Program, rank: int, block: int, threadblock: Threadblock, found: Collector) -> None:
    n_ranks = program.collective.n_ranks
    for peer in (threadblock.send_peer, threadblock.recv_peer):
        if peer is not None and not (0 <= peer < n_ranks and peer != rank):
            found.add(
                "peer",
                f"rank {rank} threadblock {block}: peer {peer}; expected another rank from 0 to {n_ranks - 1}",
                (rank, block, 0),
            )
    if threadblock.channel < 0:
        found.add("channel", f"rank {rank} threadblock {block}: channel {threadblock.channel}", (rank, block, 0))


def _check_waits(instruction: Instruction, where: Where, lengths: Sequence[int], found: Collector) -> None:
    for block, step in instruction.after:
        if not (0 <= block < len(lengths) and 0 <= step < lengths[block]):
            found.add(
                "wait-target",
                f"{in_words(where)} waits for threadblock {block} step {step}, which does not exist",
                where,
            )


def _check_operands(instruction: Instruction, where: Where, room: dict[Buffer, int], found: Collector) -> None:
    op = instruction.op
    if instruction.count < 1:
        found.add("count", f"{in_words(where)}: count {instruction.count}; expected 1 or more", where)
        return
    for needed, slot, side in (
        (op.reads_src, instruction.src, "source"),
        (op.writes_dst, instruction.dst, "destination"),
    ):
        if not needed:
            continue
        if slot is None:
            found.add("operand", f"{in_words(where)} ({op.value}) has no {side}", where)
        elif slot.offset < 0 or slot.offset + instruction.count > room[slot.buffer]:
            last = slot.offset + instruction.count - 1
            found.add(
                "out-of-range",
                f"{in_words(where)} ({op.value}): {side} {slot.buffer.value}[{slot.offset}..{last}]; "
                f"the buffer has {room[slot.buffer]} chunks",
                where,
            )


def _connect(
    program: Program,
    serials: dict[tuple[int, int], int],
    spans: Sequence[range],
    where: Sequence[Where],
    instructions: Sequence[Instruction],
    found: Collector,
) -> list[Connection]:
    """Pair sends with receives; every connection has one threadblock at each end."""
    senders: dict[tuple[int, int, int], tuple[int, int]] = {}
    receivers: dict[tuple[int, int, int], tuple[int, int]] = {}
    for gpu in program.gpus:
        for block, threadblock in enumerate(gpu.threadblocks):
            channel, rank = threadblock.channel, gpu.rank
            if threadblock.send_peer is not None:
                _claim(senders, (rank, threadblock.send_peer, channel), (rank, block), "send to", found)
            if threadblock.recv_peer is not None:
                _claim(receivers, (threadblock.recv_peer, rank, channel), (rank, block), "receive from", found)
    connections = []
    for key in sorted(senders.keys() | receivers.keys()):
        src, dst = senders.get(key), receivers.get(key)
        sends = tuple([at for at in spans[serials[src]] if instructions[at].op.sends] if src else ())
        receives = tuple([at for at in spans[serials[dst]] if instructions[at].op.receives] if dst else ())
        connection = Connection(*key, sends, receives)
        _check_pairs(connection, where, instructions, found)
        connections.append(connection)
    return connections


def _claim(
    owners: dict[tuple[int, int, int], tuple[int, int]],
    key: tuple[int, int, int],
    owner: tuple[int, int],
    verb: str,
    found: Collector,
) -> None:
    if key not in owners:
        owners[key] = owner
        return
    peer = key[1] if verb == "send to" else key[0]
    found.add(
        "duplicate-connection",
        f"rank {owner[0]}: threadblocks {owners[key][1]} and {owner[1]} both {verb} rank {peer} on channel {key[2]}; "
        "expected one",
        (*owner, 0),
    )


def _check_pairs(
    connection: Connection, where: Sequence[Where], instructions: Sequence[Instruction], found: Collector
) -> None:
    path, sends, receives = connection.path, connection.sends, connection.receives
    for index, (send, receive) in enumerate(zip(sends, receives, strict=False)):
        if instructions[send].count != instructions[receive].count:
            found.add(
                "count-mismatch",
                f"{in_words(where[receive])} receives {instructions[receive].count} chunks, but "
                f"{in_words(where[send])} sends {instructions[send].count} (number {index} {path})",
                where[receive],
            )
            return
    told = f"{len(sends)} sends and {len(receives)} receives {path}"
    if len(sends) > len(receives):
        first = where[sends[len(receives)]]
        found.add("unmatched-send", f"{in_words(first)} sends what nobody receives: {told}", first)
    if len(receives) > len(sends):
        first = where[receives[len(sends)]]
        found.add("unmatched-receive", f"{in_words(first)} receives what nobody sends: {told}", first)
