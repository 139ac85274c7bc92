"""The cheapest ways between ranks under prices on links, for many pairs at once.

Fares only fall: every link offers its head the fare of its tail and its own price, until none helps. That
ends with the least fares whatever the order; here links that lead to different heads are looked at together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collc.ir.topology import Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_BATCH = 1 << 18  # fares looked at together; they stay in the cache
_LARGEST = 1 << 61  # sums beyond are left to Python's own integers


def cheapest(topology: Topology, price_of: Mapping[tuple[str, str], int], origins: Sequence[int]) -> Array:
    """[origins x ranks] the least price of a way from a rank to a rank; zero where none leads there.

    Args:
        price_of: (src, dst) -> price, whole and zero or more; links that are absent are free.
    """
    import numpy

    number = {name: vertex for vertex, name in enumerate(topology.gpus + topology.switches)}
    small = max(price_of.values(), default=0) * len(number) < _LARGEST
    kind = numpy.dtype(numpy.int64 if small else object)
    far = _LARGEST if small else (max(price_of.values()) + 1) * len(number)
    steps = _by_round(topology, number, price_of, kind)
    width = max(1, _BATCH // len(number))
    found = [
        _fares(len(number), numpy.array(origins[at : at + width]), steps, far)[: topology.n_ranks].T
        for at in range(0, len(origins), width)
    ]
    return numpy.concatenate(found) if found else numpy.zeros((0, topology.n_ranks), dtype=kind)


def _fares(n_vertices: int, origins: Array, steps: Sequence[tuple[Array, Array, Array]], far: int) -> Array:
    """[vertices x origins] the least fares from some ranks."""
    import numpy

    kind = steps[0][2].dtype if steps else numpy.dtype(numpy.int64)
    fares = numpy.full((n_vertices, len(origins)), far, dtype=kind)
    fares[origins, numpy.arange(len(origins))] = 0
    while True:
        before = fares.copy()
        for tails, heads, prices in steps:
            fares[heads] = numpy.minimum(fares[heads], fares[tails] + prices)
        if (fares == before).all():
            fares[fares >= far] = 0
            return fares


def _by_round(
    topology: Topology, number: Mapping[str, int], price_of: Mapping[tuple[str, str], int], kind: Any
) -> list[tuple[Array, Array, Array]]:
    """Tails, heads and prices of links; the first link into each vertex, the second into each, and so on."""
    import numpy

    rounds: list[list[tuple[int, int, int]]] = []
    met = [0] * len(number)
    for link in topology.links:
        head = number[link.dst]
        if met[head] == len(rounds):
            rounds.append([])
        rounds[met[head]].append((number[link.src], head, price_of.get((link.src, link.dst), 0)))
        met[head] += 1
    return [
        (numpy.array(tails), numpy.array(heads), numpy.array(prices, dtype=kind)[:, None])
        for tails, heads, prices in (zip(*links, strict=True) for links in rounds)
    ]


def total(values: Array) -> int:
    """The exact sum of whole numbers, each zero or more and below 2^62."""
    if values.dtype == object:
        return int(values.sum())
    # The halves of fewer than 2^31 numbers add up within 64 bits.
    return (int((values >> 31).sum()) << 31) + int((values & ((1 << 31) - 1)).sum())
