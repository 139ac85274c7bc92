"""The program checker: whatever order the hardware picks, the program ends with the right data.

A program has no branches, so a program that cannot hang and has no data race computes the same in
every order; one legal run then stands for all. The checks build on one another, and each runs only
where the ones before it found nothing that would make it meaningless.

A file often serves calls in place and out of place by the same instructions. They share everything but
memory: what does not race where buffers overlap and every copy counts races in neither, and a program
that is right out of place is right in place if it never reads an input that its output has overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from collc.ir.program import Program
from collc.units import format_bytes
from collc.verify import depths, races, values
from collc.verify.depths import Liveness, Transfers
from collc.verify.findings import Finding
from collc.verify.graph import Graph, build
from collc.verify.liveness import WHOLE
from collc.verify.memory import Memory, layout
from collc.verify.rules import Collector

_MAX_MOVES = 1 << 20  # places that instructions touch; keeps a small file with vast counts from taking long


@dataclass(frozen=True)
class ProgramReport:
    """What the program checker found.

    Attributes:
        findings: nothing among them of severity "error" means proven right.
        liveness: how it ends; None if it is not well-formed.
    """

    findings: tuple[Finding, ...]
    liveness: Liveness | None

    @property
    def fifo_depth_needed(self) -> int | None:
        """The least depth of all queues with which the program ends, one place per send; None if it hangs at any."""
        return self.liveness.needed if self.liveness and self.liveness.ends else None

    @property
    def fifo_depth_large(self) -> int | None:
        """The same where every chunk takes a place of its own, as in large messages."""
        is_known = self.liveness and self.liveness.ends and self.liveness.narrowest == 1
        return self.liveness.large if self.liveness and is_known else None


def examine(
    program: Program,
    *,
    fifo_depth: int | None = None,
    lines: Mapping[tuple[int, int, int], tuple[int, int]] | None = None,
    transfers: Transfers | None = None,
) -> ProgramReport:
    """Prove a program right, or say what is wrong with it.

    Args:
        fifo_depth: sends a connection holds before its sender blocks. Without it, only a program that
            hangs at any depth is wrong.
        lines: (rank, threadblock, step) -> line and column, for findings in a file.
        transfers: how the runtime cuts large messages; without it, any size may be asked for.

    Complexity: near linear in instructions and in stretches of slots.
    """
    return examine_calls((program,), fifo_depth=fifo_depth, lines=lines, transfers=transfers)[0]


def examine_calls(
    programs: Sequence[Program],
    *,
    fifo_depth: int | None = None,
    lines: Mapping[tuple[int, int, int], tuple[int, int]] | None = None,
    transfers: Transfers | None = None,
) -> tuple[ProgramReport, ...]:
    """The reports on programs that differ in nothing but the kind of call they serve."""
    found = Collector(lines)
    graph = build(programs[0], found)
    if graph is None:
        return (ProgramReport(found.findings(), None),) * len(programs)
    liveness = depths.examine(graph, fifo_depth)
    _check_liveness(liveness, transfers, found)
    shared = found.findings()
    if not liveness.ends:
        return (ProgramReport(shared, liveness),) * len(programs)
    calls = _Calls(graph, liveness.order)
    reports = []
    for program in programs:
        found = Collector(lines)
        for finding in shared:
            found.take(finding)
        calls.check(found, inplace=program.collective.inplace, together=len(programs) > 1)
        reports.append(ProgramReport(found.findings(), liveness))
    return tuple(reports)


class _Calls:
    """What the kinds of call that a program serves share: no more is looked at than tells them apart."""

    def __init__(self, graph: Graph, order: Sequence[int]) -> None:
        self._graph = graph
        self._order = order
        self._layout = layout(graph)
        self._is_right_out_of_place = False

    @cached_property
    def _in_place(self) -> Memory:
        return Memory(self._graph, *self._layout, inplace=True)

    @cached_property
    def _out_of_place(self) -> Memory:
        return Memory(self._graph, *self._layout, inplace=False)

    @cached_property
    def _never_races(self) -> bool:
        both = Memory(self._graph, *self._layout, inplace=True, both=True)
        return not races.check(self._graph, both, self._order, Collector())

    def check(self, found: Collector, *, inplace: bool, together: bool) -> None:
        """Check a kind of call; out of place first where there are both."""
        if inplace and self._is_right_out_of_place:
            return
        memory = self._in_place if inplace else self._out_of_place
        most = max(_MAX_MOVES, 8 * len(self._graph.instructions))
        if memory.moves > most:
            found.add("not-judged", f"the instructions move {memory.moves} chunks in all; up to {most} are checked")
            return
        has_no_race = together and not inplace and self._never_races
        if not has_no_race and races.check(self._graph, memory, self._order, found):
            return
        is_clean, holds_in_place = values.check(self._graph, memory, self._order, found, inplace=inplace)
        self._is_right_out_of_place = has_no_race and is_clean and holds_in_place


def _check_liveness(liveness: Liveness, transfers: Transfers | None, found: Collector) -> None:
    graph, depth, needed = liveness.graph, liveness.available, liveness.needed
    if not liveness.ends:
        number, told = depths.hang(graph, WHOLE, needed)
        found.add("deadlock", f"hangs however deep the queues are: {told}", graph.where[number])
        return
    if depth is not None and needed > depth:
        number, told = depths.hang(graph, WHOLE, depth)
        found.add(
            "fifo-depth",
            f"needs {needed} sends outstanding on a connection, which holds {depth}, and so hangs: {told}",
            graph.where[number],
        )
        return
    width = transfers.width if transfers else 1
    if width >= liveness.least_width:
        return
    if depth is None or liveness.large <= depth:
        found.add(
            "not-judged",
            f"large messages take more transfers than are checked; they were with {liveness.narrowest} chunks in each",
        )
        return
    number, told = depths.hang(graph, liveness.least_width - 1, depth)
    _tell_of_size(liveness, transfers, told, graph.where[number], found)


def _tell_of_size(
    liveness: Liveness, transfers: Transfers | None, told: str, where: tuple[int, int, int], found: Collector
) -> None:
    depth, width = liveness.available, liveness.least_width
    safe = transfers.largest_bytes(width) if transfers else None
    if transfers is None or safe is None:
        when = f"once each chunk takes a queue place of its own, as in large messages: needs {liveness.large}"
    else:
        end = "any size" if transfers.max_bytes is None else f"up to {format_bytes(transfers.max_bytes)}"
        when = (
            f"in messages above {format_bytes(safe)}, and serves {end}: a transfer of {transfers.buffer_bytes} bytes "
            f"then holds fewer than {width} chunks"
        )
    found.add("fifo-depth-large", f"hangs {when}, the connection holds {depth}: {told}", where)
