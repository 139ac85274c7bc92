"""Steps -> threadblocks: every send becomes instructions on slots, on a connection of its own.

Deadlock freedom is by construction: instructions are made one send at a time in one global order
(step, chunk, source, destination), every threadblock keeps that order, and every wait points back
in it. Doing the sends one at a time in that order never blocks, and whether such a program blocks
does not depend on the order its threadblocks happen to run in (Kahn, Information Processing 74,
1974), so one slot per connection is enough, however many transfers a send is cut into.
"""

from __future__ import annotations

from dataclasses import dataclass

from collc.errors import UnsupportedError
from collc.ir.program import Gpu, Program, Threadblock
from collc.ir.schedule import Schedule
from collc.passes.lower_schedule.nodes import Builder
from collc.passes.lower_schedule.threadblocks import arrange
from collc.runtimes import Runtime


@dataclass(frozen=True)
class LowerSchedule:
    """Turns sends into instructions, within the runtime's limits.

    A rank sends its own contribution straight from its input buffer, receives final values into
    its output buffer, and keeps partial sums and data it only passes on in scratch, each in a slot
    of its own; so nothing is overwritten, and the input buffer is never written.

    Attributes:
        runtime: whose limits hold.
        protocol: Simple, LL or LL128.
    """

    runtime: Runtime
    protocol: str = "Simple"

    def run(self, schedule: Schedule) -> Program:
        """The program that does the schedule's sends.

        Raises:
            UnsupportedError: a rank needs more of something than the runtime has; names the resource,
                the limit and what was needed.
        """
        collective = schedule.problem.collective
        builder = Builder(collective, schedule.sends, self.runtime.max_count)
        builder.build()
        arranged = arrange(builder.nodes, list(builder.connections.values()), self.runtime)
        _check_limits(arranged, builder.scratch, self.runtime)
        gpus = tuple(Gpu(rank, builder.scratch[rank], threadblocks) for rank, threadblocks in enumerate(arranged))
        return Program(collective, gpus, self.protocol, schedule.notes)


def _check_limits(gpus: list[tuple[Threadblock, ...]], scratch: list[int], runtime: Runtime) -> None:
    for rank, threadblocks in enumerate(gpus):
        steps = sum(max(1, len(one.after)) for tb in threadblocks for one in tb.instructions)
        for resource, needed, limit in (
            ("elements in its parser", 1 + len(gpus) + len(threadblocks) + steps, runtime.max_elements),
            ("slots of scratch", scratch[rank], runtime.max_offset + 1),
            ("ranks", len(gpus), runtime.max_ranks),
        ):
            if needed > limit:
                raise UnsupportedError(f"{runtime.name}: rank {rank} needs {needed} {resource}; the limit is {limit}")
