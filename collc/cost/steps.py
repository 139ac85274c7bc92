"""What schedules of steps cost: step by step where all ranks take them together, in all where they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from collc.ir.collective import Problem
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route


def steps_time(problem: Problem, sends: Iterable[Send], *, synchronous: bool) -> Fraction:
    """Time [s/GB of message size] of sends; zero if nothing moves.

    Args:
        problem: whose chunks they move; each of its table has count 1.
        synchronous: whether each step ends before the next begins; then the busiest links of all steps add up.
    """
    loads: dict[int, Counter[Route]] = {}
    for send in sends:
        loads.setdefault(send.step if synchronous else 0, Counter())[send.route] += send.count
    total = sum((_busiest(problem, one) for one in loads.values()), Fraction(0))
    return total / problem.collective.size_chunks


def _busiest(problem: Problem, loads: Counter[Route]) -> Fraction:
    """Chunks per GB/s of the busiest link."""
    links: Counter[tuple[str, str]] = Counter()
    for route, count in loads.items():
        for hop in route.hops:
            links[hop] += count
    return max((count / problem.topology.link[hop].bandwidth for hop, count in links.items()), default=Fraction(0))


def steps_latency(schedule: Schedule, per_route: Fraction) -> Fraction:
    """Latency [us] of all steps: the slowest route of each.

    Args:
        per_route: what a route takes beside the latency of its links [us].
    """
    slowest: dict[int, Fraction] = {}
    latency: dict[Route, Fraction] = {}
    link = schedule.problem.topology.link
    for send in schedule.sends:
        if send.route not in latency:
            latency[send.route] = sum((link[hop].latency for hop in send.route.hops), per_route)
        slowest[send.step] = max(slowest.get(send.step, Fraction(0)), latency[send.route])
    return sum(slowest.values(), Fraction(0))
