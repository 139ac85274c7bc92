"""An MSCCL file read without any code of collc's readers: its syntax line by line, and the program in it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from collc.ir.collective import make_collective
from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock

OPS = {
    "s": Op.SEND,
    "r": Op.RECV,
    "cpy": Op.COPY,
    "re": Op.REDUCE,
    "nop": Op.NOP,
    "rcs": Op.RECV_COPY_SEND,
    "rrs": Op.RECV_REDUCE_SEND,
    "rrc": Op.RECV_REDUCE_COPY,
    "rrcs": Op.RECV_REDUCE_COPY_SEND,
}
BUFFERS = {"i": Buffer.INPUT, "o": Buffer.OUTPUT, "s": Buffer.SCRATCH}
SIZES = {"reducescatter": "reduce_scatter"}
# What the hand-made readers take: one element a line, single spaces, double quotes, plain numbers.
_ELEMENT = re.compile(r' *<(?:(?:algo|gpu|tb)(?: \w+="[^"<>&]*")+>|step(?: \w+="[^"<>&]*")+/>|/(?:algo|gpu|tb)>)')
_NUMBER = re.compile(r"-1|0|[1-9][0-9]*")


def syntax_faults(text: str) -> list[str]:
    """Lines the runtimes' own readers would not take as they are meant."""
    faults = [] if text.isascii() and text.endswith("</algo>\n") and text.startswith("<algo ") else ["frame"]
    for line in text.splitlines():
        attributes = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if not _ELEMENT.fullmatch(line):
            faults.append(f"syntax: {line}")
        if len(attributes) > 16 or len(attributes) != line.count("="):
            faults.append(f"attributes: {line}")
        words = {"name", "proto", "coll", "type", "srcbuf", "dstbuf"}
        if not all(_NUMBER.fullmatch(value) for key, value in attributes.items() if key not in words):
            faults.append(f"numbers: {line}")
        if max(map(len, attributes.values()), default=0) > 63:
            faults.append(f"long: {line}")
    return faults


def read(text: str, *, root: int | None = None) -> tuple[dict[str, str], Program]:
    """The attributes of <algo>, and the program; nops in front of a step become waits of it.

    In place where the file says that it serves nothing else.
    """
    algo = ElementTree.fromstring(text)
    found = dict(algo.attrib)
    name = SIZES.get(found["coll"], found["coll"])
    n_ranks, chunks = int(found["ngpus"]), int(found["nchunksperloop"])
    blocks = n_ranks if name in ("allgather", "reduce_scatter", "alltoall") else 1
    # gather and scatter are counted by one rank's block.
    inplace = found["inplace"] == "1" and found.get("outofplace") != "1"
    collective = make_collective(name, n_ranks, chunks // blocks, root=root, inplace=inplace)
    gpus = []
    for rank, gpu in enumerate(algo):
        assert int(gpu.attrib["id"]) == rank
        assert int(gpu.attrib["i_chunks"]) == collective.input_chunks
        assert int(gpu.attrib["o_chunks"]) == collective.output_chunks
        numbers = [_numbers(tb) for tb in gpu]
        waited: set[tuple[int, int]] = set()
        built = [_threadblock(tb, number, numbers, waited) for number, tb in enumerate(gpu)]
        marked = {
            (number, numbers[number][int(step.attrib["s"])])
            for number, tb in enumerate(gpu)
            for step in tb
            if step.attrib["hasdep"] == "1"
        }
        assert waited == marked, f"rank {rank}: hasdep and the waits differ: {sorted(waited ^ marked)}"
        gpus.append(Gpu(rank, int(gpu.attrib["s_chunks"]), tuple(built)))
    return found, Program(collective, tuple(gpus), found["proto"])


def _numbers(tb: ElementTree.Element) -> dict[int, int]:
    """Step -> the instruction it belongs to."""
    numbers, index = {}, 0
    for at, step in enumerate(tb):
        assert int(step.attrib["s"]) == at
        numbers[at] = index
        index += step.attrib["type"] != "nop"
    return numbers


def _threadblock(
    tb: ElementTree.Element, number: int, numbers: list[dict[int, int]], waited: set[tuple[int, int]]
) -> Threadblock:
    assert int(tb.attrib["id"]) == number
    peers = [int(tb.attrib[side]) for side in ("send", "recv")]
    instructions, after = [], []
    for step in tb:
        found = step.attrib
        if found["depid"] != "-1":
            wait = (int(found["depid"]), numbers[int(found["depid"])][int(found["deps"])])
            waited.add(wait)
            after.append(wait)
        if found["type"] == "nop":
            assert found["depid"] != "-1"
            continue
        op = OPS[found["type"]]
        src = Slot(BUFFERS[found["srcbuf"]], int(found["srcoff"])) if op.reads_src else None
        dst = Slot(BUFFERS[found["dstbuf"]], int(found["dstoff"])) if op.writes_dst else None
        instructions.append(Instruction(op, src, dst, int(found["cnt"]), tuple(sorted(after))))
        after = []
    assert not after, "nops at the end of a threadblock"
    send, recv = (None if peer < 0 else peer for peer in peers)
    return Threadblock(send, recv, int(tb.attrib["chan"]), tuple(instructions))
