"""The step level: which chunks cross which route at which logical step."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from collc.errors import InputError
from collc.ir.collective import Problem
from collc.ir.flow import OPTIMAL_WITHIN, Bound
from collc.ir.topology import Route


@dataclass(frozen=True, slots=True)
class Send:
    """Chunks `chunk` to `chunk + count - 1` cross one route at one step.

    Attributes:
        step: logical round, from zero.
        chunk: first index in the collective's table; the chunks lie side by side in every buffer.
        route: from whom to whom and by which links.
        reduce: add to what the receiver holds, or replace it.
        count: number of chunks.
        channel: 0 .. n-1; copies of one tree that are to use connections of their own differ here.
    """

    step: int
    chunk: int
    route: Route
    reduce: bool
    count: int = 1
    channel: int = 0


@dataclass(frozen=True)
class Schedule:
    """Sends that together serve a problem. All sends of a step read the state left by the step before.

    Attributes:
        problem: what they serve; each chunk of its table has count 1.
        sends: sorted by (step, chunk, src, dst).
        time: [s/GB of message size] in which the busiest link carries its load: that of all steps, or the
            sum over the steps where they are synchronous.
        notes: what the user should know, a sentence each.
        bound: a limit no schedule can beat; None where none is claimed, or nothing moves.
        synchronous: whether each step ends before the next begins. Otherwise steps only say what comes
            before what, as in a program, whose ranks do not wait for each other.
    """

    problem: Problem
    sends: tuple[Send, ...]
    time: Fraction
    notes: tuple[str, ...] = ()
    bound: Bound | None = None
    synchronous: bool = False

    def __post_init__(self) -> None:
        n_chunks = len(self.problem.collective.chunks)
        for index, send in enumerate(self.sends):
            if send.count < 1 or send.chunk < 0 or send.chunk + send.count > n_chunks:
                raise InputError(
                    f"send {index}: chunks {send.chunk}..{send.chunk + send.count - 1}; the table has {n_chunks}"
                )
            if send.step < 0:
                raise InputError(f"send {index}: step {send.step}; expected zero or more")

    @property
    def is_optimal(self) -> bool:
        """Whether the bound is reached, to one part in a billion."""
        return self.bound is not None and self.time - self.bound.time <= self.time * OPTIMAL_WITHIN

    @property
    def n_steps(self) -> int:
        """Logical rounds."""
        return 1 + max((send.step for send in self.sends), default=-1)
