"""Flows for large fabrics: no linear program, only cheapest trees and a line search.

Links are priced by how full they are, exponentially; a few sources at a time mix what they send now with
what the cheapest trees would carry, as far as that lowers the total. Sharper prices in each round bring
the flow near the optimum, and the average of all prices seen proves how near.

Source: block-coordinate Frank-Wolfe on the exponential penalty of Shahrokhi & Matula, J. ACM 37(2), 1990.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from collc import deadline, progress
from collc.errors import BudgetError
from collc.synth._master import Fractional
from collc.synth._network import Network
from collc.synth.mcf import pricing

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
# Of the sources, the part on which what follows is tried; and how much longer it may take than that foretells.
_SAMPLE = 16
_MARGIN = 1.5


def solve(
    network: Network, within: float, finish: Callable[[Fractional], object] | None = None
) -> tuple[Fractional, bool]:
    """A flow near the optimum and prices that show it, and whether a deadline ended the search.

    Args:
        within: gap at which the search ends.
        finish: what follows. It is tried on a few sources, and the search leaves it the time that all need.

    Raises:
        InfeasibleError: some rank cannot be reached.
    """
    search = Descent(network)
    rest, before = None, monotonic()
    try:
        for gap in search.sweeps():
            progress.report("mcf: looking for flows" if gap == math.inf else f"mcf: within {gap:.2%} of the bound")
            if gap <= within:
                break
            if (left := deadline.time_left()) is None:
                continue
            swept, before = monotonic() - before, monotonic()
            if rest is None and finish is not None:
                rest = _MARGIN * _seconds(search.found, finish)
            if left < swept + (rest or 0):
                search.reprice()
                return search.found, True
    except BudgetError:
        return search.found, True
    return search.found, False


def _seconds(found: Fractional, finish: Callable[[Fractional], object]) -> float:
    """How long it takes to finish, by what a few sources take."""
    few = slice(0, max(1, len(found.sources) // _SAMPLE))
    start = monotonic()
    finish(Fractional(found.sources[few], found.flows[few], found.prices))
    return (monotonic() - start) * len(found.sources) / len(found.sources[few])


class Descent:
    """A search that can be stopped after any step.

    Attributes:
        found: the flow and the prices so far.
    """

    def __init__(self, network: Network) -> None:
        import numpy

        self._network = network
        self._widths = network.bandwidths.astype(float)
        self._order = numpy.random.default_rng(0)
        sources = numpy.flatnonzero(network.demand.sum(axis=1))
        flat = numpy.ones(network.n_links)
        self.found = Fractional(sources, pricing.flows(network, (flat / self._widths, sources)), flat)
        self._pricing = pricing.Pricing(network)
        self._best = self._bound(flat)
        self._total = numpy.zeros_like(flat)
        self._sharpness = _SHARPNESS

    def sweeps(self) -> Iterator[float]:
        """The gap after each sweep, as of the last whole round."""
        gap = math.inf
        for _ in range(_ROUNDS):
            for _ in range(min(_SWEEPS[1], max(_SWEEPS[0], _MOVES // len(self.found.sources)))):
                self._sweep(self._sharpness)
                yield gap
            gap = self.reprice()
            yield gap
            self._total *= _MEMORY
            self._sharpness *= 2

    def reprice(self) -> float:
        """Keep the prices that prove most; the gap that they leave."""
        loads = self.found.flows.sum(axis=0) / self._widths
        for prices in (self._total, _prices(loads, self._widths, self._sharpness)):
            if (bound := self._bound(prices)) > self._best:
                self._best = bound
                self.found = Fractional(self.found.sources, self.found.flows, prices.copy())
        return float(loads.max() / self._best - 1)

    def _sweep(self, sharpness: float) -> None:
        """Every source moves once."""
        flows, sources = self.found.flows, self.found.sources
        loads = flows.sum(axis=0)
        rows = self._order.permutation(len(sources))
        block = max(1, min(_BLOCK, len(rows) // 8))
        for start in range(0, len(rows), block):
            some = rows[start : start + block]
            prices = _prices(loads / self._widths, self._widths, sharpness)
            wanted = self._pricing.flows(prices, sources[some])
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
        fares = pricing.fares(self._network, (prices, self.found.sources))
        demand = self._network.demand[self.found.sources]
        return pricing.total(fares, demand) / float(prices @ self._widths)


def _prices(loads: Array, widths: Array, sharpness: float, top: float | None = None) -> Array:
    """By link, the exponential of its load; none so small that it would vanish in a sum."""
    import numpy

    exponents = sharpness * loads / (top or loads.max())
    prices: Array = numpy.exp((exponents - exponents.max()).clip(-20)) / widths
    return prices
