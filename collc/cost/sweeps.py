"""Cuts for all-to-all: vertices in some order, cut after each of them in turn.

The sparsest cut is hard to find. What halves real fabrics lies along rank numbers read as digits (rows,
columns and planes of a torus, hosts, racks), or around a rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ranks that cuts are drawn around.
_CENTRES = 16
# Rounds in which switches move to where their neighbours are.
_ROUNDS = 4


def swept_cuts(n_vertices: int, tails: Array, heads: Array, widths: Array, pairs: Array) -> Iterator[Array]:
    """Which vertices the best cut of an order holds, for each order that is better than those before.

    The best has most slots leaving per width of the links that leave.

    Args:
        pairs: [ranks x ranks] slots; ranks are the first vertices.
    """
    import numpy

    n = len(pairs)
    apart = pairs[~numpy.eye(n, dtype=bool)]
    is_even = bool((apart == apart[0]).all())
    best = 0.0
    for order in _orders(n_vertices, n, tails, heads):
        place = numpy.empty(n, dtype=numpy.int64)
        place[order] = numpy.arange(n)
        spot = _spots(n_vertices, tails, heads, place)
        # A link leaves the first k if it starts before k and ends at k or after.
        leaving = numpy.zeros(n + 1)
        forth = spot[tails] < spot[heads]
        numpy.add.at(leaving, spot[tails][forth] + 1, widths[forth])
        numpy.add.at(leaving, spot[heads][forth] + 1, -widths[forth])
        leaving = leaving.cumsum()[1:n]
        count = numpy.arange(1, n)
        slots = apart[0] * count * (n - count) if is_even else _crossing(pairs[numpy.ix_(order, order)])
        ratio = numpy.divide(slots, leaving, out=numpy.zeros(n - 1), where=leaving > 0.5)
        if ratio.max() > best * (1 + 1e-9):
            best = ratio.max()
            yield spot <= int(ratio.argmax())


def _crossing(pairs: Array) -> Array:
    """By k, slots from the first k to the rest."""
    import numpy

    rows = pairs.sum(axis=1).cumsum()
    within = pairs.cumsum(axis=0).cumsum(axis=1).diagonal()
    crossing: Array = (rows - within)[:-1].astype(numpy.float64)
    return crossing


def _spots(n_vertices: int, tails: Array, heads: Array, place: Array) -> Array:
    """By vertex, its place in the order; a switch stands amid its neighbours."""
    import numpy

    n = len(place)
    spot = numpy.full(n_vertices, (n - 1) / 2)
    spot[:n] = place
    for _ in range(_ROUNDS if n_vertices > n else 0):
        total = numpy.bincount(tails, spot[heads], n_vertices) + numpy.bincount(heads, spot[tails], n_vertices)
        degree = numpy.bincount(tails, minlength=n_vertices) + numpy.bincount(heads, minlength=n_vertices)
        spot[n:] = (total / numpy.maximum(degree, 1))[n:]
    found: Array = numpy.floor(spot).astype(numpy.int64)
    return found


def _orders(n_vertices: int, n: int, tails: Array, heads: Array) -> Iterator[Array]:
    import numpy

    ranks = numpy.arange(n)
    divisors = [value for value in range(1, n + 1) if n % value == 0]
    for stride in divisors:
        for radix in divisors:
            if radix > 1 and n % (stride * radix) == 0:
                yield numpy.argsort(ranks // stride % radix, kind="stable")
    for centre in range(0, n, -(-n // _CENTRES)):
        yield numpy.argsort(_hops(n_vertices, tails, heads, centre)[:n], kind="stable")


def _hops(n_vertices: int, tails: Array, heads: Array, centre: int) -> Array:
    """Links on the shortest way from a vertex; many where there is none."""
    import numpy

    far = numpy.full(n_vertices, n_vertices)
    far[centre] = 0
    while True:
        before = far.copy()
        numpy.minimum.at(far, heads, far[tails] + 1)
        if numpy.array_equal(far, before):
            return far
