"""The <gpu> elements of an MSCCL file: threadblocks and steps by the rules of the runtimes' parser.

What the parser does silently is modelled here: a threadblock announces steps by counting as it goes
(waits of nop steps and fused reductions advance the count), and a waiter is released by the first
announcement that reaches the number it waits for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from collc.errors import nearest
from collc.ir.program import Buffer, Gpu, Instruction, Op, Slot, Threadblock
from collc.verify.msccl_reader import BUFFERS, Reader
from collc.verify.xml import Element

_OPS = {
    "s": Op.SEND,
    "r": Op.RECV,
    "rcs": Op.RECV_COPY_SEND,
    "rrs": Op.RECV_REDUCE_SEND,
    "rrc": Op.RECV_REDUCE_COPY,
    "rrcs": Op.RECV_REDUCE_COPY_SEND,
    "cpy": Op.COPY,
    "re": Op.REDUCE,
    "nop": Op.NOP,
}
_FLAGS = ("0", "1")
_STEP = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep", "type", "srcbuf", "dstbuf")
_read_step_values = itemgetter(*_STEP)
_FUSED_REDUCTIONS = 16  # reductions of a threadblock after which no run goes on (MSCCL_MAX_REDUCE_FUSION)


@dataclass(slots=True)
class _Step:
    """A step as it stands in the file."""

    element: Element
    op: Op
    src: Slot
    dst: Slot
    count: int
    waits_for: tuple[int, int] | None
    announces: bool
    fused: bool = False  # runs together with the reduction before it


@dataclass
class _Block:
    """A threadblock as it stands in the file.

    Attributes:
        announced: (count, step) of each announcement, rising.
    """

    element: Element
    ident: int
    send_peer: int | None
    recv_peer: int | None
    channel: int
    steps: list[_Step] = field(default_factory=list)
    announced: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Shape:
    """What is known of the file before its <gpu> elements are read."""

    n_ranks: int
    n_channels: int


def read_gpu(
    reader: Reader, element: Element, inner: Sequence[Element], shape: Shape
) -> tuple[Gpu, list[list[int]]] | None:
    """One <gpu> and the offset of each step of each threadblock in the file; None where an attribute is missing.

    Args:
        inner: the elements inside, in document order.
    """
    numbers = [reader.number(element, key) for key in ("id", "i_chunks", "o_chunks", "s_chunks")]
    blocks = [block for block in _read_blocks(reader, inner) if block is not None]
    if not reader.is_complete or None in numbers:
        return None
    rank, i_chunks, o_chunks, s_chunks = (number or 0 for number in numbers)
    if s_chunks < 0:
        reader.found.add("attribute-value", f"s_chunks={s_chunks}; expected 0 or more", place=element.place)
        return None
    _check_limits(reader, element, rank, blocks, shape)
    if not _check_ids(reader, element, blocks):
        return None
    blocks.sort(key=lambda block: block.ident)
    declared = {Buffer.INPUT: i_chunks, Buffer.OUTPUT: o_chunks, Buffer.SCRATCH: s_chunks}
    for block in blocks:
        _fold(reader, block)
        _check_steps(reader, block, declared)
    threadblocks = tuple(_threadblock(reader, block, blocks) for block in blocks)
    return Gpu(rank, s_chunks, threadblocks), [[step.element.offset for step in block.steps] for block in blocks]


def _read_blocks(reader: Reader, inner: Sequence[Element]) -> Iterator[_Block | None]:
    depth = inner[0].depth if inner else 0
    block: _Block | None = None
    for element in inner:
        if element.depth == depth:
            if block is not None:
                yield block
            block = _read_block(reader, element) if element.tag == "tb" else None
        elif block is not None and element.tag == "step" and element.depth == depth + 1:
            position = len(block.steps)
            step = _read_plain_step(reader, element, position) or _read_step(reader, element, position)
            if step is not None:
                block.steps.append(step)
    yield block


def _read_block(reader: Reader, element: Element) -> _Block | None:
    ident, send, recv, channel = (reader.number(element, key) for key in ("id", "send", "recv", "chan"))
    if ident is None or send is None or recv is None or channel is None:
        return None
    for key, peer in (("send", send), ("recv", recv)):
        if peer < -1:
            reader.found.add("peer", f"{key}={peer}; expected a rank, or -1 for none", place=element.place)
    return _Block(element, ident, send if send >= 0 else None, recv if recv >= 0 else None, channel)


def _read_plain_step(reader: Reader, element: Element, position: int) -> _Step | None:
    """A step with which nothing at all is wrong; None leaves it to `_read_step` to say what is."""
    try:
        s, srcoff, dstoff, count, depid, deps, hasdep, kind, srcbuf, dstbuf = _read_step_values(element.attributes)
        plain = reader.plain
        src, dst = reader.slots[srcbuf, srcoff], reader.slots[dstbuf, dstoff]
        wanted, awaited = plain[depid], plain[deps]
        if plain[s] != position or hasdep not in _FLAGS or (wanted < 0) != (awaited < 0):
            return None
        if kind not in reader.runtime.step_types:
            return None
        waits_for = (wanted, awaited) if wanted >= 0 else None
        return _Step(element, _OPS[kind], src, dst, plain[count], waits_for, hasdep == "1")
    except KeyError:
        return None


def _read_step(reader: Reader, element: Element, position: int) -> _Step | None:
    runtime, found = reader.runtime, reader.found
    keys = ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")
    numbers = [reader.number(element, key) for key in keys]
    kind = reader.text(element, "type")
    buffers = [reader.choice(element, key, tuple(BUFFERS)) for key in ("srcbuf", "dstbuf")]
    if kind is not None and kind not in _OPS:
        reader.is_complete = False
        found.add("step-type", f"type '{kind[:40]}'" + nearest(kind[:40], runtime.step_types), place=element.place)
    if not reader.is_complete or kind is None or buffers[0] is None or buffers[1] is None:
        return None
    s, srcoff, dstoff, count, depid, deps, hasdep = (number or 0 for number in numbers)
    if kind not in runtime.step_types:
        found.add(
            "step-type-unsupported",
            f"type '{kind}': {runtime.name} reads it and then refuses the launch; "
            f"it runs {', '.join(runtime.step_types)}",
            place=element.place,
        )
    if s != position:
        found.add("step-order", f"s={s}; expected {position}, its place in the threadblock", place=element.place)
    if hasdep not in (0, 1):
        found.add("attribute-value", f"hasdep={hasdep}; expected 0 or 1", place=element.place)
    if (depid < 0) != (deps < 0):
        found.add("wait-incomplete", f"depid={depid} with deps={deps}; expected both or neither", place=element.place)
    return _Step(
        element,
        _OPS[kind],
        Slot(BUFFERS[buffers[0]], srcoff),
        Slot(BUFFERS[buffers[1]], dstoff),
        count,
        (depid, deps) if depid >= 0 else None,
        hasdep == 1,
    )


def _check_limits(reader: Reader, element: Element, rank: int, blocks: list[_Block], shape: Shape) -> None:
    runtime, found = reader.runtime, reader.found
    if len(blocks) > runtime.max_threadblocks:
        found.add(
            "limit-threadblocks",
            f"rank {rank} has {len(blocks)} threadblocks; {runtime.name} takes {runtime.max_threadblocks}",
            place=element.place,
        )
    n_elements = 1 + shape.n_ranks + len(blocks) + sum(len(block.steps) for block in blocks)
    if n_elements > runtime.max_elements:
        found.add(
            "limit-elements",
            f"rank {rank} reads {n_elements} elements; {runtime.name} takes {runtime.max_elements}",
            place=element.place,
        )
    crowds: dict[tuple[int, str], int] = {}
    for block in blocks:
        if not 0 <= block.channel < shape.n_channels:
            found.add(
                "limit-channels",
                f"rank {rank} threadblock {block.ident}: chan={block.channel}; nchannels is {shape.n_channels}",
                place=block.element.place,
            )
        if len(block.steps) > runtime.max_steps:
            found.add(
                "limit-steps",
                f"rank {rank} threadblock {block.ident} has {len(block.steps)} steps; "
                f"{runtime.name} takes {runtime.max_steps}",
                place=block.element.place,
            )
        for peer, verb in ((block.send_peer, "sending"), (block.recv_peer, "receiving")):
            if peer is not None:
                crowds[block.channel, verb] = crowds.get((block.channel, verb), 0) + 1
    for (channel, verb), count in crowds.items():
        if count > runtime.max_threadblocks_per_channel:
            found.add(
                "limit-threadblocks-per-channel",
                f"rank {rank} has {count} threadblocks {verb} on channel {channel}; "
                f"{runtime.name} takes {runtime.max_threadblocks_per_channel}",
                place=element.place,
            )


def _check_ids(reader: Reader, element: Element, blocks: list[_Block]) -> bool:
    idents = [block.ident for block in blocks]
    if sorted(idents) == list(range(len(idents))):
        return True
    for expected, block in enumerate(sorted(blocks, key=lambda block: block.ident)):
        if block.ident != expected:
            reader.found.add(
                "threadblock-ids",
                f"threadblock ids are not 0, 1, 2, ...: found {block.ident} where {expected} was due",
                place=block.element.place,
            )
            break
    return False


def _fold(reader: Reader, block: _Block) -> None:
    """Follow the parser through a threadblock: nop waits, fused reductions, announcements."""
    waiting: _Step | None = None  # a nop whose wait no step has taken over yet
    before: _Step | None = None  # the reduction that the next one may join
    counter = 0  # as the runtime counts steps when it announces them
    reductions = 0
    for index, step in enumerate(block.steps):
        if step.op is Op.NOP:
            if step.waits_for is not None:
                waiting = step
                counter += 1
            continue
        step.fused = step.op is Op.REDUCE and before is not None and _is_joined(before, step)
        if waiting is not None and (step.fused or step.waits_for is None):
            reader.found.add(
                "nop-chain",
                "a nop that waits is followed by a step that does not wait itself (depid); the runtime takes the last "
                "wait of a chain from that step",
                place=step.element.place,
            )
        if step.fused and before is not None and step.count != before.count:
            reader.found.add(
                "reduce-fusion",
                f"cnt={step.count} after a re with the same buffers and cnt={before.count}: they run as one, "
                f"and {step.count} is used for both",
                place=step.element.place,
            )
        waiting = None
        reductions += step.op is Op.REDUCE
        goes_on = step.op is Op.REDUCE and not step.announces and reductions != _FUSED_REDUCTIONS
        before = step if goes_on else None
        if step.announces:
            block.announced.append((counter, index))
        counter += 1
    for step in reversed(block.steps):
        if step.op is not Op.NOP:
            break
        step.waits_for = None  # the parser drops nops at the end


def _is_joined(before: _Step, step: _Step) -> bool:
    return before.dst == step.dst and before.src.buffer is step.src.buffer and step.waits_for is None


def _check_steps(reader: Reader, block: _Block, declared: dict[Buffer, int]) -> None:
    runtime, found = reader.runtime, reader.found
    i_chunks, o_chunks, s_chunks = declared[Buffer.INPUT], declared[Buffer.OUTPUT], declared[Buffer.SCRATCH]
    safe = min(i_chunks, o_chunks, s_chunks, runtime.max_offset + 1)
    for step in block.steps:
        op = step.op
        is_safe = 0 <= step.src.offset < safe and 0 <= step.dst.offset < safe
        if op is Op.NOP or (is_safe and step.count <= runtime.max_count):
            continue
        if step.count > runtime.max_count:
            found.add(
                "limit-count", f"cnt={step.count}; {runtime.name} takes {runtime.max_count}", place=step.element.place
            )
        for used, slot, side in ((step.op.reads_src, step.src, "src"), (step.op.writes_dst, step.dst, "dst")):
            letter = slot.buffer.value[0]
            if not -runtime.max_offset - 1 <= slot.offset <= runtime.max_offset:
                found.add(
                    "limit-offset",
                    f"{side}off={slot.offset}; {runtime.name} holds offsets up to {runtime.max_offset}",
                    place=step.element.place,
                )
            elif used and slot.offset >= declared[slot.buffer]:
                found.add(
                    "out-of-range",
                    f"{side}off={slot.offset}; this <gpu> declares {letter}_chunks={declared[slot.buffer]}",
                    place=step.element.place,
                )


def _threadblock(reader: Reader, block: _Block, blocks: list[_Block]) -> Threadblock:
    instructions = []
    for step in block.steps:
        op = step.op
        awaited = _awaited(reader, step, blocks) if step.waits_for else ()
        src, dst = step.src if op.reads_src else None, step.dst if op.writes_dst else None
        instructions.append(Instruction(op, src, dst, step.count if op is not Op.NOP else 1, awaited))
    return Threadblock(block.send_peer, block.recv_peer, block.channel, tuple(instructions))


def _awaited(reader: Reader, step: _Step, blocks: list[_Block]) -> tuple[tuple[int, int], ...]:
    """The step whose announcement releases a wait."""
    if step.waits_for is None:
        return ()
    found, (ident, number) = reader.found, step.waits_for
    if ident > reader.runtime.max_waited_threadblock:
        found.add(
            "wait-threadblock-id",
            f"depid={ident}; {reader.runtime.name} holds ids up to {reader.runtime.max_waited_threadblock}",
            place=step.element.place,
        )
        return ()
    if ident >= len(blocks) or number >= len(blocks[ident].steps):
        found.add(
            "wait-target",
            f"waits for threadblock {ident} step {number}, which does not exist",
            place=step.element.place,
        )
        return ()
    block = blocks[ident]
    for _, index in block.announced[bisect_left(block.announced, (number, -1)) :][:1]:
        # Reductions that run as one end together, and a nop ends with the step that takes its wait.
        units = sum([other.op is not Op.NOP and not other.fused for other in block.steps[number + 1 : index + 1]])
        if units > (block.steps[number].op is Op.NOP):
            found.add(
                "wait-announced-late",
                f"waits for threadblock {ident} step {number}, which has hasdep=0; step {index} releases it",
                place=step.element.place,
            )
        return ((ident, index),)
    found.add(
        "wait-not-announced",
        f"waits for threadblock {ident} step {number}, but neither it nor a later step there has hasdep=1",
        place=step.element.place,
    )
    return ()
