"""Checks a schedule by replaying it: every consumer ends with exactly one contribution from each contributor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby

from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route
from collc.verify.findings import Finding
from collc.verify.links import add_up, route_faults, sum_faults, time_faults
from collc.verify.witness import bound_faults


def examine(schedule: Schedule) -> Iterator[Finding]:
    """Everything that is wrong with a schedule, lazily."""
    problem = schedule.problem
    loads, share = traffic(schedule)
    yield from route_faults(problem.topology, loads)
    n_ranks = problem.topology.n_ranks
    if any(not (0 <= route.src < n_ranks and 0 <= route.dst < n_ranks) for route in loads):
        return  # said above; there is nobody to replay it
    for index, send in enumerate(schedule.sends):
        if send.channel < 0:
            yield Finding("channel", "error", f"send {index} is on channel {send.channel}", step=send.step)
    for index, chunk in enumerate(problem.collective.chunks):
        if chunk.count != 1:
            yield Finding(
                "chunk-count", "error", f"chunk {index} fills {chunk.count} slots; a schedule's fill one each"
            )
    yield from _Replay(schedule).run()
    if schedule.synchronous:
        yield from sum_faults(problem.topology, map(add_up, by_step(schedule)), share, schedule.time)
    else:
        yield from time_faults(problem.topology, add_up(loads), share, schedule.time)
    if schedule.bound is not None:
        yield from bound_faults(problem, schedule.bound, schedule.time)


def by_step(schedule: Schedule) -> list[Mapping[Route, int]]:
    """Load of each route in chunks, for each step in which anything is sent."""
    loads: dict[int, Counter[Route]] = {}
    for send in schedule.sends:
        loads.setdefault(send.step, Counter())[send.route] += send.count
    return list(loads.values())


def traffic(schedule: Schedule) -> tuple[Mapping[Route, int], Fraction]:
    """Load of each route in chunks, and what a chunk is [share of the message]."""
    loads: Counter[Route] = Counter()
    for send in schedule.sends:
        loads[send.route] += send.count
    return loads, Fraction(1, schedule.problem.collective.size_chunks)


class _Replay:
    """Who holds what, step by step.

    What a rank holds of a chunk is a multiset of contributions. Only 0, 1 and "more" matter, as
    nothing is ever taken out of a sum: bit r says that rank r's contribution is there, and bit
    n_ranks + r that it is there more than once.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._chunks = schedule.problem.collective.chunks
        self._n_ranks = schedule.problem.collective.n_ranks
        self._once = (1 << self._n_ranks) - 1
        self._held: list[dict[int, int]] = [{} for _ in range(self._n_ranks)]
        for index, chunk in enumerate(self._chunks):
            for rank in chunk.precondition:
                self._held[rank][index] = 1 << rank

    def run(self) -> Iterator[Finding]:
        """What goes wrong on the way and what is wrong at the end."""
        in_order = sorted(self._schedule.sends, key=lambda send: send.step)
        for step, sends in groupby(in_order, key=lambda send: send.step):
            yield from self._step(step, list(sends))
        yield from self._end()

    def _step(self, step: int, sends: Sequence[Send]) -> Iterator[Finding]:
        """All sends read what was held before the step; then all of them write."""
        writes: dict[tuple[int, int], tuple[Send, int]] = {}
        for send in sends:
            source, target = self._held[send.route.src], self._held[send.route.dst]
            for chunk in range(send.chunk, send.chunk + send.count):
                value = source.get(chunk, 0)
                if not value:
                    yield self._fault("not-held", send, chunk, f"rank {send.route.src} does not hold it")
                    continue
                place = send.route.dst, chunk
                earlier = writes.get(place)
                if earlier and not (send.reduce and earlier[0].reduce):
                    said = f"rank {earlier[0].route.src} writes there in the same step"
                    yield self._fault("collision", send, chunk, said)
                elif earlier:
                    value = self._add(earlier[1], value)
                elif send.reduce:
                    if chunk not in target:
                        yield self._fault(
                            "add-to-nothing", send, chunk, f"rank {send.route.dst} holds nothing to add to"
                        )
                    value = self._add(target.get(chunk, 0), value)
                writes[place] = send, value
        for (rank, chunk), (_, value) in writes.items():
            self._held[rank][chunk] = value

    def _add(self, one: int, other: int) -> int:
        """The sum of two multisets."""
        return one | other | ((one & other & self._once) << self._n_ranks)

    def _end(self) -> Iterator[Finding]:
        """Every consumer holds one contribution of each contributor and nothing else."""
        masks: dict[Sequence[int], int] = {}
        for index, chunk in enumerate(self._chunks):
            ranks = chunk.precondition.ranks
            if ranks not in masks:
                masks[ranks] = sum(1 << rank for rank in ranks)
            for rank in chunk.postcondition:
                held = self._held[rank].get(index, 0)
                if held != masks[ranks]:
                    yield self._wrong(index, rank, held, masks[ranks])

    def _wrong(self, chunk: int, rank: int, held: int, expected: int) -> Finding:
        """What is wrong with a final value."""
        doubled = self._ranks(held >> self._n_ranks)
        if doubled:
            rule, said = "double-contribution", f"counts the contribution of rank {doubled[0]} more than once"
        else:
            missing = self._ranks(expected & ~held)
            rule, said = "missing-contribution", f"lacks the contribution of rank {missing[0]}"
        return Finding(rule, "error", f"at the end rank {rank}'s chunk {chunk} {said}", rank=rank)

    def _ranks(self, bits: int) -> list[int]:
        return [rank for rank in range(self._n_ranks) if bits >> rank & 1]

    @staticmethod
    def _fault(rule: str, send: Send, chunk: int, said: str) -> Finding:
        verb = "adds" if send.reduce else "sends"
        message = f"step {send.step}: rank {send.route.src} {verb} chunk {chunk} to rank {send.route.dst}, but {said}"
        return Finding(rule, "error", message, rank=send.route.src, step=send.step)
