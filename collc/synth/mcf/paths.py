"""The linear program over given ways, and the sets of ways to give it.

    least T   so that   sum of rate[w] over a pair's ways w = demand of the pair        for every pair
                        sum of rate[w] over the ways through e <= bandwidth[e] T        for every link e

Source: arXiv:2309.13541, path-based multi-commodity flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from collc import deadline, workers
from collc.errors import InfeasibleError
from collc.solve import LinearProgram, Method, disjoint_flow, linear_program
from collc.synth import _exact
from collc.synth._network import Network
from collc.synth.mcf import children
from collc.synth.mcf.extract import Ways

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ways of a pair beyond which a set is no longer listed.
_MOST_WAYS = 1000
# Ways up to which simplex, which uses few of them, is quick enough.
_SIMPLEX = 7_000
# Relative gap of the interior points: what rounding adds must leave the answer optimal to one part in a billion.
_ACCURACY = 1e-11

Kind = Literal["any", "shortest", "short+1", "short+2", "disjoint"]


@dataclass(frozen=True, eq=False)
class Table:
    """Ways to choose from, each once, sorted by pair.

    Attributes:
        rows: [ways x (2 + longest)] source, sink and the links from source to sink; -1 behind the last.
    """

    rows: Array

    @staticmethod
    def of(parts: Sequence[Array]) -> Table:
        """The rows of several tables together."""
        import numpy

        width = max(part.shape[1] for part in parts)
        wide = [numpy.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=-1) for part in parts]
        return Table(numpy.unique(numpy.concatenate(wide), axis=0))

    @staticmethod
    def listed(ways: Sequence[Sequence[int]]) -> Table:
        """Ways as source, sink and links."""
        import numpy

        width = max(map(len, ways), default=2)
        rows = [[*way, *[-1] * (width - len(way))] for way in ways]
        return Table.of([numpy.array(rows, dtype=numpy.int64).reshape(-1, width)])

    @staticmethod
    def of_ways(ways: Ways) -> Table:
        """The ways of a schedule."""
        import numpy

        lengths = numpy.diff(ways.starts)
        rows = numpy.full((len(lengths), 2 + int(lengths.max(initial=0))), -1)
        rows[:, 0], rows[:, 1] = ways.sources, ways.sinks
        rows[:, 2:][numpy.arange(rows.shape[1] - 2) < lengths[:, None]] = ways.links
        return Table.of([rows])

    @cached_property
    def lengths(self) -> Array:
        """By way, its links."""
        lengths: Array = (self.rows[:, 2:] >= 0).sum(axis=1)
        return lengths

    @cached_property
    def links(self) -> Array:
        """The links of all ways, one after another."""
        links: Array = self.rows[:, 2:][self.rows[:, 2:] >= 0]
        return links

    def pairs(self, n_ranks: int) -> tuple[Array, Array]:
        """The pairs that have ways, as source x ranks + sink; and by way, which of them is its own."""
        import numpy

        pairs, which = numpy.unique(self.rows[:, 0] * n_ranks + self.rows[:, 1], return_inverse=True)
        return pairs, which.reshape(-1)

    def with_units(self, units: Array) -> Ways:
        """The ways that carry something."""
        import numpy

        used = Table(self.rows[units > 0])
        starts = numpy.append(0, numpy.cumsum(used.lengths))
        return Ways(used.rows[:, 0], used.rows[:, 1], units[units > 0], starts, used.links)


@dataclass(frozen=True, eq=False)
class Rates:
    """What the linear program makes of a table, in floating point.

    Attributes:
        time: [slots per unit of bandwidth].
        rates: by way [slots].
        prices: by link.
        fares: [ranks x ranks] what a slot of the pair is charged.
    """

    time: float
    rates: Array
    prices: Array
    fares: Array


def solve(network: Network, table: Table, *, fixed: Array | None = None) -> Rates:
    """The best rates on these ways alone, for the pairs that have some.

    Args:
        fixed: by link, what other pairs put on it [slots].

    Raises:
        BudgetError: the solver came to no answer, or not in half of the time left.
    """
    import numpy

    pairs, which = table.pairs(network.n_ranks)
    n_ways, n_pairs, n_links = len(table.rows), len(pairs), network.n_links
    demand = network.demand.ravel()[pairs].astype(float)
    way = numpy.arange(n_ways)
    program = LinearProgram(
        costs=numpy.append(numpy.zeros(n_ways), 1.0),
        lows=numpy.zeros(n_ways + 1),
        highs=numpy.full(n_ways + 1, numpy.inf),
        row_lows=numpy.append(demand, numpy.full(n_links, -numpy.inf)),
        row_highs=numpy.append(demand, numpy.zeros(n_links) if fixed is None else -fixed),
        rows=numpy.concatenate([which, n_pairs + table.links, n_pairs + numpy.arange(n_links)]),
        columns=numpy.concatenate([way, numpy.repeat(way, table.lengths), numpy.full(n_links, n_ways)]),
        values=numpy.concatenate([numpy.ones(n_ways + len(table.links)), -network.bandwidths.astype(float)]),
    )
    method: Method = "simplex" if n_ways <= _SIMPLEX else "ipm"
    answer = linear_program(program, method, accuracy=_ACCURACY, seconds=deadline.half_left())
    fares = numpy.zeros(network.demand.size)
    fares[pairs] = answer.prices[:n_pairs]
    return Rates(
        float(answer.values[-1]),
        answer.values[:-1].clip(0),
        (-answer.prices[n_pairs:]).clip(0),
        fares.reshape(network.demand.shape),
    )


def whole(network: Network, table: Table, rates: Array) -> tuple[Ways, int]:
    """Rates in whole units that add up to the demand exactly, and the units per slot."""
    import numpy

    pairs, which = table.pairs(network.n_ranks)
    demand = network.demand.ravel()[pairs]
    if nice := _exact.common_denominator(rates):
        units = numpy.rint(rates * nice).astype(numpy.int64)
        if (_sums(which, units) == demand * nice).all():
            return table.with_units(units), nice
    scale = children.fine_scale(network)
    units = numpy.floor(rates * (demand / numpy.bincount(which, rates))[which] * scale).astype(numpy.int64)
    # What rounding down left over, or up to a unit too much, goes to the first of a pair's widest ways.
    order = numpy.lexsort((numpy.arange(len(units)), -units, which))
    widest = order[numpy.searchsorted(which[order], numpy.arange(len(pairs)))]
    units[widest] += demand * scale - _sums(which, units)
    return table.with_units(units), scale


def _sums(which: Array, units: Array) -> Array:
    """By pair, the sum of whole units; in floating point it would be rounded."""
    import numpy

    totals: Array = numpy.zeros(int(which.max(initial=-1)) + 1, dtype=numpy.int64)
    numpy.add.at(totals, which, units)
    return totals


# --- sets ----------------------------------------------------------------------------------------


def given(network: Network, kind: Kind) -> Table:
    """The ways of a kind for every pair.

    Raises:
        InfeasibleError: a rank cannot be reached.
        UnsupportedError: there are too many.
    """
    if kind == "disjoint":
        sources = network.demand.sum(axis=1).nonzero()[0].tolist()
        return Table.of(list(workers.current().map(_disjoint, network, sources)))
    extra = int(kind.removeprefix("short+")) if kind.startswith("short+") else 0
    number = {vertex: at for at, vertex in enumerate(network.vertices)}
    paths = [
        [number[vertex] for vertex in path] for ways in network.short_ways(extra, _MOST_WAYS).values() for path in ways
    ]
    link = {ends: at for at, ends in enumerate(zip(network.tails.tolist(), network.heads.tolist(), strict=True))}
    return Table.listed([[path[0], path[-1], *(link[ends] for ends in pairwise(path))] for path in paths])


def _disjoint(network: Network, source: int) -> Array:
    """Rows of the ways from a source that share no link with others of their pair: as many as there are, and short."""
    import numpy

    found = []
    for sink in numpy.flatnonzero(network.demand[source]).tolist():
        used = disjoint_flow(network.tails, network.heads, source, sink)
        if not used.any():
            raise InfeasibleError(f"rank {sink} cannot be reached from rank {source}")
        onward: dict[int, list[int]] = {}
        for link in numpy.flatnonzero(used)[::-1].tolist():
            onward.setdefault(int(network.tails[link]), []).append(link)
        while onward.get(source):
            way = [onward[source].pop()]
            while (at := int(network.heads[way[-1]])) != sink:
                way.append(onward[at].pop())
            found.append([source, sink, *way])
    return Table.listed(found).rows
