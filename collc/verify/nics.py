"""The doors of hosts: NICs, or GPUs that stand in for their own, by which traffic leaves and enters.

A topology does not say which vertices are NICs. A vertex belongs to the host whose ranks are nearest to
it, where there is one such host; those with a link to a vertex outside of the host are its doors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from collc.ir.topology import Topology
from collc.verify.report import NicLoad
from collc.verify.rules import Collector

Hop = tuple[str, str]


def doors(topology: Topology) -> tuple[tuple[str, ...], ...]:
    """For each host, its doors in the order the topology names them; none on a fabric of one host."""
    owner = owners(topology)
    found: list[list[str]] = [[] for _ in topology.hosts]
    if len(topology.hosts) > 1:
        for vertex in (*topology.gpus, *topology.switches):
            host = owner.get(vertex)
            if host is not None and any(owner.get(head) != host for head in topology.successors[vertex]):
                found[host].append(vertex)
    return tuple(map(tuple, found))


def owners(topology: Topology) -> dict[str, int | None]:
    """Vertex -> the host nearest to it, None where several are."""
    # Breadth first from all hosts at once.
    owner: dict[str, int | None] = {
        topology.gpus[rank]: host for host, ranks in enumerate(topology.hosts) for rank in ranks
    }
    beside: dict[str, list[str]] = {}
    for link in topology.links:
        beside.setdefault(link.src, []).append(link.dst)
        beside.setdefault(link.dst, []).append(link.src)
    layer = list(owner)
    while layer:
        reached: dict[str, set[int | None]] = {}
        for vertex in layer:
            for head in beside.get(vertex, ()):
                if head not in owner:
                    reached.setdefault(head, set()).add(owner[vertex])
        for head, hosts in reached.items():
            owner[head] = next(iter(hosts)) if len(hosts) == 1 else None
        layer = list(reached)
    return owner


class Crossings:
    """What crosses the doors of hosts, as traffic between ranks is laid on links."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._owner = owners(topology) if len(topology.hosts) > 1 else {}
        self._share: dict[tuple[str, str], Fraction] = {}
        self._connections: dict[tuple[str, str], int] = {}
        self._doors: dict[tuple[int, int, str], set[str]] = {}  # (channel, host, direction) -> doors used

    def add(self, pair: tuple[int, int], channels: set[int], load: Fraction, shares: Mapping[Hop, Fraction]) -> None:
        """Take the traffic of a pair of ranks.

        Args:
            load: what it carries on all its channels together.
            shares: link -> the part of it that takes that link.
        """
        hosts = tuple(self._topology.host_of[rank] for rank in pair)
        if hosts[0] == hosts[1]:
            return
        for hop, share in shares.items():
            for door, direction, host in self._crossed(hop, hosts):
                key = door, direction
                self._share[key] = self._share.get(key, Fraction()) + load * share
                self._connections[key] = self._connections.get(key, 0) + len(channels)
                for channel in channels:
                    self._doors.setdefault((channel, host, direction), set()).add(door)

    def _crossed(self, hop: Hop, hosts: tuple[int, ...]) -> Iterator[tuple[str, str, int]]:
        """The doors that a link on the way from one host to another leads through."""
        src, dst = (self._owner.get(vertex) for vertex in hop)
        if src == hosts[0] != dst:
            yield hop[0], "out", hosts[0]
        if dst == hosts[1] != src:
            yield hop[1], "in", hosts[1]

    def loads(self, size_chunks: int) -> dict[tuple[str, str], NicLoad]:
        """(door, direction) -> what it carries, sorted."""
        return {key: NicLoad(share / size_chunks, self._connections[key]) for key, share in sorted(self._share.items())}

    def check(self, limit: int | None, found: Collector) -> None:
        """Connections above a limit, and channels that pair NICs differently on different hosts."""
        for (door, direction), count in sorted(self._connections.items()):
            if limit is not None and count > limit:
                message = f"{count} connections go {direction} through {door}; {limit} are allowed"
                found.add("nic-connections", message)
        for channel in sorted({channel for channel, _, _ in self._doors}):
            paired = list(self._paired(channel))
            same = next((one for one in paired if one[1] == one[2]), None)
            other = next((one for one in paired if one[1] != one[2]), None)
            if same and other:
                found.add(
                    "nic-parity",
                    f"channel {channel} enters host {same[0]} by {same[1]} and leaves by the same, but enters host "
                    f"{other[0]} by {other[1]} and leaves by {other[2]}",
                )

    def _paired(self, channel: int) -> Iterator[tuple[int, str, str]]:
        """(host, door in, door out) for hosts where a channel has one of each."""
        for host in range(len(self._topology.hosts)):
            ways = [self._doors.get((channel, host, direction), set()) for direction in ("in", "out")]
            if all(len(doors) == 1 for doors in ways):
                yield host, next(iter(ways[0])), next(iter(ways[1]))
