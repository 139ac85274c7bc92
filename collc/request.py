"""What is asked of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, TypeVar

from collc import registry, runtimes, verify
from collc.errors import InputError, nearest
from collc.ir.collective import Collective, Problem, padded
from collc.verify.report import FileReport

T = TypeVar("T")

# `-b` takes the runtimes of the msccl backend by their own names.
BACKENDS = ("classic", "executor", "json", "plan", "rccl", "route")


@dataclass(frozen=True)
class Target:
    """What files are wanted.

    Attributes:
        backend: one of `BACKENDS`.
        protocol: Simple, LL or LL128.
        chunks: chunks per rank block, see `RoundWeights`.
        instances: copies of every tree on channels of their own.
        inplace: True: in-place calls only; False: out-of-place only; None: both.
        limits: limit -> value, for a runtime built with others.
    """

    backend: str = "executor"
    protocol: str = "Simple"
    chunks: Literal["pow2", "exact"] | int = "pow2"
    instances: int = 1
    inplace: bool | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"backend '{self.backend}'" + nearest(self.backend, BACKENDS))
        if self.instances < 1:
            raise InputError(f"instances {self.instances}; expected 1 or more")
        if self.rules is not None:
            runtimes.load(self.rules).with_limits(self.limits)

    @property
    def runtime(self) -> runtimes.Runtime:
        """The runtime that is to load the files, with the limits it was built with."""
        return runtimes.load(self.backend).with_limits(self.limits)

    @property
    def min_chunk_bytes(self) -> int:
        """The least a transfer moves under the protocol [bytes]."""
        return self.runtime.protocols[self.protocol].min_chunk_bytes

    @property
    def rules(self) -> str | None:
        """By whose rules the files are read back; None for collc's own."""
        return self.backend if self.backend in runtimes.names() else None

    def writes(self, collective: Collective) -> Collective:
        """What the files say they compute: for the XML runtimes, an all-to-all-v is an all-to-all in part."""
        return padded(collective) if self.rules is not None and collective.name == "alltoallv" else collective

    def read_back(self, text: str, name: str, collective: Collective) -> FileReport:
        """What the reader of such a file says of one that was made for the collective.

        Raises:
            VerificationError: it would be refused, or does the wrong thing.
        """
        written = self.writes(collective)
        conditions = None if written is collective else written
        return verify.check_text(text, self.rules, name=name, limits=self.limits, conditions=conditions)

    def load(self) -> Any:
        """The backend."""
        if self.backend in runtimes.names():
            return registry.load("backend", "msccl", runtime=self.backend)
        if self.backend == "route":
            return registry.load("backend", "route", layers=self.limits.get("layers"))
        return registry.load("backend", self.backend)


@dataclass(frozen=True)
class Request:
    """What `compile_request` is asked for.

    Attributes:
        problem: at the asked size; in a sweep at the largest.
        synthesizer: a name, or "auto" for the best by prediction.
        options: the synthesizer's.
        sizes: a sweep of message sizes (least, most) [bytes]; a file for each range that has its own best.
        target: the files wanted; None for the report alone.
        jobs: processes of this machine among which work is spread.
        engine: `dask://HOST:PORT` for the workers of that cluster instead.
    """

    problem: Problem
    synthesizer: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    target: Target | None = None
    jobs: int = 1
    engine: str | None = None


class Clock:
    """Seconds spent per stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("load", "synthesize", "lower", "verify", "emit"), 0.0)

    def run(self, stage: str, work: Callable[[], T]) -> T:
        """The result of the work; its time is added to the stage's."""
        start = perf_counter()
        try:
            return work()
        finally:
            self.seconds[stage] += perf_counter() - start
