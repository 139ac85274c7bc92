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
from collc.errors import InputError, Place, nearest
from collc.files import write_all
from collc.ir.collective import Collective
from collc.ir.topology import Topology
from collc.runtimes import plans, tuners
from collc.units import parse_bytes
from collc.verify.report import FileReport, Request


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


def _buffer(ctx: click.Context, option: click.Parameter, word: str | None) -> int | None:
    """A size in bytes."""
    return parse_bytes(word) if word else None


@click.command(short_help="Check schedule files, whoever wrote them.")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option(
    "--runtime",
    type=click.Choice((*runtimes.names(), *plans.names(), *tuners.names())),
    help="By whose rules; guessed from the file without it.",
)
@click.option("-t", "--topology", metavar="TOPOLOGY", help="The fabric it is to run on: links, loads, bandwidth.")
@click.option("-c", "--collective", metavar="NAME", help="The collective it is to compute, or a YAML as below.")
@click.option("--conditions", metavar="FILE", help="A YAML that says what it is to compute, chunk by chunk.")
@click.option(
    "--demand",
    metavar="FILE|RULE",
    help="The amounts an alltoallv is to move: a CSV matrix, a row per sender; or, with -t, a rule as for synth.",
)
@click.option("--fifo-depth", type=click.IntRange(1), metavar="N", help="Sends a connection holds before it blocks.")
@click.option(
    "--buffer",
    callback=_buffer,
    metavar="SIZE",
    help="Buffer of a connection, as NCCL_BUFFSIZE sets it.",
)
@click.option("--max-channels", type=click.IntRange(1), metavar="N", help="Channels the communicator has.")
@click.option("--max-conn-per-nic", type=click.IntRange(1), metavar="N", help="Connections through a NIC, each way.")
@click.option("--limit", "limits", multiple=True, callback=_limits, metavar="KEY=N", help="A limit of the runtime.")
@click.option("--sizes", callback=_sizes, metavar="SIZE,...", help="Message sizes it is to serve, such as 1MiB,64KB.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON document.")
@click.option("--github", is_flag=True, help="The findings as GitHub annotations.")
@click.option("--junit", metavar="FILE", help="Also write the result as JUnit XML.")
@click.option("--sarif", metavar="FILE", help="Also write the result as SARIF 2.1.0.")
@click.option("--strict", is_flag=True, help="Warnings fail the check too.")
@click.option("--rules", is_flag=True, help="Explain every rule, or those named instead of files, and leave.")
@click.option("--conditions-schema", is_flag=True, help="Print the JSON Schema of a --conditions file, and leave.")
@click.pass_context
def verify(ctx: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Check schedule files, whoever wrote them.

    FILE is an MSCCL XML, an MSCCL++ execution plan, a tuner table, one of collc's own JSON
    schedules, or a directory of files as a runtime would load it. Checks that the runtime accepts
    it and, of a schedule, that it cannot hang or race and that every output holds exactly the right
    data. Leaves with 0 where nothing is wrong, 1 where something is, 2 where a file cannot be read.
    """
    from collc.cli import show
    from collc.cli.interchange import github

    if options["rules"] or options["conditions_schema"]:
        click.echo(_reference(files, options))
        return
    if not files:
        raise click.UsageError("name at least one file or directory", ctx)
    reports = _examine(files, options)
    _write_reports(reports, options)
    strict: bool = options["strict"]
    if options["as_json"]:
        click.echo(json.dumps(show.document(reports, strict=strict), indent=2))
    elif options["github"]:
        click.echo("".join(github(reports, strict=strict)), nl=False)
    else:
        for report in reports:
            click.echo(show.text(report, strict=strict))
    if not all(report.ok(strict=strict) for report in reports):
        ctx.exit(1)


def _reference(names: tuple[str, ...], options: Mapping[str, Any]) -> str:
    """What explains `verify` itself: its rules, or the schema of its conditions."""
    if options["conditions_schema"]:
        from collc.conditions import schema

        return json.dumps(schema(), indent=2)
    from collc.cli import rules

    return rules.as_json(names) if options["as_json"] else rules.as_text(names)


def _examine(files: tuple[str, ...], options: Mapping[str, Any]) -> list[FileReport]:
    """The reports on all files, with the optimum where the fabric is known."""
    request = _request(options)
    reports = [report for file in files for report in checkers.examine_path(file, request)]
    return [_with_bound(report, request) for report in reports]


def _request(options: Mapping[str, Any]) -> Request:
    from collc.ir.collective import NAMES, UNEVEN

    collective, conditions = options["collective"], options["conditions"]
    if collective and Path(collective).suffix in (".yaml", ".yml"):
        if conditions:
            raise InputError("-c and --conditions both name a file; expected one of them")
        collective, conditions = None, collective
    if collective and collective not in (*NAMES, *UNEVEN):
        raise InputError(f"collective '{collective}'" + nearest(collective, (*NAMES, *UNEVEN)))
    topology = None
    if options["topology"]:
        from collc.topology import open_topology

        loaded = open_topology(options["topology"])
        for warning in loaded.warnings:
            click.echo(f"collc: warning: {warning}", err=True)
        topology = loaded.topology
    if conditions and options["demand"]:
        raise InputError("--conditions and --demand both say what moves; expected one of them")
    return Request(
        runtime=options["runtime"],
        topology=topology,
        collective=collective,
        demand=_demand(options["demand"], topology) if options["demand"] else None,
        conditions=_conditions(conditions) if conditions else None,
        fifo_depth=options["fifo_depth"],
        buffer_bytes=options["buffer"],
        max_channels=options["max_channels"],
        max_nic_connections=options["max_conn_per_nic"],
        limits=options["limits"],
        sizes=options["sizes"],
    )


def _demand(text: str, topology: Topology | None) -> Collective:
    from collc.ir.demand import from_demand, read_demand
    from collc.ir.demand_pattern import is_pattern, make_demand

    if not is_pattern(text):
        return from_demand(read_demand(text))[0]
    if topology is None:
        raise InputError(f"--demand {text}: a rule needs to know the ranks; name the topology with -t")
    return from_demand(make_demand(text, topology.n_ranks))[0]


def _conditions(path: str) -> Collective:
    from collc.conditions import read_conditions
    from collc.verify.formats import read

    try:
        text = read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", Place(path)) from None
    return read_conditions(text, path)


def _with_bound(report: FileReport, request: Request) -> FileReport:
    """The report with the exact optimum of its collective on the fabric."""
    topology, collective = request.topology, report.table
    if topology is None or collective is None or report.bound_algbw or collective.n_ranks != topology.n_ranks:
        return report
    from collc import cost
    from collc.ir.collective import COLLECTIVES, Problem, make_collective

    # The same demand in the fewest chunks; where a file pads its blocks, by its own table.
    asked = request.conditions or request.demand
    if asked and asked.name == collective.name:
        collective = asked
    elif asked is None and collective.name in COLLECTIVES:
        collective = make_collective(collective.name, collective.n_ranks, root=collective.root)
    # What MSCCL XML says, switches that add or copy have no part in.
    fabric = topology.without_branching() if report.format == "msccl-xml" else topology
    bound = cost.bound(Problem(fabric, collective))
    return replace(report, bound_algbw=bound.algbw) if bound and bound.time else report


def _write_reports(reports: list[FileReport], options: Mapping[str, Any]) -> None:
    """Write what other programs read."""
    from collc.cli import interchange

    for path, render in ((options["junit"], interchange.junit), (options["sarif"], interchange.sarif)):
        if path:
            write_all(str(Path(path).parent), {Path(path).name: render(reports, strict=options["strict"])})
