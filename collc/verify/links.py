"""What crosses which link: the part of checking that flows, schedules and files have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from collc.ir.topology import Route, Topology
from collc.verify.findings import Finding


def route_faults(topology: Topology, routes: Iterable[Route]) -> Iterator[Finding]:
    """What is wrong with routes: a link that does not exist, a GPU in between, ends that are not the ranks."""
    for route in routes:
        path, shown = route.path, " -> ".join(route.path)
        if route.src == route.dst or len(path) < 2:
            yield Finding(
                "route-ends",
                "error",
                f"route {shown} from rank {route.src} to rank {route.dst}: does not lead anywhere",
            )
            continue
        for end, rank, vertex in (("starts", route.src, path[0]), ("ends", route.dst, path[-1])):
            if topology.rank_of.get(vertex) != rank:
                yield Finding(
                    "route-ends", "error", f"route {shown}: {end} at '{vertex}', which is not rank {rank}", rank=rank
                )
        for hop in route.hops:
            if hop not in topology.link:
                yield Finding(
                    "route-missing", "error", f"route {shown}: there is no link from '{hop[0]}' to '{hop[1]}'"
                )
        for vertex in path[1:-1]:
            if vertex in topology.rank_of:
                yield Finding(
                    "route-relay", "error", f"route {shown}: passes through GPU '{vertex}'; only switches forward"
                )


def add_up(loads: Mapping[Route, int]) -> dict[tuple[str, str], int]:
    """Load per route -> load per link."""
    total: dict[tuple[str, str], int] = {}
    for route, load in loads.items():
        for hop in route.hops:
            total[hop] = total.get(hop, 0) + load
    return total


def sum_faults(
    topology: Topology, steps: Iterable[Mapping[tuple[str, str], int]], unit: Fraction, time: Fraction
) -> Iterator[Finding]:
    """Where a stated time is not the sum over steps of what the busiest link of each takes.

    Args:
        steps: for each step, (src, dst) -> load [units].
        unit: one unit of load [share of the message].
        time: the claim [s/GB of message size].
    """
    needed = Fraction(0)
    for loads in steps:
        busy = (load / topology.link[hop].bandwidth for hop, load in loads.items() if hop in topology.link)
        needed += unit * max(busy, default=Fraction(0))
    if needed != time:
        rule, said = ("overload", "more") if needed > time else ("time", "less")
        yield Finding(
            rule, "error", f"the stated time is {time} s/GB; the busiest links of the steps need {said}: {needed}"
        )


def time_faults(
    topology: Topology, loads: Mapping[tuple[str, str], int], unit: Fraction, time: Fraction
) -> Iterator[Finding]:
    """Where a stated time is not the time of the busiest link.

    Args:
        loads: (src, dst) -> load [units].
        unit: one unit of load [share of the message].
        time: the claim [s/GB of message size].
    """
    busiest = Fraction(0)
    for hop, load in loads.items():
        if hop not in topology.link:
            continue
        bandwidth = topology.link[hop].bandwidth
        needed = load * unit / bandwidth
        busiest = max(busiest, needed)
        if needed > time:
            yield Finding(
                "overload",
                "error",
                f"link {hop[0]} -> {hop[1]} carries {load * unit} of the message; at {bandwidth} GB/s "
                f"it carries {bandwidth * time} in the stated time {time} s/GB",
            )
    if busiest < time:
        yield Finding("time", "error", f"the stated time is {time} s/GB; the busiest link needs {busiest}")
