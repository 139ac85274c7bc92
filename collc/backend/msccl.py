"""MSCCL XML, for the runtimes that read it.

Their readers are hand-made: one element per line, one space between attributes, double quotes,
plain numbers, no declaration. So the file is written line by line rather than by an XML library.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from collc.errors import UnsupportedError
from collc.ir.program import Buffer, Compiled, Gpu, Instruction, Op, Program, Slot
from collc.runtimes import Runtime
from collc.runtimes import load as load_runtime

_TYPES = {
    Op.SEND: "s",
    Op.RECV: "r",
    Op.COPY: "cpy",
    Op.REDUCE: "re",
    Op.NOP: "nop",
    Op.RECV_COPY_SEND: "rcs",
    Op.RECV_REDUCE_SEND: "rrs",
    Op.RECV_REDUCE_COPY: "rrc",
    Op.RECV_REDUCE_COPY_SEND: "rrcs",
}
_BUFFERS = {Buffer.INPUT: "i", Buffer.OUTPUT: "o", Buffer.SCRATCH: "s"}
_NOWHERE = Slot(Buffer.INPUT, 0)


@dataclass(frozen=True)
class Msccl:
    """XML for the MSCCL executor for NCCL, for RCCL, or for the first MSCCL runtime.

    Attributes:
        runtime: sets limits and spellings.
    """

    level: ClassVar[str] = "program"
    runtime: Literal["executor", "rccl", "classic"] = "executor"

    def supports(self, collective: str) -> str | None:
        """None, or why the runtime cannot be given this collective."""
        known = load_runtime(self.runtime).collectives
        if collective in known:
            return None
        return f"{self.runtime} has no {collective}; it serves {', '.join(sorted(known))}"

    def emit(self, sweep: Sequence[Compiled]) -> dict[str, str]:
        """File name -> text, one file for each entry, two where a file serves one kind of call only.

        Raises:
            UnsupportedError: the runtime cannot be given this.
        """
        runtime = load_runtime(self.runtime)
        files: dict[str, str] = {}
        for compiled in sweep:
            if reason := self.supports(compiled.made.problem.collective.name):
                raise UnsupportedError(reason)
            for inplace, outofplace in _calls(compiled, runtime):
                name = _file_name(compiled, inplace, outofplace)
                files[name] = _text(compiled, inplace, outofplace, runtime, name.removesuffix(".xml"))
        return files


def _calls(compiled: Compiled, runtime: Runtime) -> list[tuple[bool, bool]]:
    """The (inplace, outofplace) of each file."""
    if runtime.inplace_flags == "serves" or not (compiled.inplace and compiled.outofplace):
        return [(compiled.inplace, compiled.outofplace)]
    return [(True, False), (False, True)]


def _file_name(compiled: Compiled, inplace: bool, outofplace: bool) -> str:
    kind = "" if inplace and outofplace else "-inplace" if inplace else "-outofplace"
    return f"{compiled.stem}{kind}.xml"


def _text(compiled: Compiled, inplace: bool, outofplace: bool, runtime: Runtime, name: str) -> str:
    program = compiled.program
    if program is None:
        raise TypeError("the msccl backend writes programs; this was not lowered to one")
    algo = _algo(compiled, program, inplace, outofplace, runtime, name)
    lines = [f"<algo {algo}>"]
    peers = _far_ends(program)
    for gpu in program.gpus:
        lines += _gpu_lines(gpu, program, peers)
    return "\n".join([*lines, "</algo>"]) + "\n"


def _algo(compiled: Compiled, program: Program, inplace: bool, outofplace: bool, runtime: Runtime, name: str) -> str:
    collective = program.collective
    # The runtime's size is that of one rank's block for the collectives it does not multiply by ranks.
    blocks = 1
    if collective.name not in runtime.counts_all_ranks:
        blocks = collective.size_chunks // collective.chunk_factor
    top = runtime.max_bytes_unlimited
    if compiled.max_bytes is not None:
        top = compiled.max_bytes // blocks + runtime.max_bytes_is_exclusive
    return _attributes(
        name=name[: runtime.max_name],
        proto=program.protocol,
        nchannels=program.n_channels,
        nchunksperloop=collective.size_chunks // blocks,
        ngpus=collective.n_ranks,
        coll=runtime.collectives[collective.name],
        inplace=int(inplace),
        outofplace=int(outofplace),
        minBytes=-(-compiled.min_bytes // blocks),
        maxBytes=top,
    )


def _attributes(**values: object) -> str:
    return " ".join(f'{key}="{value}"' for key, value in values.items())


def _gpu_lines(gpu: Gpu, program: Program, peers: dict[tuple[int, int, int], Slot]) -> Iterator[str]:
    collective = program.collective
    counts = {"i_chunks": collective.input_chunks, "o_chunks": collective.output_chunks, "s_chunks": gpu.scratch_chunks}
    yield f"  <gpu {_attributes(id=gpu.rank, **counts)}>"
    number = _step_numbers(gpu)
    waited = {wait for tb in gpu.threadblocks for instruction in tb.instructions for wait in instruction.after}
    for tb_id, threadblock in enumerate(gpu.threadblocks):
        ends = {"send": threadblock.send_peer, "recv": threadblock.recv_peer}
        shown = {key: -1 if peer is None else peer for key, peer in ends.items()}
        yield f"    <tb {_attributes(id=tb_id, **shown, chan=threadblock.channel)}>"
        for index, instruction in enumerate(threadblock.instructions):
            far = peers.get((gpu.rank, tb_id, index))
            yield from _step_lines(instruction, number[tb_id, index], number, (tb_id, index) in waited, far)
        yield "    </tb>"
    yield "  </gpu>"


def _step_numbers(gpu: Gpu) -> dict[tuple[int, int], int]:
    """(threadblock, instruction) -> its number in the file, counting the waits in front of it."""
    number = {}
    for tb_id, threadblock in enumerate(gpu.threadblocks):
        steps = 0
        for index, instruction in enumerate(threadblock.instructions):
            steps += max(1, len(instruction.after))
            number[tb_id, index] = steps - 1
    return number


def _step_lines(
    instruction: Instruction,
    step: int,
    number: dict[tuple[int, int], int],
    is_waited_for: bool,
    far: Slot | None,
) -> Iterator[str]:
    # A step waits for one other; further waits are nop steps in front of it.
    for early, wait in enumerate(instruction.after[:-1]):
        at = step - len(instruction.after) + 1 + early
        yield _step_line(at, "nop", _NOWHERE, _NOWHERE, 1, wait, number, False)
    last = instruction.after[-1] if instruction.after else None
    # What is received and sent on at once is shown with its own slot on both sides.
    far = None if instruction.op is Op.RECV_COPY_SEND else far
    src = instruction.src or far or instruction.dst or _NOWHERE
    dst = instruction.dst or far or instruction.src or _NOWHERE
    yield _step_line(step, _TYPES[instruction.op], src, dst, instruction.count, last, number, is_waited_for)


def _step_line(
    step: int,
    kind: str,
    src: Slot,
    dst: Slot,
    count: int,
    wait: tuple[int, int] | None,
    number: dict[tuple[int, int], int],
    is_waited_for: bool,
) -> str:
    attributes = _attributes(
        s=step,
        type=kind,
        srcbuf=_BUFFERS[src.buffer],
        srcoff=src.offset,
        dstbuf=_BUFFERS[dst.buffer],
        dstoff=dst.offset,
        cnt=count,
        depid=wait[0] if wait else -1,
        deps=number[wait] if wait else -1,
        hasdep=int(is_waited_for),
    )
    return f"      <step {attributes}/>"


def _far_ends(program: Program) -> dict[tuple[int, int, int], Slot]:
    """(rank, threadblock, instruction) -> the peer's slot: where a send lands, whence a receive comes.

    The runtimes ignore it; people and other checkers read it.
    """
    sends: dict[tuple[int, int, int], list[tuple[tuple[int, int, int], Slot | None]]] = defaultdict(list)
    receives: dict[tuple[int, int, int], list[tuple[tuple[int, int, int], Slot | None]]] = defaultdict(list)
    for gpu in program.gpus:
        for tb_id, tb in enumerate(gpu.threadblocks):
            for index, instruction in enumerate(tb.instructions):
                me = (gpu.rank, tb_id, index)
                if instruction.op.sends and tb.send_peer is not None:
                    sends[gpu.rank, tb.send_peer, tb.channel].append((me, instruction.src or instruction.dst))
                if instruction.op.receives and tb.recv_peer is not None:
                    receives[tb.recv_peer, gpu.rank, tb.channel].append((me, instruction.dst or instruction.src))
    far: dict[tuple[int, int, int], Slot] = {}
    for connection, sent in sends.items():
        for (sender, source), (receiver, target) in zip(sent, receives[connection], strict=False):
            far[sender] = target or _NOWHERE
            far[receiver] = source or _NOWHERE
    return far
