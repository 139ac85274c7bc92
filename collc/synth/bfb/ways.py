"""Plans read as trees: which share of a shard takes which lanes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from collc.design.plan import Move, Plan
from collc.synth import _overlay


@dataclass(frozen=True)
class Way:
    """A share of a source's shard and the lanes it takes, every lane after the one that feeds it."""

    source: int
    share: Fraction
    lanes: tuple[int, ...]


def ways(plan: Plan) -> list[Way]:
    """By source, shares that take the same lanes everywhere; the shares of a source add to one."""
    moves: dict[int, list[Move]] = defaultdict(list)
    for move in sorted(plan.moves):
        moves[move.source].append(move)
    return [way for source in range(plan.lanes.n) for way in _ways_of(source, moves[source], plan.n_chunks)]


def _ways_of(source: int, moves: Sequence[Move], n_chunks: int) -> list[Way]:
    marks = sorted({0, n_chunks} | {move.first for move in moves} | {move.first + move.n_chunks for move in moves})
    lanes: list[list[int]] = [[] for _ in marks[1:]]
    for move in moves:
        for piece in range(bisect_right(marks, move.first) - 1, len(lanes)):
            if marks[piece] >= move.first + move.n_chunks:
                break
            lanes[piece].append(move.lane)
    # Pieces that take the same lanes travel together.
    chunks: dict[tuple[int, ...], int] = defaultdict(int)
    for piece, taken in enumerate(lanes):
        chunks[tuple(taken)] += marks[piece + 1] - marks[piece]
    return [Way(source, Fraction(count, n_chunks), taken) for taken, count in chunks.items()]


def overlay(ups: Sequence[Way], downs: Sequence[Way]) -> list[tuple[Fraction, Way, Way]]:
    """Ways of one source that travel together, with their common share."""
    up_parts, down_parts = ([(way.source, way.share) for way in ways] for ways in (ups, downs))
    return [(share, ups[up], downs[down]) for up, down, share in _overlay.overlay(up_parts, down_parts)]
