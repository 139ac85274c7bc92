"""MSCCL XML: whether a runtime takes the file, which calls it serves, and what it does.

Written from the runtimes' own parsers and kernels, not from collc's writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from collc import runtimes
from collc.errors import InputError, nearest
from collc.ir.collective import ROOTED, Collective, make_collective
from collc.ir.program import Gpu, Program
from collc.runtimes import Runtime
from collc.verify import program as program_check
from collc.verify.findings import Finding
from collc.verify.msccl_steps import Reader, Shape, read_gpu
from collc.verify.rules import Collector
from collc.verify.xml import Element, elements

_MAX_INT64 = 2**63 - 1
_CLASSIC_MAX_BYTES = 128 << 20  # what the first runtime takes where maxBytes is missing
_NEVER_SERVED = ("alltoallv", "send", "recv", "custom")  # names some parser knows, but no call selects
_ROOT_TRIES = 8


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
        fifo_depth_needed, fifo_depth_large: as the program checker reports them, the largest of all
            kinds of call.
    """

    file: MscclFile | None
    findings: tuple[Finding, ...]
    fifo_depth_needed: int | None = None
    fifo_depth_large: int | None = None


def examine(
    text: bytes,
    runtime: Runtime,
    *,
    fifo_depth: int | None = None,
    max_channels: int | None = None,
    nbytes: Iterable[int] = (),
    element_bytes: int = 4,
) -> MscclReport:
    """Judge a file by the rules of a runtime, and what it does in any order the hardware picks.

    Args:
        fifo_depth: sends a connection holds; the protocol's by default.
        max_channels: channels the user allows, where fewer than the runtime's.
        nbytes: message sizes [bytes] to ask for; those not served are reported.
        element_bytes: of the data type at those sizes.
    """
    file = read(text, runtime, max_channels=max_channels)
    if file is None or file.collective is None:
        return MscclReport(file, file.findings if file else _unreadable(text))
    findings = list(file.findings)
    protocol = runtime.protocols.get(file.protocol)
    depth = fifo_depth if fifo_depth is not None else protocol.fifo_depth if protocol else None
    reports = [program_check.examine(item, fifo_depth=depth, lines=file.lines) for item in file.programs]
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
    return MscclReport(
        file,
        tuple(findings),
        _largest(report.fifo_depth_needed for report in reports),
        _largest(report.fifo_depth_large for report in reports),
    )


def _unreadable(text: bytes) -> tuple[Finding, ...]:
    found = Collector()
    if not elements(text, found) and not found.has_errors:
        found.add("xml-syntax", "the file has no element", place=(1, 1))
    elif not found.has_errors:
        found.add("xml-syntax", "the first element is not <algo>; the runtimes crash on such a file", place=(1, 1))
    return found.findings()


def _largest(depths: Iterable[int | None]) -> int | None:
    known = list(depths)
    return None if None in known or not known else max(depth for depth in known if depth is not None)


def why_not_served(file: MscclFile, nbytes: int, element_bytes: int = 4) -> str | None:
    """None if a call of that message size [bytes, as nccl-tests counts] is served; otherwise why not."""
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


def read(text: bytes, runtime: Runtime, *, max_channels: int | None = None) -> MscclFile | None:
    """A file as a runtime reads it; None where there is no <algo>."""
    found = Collector()
    listing = elements(text, found)
    if not listing or listing[0].tag != "algo":
        return None
    reader = Reader(runtime, found)
    algo = _Algo(reader, listing[0])
    algo.check(max_channels)
    gpus, lines = _read_gpus(reader, listing, algo)
    programs: tuple[Program, ...] = ()
    if gpus is not None and algo.collective is not None:
        programs = _programs(algo, gpus, lines)
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


class _Algo:
    """The attributes of <algo>."""

    def __init__(self, reader: Reader, element: Element) -> None:
        self.reader = reader
        self.element = element
        runtime = reader.runtime
        for key in runtime.required:
            reader.text(element, key)
        self.name = element.attributes.get("name", "")
        self.n_ranks = self._count("ngpus", runtime.max_ranks, "limit-ranks")
        self.n_channels = self._count("nchannels", runtime.max_channels, "limit-channels")
        self.n_chunks = self._count("nchunksperloop", None, "attribute-value")
        self.protocol = ""
        if "proto" in element.attributes:
            self.protocol = reader.choice(element, "proto", tuple(runtime.protocols)) or ""
        self.collective = self._collective()
        self.inplace, self.outofplace = self._calls()
        self.min_bytes, self.max_bytes = self._bytes()

    def _count(self, key: str, limit: int | None, rule: str) -> int:
        """A number of at least one; 0 where it cannot be used."""
        if key not in self.element.attributes:
            return 0
        value = self.reader.number(self.element, key) or 0
        if value < 1:
            self._tell("attribute-value", f"{key}={value}; expected 1 or more")
        elif limit is not None and value > limit:
            self._tell(rule, f"{key}={value}; {self.reader.runtime.name} takes {limit}")
        else:
            return value
        if rule != "limit-channels" or value < 1:
            self.reader.is_complete = False
        return max(value, 0)

    def _tell(self, rule: str, message: str) -> None:
        self.reader.found.add(rule, message, place=self.element.place)

    def _collective(self) -> str | None:
        spelt = self.element.attributes.get("coll")
        if spelt is None:
            return None
        runtime = self.reader.runtime
        for name, spelling in runtime.collectives.items():
            if spelt == spelling:
                return name
        if spelt in _NEVER_SERVED:
            self._tell("collective-unused", f"coll '{spelt}': {runtime.name} never selects a file for it")
            return None
        self._tell("collective-name", f"coll '{spelt[:60]}'" + nearest(spelt[:60], runtime.collectives.values()))
        known = [runtimes.load(name).collectives.items() for name in runtimes.names()]
        return next((name for items in known for name, spelling in items if spelt == spelling), None)

    def _calls(self) -> tuple[bool, bool]:
        """Whether in-place and out-of-place calls are served."""
        flags = {key: self._flag(key) for key in ("inplace", "outofplace")}
        if self.reader.runtime.inplace_flags == "equals":
            return flags["inplace"], not flags["inplace"]
        present = all(key in self.element.attributes for key in flags)
        if present and not any(flags.values()):
            self._tell("no-calls", "inplace=0 and outofplace=0: no call is served")
        # A file made for the first runtime says only inplace; it is refused, but its meaning is plain.
        outofplace = flags["outofplace"] if "outofplace" in self.element.attributes else not flags["inplace"]
        return flags["inplace"], outofplace

    def _flag(self, key: str) -> bool:
        if key not in self.element.attributes:
            return False
        value = self.reader.number(self.element, key)
        if value not in (0, 1, None):
            self._tell("attribute-value", f"{key}={value}; expected 0 or 1")
        return bool(value)

    def _bytes(self) -> tuple[int, int | None]:
        """The message sizes served, both ends inclusive."""
        runtime = self.reader.runtime
        is_classic = runtime.max_bytes_is_exclusive
        low = self._byte_count("minBytes") or 0
        high = self._byte_count("maxBytes")
        if high is None:
            return low, _CLASSIC_MAX_BYTES - 1 if is_classic else None
        if high == runtime.max_bytes_unlimited:
            return low, None
        return low, high - 1 if is_classic else high

    def _byte_count(self, key: str) -> int | None:
        if key not in self.element.attributes:
            return None
        return self.reader.number(self.element, key, _MAX_INT64)

    def check(self, max_channels: int | None) -> None:
        """What is wrong with the attributes as a whole."""
        runtime = self.reader.runtime
        if len(self.name) > runtime.max_name:
            self._tell("limit-name", f"name has {len(self.name)} characters; {runtime.name} keeps {runtime.max_name}")
        if max_channels is not None and self.n_channels > max_channels:
            self._tell(
                "limit-channels",
                f"nchannels={self.n_channels}; {max_channels} are allowed, {self.n_channels - max_channels} fewer",
            )
        n_threads = self.element.attributes.get("nthreads")
        if n_threads is not None and (self.reader.number(self.element, "nthreads") or 0) % 32:
            self._tell("attribute-value", f"nthreads={n_threads}; expected a multiple of 32")
        if self.collective in ROOTED:
            self._tell("any-root", f"{self.collective}: the runtime selects the file whatever the root of the call is")
        self._check_bytes()

    def _check_bytes(self) -> None:
        if self.min_bytes < 0 or not self.n_chunks:
            return
        least = max(self.min_bytes, 1)
        # One byte per element is the finest; a size is served if its elements fill whole chunks.
        served = -(-least // self.n_chunks) * self.n_chunks
        if self.max_bytes is not None and served > self.max_bytes:
            self._tell(
                "byte-range",
                f"no size from {self.min_bytes} to {self.max_bytes} bytes is a multiple of {self.n_chunks} chunks",
            )
            return
        protocol = self.reader.runtime.protocols.get(self.protocol)
        if protocol is not None and served < self.n_chunks * protocol.min_chunk_bytes:
            self._tell(
                "min-bytes",
                f"minBytes={self.min_bytes} admits chunks of {served // self.n_chunks} bytes; {self.protocol} needs "
                f"{protocol.min_chunk_bytes}, which {self.n_chunks * protocol.min_chunk_bytes} bytes give",
            )

    def chunk_factor(self) -> int | None:
        """Chunks per rank block, or None with a finding."""
        if self.collective not in self.reader.runtime.counts_all_ranks:
            return self.n_chunks
        factor, rest = divmod(self.n_chunks, self.n_ranks)
        if rest:
            self._tell(
                "chunk-division",
                f"nchunksperloop={self.n_chunks} is no multiple of {self.n_ranks} ranks; {self.collective} has a "
                "block for each",
            )
            return None
        return factor


def _read_gpus(
    reader: Reader, listing: list[Element], algo: _Algo
) -> tuple[list[Gpu] | None, dict[tuple[int, int, int], tuple[int, int]]]:
    """The <gpu> elements in order of rank; None where one cannot be understood."""
    gpus: dict[int, Gpu] = {}
    lines: dict[tuple[int, int, int], tuple[int, int]] = {}
    shape = Shape(algo.n_ranks, algo.n_channels)
    children = [index for index, element in enumerate(listing) if element.depth == 1]
    for index, end in zip(children, [*children[1:], len(listing)], strict=True):
        element = listing[index]
        if element.tag != "gpu":
            continue
        read_one = read_gpu(reader, element, listing[index + 1 : end], shape)
        if read_one is None:
            reader.is_complete = False
            continue
        gpu, places = read_one
        if gpu.rank in gpus or not 0 <= gpu.rank < algo.n_ranks:
            what = "has a second <gpu>" if gpu.rank in gpus else f"is no rank from 0 to {algo.n_ranks - 1}"
            reader.found.add("gpu-missing", f"id {gpu.rank} {what}", place=element.place)
            reader.is_complete = False
            continue
        gpus[gpu.rank] = gpu
        lines.update(places)
        _check_chunk_counts(algo, element)
    missing = [rank for rank in range(algo.n_ranks) if rank not in gpus]
    if missing and reader.is_complete:
        reader.found.add(
            "gpu-missing", f"rank {missing[0]} has no <gpu> ({len(missing)} missing)", place=algo.element.place
        )
    if missing or not reader.is_complete:
        return None, lines
    return [gpus[rank] for rank in range(algo.n_ranks)], lines


def _check_chunk_counts(algo: _Algo, element: Element) -> None:
    """i_chunks and o_chunks against the collective; only the first runtime refuses a mismatch."""
    if algo.collective is None or not algo.n_chunks:
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


def _programs(
    algo: _Algo, gpus: list[Gpu], lines: Mapping[tuple[int, int, int], tuple[int, int]]
) -> tuple[Program, ...]:
    factor = algo.chunk_factor()
    limit = algo.reader.runtime.max_offset + 1
    if factor is None:
        return ()
    if algo.n_chunks > limit:
        algo.reader.found.add(
            "limit-offset", f"nchunksperloop={algo.n_chunks}; offsets reach {limit} chunks", place=algo.element.place
        )
        return ()
    collective = _collective(algo, gpus, factor)
    kinds = [inplace for inplace, served in ((False, algo.outofplace), (True, algo.inplace)) if served]
    return tuple(
        Program(replace(collective, inplace=inplace), tuple(gpus), algo.protocol or "Simple") for inplace in kinds
    )


def _collective(algo: _Algo, gpus: list[Gpu], factor: int) -> Collective:
    """The collective; its root, which no attribute names, is the one the program serves."""
    name = algo.collective or ""
    if name not in ROOTED:
        return make_collective(name, algo.n_ranks, factor)
    first: Collective | None = None
    for root in _likely_roots(name, gpus):
        collective = make_collective(name, algo.n_ranks, factor, root=root)
        collective = replace(collective, inplace=not algo.outofplace)
        first = first or collective
        report = program_check.examine(Program(collective, tuple(gpus), algo.protocol or "Simple"))
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
