"""Checks what one file holds, against the rules of its format and against what was asked of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

from collc import runtimes
from collc.errors import InputError, Place
from collc.ir import text
from collc.ir.collective import Collective, Problem, padded
from collc.ir.flow import FlowSchedule
from collc.ir.program import Program
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.verify import flow, msccl, program, schedule
from collc.verify.findings import Finding
from collc.verify.fit import Fit, Lines, program_on, routes_on
from collc.verify.report import FileReport, Request, Served
from collc.verify.rules import Collector, collected
from collc.verify.sharing import crossings

_FORMATS: dict[type, str] = {
    Topology: "collc-topology",
    Problem: "collc-problem",
    FlowSchedule: "collc-flow",
    Schedule: "collc-schedule",
    Program: "collc-program",
}
OnFabric = Callable[[Topology], Fit]


def examine_own(raw: bytes, path: str, request: Request) -> FileReport:
    """One of collc's own documents, checked by its level's checker.

    Raises:
        InputError: it is no such document; names the field.
    """
    try:
        value = text.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", Place(path)) from None
    except InputError as error:
        raise InputError(error.message, Place(path)) from None
    report = FileReport(path, _FORMATS[type(value)], source=raw)
    match value:
        case Problem():
            return held_against(_computes(report, value.collective), request, None)
        case FlowSchedule():
            hops = crossings(value) if value.in_network else None
            return held_against(
                _of_made(report, value, collected(flow.examine(value)), request),
                request,
                lambda on: routes_on(*flow.traffic(value), on, hops),
            )
        case Schedule():
            report = _of_made(report, value, collected(schedule.examine(value)), request)
            return held_against(report, request, lambda on: _steps_on(value, on))
        case Program():
            return held_against(_of_program(report, value, request), request, lambda on: _laid(value, request, on))
    return report


def _of_made(
    report: FileReport, value: FlowSchedule | Schedule, found: tuple[Finding, ...], request: Request
) -> FileReport:
    # A bound holds on the fabric it was made for and on no other.
    is_there = request.topology in (None, value.problem.topology)
    bound = value.bound if is_there else None
    return replace(
        _computes(report, value.problem.collective),
        findings=found,
        algbw=_rate(value.time),
        bound_algbw=_rate(bound.time) if bound else None,
    )


def _steps_on(value: Schedule, topology: Topology) -> Fit:
    """A schedule of steps on a fabric; where its steps are synchronous, their times add up."""
    loads, unit = schedule.traffic(value)
    fit = routes_on(loads, unit, topology)
    if not value.synchronous or fit.findings:
        return fit
    times = (routes_on(step, unit, topology).time for step in schedule.by_step(value))
    return replace(fit, time=sum(times, Fraction()))


def _of_program(report: FileReport, value: Program, request: Request) -> FileReport:
    examined = program.examine(value, fifo_depth=request.fifo_depth)
    return replace(
        _computes(report, value.collective),
        findings=examined.findings,
        in_place=value.collective.inplace,
        out_of_place=not value.collective.inplace,
        channels=value.n_channels,
        protocol=value.protocol,
        fifo_depth_needed=examined.fifo_depth_needed,
        liveness=examined.liveness,
    )


def _laid(value: Program, request: Request, topology: Topology, lines: Lines | None = None) -> Fit:
    return program_on(value, topology, lines, max_nic_connections=request.max_nic_connections)


def _computes(report: FileReport, collective: Collective) -> FileReport:
    return replace(report, collective=collective.name, ranks=collective.n_ranks, table=collective)


# --- MSCCL XML -----------------------------------------------------------------------------------


def examine_xml(raw: bytes, path: str, request: Request) -> FileReport:
    """An MSCCL XML, read by the rules of a runtime and run on symbolic data."""
    name = request.runtime or _guess(raw)
    runtime = runtimes.load(name).with_limits(request.limits)
    examine = partial(
        msccl.examine,
        raw,
        runtime,
        fifo_depth=request.fifo_depth,
        max_channels=request.max_channels,
        nbytes=request.sizes,
        buffer_bytes=request.buffer_bytes,
    )
    examined = examine(asked=request.conditions or request.demand)
    if request.demand and any(finding.severity == "error" for finding in examined.findings):
        # Blocks of one size, of which only what is demanded moves, serve a demand as well.
        again = examine(asked=padded(request.demand))
        if not any(finding.severity == "error" for finding in again.findings):
            examined = again
    report = FileReport(
        path,
        "msccl-xml",
        examined.findings,
        runtime=name,
        guessed=request.runtime is None,
        limits=request.limits,
        fifo_depth_needed=examined.fifo_depth_needed,
        liveness=examined.liveness,
        transfers=examined.transfers,
        source=raw,
    )
    file = examined.file
    if file is None:
        return report
    report = replace(
        report,
        collective=file.collective,
        ranks=file.n_ranks,
        table=file.programs[0].collective if file.programs else None,
        in_place=file.inplace,
        out_of_place=file.outofplace,
        min_bytes=file.min_bytes,
        max_bytes=file.max_bytes,
        elements=_elements(file),
        channels=file.n_channels,
        protocol=file.protocol,
        served=tuple(Served(nbytes, msccl.why_not_served(file, nbytes)) for nbytes in request.sizes),
    )
    # Where both kinds of call are served, they differ in memory alone, not in what crosses the links.
    on_fabric = (lambda on: _laid(file.programs[0], request, on, file.lines)) if file.programs else None
    return held_against(report, request, on_fabric)


def _elements(file: msccl.MscclFile) -> int | None:
    """The number of elements that messages are multiples of."""
    blocks = file.n_ranks if file.collective in ("gather", "scatter") else 1
    return file.n_chunks * blocks or None


def _guess(raw: bytes) -> str:
    """The runtime a file was made for.

    The later ones need attributes that the first can do without; of one collective they do not take
    the first one's spelling.
    """
    tag = re.search(rb"<algo\b[^>]*", raw)
    if tag is None or not re.search(rb"\b(outofplace|minBytes)\s*=", tag[0]):
        return "classic"
    spelt = re.search(rb'\bcoll="([a-z_]*)"', tag[0])
    first, later = (set(runtimes.load(name).collectives.values()) for name in ("classic", "executor"))
    return "classic" if spelt and spelt[1].decode() in first - later else "executor"


# --- what was asked for --------------------------------------------------------------------------


def held_against(report: FileReport, request: Request, on_fabric: OnFabric | None) -> FileReport:
    """The report, with what was asked for and is not there."""
    found = Collector()
    if request.collective and report.collective and report.collective != request.collective:
        found.add("collective-differs", f"computes {report.collective}; asked for {request.collective}")
    if request.demand and report.table:
        _check_demand(report.table, request.demand, found)
    if request.conditions and report.table and report.table.name != request.conditions.name:
        found.add("collective-differs", f"computes {report.table.name}, which is not held against the conditions")
    if request.topology and on_fabric:
        fit = on_fabric(request.topology)
        for finding in fit.findings:
            found.take(finding)
        report = replace(report, algbw=_rate(fit.time), loads=fit.loads, nics=fit.nics)
    return replace(report, findings=(*report.findings, *found.findings()))


def _check_demand(table: Collective, demand: Collective, found: Collector) -> None:
    if _moves_as(table, demand):
        return
    if table.name == "alltoall" and table.n_ranks == demand.n_ranks:
        largest = max(chunk.count for chunk in demand.chunks)
        times = Fraction(largest * demand.n_ranks**2, sum(chunk.count for chunk in demand.chunks))
        if times > 1:
            message = f"blocks of the largest size serve the demand, and move {float(times):.4g} times its bytes"
            found.add("demand-padded", message)
    else:
        found.add("demand-differs", "moves other amounts between ranks than the demand asks for")


def _moves_as(collective: Collective, demand: Collective) -> bool:
    """Whether two collectives move the same shares of their size from rank to rank."""
    return _moved(collective) == _moved(demand)


def _moved(collective: Collective) -> dict[tuple[object, object], Fraction]:
    """(contributors, consumers) -> share of everything that moves between them."""
    total = sum(chunk.count for chunk in collective.chunks)
    moved: dict[tuple[object, object], Fraction] = {}
    for chunk in collective.chunks:
        ends = tuple(chunk.precondition.ranks), tuple(chunk.postcondition.ranks)
        moved[ends] = moved.get(ends, Fraction()) + Fraction(chunk.count, total)
    return moved


def _rate(time: Fraction) -> Fraction | None:
    """The bandwidth [GB/s] of a time [s/GB]; None where nothing moves."""
    return 1 / time if time else None
