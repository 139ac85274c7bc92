"""Rebalancing inside the source host: every lane of a tile gets its share, with little moved for it.

A rank that has more for another host than its lanes' share hands the first of its bytes to ranks that
have less. What a lane carries then lies in a queue: its own bytes in the rotating order of
destinations, but what was handed in before the last of them, the opposite GPU's own. So the beginning
of a queue needs nothing from others, and its end no second hop.

Everything lies on one line, tile after tile, so that cutting it is a search in sorted numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collc.fast.layout import Layout

if TYPE_CHECKING:
    # 64-bit whole numbers, or Python's where those would overflow.
    Numbers = Any


@dataclass(frozen=True, eq=False)
class Queues:
    """What the lanes carry, as pieces of cells on one line.

    Attributes:
        cell: per piece its cell, in the layout's numbering.
        offset: where in the cell it begins [units].
        end: where on the line it ends [units].
        is_moved: whether another rank hands it in.
        lane_end: per lane, where on the line it ends [units].
        load: per lane [units].
    """

    cell: Numbers
    offset: Numbers
    end: Numbers
    is_moved: Numbers
    lane_end: Numbers
    load: Numbers


def spread(counts: Numbers, layout: Layout) -> Queues:
    """The queues of all lanes.

    Args:
        counts: per cell [units].
    """
    import numpy as np

    end = np.cumsum(counts)
    row_end = end[layout.cells[1:] - 1]
    row_total = _differences(row_end)
    load = _shares(row_end, layout)
    lane_end = np.cumsum(load)
    target = np.diff(np.concatenate([load[:0], [0], lane_end])[layout.lanes])
    excess = row_total - target
    # The first bytes of a row are handed away.
    until = row_end - row_total + np.maximum(excess, 0)
    moved = np.minimum(np.maximum(np.repeat(until, np.diff(layout.cells)) - (end - counts), 0), counts)
    kept = counts - moved
    hand = _hand_over(moved, np.maximum(-excess, 0))
    return _queued(kept, moved, hand, layout, lane_end, load)


def _differences(ends: Numbers) -> Numbers:
    made = ends.copy()
    made[1:] -= ends[:-1]
    return made


def _shares(row_end: Numbers, layout: Layout) -> Numbers:
    """Per lane its share of the tile, rounded so that the shares add up."""
    import numpy as np

    total = _differences(row_end[layout.tile_rows[1:] - 1])
    tile = layout.row_tile[np.repeat(np.arange(len(row_end)), np.diff(layout.lanes))]
    each = total[tile] // layout.whole
    rest = total[tile] - each * layout.whole
    ahead = rest * layout.before
    return each * layout.share + (ahead + rest * layout.share) // layout.whole - ahead // layout.whole


def _hand_over(moved: Numbers, missing: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """(cell, offset, count, receiving row) of what is handed over: two cuts of one line, merged."""
    import numpy as np

    cell, row = np.flatnonzero(moved), np.flatnonzero(missing)
    given, taken = np.cumsum(moved[cell]), np.cumsum(missing[row])
    end = np.concatenate([given, taken])
    end.sort()
    end = end[np.concatenate([end[:-1] != end[1:], np.ones(min(len(end), 1), dtype=bool)])]
    count = _differences(end)
    giver = np.searchsorted(given, end)
    offset = end - count - (given - moved[cell])[giver]
    return cell[giver], offset, count, row[np.searchsorted(taken, end)]


def _queued(
    kept: Numbers,
    moved: Numbers,
    hand: tuple[Numbers, Numbers, Numbers, Numbers],
    layout: Layout,
    lane_end: Numbers,
    load: Numbers,
) -> Queues:
    """The pieces in the order of the queues."""
    import numpy as np

    own = np.flatnonzero(kept)
    cell, offset, count, row = hand
    last = layout.cells[1:][row] - 1
    at = np.searchsorted(own, last) + np.arange(len(cell))
    is_moved = np.zeros(len(own) + len(cell), dtype=bool)
    is_moved[at] = True
    columns = []
    for of_own, of_hand in ((own, cell), (moved[own], offset), (kept[own], count)):
        column = np.empty(len(is_moved), dtype=of_own.dtype)
        column[at] = of_hand
        column[~is_moved] = of_own
        columns.append(column)
    return Queues(columns[0], columns[1], np.cumsum(columns[2]), is_moved, lane_end, load)
