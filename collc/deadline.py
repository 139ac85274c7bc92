"""Until when a run has time: set by whoever was told a limit, asked by whoever can end early with less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from collc.errors import BudgetError

# What is noted of a schedule for which there would have been better ones, had there been time.
CUT_SHORT = "time ran out before the search was done; with more the schedule may come nearer to its bound"

_ends: ContextVar[float | None] = ContextVar("ends", default=None)


def time_left() -> float | None:
    """Seconds to the deadline, zero if it has passed; None without one."""
    ends = _ends.get()
    return None if ends is None else max(0.0, ends - monotonic())


def half_left() -> float | None:
    """Half of that: what a solver gets that does not hear of deadlines, and what follows it has the rest."""
    left = time_left()
    return None if left is None else left / 2


def check() -> None:
    """Stop here where there is no time left.

    Raises:
        BudgetError: so it is.
    """
    if time_left() == 0:
        raise BudgetError("time ran out")


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """The work inside has so many seconds, and no more than the work around it; None for no limit of its own."""
    around = _ends.get()
    own = None if seconds is None else monotonic() + seconds
    token = _ends.set(min((ends for ends in (around, own) if ends is not None), default=None))
    try:
        yield
    finally:
        _ends.reset(token)
