"""From a flow in floating point to whole chunks: at no loss where few chunks allow it, else at the least found.

Source: arXiv:2309.13541 scales rates to whole numbers; looking for the fewest chunks is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm
from typing import TYPE_CHECKING, Any, Literal

from collc import deadline
from collc.errors import BudgetError
from collc.solve import Row, cheapest_flow, integer_program
from collc.synth.tsmcf.layers import MOST_FLOWS, MOST_WHOLE, Layers, hops
from collc.synth.tsmcf.program import Fluid, rows_of

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Chunks up to which a flow without loss is looked for.
_MOST_PARTS = 16
# Powers of two that the integer program is tried with where one source stands for all.
_POWERS = 5
# Numbers of chunks with which a flow without loss is looked for.
_TRIES = 2
# How long the integer program is tried (deterministic time); longer where one source stands for all.
_SECONDS, _SECONDS_ALIKE = 1.0, 4.0
# Rounds of relief.
_ROUNDS = 30
# Times of steps are whole numbers of units of which at most so many make one.
_FINE = 2**20
# What sums in floating point may be off.
_NEAR = 1e-6
# Share of the time that rounding may cost, as of trees' weights.
_LOSS = Fraction(1, 50)


@dataclass(frozen=True, eq=False)
class Whole:
    """Flows in whole chunks.

    Attributes:
        layers: what the variables are.
        flows: by variable, without detours and circles.
        scale: chunks per slot.
    """

    layers: Layers
    flows: Array
    scale: int

    @property
    def slots(self) -> Fraction:
        """Sum over steps of what the busiest link takes [slots per unit of bandwidth]."""
        import numpy

        layers = self.layers
        group, times = layers.groups
        moving = numpy.flatnonzero(layers.moves & (self.flows > 0))
        step, link = numpy.divmod(layers.arc[moving], layers.network.n_links)
        loads = numpy.zeros((layers.n_steps, int(group.max()) + 1), dtype=numpy.int64)
        numpy.add.at(loads, (step, group[link]), self.flows[moving] * times[link])
        width = numpy.ones(loads.shape[1], dtype=numpy.int64)
        width[group] = layers.network.bandwidths
        busiest = (max(map(Fraction, row, width.tolist())) for row in loads.tolist())
        return sum(busiest, Fraction(0)) / self.scale


def made_whole(fluid: Fluid, most: int, chunks: Literal["exact", "pow2"] | int) -> Whole:
    """Whole flows near fluid ones.

    Args:
        most: chunks of a slot at most.
        chunks: that number; or the fewest that lose nothing; or the smallest power of two that loses little,
            as also where none are found that lose nothing.

    Raises:
        BudgetError: none were found.
    """
    if isinstance(chunks, int):
        found = _by_relief(fluid, chunks)
        if found is None or found.slots > fluid.slots:
            found = _by_program(fluid, chunks, found.slots if found else 2 * fluid.slots) or found
    else:
        found = (_at_no_loss(fluid, min(most, _MOST_PARTS)) if chunks == "exact" else None) or _in_powers(fluid, most)
    if found is None:
        raise BudgetError("tsmcf: no whole chunks were found near the best rates; -s mcf needs none")
    return found


def _at_no_loss(fluid: Fluid, most: int) -> Whole | None:
    """In the fewest chunks, as far as a few tries can tell."""
    # Loads are whole numbers of chunks, so only multiples of this number come out even.
    grain = (fluid.slots * _common_width(fluid.layers)).denominator
    for scale in range(grain, most + 1, grain)[:_TRIES]:
        found = _by_program(fluid, scale, fluid.slots) if fluid.layers.translations else _by_relief(fluid, scale)
        if found is None or found.slots > fluid.slots:
            found = _by_relief(fluid, scale) if fluid.layers.translations else _by_program(fluid, scale, fluid.slots)
        if found is not None and found.slots <= fluid.slots:
            return found
    return None


def _in_powers(fluid: Fluid, most: int) -> Whole | None:
    """In a small power of two of chunks that loses little, or in the best there is."""
    enough = fluid.slots / (1 - _LOSS)
    scales = [1 << bits for bits in range(most.bit_length())]

    def by_program(scales: list[int]) -> Whole | None:
        several = (_by_program(fluid, scale, enough) for scale in scales)
        return next((found for found in several if found is not None), None)

    # With one source for all the program is small, and relief is not.
    if fluid.layers.translations is not None and (found := by_program(scales[:_POWERS])) is not None:
        return found
    best = None
    for scale in scales:
        found = _by_relief(fluid, scale)
        if found is not None and (best is None or found.slots < best.slots):
            best = found
        if found is None or found.slots <= enough:
            break
    if best is None or fluid.layers.translations is not None:
        return best
    # A program may do with a few less.
    last = best.scale.bit_length() - 1
    return by_program(scales[max(0, last - 2) : last]) or best


def _common_width(layers: Layers) -> int:
    return lcm(*layers.network.bandwidths.tolist())


# --- by an integer program --------------------------------------------------------------------------


def _by_program(fluid: Fluid, scale: int, slots: Fraction) -> Whole | None:
    """Flows that take no longer than asked, at best as long as the fluid one; None where none are found in time."""
    import numpy

    layers, n_flows = fluid.layers, len(fluid.layers.arc)
    # U counts in units of 1/common: a chunk takes a whole number of them on every link.
    common = _common_width(layers)
    least, most = ceil(fluid.slots * scale * common), int(slots * scale * common)
    if n_flows > MOST_WHOLE or common > _FINE or most < least:
        return None
    entries = rows_of(layers, numpy.ones(layers.network.n_links, dtype=numpy.int64))
    group, _ = layers.groups
    cost = numpy.ones(int(group.max()) + 1, dtype=numpy.int64)
    cost[group] = common // layers.network.bandwidths
    is_load = (entries.rows >= entries.n_balances) & (entries.columns < n_flows)
    factors = entries.values * numpy.where(is_load, cost[(entries.rows - entries.n_balances) % len(cost)], 1)
    terms: list[list[tuple[int, int]]] = [[] for _ in range(entries.n_balances + entries.n_loads)]
    for row, factor, column in zip(entries.rows.tolist(), factors.tolist(), entries.columns.tolist(), strict=True):
        terms[row].append((factor, column))
    needs = (layers.needs * scale).ravel().tolist()
    rows = [Row(need, several, need) for need, several in zip(needs, terms, strict=False)]
    rows += [Row(-most, several, 0) for several in terms[entries.n_balances :]]
    times = [(1, n_flows + step) for step in range(layers.n_steps)]
    rows.append(Row(least, times, most))
    supplies = (-layers.needs.min(axis=1) * scale)[layers.row].tolist()
    domains = [(0, supply) for supply in supplies] + [(0, most)] * layers.n_steps
    try:
        values = integer_program(domains, rows, min(_seconds(layers)), times)
    except BudgetError:
        return None
    if values is None:
        return None
    return Whole(layers, _shortened(layers, numpy.array(values[:n_flows], dtype=numpy.int64), scale), scale)


def _seconds(layers: Layers) -> tuple[float, float]:
    """How long an integer program is tried, and how long it may be at most if there is a deadline."""
    left = deadline.time_left()
    wanted = _SECONDS if layers.translations is None else _SECONDS_ALIKE
    return wanted, wanted if left is None else left / 4


def is_pressed(layers: Layers) -> bool:
    """Whether a deadline leaves an integer program less than its time by now."""
    wanted, most = _seconds(layers)
    return most < wanted


def _shortened(layers: Layers, room: Array, scale: int) -> Array:
    """Of each source, the cheapest flow within another on links: no detours and no circles.

    Staying is free, as much as may be, so nothing goes to a switch and back.
    """
    import numpy

    tails, heads = layers.ends
    flows = numpy.zeros_like(room)
    for row, supplies in enumerate(-layers.needs * scale):
        used = numpy.flatnonzero(layers.row == row)
        arcs, moves = layers.arc[used], layers.moves[used]
        most = numpy.where(moves, room[used], supplies.max())
        carried = cheapest_flow(layers.n_vertices, tails[arcs], heads[arcs], most, moves.astype(numpy.int64), supplies)
        assert carried is not None
        flows[used] = carried
    return flows


# --- by relief --------------------------------------------------------------------------------------


def _by_relief(fluid: Fluid, scale: int) -> Whole | None:
    """Flows that keep to the fluid one's times by step as far as they can; None if there are too many.

    Source after source takes the cheapest flow around what the others leave of each link in each step.
    What is too full after a round is dearer in the next.
    """
    import numpy

    layers, flows = fluid.layers, fluid.flows * scale
    if layers.translations is not None:
        layers = Layers.of(layers.network, layers.n_steps, None, hops(layers.network))
        if len(layers.arc) > MOST_FLOWS:
            return None
        flows = numpy.zeros(len(layers.arc))
    room = _room(fluid, scale)
    # In the first round, those whose turn has not come count as the fluid flow has them.
    loads = numpy.bincount(layers.arc[layers.moves], flows[layers.moves], minlength=len(room))
    dear = numpy.zeros_like(room)
    best = None
    for _ in range(_ROUNDS):
        for row, supplies in enumerate(-layers.needs * scale):
            deadline.check()
            used = numpy.flatnonzero(layers.row == row)
            arcs = layers.arc[used][layers.moves[used]]
            loads[arcs] -= flows[used[: len(arcs)]]
            free = (room - loads + _NEAR)[arcs].clip(0).astype(numpy.int64)
            flows[used] = _around(layers, used, free, dear[arcs], supplies)
            loads[arcs] += flows[used[: len(arcs)]]
        found = Whole(layers, numpy.rint(flows).astype(numpy.int64), scale)
        if best is None or found.slots < best.slots:
            best = found
        over = (numpy.rint(loads).astype(numpy.int64) - room).clip(0)
        if not over.any():
            break
        dear += over
    return best


def _room(fluid: Fluid, scale: int) -> Array:
    """By step and link, the chunks that go through in the fluid flow's time, rounded to no more in all."""
    import numpy

    layers = fluid.layers
    grid = scale * min(_FINE, _common_width(layers))
    exact = fluid.times * grid
    units = numpy.floor(exact).astype(numpy.int64)
    spare = int(fluid.slots * grid) - int(units.sum())
    units[numpy.argsort(units - exact, kind="stable")[: max(0, spare)]] += 1
    found: Array = (units[:, None] * layers.network.bandwidths * scale // grid).ravel()
    return found


def _around(layers: Layers, used: Array, free: Array, dear: Array, supplies: Array) -> Array:
    """One source's cheapest flow, where what is free costs little and what is not a lot.

    Args:
        used: its variables, links before what stays.
        free, dear: by link among them.
    """
    import numpy

    tails, heads = layers.ends
    arcs, n_moves = layers.arc[used], len(free)
    moves, stays = arcs[:n_moves], arcs[n_moves:]
    several = numpy.concatenate([moves, moves, stays])
    most = numpy.concatenate([free, numpy.full(len(arcs), supplies.max())])
    costs = numpy.concatenate([1 + 10 * (dear > 0), 1000 * (1 + dear), numpy.zeros(len(stays), dtype=numpy.int64)])
    carried = cheapest_flow(layers.n_vertices, tails[several], heads[several], most, costs, supplies)
    assert carried is not None
    return numpy.append(carried[:n_moves] + carried[n_moves : 2 * n_moves], carried[2 * n_moves :])
