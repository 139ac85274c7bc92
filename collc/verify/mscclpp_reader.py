"""Values off the objects of an MSCCL++ plan: what is missing, and what is of another type than the loader reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from collc.errors import nearest
from collc.runtimes.plans import PlanRuntime
from collc.verify.json_text import Entry
from collc.verify.rules import Collector

_TYPES: dict[type, str] = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
_MAX_INT = 2**64 - 1


class PlanReader:
    """Takes values off objects and keeps what was found.

    Attributes:
        runtime: by whose rules.
        found: the findings so far.
    """

    def __init__(self, runtime: PlanRuntime, found: Collector) -> None:
        self.runtime = runtime
        self.found = found

    def tell(self, rule: str, message: str, entry: Entry) -> None:
        """Keep a finding at an object."""
        self.found.add(rule, message, place=entry.place)

    def number(self, entry: Entry, key: str, default: int | None = None, *, least: int = 0) -> int | None:
        """A whole number of at least `least`; None with a finding where it is missing or something else."""
        value: int | None = self._value(entry, key, int, default)
        if value is not None and not least <= value <= _MAX_INT:
            self.tell("plan-value", f"{key} is {_shown(value)}; expected {least} or more, in 64 bits", entry)
            return None
        return value

    def flag(self, entry: Entry, key: str, default: bool | None = None) -> bool | None:
        """True or false; None with a finding where it is missing or something else."""
        value: bool | None = self._value(entry, key, bool, default)
        return value

    def text(self, entry: Entry, key: str) -> str | None:
        """A text; None with a finding where it is missing or something else."""
        value: str | None = self._value(entry, key, str, None)
        return value

    def word(self, entry: Entry, key: str, known: Collection[str], rule: str = "plan-value") -> str | None:
        """A text that is one of the known words; None with a finding otherwise."""
        word = self.text(entry, key)
        return None if word is None else self._known(entry, key, word, known, rule)

    def words(self, entry: Entry, key: str, known: Collection[str]) -> tuple[str, ...]:
        """A list of known words; what is none is left out, with a finding."""
        listed = self._value(entry, key, list, None) or []
        told = [self._known(entry, key, str(word), known, "plan-value") for word in listed]
        return tuple(word for word in told if word is not None)

    def _known(self, entry: Entry, key: str, word: str, known: Collection[str], rule: str) -> str | None:
        if word in known:
            return word
        now = self.runtime.former_words.get(word)
        if now in known:
            self.tell("plan-former-word", f"{key} '{word}': called '{now}' since 0.8", entry)
        else:
            self.tell(rule, f"{key} '{word[:40]}'{nearest(word[:40], known)}", entry)
        return None

    def entries(self, entry: Entry, key: str, *, optional: bool = False) -> list[Entry]:
        """A list of objects; what is none is left out, with a finding."""
        listed = self._value(entry, key, list, [] if optional else None) or []
        wrong = sum(not isinstance(item, Entry) for item in listed)
        if wrong:
            self.tell("plan-value", f"{key} holds {wrong} entries that are no objects", entry)
        return [item for item in listed if isinstance(item, Entry)]

    def numbers(self, entry: Entry, key: str) -> list[int]:
        """A list of whole numbers; what is none is left out, with a finding."""
        listed = self._value(entry, key, list, None) or []
        good = [item for item in listed if type(item) is int and abs(item) <= _MAX_INT]
        if len(good) < len(listed):
            self.tell("plan-value", f"{key} holds {len(listed) - len(good)} entries that are no whole numbers", entry)
        return good

    def _value(self, entry: Entry, key: str, kind: type, default: Any) -> Any:
        if key not in entry:
            if default is None:
                self.tell("plan-key-missing", f"key '{key}' is not there; the loader reads it", entry)
            return default
        value = entry[key]
        # In Python, true is an int as well.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.tell("plan-value", f"{key} is {_shown(value)}; expected {_TYPES[kind]}", entry)
            return None
        return value


def _shown(value: Any) -> str:
    if isinstance(value, Entry | list):
        return "an object" if isinstance(value, Entry) else "a list"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of more than 30 digits"
    return text if len(text) <= 40 else text[:37] + "..."
