"""Values of a topology file: quantities, computed from parameters, and the parameters themselves."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from collc.errors import InputError, Place, nearest
from collc.topology import language as words
from collc.topology.expression import FUNCTIONS, Environment, Formula, Value, parse, whole_or_fraction
from collc.topology.yaml import Item
from collc.units import parse_number


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of the file, maybe computed from parameters.

    Attributes:
        unit: what is expected, for messages.
    """

    item: Item
    formula: Formula
    unit: str

    def value(self, environment: Environment) -> int | Fraction:
        """The number.

        Raises:
            InputError: it cannot be computed, or is a list.
        """
        value = _computed(self.item, self.formula, environment)
        if isinstance(value, tuple):
            raise self.item.error(f"found the list {list(value)}; expected {self.unit}")
        return value

    def holds(self, environment: Environment) -> bool:
        """Whether it is true, which is to say not zero."""
        return self.value(environment) != 0

    def positive(self, environment: Environment, *, or_zero: bool = False) -> Fraction:
        """The number, above zero (or zero as well).

        Raises:
            InputError: it is not.
        """
        value = self.value(environment)
        if value < 0 or (value == 0 and not or_zero):
            least = "zero or more" if or_zero else "more than zero"
            raise self.item.error(f"{self.found(value)}; expected {self.unit}, {least}")
        return Fraction(value)

    def whole(self, environment: Environment, least: int) -> int:
        """The number, whole and at least `least`.

        Raises:
            InputError: it is not.
        """
        value = self.value(environment)
        if not isinstance(value, int) or value < least:
            raise self.item.error(f"{self.found(value)}; expected {self.unit}: a whole number, {least} or more")
        return value

    def found(self, value: int | Fraction) -> str:
        """The beginning of a message about a value: what is written, and what that is."""
        written, text = self.item.node.value, str(value)
        if written == text:
            return f"found {text}"
        if len(text) > 20:
            return f"found {self.item.shown}"
        return f"found '{written}', which is {text}"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of axes: a list of quantities, or a parameter that is a list."""

    item: Item
    parts: tuple[Quantity, ...] | Formula

    def values(self, environment: Environment) -> tuple[int, ...]:
        """The lengths, each 1 or more.

        Raises:
            InputError: they are not.
        """
        if isinstance(self.parts, tuple):
            return tuple(part.whole(environment, 1) for part in self.parts)
        value = _computed(self.item, self.parts, environment)
        lengths = value if isinstance(value, tuple) else (value,)
        whole = tuple(length for length in lengths if isinstance(length, int) and length > 0)
        if len(whole) != len(lengths):
            raise self.item.error(f"found {value}; expected whole numbers, 1 or more")
        return whole


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named value of a topology file.

    Attributes:
        value: in this loading.
        default: where the user sets none.
        doc, source: as the file says.
    """

    name: str
    value: Value
    default: Value
    doc: str = ""
    source: str = ""


def _computed(item: Item, formula: Formula, environment: Environment) -> Value:
    try:
        return formula(environment)
    except ValueError as error:
        raise item.error(f"'{item.node.value}': {error}") from None


def as_quantity(item: Item, unit: str) -> Quantity:
    """A number or arithmetic.

    Raises:
        InputError: neither.
    """
    if item.kind == "number":
        number = whole_or_fraction(item.number(unit))
        return Quantity(item, lambda environment: number, unit)
    text = item.text(unit)
    try:
        return Quantity(item, parse(text), unit)
    except ValueError as error:
        raise item.error(f"found {item.shown}: {error}; expected {unit}") from None


def as_lengths(item: Item) -> Lengths:
    """A list of lengths, or arithmetic that gives one.

    Raises:
        InputError: neither.
    """
    if item.kind != "list":
        return Lengths(item, as_quantity(item, "a list of lengths").formula)
    return Lengths(item, tuple(as_quantity(entry, "a length") for entry in item.entries("a list of lengths")))


def quantity_of(keys: Mapping[str, Item], key: str, unit: str) -> Quantity | None:
    """The quantity of a key, None without it."""
    return as_quantity(keys[key], unit) if key in keys else None


def required_quantity(owner: Item, keys: Mapping[str, Item], key: str, unit: str) -> Quantity:
    """The quantity of a key.

    Raises:
        InputError: there is no such key in its owner.
    """
    if key not in keys:
        raise owner.error(f"no key '{key}'; expected {unit}")
    return as_quantity(keys[key], unit)


def text_of(keys: Mapping[str, Item], key: str, what: str) -> str:
    """The text of a key, empty without it."""
    return keys[key].text(what) if key in keys else ""


# --- parameters ----------------------------------------------------------------------------------


def read_parameters(item: Item | None, overrides: Mapping[str, str], reference: str) -> tuple[Parameter, ...]:
    """The parameters with their values; a default may use the parameters above it.

    Raises:
        InputError: an override that names no parameter or is out of range.
    """
    declared = item.mapping("a mapping of names to default values") if item else {}
    for key in overrides:
        if key not in declared:
            ending = nearest(key, declared) if declared else "; it has none"
            raise InputError(f"no parameter '{key}'{ending}", Place(reference))
    environment: dict[str, Value] = {}
    found = []
    for name, entry in declared.items():
        parameter = _parameter(name, entry, environment, overrides.get(name), reference)
        environment[name] = parameter.value
        found.append(parameter)
    return tuple(found)


def _parameter(name: str, item: Item, environment: Environment, given: str | None, reference: str) -> Parameter:
    if not (name.isidentifier() and name.isascii()) or keyword.iskeyword(name) or name in FUNCTIONS:
        raise item.error(f"found the name '{name}'; expected letters, digits and '_', and no word of arithmetic")
    keys = {"default": item}
    if item.kind == "mapping":
        keys = item.fields(words.PARAMETER, "a default, or a mapping with default and doc")
    if "default" not in keys:
        raise item.error("no key 'default'; expected one")
    default = _default(keys["default"], environment)
    value = default if given is None else _override(name, given, default, reference)
    place = keys["default"].place if given is None else Place(reference)
    for fault in _out_of_range(keys, value, environment):
        raise InputError(f"parameter {name} is {fault}", place)
    doc = text_of(keys, "doc", "a sentence") if item.kind == "mapping" else ""
    return Parameter(name, value, default, doc, text_of(keys, "source", "a sentence"))


def _out_of_range(keys: Mapping[str, Item], value: Value, environment: Environment) -> Iterator[str]:
    entries = value if isinstance(value, tuple) else (value,)
    least, most = quantity_of(keys, "min", "a number"), quantity_of(keys, "max", "a number")
    if least and min(entries) < least.value(environment):
        yield f"{min(entries)}; expected at least {least.value(environment)}"
    if most and max(entries) > most.value(environment):
        yield f"{max(entries)}; expected at most {most.value(environment)}"


def _default(item: Item, environment: Environment) -> Value:
    if item.kind != "list":
        return _computed(item, as_quantity(item, "a number, or a list of whole numbers").formula, environment)
    entries = item.entries("a list")
    if not entries:
        raise item.error("found an empty list; expected at least one whole number")
    return tuple(as_quantity(entry, "a length").whole(environment, 1) for entry in entries)


def _override(name: str, text: str, default: Value, reference: str) -> Value:
    parts = text.split("x") if isinstance(default, tuple) else [text]
    try:
        values = [whole_or_fraction(parse_number(part)) for part in parts]
    except ValueError:
        values = []
    if not isinstance(default, tuple):
        if not values:
            raise InputError(f"parameter {name} is '{text}'; expected a number", Place(reference))
        return values[0]
    lengths = tuple(value for value in values if isinstance(value, int) and value > 0)
    if len(lengths) != len(default) or len(values) != len(default):
        shown = "x".join(map(str, default))
        raise InputError(f"parameter {name} is '{text}'; expected lengths such as {shown}", Place(reference))
    return lengths
