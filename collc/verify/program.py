"""The program checker: whatever order the hardware picks, the program ends with the right data.

A program has no branches, so a program that cannot hang and has no data race computes the same in
every order; one legal run then stands for all. The checks build on one another, and each runs only
where the ones before it found nothing that would make it meaningless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collc.ir.program import Program
from collc.verify import liveness, races, values
from collc.verify.findings import Finding
from collc.verify.graph import Graph, build
from collc.verify.memory import Memory
from collc.verify.rules import Collector


@dataclass(frozen=True)
class ProgramReport:
    """What the program checker found.

    Attributes:
        findings: nothing among them of severity "error" means proven right.
        fifo_depth_needed: the least depth of all queues with which the program ends, one queue place
            per send; None if it hangs at any depth or is not well-formed.
        fifo_depth_large: the same where every chunk takes a place of its own, as in large messages.
    """

    findings: tuple[Finding, ...]
    fifo_depth_needed: int | None
    fifo_depth_large: int | None = None


def examine(
    program: Program,
    *,
    fifo_depth: int | None = None,
    lines: Mapping[tuple[int, int, int], tuple[int, int]] | None = None,
) -> ProgramReport:
    """Prove a program right, or say what is wrong with it.

    Args:
        fifo_depth: sends a connection holds before its sender blocks. Without it, only a program that
            hangs at any depth is wrong.
        lines: (rank, threadblock, step) -> line and column, for findings in a file.

    Complexity: near linear in instructions and slots.
    """
    found = Collector(lines)
    graph = build(program, found)
    if graph is None:
        return ProgramReport(found.findings(), None)
    order, needed, large = _check_liveness(graph, fifo_depth, found)
    if needed is not None:
        memory = Memory(program)
        if not races.check(graph, memory, order, found):
            values.check(graph, memory, order, found)
    return ProgramReport(found.findings(), needed, large)


def _check_liveness(graph: Graph, fifo_depth: int | None, found: Collector) -> tuple[list[int], int | None, int | None]:
    """A legal order of the instructions, and the depths needed with one place per send and per chunk."""
    operations = liveness.whole(graph)
    order, needed = liveness.run(operations)
    if len(order) < len(graph.instructions):
        number, told = liveness.story(operations)
        found.add("deadlock", f"hangs however deep the queues are: {told}", graph.where[number])
        return order, None, None
    if fifo_depth is not None and needed > fifo_depth:
        number, told = liveness.story(operations, fifo_depth)
        found.add(
            "fifo-depth",
            f"needs {needed} sends outstanding on a connection, which holds {fifo_depth}, and so hangs: {told}",
            graph.where[number],
        )
        return order, needed, None
    if all(instruction.count <= 1 for instruction in graph.instructions):
        return order, needed, needed
    operations = liveness.split(graph)
    _, large = liveness.run(operations)
    if fifo_depth is not None and large > fifo_depth:
        number, told = liveness.story(operations, fifo_depth)
        found.add(
            "fifo-depth-large",
            f"hangs once each chunk takes a queue place of its own, as in large messages: needs {large}, the "
            f"connection holds {fifo_depth}: {told}",
            graph.where[number],
        )
    return order, needed, large
