"""Collectives beside the table: blocks of unequal length, and several groups of ranks at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm

from collc.errors import InputError
from collc.ir.collective import Chunk, Collective, Places


def whole_shares(shares: Sequence[Fraction]) -> list[int]:
    """Shares in whole slots of the largest size that divides all of them.

    >>> whole_shares([Fraction(3, 2), Fraction(0), Fraction(1)])
    [3, 0, 2]

    Raises:
        InputError: a negative share, or nothing but zeros.
    """
    for rank, share in enumerate(shares):
        if share < 0:
            raise InputError(f"share of rank {rank}: {share}; expected zero or more")
    if not any(shares):
        raise InputError("every share is zero; expected something to move")
    common = lcm(*(share.denominator for share in shares))
    unit = gcd(*(int(share * common) for share in shares))
    return [int(share * common) // unit for share in shares]


def with_shares(name: str, counts: Sequence[int], *, inplace: bool = False) -> Collective:
    """Allgather or reduce-scatter with a block of its own length for each rank, as allgatherv and reduce_scatterv.

    The blocks lie one after another.

    Args:
        name: allgather or reduce_scatter, with or without the v.
        counts: slots of each rank's block; zero is allowed.

    Raises:
        InputError: another collective, or nothing but zeros.
    """
    short = name.removesuffix("v")
    if short not in ("allgather", "reduce_scatter"):
        raise InputError(f"{name} has no shares; only allgather and reduce_scatter have")
    if not any(counts):
        raise InputError("every share is zero; expected something to move")
    n, most, starts = len(counts), max(counts), [0, *accumulate(counts)]
    every, blocks = range(n), [(rank, count) for rank, count in enumerate(counts) if count]
    if short == "allgather":
        chunks = tuple(Chunk(Places((rank,), 0), Places(every, starts[rank]), count) for rank, count in blocks)
        made = Collective("allgatherv", n, 1, most, starts[-1], chunks, tuple(starts[:-1]))
    else:
        chunks = tuple(Chunk(Places(every, starts[rank]), Places((rank,), 0), count) for rank, count in blocks)
        made = Collective("reduce_scatterv", n, 1, starts[-1], most, chunks, tuple(-start for start in starts[:-1]))
    return made.called_inplace() if inplace else made


def side_by_side(parts: Sequence[Collective]) -> Collective:
    """Collectives of one kind on disjoint groups of ranks at the same time; the groups' ranks follow each other.

    Raises:
        InputError: collectives of different kinds.
    """
    first = parts[0]
    for part in parts[1:]:
        if (part.name, part.chunk_factor, part.inplace) != (first.name, first.chunk_factor, first.inplace):
            raise InputError(f"{first.name} and {part.name} side by side; expected the same collective in each group")
    starts = [0, *accumulate(part.n_ranks for part in parts)]
    chunks = tuple(
        replace(
            chunk,
            precondition=_moved(chunk.precondition, start),
            postcondition=_moved(chunk.postcondition, start),
        )
        for part, start in zip(parts, starts, strict=False)
        for chunk in part.chunks
    )
    return Collective(
        first.name,
        starts[-1],
        first.chunk_factor,
        max(part.input_chunks for part in parts),
        max(part.output_chunks for part in parts),
        chunks,
        tuple(shift for part in parts for shift in part.shift),
        first.inplace,
        first.root,
    )


def _moved(places: Places, start: int) -> Places:
    ranks = places.ranks
    if isinstance(ranks, range):
        return Places(range(ranks.start + start, ranks.stop + start, ranks.step), places.offsets)
    return Places(tuple(rank + start for rank in ranks), places.offsets)


def part_of(collective: Collective, ranks: Sequence[int]) -> Collective:
    """What one group of a collective does, by its own ranks. The inverse of `side_by_side`.

    Args:
        ranks: a run of ranks, as `Collective.groups` has it.
    """
    first = ranks[0]
    chunks = tuple(
        replace(
            chunk,
            precondition=_moved(chunk.precondition, -first),
            postcondition=_moved(chunk.postcondition, -first),
        )
        for chunk in collective.chunks
        if chunk.precondition.ranks[0] in ranks
    )
    return replace(
        collective,
        n_ranks=len(ranks),
        input_chunks=max(_end(chunk.precondition, chunk.count) for chunk in chunks),
        output_chunks=max(_end(chunk.postcondition, chunk.count) for chunk in chunks),
        chunks=chunks,
        shift=collective.shift[first : first + len(ranks)],
    )


def _end(places: Places, count: int) -> int:
    """The first slot after all places."""
    return count + (places.offsets if isinstance(places.offsets, int) else max(places.offsets))
