"""YAML 1.2 text as a tree of items that know their place.

PyYAML only splits the text; what a scalar means is decided here by the YAML 1.2 core rules, so
`18:00` and `no` are texts and `010` is ten, and numbers are exact. Items are read on demand: the
reader of a format asks for what it expects, so an alias repeated a billion times is an error of
type or a bounded walk, never a billion values.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from collc.errors import InputError, Place, nearest
from collc.units import parse_number

# YAML 1.2.2, section 10.3.2: the core schema.
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NUMBER = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_BASED = re.compile(r"0o[0-7]{1,60}|0x[0-9a-fA-F]{1,60}", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Item:
    """One value of the text, with its place.

    Attributes:
        node: what PyYAML found.
        file: as the user named it.
        parent: the mapping or list it stands in.
        label: its key or index there.
    """

    node: Any
    file: str
    parent: Item | None = None
    label: str | int = ""

    @property
    def key(self) -> str:
        """The way from the top, such as `links[3].bandwidth`."""
        if self.parent is None:
            return ""
        above = self.parent.key
        if isinstance(self.label, int):
            return f"{above}[{self.label}]"
        label = _cut_short(self.label)
        return f"{above}.{label}" if above else label

    @property
    def place(self) -> Place:
        """Where it begins."""
        return self._place(self.node, self.key)

    def _place(self, node: Any, key: str) -> Place:
        mark = node.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1, key or None)

    def error(self, message: str) -> InputError:
        """An error at this place."""
        return InputError(message, self.place)

    @property
    def kind(self) -> str:
        """`mapping`, `list`, `nothing`, `truth value`, `number` or `text`."""
        if self.node.id != "scalar":
            return "list" if self.node.id == "sequence" else "mapping"
        if self.node.style:  # quoted
            return "text"
        text = self.node.value
        if text in _NULL:
            return "nothing"
        if text in _BOOLEAN:
            return "truth value"
        numeric = _NUMBER.fullmatch(text) or _BASED.fullmatch(text) or _NOT_FINITE.fullmatch(text)
        return "number" if numeric else "text"

    @property
    def shown(self) -> str:
        """The value for an error message, cut short."""
        match self.kind:
            case "list" | "mapping" | "nothing" as kind:
                return f"a {kind}" if kind != "nothing" else "nothing"
        return f"'{_cut_short(self.node.value)}'"

    def fields(self, known: Collection[str], what: str) -> dict[str, Item]:
        """The entries of a mapping whose keys are `known`.

        Raises:
            InputError: not a mapping, an unknown key, a key given twice.
        """
        found = self.mapping(what)
        for key in found:
            if key not in known:
                raise InputError(f"unknown key '{_cut_short(key)}'{nearest(key[:100], known)}", self._key_place(key))
        return found

    def mapping(self, what: str) -> dict[str, Item]:
        """The entries of a mapping with keys of the user's own.

        Raises:
            InputError: not a mapping, a key that is no text, a key given twice.
        """
        if self.node.id != "mapping":
            raise self.error(f"found {self.shown}; expected {what}")
        _check_tag(self, "map")
        found: dict[str, Item] = {}
        for name, value in self.node.value:
            if name.id != "scalar":
                raise InputError(
                    "found a key that is a list or a mapping; expected a word", self._place(name, self.key)
                )
            key = name.value
            if key in found:
                place = self._place(name, Item(name, self.file, self, key).key)
                first = found[key].node.start_mark.line + 1
                raise InputError(f"key '{key}' is given twice (first in line {first}); expected it once", place)
            found[key] = Item(value, self.file, self, key)
        return found

    def _key_place(self, key: str) -> Place:
        name = next(name for name, _ in self.node.value if name.value == key)
        return self._place(name, Item(name, self.file, self, key).key)

    def entries(self, what: str) -> list[Item]:
        """The entries of a list.

        Raises:
            InputError: not a list.
        """
        if self.node.id != "sequence":
            raise self.error(f"found {self.shown}; expected {what}")
        _check_tag(self, "seq")
        return [Item(node, self.file, self, index) for index, node in enumerate(self.node.value)]

    def text(self, what: str) -> str:
        """A text, or a number as it is written.

        Raises:
            InputError: something else.
        """
        if self.kind not in ("text", "number"):
            raise self.error(f"found {self.shown}; expected {what}")
        _check_tag(self, "str")
        return str(self.node.value)

    def truth(self, what: str) -> bool:
        """True or false.

        Raises:
            InputError: something else.
        """
        if self.kind != "truth value":
            raise self.error(f"found {self.shown}; expected {what}: true or false")
        return _BOOLEAN[self.node.value]

    def number(self, what: str) -> Fraction:
        """A number, exactly as written.

        Raises:
            InputError: something else, infinity, or no number at all.
        """
        text = self.node.value if self.node.id == "scalar" else ""
        if self.kind != "number" or _NOT_FINITE.fullmatch(text):
            raise self.error(f"found {self.shown}; expected {what}")
        _check_tag(self, "str")
        if _BASED.fullmatch(text):
            return Fraction(int(text, 0))
        try:
            return parse_number(text)
        except ValueError:
            raise self.error(f"found {self.shown}; expected {what} of a sensible length") from None


def _cut_short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _check_tag(item: Item, name: str) -> None:
    if item.node.tag not in (_TAG + name, None):
        raise item.error(f"found the tag '{item.node.tag}'; expected a value without a tag")


def compose(text: str, file: str) -> Item:
    """The tree of one YAML document.

    Raises:
        InputError: not YAML, empty, or more than one document.
    """
    import yaml  # here, so that commands that read no topology do not pay for it

    # libyaml refuses nesting deeper than 1000 levels by itself; the pure reader recurses.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise InputError(f"not YAML: {error.problem or error.context}", place) from None
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {_unreadable(error)}", _spot(text, file, error)) from None
    except UnicodeEncodeError:
        raise InputError("not YAML: half of a character pair; expected printable text", Place(file)) from None
    except RecursionError:
        raise InputError("not YAML that can be read: nested too deeply", Place(file)) from None
    if node is None:
        raise InputError("the file is empty; `collc topo new` prints an example to start from", Place(file))
    return Item(node, file)


def _unreadable(error: Any) -> str:
    character = getattr(error, "character", None)
    if isinstance(character, int):
        return f"character U+{character:04X} is not allowed; expected printable text"
    return str(getattr(error, "reason", error)).splitlines()[0]


def _spot(text: str, file: str, error: Any) -> Place:
    position = getattr(error, "position", None)
    if not isinstance(position, int):
        return Place(file)
    before = text[:position]
    return Place(file, before.count("\n") + 1, position - before.rfind("\n"))


def choose(item: Item, known: Collection[str]) -> str:
    """A text that is one of `known`.

    Raises:
        InputError: another one; names the nearest.
    """
    word = item.text("one of " + ", ".join(sorted(known)))
    if word not in known:
        raise item.error(f"found {item.shown}{nearest(word[:100], known)}")
    return word
