"""Receive, then reduce, copy or send on: one instruction instead of several."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock
from collc.runtimes import Runtime

# An instruction's old name: (threadblock, index) on its rank.
_Name = tuple[int, int]


@dataclass(frozen=True)
class Fuse:
    """Fuses what one threadblock does to a slot it has just received, where the runtime executes it.

    A receive takes the reductions and copies that follow it on its threadblock. A threadblock that
    sends what another has just received joins it, unless the program could then hang with the
    transfers a connection may have outstanding, every chunk being a transfer of its own (as with
    large messages).

    Attributes:
        runtime: whether fused steps may be written, and how deep its connections are.
    """

    runtime: Runtime

    def run(self, program: Program) -> Program:
        """The same program with fewer instructions."""
        if not self.runtime.fuses_receives:
            return program
        reduced = replace(program, gpus=tuple(_fuse_local(gpu) for gpu in program.gpus))
        forwarding = replace(reduced, gpus=tuple(_fuse_sends(gpu, self.runtime.max_steps) for gpu in reduced.gpus))
        depth = self.runtime.protocols[program.protocol].fifo_depth
        return reduced if _hangs(forwarding.gpus, depth) else forwarding


# --- one threadblock ------------------------------------------------------------------------------


def _fuse_local(gpu: Gpu) -> Gpu:
    """Receives with the reductions and copies right behind them, as one instruction."""
    uses = _uses(gpu)
    lists: list[list[tuple[Instruction, list[_Name]]]] = []
    for number, threadblock in enumerate(gpu.threadblocks):
        fused: list[tuple[Instruction, list[_Name]]] = []
        for index, instruction in enumerate(threadblock.instructions):
            fused.append((instruction, [(number, index)]))
            _shrink(fused, uses)
        lists.append(fused)
    return _renamed(gpu, list(gpu.threadblocks), lists)


def _shrink(fused: list[tuple[Instruction, list[_Name]]], uses: Counter[Slot]) -> None:
    """Fuses the last two or three instructions, where they are a receive and what becomes of it."""
    for length in (3, 2):
        if len(fused) < length:
            continue
        tail = fused[-length:]
        made = _fused_tail([instruction for instruction, _ in tail], uses)
        if made is not None:
            waits = sorted({wait for instruction, _ in tail for wait in instruction.after})
            names = [name for _, several in tail for name in several]
            fused[-length:] = [(replace(made, after=tuple(waits)), names)]
            return


def _fused_tail(tail: list[Instruction], uses: Counter[Slot]) -> Instruction | None:
    first, last = tail[0], tail[-1]
    if first.op is not Op.RECV or any(other.count != first.count for other in tail):
        return None
    received = first.dst
    # A received slot that only its reduction or copy reads need not be stored at all.
    passing = received is not None and received.buffer is Buffer.SCRATCH and uses[received] == 2
    match [instruction.op for instruction in tail]:
        case [Op.RECV, Op.REDUCE] if last.dst == received:
            return Instruction(Op.RECV_REDUCE_COPY, last.src, received, first.count)
        case [Op.RECV, Op.REDUCE] if last.src == received and passing:
            return Instruction(Op.RECV_REDUCE_COPY, last.dst, last.dst, first.count)
        case [Op.RECV, Op.COPY, Op.REDUCE] if last.src == received and passing and last.dst == tail[1].dst:
            return Instruction(Op.RECV_REDUCE_COPY, tail[1].src, last.dst, first.count)
        case [Op.RECV, Op.COPY] if last.src == received and passing:
            return Instruction(Op.RECV, None, last.dst, first.count)
    return None


# --- two threadblocks -----------------------------------------------------------------------------


def _fuse_sends(gpu: Gpu, max_steps: int) -> Gpu:
    """Joins sending threadblocks to receiving ones whose data they pass on, where one can hold the steps of both."""
    uses = _uses(gpu)
    joined: dict[int, list[tuple[Instruction, list[_Name]]]] = {}
    partner: dict[int, int] = {}
    for number, sender_number in _partners(gpu).items():
        sender = gpu.threadblocks[sender_number]
        both = _interleave(_named(gpu, number), number, sender, sender_number, uses)
        n_steps = sum(max(1, len(instruction.after)) for instruction, _ in both)
        if n_steps <= max_steps and _keeps_waits(both):
            joined[number], partner[number] = both, sender_number
    gone = set(partner.values())
    threadblocks, lists = [], []
    for number, threadblock in enumerate(gpu.threadblocks):
        if number in gone:
            continue
        if number in partner:
            threadblock = replace(threadblock, send_peer=gpu.threadblocks[partner[number]].send_peer)
        threadblocks.append(threadblock)
        lists.append(joined.get(number) or _named(gpu, number))
    return _renamed(gpu, threadblocks, lists)


def _named(gpu: Gpu, number: int) -> list[tuple[Instruction, list[_Name]]]:
    return [(instruction, [(number, index)]) for index, instruction in enumerate(gpu.threadblocks[number].instructions)]


def _partners(gpu: Gpu) -> dict[int, int]:
    """Receiving threadblock -> the sending one of its channel that passes on most of what it receives."""
    common: Counter[tuple[int, int]] = Counter()
    for number, threadblock in enumerate(gpu.threadblocks):
        if threadblock.recv_peer is not None or threadblock.send_peer is None:
            continue
        for instruction in threadblock.instructions:
            for source, index in instruction.after:
                receiver = gpu.threadblocks[source]
                joins = receiver.send_peer is None and receiver.channel == threadblock.channel
                if joins and _passes_on(receiver.instructions[index], instruction):
                    common[source, number] += 1
    partner: dict[int, int] = {}
    for (source, number), _ in sorted(common.items(), key=lambda item: (-item[1], item[0])):
        if source not in partner and number not in partner.values():
            partner[source] = number
    return partner


def _passes_on(receive: Instruction, send: Instruction) -> bool:
    return (
        receive.op in (Op.RECV, Op.RECV_REDUCE_COPY)
        and send.op is Op.SEND
        and send.src == receive.dst
        and send.count == receive.count
        and len(send.after) == 1
    )


def _interleave(
    own: list[tuple[Instruction, list[_Name]]],
    number: int,
    sender: Threadblock,
    sender_number: int,
    uses: Counter[Slot],
) -> list[tuple[Instruction, list[_Name]]]:
    """Both lists in their own orders; a send meets its receive where its order allows."""
    joined: list[tuple[Instruction, list[_Name]]] = []
    waiting = deque(enumerate(sender.instructions))
    sources: dict[int, int] = {}
    for index, instruction in enumerate(sender.instructions):
        for source, position in instruction.after:
            if source == number and _passes_on(own[position][0], instruction):
                sources.setdefault(position, index)

    def pass_sends_before(index: int) -> None:
        while waiting and waiting[0][0] < index:
            at, other = waiting.popleft()
            joined.append((other, [(sender_number, at)]))

    for position, (instruction, names) in enumerate(own):
        pass_sends_before(1 + max((at for source, at in instruction.after if source == sender_number), default=-1))
        index = sources.get(position, -1)
        if not waiting or index < waiting[0][0]:
            joined.append((instruction, names))
            continue
        pass_sends_before(index)
        waiting.popleft()
        joined.append((_with_send(instruction, uses), [*names, (sender_number, index)]))
    pass_sends_before(len(sender.instructions))
    return joined


def _keeps_waits(joined: list[tuple[Instruction, list[_Name]]]) -> bool:
    """Whether nothing stands in front of what it waits for."""
    place = {name: at for at, (_, names) in enumerate(joined) for name in names}
    return all(place.get(wait, -1) < at for at, (instruction, _) in enumerate(joined) for wait in instruction.after)


def _with_send(receive: Instruction, uses: Counter[Slot]) -> Instruction:
    if receive.op is Op.RECV:
        return replace(receive, op=Op.RECV_COPY_SEND)
    # Stored by the receive and read by the send: with no third use the sum need not be stored.
    if receive.dst is not None and receive.dst.buffer is Buffer.SCRATCH and uses[receive.dst] == 2:
        return replace(receive, op=Op.RECV_REDUCE_SEND, dst=None)
    return replace(receive, op=Op.RECV_REDUCE_COPY_SEND)


# --- shared ---------------------------------------------------------------------------------------


def _uses(gpu: Gpu) -> Counter[Slot]:
    """How many instructions of the rank touch each slot; each piece of scratch starts at its own slot."""
    return Counter(
        slot
        for threadblock in gpu.threadblocks
        for instruction in threadblock.instructions
        for slot in {instruction.src, instruction.dst}
        if slot is not None
    )


def _renamed(gpu: Gpu, threadblocks: Iterable[Threadblock], lists: list[list[tuple[Instruction, list[_Name]]]]) -> Gpu:
    """The rank with new instruction lists; waits follow the instructions they name."""
    place = {
        name: (number, index)
        for number, instructions in enumerate(lists)
        for index, (_, names) in enumerate(instructions)
        for name in names
    }
    built = []
    for number, (threadblock, instructions) in enumerate(zip(threadblocks, lists, strict=True)):
        renamed = []
        for instruction, _ in instructions:
            waits: dict[int, int] = defaultdict(lambda: -1)
            for name in instruction.after:
                other, index = place[name]
                if other != number:
                    waits[other] = max(waits[other], index)
            renamed.append(replace(instruction, after=tuple(sorted(waits.items()))))
        built.append(replace(threadblock, instructions=tuple(renamed)))
    return replace(gpu, threadblocks=tuple(built))


def _hangs(gpus: tuple[Gpu, ...], depth: int) -> bool:
    """Whether the program stops short when each chunk is one transfer and `depth` of them fit a connection.

    Runs the threadblocks as processes; whether they all finish does not depend on the order (Kahn 1974).
    """
    queue: Counter[tuple[int, int, int]] = Counter()
    done = {(gpu.rank, number): 0 for gpu in gpus for number in range(len(gpu.threadblocks))}
    moved: Counter[tuple[int, int]] = Counter()
    moving = True
    while moving:
        moving = False
        for gpu in gpus:
            for number, threadblock in enumerate(gpu.threadblocks):
                if _advance(gpu.rank, number, threadblock, queue, done, moved, depth):
                    moving = True
    return any(
        done[gpu.rank, number] < len(threadblock.instructions)
        for gpu in gpus
        for number, threadblock in enumerate(gpu.threadblocks)
    )


def _advance(
    rank: int,
    number: int,
    threadblock: Threadblock,
    queue: Counter[tuple[int, int, int]],
    done: dict[tuple[int, int], int],
    moved: Counter[tuple[int, int]],
    depth: int,
) -> bool:
    """Runs a threadblock until it blocks; whether it got anywhere."""
    out = (rank, threadblock.send_peer if threadblock.send_peer is not None else -1, threadblock.channel)
    into = (threadblock.recv_peer if threadblock.recv_peer is not None else -1, rank, threadblock.channel)
    me, progressed = (rank, number), False
    while done[me] < len(threadblock.instructions):
        instruction = threadblock.instructions[done[me]]
        if any(done[rank, other] <= index for other, index in instruction.after):
            return progressed
        if instruction.op.sends or instruction.op.receives:
            while moved[me] < instruction.count:
                if (instruction.op.sends and queue[out] >= depth) or (instruction.op.receives and not queue[into]):
                    return progressed
                queue[out] += instruction.op.sends
                queue[into] -= instruction.op.receives
                moved[me] += 1
                progressed = True
        moved[me] = 0
        done[me] += 1
        progressed = True
    return progressed
