"""What a runtime knows of each file when it chooses: the head of every one, all of those that fit.

The runtimes that load a directory first read the first element of each file, and then, of the files
for the right number of ranks, everything. Both may fail, with different consequences.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collc.errors import CollcError, InputError, Place
from collc.runtimes import Runtime
from collc.verify import formats, msccl
from collc.verify.msccl_algo import Algo
from collc.verify.msccl_reader import Reader
from collc.verify.rules import Collector
from collc.verify.xml import elements

# Findings that stand for a refusal by the parser, not for a fault it does not see.
PARSER_REFUSES = frozenset(
    {
        "xml-syntax",
        "attribute-missing",
        "attribute-value",
        "collective-name",
        "threadblock-ids",
        "limit-threadblocks",
        "limit-threadblocks-per-channel",
        "limit-steps",
        "limit-count",
        "limit-elements",
        "step-type",
        "nop-chain",
        "chunk-counts-refused",
    }
)
# Values the parser takes as they come: a flag is any number, and nobody counts channels here.
_TAKEN = ("inplace=", "outofplace=", "nchannels=", "nthreads=")
_NOTHING = re.compile(rb"(?:\s|<!--.*?-->)*+", re.DOTALL)
_HEAD = re.compile(rb'(?:\s|<!--.*?-->)*+<[A-Za-z_][^<>"]*+(?:"[^"]*+"[^<>"]*+)*+>', re.DOTALL)


@dataclass(frozen=True)
class File:
    """A file as a runtime has it before it chooses.

    Attributes:
        refused: why not even its head can be read; nothing else is known then.
        has_algo: whether it has elements, and <algo> is the first; the first runtime crashes where not.
        broken: why reading all of it fails; only asked of files for the right number of ranks.
        launch_fails: why a call that uses it fails.
        collective: collc's name; None where no call asks for what it names; `spelt`: as it names it.
        min_bytes, max_bytes: as the runtime counts, inclusive; None: no limit.
        root: of a collective that has one, where the steps tell.
    """

    path: str
    refused: str | None = None
    has_algo: bool = True
    broken: str | None = None
    launch_fails: str | None = None
    n_ranks: int = 0
    collective: str | None = None
    spelt: str = ""
    n_chunks: int = 0
    n_channels: int = 0
    inplace: bool = False
    outofplace: bool = False
    min_bytes: int = 0
    max_bytes: int | None = None
    root: int | None = None

    @property
    def name(self) -> str:
        """Without its directory."""
        return Path(self.path).name


def listed(directory: str) -> list[str]:
    """The files and links of a directory by path, hidden ones too: what the runtimes take for schedules.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with os.scandir(directory) as entries:
            found = [entry.name for entry in entries if entry.is_symlink() or entry.is_file()]
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"cannot be read: {reason}", Place(directory)) from None
    return [str(Path(directory) / name) for name in sorted(found, key=os.fsencode)]


def read_all(paths: Sequence[str], runtime: Runtime, n_ranks: int | None) -> tuple[File, ...]:
    """The files as a runtime has them in a communicator of so many ranks (None: heads only)."""
    return tuple(_read(path, runtime, n_ranks) for path in paths)


def _read(path: str, runtime: Runtime, n_ranks: int | None) -> File:
    try:
        raw = formats.read(path)
    except CollcError as error:
        return File(path, refused=error.message)
    file = read_head(path, raw, runtime)
    if file.refused is not None or file.n_ranks != n_ranks:
        return file
    return _read_whole(file, raw, runtime)


def read_head(path: str, raw: bytes, runtime: Runtime) -> File:
    """What the first element of a file says."""
    if _NOTHING.fullmatch(raw):
        return File(path, refused="it has no element", has_algo=False)
    found = Collector()
    head = _HEAD.match(raw)
    listing = elements(head[0].removesuffix(b">").removesuffix(b"/") + b"/>" if head else raw[:65536], found)
    if not listing or found.has_errors:
        errors = [finding.message for finding in found.findings() if finding.severity == "error"]
        return File(path, refused=errors[0] if errors else "it has no element")
    if listing[0].tag != "algo":
        # The runtimes take any element for <algo> here, and crash on it later.
        return File(path, refused=f"its first element is <{listing[0].tag[:40]}>; expected <algo>", has_algo=False)
    algo = Algo(Reader(runtime, found), listing[0])
    missing = [key for key in runtime.required if key not in listing[0].attributes and key != "proto"]
    if missing:
        return File(path, refused=f"<algo> has no attribute '{missing[0]}'")
    refused = [finding.message for finding in found.findings() if finding.rule == "collective-name"]
    if not listing[0].attributes["coll"]:
        refused.append("coll is empty")
    if runtime.max_bytes_is_exclusive and algo.max_bytes is not None and algo.min_bytes > algo.max_bytes + 1:
        refused.append(f"minBytes {algo.min_bytes} is above maxBytes {algo.max_bytes + 1}")
    return File(
        path,
        refused=refused[0] if refused else None,
        n_ranks=algo.n_ranks,
        collective=algo.collective,
        spelt=listing[0].attributes.get("coll", "")[:60],
        n_chunks=algo.n_chunks,
        n_channels=algo.n_channels,
        inplace=algo.inplace,
        outofplace=algo.outofplace,
        min_bytes=algo.min_bytes,
        max_bytes=algo.max_bytes,
    )


def _read_whole(file: File, raw: bytes, runtime: Runtime) -> File:
    whole = msccl.read(raw, runtime)
    if whole is None:
        return replace(file, broken="its XML cannot be read to the end")
    broken = [
        f"{finding.message} [{finding.rule}]"
        for finding in whole.findings
        if finding.severity == "error" and finding.rule in PARSER_REFUSES and not finding.message.startswith(_TAKEN)
    ]
    fused = [f.message for f in whole.findings if f.rule == "step-type-unsupported"]
    roots = {program.collective.root for program in whole.programs}
    return replace(
        file,
        broken=broken[0] if broken else None,
        launch_fails=fused[0] if fused else None,
        root=roots.pop() if len(roots) == 1 else None,
    )
