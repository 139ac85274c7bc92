"""All-to-all on any fabric by multi-commodity flow: the rate no schedule beats, and ways that reach it.

network -> translations -> _master (a linear program) or descent (large fabrics) -> prices: the bound
                                   -> children: whole flows -> extract: ways of pairs
                     -> mixture (many ranks that look alike): rank 0's ways, and renamings
        -> columns (direct cables), or ways given -> paths: their rates -> ways of pairs
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from collc import deadline
from collc.cost import alltoall_limits, limits_document
from collc.errors import BudgetError, InfeasibleError, InputError
from collc.ir.collective import AllPairs, Problem
from collc.ir.flow import Bound, FlowSchedule
from collc.synth import _exact, _master, _symmetry, _ways
from collc.synth._master import FEW_FLOWS, Fractional
from collc.synth._network import Network
from collc.synth._symmetry import Translations
from collc.synth.mcf import children, columns, descent, extract, mixture, paths, warm
from collc.synth.mcf.extract import Ways

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_Method = Literal["simplex", "ipm", "pdlp", "columns", "descent"]
# Ways, their units per slot, what prices prove, and whether a deadline ended the search.
_Found = tuple[Ways, int, Bound | None, bool]

# Up to this many ranks that look alike, weights are those of the linear program, which have small denominators, and
# trees are written out: files are made of them. Beyond, trees are mixed and renamings stand for all but rank 0's.
_FEW_RANKS = 256
# Those up to which the linear program is solved at all: 128 vertices of degree four have 65536.
_MOST_FLOWS = 70_000
# The same for columns, which auto takes where all links end at GPUs; switches leave them too many equal ways.
_MOST_FLOWS_BY_COLUMNS = 270_000
# Gap at which columns end: the answer is optimal, with room for what rounding adds.
_EXACT = 1e-10
# Where flows come from descent, a pair's block is cut into so many units that a rank sends about this many.
_UNITS = 2048
_MOST_PARTS = 16


@dataclass(frozen=True)
class Mcf:
    """Flows for all pairs at once, at the best rate the links allow.

    Guarantee: optimal where prices on links prove it to one part in a billion; else bounded by them.
    Supports: alltoall, alltoallv, scatter, gather on every fabric.
    Source: Efficient all-to-all collective communication schedules for direct-connect topologies
        (arXiv:2309.13541).

    Attributes:
        method: how the fractional flow is found; auto takes the linear program where it is small, or one
            source's where the fabric looks the same from all ranks, columns on direct cables, and descent
            where it is large.
        within: gap to the bound at which descent ends.
        ways: which ways pairs may take: any, those of the fewest links, or of one or two more, or a largest
            set without a common link. The bound stays that of any.
        warm: a schedule of the fabric before it changed, as `-b json` writes it, to start from. Where few pairs
            must move, the answer is `within` its bound; else all is solved anew.
    """

    method: Literal["auto", "simplex", "ipm", "pdlp", "columns", "descent"] = "auto"
    within: Fraction = Fraction(1, 250)
    ways: paths.Kind = "any"
    warm: str = ""

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return _ways.refusal("mcf", problem)

    def run(self, problem: Problem) -> FlowSchedule:
        """Ways for every pair, with the prices that bound them.

        Raises:
            InputError: `within` below zero, or `warm` is no such schedule.
            InfeasibleError: a rank cannot be reached.
            BudgetError: no solver came to an answer.
        """
        if not 0 <= self.within < 1:
            raise InputError(f"mcf: option within: {self.within}; expected a gap to the bound, from 0 to below 1")
        network = Network.of(problem)
        if not network.demand.any():
            return _ways.schedule(problem, {}, None)
        if not network.n_links:
            raise InfeasibleError("data must move, and there are no links")
        translations = _symmetry.find(network)
        if translations is not None and self._mixes(problem):
            return mixture.schedule(problem, network, translations)
        again = self._again(network) if self.warm else None
        ways, scale, bound, is_cut_short = again or self._found(network, translations)
        if self.ways != "any":
            table = paths.given(network, self.ways)
            ways, scale = paths.whole(network, table, paths.solve(network, table).rates)
        made = extract.schedule(problem, network, ways, scale, bound)
        notes = [deadline.CUT_SHORT] if is_cut_short else []
        if self.warm and again is None:
            notes.append(
                f"few moves from {self.warm} do not come within {self.within} of the bound; all is solved anew"
            )
        return replace(made, notes=(*made.notes, *notes))

    def _mixes(self, problem: Problem) -> bool:
        """Whether trees are mixed where all ranks look alike, which takes no time worth mentioning."""
        by_rule = (
            self.method == "auto"
            and not self.warm
            and self.ways == "any"
            and isinstance(problem.collective.chunks, AllPairs)
        )
        return by_rule and problem.topology.n_ranks > _FEW_RANKS

    def first(self, problem: Problem) -> FlowSchedule:
        """A schedule to have where time is short: every pair takes one way of the fewest links.

        Raises:
            InfeasibleError: a rank cannot be reached.
        """
        network = Network.of(problem)
        is_quick = self._mixes(problem) and _symmetry.find(network) is not None
        if is_quick or not network.n_links or not network.demand.any():
            return self.run(problem)
        found = descent.Descent(network).found
        ways = extract.ways_of(network, found.sources, found.flows.round().astype(int), 1)
        made = extract.schedule(problem, network, ways, 1, _exact.certify(network, found.prices))
        return made if made.is_optimal else replace(made, notes=(deadline.CUT_SHORT,))

    def details(self, problem: Problem) -> dict[str, Any]:
        """What limits the problem, side by side."""
        return limits_document(alltoall_limits(problem))

    def _again(self, network: Network) -> _Found | None:
        """What the schedule before leads to; None where that is not near enough."""
        found = warm.solve(network, warm.read(self.warm, network), float(self.within))
        if found is None:
            return None
        table, rates, prices = found
        return *paths.whole(network, table, rates), _exact.certify(network, prices), False

    def _found(self, network: Network, translations: Translations | None) -> _Found:
        if self.method != "auto":
            return self._by(self.method, network, translations)
        is_late = False
        if (method := _exact_method(network, translations)) is not None:
            # A solver that comes to no answer in its part of the time leaves the rest for descent.
            try:
                return self._by(method, network, translations)
            except BudgetError:
                is_late = deadline.time_left() is not None
        ways, scale, bound, is_cut_short = self._by("descent", network, None)
        return ways, scale, bound, is_cut_short or is_late

    def _by(self, method: _Method, network: Network, translations: Translations | None) -> _Found:
        if method == "columns":
            table, rates, prices, is_cut_short = columns.solve(network, _EXACT)
            return *paths.whole(network, table, rates.rates), _exact.certify(network, prices), is_cut_short
        if method == "descent":
            parts = min(_MOST_PARTS, max(2, _UNITS // network.n_ranks))
            scale = max(1, parts // int(network.demand.max()))

            def finish(found: Fractional) -> Ways:
                return extract.ways_of(network, found.sources, children.round_off(network, found, scale), scale)

            found, is_cut_short = descent.solve(network, float(self.within), finish)
            return finish(found), scale, _exact.certify(network, found.prices), is_cut_short
        program = _master.Master(network, translations)
        found = program.solve(method)
        bound = _exact.certify(network, found.prices, alike=translations is not None)
        if method == "simplex" and bound is not None:
            found = program.shortened(found, float(bound.time * network.unit * network.size))
        flows, scale = _whole(network, found, translations, bound)
        return extract.ways_of(network, found.sources, flows, scale, translations), scale, bound, False


def _exact_method(network: Network, translations: Translations | None) -> _Method | None:
    """How auto solves a fabric; None where it is too large for that."""
    n_flows = network.n_links * (1 if translations else int(network.demand.any(axis=1).sum()))
    if n_flows <= FEW_FLOWS:
        return "simplex"
    if translations is None and network.n_vertices == network.n_ranks:
        return "columns" if n_flows <= _MOST_FLOWS_BY_COLUMNS else None
    return "ipm" if n_flows <= _MOST_FLOWS else None


def _whole(
    network: Network, found: Fractional, translations: Translations | None, bound: Bound | None
) -> tuple[Array, int]:
    """The best whole flows near fractional ones, and their units per slot."""
    nice = _exact.common_denominator(found.flows.ravel())
    if nice:
        flows = children.settle(network, found, nice, exactly=True)
        if flows is not None and bound and network.time(_loads(flows, translations), nice) == bound.time:
            return flows, nice
    scale = children.fine_scale(network)
    flows = children.settle(network, found, scale, exactly=False)
    if flows is None:
        raise BudgetError("mcf: the solver's flow is too far from delivering what is asked; try another -o method")
    return flows, scale


def _loads(flows: Array, translations: Translations | None) -> Array:
    """By link, what all sources' flows add up to."""
    import numpy

    if translations is None:
        total: Array = flows.sum(axis=0)
        return total
    loads: Array = numpy.zeros_like(flows[0])
    for image in translations.links:
        loads[image] += flows[0]
    return loads
