"""The errors a user can meet, each with its exit code (the contract's table of exit codes).

Library code raises one of these and never prints or exits; `collc.cli` catches `CollcError` once,
around everything. Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Where in the user's input something was found.

    `key` names the item within the file (`links[3].bandwidth`); line and column count from one.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        spot = self.file or ""
        if self.line is not None:
            spot += f":{self.line}" if spot else f"line {self.line}"
            if self.column is not None:
                spot += f":{self.column}"
        return ": ".join(part for part in (spot, self.key or "") if part)


class CollcError(Exception):
    """Base of every error a user can meet.

    Args:
        message: one sentence: what was found, what was expected.
        place: where it was found; printed in front of the message.
    """

    exit_code = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place

    def __str__(self) -> str:
        place = str(self.place) if self.place else ""
        return f"{place}: {self.message}" if place else self.message


class VerificationError(CollcError):
    """A schedule or a file is wrong; the message carries a counterexample."""

    exit_code = 1


class InputError(CollcError):
    """The user's input is wrong: a file, a key, an option."""

    exit_code = 2


class UnsupportedError(CollcError):
    """The request is valid, but this synthesizer or backend cannot serve it."""

    exit_code = 2


class InfeasibleError(CollcError):
    """Proven: no such schedule exists."""

    exit_code = 3


class BudgetError(CollcError):
    """A time or size budget ran out before any answer was found: neither yes nor no."""

    exit_code = 4


def nearest(word: str, known: Iterable[str]) -> str:
    """The ending ` (did you mean 'x'?)` for a misspelt word, or the list of known words.

    >>> nearest("bandwith", ["bandwidth", "latency"])
    "; did you mean 'bandwidth'?"
    >>> nearest("zzz", ["bandwidth", "latency"])
    '; expected one of bandwidth, latency'
    """
    choices = sorted(known)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; expected one of {', '.join(choices)}"
