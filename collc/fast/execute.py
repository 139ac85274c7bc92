"""A plan carried out: the loop of grouped sends and receives that a framework would run, in Python.

Each rank walks through phases. In phase p it sends its message of stage p - 1 through the network,
hands over what others need for stage p, and passes on what it received in stage p - 2; traffic inside
hosts goes beside the heaviest stage. A phase is one group: everything in it may happen at once.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from collc.errors import InputError
from collc.fast.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[Any]
    Numbers = Any

# What a message is; two messages of a phase between the same ranks differ in this.
_HAND, _WIRE, _PASS, _INSIDE = range(4)


class Transport(Protocol):
    """What moves bytes between ranks."""

    @property
    def rank(self) -> int:
        """The rank it serves."""

    def exchange(self, sends: Sequence[tuple[int, int, Bytes]], receives: Sequence[tuple[int, int, Bytes]]) -> None:
        """One group of sends and receives, each (peer, tag, bytes); back when all are done."""


@dataclass(frozen=True)
class MpiTransport:
    """Ranks of an MPI communicator (needs the extra `mpi`)."""

    communicator: Any

    @property
    def rank(self) -> int:
        """The rank of the process."""
        return int(self.communicator.Get_rank())

    def exchange(self, sends: Sequence[tuple[int, int, Bytes]], receives: Sequence[tuple[int, int, Bytes]]) -> None:
        """One group of sends and receives."""
        from mpi4py import MPI

        waiting = [self.communicator.Irecv(into, source=peer, tag=tag) for peer, tag, into in receives]
        waiting += [self.communicator.Isend(given, dest=peer, tag=tag) for peer, tag, given in sends]
        MPI.Request.Waitall(waiting)


@dataclass
class Mailboxes:
    """Queues between the ranks of one process, each run by a thread."""

    boxes: dict[tuple[int, int, int], queue.SimpleQueue[Bytes]] = field(default_factory=dict)

    def of(self, rank: int) -> Transport:
        """The transport of one rank."""
        return _Mail(rank, self)

    def box(self, src: int, dst: int, tag: int) -> queue.SimpleQueue[Bytes]:
        """What is on the way from one rank to another."""
        # setdefault is atomic, so both ends get the same queue.
        return self.boxes.setdefault((src, dst, tag), queue.SimpleQueue())


@dataclass(frozen=True)
class _Mail:
    _rank: int
    mail: Mailboxes

    @property
    def rank(self) -> int:
        return self._rank

    def exchange(self, sends: Sequence[tuple[int, int, Bytes]], receives: Sequence[tuple[int, int, Bytes]]) -> None:
        for peer, tag, given in sends:
            self.mail.box(self.rank, peer, tag).put(given.copy())
        for peer, tag, into in receives:
            into[:] = self.mail.box(peer, self.rank, tag).get(timeout=60)


def execute(plan: Plan, transport: Transport, send: Bytes, recv: Bytes) -> None:
    """One rank's part of a plan.

    Args:
        send: this rank's blocks for all ranks, one after another [bytes].
        recv: room for the blocks from all ranks, one after another [bytes].

    Raises:
        InputError: a buffer does not have the length that the plan's matrix says.
    """
    rank = transport.rank
    for name, buffer, wanted in (("send", send, plan.matrix[rank].sum()), ("recv", recv, plan.matrix[:, rank].sum())):
        if len(buffer) != wanted:
            raise InputError(f"rank {rank}: the {name} buffer has {len(buffer)} bytes; expected {wanted}")
    _Rank(plan, rank, send, recv).run(transport)


_Send = tuple[int, int, "Bytes"]  # peer, tag, what
_Receive = tuple[int, int, "list[Bytes]"]  # peer, tag, where its parts go, in order


class _Rank:
    """Buffers of a rank, and what it does in each phase."""

    def __init__(self, plan: Plan, rank: int, send: Bytes, recv: Bytes) -> None:
        import numpy as np

        self.plan, self.rank = plan, rank
        self.send, self.recv = send, recv
        row, column = plan.matrix[rank], plan.matrix[:, rank]
        self.send_at = (np.cumsum(row) - row).tolist()
        self.recv_at = (np.cumsum(column) - column).tolist()
        handed_in, passed_on = plan.staging
        self.staging = [np.zeros(int(one[rank]), dtype=np.uint8) for one in (handed_in, passed_on)]
        message = np.repeat(np.arange(len(plan.stage)), np.diff(plan.first))
        src, dst, stage = plan.src[message], plan.dst[message], plan.stage[message]
        is_origin, is_src, is_dst, is_final = (one == rank for one in (plan.origin, src, dst, plan.final))
        is_relayed = plan.method == "staged"
        self.hand_out = _grouped(is_origin & ~is_src & is_relayed, stage, src)
        self.hand_in = _grouped(is_src & ~is_origin & is_relayed, stage, plan.origin)
        self.wire_out = _grouped(is_src, stage, dst)
        self.wire_in = _grouped(is_dst, stage, src)
        self.pass_out = _grouped(is_dst & ~is_final & is_relayed, stage, plan.final)
        self.pass_in = _grouped(is_final & ~is_dst & is_relayed, stage, dst)
        self.held = [self._places(self.hand_in, self.staging[0]), self._places(self.pass_out, self.staging[1])]

    def run(self, transport: Transport) -> None:
        """All phases."""
        for phase in range(self.plan.n_stages + 2):
            if self.plan.method == "direct":
                work = [self._wire(0), self._inside()] if phase == 0 else []
            else:
                work = [self._hand_over(phase), self._wire(phase - 1), self._pass_on(phase - 2)]
                work += [self._inside()] if phase == self.plan.inside_stage + 1 else []
            sends = [one for group, _ in work for one in group]
            receives = [(*one, _room(one[2])) for _, group in work for one in group]
            transport.exchange(sends, [(peer, tag, into) for peer, tag, _, into in receives])
            for _, _, parts, came in receives:
                _scatter(came, parts)

    def _places(self, groups: _Groups, staging: Bytes) -> dict[int, Bytes]:
        """Where each piece that stays for a phase lies: stages take turns at the two halves."""
        half = len(staging) // 2
        places: dict[int, Bytes] = {}
        used: dict[int, int] = {}
        for (stage, _), pieces in sorted(groups.items()):
            for piece in pieces:
                at = used.setdefault(stage, 0) + stage % 2 * half
                length = int(self.plan.length[piece])
                used[stage] += length
                if used[stage] > half:
                    raise InputError(f"rank {self.rank}: stage {stage} needs more staging than the {half} bytes it has")
                places[piece] = staging[at : at + length]
        return places

    def _block(self, piece: int) -> Bytes:
        at = self.send_at[self.plan.final[piece]] + int(self.plan.offset[piece])
        return self.send[at : at + int(self.plan.length[piece])]

    def _slot(self, piece: int) -> Bytes:
        at = self.recv_at[self.plan.origin[piece]] + int(self.plan.offset[piece])
        return self.recv[at : at + int(self.plan.length[piece])]

    def _hand_over(self, stage: int) -> tuple[list[_Send], list[_Receive]]:
        return (
            [(peer, _HAND, _gather(map(self._block, some))) for peer, some in _at(self.hand_out, stage)],
            [(peer, _HAND, [self.held[0][one] for one in some]) for peer, some in _at(self.hand_in, stage)],
        )

    def _wire(self, stage: int) -> tuple[list[_Send], list[_Receive]]:
        handed, passed = self.held
        sends = [
            (peer, _WIRE, _gather(handed[one] if one in handed else self._block(one) for one in some))
            for peer, some in _at(self.wire_out, stage)
        ]
        receives = [
            (peer, _WIRE, [passed[one] if one in passed else self._slot(one) for one in some])
            for peer, some in _at(self.wire_in, stage)
        ]
        return sends, receives

    def _pass_on(self, stage: int) -> tuple[list[_Send], list[_Receive]]:
        return (
            [(peer, _PASS, _gather(self.held[1][one] for one in some)) for peer, some in _at(self.pass_out, stage)],
            [(peer, _PASS, [self._slot(one) for one in some]) for peer, some in _at(self.pass_in, stage)],
        )

    def _inside(self) -> tuple[list[_Send], list[_Receive]]:
        """Blocks for the own host, whole; the own block is copied."""
        home = next(host.ranks for host in self.plan.machine.hosts if self.rank in host.ranks)
        matrix, rank = self.plan.matrix, self.rank
        given = {peer: self.send[self.send_at[peer] : self.send_at[peer] + int(matrix[rank, peer])] for peer in home}
        taken = {peer: self.recv[self.recv_at[peer] : self.recv_at[peer] + int(matrix[peer, rank])] for peer in home}
        taken[rank][:] = given[rank]
        others = [peer for peer in home if peer != rank]
        return (
            [(peer, _INSIDE, given[peer]) for peer in others if len(given[peer])],
            [(peer, _INSIDE, [taken[peer]]) for peer in others if len(taken[peer])],
        )


_Groups = dict[tuple[int, int], list[int]]


def _grouped(mask: Numbers, stage: Numbers, peer: Numbers) -> _Groups:
    """(stage, peer) -> the marked pieces, in order."""
    import numpy as np

    groups: _Groups = {}
    for piece in np.flatnonzero(mask).tolist():
        groups.setdefault((int(stage[piece]), int(peer[piece])), []).append(piece)
    return groups


def _at(groups: _Groups, stage: int) -> Iterator[tuple[int, list[int]]]:
    """(peer, pieces) of a stage."""
    for (one, peer), pieces in groups.items():
        if one == stage:
            yield peer, pieces


def _gather(parts: Iterable[Bytes]) -> Bytes:
    import numpy as np

    return np.concatenate(list(parts))


def _room(parts: Sequence[Bytes]) -> Bytes:
    import numpy as np

    return np.empty(sum(map(len, parts)), dtype=np.uint8)


def _scatter(came: Bytes, parts: Sequence[Bytes]) -> None:
    at = 0
    for part in parts:
        part[:] = came[at : at + len(part)]
        at += len(part)
