"""What a plan will take, by the alpha-beta model: stages in step, what is inside hosts beside them.

    balance of stage 1 | stage 1 + balance of stage 2 | stage 2 + balance of stage 3 + second hops of
    stage 1 | ... | last stage + second hops of the one before | second hops of the last

A stage lasts as long as its largest message; a phase inside hosts as long as the busiest GPU's port
takes (or the busiest link of a full mesh). Where both run at once, the longer one counts. Traffic that
begins and ends in one host runs beside the heaviest stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collc.fast.cut import Messages
from collc.fast.layout import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collc.fast.machine import Machine

    Numbers = Any
    Floats = NDArray[Any]


@dataclass(frozen=True)
class Prediction:
    """Predicted time [us] and what it consists of; the parts add up to the total.

    Attributes:
        balance: handing bytes over before the first stage.
        wire: bytes on the network.
        exposed: traffic inside hosts that outlasts the stage beside it, and the last second hops.
        latency: of the stages, and of phases inside hosts that nothing hides.
    """

    balance: float
    wire: float
    exposed: float
    latency: float

    @property
    def total(self) -> float:
        """The whole exchange."""
        return self.balance + self.wire + self.exposed + self.latency


def predict(messages: Messages, weights: Sequence[int], inside: Numbers, unit: int, machine: Machine) -> Prediction:
    """The time of staged messages.

    Args:
        inside: counts of the cells within hosts, in the layout's order [units].
        unit: bytes of a unit.
    """
    import numpy as np

    layout = machine.layout
    n, n_stages = layout.n_ranks, len(weights)
    wire = np.zeros(n_stages * n)
    speed = float(layout.rate) / unit
    if not layout.is_even:
        speed = speed * layout.slow[messages.lane] / layout.fast[messages.lane]
    wire[messages.stage * n + layout.src[messages.lane]] = messages.count / speed
    slots = wire.reshape(n_stages, n).max(axis=1, initial=0.0)
    return _timeline(_phases(messages, n_stages, heaviest(weights), inside, layout) * unit, slots, machine)


def heaviest(weights: Sequence[int]) -> int:
    """The stage that traffic inside hosts goes beside: the first of the heaviest; 0 without stages."""
    return max(range(len(weights)), key=weights.__getitem__, default=0)


def _timeline(phases: Floats, wire: Floats, machine: Machine) -> Prediction:
    """Phases alone at both ends, and beside a stage in between."""
    import numpy as np

    stage_latency, inner_latency = float(machine.stage_latency), float(machine.inner_latency)
    beside = phases[1:-1]
    late = np.maximum(np.where(beside > 0, beside + inner_latency, 0.0) - wire - stage_latency, 0.0)
    alone = float((phases[[0, -1]] > 0).sum())
    return Prediction(
        balance=float(phases[0]),
        wire=float(wire.sum()),
        exposed=float(late.sum() + phases[-1]),
        latency=stage_latency * len(wire) + inner_latency * alone,
    )


def _phases(messages: Messages, n_stages: int, inside_stage: int, inside: Numbers, layout: Layout) -> Floats:
    """Per phase the time of the busiest port or link inside a host [us per byte of a unit].

    Phase p runs beside stage p - 1; the first and the last have no stage beside them.
    """
    import numpy as np

    lane = np.repeat(messages.lane, np.diff(messages.first))
    stage = np.repeat(messages.stage, np.diff(messages.first))
    moved = np.flatnonzero(messages.is_moved)
    target = layout.cell_dst[messages.cell]
    hop = np.flatnonzero(target != layout.dst[lane])
    own = np.flatnonzero(inside)
    home = layout.inside[own]
    phase = np.concatenate([stage[moved], stage[hop] + 2, np.full(len(own), inside_stage + 1)])
    src = np.concatenate([layout.cell_src[messages.cell[moved]], layout.dst[lane[hop]], home // layout.n_ranks])
    dst = np.concatenate([layout.src[lane[moved]], target[hop], home % layout.n_ranks])
    count = np.concatenate([messages.length[moved], messages.length[hop], inside[own]]).astype(float)
    return _busiest(phase * layout.n_ranks, src, dst, count, n_stages + 2, layout)


def _busiest(row: Numbers, src: Numbers, dst: Numbers, count: Floats, n_phases: int, layout: Layout) -> Floats:
    import numpy as np

    count[src == dst] = 0.0  # what stays in place takes no link
    shape = (n_phases, layout.n_ranks)
    times = np.zeros(shape)
    if not layout.mesh.all():
        for end in (src, dst):
            load = np.bincount(row + end, weights=count, minlength=times.size).reshape(shape)
            times = np.maximum(times, load / layout.inner)
    if layout.mesh.any():
        widest = int(layout.local.max()) + 1
        link = (row + src) * widest + layout.local[dst]
        load = np.bincount(link, weights=count, minlength=times.size * widest).reshape(*shape, widest).max(axis=2)
        times = np.where(layout.mesh, load / layout.inner, times)
    busiest: Floats = times.max(axis=1)
    return busiest
