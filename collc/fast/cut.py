"""Queues cut at the ends of stages: which pieces every message of a stage consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collc.fast.layout import Layout
from collc.fast.spread import Queues

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = Any


@dataclass(frozen=True, eq=False)
class Messages:
    """Everything that crosses the network, message by message, each a run of pieces.

    Attributes:
        stage, lane: per message.
        count: per message [units].
        first: per message the number of its first piece; one more entry at the end.
        cell, offset, length: per piece its cell, where in the cell it begins, and its length [units].
        is_moved: per piece, whether the sender has it from another rank.
    """

    stage: NDArray[Any]
    lane: NDArray[Any]
    count: Numbers
    first: NDArray[Any]
    cell: NDArray[Any]
    offset: Numbers
    length: Numbers
    is_moved: NDArray[Any]


def pair_loads(queues: Queues, layout: Layout) -> list[list[int]]:
    """What each port has for each other, as if all its lanes were as fast as the fastest [units]."""
    load = _in_time(queues.load, layout)[layout.pair_lanes].max(axis=1) if len(queues.load) else queues.load
    n = layout.n_ports
    if not len(queues.load):
        return [[0] * n for _ in range(n)]
    load[~layout.is_outer] = 0
    loads: list[list[int]] = load.reshape(n, n).tolist()
    return loads


def _in_time(load: Numbers, layout: Layout) -> Numbers:
    """Loads of lanes as what the fastest lane carries in the same time, rounded up."""
    return load if layout.is_even else -(-load * layout.fast // layout.slow)


def cut(queues: Queues, layout: Layout, partners: Sequence[Sequence[int]], weights: Numbers) -> Messages:
    """The messages of stages that run in the order given.

    Args:
        partners: per stage and port, the port it sends to.
        weights: per stage [units of the fastest lane]; those of a pair of ports add to its load at least.
    """
    import numpy as np

    stage, lane, end = _ends(queues, layout, partners, weights)
    count = end.copy()
    count[1:] -= end[:-1]
    some = count > 0
    stage, lane, end, count = stage[some], lane[some], end[some], count[some]
    at: Numbers = np.searchsorted(queues.end, end)
    inside = queues.end[at] != end
    # Piece p is cut as often as messages end inside it; `last` is the last piece of each message.
    parts = np.bincount(at[inside], minlength=len(queues.end)) + 1
    source = np.repeat(np.arange(len(queues.end)), parts)
    last = at + np.cumsum(inside) - inside
    piece_end = np.empty(len(source), dtype=queues.end.dtype)
    piece_end[np.cumsum(parts) - 1] = queues.end
    piece_end[last] = end
    length = piece_end.copy()
    length[1:] -= piece_end[:-1]
    base = -queues.offset  # where on the line the cell's first unit would lie
    base[1:] += queues.end[:-1]
    return Messages(
        stage,
        lane,
        count,
        np.concatenate([[0], last + 1]),
        queues.cell[source],
        piece_end - length - base[source],
        length,
        queues.is_moved[source],
    )


def _ends(
    queues: Queues, layout: Layout, partners: Sequence[Sequence[int]], weights: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """(stage, lane, end on the line) of every message, along the line; some are empty."""
    import numpy as np

    n_stages, n = len(partners), layout.n_ports
    pair = (np.array(partners, dtype=np.int64).reshape(n_stages, n) + np.arange(n) * n).ravel()
    stage = np.repeat(np.arange(n_stages), n)
    kept = np.flatnonzero(layout.is_outer[pair])
    kept = kept[np.argsort(pair[kept], kind="stable")]  # by pair, then by stage
    pair, stage = pair[kept], stage[kept]
    done = np.cumsum(weights[stage])
    is_first = np.ones(len(pair), dtype=bool)
    is_first[1:] = pair[1:] != pair[:-1]
    begun = (done - weights[stage])[is_first]
    done -= begun[np.cumsum(is_first) - 1]
    lane = layout.pair_lanes[pair]
    sent = done[:, None] if layout.is_even else done[:, None] * layout.slow[lane] // layout.fast[lane]
    end = queues.lane_end[lane] - queues.load[lane] + np.minimum(queues.load[lane], sent)
    order = np.argsort(lane.ravel() * n_stages + np.repeat(stage, lane.shape[1]), kind="stable")
    return np.repeat(stage, lane.shape[1])[order], lane.ravel()[order], end.ravel()[order]
