"""Flows for large fabrics: no linear program, only cheapest trees and a line search.

Links are priced by how full they are, exponentially; a few sources at a time mix what they send now with
what the cheapest trees would carry, as far as that lowers the total. Sharper prices in each round bring
the flow near the optimum, and the average of all prices seen proves how near.

Source: block-coordinate Frank-Wolfe on the exponential penalty of Shahrokhi & Matula, J. ACM 37(2), 1990.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from collc.errors import BudgetError, InfeasibleError
from collc.synth import _deadline
from collc.synth._master import Fractional
from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# How sharply a link's price rises with its load in the first round; it doubles from round to round.
_SHARPNESS = 10.0
# Sweeps of a round: as many as move this many sources, within limits.
_MOVES = 10_000
_SWEEPS = (10, 25)
_ROUNDS = 7
# Sources that move at the same time: few, or they crowd the same links.
_BLOCK = 32
_HALVINGS = 12
# Of the average of prices, what is kept from one round to the next.
_MEMORY = 0.3


def solve(network: Network, within: float) -> Fractional:
    """A flow near the optimum and prices that show it; where a deadline ends the search, the best so far.

    Args:
        within: gap at which the search ends.

    Raises:
        InfeasibleError: some rank cannot be reached.
    """
    search = Descent(network)
    start = monotonic()
    try:
        for gap in search.sweeps():
            left = _deadline.time_left()
            # Rounding, extracting and checking the ways takes up to as long again.
            if gap <= within or (left is not None and left < monotonic() - start):
                break
    except BudgetError:
        pass
    return search.found


class Descent:
    """A search that can be stopped after any step.

    Attributes:
        found: the flow and the prices so far.
    """

    def __init__(self, network: Network) -> None:
        import numpy

        self._network = network
        self._tails = numpy.append(network.tails, 0)[network.entering]
        self._widths = network.bandwidths.astype(float)
        self._order = numpy.random.default_rng(0)
        sources = numpy.flatnonzero(network.demand.sum(axis=1))
        flat = numpy.ones(network.n_links)
        self.found = Fractional(sources, self._cheapest(flat / self._widths, sources), flat)
        self._best = self._bound(flat)
        self._total = numpy.zeros_like(flat)

    def sweeps(self) -> Iterator[float]:
        """The gap after each sweep, as of the last whole round."""
        sharpness, gap = _SHARPNESS, math.inf
        for _ in range(_ROUNDS):
            for _ in range(min(_SWEEPS[1], max(_SWEEPS[0], _MOVES // len(self.found.sources)))):
                self._sweep(sharpness)
                yield gap
            loads = self.found.flows.sum(axis=0) / self._widths
            for prices in (self._total, _prices(loads, self._widths, sharpness)):
                if (bound := self._bound(prices)) > self._best:
                    self._best = bound
                    self.found = Fractional(self.found.sources, self.found.flows, prices.copy())
            self._total *= _MEMORY
            gap = float(loads.max() / self._best - 1)
            yield gap
            sharpness *= 2

    def _sweep(self, sharpness: float) -> None:
        """Every source moves once."""
        flows, sources = self.found.flows, self.found.sources
        loads = flows.sum(axis=0)
        rows = self._order.permutation(len(sources))
        block = max(1, min(_BLOCK, len(rows) // 8))
        for start in range(0, len(rows), block):
            some = rows[start : start + block]
            prices = _prices(loads / self._widths, self._widths, sharpness)
            wanted = self._cheapest(prices, sources[some])
            change = wanted.sum(axis=0) - flows[some].sum(axis=0)
            share = self._step(loads, change, sharpness)
            # One assignment, so that a deadline never leaves half a step.
            flows[some] = (1 - share) * flows[some] + share * wanted
            loads = loads + share * change
            self._total += prices / (prices @ self._widths)

    def _step(self, loads: Array, change: Array, sharpness: float) -> float:
        """The share of a change at which the sum of exponentials is least."""
        low, high = 0.0, 1.0
        top = (loads / self._widths).max()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            full = (loads + middle * change) / self._widths
            if _prices(full, self._widths, sharpness, top) @ change > 0:
                high = middle
            else:
                low = middle
        return low

    def _bound(self, prices: Array) -> float:
        """What prices prove, in floating point."""
        fares, _ = self._trees(prices, self.found.sources)
        demand = self._network.demand[self.found.sources]
        return float((fares[: self._network.n_ranks].T * demand).sum() / (prices @ self._widths))

    def _trees(self, prices: Array, sources: Array) -> tuple[Array, Array]:
        """[vertices x sources] the least fare from each source, and the link by which it arrives."""
        import numpy

        shape = self._network.n_vertices, len(sources)
        entering = self._network.entering
        steps = numpy.append(prices, numpy.inf)[entering]
        fares = numpy.full(shape, numpy.inf)
        fares[sources, numpy.arange(len(sources))] = 0
        links = numpy.full(shape, -1)
        while True:
            best = fares.copy()
            for port in range(entering.shape[1]):
                fare = fares[self._tails[:, port]] + steps[:, port, None]
                cheaper = fare < best
                numpy.copyto(best, fare, where=cheaper)
                numpy.copyto(links, entering[:, port, None], where=cheaper)
            if numpy.array_equal(best, fares):
                return fares, links
            fares = best

    def _cheapest(self, prices: Array, sources: Array) -> Array:
        """[sources x links] what flows if everything takes the cheapest way."""
        import numpy

        _, links = self._trees(prices, sources)
        n_sources = links.shape[1]
        column = numpy.arange(n_sources)
        carried = numpy.zeros(links.shape)
        carried[: self._network.n_ranks] = self._network.demand[sources].T
        if ((links < 0) & (carried > 0)).any():
            rank, row = numpy.argwhere((links < 0) & (carried > 0))[0]
            raise InfeasibleError(f"rank {rank} cannot be reached from rank {sources[row]}")
        above = numpy.where(links < 0, -1, numpy.append(self._network.tails, 0)[links])
        depth = _depths(above)
        flat = above * n_sources + column
        for level in range(int(depth.max()), 0, -1):
            here = depth == level
            carried += numpy.bincount(flat[here], carried[here], carried.size).reshape(carried.shape)
        flows = numpy.zeros((n_sources, self._network.n_links))
        used = links >= 0
        flows[numpy.broadcast_to(column, links.shape)[used], links[used]] = carried[used]
        return flows


def _depths(above: Array) -> Array:
    """[vertices x sources] links from the source, by what lies above each vertex in its tree."""
    import numpy

    column = numpy.arange(above.shape[1])
    depth = numpy.zeros(above.shape, dtype=numpy.int64)
    at = above
    for _ in count():
        alive = at >= 0
        if not alive.any():
            return depth
        depth += alive
        at = numpy.where(alive, above[at, column], -1)
    return depth


def _prices(loads: Array, widths: Array, sharpness: float, top: float | None = None) -> Array:
    """By link, the exponential of its load; none so small that it would vanish in a sum."""
    import numpy

    exponents = sharpness * loads / (top or loads.max())
    prices: Array = numpy.exp((exponents - exponents.max()).clip(-20)) / widths
    return prices
