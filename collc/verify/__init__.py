"""Checkers: one claim per file. They share no code with what they check.

`check` is what the pipeline calls after every stage; `examine_path` is what `collc verify` calls.
Readers of files and the program checker are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from collc.errors import InputError, VerificationError
from collc.ir.collective import Collective, Problem
from collc.ir.flow import FlowSchedule
from collc.ir.program import Program
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.verify.findings import Finding
from collc.verify.report import FileReport, Request
from collc.verify.rules import collected

Level = Topology | Problem | FlowSchedule | Schedule | Program
T = TypeVar("T", bound=Level)


def check(value: T) -> T:
    """The value itself, once its level's checker has nothing against it.

    Topologies and problems are valid by construction.

    Raises:
        VerificationError: it is wrong; carries the first counterexamples.
    """
    raise_on_errors(type(value).__name__, findings(value))
    return value


def findings(value: Level, *, fifo_depth: int | None = None) -> tuple[Finding, ...]:
    """What the checker of the value's level finds, at most ten of each rule and a count of the rest.

    Args:
        fifo_depth: transfers a connection can hold, for programs; None asks only whether any depth will do.
    """
    match value:
        case FlowSchedule():
            from collc.verify import flow

            return collected(flow.examine(value))
        case Schedule():
            from collc.verify import schedule

            return collected(schedule.examine(value))
        case Program():
            from collc.verify import program

            return program.examine(value, fifo_depth=fifo_depth).findings
    return ()


def raise_on_errors(name: str, found: Iterable[Finding]) -> None:
    """Nothing, where there are no errors among the findings (warnings are left to the caller).

    Raises:
        VerificationError: names the first errors.
    """
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        shown = "; ".join(f"{finding.message} [{finding.rule}]" for finding in errors[:3])
        more = f"; and {len(errors) - 3} more" if len(errors) > 3 else ""
        raise VerificationError(f"{name}: {shown}{more}")


def examine_path(path: str, request: Request | None = None) -> tuple[FileReport, ...]:
    """The reports on a file, or on every file of a directory, in any format.

    Raises:
        InputError: it cannot be read, or is in no format collc knows.
    """
    from collc.verify import formats

    return formats.examine(path, request or Request())


def check_text(
    text: str,
    runtime: str | None,
    *,
    name: str,
    limits: Mapping[str, int] | None = None,
    conditions: Collective | None = None,
) -> FileReport:
    """The report on the text of a file, once there is nothing wrong with it (warnings aside).

    Args:
        runtime: by whose rules; None for collc's own files.
        name: what the file will be called, for messages.
        limits: limit -> value, for a runtime built with others.
        conditions: what it is to compute, where that is not what its collective's name says.

    Raises:
        VerificationError: the runtime would refuse it, or it does the wrong thing.
    """
    from collc.verify import formats

    try:
        report = formats.examine_bytes(
            text.encode(), name, Request(runtime=runtime, limits=limits or {}, conditions=conditions)
        )
    except InputError as error:
        raise VerificationError(str(error)) from None
    raise_on_errors(name, report.findings)
    return report
