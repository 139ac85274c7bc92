"""Attributes by the rules of the runtimes' reader: what is missing, what a number means in C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from collc.errors import nearest
from collc.ir.program import Buffer, Slot
from collc.runtimes import Runtime
from collc.verify.rules import Collector
from collc.verify.xml import Element, place_of

BUFFERS = {"i": Buffer.INPUT, "o": Buffer.OUTPUT, "s": Buffer.SCRATCH}
_MAX_INT = 2**31 - 1
_KEPT = 1 << 16  # numbers and slots that are remembered


class _PlainNumbers(dict[str, int]):
    """Text -> the number, for plain decimal numbers that fit an int; a KeyError for any other."""

    def __missing__(self, text: str) -> int:
        value, is_plain = c_number(text)
        if not is_plain or not -_MAX_INT <= value <= _MAX_INT:
            raise KeyError(text)
        if len(self) < _KEPT:
            self[text] = value
        return value


class _Slots(dict[tuple[str, str], Slot]):
    """Letter of a buffer and plain offset -> the slot; a KeyError for any other."""

    def __init__(self, plain: _PlainNumbers) -> None:
        super().__init__()
        self._plain = plain

    def __missing__(self, key: tuple[str, str]) -> Slot:
        slot = Slot(BUFFERS[key[0]], self._plain[key[1]])
        if len(self) < _KEPT:
            self[key] = slot
        return slot


class Reader:
    """Takes attributes off elements and keeps what was found.

    Attributes:
        runtime: by whose rules.
        found: the findings so far.
        is_complete: whether everything needed for a program was there.
        plain: numbers as text that nothing is wrong with -> the number.
        slots: (letter of a buffer, plain offset) -> the slot.
    """

    def __init__(self, runtime: Runtime, found: Collector) -> None:
        self.runtime = runtime
        self.found = found
        self.is_complete = True
        self.plain = _PlainNumbers()
        self.slots = _Slots(self.plain)

    def text(self, element: Element, key: str) -> str | None:
        """An attribute, or None with a finding where it is missing."""
        value = element.attributes.get(key)
        if value is None:
            self.is_complete = False
            self.found.add("attribute-missing", f"<{element.tag}> has no attribute '{key}'", place=element.place)
        return value

    def number(self, element: Element, key: str, limit: int = _MAX_INT) -> int | None:
        """A whole number as the runtime reads it, or None with a finding."""
        text = element.attributes.get(key)
        if text is None:
            self.text(element, key)
            return None
        value, is_plain = c_number(text)
        if not is_plain:
            shown = text if len(text) <= 40 else text[:37] + "..."
            self.found.add(
                "xml-number",
                f'{key}="{shown}" is no plain decimal number; the runtime reads {value}',
                place=element.place,
            )
        if not -limit <= value <= limit:
            self.is_complete = False
            self.found.add("attribute-value", f"{key}={value} does not fit; the limit is {limit}", place=element.place)
            return None
        return value

    def choice(self, element: Element, key: str, known: Sequence[str]) -> str | None:
        """An attribute with one of the known values, or None with a finding."""
        value = self.text(element, key)
        if value is not None and value not in known:
            self.is_complete = False
            self.found.add("attribute-value", f"{key} '{value[:60]}'" + nearest(value[:60], known), place=element.place)
            return None
        return value


class Lines(Mapping[tuple[int, int, int], tuple[int, int]]):
    """(rank, threadblock, step) -> line and column, worked out only where a finding asks for it."""

    def __init__(self, ends: Sequence[int]) -> None:
        self.offsets: dict[int, list[list[int]]] = {}
        self._ends = ends

    def __getitem__(self, where: tuple[int, int, int]) -> tuple[int, int]:
        rank, block, step = where
        blocks = self.offsets[rank]
        if not (0 <= block < len(blocks) and 0 <= step < len(blocks[block])):
            raise KeyError(where)
        return place_of(blocks[block][step], self._ends)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for rank, blocks in self.offsets.items():
            for block, steps in enumerate(blocks):
                yield from ((rank, block, step) for step in range(len(steps)))

    def __len__(self) -> int:
        return sum(len(steps) for blocks in self.offsets.values() for steps in blocks)


@lru_cache(maxsize=65536)
def c_number(text: str) -> tuple[int, bool]:
    """A number by the rules of C with base detection, and whether it is written as a plain decimal.

    >>> c_number("12"), c_number("-1"), c_number("010"), c_number("0x1F"), c_number("7up"), c_number("x")
    ((12, True), (-1, True), (8, False), (31, False), (7, False), (0, False))
    """
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and (digits[0] != "0" or text == "0") and len(digits) < 20:
        return int(text), True
    head = text.lstrip(" \t\n\v\f\r")
    sign = -1 if head.startswith("-") else 1
    head = head[1:] if head[:1] in ("-", "+") else head
    base = 16 if head[:2].lower() == "0x" else 8 if head[:1] == "0" else 10
    head = head[2:] if base == 16 else head
    value = 0
    for letter in head[:24]:
        digit = "0123456789abcdef".find(letter.lower())
        if not 0 <= digit < base:
            break
        value = value * base + digit
    return sign * value, False
