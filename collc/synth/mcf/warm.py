"""A fabric that has changed a little: start from the schedule it had, and move only the pairs that gain by it.

Ways that still exist keep their shares. A linear program gives the pairs that lost a way new rates, over the ways
they have and those that prices ask for, around the fixed loads of all others. Its prices tell which others pay
more than they would on a cheaper way; they join, until the bound of all schedules is near.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collc import progress
from collc.errors import CollcError, InputError, Place
from collc.ir.flow import FlowSchedule, Prices
from collc.ir.text import loads
from collc.synth._network import Network
from collc.synth.mcf import columns, paths, pricing
from collc.synth.mcf.paths import Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Pairs that join at a time, by rank; and the part of all beyond which solving anew is quicker.
_JOINING = 8
_MOST_PAIRS = Fraction(1, 4)
# Shares of the prices before and the new ones that are tried as a bound.
_BLENDS = (0.0, 0.3, 0.6, 0.85, 1.0)
# Links without a price cost this share of the dearest, so that ways stay short.
_LEAST = 1e-7


@dataclass(frozen=True, eq=False)
class Before:
    """What a schedule tells a network that is nearly its own.

    Attributes:
        table: ways that still exist.
        rates: by way, in slots of the demand now; pairs that lost ways still lack what those carried.
        prices: by link.
    """

    table: Table
    rates: Array
    prices: Array


def read(path: str, network: Network) -> Before:
    """A schedule of the fabric before, in collc's JSON.

    Raises:
        InputError: it cannot be read, or is none of point-to-point transfers with prices.
    """
    try:
        flow = loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", Place(path)) from None
    except CollcError as error:
        raise InputError(f"{error}; expected a schedule as `-b json` writes it", Place(path)) from None
    if not isinstance(flow, FlowSchedule) or flow.bound is None or not isinstance(flow.bound.witness, Prices):
        raise InputError("expected an all-to-all of -s mcf, as `-b json` writes it", Place(path))
    return of_schedule(flow, network)


def of_schedule(flow: FlowSchedule, network: Network) -> Before:
    """Likewise, of a schedule at hand."""
    import numpy

    number = {vertex: at for at, vertex in enumerate(network.vertices)}
    link = {ends: at for at, ends in enumerate(zip(network.tails.tolist(), network.heads.tolist(), strict=True))}
    shares: dict[tuple[int, ...], Fraction] = {}
    whole: dict[tuple[int, int], Fraction] = {}
    for tree in flow.trees:
        stops = [vertex for route in tree.broadcast[:1] for vertex in route.path[:1]]
        stops += [vertex for route in tree.broadcast for vertex in route.path[1:]]
        ends = [number.get(vertex, -1) for vertex in stops]
        if len(ends) < 2 or -1 in (ends[0], ends[-1]):
            continue
        pair = ends[0], ends[-1]
        whole[pair] = whole.get(pair, Fraction(0)) + tree.weight
        way = [link.get((a, b), -1) for a, b in pairwise(ends)]
        if -1 not in way:
            row = (*pair, *way)
            shares[row] = shares.get(row, Fraction(0)) + tree.weight
    prices = numpy.zeros(network.n_links)
    for src, dst, price in flow.bound.witness.price if flow.bound and isinstance(flow.bound.witness, Prices) else ():
        at = link.get((number.get(src, -1), number.get(dst, -1)))
        if at is not None:
            prices[at] = float(price)
    rows = sorted(shares)  # as a table has them
    rates = [float(shares[row] / whole[row[0], row[1]]) * int(network.demand[row[0], row[1]]) for row in rows]
    return Before(Table.listed(rows), numpy.array(rates), prices)


def solve(network: Network, before: Before, within: float) -> tuple[Table, Array, Array] | None:
    """Ways, their rates, and prices that prove them near the optimum; None where too much has changed for that.

    Raises:
        InfeasibleError: a rank cannot be reached.
        BudgetError: the solver came to no answer.
    """
    import numpy

    n = network.n_ranks
    table, rates, prices = before.table, before.rates, before.prices + _LEAST * before.prices.max(initial=1.0)
    sources = numpy.arange(n)
    had = numpy.bincount(_pairs(table, n), rates, n * n)
    moving = network.demand.ravel() > had + 1e-9 * network.demand.ravel()
    bound, best = 0.0, prices
    wanted = moving.reshape(n, n)
    while moving.sum() <= _MOST_PAIRS * n * n:
        table, rates = _with_cheapest(network, table, rates, prices, wanted)
        moves = moving[_pairs(table, n)]
        still = Table(table.rows[~moves])
        fixed = numpy.bincount(still.links, numpy.repeat(rates[~moves], still.lengths), network.n_links)
        found = paths.solve(network, Table(table.rows[moves]), fixed=fixed)
        rates[moves] = found.rates
        new = found.prices + _LEAST * found.prices.max(initial=0.0)
        for blend in _BLENDS:
            mixed = blend * _even(network, before.prices) + (1 - blend) * _even(network, new)
            fares = pricing.fares(network, (mixed, sources))
            if (proven := pricing.total(fares, network.demand) / float(mixed @ network.bandwidths)) > bound:
                bound, best = proven, mixed
        progress.report(f"mcf: within {found.time / bound - 1:.2%} of the bound, {moving.sum()} pairs moved")
        if found.time <= bound * (1 + within):
            return table, rates, best
        prices = new
        fares = pricing.fares(network, (prices, sources))
        paid = numpy.append(prices, 0.0)[table.rows[:, 2:]].sum(axis=1)
        excess = (paid - fares[table.rows[:, 0], table.rows[:, 1]]) * rates
        gains = numpy.bincount(_pairs(table, n), numpy.where(moves, 0.0, excess), n * n)
        joining = numpy.argsort(-gains, kind="stable")[: _JOINING * n]
        joining = joining[gains[joining] > 0]
        wanted = moving.reshape(n, n) & (fares < found.fares * (1 - 1e-6))
        wanted.ravel()[joining] = True
        if not wanted.any():
            return None
        moving[joining] = True
    return None


def _pairs(table: Table, n_ranks: int) -> Array:
    pairs: Array = table.rows[:, 0] * n_ranks + table.rows[:, 1]
    return pairs


def _even(network: Network, prices: Array) -> Array:
    """Prices at which all links together earn one in unit time."""
    even: Array = prices / max(float(prices @ network.bandwidths), 1e-300)
    return even


def _with_cheapest(network: Network, table: Table, rates: Array, prices: Array, wanted: Array) -> tuple[Table, Array]:
    """The table with the cheapest ways of the wanted pairs too, at no rate yet; every way once, sorted."""
    import numpy

    if not wanted.any():
        return table, rates
    sources = numpy.arange(network.n_ranks)
    _, links = pricing.trees(network, prices, sources)
    new = columns.cheapest_ways(network, sources, links, wanted)
    width = max(new.shape[1], table.rows.shape[1])
    rows = [numpy.pad(one, ((0, 0), (0, width - one.shape[1])), constant_values=-1) for one in (table.rows, new)]
    every, which = numpy.unique(numpy.concatenate(rows), axis=0, return_inverse=True)
    together = numpy.append(rates, numpy.zeros(len(new)))
    return Table(every), numpy.bincount(which.reshape(-1), together, len(every))
