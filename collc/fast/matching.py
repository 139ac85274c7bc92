"""Birkhoff-von-Neumann decomposition with bottleneck matchings, in whole numbers of any size.

A square matrix of loads is padded until all lines have the same sum, then taken apart into
permutations: each the perfect matching whose smallest entry is largest, subtracted by that entry.
As entries only shrink, the threshold only falls, so that one matching is the start of the next:
edges that fell below the threshold are matched anew, and the threshold falls edge by edge until
that succeeds. Sets of columns are whole numbers used as bit sets.

Source: G. Birkhoff, Tres observaciones sobre el algebra lineal, 1946; bottleneck matchings by the
    threshold method, Burkard, Dell'Amico and Martello, Assignment Problems, section 6.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Entries are made multiples of 1/16 of an average entry of the busiest line, where that is free: of 8,
# 16 and 32 the one with the fewest stages on uniform and skewed loads of 16 to 64 lines.
_GRAINS = 16


@dataclass(frozen=True)
class Stages:
    """Permutations with weights, in the order they were found (weights never rise by much).

    Attributes:
        partners: per stage and row the column matched to it.
        weights: per stage; they add to `line_sum`.
        line_sum: of the padded matrix.
        busy: per stage the largest load that really moves, when stages run in this order.
    """

    partners: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    line_sum: int
    busy: tuple[int, ...]


def decompose(loads: Sequence[Sequence[int]], quantum: int = 1) -> Stages:
    """Stages that together carry all loads.

    Args:
        loads: [n x n] with nothing on the diagonal.
        quantum: loads are rounded up to multiples of it, which makes for fewer stages.

    Complexity: at most n*n - 2n + 2 stages, each n augmentations of at most n steps.
    """
    values = [[-(-load // quantum) for load in row] for row in loads]
    line_sum = _pad(values)
    partners, weights = [], []
    for partner, weight in _matchings(values, line_sum):
        partners.append(partner)
        weights.append(weight * quantum)
    busy = busy_loads(loads, partners, weights)
    return Stages(tuple(partners), tuple(weights), line_sum * quantum, busy)


def busy_loads(
    loads: Sequence[Sequence[int]], partners: Sequence[Sequence[int]], weights: Sequence[int]
) -> tuple[int, ...]:
    """The largest load that really moves in each stage; what is on the way counts before padding."""
    left = [list(row) for row in loads]
    busy = []
    for partner, weight in zip(partners, weights, strict=True):
        most = 0
        for row, column in zip(left, partner, strict=True):
            load = row[column]
            if load:
                moved = load if load < weight else weight
                row[column] = load - moved
                if moved > most:
                    most = moved
        busy.append(most)
    return tuple(busy)


def _pad(values: list[list[int]]) -> int:
    """Raise entries until all lines add to the largest line sum; that sum.

    Idle time that a line has anyway is used first to make entries equal, then on the diagonal.
    """
    n = len(values)
    rows = [sum(row) for row in values]
    columns = [sum(column) for column in zip(*values, strict=True)]
    line_sum: int = max(*rows, *columns)
    _even_out(values, rows, columns, line_sum)
    for index in range(n):
        # A slot on the diagonal is idle; one elsewhere would look like traffic.
        idle = line_sum - max(rows[index], columns[index])
        values[index][index] += idle
        rows[index] += idle
        columns[index] += idle
    row = column = 0
    while row < n and column < n:
        fill = min(line_sum - rows[row], line_sum - columns[column])
        values[row][column] += fill
        rows[row] += fill
        columns[column] += fill
        if rows[row] == line_sum:
            row += 1
        else:
            column += 1
    return line_sum


def _even_out(values: list[list[int]], rows: list[int], columns: list[int], line_sum: int) -> None:
    """Round entries up to a common grain where their lines have the idle time for it; it costs nothing."""
    grain = line_sum // (_GRAINS * len(values))
    if grain < 2:
        return
    for index, line in enumerate(values):
        idle = line_sum - rows[index]
        for column, value in enumerate(line):
            more = -value % grain
            if value and more <= idle and columns[column] + more <= line_sum:
                line[column] = value + more
                idle -= more
                columns[column] += more
        rows[index] = line_sum - idle


def _matchings(values: list[list[int]], line_sum: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Bottleneck matchings and their weights until nothing is left; `values` is used up."""
    n = len(values)
    cells = ((value, row * n + column) for row, line in enumerate(values) for column, value in enumerate(line))
    graph = _Graph(n, [(-value, place) for value, place in cells if value])
    loose = list(range(n))
    while line_sum:
        # Last first: it makes for a few stages less than the other way round.
        for row in reversed(loose):
            graph.match(row)
        partner = graph.column_of
        weight = min([line[column] for line, column in zip(values, partner, strict=True)])
        yield tuple(partner), weight
        line_sum -= weight
        threshold = graph.threshold
        loose = []
        for row, line in enumerate(values):
            column = partner[row]
            left = line[column] - weight
            line[column] = left
            if left < threshold:
                loose.append(row)
                graph.drop(row, column, left)


class _Graph:
    """Edges at or above a threshold, and a matching on them.

    Attributes:
        threshold: the least value of an edge that is in.
        column_of: row -> its column.
    """

    def __init__(self, n: int, waiting: list[tuple[int, int]]) -> None:
        """Args: waiting: (-value, row * n + column) of all edges; none is in yet."""
        heapq.heapify(waiting)
        self._n = n
        self._waiting = waiting
        self._edges = [0] * n  # row -> bit set of columns
        self._row_of = [-1] * n
        self._free = (1 << n) - 1
        self.column_of = [-1] * n
        self.threshold = -waiting[0][0] if waiting else 0

    def drop(self, row: int, column: int, left: int) -> None:
        """Take a matched edge out; it waits to come back with what is left of it."""
        bit = 1 << column
        self._edges[row] &= ~bit
        self._free |= bit
        self.column_of[row] = self._row_of[column] = -1
        if left:
            heapq.heappush(self._waiting, (-left, row * self._n + column))

    def match(self, row: int) -> None:
        """Find a column for a free row, by an alternating path; the threshold falls as far as needed."""
        came_from: dict[int, int] = {}  # column -> row that reached it
        seen, known, is_matched = self._search(row, came_from, 0, 1 << row)
        edges, n = self._edges, self._n
        # Let edges in, the largest first, until the search that got stuck finds a free column.
        while not is_matched:
            value, place = heapq.heappop(self._waiting)
            self.threshold = -value
            row, column = divmod(place, n)
            bit = 1 << column
            edges[row] |= bit
            if known >> row & 1 and not seen & bit:
                seen, known, is_matched = self._search(row, came_from, seen, known)

    def _search(self, row: int, came_from: dict[int, int], seen: int, known: int) -> tuple[int, int, bool]:
        """Look on from a row, as far as the edges lead; the columns seen, the rows known, and whether it matched."""
        edges, row_of = self._edges, self._row_of
        reached = [row]  # rows to look from, a queue
        for one in reached:
            if at_free := edges[one] & self._free:
                self._flip(one, at_free & -at_free, came_from)
                return seen, known, True
            new = edges[one] & ~seen
            seen |= new
            while new:
                bit = new & -new
                new ^= bit
                came_from[bit] = one
                after = row_of[bit.bit_length() - 1]
                known |= 1 << after
                reached.append(after)
        return seen, known, False

    def _flip(self, row: int, bit: int, came_from: dict[int, int]) -> None:
        """Match along the path that ends with this row and a free column."""
        self._free ^= bit
        while True:
            column = bit.bit_length() - 1
            before = self.column_of[row]
            self.column_of[row] = column
            self._row_of[column] = row
            if before < 0:
                return
            bit = 1 << before
            row = came_from[bit]
