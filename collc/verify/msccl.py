"""MSCCL XML: whether a runtime takes the file, which calls it serves, and what it does.

Written from the runtimes' own parsers and kernels, not from collc's writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from collc.errors import InputError
from collc.ir.collective import ROOTED, Collective, make_collective
from collc.ir.program import Gpu, Program
from collc.runtimes import Runtime
from collc.verify.depths import Liveness, Transfers
from collc.verify.findings import Finding
from collc.verify.msccl_algo import Algo
from collc.verify.msccl_reader import Lines, Reader
from collc.verify.msccl_steps import Shape, read_gpu
from collc.verify.program import ProgramReport, examine_calls
from collc.verify.program import examine as examine_program
from collc.verify.rules import Collector
from collc.verify.xml import Element, Malformed, children, elements, stream

_ROOT_TRIES = 8
_MAX_SLOTS = 1 << 20  # ranks times chunks; keeps a small file that claims much from filling the memory


@dataclass(frozen=True)
class MscclFile:
    """A file as a runtime reads it.

    Attributes:
        collective: collc's name; None where the file's is unknown.
        n_chunks: nchunksperloop; a message is served if its elements are a multiple of it.
        min_bytes, max_bytes: message sizes it serves, as the runtime counts them, both inclusive; None
            means no upper limit.
        inplace, outofplace: kinds of call it serves.
        programs: one per kind of call, out of place first; none where the file cannot be understood.
        lines: (rank, threadblock, step) -> line and column.
        findings: why the runtime would refuse it, or not do what it says.
    """

    name: str
    collective: str | None
    n_ranks: int
    n_channels: int
    n_chunks: int
    protocol: str
    inplace: bool
    outofplace: bool
    min_bytes: int
    max_bytes: int | None
    programs: tuple[Program, ...]
    lines: Mapping[tuple[int, int, int], tuple[int, int]]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class MscclReport:
    """What is to be said of a file.

    Attributes:
        file: as read; None where it is no MSCCL file at all.
        findings: of the reader and of the program checker; none of severity "error" means that the
            runtime takes the file and it is proven right.
        fifo_depth_needed, fifo_depth_large: as the program checker reports them.
        liveness: how the program ends; None where there is none.
        transfers: how the runtime cuts messages; None where the file does not say into how many chunks.
    """

    file: MscclFile | None
    findings: tuple[Finding, ...]
    fifo_depth_needed: int | None = None
    fifo_depth_large: int | None = None
    liveness: Liveness | None = None
    transfers: Transfers | None = None


def examine(
    text: bytes,
    runtime: Runtime,
    *,
    fifo_depth: int | None = None,
    max_channels: int | None = None,
    nbytes: Iterable[int] = (),
    element_bytes: int = 4,
    asked: Collective | None = None,
    buffer_bytes: int | None = None,
) -> MscclReport:
    """Judge a file by the rules of a runtime, and what it does in any order the hardware picks.

    Args:
        fifo_depth: sends a connection holds; the protocol's by default.
        max_channels: channels the user allows, where fewer than the runtime's.
        nbytes: message sizes [bytes] to ask for; those not served are reported.
        element_bytes: of the data type at those sizes.
        asked: what it is to compute, instead of what its collective's name means.
        buffer_bytes: of a connection; the runtime's own by default.
    """
    file = read(text, runtime, max_channels=max_channels, asked=asked)
    if file is None or file.collective is None:
        return MscclReport(file, file.findings if file else _unreadable(text))
    findings = list(file.findings)
    if not file.programs and not any(finding.severity == "error" for finding in findings):
        # Never "right" without a program that was proven right.
        findings.append(Finding("not-judged", "error", "no program could be made of the steps", 1, 1))
    protocol = runtime.protocols.get(file.protocol)
    depth = fifo_depth if fifo_depth is not None else protocol.fifo_depth if protocol else None
    transfers = None
    if protocol and file.n_chunks:
        room = protocol.transfer_with(buffer_bytes)
        transfers = Transfers(file.n_chunks, room, runtime.max_count, file.max_bytes)
    reports: tuple[ProgramReport, ...] = ()
    if file.programs:
        reports = examine_calls(file.programs, fifo_depth=depth, lines=file.lines, transfers=transfers)
    for item, report in zip(file.programs, reports, strict=True):
        known = {(finding.rule, finding.message) for finding in findings}
        ending = " (called in place)" if item.collective.inplace and len(reports) > 1 else ""
        findings += [
            replace(finding, message=finding.message + ending)
            for finding in report.findings
            if (finding.rule, finding.message) not in known
        ]
    for size in nbytes:
        reason = why_not_served(file, size, element_bytes)
        if reason:
            findings.append(Finding("size-not-served", "warning", f"{size} bytes are not served: {reason}", 1, 1))
    if not reports:
        return MscclReport(file, tuple(findings), transfers=transfers)
    first = reports[0]
    return MscclReport(
        file, tuple(findings), first.fifo_depth_needed, first.fifo_depth_large, first.liveness, transfers
    )


def _unreadable(text: bytes) -> tuple[Finding, ...]:
    found = Collector()
    if not elements(text, found) and not found.has_errors:
        found.add("xml-syntax", "the file has no element", place=(1, 1))
    elif not found.has_errors:
        found.add(
            "xml-syntax",
            "the first element is not <algo>; runtimes refuse such a file, and the classic parser crashes on it",
            place=(1, 1),
        )
    return found.findings()


def why_not_served(file: MscclFile, nbytes: int, element_bytes: int = 4) -> str | None:
    """None if a call of that message size [bytes, as nccl-tests counts] is served; otherwise why not."""
    if not file.n_ranks or not file.n_chunks:
        return "the file does not say into how many chunks, or for how many ranks"
    # The runtimes count one rank's block for gather and scatter, nccl-tests all of them.
    counted = nbytes // file.n_ranks if file.collective in ("gather", "scatter") else nbytes
    if counted < max(file.min_bytes, 1):
        return f"below minBytes {file.min_bytes}"
    if file.max_bytes is not None and counted > file.max_bytes:
        return f"above the largest size served, {file.max_bytes}"
    n_elements, rest = divmod(counted, element_bytes)
    if rest or n_elements % file.n_chunks:
        return f"{counted / element_bytes:.12g} elements are no multiple of nchunksperloop {file.n_chunks}"
    return None


def read(
    text: bytes, runtime: Runtime, *, max_channels: int | None = None, asked: Collective | None = None
) -> MscclFile | None:
    """A file as a runtime reads it; None where there is no <algo>, or no XML."""
    found = Collector()
    try:
        groups = children(stream(text, found))
        (root,) = next(groups)
        if root.tag != "algo":
            return None
        reader = Reader(runtime, found)
        algo = Algo(reader, root, asked)
        algo.check(max_channels)
        gpus, lines = _read_gpus(reader, groups, algo)
    except (Malformed, StopIteration):
        return None
    programs: tuple[Program, ...] = ()
    if gpus is not None and algo.collective is not None:
        programs = _programs(algo, gpus)
    return MscclFile(
        algo.name,
        algo.collective,
        algo.n_ranks,
        algo.n_channels,
        algo.n_chunks,
        algo.protocol,
        algo.inplace,
        algo.outofplace,
        algo.min_bytes,
        algo.max_bytes,
        programs,
        lines,
        found.findings(),
    )


def _read_gpus(reader: Reader, groups: Iterator[list[Element]], algo: Algo) -> tuple[list[Gpu] | None, Lines]:
    """The <gpu> elements in order of rank; None where one cannot be understood."""
    gpus: dict[int, Gpu] = {}
    lines = Lines(algo.element.ends)
    shape = Shape(algo.n_ranks, algo.n_channels)
    for element, *inner in groups:
        if element.tag != "gpu":
            continue
        read_one = read_gpu(reader, element, inner, shape)
        if read_one is None:
            reader.is_complete = False
            continue
        gpu, offsets = read_one
        if gpu.rank in gpus or not 0 <= gpu.rank < algo.n_ranks:
            what = "has a second <gpu>" if gpu.rank in gpus else f"is no rank from 0 to {algo.n_ranks - 1}"
            reader.found.add("gpu-missing", f"id {gpu.rank} {what}", place=element.place)
            reader.is_complete = False
            continue
        gpus[gpu.rank] = gpu
        lines.offsets[gpu.rank] = offsets
        _check_chunk_counts(algo, element)
    missing = [rank for rank in range(algo.n_ranks) if rank not in gpus]
    if missing and reader.is_complete:
        reader.found.add(
            "gpu-missing", f"rank {missing[0]} has no <gpu> ({len(missing)} missing)", place=algo.element.place
        )
    if missing or not reader.is_complete:
        return None, lines
    return [gpus[rank] for rank in range(algo.n_ranks)], lines


def _check_chunk_counts(algo: Algo, element: Element) -> None:
    """i_chunks and o_chunks against the collective; only the first runtime refuses a mismatch."""
    if algo.collective is None or not algo.n_chunks or algo.asked:
        return
    n_ranks, collective = algo.n_ranks, algo.collective
    scale = {"i_chunks": n_ranks if collective == "allgather" else 1}
    scale["o_chunks"] = n_ranks if collective == "reduce_scatter" else 1
    if collective in ("gather", "scatter"):
        return
    for key, factor in scale.items():
        value = algo.reader.number(element, key) or 0
        if value > 0 and value * factor != algo.n_chunks:
            rule = "chunk-counts-refused" if algo.reader.runtime.inplace_flags == "equals" else "chunk-counts"
            algo.reader.found.add(
                rule,
                f"{key}={value}; {collective} with nchunksperloop={algo.n_chunks} has {algo.n_chunks / factor:g}",
                place=element.place,
            )


def _programs(algo: Algo, gpus: list[Gpu]) -> tuple[Program, ...]:
    factor = algo.chunk_factor() if algo.asked is None else 1
    limit = algo.reader.runtime.max_offset + 1
    if factor is None:
        return ()
    if algo.n_chunks > limit:
        algo.reader.found.add(
            "limit-offset", f"nchunksperloop={algo.n_chunks}; offsets reach {limit} chunks", place=algo.element.place
        )
        return ()
    # All-to-all has a chunk of its own for each slot, where the others have one for each row of them.
    most = _MAX_SLOTS // 4 if algo.collective == "alltoall" else _MAX_SLOTS
    if algo.n_chunks * algo.n_ranks > most:
        algo.reader.found.add(
            "not-judged",
            f"{algo.n_ranks} ranks times {algo.n_chunks} chunks; what the steps do is checked up to {most}",
            place=algo.element.place,
        )
        return ()
    collective = _collective(algo, gpus, factor) if algo.asked is None else algo.refined()
    if collective is None:
        return ()
    kinds = [inplace for inplace, served in ((False, algo.outofplace), (True, algo.inplace)) if served]
    return tuple(
        Program(replace(collective, inplace=inplace), tuple(gpus), algo.protocol or "Simple") for inplace in kinds
    )


def _collective(algo: Algo, gpus: list[Gpu], factor: int) -> Collective:
    """The collective; its root, which no attribute names, is the one the program serves."""
    name = algo.collective or ""
    if name not in ROOTED:
        return make_collective(name, algo.n_ranks, factor)
    first: Collective | None = None
    for root in _likely_roots(name, gpus):
        collective = make_collective(name, algo.n_ranks, factor, root=root)
        collective = replace(collective, inplace=not algo.outofplace)
        first = first or collective
        report = examine_program(Program(collective, tuple(gpus), algo.protocol or "Simple"))
        if not any(finding.severity == "error" for finding in report.findings):
            return collective
    if first is None:
        raise InputError(f"{name}: no ranks")
    return first


def _likely_roots(name: str, gpus: list[Gpu]) -> list[int]:
    """Ranks that can be the root: those to whom nobody need send, or who need not send."""
    spreads = name in ("broadcast", "scatter")
    idle = [
        gpu.rank
        for gpu in gpus
        if not any(
            item.op.receives if spreads else item.op.sends
            for threadblock in gpu.threadblocks
            for item in threadblock.instructions
        )
    ]
    return [*idle, *(gpu.rank for gpu in gpus if gpu.rank not in idle)][:_ROOT_TRIES]
