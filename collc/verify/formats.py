"""Reads files and directories of them: the format is told by the content, never by the name."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from collc import runtimes
from collc.errors import InputError, Place, UnsupportedError
from collc.verify import contents
from collc.verify.findings import Finding
from collc.verify.report import LATER, FileReport, Request
from collc.verify.rules import RULES

# A parser that holds at most 4095 elements a rank cannot use more; also what fits in memory with ease.
MAX_FILE_BYTES = 256 * 2**20

_TUNER_WORDS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")


def examine(path: str, request: Request) -> tuple[FileReport, ...]:
    """The reports on a file, or on every file of a directory.

    Raises:
        InputError: it cannot be read, or is in no format collc knows.
        UnsupportedError: it is in a format that collc does not read yet.
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
    """The format of a file by its content: msccl-xml, collc, mscclpp, tuner or unknown."""
    head = raw.lstrip()
    if head.startswith(b"<"):
        return "msccl-xml"
    if head.startswith(b"{"):
        return _detect_json(raw)
    lines = [line for line in raw[:65536].splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    words = [word.strip() for word in lines[0].split(b",")] if lines else []
    if len(words) >= 6 and words[0].decode("ascii", "replace") in (*_TUNER_WORDS, "collective_type", "collective"):
        return "tuner"
    return "unknown"


def _detect_json(raw: bytes) -> str:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        # Broken JSON is refused by collc's own reader, which says where it breaks.
        return "collc" if b'"collc"' in raw[:4096] else "unknown"
    if not isinstance(document, dict):
        return "unknown"
    return "collc" if "collc" in document else "mscclpp" if "gpus" in document else "unknown"


def examine_bytes(raw: bytes, path: str, request: Request) -> FileReport:
    """The report on what a file holds.

    Raises:
        InputError: in no format collc knows, or not in the one the request names.
        UnsupportedError: in a format that collc does not read yet.
    """
    found = detect(raw)
    if found in LATER:
        raise UnsupportedError(f"is {LATER[found]}", Place(path))
    if found == "unknown":
        raise InputError(f"{_looks(raw)}; expected an MSCCL XML or one of collc's own schedules", Place(path))
    if request.runtime in LATER:
        raise InputError(f"is not what the runtime '{request.runtime}' reads", Place(path))
    read_as = contents.examine_xml if found == "msccl-xml" else contents.examine_own
    return read_as(raw, path, request)


def _looks(raw: bytes) -> str:
    if not raw.strip():
        return "is empty"
    return "is a binary file" if b"\0" in raw[:65536] else "is in no format collc knows"


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
    is_loaded = request.runtime in runtimes.names() or "msccl-xml" in kinds.values()
    if not kinds:
        raise InputError("holds no file; expected schedules", Place(path))
    reports = [
        _stray(file, kind) if is_loaded and kind != "msccl-xml" else examine_bytes(read(file), file, request)
        for file, kind in kinds.items()
    ]
    return tuple(_together(reports))


def _stray(path: str, kind: str) -> FileReport:
    own = {"unknown": "is no MSCCL XML", "collc": "is collc's own"}
    what = own.get(kind) or f"is {LATER[kind].partition(';')[0]}"
    message = f"{what}; the runtime parses every file of its directory, and refuses this one"
    return FileReport(path, "unknown", (_finding("stray-file", message),))


def _together(reports: Sequence[FileReport]) -> Iterator[FileReport]:
    """The reports, with what is wrong between the files of one directory."""
    loaded: list[FileReport] = []
    for report in reports:
        found = [overlap for earlier in loaded if (overlap := _overlap(earlier, report))]
        if report.runtime is not None:
            loaded.append(report)
            limit = runtimes.load(report.runtime).with_limits(report.limits).max_files
            if len(loaded) > limit:
                found.append(_finding("limit-files", f"is file {len(loaded)}; the runtime loads {limit}"))
        yield replace(report, findings=(*report.findings, *found)) if found else report


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
    # For collectives with a root the runtimes count one rank's block, of which there are n.
    if report.table is None:
        return 1
    return report.table.chunk_factor if report.table.root is not None else report.table.size_chunks


def _finding(rule: str, message: str) -> Finding:
    return Finding(rule, RULES[rule].severity, message)
