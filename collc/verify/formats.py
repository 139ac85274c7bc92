"""Reads files and directories of them: the format is told by the content, never by the name."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from collc import runtimes
from collc.errors import InputError, Place
from collc.runtimes import plans, tuners
from collc.verify import contents, fast, foreign, route
from collc.verify.findings import Finding
from collc.verify.report import FileReport, Request
from collc.verify.rules import RULES

# A parser that holds at most 4095 elements a rank cannot use more; also what fits in memory with ease.
MAX_FILE_BYTES = 256 * 2**20

# Format -> what a file of it is called, and who examines it.
_FORMATS: Mapping[str, tuple[str, Callable[[bytes, str, Request], FileReport]]] = {
    "msccl-xml": ("an MSCCL XML", contents.examine_xml),
    "collc": ("collc's own", contents.examine_own),
    "alltoall": ("an all-to-all plan", fast.examine),
    "routes": ("a file of source routes", route.examine),
    "mscclpp": ("an MSCCL++ execution plan", foreign.examine_plan),
    "tuner": ("a tuner table", foreign.examine_table),
}
_LEAST_FIELDS = 6  # a line of text with so many commas is taken for one of a tuner table


def examine(path: str, request: Request) -> tuple[FileReport, ...]:
    """The reports on a file, or on every file of a directory.

    Raises:
        InputError: it cannot be read, or is in no format collc knows.
    """
    if not Path(path).is_dir():
        return (examine_bytes(read(path), path, request),)
    return _examine_directory(path, request)


def read(path: str) -> bytes:
    """The bytes of a regular file, or of standard input for `-`.

    Raises:
        InputError: missing, unreadable, not a regular file, or absurdly long.
    """
    file = Path(path)
    try:
        if path == "-":
            return sys.stdin.buffer.read(MAX_FILE_BYTES)
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a regular file", Place(path))
        if status.st_size > MAX_FILE_BYTES:
            raise InputError(f"has {status.st_size} bytes; collc reads up to {MAX_FILE_BYTES}", Place(path))
        return file.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", Place(path)) from None


def detect(raw: bytes) -> str:
    """The format of a file by its content: msccl-xml, collc, alltoall, routes, mscclpp, tuner or unknown."""
    if raw.startswith(fast.MAGIC):
        return "alltoall"
    head = raw.lstrip()
    if head.startswith(b"<"):
        return "msccl-xml"
    if head.startswith(b"{"):
        return _detect_json(raw)
    if b"\0" in raw[:65536]:
        return "unknown"
    lines = [line for line in raw[:65536].splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    return "tuner" if lines and lines[0].count(b",") >= _LEAST_FIELDS - 1 else "unknown"


def _detect_json(raw: bytes) -> str:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        # Broken JSON is refused by the reader of what it was meant to be, which says where it breaks.
        return "collc" if b'"collc"' in raw[:4096] else "mscclpp" if b'"gpus"' in raw else "unknown"
    if not isinstance(document, dict):
        return "unknown"
    if document.get("kind") in (fast.KIND, route.KIND):
        return "alltoall" if document["kind"] == fast.KIND else "routes"
    return "collc" if "collc" in document else "mscclpp" if "gpus" in document else "unknown"


def format_read_by(runtime: str | None) -> str | None:
    """The format that a consumer reads; None for none named."""
    for form, names in (("msccl-xml", runtimes.names()), ("mscclpp", plans.names()), ("tuner", tuners.names())):
        if runtime in names:
            return form
    return None


def examine_bytes(raw: bytes, path: str, request: Request) -> FileReport:
    """The report on what a file holds.

    Raises:
        InputError: in no format collc knows, or not in the one the request names.
    """
    found = detect(raw)
    wanted = format_read_by(request.runtime)
    looks = _looks(raw)
    if found == "unknown" and wanted in ("mscclpp", "tuner") and looks == _STRANGE:
        found = wanted
    if found == "unknown":
        known = ", ".join(what for what, _ in _FORMATS.values())
        raise InputError(f"{looks}; expected {known}", Place(path))
    what, examine_as = _FORMATS[found]
    if wanted not in (None, found) and found not in ("collc", "alltoall", "routes"):
        raise InputError(f"is {what}, not what the runtime '{request.runtime}' reads", Place(path))
    return examine_as(raw, path, request)


_STRANGE = "is in no format collc knows"


def _looks(raw: bytes) -> str:
    if not raw.strip():
        return "is empty"
    return "is a binary file" if b"\0" in raw[:65536] else _STRANGE


# --- directories ---------------------------------------------------------------------------------


def _examine_directory(path: str, request: Request) -> tuple[FileReport, ...]:
    """Every file of a directory, and what the files are together.

    A runtime that loads a directory parses every file and link in it, hidden ones too, whatever its name.
    """
    try:
        with os.scandir(path) as entries:
            names = sorted(e.name for e in entries if e.is_file() or (e.is_symlink() and not e.is_dir()))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", Place(path)) from None
    # Not all files at once: a directory may be the wrong one, and full of others' large files.
    kinds = {file: detect(read(file)) for file in (str(Path(path) / name) for name in names)}
    if not kinds:
        raise InputError("holds no file; expected schedules", Place(path))
    loaded = _loaded_whole(request.runtime, kinds.values())
    reports = [
        examine_bytes(read(file), file, request) if loaded in (None, kind) else _stray(file, kind, loaded)
        for file, kind in kinds.items()
    ]
    return tuple(_together(reports))


def _loaded_whole(runtime: str | None, kinds: Collection[str]) -> str | None:
    """The format a runtime expects of every file of its directory; None where it does not read directories."""
    if runtime in runtimes.names() or (runtime is None and "msccl-xml" in kinds):
        return "msccl-xml"
    return "mscclpp" if runtime in plans.names() and plans.load(runtime).loads_directory else None


def _stray(path: str, kind: str, loaded: str) -> FileReport:
    what = f"is {_FORMATS[kind][0]}" if kind in _FORMATS else f"is not {_FORMATS[loaded][0]}"
    message = f"{what}; the runtime parses every file of its directory, and stops at this one"
    return FileReport(path, "unknown", (_finding("stray-file", message),))


def _together(reports: Sequence[FileReport]) -> Iterator[FileReport]:
    """The reports, with what is wrong between the files of one directory."""
    loaded: list[FileReport] = []
    for report in reports:
        found = [overlap for earlier in loaded if (overlap := _overlap(earlier, report))]
        if report.runtime is not None:
            found += _beside(loaded, report)
            loaded.append(report)
        yield replace(report, findings=(*report.findings, *found)) if found else report


def _beside(loaded: Sequence[FileReport], report: FileReport) -> Iterator[Finding]:
    """What is wrong with a file beside those before it, besides the calls they share."""
    name = report.runtime or ""
    if name in runtimes.names():
        limit = runtimes.load(name).with_limits(report.limits).max_files
        if len(loaded) >= limit:
            yield _finding("limit-files", f"is file {len(loaded) + 1}; the runtime loads {limit}")
    first = loaded[0] if loaded else None
    if first is None or name not in plans.names():
        return
    other = Path(first.path).name
    if plans.load(name).loads_directory and report.ranks != first.ranks:
        yield _finding("plan-ranks-differ", f"is for {report.ranks} ranks; {other} is for {first.ranks}")
    if report.in_place != first.in_place:
        kinds = [("in" if one.in_place else "out of") + " place" for one in (report, first)]
        yield _finding("plan-calls-mixed", f"is for calls {kinds[0]}; {other} is for calls {kinds[1]}")


def _overlap(earlier: FileReport, report: FileReport) -> Finding | None:
    """A call that both files would serve, if there is one."""
    if report.runtime is None or report.collective is None:
        return None
    if (report.runtime, report.collective, report.ranks) != (earlier.runtime, earlier.collective, earlier.ranks):
        return None
    kinds = ((earlier.in_place, report.in_place), (earlier.out_of_place, report.out_of_place))
    if not any(both == (True, True) for both in kinds):
        return None
    # The least size in both ranges that fills whole chunks of both.
    grain = math.lcm(_grain(earlier), _grain(report))
    nbytes = -(-max(earlier.min_bytes or 0, report.min_bytes or 0, 1) // grain) * grain
    if any(one.max_bytes is not None and nbytes > one.max_bytes for one in (earlier, report)):
        return None
    other = Path(earlier.path).name
    return _finding("overlapping-ranges", f"serves {report.collective} of {nbytes} bytes, and so does {other}")


def _grain(report: FileReport) -> int:
    """Message sizes the file serves are multiples of this, or of more."""
    if report.grain is not None:
        return report.grain
    # For collectives with a root the runtimes count one rank's block, of which there are n.
    if report.table is None:
        return 1
    return report.table.chunk_factor if report.table.root is not None else report.table.size_chunks


def _finding(rule: str, message: str) -> Finding:
    return Finding(rule, RULES[rule].severity, message)
