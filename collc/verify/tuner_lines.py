"""What the lines of a tuner table do together: which calls two of them claim, and which none does.

A line stands for a box of calls: an interval of sizes, and for each further column one value or any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collc.runtimes.tuners import Dialect
from collc.verify.rules import Collector

_PAIRS = 1 << 19  # pairs of lines that are compared; a table of a thousand lines has as many
_TOLD = 3  # overlaps of a line that are told
_CONTEXTS = 128  # kinds of call that a collective is looked at for
_LARGEST_CALL = 1 << 48  # [bytes]; no call is larger
_GAPS = 2  # gaps that are named for each kind of call
_KINDS = 3  # kinds of call that are named for each collective

When = tuple[str | None, ...]


@dataclass(frozen=True)
class Line:
    """A line that is read as it was meant.

    Attributes:
        number: counted from one.
        low, high: sizes it serves, both inclusive [bytes].
        choice: what it chooses, as ALGORITHM/PROTOCOL.
        when: what each further column asks for; None where anything will do.
    """

    number: int
    collective: str
    low: int
    high: int
    choice: str
    when: When


def check_overlaps(lines: Sequence[Line], dialect: Dialect, found: Collector) -> None:
    """Lines that serve the same calls, with the winner named, and lines that never apply."""
    earlier: dict[int, list[Line]] = {}
    for left, right in _pairs(lines, found):
        first, second = sorted((left, right), key=lambda line: line.number)
        earlier.setdefault(second.number, []).append(first)
    for line in lines:
        before = earlier.get(line.number, [])
        wider = [other for other in before if _covers(other.when, line.when)]
        if dialect.first_wins and wider and not list(_gaps(wider, line.low, line.high)):
            numbers = ", ".join(str(other.number) for other in wider[:4])
            message = f"line {numbers} serves all its calls first, with {wider[0].choice}"
            found.add("tuner-shadowed", message, place=(line.number, 1))
            continue
        for other in before[:_TOLD]:
            low, high = max(line.low, other.low), min(line.high, other.high)
            winner = (
                f"line {other.number} wins with {other.choice}" if dialect.first_wins else "which wins is not known"
            )
            where = _calls(dialect, tuple(a or b for a, b in zip(line.when, other.when, strict=True)))
            message = (
                f"{line.collective} of {low} to {high} bytes{where} is also served by line {other.number}; {winner}"
            )
            found.add("tuner-overlap", message, place=(line.number, 1))


def _pairs(lines: Sequence[Line], found: Collector) -> Iterator[tuple[Line, Line]]:
    """Pairs of lines with a call in common."""
    looked = 0
    active: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: (line.low, line.number)):
        before = [other for other in active.get(line.collective, ()) if other.high >= line.low]
        looked += len(before)
        if looked > _PAIRS:
            found.add("not-judged", f"from line {line.number} on, more lines than are compared", place=(line.number, 1))
            return
        yield from ((other, line) for other in before if _meet(other.when, line.when))
        active[line.collective] = [*before, line]


def _meet(left: When, right: When) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(left, right, strict=True))


def _covers(wide: When, narrow: When) -> bool:
    return all(a is None or a == b for a, b in zip(wide, narrow, strict=True))


def check_coverage(lines: Sequence[Line], dialect: Dialect, found: Collector) -> None:
    """Calls that no line serves, for readers that do not leave those alone."""
    anything: When = (None,) * len(dialect.columns[6:])
    for collective in dialect.collectives.values():
        mine = [line for line in lines if line.collective == collective]
        kinds = dict.fromkeys((anything, *(line.when for line in mine)))
        open_calls = []
        # Each takes a walk through all lines of the collective.
        for kind in list(kinds)[: max(1, min(_CONTEXTS, _PAIRS // max(len(mine), 1)))]:
            gaps = list(_gaps((line for line in mine if _covers(line.when, kind)), 0, _LARGEST_CALL))
            if gaps:
                spans = ", ".join(
                    f"{low} to {high}" if high < _LARGEST_CALL else f"{low} up" for low, high in gaps[:_GAPS]
                )
                more = f" and {len(gaps) - _GAPS} more ranges" if len(gaps) > _GAPS else ""
                open_calls.append(f"{spans}{more} bytes{_calls(dialect, kind) or ' in general'}")
        if open_calls:
            told = "; ".join(open_calls[:_KINDS])
            more = f"; and {len(open_calls) - _KINDS} more kinds of call" if len(open_calls) > _KINDS else ""
            found.add("tuner-uncovered", f"{collective} has no line for {told}{more}", place=(1, 1))


def _calls(dialect: Dialect, when: When) -> str:
    named = [f"{name}={value}" for name, value in zip(dialect.columns[6:], when, strict=True) if value is not None]
    return f" with {', '.join(named)}" if named else ""


def _gaps(lines: Iterable[Line], low: int, high: int) -> Iterator[tuple[int, int]]:
    """The parts of an interval that no line reaches."""
    for line in sorted(lines, key=lambda line: line.low):
        if line.low > high:
            break
        if line.low > low:
            yield low, line.low - 1
        low = max(low, line.high + 1)
    if low <= high:
        yield low, high
