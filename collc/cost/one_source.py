"""The optimum of all-to-all where every rank looks alike, exactly, from one source's trees.

If renamings that keep the fabric take rank 0 to every rank, some optimal schedule is one flow from rank 0
and its images. Links that renamings take to each other are a class, and share their load evenly. So

    least T   so that   load of class c <= width of c x T,   over mixtures of trees from rank 0.

Its dual has one price a class: every rank pays the cheapest way from rank 0, and T is the most that prices
prove. Cheapest trees are added as the prices ask for them (Dantzig & Wolfe, Operations Research 8(1), 1960)
until exact prices ask for nothing new: tens of trees where the program over links has thousands of rows.

Source: one source on Cayley graphs is ours; columns instead of link flows make it take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from collc.errors import InfeasibleError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

Tree = TypeVar("Tree")

# Prices are rounded to whole numbers up to this where that suffices to find a better tree.
_FINE = 1 << 20
# Distances are added up in 64 bits where they fit.
_LARGE = 1 << 62


class Priced(NamedTuple, Generic[Tree]):
    """A cheapest tree under some prices.

    Attributes:
        loads: by class, slots that its links carry.
    """

    loads: tuple[int, ...]
    tree: Tree


@dataclass(frozen=True)
class Mixture(Generic[Tree]):
    """An optimal mixture of trees, and the prices that prove it.

    Attributes:
        time: the optimum [slots per unit of width]; both sides give it.
        shares: (weight, tree); the weights are positive and add up to one.
        prices: by class; width x price adds up to one, and no tree costs less than `time`.
    """

    time: Fraction
    shares: tuple[tuple[Fraction, Tree], ...]
    prices: tuple[Fraction, ...]


def best_mixture(
    widths: Sequence[Fraction | int],
    cheapest: Callable[[Sequence[int]], Priced[Tree]],
    at_most: Fraction | None = None,
) -> Mixture[Tree] | None:
    """The mixture of trees whose fullest class takes the least time.

    Args:
        widths: by class; positive.
        cheapest: a tree of least cost under whole prices by class, zero allowed; no tree is without load.
        at_most: give up once prices prove that it takes longer.

    Returns:
        The optimum; None where it is proven to take longer than `at_most`.
    """
    unit = lcm(*(Fraction(width).denominator for width in widths))
    whole = [int(width * unit) for width in widths]
    first = cheapest([1] * len(whole))
    if at_most is not None and Fraction(sum(first.loads) * unit, sum(whole)) > at_most:
        return None
    simplex = _Simplex(whole, first.loads)
    trees = {first.loads: first.tree}
    while True:
        prices = simplex.settle(trees)
        top = max(prices)
        near = [price * _FINE // top for price in prices] if top > _FINE else prices
        found = cheapest(near)
        if at_most is not None and _times(found.loads, near) * unit > at_most * _times(whole, near):
            return None
        if found.loads in trees and near != prices:
            found = cheapest(prices)
        if found.loads in trees:
            break
        trees[found.loads] = found.tree
    earned = _times(whole, prices)
    return Mixture(
        Fraction(_times(found.loads, prices) * unit, earned),
        tuple((weight, trees[loads]) for loads, weight in simplex.weights()),
        tuple(Fraction(price * unit, earned) for price in prices),
    )


def _times(loads: Sequence[int], prices: Sequence[int]) -> int:
    return sum(load * price for load, price in zip(loads, prices, strict=True))


class _Simplex:
    """Least T over mixtures of some trees, in whole numbers alone.

    With a slack for each class, a corner is a square system: load + slack - width x T = 0 by class, and
    weights that add up to one. Its inverse is kept as whole numbers over their common determinant
    (Edmonds, J. Research NBS 71B, 1967). Ties are broken lexicographically, so that it never cycles.
    """

    def __init__(self, widths: Sequence[int], loads: tuple[int, ...]) -> None:
        n = len(widths)
        # The last of the fullest classes has no slack; so all rows are lexicographically positive.
        full = max(range(n), key=lambda place: (Fraction(loads[place], widths[place]), place))
        self._n, self._scale = n, widths[full]
        # What each row determines: T, the weight of a tree by its loads, or a slack by its class.
        self._basis: list[tuple[int, ...] | int | None] = [None, loads]
        self._rows = [[0] * n + [loads[full]], [0] * n + [widths[full]]]
        self._rows[0][full] = -1
        for place in range(n):
            if place != full:
                row = [0] * n + [widths[place] * loads[full] - loads[place] * widths[full]]
                row[place], row[full] = widths[full], -widths[place]
                self._basis.append(place)
                self._rows.append(row)

    def settle(self, trees: Iterable[tuple[int, ...]]) -> list[int]:
        """Go to the best corner of these trees; its prices, up to a factor."""
        while True:
            prices = [-price for price in self._rows[0][:-1]]
            least = min(prices)
            if least < 0:
                self._enter(prices.index(least))
                continue
            best = min(trees, key=lambda loads: _times(loads, prices))
            if _times(best, prices) >= self._rows[0][-1]:
                common = gcd(*prices)
                return [price // common for price in prices]
            self._enter(best)

    def weights(self) -> list[tuple[tuple[int, ...], Fraction]]:
        """Trees by their loads, and their weights where not zero."""
        corner = zip(self._basis, self._rows, strict=True)
        return [(what, Fraction(row[-1], self._scale)) for what, row in corner if isinstance(what, tuple) and row[-1]]

    def _enter(self, what: tuple[int, ...] | int) -> None:
        """Bring in a tree or a slack, for what reaches zero first."""
        if isinstance(what, tuple):
            moved = [_times(what, row[:-1]) + row[-1] for row in self._rows]
        else:
            moved = [row[what] for row in self._rows]
        leaves = self._first_to_reach_zero(moved)
        pivot, used = moved[leaves], self._rows[leaves]
        for place, (by, row) in enumerate(zip(moved, self._rows, strict=True)):
            if place != leaves:
                self._rows[place] = [(a * pivot - by * b) // self._scale for a, b in zip(row, used, strict=True)]
        self._basis[leaves], self._scale = what, pivot

    def _first_to_reach_zero(self, moved: Sequence[int]) -> int:
        """The row of the least ratio; of equal ones the lexicographically least."""
        places = [place for place, by in enumerate(moved) if by > 0]
        for column in (self._n, *range(self._n)):
            if len(places) > 1:
                ratios = [Fraction(self._rows[place][column], moved[place]) for place in places]
                least = min(ratios)
                places = [place for place, ratio in zip(places, ratios, strict=True) if ratio == least]
        return places[0]


@dataclass(frozen=True, eq=False)
class OneSource:
    """What one rank has to send, and over what; `cheapest` serves `best_mixture`.

    Attributes:
        tails, heads: the ends of each link.
        classes: by link, the number of its class.
        demand: by vertex, slots for it; nothing for the source.
        source: the vertex that sends.
    """

    tails: Array
    heads: Array
    classes: Array
    demand: Array
    source: int = 0

    @cached_property
    def _entering(self) -> tuple[Array, Array, Array]:
        """[ports x vertices] links into each vertex, their tails and classes; -1 where there are fewer."""
        import numpy

        n = len(self.demand)
        order = numpy.argsort(self.heads, kind="stable")
        counts = numpy.bincount(self.heads, minlength=n)
        ports = numpy.arange(len(order)) - numpy.repeat(counts.cumsum() - counts, counts)
        links = numpy.full((counts.max(), n), -1)
        links[ports, self.heads[order]] = order
        # A missing link counts as one from a vertex that is never reached, at no price.
        return links, numpy.append(self.tails, n)[links], numpy.append(self.classes, 0)[links]

    def cheapest(self, prices: Sequence[int]) -> Priced[Array]:
        """A cheapest tree: by vertex the link by which it is reached, -1 where it is not (the source).

        Of ways that cost the same it takes one of few links.

        Raises:
            InfeasibleError: a vertex that is to get something cannot be reached.
        """
        import numpy

        n = len(self.demand)
        links, tails, classes = self._entering
        never = max(1, *prices) * n
        kind = numpy.int64 if never * 2 < _LARGE else object
        steps = numpy.array(prices, dtype=kind)[classes]
        far = numpy.full(n + 1, never, dtype=kind)
        far[self.source] = 0
        tree = numpy.full(n, -1)
        every = numpy.arange(n)
        while True:
            ways = far[tails] + steps
            port = ways.argmin(axis=0)
            nearest = ways[port, every]
            nearer = nearest < far[:n]
            if not nearer.any():
                break
            far[:n][nearer] = nearest[nearer]
            tree[nearer] = links[port, every][nearer]
        lost = numpy.flatnonzero((tree < 0) & (self.demand > 0))
        if lost.size:
            raise InfeasibleError(f"rank {lost[0]} cannot be reached from rank {self.source}")
        loads = numpy.zeros(len(prices), dtype=numpy.int64)
        numpy.add.at(loads, self.classes, self.carried(tree))
        return Priced(tuple(loads.tolist()), tree)

    def carried(self, tree: Array) -> Array:
        """By link, slots that it carries in a tree."""
        import numpy

        n = len(self.demand)
        above = numpy.where(tree < 0, self.source, self.tails[tree])
        depth = numpy.zeros(n, dtype=numpy.int64)
        at = numpy.arange(n)
        while (below := at != self.source).any():
            depth += below
            at = above[at]
        slots = self.demand.astype(numpy.int64)
        for level in range(int(depth.max(initial=0)), 1, -1):
            here = numpy.flatnonzero(depth == level)
            numpy.add.at(slots, above[here], slots[here])
        loads = numpy.zeros(len(self.tails), dtype=numpy.int64)
        there = numpy.flatnonzero(tree >= 0)
        loads[tree[there]] = slots[there]
        return loads
