"""What in the environment of a job keeps its schedules from being used, before the job runs.

Each check looks at one thing and yields problems; what is plain data (a variable with a value that
defeats the schedule) stands in the runtime's file of `collc.runtimes.launch`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from collc import runtimes
from collc.errors import CollcError, InputError
from collc.launch.environment import Count, Environment
from collc.launch.files import File, listed, read_all
from collc.runtimes import launch
from collc.runtimes.launch import Issue, Launch, Setting
from collc.verify import formats
from collc.verify.msccl_reader import c_number
from collc.verify.rules import Collector
from collc.verify.xml import elements

# Rule id -> what it means; the ids never change. Those of single variables stand in the runtimes' data.
RULES = {
    "nothing-named": "no variable says where the files are",
    "foreign-variable": "a variable is set that another runtime reads, and this one does not",
    "relative-path": "a path is relative: each process looks from its own working directory",
    "path-missing": "a path leads nowhere",
    "stray-file": "a file of the directory cannot be read, and keeps the others from being used",
    "no-files": "there is no file to use",
    "rank-count": "no file is for the number of ranks of the job",
    "broken-file": "a file for this number of ranks cannot be read whole",
    "too-many-files": "there are more files than the runtime holds",
    "max-channels": "a file needs more channels than NCCL_MAX_NCHANNELS allows",
    "min-channels": "NCCL_MIN_NCHANNELS is above what the runtime takes, and is ignored",
    "protocol-off": "NCCL_PROTO switches off the protocol of a file",
    "algo-names-msccl": "NCCL_ALGO names MSCCL to a runtime that knows no such algorithm",
    "one-visible-gpu": "each task sees one GPU only",
    "process-model": "a process drives several GPUs",
    "graph-file": "a graph file is injected that is for another number of GPUs",
    "config-file": "a configuration file sets a variable that changes what runs",
    "config-line": "a line of a configuration file does not do what it seems to",
}
_ALL_RANKS = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_GRAPH_FILE",
    "NCCL_TOPO_FILE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
)
_SHARED_DIRECTORY = "MSCCL_ALGO_DIR"  # of the executor and RCCL both


@dataclass(frozen=True)
class Problem:
    """Something that will defeat a schedule.

    Attributes:
        rule: an id of `RULES`, or of a setting of the runtime.
        variable, source: which variable it is about, and where that is set.
    """

    rule: str
    message: str
    variable: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes:
        runtime: whose rules; None where nothing names one.
        guessed: whether the environment was all that named it.
        issues: known faults of that runtime, whether or not they concern this job.
    """

    runtime: str | None
    guessed: bool
    ranks: int | None
    problems: tuple[Problem, ...]
    issues: tuple[Issue, ...]


@dataclass(frozen=True)
class Job:
    """What the checks look at.

    Attributes:
        paths: where the runtime's variable leads, as far as it can be read.
        files: what the runtime knows of the files there; none where it reads other files than MSCCL XML.
        ranks: of the job, and how that is known.
    """

    told: Launch
    environment: Environment
    paths: tuple[str, ...]
    files: tuple[File, ...]
    ranks: Count | None


def diagnose(
    environment: Environment, *, runtime: str | None = None, version: str | None = None, ranks: int | None = None
) -> Diagnosis:
    """What will go wrong with a job in this environment.

    Args:
        runtime: whose rules; by the variables that are set where it is None.
        version: of the runtime, for its known issues.
        ranks: of the job; as the launcher says where it is None.

    Raises:
        InputError: no such runtime, or no version.
    """
    name = runtime or guess(environment)
    count = Count(ranks, "--ranks") if ranks is not None else environment.ranks()
    number = None if count is None else count.number
    if name is None:
        message = "no variable names a directory, a list, a plan or a tuner: the library's own algorithms run"
        problems = [Problem("nothing-named", message), *_config_lines(environment)]
        return Diagnosis(None, True, number, tuple(problems), ())
    told = launch.load(name)
    job = _job(told, environment, count)
    found = [problem for check in _CHECKS for problem in check(job)]
    issues = tuple(issue for issue in told.issues if issue.concerns(version))
    return Diagnosis(name, runtime is None, number, (*found, *_config_lines(environment)), issues)


def guess(environment: Environment) -> str | None:
    """The runtime the variables are meant for; None where none tells."""
    names = set(environment.variables)
    if _SHARED_DIRECTORY in names and names & {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}:
        return "rccl"
    hinted = {name for name in launch.names() if any(_hints(name, variable) for variable in names)}
    order = ("rccl", "executor", "mscclpp", "classic", "tuner")
    if _SHARED_DIRECTORY in names and "rccl" not in hinted:
        return "executor"
    return next((name for name in order if name in hinted), None)


def _hints(runtime: str, variable: str) -> bool:
    return any(
        variable == hint or (hint.endswith("_") and variable.startswith(hint)) for hint in launch.load(runtime).hints
    )


def _job(told: Launch, environment: Environment, ranks: Count | None) -> Job:
    value = environment.value(told.variable) if told.variable else None
    paths: list[str] = []
    if value and told.holds == "directory" and Path(value).is_dir():
        paths = listed(value)
    elif value and told.holds == "list":
        paths = [path for path in value.split(":") if path]
    files: tuple[File, ...] = ()
    if told.versions:
        files = read_all(paths, runtimes.load(told.name), None if ranks is None else ranks.number)
    return Job(told, environment, tuple(paths), files, ranks)


# --- variables -----------------------------------------------------------------------------------


def _problem(job: Job, rule: str, variable: str, message: str) -> Problem:
    return Problem(rule, message, variable, job.environment.source(variable))


def _nothing_named(job: Job) -> Iterator[Problem]:
    told, environment = job.told, job.environment
    if not told.variable or environment.value(told.variable):
        return
    instead = "its own directory of algorithms" if told.holds == "directory" else "its own algorithms"
    if told.holds == "list" and environment.value("MSCCL_CONFIG"):
        return
    yield _problem(job, "nothing-named", told.variable, f"{told.variable} is not set: {told.name} uses {instead}")


def _foreign(job: Job) -> Iterator[Problem]:
    if job.told.holds == "file":
        return  # a tuner stands beside any of the others
    others = [launch.load(name) for name in launch.names() if name != job.told.name]
    for variable in sorted(job.environment.variables):
        owners = [other.name for other in others if other.holds != "file" and other.owns(variable)]
        if variable == _SHARED_DIRECTORY and job.told.variable != _SHARED_DIRECTORY:
            owners = ["executor", "rccl"]
        if owners and not job.told.owns(variable):
            message = (
                f"{variable} is read by {' and '.join(owners)}, not by {job.told.name}; it does nothing here, unset it"
            )
            yield _problem(job, "foreign-variable", variable, message)


def _settings(job: Job) -> Iterator[Problem]:
    for setting in job.told.settings:
        value = job.environment.value(setting.name)
        if _is_wrong(setting, value):
            shown = f"{setting.name}={value}" if value is not None else f"{setting.name} is not set"
            yield _problem(job, setting.rule, setting.name, f"{shown}: {setting.why}")


def _is_wrong(setting: Setting, value: str | None) -> bool:
    match setting.when:
        case "set":
            return bool(value)
        case "unset":
            return value is None
        case "is":
            return value is not None and _same(value, setting.values)
        case "is-not":
            return value is None or not _same(value, setting.values)
        case "lacks":
            words = {word.strip().upper() for word in (value or "").lstrip("^").split(",")}
            return words.isdisjoint(setting.values) or (value or "").startswith("^")


def _same(value: str, known: Sequence[str]) -> bool:
    """Whether a value is one of those known, as text or as the number the runtimes read."""
    return value in known or any(
        value.strip() != ""
        and other.isdigit()
        and value.strip()[0] in "+-0123456789"
        and c_number(value)[0] == int(other)
        for other in known
    )


def _algo_names_msccl(job: Job) -> Iterator[Problem]:
    words = {word.strip().upper() for word in (job.environment.value("NCCL_ALGO") or "").lstrip("^").split(",")}
    if "MSCCL" in words and job.told.name != "classic":
        message = (
            "NCCL_ALGO names MSCCL, which only the first MSCCL runtime knows; others skip it or do not start. Unset it"
        )
        yield _problem(job, "algo-names-msccl", "NCCL_ALGO", message)


def _paths(job: Job) -> Iterator[Problem]:
    for variable in job.told.paths:
        value = job.environment.value(variable)
        parts = (
            (value or "").split(":") if job.told.holds == "list" and variable == job.told.variable else [value or ""]
        )
        for part in parts:
            # A bare plugin name is looked up along the library path, and is well.
            is_name = variable.endswith("_PLUGIN") and "/" not in part
            if not part or is_name:
                continue
            if not part.startswith("/"):
                instead = Path(part).absolute()
                message = f"{variable} has the relative path '{part}'; expected an absolute one, such as {instead}"
                yield _problem(job, "relative-path", variable, message)
            yield from _missing(job, variable, part)


def _missing(job: Job, variable: str, part: str) -> Iterator[Problem]:
    path = Path(part)
    try:
        is_there = path.is_dir() if (variable, job.told.holds) == (job.told.variable, "directory") else path.exists()
    except (OSError, ValueError):
        is_there = False
    if not is_there:
        message = f"{variable}: there is no {part}; {job.told.name} goes on without it, or does not start"
        yield _problem(job, "path-missing", variable, message)


# --- files ---------------------------------------------------------------------------------------


def _files(job: Job) -> Iterator[Problem]:
    told = job.told
    stops = told.holds == "directory"
    for file in job.files:
        if file.refused is not None:
            effect = "no file of the directory can be relied on" if stops else f"{told.name} ignores it"
            yield _problem(job, "stray-file", told.variable, f"{file.name} cannot be read: {file.refused}; {effect}")
        elif file.broken is not None:
            effect = "the communicator is not created" if stops else f"{told.name} ignores it"
            yield _problem(
                job, "broken-file", told.variable, f"{file.name} cannot be read whole: {file.broken}; {effect}"
            )
    if told.versions and job.environment.value(told.variable) and not job.files:
        yield _problem(job, "no-files", told.variable, f"{told.variable} names no file")
    limit = runtimes.load(told.name).max_files if told.versions else None
    held = [file for file in job.files if file.refused is None and _is_for(job, file)]
    if limit is not None and len(held) > limit:
        message = f"{told.variable} names {len(held)} files; {told.name} holds {limit}"
        yield _problem(job, "too-many-files", told.variable, message)


def _rank_count(job: Job) -> Iterator[Problem]:
    good = [file for file in job.files if file.refused is None]
    if job.ranks is None or not good or any(file.n_ranks == job.ranks.number for file in good):
        return
    known = ", ".join(map(str, sorted({file.n_ranks for file in good})))
    message = f"the job has {job.ranks.number} ranks ({job.ranks.variable}); the files are for {known}: none is used"
    yield _problem(job, "rank-count", job.told.variable, message)


def _channels(job: Job) -> Iterator[Problem]:
    most = _number(job.environment.value("NCCL_MAX_NCHANNELS"))
    drops = any(rules.obeys_max_channels for rules in job.told.versions.values())
    for file in job.files:
        if drops and most is not None and file.refused is None and _is_for(job, file) and file.n_channels > most:
            message = f"{file.name} needs {file.n_channels} channels; NCCL_MAX_NCHANNELS={most}, so it is dropped"
            yield _problem(job, "max-channels", "NCCL_MAX_NCHANNELS", message)
    least = _number(job.environment.value("NCCL_MIN_NCHANNELS"))
    if job.told.min_channels is None or least is None or job.ranks is None:
        return
    below, largest = job.told.min_channels
    if job.ranks.number < below and least > largest:
        message = (
            f"NCCL_MIN_NCHANNELS={least} is ignored with {job.ranks.number} ranks, and there are fewer channels than "
            f"without it; below {below} ranks the largest that is accepted is {largest}"
        )
        yield _problem(job, "min-channels", "NCCL_MIN_NCHANNELS", message)


def _is_for(job: Job, file: File) -> bool:
    """Whether a file is for the number of ranks of the job, as far as that is known."""
    return job.ranks is None or file.n_ranks == job.ranks.number


def _number(value: str | None) -> int | None:
    return c_number(value)[0] if value and value.strip()[:1].isdigit() else None


def _protocol_off(job: Job) -> Iterator[Problem]:
    value = job.environment.value("NCCL_PROTO")
    if job.told.name != "classic" or not value:
        return
    words = {word.strip().upper() for word in value.lstrip("^").split(",")}
    for path in job.paths:
        try:
            match = re.search(rb'\bproto *= *"(\w+)"', formats.read(path)[:65536])
        except CollcError:
            continue
        protocol = match[1].decode() if match else ""
        if protocol and (protocol.upper() in words) == value.startswith("^"):
            message = f"NCCL_PROTO={value} switches off {protocol}, the protocol of {Path(path).name}: it is never used"
            yield _problem(job, "protocol-off", "NCCL_PROTO", message)


# --- processes and configuration -----------------------------------------------------------------


def _processes(job: Job) -> Iterator[Problem]:
    local, visible = job.environment.local_ranks(), job.environment.visible_gpus()
    if local is None or visible is None:
        return
    if visible.number == 1 and local.number > 1:
        message = (
            f"{visible.variable} shows one GPU to each of {local.number} tasks of a host ({local.variable}): peers "
            "cannot reach each other's memory, and fast links stay unused. Let every task see all GPUs of its host"
        )
        yield _problem(job, "one-visible-gpu", visible.variable, message)
    models = {rules.one_gpu_per_process for rules in job.told.versions.values()}
    if visible.number > 1 and local.number == 1 and job.environment.is_in_a_task() and models - {"no"}:
        variable = next(iter(job.told.versions.values())).single_process
        if variable and _same(job.environment.value(variable) or "", ("1",)):
            return
        help_ = f", or set {variable}=1" if variable else ""
        message = (
            f"one process drives {visible.number} GPUs ({visible.variable}); {job.told.name} skips MSCCL then. "
            f"Start one process for each GPU{help_}"
        )
        yield _problem(job, "process-model", visible.variable, message)


def _graph_file(job: Job) -> Iterator[Problem]:
    value, local = job.environment.value("NCCL_GRAPH_FILE"), job.environment.local_ranks()
    if not value or local is None:
        return
    try:
        listing = elements(formats.read(value), Collector())
    except InputError as error:
        yield _problem(job, "graph-file", "NCCL_GRAPH_FILE", f"{value} cannot be read: {error.message}")
        return
    counts: list[int] = []
    for element in listing:
        if element.tag == "channel":
            counts.append(0)
        elif element.tag == "gpu" and counts:
            counts[-1] += 1
    wrong = sorted({count for count in counts if count > 1} - {local.number})
    if wrong:
        message = f"{value} has channels of {wrong[0]} GPUs, and {local.number} tasks run on a host ({local.variable})"
        yield _problem(job, "graph-file", "NCCL_GRAPH_FILE", message)


def _from_config(job: Job) -> Iterator[Problem]:
    for name, variable in sorted(job.environment.variables.items()):
        if variable.is_forgettable and (name in _ALL_RANKS or name in job.told.paths or job.told.owns(name)):
            yield _problem(job, "config-file", name, f"{variable.source} sets {name}={variable.value} for every job")


def _config_lines(environment: Environment) -> list[Problem]:
    return [Problem("config-line", f"{odd.source} {odd.why}", None, odd.source) for odd in environment.odd_lines]


_CHECKS: tuple[Callable[[Job], Iterator[Problem]], ...] = (
    _nothing_named,
    _foreign,
    _settings,
    _algo_names_msccl,
    _paths,
    _files,
    _rank_count,
    _channels,
    _protocol_off,
    _processes,
    _graph_file,
    _from_config,
)
