"""Which file a call uses, and the first rule by which each other file is passed over.

One pure function over what the runtime knows of its files. No runtime tells its user any of this: where
no file fits, the library's own algorithm runs without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collc.ir.collective import ROOTED
from collc.launch.call import REDUCING, Call
from collc.launch.files import File
from collc.runtimes import Runtime
from collc.runtimes.launch import Selection

# Rule id -> what it means; the ids never change.
RULES = {
    "unreadable": "the runtime cannot read the file",
    "scan-stopped": "a file of the directory that cannot be read keeps this one from being used",
    "start-fails": "a file keeps the job from starting",
    "beyond-limit": "the runtime has as many files as it holds",
    "process-model": "a process drives several GPUs",
    "op": "no file is looked up for this reduction",
    "dtype": "no file is looked up for this element type",
    "ranks": "the file is for another number of ranks",
    "channels": "the file needs more channels than NCCL_MAX_NCHANNELS allows",
    "collective": "the file is for another collective",
    "in-place": "the file does not serve this kind of call",
    "size-range": "the message lies outside of the file's range of sizes",
    "divisibility": "the elements do not fill whole chunks",
    "ambiguous": "several files fit, and hosts may choose differently",
    "later": "another file fits and is tried first",
}


@dataclass(frozen=True)
class Verdict:
    """What becomes of a file.

    Attributes:
        rule: the first rule by which it was passed over; None for the file that is used.
        reason: that rule, with what was found.
    """

    path: str
    rule: str | None
    reason: str


@dataclass(frozen=True)
class Answer:
    """What becomes of a call.

    Attributes:
        verdicts: of every file, in the order the runtime tries them.
        selected: the file that is used; None where the library's own algorithm runs, or nothing does.
        ambiguous: files of which any may be used.
        fails: why the job does not get as far as the call, or the call fails.
        warnings: what is wrong with the choice itself.
    """

    verdicts: tuple[Verdict, ...]
    selected: str | None = None
    ambiguous: tuple[str, ...] = ()
    fails: str | None = None
    warnings: tuple[str, ...] = ()


def select(files: Sequence[File], call: Call, runtime: Runtime, rules: Selection) -> Answer:
    """What becomes of a call where the runtime meets these files in this order."""
    asked = _not_asked(call, runtime, rules)
    if asked is not None and asked[0] == "process-model":
        return Answer(tuple(Verdict(file.path, *asked) for file in files))
    lost = _lost(files, call, runtime, rules)
    fails = _start_fails(files, lost, call, runtime, rules)
    if fails is not None:
        rule = "start-fails"
        return Answer(tuple(lost.get(f.path) or Verdict(f.path, rule, fails) for f in files), fails=fails)
    passed = dict(lost)
    for file in files:
        if file.path not in passed and (reason := asked or _passed_over(file, call, rules)):
            passed[file.path] = Verdict(file.path, *reason)
    return _choose(files, passed, call, runtime, rules)


# --- before any file is looked at ----------------------------------------------------------------


def _not_asked(call: Call, runtime: Runtime, rules: Selection) -> tuple[str, str] | None:
    """Why the runtime does not look at files for such a call at all."""
    if call.gpus_per_process > 1 and rules.one_gpu_per_process != "no":
        what = f"a process drives {call.gpus_per_process} GPUs; {runtime.name} skips MSCCL "
        if rules.one_gpu_per_process == "always":
            return "process-model", f"{what}then. Start one process for each GPU"
        if not call.single_process:
            return "process-model", (
                f"{what}unless single-process mode is enabled ({rules.single_process}=1, the default of builds from "
                "2024-09-25 on). Start one process for each GPU"
            )
    if call.collective in REDUCING and call.op not in rules.ops:
        return "op", f"{call.op} is not scheduled: {runtime.name} looks up files for {', '.join(rules.ops)} only"
    return _type_not_asked(call, runtime, rules)


def _type_not_asked(call: Call, runtime: Runtime, rules: Selection) -> tuple[str, str] | None:
    never = rules.never.get(call.type_family, ())
    if call.collective in never or "*" in never:
        return "dtype", f"{call.collective} of {call.dtype} is not scheduled by {runtime.name}"
    largest = rules.largest.get(call.type_family, {}).get(call.collective)
    if largest is not None and call.counted > largest:
        return "dtype", (
            f"{call.collective} of {call.dtype} above {largest} bytes is not scheduled by {runtime.name}, "
            f"and this is {call.counted}"
        )
    if call.collective not in runtime.collectives:
        return "collective", f"{runtime.name} never looks up a file for {call.collective}"
    if call.nbytes == 0:
        return "size-range", "a call of 0 bytes is never looked up"
    return None


# --- reading the files ---------------------------------------------------------------------------


def _lost(files: Sequence[File], call: Call, runtime: Runtime, rules: Selection) -> dict[str, Verdict]:
    """The files that are gone before the runtime chooses."""
    if rules.a_bad_file == "stops":
        return _stopped(files, rules)
    lost: dict[str, Verdict] = {}
    held = 0
    for file in files:
        reason = file.refused or (None if file.n_ranks != call.n_ranks else file.broken)
        if reason is not None:
            lost[file.path] = Verdict(file.path, "unreadable", f"{runtime.name} ignores it: {reason}")
        elif file.n_ranks != call.n_ranks:
            lost[file.path] = Verdict(file.path, "ranks", _other_ranks(file, call))
        elif held == runtime.max_files:
            lost[file.path] = Verdict(
                file.path, "beyond-limit", f"{runtime.name} holds {runtime.max_files} files, and ignores the rest"
            )
        else:
            held += 1
    return lost


def _stopped(files: Sequence[File], rules: Selection) -> dict[str, Verdict]:
    """The files that a bad one takes with it."""
    bad = next((file for file in files if file.refused is not None), None)
    if bad is None:
        return {}
    lost: dict[str, Verdict] = {}
    before = True
    for file in files:
        before = before and file is not bad
        if file.refused is not None and (file is bad or rules.order == "directory"):
            reason = f"it cannot be read, and stops the reading of the directory: {file.refused}"
            lost[file.path] = Verdict(file.path, "unreadable", reason)
        elif rules.order == "directory":
            reason = f"{bad.name} cannot be read, and stops the reading of the directory, in an order of the host's own"
            lost[file.path] = Verdict(file.path, "scan-stopped", reason)
        elif before:
            reason = f"{bad.name} leaves the list of files half made: likely none is used, or the process crashes"
            lost[file.path] = Verdict(file.path, "scan-stopped", reason)
        else:
            reason = f"it is never read: {bad.name}, which comes before it, stops the reading of the directory"
            lost[file.path] = Verdict(file.path, "scan-stopped", reason)
    return lost


def _start_fails(
    files: Sequence[File], lost: dict[str, Verdict], call: Call, runtime: Runtime, rules: Selection
) -> str | None:
    """Why no communicator is created, where a file keeps it from being so."""
    if rules.a_bad_file == "ignored":
        crash = next((file for file in files if not file.has_algo), None)
        return None if crash is None else f"{crash.name} has no <algo>; {runtime.name} crashes on it at start-up"
    if lost:
        return None
    for file in files:
        if not file.n_chunks:
            return f"{file.name}: nchunksperloop is 0; the first call divides by it and ends the process"
    mine = [file for file in files if file.n_ranks == call.n_ranks]
    broken = next((file for file in mine if file.broken is not None), None)
    if broken is not None:
        return f"{broken.name} cannot be read whole, so the communicator is not created: {broken.broken}"
    if len(mine) > runtime.max_files:
        return f"{len(mine)} files are for {call.n_ranks} ranks, and {runtime.name} holds {runtime.max_files}"
    return None


# --- the file itself -----------------------------------------------------------------------------


def _passed_over(file: File, call: Call, rules: Selection) -> tuple[str, str] | None:
    """The first rule by which a file that was read does not fit the call."""
    if file.n_ranks != call.n_ranks:
        return "ranks", _other_ranks(file, call)
    if rules.obeys_max_channels and call.max_channels is not None and file.n_channels > call.max_channels:
        return "channels", (
            f"it needs {file.n_channels} channels, {file.n_channels - call.max_channels} more than "
            f"NCCL_MAX_NCHANNELS={call.max_channels} allows"
        )
    if file.collective != call.collective:
        return "collective", f"it is for {file.collective or file.spelt}"
    if call.collective not in rules.ignores_inplace and not (file.inplace if call.inplace else file.outofplace):
        return "in-place", f"it does not serve {'in-place' if call.inplace else 'out-of-place'} calls"
    return _wrong_size(file, call, rules)


def _wrong_size(file: File, call: Call, rules: Selection) -> tuple[str, str] | None:
    if call.counted < file.min_bytes:
        return "size-range", f"{call.counted} bytes are below its least, {file.min_bytes}"
    if file.max_bytes is not None and call.counted > file.max_bytes:
        return "size-range", f"{call.counted} bytes are above its largest, {file.max_bytes}"
    elements = call.count if rules.divides_count else call.elements
    if elements % file.n_chunks:
        return "divisibility", f"{elements} elements are no multiple of its {file.n_chunks} chunks"
    return None


def _other_ranks(file: File, call: Call) -> str:
    return f"it is for {file.n_ranks} ranks, and the call has {call.n_ranks}"


# --- the choice ----------------------------------------------------------------------------------


def _choose(
    files: Sequence[File], passed: dict[str, Verdict], call: Call, runtime: Runtime, rules: Selection
) -> Answer:
    fits = [file for file in files if file.path not in passed]
    if fits and call.inplace and call.collective in rules.refuses_inplace:
        fails = f"{runtime.name} refuses in-place calls of {call.collective}: the call fails"
        return Answer(_in_order(files, passed, fits, "in-place", fails), fails=fails)
    if len(fits) > 1 and rules.order == "directory":
        reason = "it fits, and so do others; directories are read in an order of the host's own, so ranks may differ"
        ambiguous = tuple(file.path for file in fits)
        return Answer(_in_order(files, passed, fits, "ambiguous", reason), ambiguous=ambiguous)
    if not fits:
        half_made = [passed[file.path].reason for file in files if passed[file.path].rule == "scan-stopped"]
        return Answer(tuple(passed[file.path] for file in files), warnings=tuple(half_made[:1]))
    chosen = fits[0]
    verdicts = _in_order(files, passed, fits[1:], "later", f"it fits, but {chosen.name} is tried first")
    return Answer(
        verdicts, chosen.path, fails=_launch_fails(chosen), warnings=_about_choice(chosen, call, runtime, rules)
    )


def _in_order(
    files: Sequence[File], passed: dict[str, Verdict], fits: Sequence[File], rule: str, reason: str
) -> tuple[Verdict, ...]:
    """A verdict for every file: passed over, among those that fit and are not used, or used."""
    more = passed | {file.path: Verdict(file.path, rule, reason) for file in fits}
    return tuple(more.get(file.path) or Verdict(file.path, None, "the call uses it") for file in files)


def _launch_fails(file: File) -> str | None:
    return None if file.launch_fails is None else f"{file.name} is chosen, and the launch fails: {file.launch_fails}"


def _about_choice(file: File, call: Call, runtime: Runtime, rules: Selection) -> tuple[str, ...]:
    warnings = []
    if call.collective in rules.unsound.get(call.type_family, ()):
        warnings.append(
            f"{call.collective} of {call.dtype} should not be scheduled: {runtime.name} runs the file, and wrong "
            "results are known"
        )
    if call.collective in ROOTED:
        if call.root is None or file.root is None:
            warnings.append(f"{runtime.name} looks at no root: the file must be for the root of every such call")
        elif call.root != file.root:
            warnings.append(f"{runtime.name} looks at no root: the file is for root {file.root}, so results are wrong")
    return tuple(warnings)
