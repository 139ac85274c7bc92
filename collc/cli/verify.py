"""`collc verify`: check schedule files, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from collc import runtimes
from collc import verify as checkers
from collc.errors import InputError, nearest
from collc.files import write_all
from collc.ir.topology import Topology
from collc.units import parse_bytes
from collc.verify.report import LATER, FileReport, Request


def _limits(ctx: click.Context, option: click.Parameter, words: tuple[str, ...]) -> dict[str, int]:
    """`KEY=N` words as numbers by key."""
    limits = {}
    for word in words:
        key, equals, number = word.partition("=")
        if not (equals and number.isascii() and number.isdigit() and len(number) < 19):
            raise click.BadParameter(f"'{word}'; expected KEY=N, such as steps=256")
        limits[key] = int(number)
    return limits


def _sizes(ctx: click.Context, option: click.Parameter, words: str | None) -> tuple[int, ...]:
    """Sizes separated by commas, in bytes."""
    return tuple(parse_bytes(word) for word in words.split(",")) if words else ()


@click.command(short_help="Check schedule files, whoever wrote them.")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "--runtime",
    type=click.Choice((*runtimes.names(), *LATER)),
    help="By whose rules; guessed from the file without it.",
)
@click.option("-t", "--topology", metavar="TOPOLOGY", help="The fabric it is to run on: links, loads, bandwidth.")
@click.option("-c", "--collective", metavar="NAME", help="The collective it is to compute.")
@click.option("--demand", metavar="FILE", help="The amounts an alltoallv is to move: a CSV matrix, a row per sender.")
@click.option("--fifo-depth", type=click.IntRange(1), metavar="N", help="Sends a connection holds before it blocks.")
@click.option("--max-channels", type=click.IntRange(1), metavar="N", help="Channels the communicator has.")
@click.option("--limit", "limits", multiple=True, callback=_limits, metavar="KEY=N", help="A limit of the runtime.")
@click.option("--sizes", callback=_sizes, metavar="SIZE,...", help="Message sizes it is to serve, such as 1MiB,64KB.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON document.")
@click.option("--junit", metavar="FILE", help="Also write the result as JUnit XML.")
@click.option("--sarif", metavar="FILE", help="Also write the result as SARIF 2.1.0.")
@click.option("--strict", is_flag=True, help="Warnings fail the check too.")
@click.option("--rules", is_flag=True, help="List every rule and what it means, and leave.")
@click.pass_context
def verify(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Check schedule files, whoever wrote them.

    FILE is an MSCCL XML, one of collc's own JSON schedules, or a directory of files as a runtime
    would load it. Checks that the runtime accepts it, that it cannot hang or race, and that every
    output holds exactly the right data. Leaves with 0 where nothing is wrong, 1 where something is,
    2 where a file cannot be read.
    """
    from collc.cli import show

    if options["rules"]:
        click.echo(show.rules_json() if options["as_json"] else show.rules_text())
        return
    if not files:
        raise click.UsageError("name at least one file or directory", ctx)
    reports = _examine(files, options)
    _write_reports(reports, options)
    strict: bool = options["strict"]
    if options["as_json"]:
        click.echo(json.dumps(show.document(reports, strict=strict), indent=2))
    else:
        for report in reports:
            click.echo(show.text(report, strict=strict))
    if not all(report.ok(strict=strict) for report in reports):
        ctx.exit(1)


def _examine(files: tuple[str, ...], options: Mapping[str, Any]) -> list[FileReport]:
    """The reports on all files, with the optimum where the fabric is known."""
    request = _request(options)
    reports = [report for file in files for report in checkers.examine_path(file, request)]
    if request.topology:
        reports = [_with_bound(report, request.topology) for report in reports]
    return reports


def _request(options: Mapping[str, Any]) -> Request:
    from collc.ir.collective import NAMES
    from collc.ir.demand import from_demand, read_demand

    collective = options["collective"]
    if collective and collective not in NAMES:
        raise InputError(f"collective '{collective}'" + nearest(collective, NAMES))
    topology = None
    if options["topology"]:
        from collc.topology import open_topology

        loaded = open_topology(options["topology"])
        for warning in loaded.warnings:
            click.echo(f"collc: warning: {warning}", err=True)
        topology = loaded.topology
    return Request(
        runtime=options["runtime"],
        topology=topology,
        collective=collective,
        demand=from_demand(read_demand(options["demand"]))[0] if options["demand"] else None,
        fifo_depth=options["fifo_depth"],
        max_channels=options["max_channels"],
        limits=options["limits"],
        sizes=options["sizes"],
    )


def _with_bound(report: FileReport, topology: Topology) -> FileReport:
    """The report with the exact optimum of its collective on the fabric."""
    collective = report.table
    if collective is None or report.bound_algbw or collective.n_ranks != topology.n_ranks:
        return report
    from collc import cost
    from collc.ir.collective import COLLECTIVES, Problem, make_collective

    if collective.name in COLLECTIVES:
        # The same demand in the fewest chunks.
        collective = make_collective(collective.name, collective.n_ranks, root=collective.root)
    bound = cost.bound(Problem(topology, collective))
    return replace(report, bound_algbw=bound.algbw) if bound and bound.time else report


def _write_reports(reports: list[FileReport], options: Mapping[str, Any]) -> None:
    """Write what other programs read."""
    from collc.cli import interchange

    for path, render in ((options["junit"], interchange.junit), (options["sarif"], interchange.sarif)):
        if path:
            write_all(str(Path(path).parent), {Path(path).name: render(reports, strict=options["strict"])})
