"""Steps that all ranks take together -> steps that only say what comes before what, as a program keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from collc.cost import steps_time
from collc.errors import UnsupportedError
from collc.ir.schedule import Schedule, Send


@dataclass(frozen=True)
class LoosenSteps:
    """Cuts the chunks of a synthesized schedule as asked, and drops the claim that ranks wait for each other.

    What is left to claim is the load of the busiest link, as of a lowered flow.

    Attributes:
        instances: copies of every send, each with its own part of the data on a channel of its own.
        chunks: chunks per rank block and instance; None for those the schedule has.
    """

    instances: int = 1
    chunks: int | None = None

    def run(self, schedule: Schedule) -> Schedule:
        """The same sends, of smaller chunks.

        Raises:
            UnsupportedError: the schedule's chunks cannot be cut into that number.
        """
        collective = schedule.problem.collective
        has = collective.chunk_factor
        wanted = has if self.chunks is None else self.chunks
        if self.instances < 1 or wanted < 1 or wanted % has:
            raise UnsupportedError(
                f"instances {self.instances}, chunks {wanted}: the schedule has {has} chunks per rank block, which "
                "can only be cut further; its synthesizer may have an option for their number"
            )
        cut = wanted // has
        factor = cut * self.instances
        problem = schedule.problem if factor == 1 else replace(schedule.problem, collective=collective.refined(factor))
        pieces = [piece for send in schedule.sends for piece in self._pieces(send, cut)]
        pieces.sort(key=lambda send: (send.step, send.chunk, send.route.src, send.route.dst))
        return Schedule(problem, tuple(pieces), steps_time(problem, pieces, synchronous=False), schedule.notes)

    def _pieces(self, send: Send, cut: int) -> Iterator[Send]:
        """A send once its chunks are cut: one for each of them and instance, as an instance's parts lie apart."""
        if self.instances == 1:
            yield replace(send, chunk=send.chunk * cut, count=send.count * cut)
            return
        for chunk in range(send.chunk, send.chunk + send.count):
            for instance in range(self.instances):
                start, channel = (chunk * self.instances + instance) * cut, send.channel * self.instances + instance
                yield replace(send, chunk=start, count=cut, channel=channel)
