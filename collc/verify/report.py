"""What is asked of a file, and what a check of it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from collc.ir.collective import Collective
from collc.ir.topology import Topology
from collc.verify.depths import Liveness, Transfers
from collc.verify.findings import Finding


@dataclass(frozen=True)
class Request:
    """What a file is to be held against.

    Attributes:
        runtime: the consumer; None guesses it from the file.
        topology: the fabric it is to run on.
        collective: the name of what it is to compute.
        demand: the amounts it is to move, for all-to-all-v.
        conditions: what it is to compute, in a table of the user's own.
        fifo_depth: transfers a connection holds; None takes the protocol's.
        max_channels: channels the communicator has.
        max_nic_connections: connections a NIC may carry in one direction.
        buffer_bytes: of a connection; None takes the protocol's.
        limits: limit -> value, for a runtime built with others.
        sizes: message sizes it is to serve [bytes].
    """

    runtime: str | None = None
    topology: Topology | None = None
    collective: str | None = None
    demand: Collective | None = None
    conditions: Collective | None = None
    fifo_depth: int | None = None
    max_channels: int | None = None
    max_nic_connections: int | None = None
    buffer_bytes: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Load:
    """What a link carries.

    Attributes:
        share: of the message.
        busy: share of the time of the busiest link.
    """

    share: Fraction
    busy: Fraction


@dataclass(frozen=True)
class NicLoad:
    """What a NIC carries in one direction.

    Attributes:
        share: of the message.
        connections: pairs of ranks, on each channel, that may use it.
    """

    share: Fraction
    connections: int


@dataclass(frozen=True)
class Served:
    """Whether a file serves a message of some size, and why not."""

    nbytes: int
    reason: str | None = None


@dataclass(frozen=True)
class FileReport:
    """What a check of one file says.

    Attributes:
        path: as given; what follows it inside a directory is appended.
        format: such as "msccl-xml", "collc-flow"; "unknown" for a stray file.
        runtime: whose rules it was read by; `guessed`: whether that was a guess; `limits`: of that
            runtime, where others than its own were asked for.
        collective, ranks: what it says it computes, and for how many.
        table: the chunks of that collective, where the file could be understood.
        in_place, out_of_place: kinds of call it serves.
        min_bytes, max_bytes: message sizes it serves, inclusive; None: no upper limit.
        elements, grain: messages it serves are multiples of so many elements, or of so many bytes.
        fifo_depth_needed: the least queue depth at which it cannot deadlock.
        liveness: how a program comes to its end, where it does.
        transfers: how the runtime cuts its messages.
        algbw: large-message limit by the load of links [GB/s].
        bound_algbw: no schedule can be faster [GB/s].
        loads: (src, dst) -> what the link carries.
        nics: (vertex, "in" or "out") -> what crosses it between hosts.
        served: the sizes asked for.
        source: the bytes read, for excerpts.
    """

    path: str
    format: str
    findings: tuple[Finding, ...] = ()
    runtime: str | None = None
    guessed: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    collective: str | None = None
    ranks: int | None = None
    table: Collective | None = field(default=None, repr=False)
    in_place: bool | None = None
    out_of_place: bool | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    elements: int | None = None
    grain: int | None = None
    channels: int | None = None
    protocol: str | None = None
    fifo_depth_needed: int | None = None
    liveness: Liveness | None = field(default=None, repr=False, compare=False)
    transfers: Transfers | None = None
    algbw: Fraction | None = None
    bound_algbw: Fraction | None = None
    loads: Mapping[tuple[str, str], Load] = field(default_factory=dict, repr=False)
    nics: Mapping[tuple[str, str], NicLoad] = field(default_factory=dict, repr=False)
    served: tuple[Served, ...] = ()
    source: bytes = field(default=b"", repr=False, compare=False)

    def ok(self, *, strict: bool = False) -> bool:
        """Whether there are no errors (and, strictly, no warnings)."""
        return not any(strict or finding.severity == "error" for finding in self.findings)
