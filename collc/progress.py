"""Word of how far a run has come, for whoever shows it; nobody listens unless the command line does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def report(text: str) -> None:
    """Tell what is being done, or how good the best so far is; often, and at no cost where nobody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """What runs inside is heard."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
