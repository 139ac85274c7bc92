"""What is wrong between a job's files, its ranks and the GPUs they see."""

from __future__ import annotations

from collections.abc import Iterator

from collc import runtimes
from collc.errors import InputError
from collc.launch.job import Job, Problem
from collc.launch.variables import is_there, same
from collc.verify import formats
from collc.verify.msccl_reader import c_number
from collc.verify.rules import Collector
from collc.verify.xml import elements


def _files(job: Job) -> Iterator[Problem]:
    told = job.told
    stops = told.holds == "directory"
    for file in job.files:
        if not is_there(file.path) and not stops:
            continue  # the path is reported
        if file.refused is not None:
            effect = "no file of the directory can be relied on" if stops else f"{told.name} ignores it"
            yield job.problem("stray-file", told.variable, f"{file.name} cannot be read: {file.refused}; {effect}")
        elif file.broken is not None:
            effect = "the communicator is not created" if stops else f"{told.name} ignores it"
            yield job.problem(
                "broken-file", told.variable, f"{file.name} cannot be read whole: {file.broken}; {effect}"
            )
    if told.versions and job.environment.value(told.variable) and not job.files:
        yield job.problem("no-files", told.variable, f"{told.variable} names no file that can be read")
    limit = runtimes.load(told.name).max_files if told.versions else None
    held = [file for file in job.files if file.refused is None and job.is_for(file)]
    if limit is not None and len(held) > limit:
        message = f"{told.variable} names {len(held)} files; {told.name} holds {limit}"
        yield job.problem("too-many-files", told.variable, message)


def _rank_count(job: Job) -> Iterator[Problem]:
    good = [file for file in job.files if file.refused is None]
    if job.ranks is None or not good or any(file.n_ranks == job.ranks.number for file in good):
        return
    known = ", ".join(map(str, sorted({file.n_ranks for file in good})))
    message = f"the job has {job.ranks.number} ranks ({job.ranks.variable}); the files are for {known}: none is used"
    yield job.problem("rank-count", job.told.variable, message)


def _channels(job: Job) -> Iterator[Problem]:
    most = _number(job.environment.value("NCCL_MAX_NCHANNELS"))
    drops = any(rules.obeys_max_channels for rules in job.told.versions.values())
    for file in job.files:
        if drops and most is not None and file.refused is None and job.is_for(file) and file.n_channels > most:
            message = f"{file.name} needs {file.n_channels} channels; NCCL_MAX_NCHANNELS={most}, so it is dropped"
            yield job.problem("max-channels", "NCCL_MAX_NCHANNELS", message)
    least = _number(job.environment.value("NCCL_MIN_NCHANNELS"))
    if job.told.min_channels is None or least is None or job.ranks is None:
        return
    below, largest = job.told.min_channels
    if job.ranks.number < below and least > largest:
        message = (
            f"NCCL_MIN_NCHANNELS={least} is ignored with {job.ranks.number} ranks, and there are fewer channels than "
            f"without it; below {below} ranks the largest that is accepted is {largest}"
        )
        yield job.problem("min-channels", "NCCL_MIN_NCHANNELS", message)


def _number(value: str | None) -> int | None:
    return c_number(value)[0] if value and value.strip()[:1].isdigit() else None


def _processes(job: Job) -> Iterator[Problem]:
    local, visible = job.environment.local_ranks(), job.environment.visible_gpus()
    if local is None or visible is None:
        return
    if visible.number == 1 and local.number > 1:
        message = (
            f"{visible.variable} shows one GPU to each of {local.number} tasks of a host ({local.variable}): peers "
            "cannot reach each other's memory, and fast links stay unused. Let every task see all GPUs of its host"
        )
        yield job.problem("one-visible-gpu", visible.variable, message)
    models = {rules.one_gpu_per_process for rules in job.told.versions.values()}
    if visible.number > 1 and local.number == 1 and job.environment.is_in_a_task() and models - {"no"}:
        variable = next(iter(job.told.versions.values())).single_process
        if variable and same(job.environment.value(variable) or "", ("1",)):
            return
        help_ = f", or set {variable}=1" if variable else ""
        message = (
            f"one process drives {visible.number} GPUs ({visible.variable}); {job.told.name} skips MSCCL then. "
            f"Start one process for each GPU{help_}"
        )
        yield job.problem("process-model", visible.variable, message)


def _graph_file(job: Job) -> Iterator[Problem]:
    value, local = job.environment.value("NCCL_GRAPH_FILE"), job.environment.local_ranks()
    if not value or local is None:
        return
    try:
        listing = elements(formats.read(value), Collector())
    except InputError as error:
        yield job.problem("graph-file", "NCCL_GRAPH_FILE", f"{value} cannot be read: {error.message}")
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
        yield job.problem("graph-file", "NCCL_GRAPH_FILE", message)


CHECKS = (_files, _rank_count, _channels, _processes, _graph_file)
