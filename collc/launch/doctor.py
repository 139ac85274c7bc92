"""What in the environment of a job keeps its schedules from being used, before the job runs.

Each check looks at one thing and yields problems; what is plain data (a variable with a value that
defeats the schedule) stands in the runtime's file of `collc.runtimes.launch`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from collc import runtimes
from collc.errors import InputError
from collc.launch import placement, variables
from collc.launch.environment import Count, Environment
from collc.launch.files import File, listed, read_all
from collc.launch.job import SHARED_DIRECTORY, Job, Problem
from collc.runtimes import launch
from collc.runtimes.launch import Issue, Launch


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
    found = [problem for check in (*variables.CHECKS, *placement.CHECKS) for problem in check(job)]
    issues = tuple(issue for issue in told.issues if issue.concerns(version))
    return Diagnosis(name, runtime is None, number, (*found, *_config_lines(environment)), issues)


def guess(environment: Environment) -> str | None:
    """The runtime the variables are meant for; None where none tells."""
    names = set(environment.variables)
    if SHARED_DIRECTORY in names and names & {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}:
        return "rccl"
    hinted = {name for name in launch.names() if any(_hints(name, variable) for variable in names)}
    order = ("rccl", "executor", "mscclpp", "classic", "tuner")
    if SHARED_DIRECTORY in names and "rccl" not in hinted:
        return "executor"
    return next((name for name in order if name in hinted), None)


def _hints(runtime: str, variable: str) -> bool:
    return any(
        variable == hint or (hint.endswith("_") and variable.startswith(hint)) for hint in launch.load(runtime).hints
    )


def _job(told: Launch, environment: Environment, ranks: Count | None) -> Job:
    value = environment.value(told.variable) if told.variable else None
    paths: list[str] = []
    if value and told.holds == "directory":
        with suppress(InputError):  # the checks say what is wrong with it
            paths = listed(value)
    elif value and told.holds == "list":
        paths = [path for path in value.split(":") if path]
    files: tuple[File, ...] = ()
    if told.versions:
        files = read_all(paths, runtimes.load(told.name), None if ranks is None else ranks.number)
    return Job(told, environment, tuple(paths), files, ranks)


def _config_lines(environment: Environment) -> list[Problem]:
    return [Problem("config-line", f"{odd.source} {odd.why}", None, odd.source) for odd in environment.odd_lines]
