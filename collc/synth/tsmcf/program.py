"""The linear program of time-stepped all-to-all, with commodities grouped by source.

    least sum of U[t]   so that   each source's flow through the layers delivers what is asked by the last step
                                  sum over sources of flow[s, e, t] <= bandwidth[e] U[t]   for every link e, step t

Source: arXiv:2309.13541, time-stepped multi-commodity flow; one source on vertex-transitive fabrics is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from collc import deadline
from collc.errors import BudgetError
from collc.solve import LinearProgram, linear_program
from collc.synth.tsmcf.layers import Layers

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Optima are taken for the nearest fractions of denominators up to this.
_MOST_PARTS = 20_000


@dataclass(frozen=True, eq=False)
class Fluid:
    """A flow in floating point.

    Attributes:
        layers: what its variables are.
        slots: the sum of U [slots per unit of bandwidth]; a fraction near the solver's number.
        times: by step, U.
        flows: by variable [slots].
    """

    layers: Layers
    slots: Fraction
    times: Array
    flows: Array


@dataclass(frozen=True, eq=False)
class Rows:
    """The entries of the program, in whole numbers: variables are the flows, then U of each step.

    Attributes:
        rows, columns, values: the entries.
        n_balances: rows that say what comes in, less what goes out; the others bound loads from above by zero.
        n_loads: the others, step by step.
    """

    rows: Array
    columns: Array
    values: Array
    n_balances: int
    n_loads: int


def rows_of(layers: Layers, widths: Array) -> Rows:
    """The program's entries.

    Args:
        widths: by link, what a unit of U lets through.
    """
    import numpy

    network, n_flows = layers.network, len(layers.arc)
    tails, heads = layers.ends
    group, times = layers.groups
    n_groups = int(group.max()) + 1
    n_balances = len(layers.sources) * layers.n_vertices
    flow = numpy.arange(n_flows)
    moving = flow[layers.moves]
    step, link = numpy.divmod(layers.arc[moving], network.n_links)
    width = numpy.zeros(n_groups, dtype=numpy.int64)
    width[group] = widths
    loads = n_balances + numpy.arange(layers.n_steps * n_groups)
    return Rows(
        numpy.concatenate(
            [
                layers.row * layers.n_vertices + heads[layers.arc],
                layers.row * layers.n_vertices + tails[layers.arc],
                n_balances + step * n_groups + group[link],
                loads,
            ]
        ),
        numpy.concatenate([flow, flow, moving, n_flows + numpy.repeat(numpy.arange(layers.n_steps), n_groups)]),
        numpy.concatenate(
            [
                numpy.ones(n_flows, dtype=numpy.int64),
                -numpy.ones(n_flows, dtype=numpy.int64),
                times[link],
                -numpy.tile(width, layers.n_steps),
            ]
        ),
        n_balances,
        len(loads),
    )


def solve(layers: Layers, bound: Fraction | None) -> Fluid:
    """An optimal flow.

    Args:
        bound: no flow takes less [slots per unit of bandwidth].

    Raises:
        BudgetError: the solver came to no answer, or not in half of the time left.
    """
    import numpy

    entries, n_flows = rows_of(layers, layers.network.bandwidths), len(layers.arc)
    needs = layers.needs.ravel().astype(float)
    program = LinearProgram(
        costs=numpy.append(numpy.zeros(n_flows), numpy.ones(layers.n_steps)),
        lows=numpy.zeros(n_flows + layers.n_steps),
        highs=numpy.full(n_flows + layers.n_steps, numpy.inf),
        row_lows=numpy.append(needs, numpy.full(entries.n_loads, -numpy.inf)),
        row_highs=numpy.append(needs, numpy.zeros(entries.n_loads)),
        rows=entries.rows,
        columns=entries.columns,
        values=entries.values.astype(float),
    )
    # Inside the optimal face the steps' times leave room on all sides, which makes the flow easier to make whole.
    try:
        values = linear_program(program, "ipm", seconds=deadline.half_left()).values
    except BudgetError as error:
        raise BudgetError(f"tsmcf: {error}; -s mcf takes less time") from None
    times = values[n_flows:]
    return Fluid(layers, _near(float(times.sum()), bound), times, values[:n_flows].clip(0))


def _near(least: float, bound: Fraction | None) -> Fraction:
    simple = Fraction(least).limit_denominator(_MOST_PARTS)
    return simple if bound is None or simple >= bound else bound
