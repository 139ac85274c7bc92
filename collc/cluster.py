"""The workers of a dask cluster that runs already, so that many machines share one run's work."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from collc.deadline import time_left, within
from collc.errors import BudgetError, InputError
from collc.workers import SCHEME, Workers, check_engine

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

# How long a scheduler may take to answer [s].
_PATIENCE = 5


class Cluster(Workers):
    """The workers of a cluster.

    Args:
        engine: `dask://HOST:PORT`, where its scheduler listens.

    Raises:
        InputError: no such cluster, one without workers, or one whose workers run another collc.
    """

    def __init__(self, engine: str) -> None:
        check_engine(engine)
        try:
            import distributed
        except ImportError:
            raise InputError(f"--engine {engine} needs dask: pip install 'collc[dask]'") from None
        self._engine = engine
        try:
            # Any, because distributed is typed in part only.
            client: Any = distributed.Client
            self._client = client(f"tcp://{engine.removeprefix(SCHEME)}", timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--engine {engine}: no dask scheduler answers there ({_short(error)})") from None
        try:
            self.count = self._workers()
        except BaseException:
            self.close()
            raise
        self._shared: object = None
        self._kept: Any = None

    def _workers(self) -> int:
        """How many tasks the cluster works on at the same time.

        Raises:
            InputError: none, or with another collc.
        """
        threads = self._client.nthreads()
        if not threads:
            raise InputError(f"--engine {self._engine}: the cluster has no workers")
        own = _teller()()
        told = self._client.run(_teller(), on_error="return")
        for worker, theirs in sorted(told.items()):
            if theirs != own:
                found = theirs if isinstance(theirs, str) else f"no collc that answers ({_short(theirs)})"
                raise InputError(f"--engine {self._engine}: {worker} has {found}; expected {own}")
        return sum(threads.values())

    def map(
        self, function: Callable[[Shared, Item], Answer], shared: Shared, items: Iterable[Item]
    ) -> Iterator[Answer]:
        """The answers to all items, in order; see `Workers.map`."""
        from distributed import KilledWorker

        if self._kept is None or self._shared is not shared:
            self._shared = shared
            # The result of a task, unlike data put on workers, is made again where a worker dies with it.
            self._kept = self._submit(pickle.loads, pickle.dumps(shared))
        futures = [self._submit(_apply, function, self._kept, item, time_left()) for item in items]
        try:
            for future in futures:
                yield future.result()
        except KilledWorker:
            raise BudgetError("several dask workers in turn died of the same work; is memory short?") from None
        finally:
            # Whoever stops early wants none of what is still being done.
            self._client.cancel(futures, force=True)

    def _submit(self, function: Any, *arguments: Any) -> Any:
        with warnings.catch_warnings():
            # What all items share may be large; it travels once.
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self._client.submit(function, *arguments, pure=False, retries=0)

    def close(self) -> None:
        """Leave the cluster; it goes on without us."""
        self._client.close()


def _teller() -> Callable[[], str]:
    """What says which collc a worker has, made so that it travels whole: a worker may have none."""

    def tell() -> str:
        from collc import __version__, cache

        return f"collc {__version__} ({cache.fingerprint()[:12]})"

    return tell


def _apply(function: Callable[[Any, Any], Any], shared: Any, item: Any, seconds: float | None) -> Any:
    with within(seconds):
        return function(shared, item)


def _short(error: object) -> str:
    """The first line of what went wrong."""
    return (str(error).splitlines() or [type(error).__name__])[0]
