"""What a collective asks for: a table of chunks, who holds each before and who must after.

The table is the only definition of a collective in collc; no checker, pass or bound asks for its
name. Counting follows nccl-tests: the message size is the larger of a rank's two buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc.errors import InputError, nearest
from collc.ir.chunks import AllPairs, Chunk, Columns, Places, shapes
from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

__all__ = [
    "COLLECTIVES",
    "NAMES",
    "ROOTED",
    "UNEVEN",
    "AllPairs",
    "Chunk",
    "Collective",
    "Columns",
    "Places",
    "Problem",
    "alltoallv",
    "make_collective",
    "padded",
]


@dataclass(frozen=True)
class Collective:
    """A collective on `n_ranks` ranks.

    Attributes:
        name: as the user types it.
        n_ranks: ranks in the communicator.
        chunk_factor: chunks per rank block.
        input_chunks, output_chunks: slots per rank.
        chunks: the table.
        inplace: whether the two buffers overlap, as `shift` says.
        shift: per rank; in place, input slot x is the same memory as output slot x + shift[rank]
            (where both exist), as NCCL defines in-place calls.
        root: for the collectives that have one.
    """

    name: str
    n_ranks: int
    chunk_factor: int
    input_chunks: int
    output_chunks: int
    chunks: tuple[Chunk, ...] | AllPairs
    shift: tuple[int, ...]
    inplace: bool = False
    root: int | None = None

    def __post_init__(self) -> None:
        if self.n_ranks < 1 or self.chunk_factor < 1:
            raise InputError(
                f"{self.name}: {self.n_ranks} ranks, chunk factor {self.chunk_factor}; expected 1 or more of each"
            )
        if len(self.shift) != self.n_ranks:
            raise InputError(f"{self.name}: {len(self.shift)} shifts for {self.n_ranks} ranks")
        # The last chunk of a rule has the highest ranks and offsets.
        first = len(self.chunks) - 1 if isinstance(self.chunks, AllPairs) else 0
        for index, chunk in enumerate(self.chunks[first:], first):
            for side, places, limit in (
                ("precondition", chunk.precondition, self.input_chunks),
                ("postcondition", chunk.postcondition, self.output_chunks),
            ):
                _check_places(f"{self.name}: chunk {index}: {side}", places, chunk.count, self.n_ranks, limit)

    @property
    def size_chunks(self) -> int:
        """Slots that make up the message size: the larger buffer, as nccl-tests counts."""
        return max(self.input_chunks, self.output_chunks)

    @cached_property
    def columns(self) -> Columns:
        """The table by column."""
        return Columns.of(self.chunks)

    def columns_of(self, rows: Array) -> Columns:
        """The columns of some chunks, in that order."""
        return self.chunks.columns_of(rows) if isinstance(self.chunks, AllPairs) else self.columns.of_rows(rows)

    @cached_property
    def shapes(self) -> frozenset[tuple[int, int]]:
        """(contributors, consumers) that chunks have."""
        return shapes(self.chunks)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that have to do with each other, directly or through others; most often all of them."""
        above = list(range(self.n_ranks))

        def top(rank: int) -> int:
            while above[rank] != rank:
                above[rank] = above[above[rank]]
                rank = above[rank]
            return rank

        left, seen = self.n_ranks, set()
        for chunk in self.chunks:
            for ranks in (chunk.precondition.ranks, chunk.postcondition.ranks):
                if ranks in seen or left == 1:
                    continue
                seen.add(ranks)
                for rank in ranks[1:]:
                    left -= top(rank) != top(ranks[0])
                    above[top(rank)] = top(ranks[0])
            first, second = top(chunk.precondition.ranks[0]), top(chunk.postcondition.ranks[0])
            left -= first != second
            above[second] = first
            if left == 1:
                break
        members: dict[int, list[int]] = {}
        for rank in range(self.n_ranks):
            members.setdefault(top(rank), []).append(rank)
        return tuple(tuple(ranks) for ranks in members.values())

    def called_inplace(self) -> Collective:
        """The same collective called in place."""
        return replace(self, inplace=True)

    def refined(self, factor: int) -> Collective:
        """The same collective with each slot cut into `factor` slots, and each chunk into chunks of one slot.

        Chunk j of the old table becomes the chunks that follow those of chunks 0 .. j-1, in order.
        """
        chunks = (
            replace(self.chunks, per_pair=self.chunks.per_pair * factor)
            if isinstance(self.chunks, AllPairs)
            else tuple(
                Chunk(_shifted(chunk.precondition, factor, part), _shifted(chunk.postcondition, factor, part))
                for chunk in self.chunks
                for part in range(chunk.count * factor)
            )
        )
        return replace(
            self,
            chunk_factor=self.chunk_factor * factor,
            input_chunks=self.input_chunks * factor,
            output_chunks=self.output_chunks * factor,
            chunks=chunks,
            shift=tuple(shift * factor for shift in self.shift),
        )


def _check_places(where: str, places: Places, count: int, n_ranks: int, limit: int) -> None:
    if not len(places):
        raise InputError(f"{where}: names no rank")
    if places.ranks[0] < 0 or places.ranks[-1] >= n_ranks:
        raise InputError(f"{where}: ranks {places.ranks[0]}..{places.ranks[-1]}; expected 0..{n_ranks - 1}")
    offsets = (places.offsets,) if isinstance(places.offsets, int) else places.offsets
    if count < 1 or min(offsets) < 0 or max(offsets) + count > limit:
        raise InputError(f"{where}: {count} slots at {min(offsets)}..{max(offsets)}; the buffer has {limit}")


@dataclass(frozen=True)
class Problem:
    """What is to be scheduled.

    Attributes:
        topology: the fabric.
        collective: the collective on its ranks.
        nbytes: message size [bytes] as nccl-tests counts it; None means the large-message limit.
    """

    topology: Topology
    collective: Collective
    nbytes: int | None = None

    def __post_init__(self) -> None:
        if self.collective.n_ranks != self.topology.n_ranks:
            raise InputError(
                f"{self.collective.name} on {self.collective.n_ranks} ranks; "
                f"topology '{self.topology.name}' has {self.topology.n_ranks}"
            )


# --- the table -----------------------------------------------------------------------------------


def _shifted(places: Places, factor: int, part: int) -> Places:
    if isinstance(places.offsets, int):
        return Places(places.ranks, places.offsets * factor + part)
    return Places(places.ranks, tuple(offset * factor + part for offset in places.offsets))


def _one(rank: int, offset: int) -> Places:
    return Places((rank,), offset)


def _allgather(n: int, k: int, root: int) -> Collective:
    every = range(n)
    chunks = tuple(Chunk(_one(r, i), Places(every, r * k + i)) for r in every for i in range(k))
    return Collective("allgather", n, k, k, n * k, chunks, tuple(r * k for r in every))


def _reduce_scatter(n: int, k: int, root: int) -> Collective:
    every = range(n)
    chunks = tuple(Chunk(Places(every, d * k + i), _one(d, i)) for d in every for i in range(k))
    return Collective("reduce_scatter", n, k, n * k, k, chunks, tuple(-d * k for d in every))


def _allreduce(n: int, k: int, root: int) -> Collective:
    every = range(n)
    chunks = tuple(Chunk(Places(every, j), Places(every, j)) for j in range(k))
    return Collective("allreduce", n, k, k, k, chunks, (0,) * n)


def _alltoall(n: int, k: int, root: int) -> Collective:
    return Collective("alltoall", n, k, n * k, n * k, AllPairs(n, k), (0,) * n)


def _broadcast(n: int, k: int, root: int) -> Collective:
    chunks = tuple(Chunk(_one(root, i), Places(range(n), i)) for i in range(k))
    return Collective("broadcast", n, k, k, k, chunks, (0,) * n, root=root)


def _reduce(n: int, k: int, root: int) -> Collective:
    chunks = tuple(Chunk(Places(range(n), i), _one(root, i)) for i in range(k))
    return Collective("reduce", n, k, k, k, chunks, (0,) * n, root=root)


def _gather(n: int, k: int, root: int) -> Collective:
    chunks = tuple(Chunk(_one(r, i), _one(root, r * k + i)) for r in range(n) for i in range(k))
    # Only the root has an output buffer; the others' shift keeps clear of it.
    shift = tuple(r * k if r == root else n * k for r in range(n))
    return Collective("gather", n, k, k, n * k, chunks, shift, root=root)


def _scatter(n: int, k: int, root: int) -> Collective:
    chunks = tuple(Chunk(_one(root, r * k + i), _one(r, i)) for r in range(n) for i in range(k))
    shift = tuple(-r * k if r == root else n * k for r in range(n))
    return Collective("scatter", n, k, n * k, k, chunks, shift, root=root)


COLLECTIVES: Mapping[str, Callable[[int, int, int], Collective]] = {
    "allgather": _allgather,
    "reduce_scatter": _reduce_scatter,
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "alltoall": _alltoall,
}
ROOTED = ("broadcast", "reduce", "gather", "scatter")
NAMES = (*COLLECTIVES, "alltoallv")
# Allgather and reduce-scatter with a share for each rank (`variants`).
UNEVEN = ("allgatherv", "reduce_scatterv")


def make_collective(
    name: str, n_ranks: int, chunk_factor: int = 1, *, root: int | None = None, inplace: bool = False
) -> Collective:
    """The collective of that name.

    Args:
        name: a key of `COLLECTIVES` (all-to-all-v needs a demand: `alltoallv`).
        chunk_factor: chunks per rank block.
        root: rank 0 where not given; only for the collectives that have one.

    Raises:
        InputError: unknown name, a root out of range or one that is not wanted.
    """
    if name not in COLLECTIVES:
        if name == "alltoallv":
            raise InputError("alltoallv needs a demand matrix: give --demand FILE")
        if name in UNEVEN:
            raise InputError(f"{name} needs a share for each rank: give --shares 3,1,0,2 or --shares FILE")
        raise InputError(f"collective '{name}'" + nearest(name, (*NAMES, *UNEVEN)))
    if root is not None and name not in ROOTED:
        raise InputError(f"{name} has no root; only {', '.join(ROOTED)} have")
    if root is not None and not 0 <= root < n_ranks:
        raise InputError(f"root {root}: expected a rank from 0 to {n_ranks - 1}")
    collective = COLLECTIVES[name](n_ranks, chunk_factor, root or 0)
    return collective.called_inplace() if inplace else collective


def alltoallv(demand: Sequence[Sequence[int]]) -> Collective:
    """All-to-all with its own count for each pair; the blocks lie one after another.

    Args:
        demand: [n x n] slots that row's rank sends to column's rank.

    Raises:
        InputError: not square, a negative entry, or nothing to send.
    """
    n = len(demand)
    for row, counts in enumerate(demand):
        if len(counts) != n:
            raise InputError(f"demand: row {row} has {len(counts)} entries; expected {n}")
        for column, count in enumerate(counts):
            if count < 0:
                raise InputError(f"demand: row {row} column {column} is {count}; expected zero or more")
    chunks = []
    received = [0] * n
    for src, counts in enumerate(demand):
        sent = 0
        for dst, count in enumerate(counts):
            if count:
                # Receive blocks are ordered by source, and sources are visited in order.
                chunks.append(Chunk(_one(src, sent), _one(dst, received[dst]), count))
            sent += count
            received[dst] += count
    if not chunks:
        raise InputError("demand: every entry is zero; expected something to send")
    n_in = max(sum(counts) for counts in demand)
    return Collective("alltoallv", n, 1, n_in, max(received), tuple(chunks), (max(n_in, *received),) * n)


def padded(demand: Collective) -> Collective:
    """An all-to-all-v as an all-to-all whose blocks all have the size of the largest, filled from the front.

    Only what is demanded is in the table; the rest of a block neither moves nor matters.
    """
    n = demand.n_ranks
    block = max(chunk.count for chunk in demand.chunks)
    chunks = []
    for chunk in demand.chunks:
        src, dst = chunk.precondition.ranks[0], chunk.postcondition.ranks[0]
        chunks.append(Chunk(_one(src, dst * block), _one(dst, src * block), chunk.count))
    return Collective("alltoall", n, block, n * block, n * block, tuple(chunks), (0,) * n)
