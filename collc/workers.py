"""Work spread over processes of this machine, or over the workers of a dask cluster: one map, in order.

A run hires workers once; whoever has work to spread asks for the current ones. What all items have in
common goes to each worker once. The answers do not depend on who computes them, nor on how many do;
a worker that dies is replaced and its work done again.
"""

from __future__ import annotations

import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from collc.deadline import time_left, within
from collc.errors import BudgetError, InputError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

# What the name of a dask cluster begins with.
SCHEME = "dask://"

# Of one piece of work, how many workers may die; then it is the work's fault.
MOST_DEATHS = 3


class Workers:
    """One process, this one: every item is worked on when its answer is asked for.

    Attributes:
        count: who works at the same time.
    """

    count = 1

    def map(
        self, function: Callable[[Shared, Item], Answer], shared: Shared, items: Iterable[Item]
    ) -> Iterator[Answer]:
        """The answers to all items, in order.

        Args:
            function: of a module, not of another function.
            shared: what all items need; the same object again is not sent again.

        Raises:
            BudgetError: several workers died of the same item.
            Exception: what the function raised.
        """
        return (function(shared, item) for item in items)

    def close(self) -> None:
        """End what still runs."""


_current: ContextVar[Workers] = ContextVar("workers", default=Workers())  # noqa: B039 (it holds no state)


def current() -> Workers:
    """The workers of this run; inside a worker, that one alone."""
    return _current.get()


def check_engine(engine: str) -> None:
    """Refuse what names no cluster, without asking there.

    Raises:
        InputError: it is not `dask://HOST:PORT`.
    """
    host, _, port = engine.removeprefix(SCHEME).rpartition(":")
    if not engine.startswith(SCHEME) or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"--engine {engine}; expected {SCHEME}HOST:PORT")


@contextmanager
def hired(jobs: int, engine: str | None = None) -> Iterator[Workers]:
    """Workers for what runs inside; afterwards none of their work is left running, however that ended.

    Args:
        jobs: processes of this machine.
        engine: `dask://HOST:PORT` for the workers of that cluster instead.

    Raises:
        InputError: the engine is none, or cannot be used.
    """
    team: Workers
    if engine is not None:
        from collc.cluster import Cluster

        team = Cluster(engine)
    else:
        team = Processes(jobs) if jobs > 1 else Workers()
    token = _current.set(team)
    try:
        yield team
    finally:
        _current.reset(token)
        team.close()


class Processes(Workers):
    """Processes of this machine, started when they are first needed.

    Whoever takes an answer may ask for another map before the next one; what is busy is left to its own.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._members: list[_Member] = []
        self._shared: object = None
        self._packed = b""

    def map(
        self, function: Callable[[Shared, Item], Answer], shared: Shared, items: Iterable[Item]
    ) -> Iterator[Answer]:
        """The answers to all items, in order; see `Workers.map`."""
        from multiprocessing.connection import wait

        if self._shared is not shared:
            self._shared, self._packed = shared, pickle.dumps(shared)
        packed = self._packed
        waiting = deque(enumerate(items))
        deaths: dict[int, int] = {}
        answers: dict[int, tuple[bool, Any]] = {}
        busy: dict[Any, tuple[_Member, int, Any]] = {}
        at = 0
        try:
            while waiting or busy or answers:
                while waiting and len(busy) < self.count:
                    number, item = waiting.popleft()
                    member = self._idle()
                    member.is_busy = True
                    busy[member.connection] = member, number, item
                    # One that died at rest shows it when its answer is read.
                    with suppress(BrokenPipeError):
                        member.give(packed, function, item)
                for ready in wait(list(busy)):
                    member, number, item = busy.pop(ready)
                    try:
                        answers[number] = member.answer()
                    except (EOFError, ConnectionResetError):
                        self._drop(member)
                        deaths[number] = deaths.get(number, 0) + 1
                        if deaths[number] == MOST_DEATHS:
                            raise BudgetError(
                                f"{MOST_DEATHS} worker processes in turn died of the same work; is memory short?"
                            ) from None
                        waiting.appendleft((number, item))
                while at in answers:
                    succeeded, value = answers.pop(at)
                    if not succeeded:
                        raise value
                    yield value
                    at += 1
        finally:
            # Whoever stops early wants none of what is still being done.
            for member, _, _ in busy.values():
                self._drop(member)

    def _idle(self) -> _Member:
        for member in self._members:
            if not member.is_busy:
                return member
        self._members.append(_Member())
        return self._members[-1]

    def _drop(self, member: _Member) -> None:
        self._members.remove(member)
        member.end()

    def close(self) -> None:
        """End all processes."""
        while self._members:
            self._drop(self._members[0])


class _Member:
    """A process and the connection to it.

    Attributes:
        is_busy: whether its answer is waited for.
    """

    def __init__(self) -> None:
        from multiprocessing import get_context

        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._packed = b""
        self.is_busy = False

    def give(self, packed: bytes, function: object, item: object) -> None:
        """Start on an item.

        Args:
            packed: what all items share.
        """
        is_new = self._packed is not packed
        self._packed = packed
        self.connection.send((packed if is_new else None, function, item, time_left()))

    def answer(self) -> tuple[bool, Any]:
        """Whether it succeeded, and the answer or the error; waits for that."""
        succeeded, value = self.connection.recv()
        self.is_busy = False
        return succeeded, value

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        self._process.kill()
        self._process.join()


def _serve(connection: Connection) -> None:
    """A process's life: work on what comes, until there is nobody to ask for more."""
    # Ctrl-C reaches all processes of a terminal; the one that asked ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shared = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            packed, function, item, seconds = connection.recv()
            if packed is not None:
                shared = pickle.loads(packed)
            try:
                with within(seconds):
                    answer = True, function(shared, item)
            except Exception as error:
                answer = False, error
            connection.send(answer)
