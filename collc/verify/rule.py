"""What a rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        severity: of its findings.
        meaning: what is wrong where it speaks.
        why: what happens to whoever runs it all the same.
    """

    severity: Literal["error", "warning"]
    meaning: str
    why: str


def error(meaning: str, why: str) -> Rule:
    """A rule whose findings fail the check."""
    return Rule("error", meaning, why)


def warning(meaning: str, why: str) -> Rule:
    """A rule whose findings fail the check under --strict alone."""
    return Rule("warning", meaning, why)
