"""Both halves of an all-reduce laid over each other: what is summed one way is copied out another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

Part = tuple[int, Fraction]  # root, share of what it sends or receives


def overlay(ups: Iterable[Part], downs: Iterable[Part]) -> Iterator[tuple[int, int, Fraction]]:
    """Parts of one root that travel together: both halves cut each root's whole at the marks of either.

    Yields:
        The places of both in their lists, and their common share.
    """
    waiting: dict[int, list[tuple[int, Fraction]]] = {}
    for place, (root, share) in enumerate(downs):
        waiting.setdefault(root, []).append((place, share))
    for parts in waiting.values():
        parts.reverse()
    for place, (root, left) in enumerate(ups):
        while left:
            down, share = waiting[root].pop()
            common = min(left, share)
            if share > common:
                waiting[root].append((down, share - common))
            yield place, down, common
            left -= common
