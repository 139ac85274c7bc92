"""Which schedule to keep: every synthesizer that serves the problem is asked, and the best by prediction wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from collc import cost, deadline, progress, registry, verify, workers
from collc.errors import BudgetError, InputError, UnsupportedError
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.ir.schedule import Schedule
from collc.request import Clock, Request
from collc.units import format_rate

# Two schedules of equal bandwidth are told apart by their time at this size [bytes].
_TIE_BYTES = 2**20

# A size in a sweep is given to a file only if float32 calls of that size divide into its chunks.
ELEMENT_BYTES = 4

# Why a synthesizer that a deadline stopped was passed over.
OUT_OF_TIME = "time ran out"

# Above this many ranks these are asked first, and one that reaches the bound ends the search: the others
# would take longer than their latency could win back.
_MANY_RANKS = 128
_FIRST = ("forestcoll", "mcf")
_REACHED = "not asked: the optimum is reached"

# A better schedule may take so many times as long to check as the first.
_CHECKS = 4

# Share of the predicted time that latency must have for lower schedules of less bandwidth to be asked for.
_WORTHWHILE = Fraction(1, 50)

_Made = FlowSchedule | Schedule


@dataclass(frozen=True)
class Candidate:
    """A checked schedule and who made it.

    Attributes:
        problem: what was asked; a schedule of steps has cut its chunks.
    """

    synthesizer: str
    options: Mapping[str, str]
    problem: Problem
    made: FlowSchedule | Schedule

    @property
    def label(self) -> str:
        """How a user asks for it."""
        return " ".join([self.synthesizer, *(f"-o {key}={value}" for key, value in self.options.items())])

    def time_us(self, nbytes: int | None) -> tuple[Fraction, Fraction]:
        """What is compared: predicted time at a size [us]; without one, time per GB and then latency."""
        if nbytes is None:
            return self.made.time, cost.predict(self.made, _TIE_BYTES)
        return cost.predict(self.made, nbytes), self.made.time


def synthesize(problem: Problem, name: str, options: Mapping[str, str], clock: Clock) -> Candidate:
    """What one synthesizer makes of a problem, checked.

    Raises:
        InputError: no such synthesizer or option.
        UnsupportedError: it does not serve this problem; says why.
        VerificationError: what it made is wrong (a bug of the synthesizer).
    """
    synthesizer = registry.load("synth", name, **options)
    if reason := synthesizer.supports(problem):
        raise UnsupportedError(f"{name}: {reason}")
    if deadline.time_left() is None or not hasattr(synthesizer, "first"):
        return Candidate(name, options, problem, _checked(synthesizer.run, problem, clock))
    # Something to fall back on; checking it tells how long checking takes.
    first = _checked(synthesizer.first, problem, clock)
    if first.is_optimal:
        return Candidate(name, options, problem, first)
    reserve = _CHECKS * clock.seconds["verify"]
    try:
        with deadline.within(max(0.0, (deadline.time_left() or 0.0) - reserve)):
            return Candidate(name, options, problem, _checked(synthesizer.run, problem, clock))
    except BudgetError:
        return Candidate(name, options, problem, first)


def _checked(run: Callable[[Problem], _Made], problem: Problem, clock: Clock) -> _Made:
    made = clock.run("synthesize", lambda: run(problem))
    progress.report("checking the schedule")
    clock.run("verify", lambda: verify.check(made))
    return made


def candidates(request: Request, clock: Clock) -> tuple[list[Candidate], dict[str, str]]:
    """The schedules to choose from, best first, and why the others are out.

    Raises:
        InputError: no such synthesizer or option.
        UnsupportedError: no synthesizer serves the problem.
        BudgetError: time ran out before there was any schedule.
    """
    left = deadline.time_left()
    # Writing files and reading them back takes up to as long as making what they hold.
    share = left if left is None or request.target is None else left / 2
    with workers.hired(request.jobs, request.engine), deadline.within(share):
        return _asked(request, clock)


def _asked(request: Request, clock: Clock) -> tuple[list[Candidate], dict[str, str]]:
    passed_over: dict[str, str] = {}
    if request.synthesizer != "auto":
        found = [synthesize(request.problem, request.synthesizer, request.options, clock)]
        try:
            # What came before a deadline stays.
            found.extend(_variants(found[0], request, clock))
        except BudgetError:
            passed_over["other options"] = OUT_OF_TIME
        return found, passed_over | _ranked(found, request.problem.nbytes)
    if request.options:
        raise InputError("options belong to one synthesizer; name it with -s")
    found = []
    not_asked = _REACHED
    try:
        for name, result in _attempts(request, clock):
            if isinstance(result, UnsupportedError):
                passed_over[name] = str(result).removeprefix(f"{name}: ")
                continue
            found.append(result)
            found.extend(_variants(result, request, clock))
            if result.made.is_optimal and request.problem.topology.n_ranks > _MANY_RANKS:
                break
    except BudgetError:
        if not found:
            raise
        not_asked = OUT_OF_TIME
    if not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in passed_over.items())
        raise UnsupportedError(f"no synthesizer serves this: {reasons}")
    asked = {*passed_over, *(candidate.synthesizer for candidate in found)}
    passed_over |= {name: not_asked for name in registry.names("synth") if name not in asked}
    return found, passed_over | _ranked(found, request.problem.nbytes)


def _ranked(found: list[Candidate], nbytes: int | None) -> dict[str, str]:
    """Put the best first, each with the best bound that any proves; why the others are not."""
    found[:] = [replace(one, made=_bounded(one.made, found)) for one in found]
    found.sort(key=lambda candidate: candidate.time_us(nbytes))
    return {
        other.label: _why_slower(found[0], other, nbytes)
        + (f"; {OUT_OF_TIME}" if deadline.CUT_SHORT in other.made.notes else "")
        for other in found[1:]
    }


def _bounded(made: _Made, others: list[Candidate]) -> _Made:
    """A schedule with the highest limit that is checked for its problem; those of trees alone are no such limits."""
    if not isinstance(made, FlowSchedule) or made.bound is None:
        return made
    best = made.bound
    for other in (candidate.made for candidate in others):
        is_like = isinstance(other, FlowSchedule) and other.problem == made.problem
        limit = other.bound if is_like else None
        if limit and limit.time > best.time and not getattr(limit.witness, "rooted", False):
            best = limit
    return made if best is made.bound else replace(made, bound=best)


def _variants(first: Candidate, request: Request, clock: Clock) -> Iterator[Candidate]:
    """What else its synthesizer offers for small messages, as long as each has less latency than the one before."""
    nbytes = request.sizes[0] if request.sizes else request.problem.nbytes
    synthesizer = registry.load("synth", first.synthesizer)
    latency = cost.predict(first.made, 0)
    if nbytes is None or request.options or latency < _WORTHWHILE * first.time_us(nbytes)[0]:
        return
    for options in synthesizer.variants(first.made) if hasattr(synthesizer, "variants") else ():
        try:
            variant = synthesize(request.problem, first.synthesizer, options, clock)
        except UnsupportedError:
            continue
        yield variant
        before, latency = latency, cost.predict(variant.made, 0)
        if latency >= before:
            return


def _attempts(request: Request, clock: Clock) -> Iterator[tuple[str, Candidate | UnsupportedError]]:
    """What each synthesizer makes of the problem, or why it does not serve it: side by side where there are workers."""
    names = registry.names("synth")
    if request.problem.topology.n_ranks > _MANY_RANKS:
        # One after another, each with the workers for itself.
        for name in sorted(names, key=lambda name: (name not in _FIRST, name)):
            yield name, _attempt(request.problem, name, clock)
        return
    for name, (result, seconds) in zip(names, workers.current().map(_timed, request.problem, names), strict=True):
        for stage, spent in seconds.items():
            clock.seconds[stage] += spent
        yield name, result


def _attempt(problem: Problem, name: str, clock: Clock) -> Candidate | UnsupportedError:
    if not getattr(registry.plugin("synth", name), "in_auto", True):
        return UnsupportedError("tried only where -s names it")
    try:
        return synthesize(problem, name, {}, clock)
    except UnsupportedError as error:
        return error


def _timed(problem: Problem, name: str) -> tuple[Candidate | UnsupportedError, dict[str, float]]:
    clock = Clock()
    return _attempt(problem, name, clock), clock.seconds


def _why_slower(best: Candidate, other: Candidate, nbytes: int | None) -> str:
    (kept, tie), (time, other_tie) = best.time_us(nbytes), other.time_us(nbytes)
    if time != kept:
        return f"predicted {float(time / kept):.3g} times the time" if kept else "moves more"
    if other_tie == tie:
        return "as fast"
    if nbytes is None:
        return f"as fast for large messages, but {float(other_tie):.4g} us against {float(tie):.4g} us at 1 MiB"
    return f"as fast, but {format_rate(1 / other_tie)} GB/s against {format_rate(1 / tie)} GB/s for large messages"


@dataclass(frozen=True)
class Range:
    """Message sizes and the candidates for them.

    Attributes:
        ranked: best first; the others are for a runtime that cannot hold the best.
        low, high: sizes, both inclusive [bytes]; None for all sizes.
    """

    ranked: tuple[Candidate, ...]
    low: int | None = None
    high: int | None = None


def ranges(ranked: Sequence[Candidate], sizes: tuple[int, int] | None) -> list[Range]:
    """The candidates of each size range, best first; ranges touch, and none overlap.

    Args:
        ranked: best first at the largest size.
        sizes: least and most [bytes]; None for one range of all sizes.
    """
    if sizes is None:
        return [Range(tuple(ranked))]
    low, high = sizes
    found: list[Range] = []
    for size in _steps(low, high):
        order = tuple(sorted(ranked, key=lambda one: (not _divides(one, size), one.time_us(size))))
        if not found or found[-1].ranked[0] is not order[0]:
            if found:
                found[-1] = replace(found[-1], high=size - 1)
            found.append(Range(order, size, high))
    return found


def _steps(low: int, high: int) -> list[int]:
    """The least size, the powers of two above it, and the largest."""
    powers = [1 << bits for bits in range(low.bit_length(), high.bit_length() + 1) if low < 1 << bits < high]
    return [low, *powers, high] if high > low else [low]


def _divides(candidate: Candidate, nbytes: int) -> bool:
    return candidate.made.problem.collective.size_chunks * ELEMENT_BYTES <= nbytes
