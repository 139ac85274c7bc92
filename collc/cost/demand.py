"""The chunk table by shape: what a cut and a price need to know of a collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from collc.ir.collective import AllPairs, Collective

if TYPE_CHECKING:
    import numpy


@dataclass(frozen=True)
class Demand:
    """The chunk table by shape, so that a cut is evaluated without walking all chunks.

    Attributes:
        spread: slots of one contributor, by rank, that all ranks consume.
        gathered: slots of one consumer, by rank, that all ranks contribute to.
        pairs: [n x n] slots from one contributor to one consumer.
        others: (contributors, consumers, slots) of the rest.
        size: slots of the message size.
    """

    n_ranks: int
    spread: tuple[int, ...]
    gathered: tuple[int, ...]
    pairs: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]
    others: tuple[tuple[frozenset[int], frozenset[int], int], ...]
    size: int

    @staticmethod
    def of(collective: Collective) -> Demand:
        """The demand of a table; chunks that stay where they are count for nothing."""
        import numpy

        n, pairs = collective.n_ranks, _pairs(collective)
        numpy.fill_diagonal(pairs, 0)
        spread, gathered = [0] * n, [0] * n
        others: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for chunk in () if collective.shapes == {(1, 1)} else collective.chunks:
            before, after = chunk.precondition.ranks, chunk.postcondition.ranks
            if len(before) == 1 and len(after) == 1:
                continue
            if len(before) == 1 and len(after) == n:
                spread[before[0]] += chunk.count
            elif len(before) == n and len(after) == 1:
                gathered[after[0]] += chunk.count
            else:
                key = (frozenset(before), frozenset(after))
                others[key] = others.get(key, 0) + chunk.count
        rest = tuple((before, after, slots) for (before, after), slots in others.items())
        return Demand(n, tuple(spread), tuple(gathered), pairs, rest, collective.size_chunks)

    @cached_property
    def moves(self) -> bool:
        """Whether any data must change its rank."""
        return self.n_ranks > 1 and bool(any(self.spread) or any(self.gathered) or self.others or self.pairs.any())

    @cached_property
    def spreads_only(self) -> bool:
        """Whether every chunk goes from one contributor to all ranks."""
        return not (any(self.gathered) or self.others or self.pairs.any())

    @cached_property
    def sent(self) -> list[int]:
        """By rank, slots that it contributes to and some other rank consumes."""
        return self._touching(self.spread, self.gathered, self.pairs.sum(axis=1).tolist(), self.others)

    @cached_property
    def got(self) -> list[int]:
        """By rank, slots that it consumes and some other rank contributes to."""
        turned = self.reversed()
        return self._touching(turned.spread, turned.gathered, self.pairs.sum(axis=0).tolist(), turned.others)

    def _touching(
        self,
        spread: Sequence[int],
        gathered: Sequence[int],
        paired: Sequence[int],
        others: Iterable[tuple[frozenset[int], frozenset[int], int]],
    ) -> list[int]:
        if self.n_ranks == 1:
            return [0]
        everyone = sum(gathered)
        found = [a + everyone - b + c for a, b, c in zip(spread, gathered, paired, strict=True)]
        for before, after, slots in others:
            for rank in before:
                found[rank] += slots if after - {rank} else 0
        return found

    @cached_property
    def cuts_are_exact(self) -> bool:
        """Whether the best cut is the optimum, by max-flow/min-cut or Edmonds' branching theorem."""
        kinds = [any(self.spread), any(self.gathered), bool(self.pairs.any()), bool(self.others)]
        if sum(kinds) != 1 or self.others:
            return False
        rows, columns = self.pairs.any(axis=1).sum(), self.pairs.any(axis=0).sum()
        return not kinds[2] or rows == 1 or columns == 1

    def crossing(self, inside: Sequence[bool]) -> int:
        """Slots with a contributor inside and a consumer outside."""
        import numpy

        if all(inside) or not any(inside):
            return 0
        mask = numpy.array(inside)
        slots = int(self.pairs[mask][:, ~mask].sum())
        slots += sum(weight for weight, within in zip(self.spread, inside, strict=True) if within)
        slots += sum(weight for weight, within in zip(self.gathered, inside, strict=True) if not within)
        for before, after, weight in self.others:
            if any(inside[rank] for rank in before) and not all(inside[rank] for rank in after):
                slots += weight
        return slots

    def sources_for(self, sink: int) -> list[int]:
        """By rank, slots that must come from it to the sink (each chunk from one contributor only).

        What the sink itself holds counts too: it has no way to go, and all sinks get equal sources.
        """
        weights = [a + int(b) for a, b in zip(self.spread, self.pairs[:, sink], strict=True)]
        for before, after, slots in self.others:
            away = before - {sink}
            if sink in after and away:
                weights[min(away)] += slots
        return weights

    def reversed(self) -> Demand:
        """The demand on the reversed fabric that the same schedules serve, turned round."""
        others = tuple((after, before, slots) for before, after, slots in self.others)
        return Demand(self.n_ranks, self.gathered, self.spread, self.pairs.T, others, self.size)


def _pairs(collective: Collective) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]:
    """[n x n] slots from one contributor to one consumer, what stays where it is among them."""
    import numpy

    n = collective.n_ranks
    if isinstance(collective.chunks, AllPairs):
        found = numpy.zeros((n, n), dtype=numpy.int64)
        concerned = collective.chunks.n_ranks
        found[:concerned, :concerned] = collective.chunks.per_pair
        return found
    table = collective.columns
    alone = (table.contributors == 1) & (table.consumers == 1)
    found = numpy.zeros((n, n), dtype=numpy.int64)
    numpy.add.at(found, (table.sources[alone], table.sinks[alone]), table.counts[alone])
    return found
