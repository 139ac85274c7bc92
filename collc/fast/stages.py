"""Stages for a traffic: how many, how heavy, and in which order; chosen by the time they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collc.fast.cut import Messages, cut
from collc.fast.matching import Stages, decompose
from collc.fast.model import Prediction, predict
from collc.fast.traffic import Traffic

if TYPE_CHECKING:
    Numbers = Any

# A stage of middling weight to begin with needs little handed over before it, and hides that of the
# heavy stages that follow; the lightest come last, where nothing hides the second hops. The others are
# the published orders. Any order has the same wire time, so one with less than 1/300 beside it will do.
_ORDERS = ("warm-up", "descending", "ascending")
_GOOD_ENOUGH = 1 / 300

# Loads are rounded up to 1/d of an average entry of the busiest line. A finer grain than 1/256 is as
# good as none; a coarser one than 1/2 makes no stage fewer.
_FINEST, _COARSEST = 256, 2

# With more ports than this one grain is tried, not three: the others cost more than they gain.
_MANY_PORTS = 16


@dataclass(frozen=True, eq=False)
class Staged:
    """Stages in their order, the messages they send, and the time that takes."""

    stages: Stages
    messages: Messages
    predicted: Prediction
    order: str


def best_staged(traffic: Traffic, quantum: int | None = None) -> Staged:
    """The stages that take the least time, of all orders tried.

    Args:
        quantum: bytes that loads are rounded up to; the best of some where not given.
    """
    stages = _stages(traffic, quantum)
    found = []
    for order in _ORDERS:
        found.append(_staged(traffic, stages, order))
        predicted = found[-1].predicted
        if not stages.weights or predicted.balance + predicted.exposed < _GOOD_ENOUGH * predicted.total:
            break
    return min(found, key=lambda staged: staged.predicted.total)


def _staged(traffic: Traffic, stages: Stages, order: str) -> Staged:
    import numpy as np

    stages = _last_split(traffic, _in_order(stages, order))
    weights = np.array(stages.weights, dtype=traffic.queues.end.dtype)
    messages = cut(traffic.queues, traffic.machine.layout, stages.partners, weights)
    predicted = predict(messages, stages.weights, traffic.inside, traffic.unit, traffic.machine)
    return Staged(stages, messages, predicted, order if stages.weights else "none")


def _stages(traffic: Traffic, quantum: int | None) -> Stages:
    """Few stages that waste little: the best of some grains, by wire time and latency."""
    n, latency = len(traffic.loads), float(traffic.machine.stage_latency)
    if quantum is not None:
        return decompose(traffic.loads, max(1, quantum // traffic.unit))
    line_sum = max(sum(line) for lines in (traffic.loads, zip(*traffic.loads, strict=True)) for line in lines)
    if not latency or not line_sum:
        return decompose(traffic.loads)
    # A grain of 1/d wastes about half of that, and halving d saves about a stage in five.
    per_unit = traffic.unit / float(traffic.machine.layout.rate)
    ideal = line_sum * per_unit / (n * latency)
    grain = min(max(1 << max(0, int(ideal).bit_length() - 1), _COARSEST), _FINEST)
    grains = [grain] if n > _MANY_PORTS else sorted({max(grain // 2, _COARSEST), grain, min(grain * 2, _FINEST)})
    found = [decompose(traffic.loads, -(-line_sum // (one * n)) if one < _FINEST else 1) for one in grains]
    return min(found, key=lambda stages: sum(stages.busy) * per_unit + len(stages.weights) * latency)


def _in_order(stages: Stages, order: str) -> Stages:
    """The same stages, sorted by weight."""
    ranked = sorted(range(len(stages.weights)), key=lambda one: -stages.weights[one])
    if order == "ascending":
        ranked.reverse()
    if order == "warm-up" and ranked:
        ranked.insert(0, ranked.pop(len(ranked) // 2))
    return Stages(
        tuple(stages.partners[one] for one in ranked), tuple(stages.weights[one] for one in ranked), stages.line_sum, ()
    )


def _last_split(traffic: Traffic, stages: Stages) -> Stages:
    """The same stages, the last cut in two where that hides enough of its second hops.

    What ends a queue needs no second hop, so all hops can go beside the end of the last stage.
    """
    layout, n = traffic.machine.layout, len(traffic.loads)
    width = layout.ports.shape[1]
    last = stages.weights[-1] if stages.weights else 0
    if last < width or width == 1 or len(stages.weights) >= n * n - 2 * n + 2:
        return stages
    links = (width - 1) if layout.mesh.any() else 1
    hops = last * traffic.unit * (width - 1) / width / (float(layout.inner.min()) * links)
    whole = stages.line_sum * traffic.unit / float(layout.rate)
    if hops < max(float(traffic.machine.stage_latency), _GOOD_ENOUGH * whole):
        return stages
    end = last // width
    return Stages((*stages.partners, stages.partners[-1]), (*stages.weights[:-1], last - end, end), stages.line_sum, ())


def refit(
    traffic: Traffic,
    old: Sequence[tuple[int, ...]],
    served_bytes: Numbers,
    line_sum_bytes: int,
    order: str,
    tolerance: float,
) -> Staged | None:
    """Old matchings with weights for new loads, and further ones for what they leave.

    A stage that carried some part of a pair's load carries the same part of the new one.

    Args:
        old: per stage, the partner of each port.
        served_bytes: [stages x ports] what each port sent then.
        line_sum_bytes: what the old stages took in all.
        order: how they were sorted.
        tolerance: how much longer than that, growth of the busiest port allowed for, is too long.

    Returns:
        None where it takes too long, or where numbers outgrow floats.
    """
    import numpy as np

    loads = np.array(traffic.loads, dtype=traffic.queues.load.dtype)
    if loads.dtype == object or served_bytes.dtype == object:
        return None
    n, ports = len(loads), np.arange(len(loads))
    # A stage that was cut in two is one again.
    matchings = list(dict.fromkeys(old))
    partners = np.array(matchings, dtype=np.int64)
    served = np.zeros(partners.shape, dtype=np.int64)  # bytes
    place = {partner: index for index, partner in enumerate(matchings)}
    np.add.at(served, [place[partner] for partner in old], served_bytes)
    before = np.zeros((n, n))
    np.add.at(before, (ports, partners), served)
    growth = np.divide(loads, before, out=np.zeros((n, n)), where=before > 0)
    weights = np.ceil((served * growth[ports, partners]).max(axis=1)).astype(np.int64)
    given = np.zeros((n, n), dtype=np.int64)
    np.add.at(given, (ports, partners), weights[:, None])
    rest = decompose(np.maximum(loads - given, 0).tolist())
    line_sum, line_before = (max(int(one.sum(axis=0).max()), int(one.sum(axis=1).max())) for one in (loads, before))
    promised = line_sum_bytes / line_before * line_sum
    total = int(weights.sum()) + rest.line_sum
    kept = np.flatnonzero(weights)
    if total > promised * (1 + tolerance) or len(kept) + len(rest.weights) > n * n - 2 * n + 2:
        return None
    stages = Stages(
        tuple(matchings[one] for one in kept) + rest.partners,
        tuple(weights[kept].tolist()) + rest.weights,
        total,
        (),
    )
    return _staged(traffic, stages, order)
