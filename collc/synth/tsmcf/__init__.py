"""All-to-all in steps: multi-commodity flow by time-stepped linear program, whole chunks, and their sends.

network -> layers: a copy for each step -> program (linear) -> whole: chunks -> sends
        -> the program of mcf -> prices: the bound
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

from collc import cost, deadline
from collc.cost import HOP_LATENCY, steps_time
from collc.errors import BudgetError, InfeasibleError, InputError, UnsupportedError
from collc.ir.collective import Problem
from collc.ir.flow import Bound
from collc.ir.routes import all_routes
from collc.ir.schedule import Schedule, Send
from collc.synth import _exact, _master, _symmetry, _ways
from collc.synth._network import Network
from collc.synth._symmetry import Translations
from collc.synth.tsmcf import program, whole
from collc.synth.tsmcf.layers import MOST_FLOWS, MOST_WHOLE, Layers, hops, least_steps
from collc.synth.tsmcf.program import Fluid
from collc.synth.tsmcf.sends import sends_of
from collc.units import format_rate

# Chunks up to which a table is made, and pieces of a pair's slot where nobody says how many.
_MOST_CHUNKS = 2**20
_MOST_PARTS = 128
# The fluid time is a fraction near what a solver says.
_NEAR = Fraction(1, 10**6)
# Steps tried beyond the fewest.
_MORE_STEPS = 2


@dataclass(frozen=True)
class Tsmcf:
    """Store-and-forward in steps that all ranks take together, each as short as its busiest link allows.

    Guarantee: optimal where the steps' times add up to what prices on links prove; else bounded by them.
    Supports: alltoall, alltoallv, scatter, gather; up to some dozens of ranks, more where all look the same.
    Source: Efficient all-to-all collective communication schedules for direct-connect topologies
        (arXiv:2309.13541), time-stepped multi-commodity flow.

    Attributes:
        steps: auto takes the fewest of the least time at the asked size, or for large messages without one.
        chunks: what a rank's block for another is cut into: that number; the fewest that lose nothing, up to
            16; or the smallest power of two that loses little, as files that serve such sizes want it.
    """

    in_auto: ClassVar[bool] = False
    steps: Literal["auto"] | int = "auto"
    chunks: Literal["exact", "pow2"] | int = "exact"

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return _ways.refusal("tsmcf", problem)

    def variants(self, made: Schedule) -> list[dict[str, str]]:
        """Options under which there are fewer steps, at the cost of bandwidth."""
        network = Network.of(made.problem)
        fewest, *_ = least_steps(network, hops(network))
        return [{"steps": str(n_steps)} for n_steps in range(made.n_steps - 1, fewest - 1, -1)]

    def run(self, problem: Problem) -> Schedule:
        """A schedule of steps, with the prices that bound every schedule.

        Raises:
            InputError: no number of steps or chunks.
            InfeasibleError: a rank cannot be reached, or not in that many steps.
            UnsupportedError: too large.
            BudgetError: the solver came to no answer, or not in time.
        """
        for name, value in (("steps", self.steps), ("chunks", self.chunks)):
            if isinstance(value, int) and value < 1:
                raise InputError(f"{name}: {value}; expected 1 or more")
        network = Network.of(problem)
        if not network.demand.any():
            return _schedule(problem, (), 1, None)
        if not network.n_links:
            raise InfeasibleError("data must move, and there are no links")
        most = self._most_parts(problem)
        translations = _symmetry.find(network)
        bound, fluid, is_late = self._best(problem, network, translations)
        found = whole.made_whole(fluid, most, self.chunks)
        made = _schedule(problem, sends_of(found, problem.collective), found.scale, bound)
        made = _told(made, fluid.slots / network.unit / network.size, found.scale)
        if is_late or (made.notes and whole.is_pressed(fluid.layers)):
            made = replace(made, notes=(*made.notes, deadline.CUT_SHORT))
        return made

    def first(self, problem: Problem) -> Schedule:
        """A schedule to have where time is short: in the fewest steps, each slot in one piece.

        Raises:
            As `run`.
        """
        network = Network.of(problem)
        if not network.n_links or not network.demand.any():
            return self.run(problem)
        steps = least_steps(network, hops(network))[0] if self.steps == "auto" else self.steps
        made = replace(self, steps=steps, chunks=self.chunks if isinstance(self.chunks, int) else 1).run(problem)
        return made if made.is_optimal else replace(made, notes=tuple(dict.fromkeys((*made.notes, deadline.CUT_SHORT))))

    def _most_parts(self, problem: Problem) -> int:
        """What a slot may be cut into."""
        slots = sum(chunk.count for chunk in problem.collective.chunks)
        if (number := slots * (self.chunks if isinstance(self.chunks, int) else 1)) > _MOST_CHUNKS:
            raise UnsupportedError(f"tsmcf lists every chunk: {number}, and at most {_MOST_CHUNKS}; -s mcf lists none")
        return min(_MOST_PARTS, _MOST_CHUNKS // slots)

    def _best(
        self, problem: Problem, network: Network, translations: Translations | None
    ) -> tuple[Bound | None, Fluid, bool]:
        """The bound, the fluid flow in the steps that are asked for, or best, and whether a deadline left any out."""
        found = hops(network)
        fewest, src, dst = least_steps(network, found)
        if isinstance(self.steps, int):
            if self.steps < fewest:
                raise InfeasibleError(
                    f"{self.steps} steps are too few: data from rank {src} to rank {dst} takes {fewest} hops"
                )
            choice = range(self.steps, self.steps + 1)
        else:
            choice = range(fewest, fewest + _MORE_STEPS + 1)
        first = Layers.of(network, choice[0], translations, found)
        _check_size(first)
        bound, is_late = _bound(problem, network, translations)
        least = bound.time * network.unit * network.size if bound else None
        best = program.solve(first, least)
        for n_steps in choice[1:]:
            if best.slots == least:
                break
            layers = Layers.of(network, n_steps, translations, found)
            try:
                _check_size(layers)
                other = program.solve(layers, least)
            except UnsupportedError:
                break
            except BudgetError:
                is_late = is_late or deadline.time_left() is not None
                break
            best = min(best, other, key=lambda fluid: _predicted(problem, network, fluid))
        return bound, best, is_late


def _check_size(layers: Layers) -> None:
    most = MOST_FLOWS if layers.translations is None else MOST_WHOLE
    if len(layers.arc) > most:
        raise UnsupportedError(
            f"tsmcf: {len(layers.arc)} variables in {layers.n_steps} steps; it stops at {most}, -s mcf does not"
        )


def _bound(problem: Problem, network: Network, translations: Translations | None) -> tuple[Bound | None, bool]:
    """What the prices of the program without steps prove of all schedules; or cuts, where a deadline is too near."""
    try:
        found = _master.Master(network, translations).solve()
    except BudgetError:
        return cost.bound(problem), deadline.time_left() is not None
    return _exact.certify(network, found.prices, alike=translations is not None), False


def _predicted(problem: Problem, network: Network, fluid: Fluid) -> tuple[Fraction, int]:
    """Time at the asked size [us], or for large messages, and the steps it takes."""
    time = fluid.slots / network.unit / network.size
    if problem.nbytes is None:
        return time, fluid.layers.n_steps
    topology = problem.topology
    slowest = max(
        sum((topology.link[hop].latency for hop in route.hops), HOP_LATENCY)
        for routes in all_routes(topology)
        for route in routes.values()
    )
    return slowest * fluid.layers.n_steps + time * problem.nbytes / 1000, fluid.layers.n_steps


def _schedule(problem: Problem, sends: tuple[Send, ...], scale: int, bound: Bound | None) -> Schedule:
    cut = replace(problem, collective=problem.collective.refined(scale))
    return Schedule(cut, sends, steps_time(cut, sends, synchronous=True), bound=bound, synchronous=True)


def _told(made: Schedule, fluid: Fraction, scale: int) -> Schedule:
    """With a note of what whole chunks cost."""
    if made.time <= fluid * (1 + _NEAR):
        return made
    note = (
        f"rates rounded to {scale} chunks per rank block: {format_rate(1 / made.time)} of "
        f"{format_rate(1 / fluid)} GB/s kept ({float(fluid / made.time):.4f})"
    )
    return replace(made, notes=(*made.notes, note))
