"""How each consumer finds and chooses files at job launch, as data.

One TOML file per consumer, named as the user types it, next to the limits of `collc.runtimes`; every
fact has its source beside it. `collc.launch` holds the code that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from collc.errors import InputError
from collc.runtimes import tables

_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){0,3}", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """By which rules a runtime chooses a file for a call.

    Attributes:
        order: in which the files are tried: "sorted" by path, as the file system lists the "directory"
            (another order on each host), or as the "list" in the environment has them.
        a_bad_file: what a file does that cannot be read: "stops" the reading of all that follow, or is
            "ignored".
        ops: reductions that are looked up at all.
        never: element type -> collectives for which it is never looked up; "*" stands for all.
        unsound: element type -> collectives that are looked up, and then compute wrong results.
        largest: element type -> collective -> message size [bytes] above which it is never looked up.
        one_gpu_per_process: whether several GPUs in a process switch the files off: "always", "unless"
            `single_process` is set, or "no".
        single_process: the variable that allows several GPUs in a process.
        divides_count: whether the call's count alone, not that of all ranks, must fill whole chunks.
        ignores_inplace: collectives whose file is chosen whatever its in-place flag says.
        refuses_inplace: collectives whose in-place calls fail.
        obeys_max_channels: whether files with more channels than NCCL_MAX_NCHANNELS are dropped.
    """

    order: Literal["sorted", "directory", "list"]
    a_bad_file: Literal["stops", "ignored"]
    ops: tuple[str, ...]
    never: Mapping[str, tuple[str, ...]]
    largest: Mapping[str, Mapping[str, int]]
    unsound: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    one_gpu_per_process: Literal["always", "unless", "no"] = "no"
    single_process: str = ""
    divides_count: bool = False
    ignores_inplace: tuple[str, ...] = ()
    refuses_inplace: tuple[str, ...] = ()
    obeys_max_channels: bool = False


@dataclass(frozen=True)
class Setting:
    """A value of a variable that defeats the schedule.

    Attributes:
        name: the variable.
        when: what is wrong: the variable is "set" at all; "is" one of `values`; "is-not" (set
            or unset); or, as a list of words separated by commas, "lacks" one of `values`.
        why: what it does, and what helps.
    """

    rule: str
    name: str
    when: Literal["set", "is", "is-not", "lacks"]
    why: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Issue:
    """A known fault of a consumer.

    Attributes:
        versions: which, in words.
        before, since: it is in versions from `since` on and below `before`; empty: no limit.
    """

    name: str
    versions: str
    what: str
    since: str = ""
    before: str = ""

    def concerns(self, version: str | None) -> bool:
        """Whether that version has it; without a version, whether any has."""
        if version is None:
            return True
        asked = _numbers(version)
        return not (self.since and asked < _numbers(self.since)) and not (
            self.before and asked >= _numbers(self.before)
        )


@dataclass(frozen=True)
class LogLine:
    """A line of a debug log that proves something.

    Attributes:
        pattern: a regular expression; the groups `path`, `ranks` and `directory` say of what.
        proves: "directory" (it is the one that is read), "reading" (of a file begins), "loaded" (a file,
            or without one all that fit), "refused", "dropped", "selected", "ran" (some file), "off".
        words: for people.
    """

    pattern: str
    proves: str
    words: str


@dataclass(frozen=True)
class Launch:
    """How a consumer meets its files at job launch.

    Attributes:
        variable: the one that says where the files are; empty where a program must load them.
        holds: what that variable holds.
        exports: variable -> value for a launch script; `{path}` stands for the absolute path (or the list).
        variables: all that this consumer and no other reads; one that ends in `_` stands for all that begin so.
        hints: those of them that tell people use this consumer.
        paths: variables that hold a path, or a list of paths.
        settings: values that defeat a schedule.
        min_channels: (ranks, channels): below so many ranks, NCCL_MIN_NCHANNELS above so many is ignored.
        versions: version -> its rules of selection, oldest first; none where it does not choose among files.
    """

    name: str
    variable: str
    holds: Literal["directory", "list", "file", "program"]
    exports: Mapping[str, str]
    variables: tuple[str, ...]
    hints: tuple[str, ...]
    paths: tuple[str, ...]
    settings: tuple[Setting, ...]
    issues: tuple[Issue, ...]
    log: tuple[LogLine, ...]
    min_channels: tuple[int, int] | None
    versions: Mapping[str, Selection]

    def version(self, asked: str | None) -> str:
        """The newest known version that is no newer than the one asked for; the newest without one.

        Raises:
            InputError: no version, or older than all that are known.
        """
        if asked is None:
            return list(self.versions)[-1]
        older = [known for known in self.versions if _numbers(known) <= _numbers(asked)]
        if not older:
            raise InputError(f"{self.name} {asked}: older than {next(iter(self.versions))}, the oldest collc knows")
        return older[-1]

    def owns(self, variable: str) -> bool:
        """Whether a variable is one that only this consumer reads."""
        return any(variable == own or (own.endswith("_") and variable.startswith(own)) for own in self.variables)


def is_older(version: str, than: str) -> bool:
    """Whether a version comes before another one.

    Raises:
        InputError: one of them is no version.
    """
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    """The parts of a version.

    Raises:
        InputError: it is none.
    """
    if not _VERSION.fullmatch(version):
        raise InputError(f"version '{version}'; expected numbers with dots, such as 2.28")
    return tuple(map(int, version.split(".")))


def names() -> tuple[str, ...]:
    """The consumers collc knows how to launch, sorted."""
    return tables.names(Path(__file__).parent)


@cache
def load(name: str) -> Launch:
    """How the consumer of that name meets its files.

    Raises:
        InputError: no such consumer; names the nearest.
    """
    told = tables.read(Path(__file__).parent, name)
    least = told.get("min_channels")
    return Launch(
        name,
        variable=told.get("variable", ""),
        holds=told["holds"],
        exports=told.get("exports", {}),
        variables=tuple(told["variables"]),
        hints=tuple(told["hints"]),
        paths=tuple(told.get("paths", ())),
        settings=tuple(Setting(**_frozen(entry)) for entry in told.get("settings", ())),
        issues=tuple(Issue(**entry) for entry in told.get("issues", ())),
        log=tuple(LogLine(**entry) for entry in told.get("log", ())),
        min_channels=(least["below_ranks"], least["largest"]) if least else None,
        versions=_versions(told),
    )


def _versions(told: Mapping[str, Any]) -> dict[str, Selection]:
    """The rules of each version: those of the consumer, with what that version has otherwise."""
    if "selection" not in told:
        return {}
    shared = Selection(**_frozen(told["selection"]))
    return {name: replace(shared, **_frozen(own)) for name, own in told["versions"].items()}


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The same with tuples for lists, also one level down."""
    changed: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            changed[key] = _frozen(value)
        else:
            changed[key] = tuple(value) if isinstance(value, list) else value
    return changed
