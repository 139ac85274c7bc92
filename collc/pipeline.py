"""The road from a problem to files: the only file that knows the order of the stages.

    problem -> synth/NAME -> flow -> round_weights -> lower_flow -> steps -> lower_schedule
                         or steps -> loosen_steps ---------------->
            -> threadblocks -> fuse -> backend/NAME -> text, read back by the runtime's rules

The checker of its level runs after every stage, and the file's on the text, before anybody writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collc import registry, verify
from collc.choose import ELEMENT_BYTES, Candidate, Range, candidates, ranges, synthesize
from collc.cost import bandwidth_time, steps_time
from collc.errors import UnsupportedError
from collc.ir.flow import FlowSchedule
from collc.ir.program import Compiled, Program
from collc.ir.schedule import Schedule
from collc.passes.fuse import Fuse
from collc.passes.loosen_steps import LoosenSteps
from collc.passes.lower_flow import LowerFlow
from collc.passes.lower_schedule import LowerSchedule
from collc.passes.round_weights import RoundWeights
from collc.request import Clock, Request, Target
from collc.split import by_group


@dataclass(frozen=True)
class File:
    """A file that was emitted and read back.

    Attributes:
        name, text: what is to be written.
        candidate: whose schedule it holds.
        compiled: what it was written from.
        report: the reading checker's.
    """

    name: str
    text: str
    candidate: Candidate
    compiled: Compiled
    report: Any


@dataclass(frozen=True)
class Outcome:
    """What came of a request.

    Attributes:
        best: the schedule kept (in a sweep, that of the largest size).
        passed_over: synthesizer -> why another was kept.
        files: empty where none were wanted.
        warnings: what the user should know, a sentence each.
        seconds: per stage.
    """

    best: Candidate
    passed_over: Mapping[str, str]
    files: tuple[File, ...]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]


def compile_request(request: Request, clock: Clock) -> Outcome:
    """Synthesize, lower, check, emit and check again.

    Raises:
        InputError: no such synthesizer or option.
        UnsupportedError: no synthesizer serves the problem, or the runtime cannot hold any schedule.
        InfeasibleError: proven impossible.
        BudgetError: time ran out before there was any schedule.
        VerificationError: a checker found something wrong (a bug of collc); nothing is to be written.
    """
    target = request.target
    collective = request.problem.collective
    if target is not None and (reason := target.load().supports(target.writes(collective).name)):
        raise UnsupportedError(reason)
    request, remarks = _forwarding_only(request)
    ranked, passed_over = candidates(request, clock)
    found = ranges(ranked, request.sizes)
    if target is None:
        best = found[-1].ranked[0]
        return Outcome(best, passed_over, (), best.made.notes, clock.seconds)
    lowered = [_lower_first(part, target, clock, passed_over) for one in found for part in _parts(one, target)]
    files = _emit(lowered, target, clock)
    best = lowered[-1][0]
    of_schedules = [*best.made.notes, *(note for candidate, _ in lowered for note in candidate.made.notes)]
    notes = dict.fromkeys([*remarks, *of_schedules, *(note for file in files for note in _notes(file, target))])
    return Outcome(best, passed_over, files, tuple(notes), clock.seconds)


def _forwarding_only(request: Request) -> tuple[Request, tuple[str, ...]]:
    """The request on switches that only forward, where its files cannot make them add or copy; what to say of it."""
    problem, target = request.problem, request.target
    fabric = problem.topology.without_branching()
    if fabric is problem.topology or target is None or target.load().level != "program":
        return request, ()
    if request.options.get("in_network") == "true":
        raise UnsupportedError(f"{target.backend} files cannot make switches add or copy; leave out in_network=true")
    plain = replace(request, problem=replace(problem, topology=fabric))
    if not any(before > 1 < after for before, after in problem.collective.shapes):
        return plain, ()
    return plain, (f"{target.backend} files cannot make switches add or copy; schedule and bound do without",)


def _notes(file: File, target: Target) -> tuple[str, ...]:
    program = file.compiled.program
    if program is None:
        return ()
    if file.compiled.made.problem.topology is not file.candidate.made.problem.topology:
        return (*program.notes, "a file for each group: each group's communicator must find its own alone")
    if program.collective.root is None:
        return program.notes
    name, root = program.collective.name, program.collective.root
    return (
        *program.notes,
        f"{target.backend} picks a {name} file whatever the call's root; use {file.name} only where every "
        f"{name} of the job has root {root}",
    )


# --- lowering -------------------------------------------------------------------------------------

_Made = FlowSchedule | Schedule
_Lowered = tuple[Candidate, list[Compiled]]


def _lower_first(sizes: Range, target: Target, clock: Clock, passed_over: dict[str, str]) -> _Lowered:
    """The first candidate that the runtime can hold, lowered."""
    refusals: dict[str, UnsupportedError] = {}
    for candidate in sizes.ranked:
        try:
            lowered = _lower_fitting(candidate, sizes, target, clock)
        except UnsupportedError as error:
            refusals[candidate.label] = error
            passed_over[candidate.label] = str(error)
        else:
            passed_over.pop(candidate.label, None)
            return lowered
    raise next(iter(refusals.values()))


def _lower_fitting(candidate: Candidate, sizes: Range, target: Target, clock: Clock) -> _Lowered:
    """The candidate lowered; with fewer trees per rank where that is what fits and it was not fixed.

    Raises:
        UnsupportedError: it does not fit; says which instances or trees per rank would.
    """
    whole, candidate = candidate, _cut_as_asked(candidate, sizes, target, clock)
    try:
        return whole, _lower(candidate, sizes, target, clock)
    except UnsupportedError as error:
        if target.instances > 1:
            raise UnsupportedError(f"{error}; {_fewer_instances(candidate, sizes, target, clock)}") from None
        fewer = _fewer_trees(candidate, sizes, target, clock)
        if fewer is None:
            raise
        return fewer


def _cut_as_asked(candidate: Candidate, sizes: Range, target: Target, clock: Clock) -> Candidate:
    """Steps made anew, with the chunks that the files are to have, where their synthesizer has that option."""
    name, options, asked = candidate.synthesizer, candidate.options, candidate.problem.collective.size_chunks
    if isinstance(candidate.made, FlowSchedule) or target.load().level != "program" or target.chunks == "exact":
        return candidate
    if "chunks" in options or "chunks" not in _options(name):
        return candidate

    def parts() -> int:
        return candidate.made.problem.collective.size_chunks // asked

    most = _most_slots(sizes, target) // (asked * target.instances)
    if target.chunks != "pow2" or parts().bit_count() > 1:
        candidate = synthesize(candidate.problem, name, {**options, "chunks": str(target.chunks)}, clock)
    if target.chunks == "pow2" and 1 <= most < parts():
        fewer = str(1 << most.bit_length() - 1)
        candidate = synthesize(candidate.problem, name, {**options, "chunks": fewer}, clock)
    return candidate


def _options(synthesizer: str) -> set[str]:
    return {option["name"] for option in registry.describe("synth", synthesizer)["options"]}


def _most_slots(sizes: Range, target: Target) -> int:
    """Slots of a buffer that the runtime addresses, and that the least message fills."""
    most: int = target.runtime.max_offset + 1
    return most if sizes.low is None else min(most, sizes.low // _unit(target))


def _fewer_instances(candidate: Candidate, sizes: Range, target: Target, clock: Clock) -> str:
    for instances in range(target.instances - 1, 0, -1):
        try:
            _lower(candidate, sizes, replace(target, instances=instances), clock)
        except UnsupportedError:
            continue
        return f"{instances} instance{'s fit' if instances > 1 else ' fits'}"
    return "not even one instance fits"


def _fewer_trees(candidate: Candidate, sizes: Range, target: Target, clock: Clock) -> _Lowered | None:
    if "trees_per_rank" not in _options(candidate.synthesizer) or "trees_per_rank" in candidate.options:
        return None
    for trees in (8, 4, 2, 1):
        options = {**candidate.options, "trees_per_rank": str(trees)}
        try:
            smaller = synthesize(candidate.problem, candidate.synthesizer, options, clock)
            note = f"trees_per_rank={trees}: the runtime cannot hold more"
            smaller = replace(smaller, made=replace(smaller.made, notes=(*smaller.made.notes, note)))
            return smaller, _lower(smaller, sizes, target, clock)
        except UnsupportedError:
            continue
    return None


def _lower(candidate: Candidate, sizes: Range, target: Target, clock: Clock) -> list[Compiled]:
    level, made = target.load().level, _as_written(candidate, target)
    if level == "flow" and isinstance(made, Schedule):
        raise UnsupportedError(f"{target.backend} files need ways without steps; {candidate.synthesizer} makes steps")
    if level != "program":
        return [Compiled(made, min_bytes=sizes.low or 0, max_bytes=sizes.high)]
    # A demand is of one group, also where its pairs leave ranks out or fall into parts of their own.
    parts = by_group(made) if made is candidate.made else (made,)
    return [entry for part in parts for entry in _lower_calls(part, sizes, target, clock)]


def _lower_calls(made: _Made, sizes: Range, target: Target, clock: Clock) -> list[Compiled]:
    """One entry that serves both kinds of call where one program can, else one for each."""
    if target.inplace is not None:
        return [_compiled(made, sizes, target, target.inplace, _lower_for(made, target, target.inplace, sizes, clock))]
    schedule, program = _lower_for(made, target, False, sizes, clock)
    called = replace(program, collective=program.collective.called_inplace())
    found = clock.run("verify", lambda: verify.findings(called))
    outofplace = _compiled(made, sizes, target, False, (schedule, program))
    if not any(finding.severity == "error" for finding in found):
        return [replace(outofplace, inplace=True)]
    return [_compiled(made, sizes, target, True, _lower_for(made, target, True, sizes, clock)), outofplace]


def _as_written(candidate: Candidate, target: Target) -> _Made:
    """The same schedule for the collective that the files can name."""
    made, asked = candidate.made, candidate.problem.collective
    written = target.writes(asked)
    if written is asked:
        return made
    note = (
        f"written as an all-to-all of which only the demand moves: call it with blocks of the largest entry, "
        f"{written.chunk_factor} slots, each filled from the front, and verify it with --demand; any other "
        "all-to-all that the runtime gives to this file loses what the demand does not name"
    )
    notes = (*made.notes, note)
    if isinstance(made, Schedule):
        # Both tables have their chunks in the same order, so the sends stay as they are.
        cut = written.refined(made.problem.collective.chunk_factor // asked.chunk_factor)
        problem = replace(made.problem, collective=cut, nbytes=None)
        return Schedule(problem, made.sends, steps_time(problem, made.sends, synchronous=False), notes)
    problem = replace(made.problem, collective=written, nbytes=None)
    return FlowSchedule(problem, made.trees, bandwidth_time(problem, made.trees), None, notes)


def _compiled(made: _Made, sizes: Range, target: Target, inplace: bool, lowered: tuple[Schedule, Program]) -> Compiled:
    schedule, program = lowered
    least = program.collective.size_chunks * target.min_chunk_bytes
    if sizes.low is not None and sizes.low < least:
        raise UnsupportedError(
            f"{target.protocol} moves at least {target.min_chunk_bytes} bytes at a time, so the smallest message "
            f"for {program.collective.size_chunks} chunks is {least} bytes; found {sizes.low}"
        )
    return Compiled(made, schedule, program, sizes.low or least, sizes.high, inplace, not inplace)


def _lower_for(made: _Made, target: Target, inplace: bool, sizes: Range, clock: Clock) -> tuple[Schedule, Program]:
    """The passes in their order, each result checked."""
    if inplace:
        made = replace(made, problem=replace(made.problem, collective=made.problem.collective.called_inplace()))
    runtime = target.runtime
    schedule = _steps(made, target, sizes, clock)
    program: Program = _passes(schedule, clock, LowerSchedule(runtime, target.protocol), Fuse(runtime))
    return schedule, program


def _steps(made: _Made, target: Target, sizes: Range, clock: Clock) -> Schedule:
    """The schedule whose chunks are those of the files."""
    asked = target.chunks if isinstance(target.chunks, int) else None
    most = _most_slots(sizes, target)
    if isinstance(made, Schedule):
        loose: Schedule = _passes(made, clock, LoosenSteps(target.instances, asked))
        if (slots := loose.problem.collective.size_chunks) > most:
            raise UnsupportedError(f"the schedule cuts the buffers into {slots} slots; at most {most} fit")
        return loose
    most = min(target.runtime.max_offset + 1, max(most, made.problem.collective.size_chunks))
    lowered: Schedule = _passes(
        made, clock, RoundWeights(target.chunks, most=most // target.instances), LowerFlow(target.instances, asked or 1)
    )
    return lowered


def _parts(sizes: Range, target: Target) -> list[Range]:
    """The range cut at the size from which the chunks that keep the bandwidth divide a message."""
    if sizes.low is None or sizes.high is None or target.rules is None or target.chunks != "pow2":
        return [sizes]
    flow = sizes.ranked[0].made
    if isinstance(flow, Schedule):
        return [sizes]  # its chunks are what they are
    rounded = RoundWeights(most=(target.runtime.max_offset + 1) // target.instances).run(flow)
    slots = flow.problem.collective.size_chunks * rounded.chunks_per_slot * target.instances
    if not sizes.low < slots * _unit(target) <= sizes.high:
        return [sizes]
    return [replace(sizes, high=slots * _unit(target) - 1), replace(sizes, low=slots * _unit(target))]


def _unit(target: Target) -> int:
    """Bytes of the least chunk: an element, or what the protocol moves at once."""
    return max(ELEMENT_BYTES, target.min_chunk_bytes)


def _passes(value: Any, clock: Clock, *passes: Any) -> Any:
    for one in passes:
        made = clock.run("lower", partial(one.run, value))
        if made is not value:
            clock.run("verify", partial(verify.check, made))
        value = made
    return value


# --- writing --------------------------------------------------------------------------------------


def _emit(lowered: Sequence[_Lowered], target: Target, clock: Clock) -> tuple[File, ...]:
    """The texts, each read back by the rules of whoever will read it."""
    backend = target.load()
    files = []
    for candidate, entries in lowered:
        asked = candidate.problem.collective
        for compiled in entries:
            for name, text in clock.run("emit", partial(backend.emit, [compiled])).items():
                report = clock.run("verify", partial(target.read_back, text, name, asked))
                files.append(File(name, text, candidate, compiled, report))
    return tuple(files)
