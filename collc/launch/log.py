"""What a debug log (NCCL_DEBUG=INFO) proves of files: which were read, refused, dropped or used."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collc.runtimes.launch import Launch

_RANKS = re.compile(r"\bnranks?[ =](\d{1,9})\b", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Proof:
    """One thing the log says of our files.

    Attributes:
        path: of which file; None for all of them.
        proves: as in the runtime's data: "loaded", "selected", "refused", "dropped", "ran", "off", ...
        line: where it says so, counted from one.
    """

    path: str | None
    proves: str
    words: str
    line: int


@dataclass(frozen=True)
class Reading:
    """What a log proves.

    Attributes:
        proofs: the first of each kind for each file.
        other_directory: the directory the library read, where it is not that of the files.
        ranks: sizes of communicators the log names.
    """

    proofs: tuple[Proof, ...]
    other_directory: str | None
    ranks: tuple[int, ...]

    def as_data(self) -> dict[str, Any]:
        """For a JSON document."""
        return {
            "proofs": [{"path": p.path, "proves": p.proves, "words": p.words, "line": p.line} for p in self.proofs],
            "other_directory": self.other_directory,
            "ranks": list(self.ranks),
        }

    def lines(self) -> list[str]:
        """For eyes."""
        told = [
            f"{Path(p.path).name if p.path else 'the directory'}: {p.proves}: {p.words} (line {p.line})"
            for p in self.proofs
        ]
        if self.other_directory is not None:
            told.append(f"the library read another directory, {self.other_directory}: none of these files")
        if self.ranks:
            told.append(f"communicators of {', '.join(map(str, self.ranks))} ranks")
        return told


def read_log(text: str, told: Launch, paths: Sequence[str]) -> Reading:
    """What a log says of the files at those paths."""
    known = {os.path.realpath(path): path for path in paths}
    directories = {os.path.realpath(Path(path).parent) for path in paths}
    patterns = [(re.compile(line.pattern), line) for line in told.log]
    proofs: dict[tuple[str | None, str], Proof] = {}
    other: str | None = None
    ranks: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        ranks.update(int(found[1]) for found in _RANKS.finditer(line))
        for pattern, what in patterns:
            match = pattern.search(line)
            if match is None:
                continue
            groups = match.groupdict()
            path = known.get(os.path.realpath(groups["path"].strip())) if groups.get("path") else None
            if groups.get("path") and path is None:
                continue
            if groups.get("directory") and os.path.realpath(groups["directory"].strip()) not in directories:
                other = groups["directory"].strip()
                continue
            proofs.setdefault((path, what.proves), Proof(path, what.proves, what.words, number))
    if other is not None:
        # Whatever else it says is about that directory's files.
        return Reading((), other, tuple(sorted(ranks)))
    return Reading(tuple(proofs.values()), None, tuple(sorted(ranks)))
