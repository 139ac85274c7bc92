"""The program level: which threadblock runs which instruction on which slot after waiting for what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from collc.errors import InputError
from collc.ir.collective import Collective
from collc.ir.flow import FlowSchedule
from collc.ir.schedule import Schedule


class Buffer(Enum):
    """Where a slot lies."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"

    __hash__ = object.__hash__  # members are one of a kind; the inherited hash is slow


@dataclass(frozen=True, slots=True, order=False)
class Slot:
    """One place of one chunk in a rank's buffer."""

    buffer: Buffer
    offset: int


class Op(Enum):
    """What an instruction does.

    `src` and `dst` are slots of the rank that runs it; "received" is what the peer sent.

    Attributes:
        sends: whether it puts something into the threadblock's sending connection.
        receives: whether it takes something out of the threadblock's receiving connection.
        reads_src: whether it reads `src`.
        reads_dst: whether it reads `dst` before it writes there.
        writes_dst: whether it writes `dst`.
    """

    SEND = "send"  # send src
    RECV = "recv"  # dst := received
    COPY = "copy"  # dst := src
    REDUCE = "reduce"  # dst := dst + src
    NOP = "nop"  # waits only
    RECV_COPY_SEND = "recv_copy_send"  # dst := received; send it
    RECV_REDUCE_SEND = "recv_reduce_send"  # send received + src; nothing is stored
    RECV_REDUCE_COPY = "recv_reduce_copy"  # dst := received + src
    RECV_REDUCE_COPY_SEND = "recv_reduce_copy_send"  # dst := received + src; send it

    def __init__(self, word: str) -> None:
        # Set once, as the checkers ask for them at every instruction.
        self.sends = word.endswith("send")
        self.receives = word.startswith("recv")
        self.reads_src = word not in ("recv", "nop", "recv_copy_send")
        self.reads_dst = word == "reduce"
        self.writes_dst = word not in ("send", "nop", "recv_reduce_send")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction on `count` slots from `src` and `dst` on.

    Attributes:
        after: (threadblock, instruction) of the same rank that are done before it starts; sorted.
            Order within a threadblock is implied and not listed.
    """

    op: Op
    src: Slot | None = None
    dst: Slot | None = None
    count: int = 1
    after: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Threadblock:
    """Instructions in the order they run, with at most one peer to send to and one to receive from.

    On a rank at most one threadblock sends to a given (peer, channel), and one receives from it.
    """

    send_peer: int | None
    recv_peer: int | None
    channel: int
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """What one rank runs.

    Attributes:
        scratch_chunks: slots of scratch it needs.
        threadblocks: index = the number instructions wait for.
    """

    rank: int
    scratch_chunks: int
    threadblocks: tuple[Threadblock, ...]


@dataclass(frozen=True)
class Program:
    """What every rank runs for one collective call; once per slice of a large message.

    Attributes:
        collective: what it computes; each chunk of its table has count 1.
        gpus: gpus[r].rank == r.
        protocol: Simple, LL or LL128.
        notes: what the user should know, a sentence each.
    """

    collective: Collective
    gpus: tuple[Gpu, ...]
    protocol: str = "Simple"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if [gpu.rank for gpu in self.gpus] != list(range(self.collective.n_ranks)):
            raise InputError(
                f"program: ranks {[gpu.rank for gpu in self.gpus]}; expected 0..{self.collective.n_ranks - 1}"
            )
        for gpu in self.gpus:
            if gpu.scratch_chunks < 0:
                raise InputError(
                    f"program: rank {gpu.rank} has {gpu.scratch_chunks} scratch chunks; expected 0 or more"
                )

    @property
    def n_channels(self) -> int:
        """Channels in use, numbered without a gap."""
        return 1 + max((tb.channel for gpu in self.gpus for tb in gpu.threadblocks), default=0)


@dataclass(frozen=True)
class Compiled:
    """A schedule at every level it was taken to, and the calls it is to serve.

    Attributes:
        made: as synthesized: trees or steps.
        schedule, program: what it was lowered to, where the backend asks for it.
        min_bytes, max_bytes: message sizes it serves, both inclusive; None means no upper limit.
        inplace, outofplace: kinds of call it serves.
    """

    made: FlowSchedule | Schedule
    schedule: Schedule | None = None
    program: Program | None = None
    min_bytes: int = 0
    max_bytes: int | None = None
    inplace: bool = True
    outofplace: bool = True

    @property
    def stem(self) -> str:
        """What its file is called, without an ending; the size range only where there is one."""
        problem = self.made.problem
        topology = "".join(c if c.isascii() and c.isalnum() else "-" for c in problem.topology.name).strip("-")
        size = "" if self.max_bytes is None else f"-{self.min_bytes}-{self.max_bytes}"
        return f"{problem.collective.name}-{topology}-{problem.topology.n_ranks}ranks{size}"
