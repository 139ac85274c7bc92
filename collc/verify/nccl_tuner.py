"""Tuner tables: a strict grammar for lines, as what readers make of anything else is a surprise.

A line says: this collective, at these sizes, on this many hosts and ranks, runs with this algorithm,
protocol and number of channels. What lines do together is in `tuner_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from collc.errors import nearest
from collc.runtimes.tuners import Dialect
from collc.verify.findings import Finding
from collc.verify.rules import Collector
from collc.verify.tuner_lines import Line, check_coverage, check_overlaps

MAX_BYTES = 16 << 20
_INT32_END = 2**32 - 1  # written where no end is meant
_PLAIN = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)
_PARTITIONS = ("any", "spx", "cpx")
# Columns that say which calls a line is for, and the least number each may hold.
_WHEN = {"nNodes": 1, "nRanks": 1, "numPipeOps": 1, "regBuff": 0, "partitionMode": 0, "localGroup": 0}


@dataclass(frozen=True)
class Table:
    """A tuner table.

    Attributes:
        lines: those that are read as they were meant, in order.
    """

    lines: tuple[Line, ...]


def examine(text: bytes, dialect: Dialect) -> tuple[Table, tuple[Finding, ...]]:
    """A table by the rules of a dialect, and what is wrong with it."""
    found = Collector()
    if len(text) > MAX_BYTES:
        found.add("tuner-long-line", f"the file has {len(text)} bytes; expected at most {MAX_BYTES}", place=(1, 1))
        return Table(()), found.findings()
    reader = _Reader(dialect, found)
    lines = tuple(reader.lines(text.decode("utf-8", "replace")))
    if not reader.n_read:
        found.add("tuner-no-lines", "no line of the table is left once comments are taken out", place=(1, 1))
    check_overlaps(lines, dialect, found)
    if dialect.no_channels == "one" and reader.n_read:
        check_coverage(lines, dialect, found)
    return Table(lines), found.findings()


class _Reader:
    """Reads lines by the rules of a dialect.

    Attributes:
        n_read: lines that are neither empty nor a comment.
    """

    def __init__(self, dialect: Dialect, found: Collector) -> None:
        self.n_read = 0
        self._dialect = dialect
        self._found = found
        self._place = (1, 1)
        self._is_good = True

    def lines(self, text: str) -> Iterator[Line]:
        """The lines that do what they say."""
        for number, line in enumerate(text.split("\n"), start=1):
            line = line.removesuffix("\r")
            self._place = (number, 1)
            if len(line) > self._dialect.max_line:
                self._tell("tuner-long-line", f"{len(line)} characters; {self._dialect.max_line} are read at once")
            if not line.strip() or line.startswith("#"):
                continue
            read = self._line(line)
            if read is not None:
                yield read

    def _tell(self, rule: str, message: str, column: int = 1) -> None:
        self._is_good = self._is_good and rule in ("tuner-one-channel", "tuner-infinity")
        self._found.add(rule, message, place=(self._place[0], column))

    def _line(self, text: str) -> Line | None:
        dialect = self._dialect
        self._is_good = True
        if "#" in text:
            self._tell("tuner-comment", "a '#' that is not in the first column", text.index("#") + 1)
            if text.lstrip().startswith("#"):
                return None
            text = text.partition("#")[0].rstrip()
        self.n_read += 1
        words = text.split(",")
        if words[0].strip() in ("collective_type", "collective"):
            self._tell("tuner-header", f"a header; it is read as a line: {self._taken_for('collective_type')}")
            return None
        empty = next((at for at, word in enumerate(words) if not word.strip()), None)
        if empty is not None:
            what = "those behind it move up" if dialect.empty_field == "shifts" else "the line is left out"
            self._tell("tuner-empty-field", f"field {empty + 1} is empty; {what}", self._column(words, empty))
            return None
        if not dialect.n_required <= len(words) <= len(dialect.columns):
            span = f"{dialect.n_required} to {len(dialect.columns)}"
            self._tell("tuner-columns", f"{len(words)} fields; expected {span}: {','.join(dialect.columns)}")
            return None
        return self._fields(words)

    def _fields(self, words: list[str]) -> Line | None:
        dialect = self._dialect
        named = zip(dialect.columns, words, strict=False)
        columns = {name: (word, self._column(words, at)) for at, (name, word) in enumerate(named)}
        collective = self._word(columns, "collective_type", tuple(dialect.collectives.values()))
        low = self._number(columns, "min_bytes", 0, dialect.infinity)
        high = self._number(columns, "max_bytes", 0, dialect.infinity)
        algorithm = self._word(columns, "algorithm", tuple(dialect.algorithms))
        protocol = self._word(columns, "protocol", dialect.protocols)
        self._check_channels(columns)
        when = tuple(self._when(columns, name) for name in dialect.columns[6:])
        if high == _INT32_END:
            self._tell("tuner-infinity", f"max_bytes={high}; larger calls pass it over", columns["max_bytes"][1])
        if low is not None and high is not None and low > high:
            self._tell("tuner-range", f"min_bytes={low} is above max_bytes={high}", columns["min_bytes"][1])
        if collective and algorithm and protocol:
            self._check_exists(collective, algorithm, protocol, columns["algorithm"][1])
        if not self._is_good or low is None or high is None:
            return None
        return Line(self._place[0], collective or "", low, high, f"{algorithm}/{protocol}", when)

    def _word(self, columns: dict[str, tuple[str, int]], name: str, known: tuple[str, ...]) -> str | None:
        word, column = columns[name]
        if word in known:
            return word
        message = f"{name} '{word[:40]}'{nearest(word[:40], known)}; {self._taken_for(name)}"
        self._tell("tuner-word", message, column)
        return None

    def _taken_for(self, name: str) -> str:
        if self._dialect.unknown_word == "skipped":
            return "the line is left out"
        return f"the reader takes it for {self._dialect.defaults[name]}"

    def _number(self, columns: dict[str, tuple[str, int]], name: str, least: int, most: int) -> int | None:
        word, column = columns[name]
        value = -1 if word == "-1" and least < 0 else int(word) if _PLAIN.fullmatch(word) else None
        if value is None or not least <= value <= most:
            wild = "-1 or " if least < 0 else ""
            span = f"{wild}a whole number from {max(least, 0)} to {most}"
            self._tell("tuner-number", f"{name} '{word[:40]}'; expected {span}", column)
            return None
        return value

    def _check_channels(self, columns: dict[str, tuple[str, int]]) -> None:
        dialect, column = self._dialect, columns["channels"][1]
        channels = self._number(columns, "channels", -1, 2**31 - 1)
        if channels == -1 and dialect.no_channels == "one":
            self._tell("tuner-one-channel", "channels=-1; this reader makes it 1, so say how many", column)
        elif channels == 0 or (channels or 0) > dialect.max_channels:
            message = f"channels={channels}; the library has 1 to {dialect.max_channels}"
            self._tell("tuner-channels", message, column)

    def _when(self, columns: dict[str, tuple[str, int]], name: str) -> str | None:
        """What a line asks of a call; None where anything will do."""
        if name not in columns:
            return None
        word, column = columns[name]
        if name == "partitionMode":
            if word not in ("-1", *_PARTITIONS):
                self._tell("tuner-word", f"{name} '{word[:40]}'{nearest(word[:40], _PARTITIONS)}", column)
            return None if word in ("-1", "any") else word
        value = self._number(columns, name, -1, 1 if name == "regBuff" else 2**31 - 1)
        if value is not None and 0 <= value < _WHEN[name]:
            self._tell("tuner-number", f"{name} '{word}'; expected -1 or {_WHEN[name]} and more", column)
        return None if value in (-1, None) else str(value)

    def _check_exists(self, collective: str, algorithm: str, protocol: str, column: int) -> None:
        protocols = self._dialect.algorithms[algorithm].get(collective, ())
        if protocol in protocols:
            return
        known = [name for name, table in self._dialect.algorithms.items() if collective in table]
        there = f"{algorithm} with {', '.join(protocols)}" if protocols else ", ".join(known)
        message = f"{collective} with {algorithm}/{protocol} does not exist; the library has {there}"
        self._tell("tuner-unavailable", message, column)

    @staticmethod
    def _column(words: list[str], at: int) -> int:
        return sum(len(word) + 1 for word in words[:at]) + 1
