"""A two-tier machine in numbers: fast links inside a host, a share of a network card for each GPU outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd
from typing import TYPE_CHECKING

from collc.cost import HOP_LATENCY
from collc.errors import InputError, UnsupportedError
from collc.ir.routes import all_routes
from collc.ir.topology import Route, Topology

if TYPE_CHECKING:
    from collc.fast.layout import Layout

_Routes = Sequence[Mapping[int, Route]]


@dataclass(frozen=True)
class Host:
    """One machine of the cluster.

    Attributes:
        ranks: its GPUs.
        nic: per GPU what it can send, and receive, through the network [GB/s].
        inner: what a GPU can send, and receive, inside [GB/s]; in a full mesh, on one link.
        is_mesh: whether the GPUs are linked pair by pair, not by a switch.
    """

    ranks: tuple[int, ...]
    nic: tuple[Fraction, ...]
    inner: Fraction
    is_mesh: bool = False


@dataclass(frozen=True)
class Machine:
    """A cluster as the scheduler sees it.

    Attributes:
        hosts: a partition of all ranks.
        stage_latency: what a stage between hosts costs beside its bytes [us].
        inner_latency: what a phase inside hosts costs beside its bytes [us].
        is_rail_only: whether GPU k of a host reaches only GPUs k of others.
    """

    hosts: tuple[Host, ...]
    stage_latency: Fraction = Fraction(0)
    inner_latency: Fraction = Fraction(0)
    is_rail_only: bool = False

    def __post_init__(self) -> None:
        ranks = sorted(rank for host in self.hosts for rank in host.ranks)
        if not ranks or ranks != list(range(len(ranks))) or not all(host.ranks for host in self.hosts):
            raise InputError(f"machine: hosts {[list(host.ranks) for host in self.hosts]} do not hold each rank once")
        for index, host in enumerate(self.hosts):
            if len(host.nic) != len(host.ranks):
                raise InputError(f"machine: host {index} has {len(host.nic)} cards for {len(host.ranks)} ranks")
            if min(*host.nic, host.inner) <= 0:
                raise InputError(f"machine: host {index} has a bandwidth of {min(*host.nic, host.inner)} GB/s")
        if min(self.stage_latency, self.inner_latency) < 0:
            raise InputError("machine: a latency below zero")

    @staticmethod
    def uniform(
        hosts: int,
        gpus: int,
        *,
        nic: Fraction | int | str,
        inner: Fraction | int | str,
        is_mesh: bool = False,
        stage_latency: Fraction | int = 0,
        inner_latency: Fraction | int = 0,
    ) -> Machine:
        """Equal hosts, ranks numbered host by host.

        Args:
            nic, inner: [GB/s], see `Host`.
        """
        speed, inside = Fraction(nic), Fraction(inner)
        every = tuple(
            Host(tuple(range(host * gpus, (host + 1) * gpus)), (speed,) * gpus, inside, is_mesh)
            for host in range(hosts)
        )
        return Machine(every, Fraction(stage_latency), Fraction(inner_latency))

    def without_latency(self) -> Machine:
        """The same machine for messages so large that latency is nothing."""
        return replace(self, stage_latency=Fraction(0), inner_latency=Fraction(0))

    @cached_property
    def n_ranks(self) -> int:
        """Number of GPUs."""
        return sum(len(host.ranks) for host in self.hosts)

    @cached_property
    def width(self) -> int:
        """GPUs that a stage joins to as many of another host: all of a host where hosts are alike."""
        counts = {len(host.ranks) for host in self.hosts}
        return 1 if self.is_rail_only and len(counts) > 1 else gcd(*counts)

    @cached_property
    def layout(self) -> Layout:
        """The index arrays that planning on this machine needs."""
        from collc.fast.layout import make_layout

        return make_layout(self)


@lru_cache(maxsize=4)
def machine_of(topology: Topology) -> Machine:
    """The two-tier machine that a fabric is.

    Raises:
        UnsupportedError: it is none; says where.
    """
    routes = all_routes(topology)
    hosts = topology.hosts
    lanes = {shift: list(_lanes(topology, routes, shift)) for shift in range(1, len(hosts))}
    share = _shares(topology, lanes)
    machine = Machine(
        tuple(
            Host(tuple(ranks), tuple(share[rank] for rank in ranks), *_inside(topology, index, routes))
            for index, ranks in enumerate(hosts)
        ),
        _latency(topology, lanes.get(1, [])),
        _latency(topology, [routes[a][b] for ranks in hosts for a in ranks for b in ranks if a != b]),
        is_rail_only=any(b not in routes[a] for a in hosts[0] for ranks in hosts[1:] for b in ranks),
    )
    _refuse_bottlenecks(topology, share, lanes)
    return machine


def _latency(topology: Topology, routes: Sequence[Route]) -> Fraction:
    """The longest wire latency of some routes, with that of the software [us]."""
    wires = [sum((topology.link[hop].latency for hop in route.hops), Fraction(0)) for route in routes]
    return HOP_LATENCY + max(wires) if wires else Fraction(0)


def _inside(topology: Topology, index: int, routes: _Routes) -> tuple[Fraction, bool]:
    """Bandwidth inside a host [GB/s], and whether it is a mesh's."""
    ranks = topology.hosts[index]
    pairs = [(a, b) for a in ranks for b in ranks if a != b]
    for a, b in pairs:
        if b not in routes[a] or len(routes[a][b].path) > 3:
            raise UnsupportedError(
                f"GPUs '{topology.gpus[a]}' and '{topology.gpus[b]}' of one host are neither linked nor on one "
                "switch; expected a switch or a full mesh inside hosts"
            )
    if not pairs:
        return Fraction(1), False  # one GPU: nothing ever moves inside
    found = [routes[a][b] for a, b in pairs]
    middles = {route.path[1:-1] for route in found}
    if len(middles) > 1:
        raise UnsupportedError(f"the GPUs of host {index} are joined in several ways; expected one switch, or a mesh")
    middle = next(iter(middles))
    if middle and not set(topology.successors[middle[0]]) <= {topology.gpus[rank] for rank in ranks}:
        raise UnsupportedError(
            f"the GPUs of host {index} reach each other only through the network, at '{middle[0]}'; "
            "expected a second, faster tier inside hosts"
        )
    return min(topology.link[hop].bandwidth for route in found for hop in route.hops), not middle


# --- the network ---------------------------------------------------------------------------------


def _lanes(topology: Topology, routes: _Routes, shift: int) -> Iterator[Route]:
    """A route from each GPU to one of the host some places further on, of the same number where it has one."""
    hosts = topology.hosts
    for index, ranks in enumerate(hosts):
        other = hosts[(index + shift) % len(hosts)]
        for number, a in enumerate(ranks):
            b = other[number % len(other)]
            if b not in routes[a]:
                raise UnsupportedError(
                    f"GPU '{topology.gpus[a]}' does not reach '{topology.gpus[b]}' of another host over switches; "
                    "expected a network between hosts"
                )
            yield routes[a][b]


def _shares(topology: Topology, lanes: Mapping[int, Sequence[Route]]) -> list[Fraction]:
    """Per rank what it can send and receive through the network while all others do [GB/s]."""
    if not lanes:
        return [Fraction(1)] * topology.n_ranks  # one host: never used
    share: dict[int, Fraction] = {}
    for end in ("src", "dst"):
        # A link is a host's own where no other host's traffic comes this way.
        users: dict[tuple[str, str], set[int]] = {}
        for routes in lanes.values():
            for route in routes:
                for hop in route.hops:
                    users.setdefault(hop, set()).add(topology.host_of[getattr(route, end)])
        for rank, speed in _at_one_end(topology, end, lanes[1], users):
            share[rank] = min(speed, share.get(rank, speed))
    return [share[rank] for rank in range(topology.n_ranks)]


def _at_one_end(
    topology: Topology, end: str, routes: Sequence[Route], users: Mapping[tuple[str, str], set[int]]
) -> Iterator[tuple[int, Fraction]]:
    at_once = Counter(hop for route in routes for hop in route.hops)
    ends: dict[int, Fraction] = {}
    for route in routes:
        own = [hop for hop in route.hops if len(users[hop]) == 1]
        if not own:
            raise UnsupportedError(f"rank {getattr(route, end)} has no network link that is its host's own")
        speed = min(topology.link[hop].bandwidth / at_once[hop] for hop in own)
        # A GPU that several of a larger host send to has the sum of their shares.
        ends[getattr(route, end)] = ends.get(getattr(route, end), Fraction(0)) + speed
    missing = [rank for rank in range(topology.n_ranks) if rank not in ends]
    yield from ends.items()
    for rank in missing:  # a larger host's GPUs beyond the number of the smaller one that sends to it
        host = topology.hosts[topology.host_of[rank]]
        yield rank, min(ends[other] for other in host if other in ends)


def _refuse_bottlenecks(topology: Topology, share: Sequence[Fraction], lanes: Mapping[int, Sequence[Route]]) -> None:
    """Refuse a network that cannot carry what all GPUs send at once, whichever host each host sends to."""
    for routes in lanes.values():
        # Of several that send to one GPU of a smaller host, only one does at a time.
        one_each = {route.dst: route for route in reversed(routes)}
        load: dict[tuple[str, str], Fraction] = {}
        for route in one_each.values():
            for hop in route.hops:
                load[hop] = load.get(hop, Fraction(0)) + min(share[route.src], share[route.dst])
        for hop, wanted in load.items():
            if wanted > topology.link[hop].bandwidth:
                raise UnsupportedError(
                    f"link {hop[0]} -> {hop[1]} would have to carry {wanted} GB/s and has "
                    f"{topology.link[hop].bandwidth}; expected a network that never is the bottleneck"
                )
