"""What a checker says: findings with a rule id that never changes, a place, and a counterexample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing a checker found.

    Attributes:
        rule: stable id, such as "deadlock"; documented in `collc.verify.rules`.
        severity: "error" fails the check, "warning" fails it only under --strict.
        message: one sentence with the counterexample.
        line, column: in the file read, counted from one.
        rank, threadblock, step: where in the program.
    """

    rule: str
    severity: Literal["error", "warning"]
    message: str
    line: int | None = None
    column: int | None = None
    rank: int | None = None
    threadblock: int | None = None
    step: int | None = None
