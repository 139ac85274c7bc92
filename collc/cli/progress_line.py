"""One line on a terminal that says how far a long run has come, and goes when it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from collc import progress

# Work shorter than this is not told of, and a line stays so long at least [s].
_PATIENCE = 1.0
_REST = 0.1
_CLEAR = "\r\x1b[K"


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress of what runs inside, if standard error is a terminal; else do nothing at all."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    line = _Line(stream)
    try:
        with progress.heard_by(line.show):
            yield
    finally:
        line.clear()


class _Line:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start = monotonic()
        self._last: float | None = None

    def show(self, text: str) -> None:
        now = monotonic()
        if now - self._start < _PATIENCE or (self._last is not None and now - self._last < _REST):
            return
        self._last = now
        self._stream.write(f"{_CLEAR}{text}, {now - self._start:.0f} s"[:100])
        self._stream.flush()

    def clear(self) -> None:
        if self._last is not None:
            self._stream.write(_CLEAR)
            self._stream.flush()
