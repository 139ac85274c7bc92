"""Column generation: the linear program over few ways, and the ways that its prices ask for, until none is cheaper.

A rough descent brings the first ways, most often all that the optimum needs. Prices of the program bound every
schedule, also those on ways that it has not seen, so the search may end at any gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collc import progress
from collc.errors import BudgetError
from collc.synth._network import Network
from collc.synth.mcf import children, descent, extract, paths, pricing
from collc.synth.mcf.paths import Rates, Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# The gap at which the first descent ends, and the parts that its flows are rounded to.
_ROUGH = 0.03
_PARTS = 8
# A way must be cheaper than its pair pays by this share to be worth a column.
_CHEAPER = 1e-9


def solve(network: Network, within: float) -> tuple[Table, Rates, Array, bool]:
    """Ways, the best rates on them, the prices that bound all schedules best, and whether a deadline ended the search.

    Args:
        within: gap at which the search ends; it ends too where no way is cheaper than what its pair pays.

    Raises:
        InfeasibleError: some rank cannot be reached.
        BudgetError: the solver came to no answer, or not in time.
    """
    rough, _ = descent.solve(network, max(within, _ROUGH))
    flows = children.round_off(network, rough, _PARTS)
    table = Table.of_ways(extract.ways_of(network, rough.sources, flows, _PARTS))
    found, prices, most = None, rough.prices, 0.0
    while True:
        try:
            rates = paths.solve(network, table)
        except BudgetError:
            if found is None:
                raise
            return *found, prices, True
        found = table, rates
        fares, links = pricing.trees(network, rates.prices, rough.sources)
        fares = fares[: network.n_ranks].T
        bound = pricing.total(fares, network.demand[rough.sources]) / float(rates.prices @ network.bandwidths)
        if bound > most:
            most, prices = bound, rates.prices
        owed = rates.fares[rough.sources]
        wanted = (network.demand[rough.sources] > 0) & (fares < owed * (1 - _CHEAPER))
        if most:
            progress.report(f"mcf: within {rates.time / most - 1:.2%} of the bound")
        if rates.time <= most * (1 + within) or not wanted.any():
            return *found, prices, False
        larger = Table.of([table.rows, cheapest_ways(network, rough.sources, links, wanted)])
        if len(larger.rows) == len(table.rows):
            return *found, prices, False
        table = larger


def cheapest_ways(network: Network, sources: Array, links: Array, wanted: Array) -> Array:
    """Rows of the cheapest ways of pairs.

    Args:
        links: [vertices x sources] the link by which each tree arrives.
        wanted: [sources x ranks] whose ways are.
    """
    import numpy

    row, sinks = numpy.nonzero(wanted)
    columns = [sinks, sources[row]]
    at = sinks
    while (moving := at != sources[row]).any():
        columns.append(numpy.where(moving, links[at, row], -1))
        at = numpy.where(moving, network.tails[columns[-1]], at)
    table = numpy.stack(columns, axis=1)
    # Ways were walked from their ends.
    lengths = (table[:, 2:] >= 0).sum(axis=1)
    places = numpy.arange(table.shape[1] - 2)
    inside = places < lengths[:, None]
    turned = numpy.where(inside, lengths[:, None] - 1 - places, 0)
    links_in_order = numpy.where(inside, numpy.take_along_axis(table[:, 2:], turned, axis=1), -1)
    return numpy.concatenate([table[:, 1::-1], links_in_order], axis=1)
