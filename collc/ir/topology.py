"""A fabric: GPUs, switches, and the directed links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from collc.errors import InputError


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link.

    Attributes:
        src, dst: vertex names.
        bandwidth: [GB/s, 10^9 bytes per second]; parallel cables are added up.
        latency: [us].
    """

    src: str
    dst: str
    bandwidth: Fraction
    latency: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise InputError(f"link from '{self.src}' to itself; expected two different vertices")
        if self.bandwidth <= 0:
            raise InputError(
                f"link {self.src} -> {self.dst}: bandwidth {self.bandwidth} GB/s; expected a positive number"
            )
        if self.latency < 0:
            raise InputError(f"link {self.src} -> {self.dst}: latency {self.latency} us; expected zero or more")


@dataclass(frozen=True, slots=True)
class Route:
    """How one rank reaches another.

    Attributes:
        src, dst: ranks.
        path: vertex names, both ends included, no GPU in between.
    """

    src: int
    dst: int
    path: tuple[str, ...]

    @property
    def hops(self) -> tuple[tuple[str, str], ...]:
        """The links crossed, as (src, dst) vertex names."""
        return tuple(zip(self.path, self.path[1:], strict=False))

    def reversed(self) -> Route:
        """The same path walked the other way."""
        return Route(self.dst, self.src, self.path[::-1])


@dataclass(frozen=True)
class Topology:
    """A fabric.

    Attributes:
        name: as the user knows it.
        gpus: vertex names; rank r is gpus[r].
        switches: vertex names of switches and NICs: they forward and never hold data.
        links: at most one per (src, dst).
        hosts: the ranks of each host, a partition of all ranks; one host holding all by default.
        multicast: switches that can copy one incoming stream to several ports.
        reduce: switches that can add incoming streams.
        ranks_per_device: ranks that share one physical device (two on an MI250).
    """

    name: str
    gpus: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    hosts: tuple[tuple[int, ...], ...] = ()
    multicast: tuple[str, ...] = ()
    reduce: tuple[str, ...] = ()
    ranks_per_device: int = 1

    def __post_init__(self) -> None:
        if not self.gpus:
            raise InputError(f"topology '{self.name}' has no GPUs; expected at least one")
        if not self.hosts:
            object.__setattr__(self, "hosts", (tuple(range(len(self.gpus))),))
        vertices: set[str] = set()
        for vertex in self.gpus + self.switches:
            if vertex in vertices:
                raise InputError(f"topology '{self.name}': vertex '{vertex}' is declared twice")
            vertices.add(vertex)
        ends: set[tuple[str, str]] = set()
        for link in self.links:
            for end in (link.src, link.dst):
                if end not in vertices:
                    raise InputError(f"link {link.src} -> {link.dst}: no vertex '{end}'")
            if (link.src, link.dst) in ends:
                raise InputError(f"link {link.src} -> {link.dst} is given twice; expected its bandwidths added up")
            ends.add((link.src, link.dst))
        if sorted(rank for host in self.hosts for rank in host) != list(range(len(self.gpus))):
            raise InputError(f"topology '{self.name}': hosts {self.hosts} do not hold each rank once")
        switches = frozenset(self.switches)
        for mark, names in (("multicast", self.multicast), ("reduce", self.reduce)):
            for name in names:
                if name not in switches:
                    raise InputError(f"topology '{self.name}': {mark} names '{name}', which is no switch")
        if self.ranks_per_device < 1:
            raise InputError(f"topology '{self.name}': ranks_per_device {self.ranks_per_device}; expected 1 or more")

    @property
    def n_ranks(self) -> int:
        """Number of GPUs."""
        return len(self.gpus)

    @cached_property
    def rank_of(self) -> Mapping[str, int]:
        """GPU name -> rank."""
        return {gpu: rank for rank, gpu in enumerate(self.gpus)}

    @cached_property
    def host_of(self) -> Mapping[int, int]:
        """Rank -> index of its host."""
        return {rank: index for index, host in enumerate(self.hosts) for rank in host}

    @cached_property
    def link(self) -> Mapping[tuple[str, str], Link]:
        """(src, dst) -> link."""
        return {(link.src, link.dst): link for link in self.links}

    @cached_property
    def successors(self) -> Mapping[str, tuple[str, ...]]:
        """Vertex -> where its links lead, in the order of `links`."""
        heads: dict[str, list[str]] = {vertex: [] for vertex in self.gpus + self.switches}
        for link in self.links:
            heads[link.src].append(link.dst)
        return {vertex: tuple(found) for vertex, found in heads.items()}

    def reversed(self) -> Topology:
        """The same fabric with every link turned round; reduce-scatter is allgather on it."""
        links = tuple(Link(link.dst, link.src, link.bandwidth, link.latency) for link in self.links)
        return Topology(
            self.name, self.gpus, self.switches, links, self.hosts, self.reduce, self.multicast, self.ranks_per_device
        )

    def without_branching(self) -> Topology:
        """The same fabric with switches that only forward."""
        return replace(self, multicast=(), reduce=()) if self.multicast or self.reduce else self

    def restricted(self, ranks: Sequence[int], *, relay: bool = False) -> Topology:
        """The fabric as a process group of these ranks has it: the other GPUs and their links are gone.

        Args:
            relay: the other GPUs are switches instead, which forward.

        Raises:
            InputError: a rank does not exist or is named twice.
        """
        for rank in ranks:
            if not 0 <= rank < self.n_ranks:
                raise InputError(f"rank {rank}: topology '{self.name}' has ranks 0 to {self.n_ranks - 1}")
        if len(set(ranks)) != len(ranks):
            raise InputError(f"ranks {list(ranks)}; expected each once")
        gone = set(self.gpus) - {self.gpus[rank] for rank in ranks}
        new_rank = {rank: new for new, rank in enumerate(ranks)}
        hosts = (tuple(sorted(new_rank[rank] for rank in host if rank in new_rank)) for host in self.hosts)
        return replace(
            self,
            gpus=tuple(self.gpus[rank] for rank in ranks),
            switches=(*self.switches, *(gpu for gpu in self.gpus if gpu in gone)) if relay else self.switches,
            links=tuple(link for link in self.links if relay or not {link.src, link.dst} & gone),
            hosts=tuple(host for host in hosts if host),
        )

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every link has a twin of equal bandwidth the other way."""
        bandwidth = {(link.src, link.dst): link.bandwidth for link in self.links}
        return all(bandwidth.get((dst, src)) == value for (src, dst), value in bandwidth.items())
