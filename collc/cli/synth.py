"""`collc synth`: make a schedule, check it, write the files a runtime loads."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from collc.cli import progress_line
from collc.deadline import CUT_SHORT, within
from collc.errors import BudgetError, CollcError, InputError

if TYPE_CHECKING:
    from collc.cli.request import Asked


@click.command()
@click.argument("topology", required=False)
@click.option(
    "-c",
    "--collective",
    help="allgather, reduce_scatter, allreduce, broadcast, reduce, gather, scatter, alltoall or alltoallv; "
    "allgather and reduce_scatter with --shares.",
)
@click.option("-s", "--synthesizer", default="auto", show_default=True, help="Who makes it; see --list.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="An option of the synthesizer.")
@click.option("-n", "--size", metavar="SIZE|LO:HI", help="Message size, or a range with a file for each part of it.")
@click.option(
    "--demand",
    metavar="FILE|RULE",
    help="All-to-all-v: bytes from each rank to each, CSV or .npy; or by rule, as uniform:, zipf:1.2,seed=1, "
    "expert-skew:0.5 or balanced:, with mean=SIZE per pair.",
)
@click.option("--root", type=int, help="Root rank of broadcast, reduce, gather, scatter.")
@click.option("--shares", metavar="W0,W1,...|FILE", help="Allgather, reduce-scatter: the size of each rank's block.")
@click.option(
    "--ranks",
    multiple=True,
    metavar="0,1,4-7",
    help="Only these ranks form the group. Given again: one more group, at the same time on the same links.",
)
@click.option("--relay", is_flag=True, help="GPUs outside the groups forward for them.")
@click.option("-b", "--backend", help="executor, rccl, classic, json, plan or route.  [default with -d: executor]")
@click.option("-d", "--directory", metavar="DIR|-", help="Where files are written; - for standard output.")
@click.option("--in-place/--out-of-place", "inplace", default=None, help="Serve one kind of call only.")
@click.option("--protocol", type=click.Choice(["Simple", "LL", "LL128"]), default="Simple", show_default=True)
@click.option("--chunks", default="pow2", show_default=True, metavar="pow2|exact|N", help="Chunks per rank block.")
@click.option(
    "--instances", type=int, default=1, show_default=True, help="Copies of each tree on channels of their own."
)
@click.option("--max-channels", type=int, help="The same as --limit channels=N.")
@click.option(
    "--limit", "limits", multiple=True, metavar="KEY=N", help="A limit the runtime was built with, such as steps=256."
)
@click.option(
    "--time-limit", type=float, metavar="SECONDS", help="Give up after this long (exit 4 if nothing was found)."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    help="Processes of this machine among which the work is spread.",
)
@click.option("--engine", metavar="dask://HOST:PORT", help="Spread the work over this dask cluster instead.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON document.")
@click.option("--no-cache", is_flag=True, help="Neither read nor keep results.")
@click.option("--list", "list_plugins", is_flag=True, help="Every synthesizer and backend, with its options.")
def synth(topology: str | None, as_json: bool, list_plugins: bool, **given: Any) -> None:
    """Make a schedule for TOPOLOGY, check it, and write the files a runtime loads.

    TOPOLOGY is a YAML file, - for standard input, or a shipped name such as dgx-a100:hosts=2.
    """
    if list_plugins:
        from collc.cli import plugins

        click.echo(plugins.as_json() if as_json else plugins.as_text(), nl=False)
        return
    start = perf_counter()
    if topology is None:
        raise click.UsageError("Missing argument 'TOPOLOGY'.")
    if not given["collective"]:
        raise click.UsageError("Missing option '-c COLLECTIVE'.")
    code = None
    if not given["no_cache"]:
        from collc import cache

        # Not work that a deadline is for; one that struck here would leave a file open.
        code = cache.fingerprint()
    with _deadline(given["time_limit"]), progress_line.shown():
        shown, files = _result(topology, given, code)
    paths = _write(files, given["directory"])
    for entry, path in zip(shown["files"], paths, strict=True):
        entry["path"] = path
    shown["seconds"]["total"] = perf_counter() - start
    _show(shown, as_json, to_stderr=given["directory"] == "-")


def _result(topology: str, given: dict[str, Any], code: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The report and the files, from the cache where it has them and they still pass.

    Args:
        code: collc's fingerprint; None where the cache is not to be used.
    """
    from collc import cache
    from collc.cli.request import content, healthy, open_problem

    asked = open_problem(topology, given)
    if given["directory"] not in (None, "-"):
        from collc.files import check_writable

        check_writable(given["directory"])
    name = None if code is None else cache.key(code, **content(asked, given))
    entry = None if name is None else cache.read(name)
    if cached := entry is not None and _still_passes(entry, asked, given):
        shown, files = entry["report"], entry["files"]
    else:
        from collc.choose import OUT_OF_TIME
        from collc.cli.request import compile_asked

        shown, files = compile_asked(asked, topology, given)
        # What a deadline cut short must not be what later runs get.
        cut_short = CUT_SHORT in shown["warnings"] or any(
            why.endswith(OUT_OF_TIME) for why in shown["passed_over"].values()
        )
        if name is not None and not cut_short:
            cache.write(name, {"report": shown, "files": files})
    # A fabric read from another file is the same fabric, but what reading it brought up may differ.
    warnings = [*asked.warnings, *shown["warnings"]]
    if asked.degraded_from and (before := healthy(asked, given)):
        shown |= {"healthy": before}
    return shown | {"cached": cached, "topology": topology, "warnings": warnings}, files


def _still_passes(entry: dict[str, Any], asked: Asked, given: dict[str, Any]) -> bool:
    """Whether an entry is whole and its files pass the check they passed when made."""
    from collc.cli.request import target_of

    target = target_of(given)
    try:
        told = {file["path"]: file["sha256"] for file in entry["report"]["files"]}
        if told != {name: sha256(text.encode()).hexdigest() for name, text in entry["files"].items()}:
            return False
        for name, text in entry["files"].items():
            target.read_back(text, name, asked.problem.collective)
    except BudgetError:
        raise
    except (CollcError, AttributeError, KeyError, TypeError):
        return False
    return True


def _write(files: dict[str, str], directory: str | None) -> list[str]:
    """Write what was asked for; the path of each file, or its name where it was not written."""
    if directory is None:
        return list(files)
    if directory != "-":
        from collc.files import write_all

        return write_all(directory, files)
    if len(files) != 1:
        raise InputError(
            f"-d - writes one file, and this makes {len(files)}: {', '.join(files)}; "
            "give a directory, or --in-place or --out-of-place"
        )
    click.echo(next(iter(files.values())), nl=False)
    return list(files)


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Stop the work inside after so many seconds.

    Raises:
        BudgetError: it was not done by then.
    """
    if seconds is None:
        yield
        return
    if not 0 < seconds < 1e8:
        raise InputError(f"--time-limit {seconds}; expected a positive number of seconds")

    def stop(_signal: int, _frame: object) -> None:
        raise BudgetError(f"no schedule within {seconds:g} s; allow more, or name a faster synthesizer with -s")

    def dropped(one: sys.UnraisableHookArgs) -> None:
        # It struck where Python cannot raise, such as in a finalizer: let it strike again at once.
        if isinstance(one.exc_value, BudgetError):
            signal.setitimer(signal.ITIMER_REAL, 1e-3)
        else:
            hook(one)

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with within(seconds):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


def _show(shown: dict[str, Any], as_json: bool, *, to_stderr: bool) -> None:
    if as_json:
        # With -d - the file has standard output for itself.
        click.echo(json.dumps(shown, indent=2), err=to_stderr)
        return
    from collc.cli.summary import lines

    for line in lines(shown):
        click.echo(line, err=to_stderr)
    for warning in shown["warnings"]:
        click.echo(f"collc: note: {warning}", err=True)
    sys.stdout.flush()
