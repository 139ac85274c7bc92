"""The linear program of all-to-all, with commodities grouped by source.

    least T   so that   what enters v - what leaves v = demand[s, v]   for every source s and vertex v but s
                        sum over sources of flow[s, e] <= bandwidth[e] T       for every link e

The prices of the second rows prove the optimum: every byte pays the cheapest way.

Source: arXiv:2309.13541, decomposed multi-commodity flow; one source on vertex-transitive fabrics is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from collc import deadline
from collc.errors import BudgetError, InfeasibleError
from collc.solve import LinearAnswer, LinearProgram, Method, linear_program
from collc.synth._network import Network
from collc.synth._symmetry import Translations

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Flow variables up to which simplex is quicker than the interior points.
FEW_FLOWS = 5_000


@dataclass(frozen=True, eq=False)
class Fractional:
    """A flow and prices in floating point.

    Attributes:
        sources: ranks whose flows are given.
        flows: [sources x links] slots.
        prices: by link.
    """

    sources: Array
    flows: Array
    prices: Array


class Master:
    """The program of a network: every sender is a source, or rank 0 alone where translations tell the rest."""

    def __init__(self, network: Network, translations: Translations | None) -> None:
        import numpy

        self._network = network
        n_links = network.n_links
        if translations is None:
            self.sources = numpy.flatnonzero(network.demand.sum(axis=1))
            self._group_of, self._times = numpy.arange(n_links), numpy.ones(n_links)
        else:
            self.sources = numpy.array([0])
            self._group_of = translations.classes
            # A link that several translations leave in place is loaded by all of them.
            self._times = network.n_ranks / numpy.bincount(self._group_of)[self._group_of]
        self._program = _program(network, self.sources, self._group_of, self._times)

    def solve(self, method: Method | None = None) -> Fractional:
        """An optimal flow with its prices.

        Args:
            method: the quicker one where not given.

        Raises:
            InfeasibleError: some rank cannot be reached.
            BudgetError: the solver came to no answer, or not in half of the time left.
        """
        if method is None:
            method = "simplex" if len(self._program.costs) - 1 <= FEW_FLOWS else "ipm"
        try:
            answer = linear_program(self._program, method, seconds=deadline.half_left())
        except InfeasibleError:
            self._check_reach()
            raise BudgetError(f"{method} came to no answer: the demands differ too much for it") from None
        prices = (-answer.prices[len(self.sources) * self._network.n_vertices :]).clip(0)
        return Fractional(self.sources, self._flows(answer), prices[self._group_of] * self._times)

    def shortened(self, found: Fractional, slots: float) -> Fractional:
        """A flow of the least total load that takes no longer: no detours, and simpler fractions.

        Args:
            slots: the optimum [slots per unit of bandwidth].
        """
        import numpy

        program = replace(
            self._program,
            costs=numpy.append(numpy.ones(len(self._program.costs) - 1), 0.0),
            lows=numpy.append(self._program.lows[:-1], slots),
            highs=numpy.append(self._program.highs[:-1], slots),
        )
        try:
            answer = linear_program(program, "simplex", seconds=deadline.half_left())
        except (InfeasibleError, BudgetError):  # by a hair's breadth: the optimum is a rounded number
            return found
        return replace(found, flows=self._flows(answer))

    def _check_reach(self) -> None:
        """Nothing, where every rank can be reached that is to get something."""
        import numpy

        network = self._network
        free = network.fares(numpy.zeros(network.n_links, dtype=numpy.int64))
        lost = numpy.argwhere((free[:, : network.n_ranks] > 0) & (network.demand > 0))
        if len(lost):
            raise InfeasibleError(f"rank {lost[0, 1]} cannot be reached from rank {lost[0, 0]}")

    def _flows(self, answer: LinearAnswer) -> Array:
        flows: Array = answer.values[:-1].reshape(len(self.sources), self._network.n_links).clip(0)
        return flows


def _program(network: Network, sources: Array, group_of: Array, times: Array) -> LinearProgram:
    import numpy

    n_links, n_vertices, n_sources = network.n_links, network.n_vertices, len(sources)
    n_groups = int(group_of.max()) + 1
    n_flows = n_sources * n_links
    flow = numpy.arange(n_flows)
    block = numpy.repeat(numpy.arange(n_sources), n_links)
    link = numpy.tile(numpy.arange(n_links), n_sources)
    group_rows = n_sources * n_vertices
    width = numpy.zeros(n_groups)
    width[group_of] = network.bandwidths
    needs = numpy.zeros((n_sources, n_vertices))
    needs[:, : network.n_ranks] = network.demand[sources]
    needs[numpy.arange(n_sources), sources] = -needs.sum(axis=1)
    # Nothing need come back to its source.
    highs = numpy.where(network.heads[link] == sources[block], 0.0, numpy.inf)
    return LinearProgram(
        costs=numpy.append(numpy.zeros(n_flows), 1.0),
        lows=numpy.zeros(n_flows + 1),
        highs=numpy.append(highs, numpy.inf),
        row_lows=numpy.append(needs.ravel(), numpy.full(n_groups, -numpy.inf)),
        row_highs=numpy.append(needs.ravel(), numpy.zeros(n_groups)),
        rows=numpy.concatenate(
            [
                block * n_vertices + network.heads[link],
                block * n_vertices + network.tails[link],
                group_rows + group_of[link],
                group_rows + numpy.arange(n_groups),
            ]
        ),
        columns=numpy.concatenate([flow, flow, flow, numpy.full(n_groups, n_flows)]),
        values=numpy.concatenate([numpy.ones(n_flows), -numpy.ones(n_flows), times[link], -width]),
    )
