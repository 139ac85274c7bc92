"""`collc explain`: which file a call would use, and why not the others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from collc import runtimes
from collc.errors import InputError
from collc.runtimes import launch
from collc.units import parse_bytes

if TYPE_CHECKING:
    from collc.launch.call import Call
    from collc.launch.files import File
    from collc.launch.log import Reading
    from collc.launch.select import Answer
    from collc.runtimes import Runtime
    from collc.runtimes.launch import Launch

# Those that choose among files by themselves.
_RUNTIMES = tuple(name for name in launch.names() if launch.load(name).versions)


@click.command()
@click.option(
    "-d", "--dir", "directory", metavar="DIR", help="Where the files are.  [default: as the environment says]"
)
@click.option("-c", "--collective", "--coll", metavar="NAME", required=True, help="As in collc synth.")
@click.option("--ranks", type=int, required=True, help="Ranks of the communicator.")
@click.option("-n", "--bytes", "nbytes", metavar="SIZE", required=True, help="Message size, as nccl-tests counts it.")
@click.option("--dtype", default="float32", show_default=True, help="Element type.")
@click.option("--op", default="sum", show_default=True, help="Reduction.")
@click.option("--runtime", type=click.Choice(_RUNTIMES), default="executor", show_default=True)
@click.option("--runtime-version", metavar="V", help="Of the runtime, such as 2.21.  [default: all that are known]")
@click.option("--in-place/--out-of-place", "inplace", default=None, help="One kind of call only.")
@click.option(
    "--procs-per-host", "--procs-per-node", "procs", type=click.IntRange(1), help="[default: one for each GPU]"
)
@click.option("--hosts", type=click.IntRange(1), default=1, show_default=True, help="Used with --procs-per-host.")
@click.option("--single-process", is_flag=True, help="RCCL_MSCCL_ENABLE_SINGLE_PROCESS=1 is set.")
@click.option("--max-channels", type=click.IntRange(1), help="NCCL_MAX_NCHANNELS.")
@click.option("--root", type=int, help="Root of broadcast, reduce, gather, scatter.")
@click.option("--log", metavar="FILE", help="A debug log of the library: what it proves of these files.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def explain(as_json: bool, **given: Any) -> None:
    """Which file a call would use, and the first rule by which each other one is passed over.

    The library never says; where no file fits, its own algorithm runs. Without --in-place or
    --out-of-place both kinds of call are explained.
    """
    from collc.launch.files import read_all

    runtime = runtimes.load(given["runtime"])
    told = launch.load(given["runtime"])
    calls = _calls(given)
    paths = _paths(told, given["directory"])
    files = read_all(paths, runtime, given["ranks"])
    answers = [
        (call, version, answer) for call in calls for version, answer in _answers(files, call, runtime, told, given)
    ]
    reading = _reading(told, paths, given["log"])
    if as_json:
        click.echo(json.dumps(_document(given, answers, reading), indent=2))
        return
    for call, version, answer in answers:
        _show(call, f"{given['runtime']}{' ' + version if len(told.versions) > 1 else ''}", answer)
    if reading is not None:
        _show_log(reading)


def _calls(given: Mapping[str, Any]) -> list[Call]:
    """The calls asked about: out of place, in place, or both."""
    from collc.launch.call import Call, dtype_named

    procs = given["procs"]
    gpus = -(-given["ranks"] // (procs * given["hosts"])) if procs else 1
    call = Call(
        given["collective"],
        given["ranks"],
        parse_bytes(given["nbytes"]),
        dtype_named(given["dtype"]),
        given["op"],
        root=given["root"],
        gpus_per_process=gpus,
        single_process=given["single_process"],
        max_channels=given["max_channels"],
    )
    kinds = [False, True] if given["inplace"] is None else [given["inplace"]]
    return [replace(call, inplace=kind) for kind in kinds]


def _paths(told: Launch, directory: str | None) -> list[str]:
    """The files in the order the runtime lists them."""
    from collc.launch.files import listed

    if directory is not None:
        return listed(directory)
    value = os.environ.get(told.variable)
    if not value:
        raise InputError(f"no files: give --dir, or set {told.variable}")
    if told.holds == "list":
        return [path for path in value.split(":") if path]
    return listed(value)


def _answers(
    files: Sequence[File], call: Call, runtime: Runtime, told: Launch, given: Mapping[str, Any]
) -> list[tuple[str, Answer]]:
    """The answer of the version asked for, or of every version that answers differently from the newest."""
    from collc.launch.select import select

    version = given["runtime_version"]
    if version is not None:
        return [(version, select(files, call, runtime, told.versions[told.version(version)]))]
    found = [(name, select(files, call, runtime, rules)) for name, rules in told.versions.items()]
    newest = found[-1]
    others = [one for one in found[:-1] if _outcome(one[1]) != _outcome(newest[1])]
    return [newest, *reversed(others)]


def _outcome(answer: Answer) -> tuple[Any, ...]:
    return answer.selected, answer.ambiguous, answer.fails, answer.warnings


def _reading(told: Launch, paths: Sequence[str], log: str | None) -> Reading | None:
    if log is None:
        return None
    from collc.launch.log import read_log
    from collc.verify.formats import read

    return read_log(read(log).decode("utf-8", "replace"), told, paths)


def _document(
    given: Mapping[str, Any], answers: Sequence[tuple[Call, str, Answer]], reading: Reading | None
) -> dict[str, Any]:
    """The answers as data."""
    call = answers[0][0]
    return {
        "runtime": given["runtime"],
        "collective": call.collective,
        "ranks": call.n_ranks,
        "bytes": call.nbytes,
        "dtype": call.dtype,
        "op": call.op,
        "calls": [
            {
                "in_place": asked.inplace,
                "runtime_version": version,
                "selected": answer.selected,
                "ambiguous": list(answer.ambiguous),
                "own_algorithm": answer.selected is None and not answer.ambiguous and answer.fails is None,
                "fails": answer.fails,
                "warnings": list(answer.warnings),
                "files": [
                    {"path": v.path, "selected": v.rule is None, "rule": v.rule, "reason": v.reason}
                    for v in answer.verdicts
                ],
            }
            for asked, version, answer in answers
        ],
        "log": None if reading is None else reading.as_data(),
    }


def _show(call: Call, runtime: str, answer: Answer) -> None:
    from collc.cli.show import printable
    from collc.units import format_bytes

    kind = "in place" if call.inplace else "out of place"
    click.echo(f"{call.collective} of {format_bytes(call.nbytes)}, {call.n_ranks} ranks, {kind}, by {runtime}:")
    click.echo(f"  {printable(_headline(answer))}")
    for warning in answer.warnings:
        click.echo(f"  warning: {printable(warning)}")
    for verdict in answer.verdicts:
        word = "selected" if verdict.rule is None else verdict.rule
        click.echo(f"  {printable(Path(verdict.path).name)}: {word}: {printable(verdict.reason)}")


def _headline(answer: Answer) -> str:
    if answer.fails is not None:
        return f"fails: {answer.fails}"
    if answer.selected is not None:
        return f"uses {answer.selected}"
    if answer.ambiguous:
        return f"may use any of {len(answer.ambiguous)} files, and ranks may differ and hang"
    return "the library's own algorithm runs" + ("" if answer.verdicts else "; there are no files")


def _show_log(reading: Reading) -> None:
    from collc.cli.show import printable

    click.echo("the log proves:")
    for line in reading.lines() or ["nothing of these files"]:
        click.echo(f"  {printable(line)}")
