"""Checkers: one claim per file. They share no code with what they check.

`check` is what the pipeline calls after every stage; `examine_path` is what `collc verify` calls.
Readers of files and the program checker are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from collc.errors import VerificationError
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.ir.program import Program
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.verify.findings import Finding
from collc.verify.rules import Collector

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

            return capped(flow.examine(value))
        case Schedule():
            from collc.verify import schedule

            return capped(schedule.examine(value))
        case Program():
            from collc.verify import program

            return program.examine(value, fifo_depth=fifo_depth).findings
    return ()


def capped(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first findings of each rule, and one more that counts the rest."""
    collector = Collector()
    for finding in found:
        collector.take(finding)
    return collector.findings()


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
