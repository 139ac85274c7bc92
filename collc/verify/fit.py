"""A schedule against a fabric: only links that exist are used, and how loaded each is.

A program names peers, not links. Its traffic is laid on the shortest routes through switches, of
these on the widest, and evenly where there are several, as routing over paths of equal cost does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from collc.ir.program import Program
from collc.ir.topology import Route, Topology
from collc.verify.findings import Finding
from collc.verify.links import add_up, route_faults
from collc.verify.nics import Crossings
from collc.verify.report import Load, NicLoad
from collc.verify.rules import Collector, collected

Hop = tuple[str, str]
Pair = tuple[int, int]
Lines = Mapping[tuple[int, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Fit:
    """How a schedule lies on a fabric.

    Attributes:
        findings: what does not fit.
        loads: (src, dst) -> what the link carries.
        time: of the busiest link [s/GB of message size]; zero where something has no route.
        nics: (vertex, "in" or "out") -> what crosses it between hosts.
    """

    findings: tuple[Finding, ...]
    loads: Mapping[Hop, Load] = field(default_factory=dict)
    time: Fraction = Fraction()
    nics: Mapping[tuple[str, str], NicLoad] = field(default_factory=dict)


def program_on(
    program: Program, topology: Topology, lines: Lines | None = None, *, max_nic_connections: int | None = None
) -> Fit:
    """A program on a fabric.

    Args:
        lines: (rank, threadblock, step) -> line and column, for findings in a file.
        max_nic_connections: how many may cross a NIC in one direction.
    """
    found = Collector(lines)
    n_ranks, n_there = program.collective.n_ranks, topology.n_ranks
    if n_ranks != n_there:
        found.add("topology-ranks", f"made for {n_ranks} ranks; topology '{topology.name}' has {n_there}")
        return Fit(found.findings())
    traffic, first, channels = _traffic(program)
    ways, crossings = _Ways(topology), Crossings(topology)
    total: dict[Hop, Fraction] = {}
    for (src, dst), count in traffic.items():
        shares = ways.shares(src, dst)
        if not shares:
            ends = f"'{topology.gpus[src]}' to '{topology.gpus[dst]}'"
            message = f"rank {src} sends to rank {dst}, but no way from {ends} runs through switches alone"
            found.add("no-route", message, first[src, dst])
        for hop, share in shares.items():
            total[hop] = total.get(hop, Fraction()) + count * share
        crossings.add((src, dst), channels[src, dst], Fraction(count), shares)
    fit = _fit(topology, found.findings(), total, program.collective.size_chunks)
    crossings.check(max_nic_connections, found)
    return replace(fit, findings=found.findings(), nics=crossings.loads(program.collective.size_chunks))


def _traffic(program: Program) -> tuple[Counter[Pair], dict[Pair, tuple[int, int, int]], dict[Pair, set[int]]]:
    """Chunks from rank to rank, the first step (rank, threadblock, step) that sends there, and the channels."""
    traffic: Counter[Pair] = Counter()
    first: dict[Pair, tuple[int, int, int]] = {}
    channels: dict[Pair, set[int]] = {}
    ranks = range(program.collective.n_ranks)
    for gpu in program.gpus:
        for index, threadblock in enumerate(gpu.threadblocks):
            peer = threadblock.send_peer
            if peer is None or peer not in ranks:
                continue  # what is wrong with sending all the same is the program checker's to say
            pair = gpu.rank, peer
            for step, instruction in enumerate(threadblock.instructions):
                if instruction.op.sends and instruction.count > 0:
                    traffic[pair] += instruction.count
                    first.setdefault(pair, (gpu.rank, index, step))
                    channels.setdefault(pair, set()).add(threadblock.channel)
    return traffic, first, channels


def routes_on(
    loads: Mapping[Route, int], unit: Fraction, topology: Topology, hops: Mapping[Hop, int] | None = None
) -> Fit:
    """Routed traffic on a fabric that may be another than it was made for.

    Args:
        loads: route -> load [units].
        unit: one unit of load [share of the message].
        hops: link -> load, where that is not what the routes add up to.
    """
    findings = collected(route_faults(topology, loads))
    total = {hop: load * unit for hop, load in (hops or add_up(loads)).items() if hop in topology.link}
    return _fit(topology, findings, total, 1)


def _fit(topology: Topology, findings: tuple[Finding, ...], total: Mapping[Hop, Fraction], size_chunks: int) -> Fit:
    shares = {hop: load / size_chunks for hop, load in sorted(total.items())}
    times = {hop: share / topology.link[hop].bandwidth for hop, share in shares.items()}
    time = max(times.values(), default=Fraction())
    loads = {hop: Load(share, times[hop] / time) for hop, share in shares.items()}
    # Traffic that has no route is on no link, so there is no time to speak of.
    return Fit(findings, loads, Fraction() if findings else time)


class _Ways:
    """The widest of the shortest routes from a rank through switches, found once for each rank that sends."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._found: dict[int, dict[str, tuple[int, list[str]]]] = {}

    def shares(self, src: int, dst: int) -> dict[Hop, Fraction]:
        """Link -> share of the traffic, every route taking the same; empty where there is none."""
        if src not in self._found:
            self._found[src] = self._search(self._topology.gpus[src])
        found = self._found[src]
        target = self._topology.gpus[dst]
        if target not in found or src == dst:
            return {}
        shares: dict[Hop, Fraction] = {}
        layer = {target: Fraction(1)}
        while layer:
            before: dict[str, Fraction] = {}
            for vertex, share in layer.items():
                n_routes, feeders = found[vertex]
                for feeder in feeders:
                    part = share if len(feeders) == 1 else share * found[feeder][0] / n_routes
                    shares[feeder, vertex] = part
                    before[feeder] = before.get(feeder, Fraction()) + part
            layer = before
        return shares

    def _search(self, start: str) -> dict[str, tuple[int, list[str]]]:
        """Vertex -> (number of routes to it, the vertices before it on them); breadth first."""
        found: dict[str, tuple[int, list[str]]] = {start: (1, [])}
        width: dict[str, Fraction] = {}
        layer = [start]
        while layer:
            reached: dict[str, list[tuple[Fraction, str]]] = {}
            for vertex in layer:
                for head in self._onward(vertex, start):
                    if head not in found:
                        bandwidth = self._topology.link[vertex, head].bandwidth
                        wide = min(width.get(vertex, bandwidth), bandwidth)
                        reached.setdefault(head, []).append((wide, vertex))
            for head, ways in reached.items():
                width[head] = max(wide for wide, _ in ways)
                feeders = [feeder for wide, feeder in ways if wide == width[head]]
                found[head] = sum(found[feeder][0] for feeder in feeders), feeders
            layer = list(reached)
        return found

    def _onward(self, vertex: str, start: str) -> Iterator[str]:
        """Where a route may go on: GPUs do not forward."""
        if vertex == start or vertex not in self._topology.rank_of:
            yield from self._topology.successors[vertex]
