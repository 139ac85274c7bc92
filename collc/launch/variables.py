"""What is wrong with single variables of a job's environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from collc.errors import CollcError
from collc.launch.job import SHARED_DIRECTORY, Job, Problem
from collc.runtimes import launch
from collc.runtimes.launch import Setting
from collc.verify import formats
from collc.verify.msccl_reader import c_number

# Variables of every NCCL that change what runs.
_CHANGE_WHAT_RUNS = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_GRAPH_FILE",
    "NCCL_TOPO_FILE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
)


def _nothing_named(job: Job) -> Iterator[Problem]:
    told, environment = job.told, job.environment
    if not told.variable or environment.value(told.variable):
        return
    instead = "its own directory of algorithms" if told.holds == "directory" else "its own algorithms"
    if told.holds == "list" and environment.value("MSCCL_CONFIG"):
        return
    yield job.problem("nothing-named", told.variable, f"{told.variable} is not set: {told.name} uses {instead}")


def _foreign(job: Job) -> Iterator[Problem]:
    if job.told.holds == "file":
        return  # a tuner stands beside any of the others
    others = [launch.load(name) for name in launch.names() if name != job.told.name]
    for variable in sorted(job.environment.variables):
        owners = [other.name for other in others if other.holds != "file" and other.owns(variable)]
        if variable == SHARED_DIRECTORY and job.told.variable != SHARED_DIRECTORY:
            owners = ["executor", "rccl"]
        if owners and not job.told.owns(variable):
            message = (
                f"{variable} is read by {' and '.join(owners)}, not by {job.told.name}; it does nothing here, unset it"
            )
            yield job.problem("foreign-variable", variable, message)


def _settings(job: Job) -> Iterator[Problem]:
    for setting in job.told.settings:
        value = job.environment.value(setting.name)
        if _is_wrong(setting, value):
            shown = f"{setting.name}={value}" if value is not None else f"{setting.name} is not set"
            yield job.problem(setting.rule, setting.name, f"{shown}: {setting.why}")


def _is_wrong(setting: Setting, value: str | None) -> bool:
    match setting.when:
        case "set":
            return bool(value)
        case "is":
            return value is not None and same(value, setting.values)
        case "is-not":
            return value is None or not same(value, setting.values)
        case "lacks":
            words = {word.strip().upper() for word in (value or "").lstrip("^").split(",")}
            return words.isdisjoint(setting.values) or (value or "").startswith("^")


def same(value: str, known: Sequence[str]) -> bool:
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
        yield job.problem("algo-names-msccl", "NCCL_ALGO", message)


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
                yield job.problem("relative-path", variable, message)
            yield from _missing(job, variable, part)


def _missing(job: Job, variable: str, part: str) -> Iterator[Problem]:
    if not is_there(part, directory=(variable, job.told.holds) == (job.told.variable, "directory")):
        message = f"{variable}: there is no {part}; {job.told.name} goes on without it, or does not start"
        yield job.problem("path-missing", variable, message)


def is_there(path: str, *, directory: bool = False) -> bool:
    """Whether a path leads to something, or to a directory."""
    try:
        return Path(path).is_dir() if directory else Path(path).exists()
    except (OSError, ValueError):
        return False


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
            yield job.problem("protocol-off", "NCCL_PROTO", message)


def _from_config(job: Job) -> Iterator[Problem]:
    for name, variable in sorted(job.environment.variables.items()):
        if variable.is_forgettable and (name in _CHANGE_WHAT_RUNS or name in job.told.paths or job.told.owns(name)):
            yield job.problem("config-file", name, f"{variable.source} sets {name}={variable.value} for every job")


CHECKS = (_nothing_named, _foreign, _settings, _algo_names_msccl, _paths, _protocol_off, _from_config)
