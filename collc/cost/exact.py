"""Linear programs with exact answers: a corner is found in floating point, then computed again in fractions.

Nothing is taken from the floating-point answer but which variables and rows make up the corner. What
comes out is checked: all rows hold, and the prices of the rows prove that nothing is better.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from collc.solve import Simplex

# (coefficient, variable)
Terms = Sequence[tuple[int, int]]


class Corner(NamedTuple):
    """An optimal solution.

    Attributes:
        values: by variable.
        prices: by row; what one more of its right-hand side is worth. Zero or more, but at equations.
    """

    values: list[Fraction]
    prices: list[Fraction]


class _Row(NamedTuple):
    terms: Terms
    high: int
    equal: bool

    def holds(self, values: Sequence[Fraction]) -> bool:
        total = sum(factor * values[index] for factor, index in self.terms)
        return total == self.high if self.equal else total <= self.high


class ExactProgram:
    """The most of an objective over x >= 0 under rows of whole numbers, which may be added at any time.

    Args:
        objective: by variable.
        unit: a right-hand side of middling size.
    """

    def __init__(self, objective: Sequence[int], unit: int) -> None:
        self._objective = objective
        self._rows: list[_Row] = []
        self._simplex = Simplex(objective, unit)

    def set_objective(self, objective: Sequence[int]) -> None:
        """Ask for the most of something else."""
        self._objective = objective
        self._simplex.set_objective(objective)

    def add_row(self, terms: Terms, high: int, *, equal: bool = False) -> None:
        """Require the sum of coefficient x variable to be at most `high`, or equal to it."""
        self._rows.append(_Row(terms, high, equal))
        self._simplex.add_row(terms, high, equal=equal)

    def solve(self) -> list[float] | None:
        """Values near an optimal corner; None where the solver comes to none."""
        return self._simplex.solve()

    def corner(self) -> Corner | None:
        """The corner last found, exactly; None where it is not optimal after all."""
        variables, tight = self._simplex.basis()
        place = {variable: column for column, variable in enumerate(variables)}
        rows = [{place[index]: factor for factor, index in self._rows[row].terms if index in place} for row in tight]
        columns: list[dict[int, int]] = [{} for _ in variables]
        for number, row in enumerate(rows):
            for column, factor in row.items():
                columns[column][number] = factor
        found = solve_exactly(rows, [self._rows[row].high for row in tight])
        priced = solve_exactly(columns, [self._objective[variable] for variable in variables])
        if found is None or priced is None:
            return None
        corner = Corner(
            _spread(found, variables, len(self._objective)),
            _spread(priced, tight, len(self._rows)),
        )
        return corner if self._is_optimal(corner) else None

    def _is_optimal(self, corner: Corner) -> bool:
        """Whether it satisfies all rows, and its prices leave nothing to gain (weak duality)."""
        if any(value < 0 for value in corner.values) or not all(row.holds(corner.values) for row in self._rows):
            return False
        gains = [Fraction(gain) for gain in self._objective]
        worth = Fraction(0)
        for row, price in zip(self._rows, corner.prices, strict=True):
            if not price:
                continue
            if price < 0 and not row.equal:
                return False
            worth += price * row.high
            for factor, index in row.terms:
                gains[index] -= price * factor
        reached = sum(gain * value for gain, value in zip(self._objective, corner.values, strict=True))
        return all(gain <= 0 for gain in gains) and worth == reached


def _spread(values: Sequence[Fraction], places: Sequence[int], length: int) -> list[Fraction]:
    spread = [Fraction(0)] * length
    for place, value in zip(places, values, strict=True):
        spread[place] = value
    return spread


def solve_exactly(rows: Sequence[dict[int, int]], right: Sequence[int]) -> list[Fraction] | None:
    """The solution of a square system; None where it has none or several.

    Corners of programs on graphs are sparse and almost triangular: the row with the fewest entries is
    used first, and within it the column with the fewest, so that little fills in.

    Args:
        rows: column -> coefficient.
    """
    if rows and len(rows) != 1 + max((column for row in rows for column in row), default=-1):
        return None
    left = _Elimination(rows, right)
    steps = [step for _ in rows if (step := left.step()) is not None]
    if len(steps) < len(rows):
        return None
    values = [Fraction(0)] * len(rows)
    for row, column in reversed(steps):
        entries = left.rows[row]
        known = sum(factor * values[other] for other, factor in entries.items() if other != column)
        values[column] = (left.right[row] - known) / entries[column]
    return values


class _Elimination:
    """Gaussian elimination by sparse rows."""

    def __init__(self, rows: Sequence[dict[int, int]], right: Sequence[int]) -> None:
        self.rows = [{column: Fraction(factor) for column, factor in row.items()} for row in rows]
        self.right = [Fraction(value) for value in right]
        self._holders: list[set[int]] = [set() for _ in rows]
        for number, row in enumerate(self.rows):
            for column in row:
                self._holders[column].add(number)
        self._waiting = [(len(row), number) for number, row in enumerate(self.rows)]
        self._used: set[int] = set()
        heapq.heapify(self._waiting)

    def step(self) -> tuple[int, int] | None:
        """Use one row to clear a column from those that are left; None where no row has anything left."""
        while True:
            length, number = heapq.heappop(self._waiting)
            row = self.rows[number]
            if number in self._used or length != len(row):
                continue
            if not row:
                return None
            break
        self._used.add(number)
        column = min(row, key=lambda one: (len(self._holders[one]), one))
        for one in row:
            self._holders[one].discard(number)
        for other in sorted(self._holders[column]):
            self._subtract(number, column, other)
            heapq.heappush(self._waiting, (len(self.rows[other]), other))
        return number, column

    def _subtract(self, number: int, column: int, other: int) -> None:
        row, target = self.rows[number], self.rows[other]
        times = target[column] / row[column]
        for one, factor in row.items():
            value = target.get(one, 0) - times * factor
            if one == column or not value:
                target.pop(one, None)
                self._holders[one].discard(other)
            else:
                target[one] = value
                self._holders[one].add(other)
        self.right[other] -= times * self.right[number]
