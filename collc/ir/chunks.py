"""Rows of a collective's table: chunk by chunk, by rule, and all at once in columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from collc.errors import InputError
from collc.ir.lazy import Lazy

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

# Chunks of a rule at most; a document may ask for any number.
_MOST_CHUNKS = 2**26


@dataclass(frozen=True)
class Places(Mapping[int, int]):
    """Rank -> offset [chunks] in that rank's buffer. A rule, so that n ranks cost no memory.

    Attributes:
        ranks: increasing; a range where all ranks are meant.
        offsets: one number for all of them, or one number each.
    """

    ranks: Sequence[int]
    offsets: int | tuple[int, ...]

    def __post_init__(self) -> None:
        # A range is not walked: a document may name one of any length.
        rises = self.ranks.step > 0 if isinstance(self.ranks, range) else _rises(self.ranks)
        if not rises:
            raise InputError(f"places: ranks {list(self.ranks[:8])}; expected increasing numbers")
        if isinstance(self.offsets, tuple) and len(self.offsets) != len(self.ranks):
            raise InputError(f"places: {len(self.offsets)} offsets for {len(self.ranks)} ranks")

    def __getitem__(self, rank: int) -> int:
        if isinstance(self.ranks, range):
            if rank not in self.ranks:
                raise KeyError(rank)
            index = self.ranks.index(rank)
        else:
            try:
                index = self.ranks.index(rank)
            except ValueError:
                raise KeyError(rank) from None
        return self.offsets if isinstance(self.offsets, int) else self.offsets[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)


def _rises(ranks: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(ranks))


@dataclass(frozen=True)
class Chunk:
    """One piece of data. Its value is the sum of one contribution from each rank in
    `precondition` (a copy is a sum of one).

    Attributes:
        precondition: rank -> offset of its contribution in its input buffer [slots].
        postcondition: rank -> offset of the value in its output buffer [slots].
        count: slots it fills, at those offsets and after; 1 but where ranks have blocks of their own length.
    """

    precondition: Places
    postcondition: Places
    count: int = 1


@dataclass(frozen=True)
class AllPairs(Lazy[Chunk]):
    """As many chunks of one slot from every rank to every rank: the table of an all-to-all, by rule.

    Chunk (src * n_ranks + dst) * per_pair + i lies in slot dst * per_pair + i of src's input and goes to
    slot src * per_pair + i of dst's output. Equal rules are equal tables.

    Attributes:
        per_pair: chunks that a rank has for each rank.
    """

    n_ranks: int
    per_pair: int = 1

    def __post_init__(self) -> None:
        if self.n_ranks < 1 or self.per_pair < 1 or self.n_ranks**2 * self.per_pair > _MOST_CHUNKS:
            raise InputError(
                f"{self.per_pair} chunks for each pair of {self.n_ranks} ranks; expected 1 or more of each, "
                f"{_MOST_CHUNKS} chunks at most"
            )

    def __len__(self) -> int:
        return self.n_ranks**2 * self.per_pair

    def make(self, index: int) -> Chunk:
        """The chunk at an index."""
        pair, part = divmod(index, self.per_pair)
        src, dst = divmod(pair, self.n_ranks)
        return Chunk(Places((src,), dst * self.per_pair + part), Places((dst,), src * self.per_pair + part))

    def __iter__(self) -> Iterator[Chunk]:
        return map(self.make, range(len(self)))

    def columns_of(self, rows: Array) -> Columns:
        """The columns of some chunks, in that order."""
        import numpy

        pairs = rows // self.per_pair
        ones = numpy.broadcast_to(numpy.int64(1), len(rows))
        return Columns(pairs // self.n_ranks, pairs % self.n_ranks, ones, ones, ones)


@dataclass(frozen=True, eq=False)
class Columns:
    """A table by column, for who looks at all chunks at once.

    Attributes:
        sources, sinks: by chunk, its contributor and its consumer; -1 where there are several.
        contributors, consumers: by chunk, how many there are.
        counts: by chunk, its slots.
    """

    sources: Array
    sinks: Array
    contributors: Array
    consumers: Array
    counts: Array

    @staticmethod
    def of(chunks: Sequence[Chunk]) -> Columns:
        """The columns of a table."""
        import numpy

        if isinstance(chunks, AllPairs):
            return chunks.columns_of(numpy.arange(len(chunks)))
        ends = [(*_end(chunk.precondition), *_end(chunk.postcondition)) for chunk in chunks]
        counts = [chunk.count for chunk in chunks]
        # A document may name any count.
        kind = numpy.dtype(numpy.int64 if max(counts, default=0) < 2**62 else object)
        table = numpy.array(ends, dtype=numpy.int64).reshape(-1, 4).T
        return Columns(table[0], table[2], table[1], table[3], numpy.array(counts, dtype=kind))

    def of_rows(self, rows: Array) -> Columns:
        """The columns of some chunks, in that order."""
        columns = (self.sources, self.sinks, self.contributors, self.consumers, self.counts)
        return Columns(*(column[rows] for column in columns))


def _end(places: Places) -> tuple[int, int]:
    """The rank where there is one, else -1; and how many there are."""
    return (places.ranks[0] if len(places.ranks) == 1 else -1), len(places.ranks)


def shapes(chunks: Sequence[Chunk]) -> frozenset[tuple[int, int]]:
    """(contributors, consumers) that chunks of a table have."""
    if isinstance(chunks, AllPairs):
        return frozenset([(1, 1)])
    return frozenset((len(chunk.precondition), len(chunk.postcondition)) for chunk in chunks)
