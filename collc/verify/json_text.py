"""JSON whose objects know their line and column.

Python's reader makes the values; a second look finds where each object begins. Both visit objects in
the order they stand in the text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NoReturn

_OBJECT_START = re.compile(r'"(?:[^"\\]++|\\.)*+"|(\{)', re.DOTALL)


class Entry(dict[str, Any]):
    """A JSON object.

    Attributes:
        place: line and column of its opening brace, counted from one.
    """

    place: tuple[int, int] = (1, 1)


class JsonError(Exception):
    """The text is no JSON that a strict reader takes.

    Attributes:
        message: what is wrong.
        place: line and column, counted from one.
    """

    def __init__(self, message: str, place: tuple[int, int] = (1, 1)) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


def loads(raw: bytes) -> Any:
    """The value of a text; its objects are `Entry`.

    Raises:
        JsonError: not UTF-8, not JSON, a key given twice, or nested too deeply.
    """
    try:
        text = raw.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_entry, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise JsonError(f"no UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"no JSON: {error.msg}", (error.lineno, error.colno)) from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    except ValueError as error:
        raise JsonError(f"no JSON that can be read: {error}") from None
    _place(value, text)
    return value


def _entry(pairs: list[tuple[str, Any]]) -> Entry:
    entry = Entry(pairs)
    if len(entry) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key '{twice[:60]}' is given twice")
    return entry


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"'{word}' is no JSON number")


def _place(value: Any, text: str) -> None:
    newlines = [match.start() for match in re.finditer("\n", text)]
    starts = (match.start() for match in _OBJECT_START.finditer(text) if match[1])
    for entry, start in zip(_in_order(value), starts, strict=True):
        line = bisect_left(newlines, start)
        entry.place = line + 1, start - (newlines[line - 1] if line else -1)


def _in_order(value: Any) -> Iterable[Entry]:
    """The objects of a value in the order they open; without recursion, as nesting is the author's."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, Entry):
            yield item
            left += reversed(item.values())
        elif isinstance(item, list):
            left += reversed(item)
