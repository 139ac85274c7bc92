"""One stable JSON form for every level: `dumps` and `loads`.

A document is `{"collc": VERSION, "kind": "Program", ...fields}`. Fractions are written "p/q", enums
by value, `Places` and `AllPairs` as their rule, so the text of a problem of 1024 ranks stays small. The
round trip is exact, and equal values give equal text.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any

from collc.errors import InputError, nearest
from collc.ir.collective import Places, Problem
from collc.ir.flow import Cut, FlowSchedule, Prices
from collc.ir.forest import ARRAYS, Forest
from collc.ir.orbit import Orbit
from collc.ir.program import Program
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.units import parse_number

VERSION = 1
Value = Topology | Problem | FlowSchedule | Schedule | Program
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (Topology, Problem, FlowSchedule, Schedule, Program)}


def dumps(value: Value) -> str:
    """The text of a topology, problem or schedule of any level."""
    document = {"collc": VERSION, "kind": type(value).__name__, **_encode(value)}
    return json.dumps(document, indent=None, separators=(",", ":")) + "\n"


def loads(text: str) -> Value:
    """The value a text stands for.

    Raises:
        InputError: not JSON, not collc's, of a later version, or a field is missing, unknown or of
            the wrong type; the message names the field.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or "collc" not in document:
        raise InputError("not a collc document: no key 'collc'")
    if document.pop("collc") != VERSION:
        raise InputError(f"written by another version of collc; this one reads version {VERSION}")
    kind = document.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(f"kind {kind!r}" + nearest(str(kind), _KINDS))
    value: Value = _decode(_KINDS[kind], document, kind)
    return value


def _encode(value: object) -> Any:
    match value:
        case Enum():
            return value.value
        case Fraction():
            return str(value)
        case Places(ranks=range() as ranks, offsets=offsets):
            return {"ranks": f"{ranks.start}:{ranks.stop}", "offsets": _encode(offsets)}
        case str() | int() | None:
            return value
        case Forest():
            kept = {"names": list(value.names), "n_ranks": value.n_ranks, "denominator": value.denominator}
            return kept | {name: array.tolist() for name, array in value.arrays.items()}
        case Orbit():
            return {"base": _encode(value.base), "images": value.images.tolist(), "per_pair": value.per_pair}
        case tuple():
            return [_encode(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            shown = {name: _encode(getattr(value, name)) for name in _field_types(value.__class__)}
            return {"kind": type(value).__name__, **shown} if isinstance(value, Cut | Prices) else shown
    raise TypeError(f"no text form for {type(value).__name__}")


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


@cache
def _required(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING)


def _decode(kind: Any, data: Any, where: str) -> Any:
    """Build a `kind` from JSON data; `where` names the field for error messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(arguments, data, where)
    if origin is tuple:
        return _decode_tuple(arguments, data, where)
    if kind is Forest:
        return _decode_forest(data, where)
    if kind is Places:
        return _decode_places(data, where)
    if kind is Fraction:
        return _number(data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        if data not in [member.value for member in kind]:
            raise InputError(f"{where}: {data!r}" + nearest(str(data), [str(m.value) for m in kind]))
        return kind(data)
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_fields(kind, data, where)
    # bool is an int to Python, but not to a reader of the file.
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise InputError(f"{where}: {_show(data)}; expected {kind.__name__}")
    return data


def _decode_union(arguments: Sequence[Any], data: Any, where: str) -> Any:
    if data is None and type(None) in arguments:
        return None
    choices = [kind for kind in arguments if kind is not type(None)]
    if Forest in choices and isinstance(data, dict):
        return _decode_orbit(data, where) if "images" in data else _decode_forest(data, where)
    if Cut in choices and isinstance(data, dict):
        named = {kind.__name__: kind for kind in choices}
        name = data.get("kind")
        if not isinstance(name, str) or name not in named:
            raise InputError(f"{where}.kind: {_show(name)}; expected one of {', '.join(sorted(named))}")
        return _decode(named[name], {key: data[key] for key in data if key != "kind"}, where)
    for kind in choices:
        if typing.get_origin(kind) is tuple and isinstance(data, list):
            return _decode(kind, data, where)
        if is_dataclass(kind) and isinstance(data, dict):
            return _decode(kind, data, where)
        if isinstance(kind, type) and isinstance(data, kind) and not isinstance(data, bool):
            return data
    return _decode(choices[0], data, where)


def _decode_tuple(arguments: Sequence[Any], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise InputError(f"{where}: {_show(data)}; expected a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(data))
    if len(data) != len(arguments):
        raise InputError(f"{where}: {len(data)} entries; expected {len(arguments)}")
    return tuple(
        _decode(kind, item, f"{where}[{index}]") for index, (kind, item) in enumerate(zip(arguments, data, strict=True))
    )


def _decode_fields(kind: type, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise InputError(f"{where}: {_show(data)}; expected an object with the fields of {kind.__name__}")
    types_of = _field_types(kind)
    for key in data:
        if key not in types_of:
            raise InputError(f"{where}: unknown field '{key}'" + nearest(key, types_of))
    for key in _required(kind):
        if key not in data:
            raise InputError(f"{where}: no field '{key}'")
    # A field with a default may be missing: documents stay readable when one is added.
    return kind(**{key: _decode(types_of[key], value, f"{where}.{key}") for key, value in data.items()})


def _decode_forest(data: Any, where: str) -> Forest:
    wanted = {"names": tuple[str, ...], "n_ranks": int, "denominator": int}
    if not isinstance(data, dict) or set(data) != {*wanted, *ARRAYS}:
        raise InputError(f"{where}: {_show(data)}; expected an object with the fields of Forest")
    import numpy

    values: dict[str, Any] = {key: _decode(kind, data[key], f"{where}.{key}") for key, kind in wanted.items()}
    for name in ARRAYS:
        values[name] = numpy.array(_whole_numbers(data[name], f"{where}.{name}", 62), dtype=numpy.int64)
    return Forest(**values)


def _decode_orbit(data: Any, where: str) -> Orbit:
    if set(data) != {"base", "images", "per_pair"} or not isinstance(data["images"], list):
        raise InputError(f"{where}: {_show(data)}; expected an object with the fields of Orbit")
    import numpy

    base = _decode_forest(data["base"], f"{where}.base")
    rows = [_whole_numbers(row, f"{where}.images[{index}]", 31) for index, row in enumerate(data["images"])]
    if any(len(row) != len(base.names) for row in rows):
        raise InputError(f"{where}.images: rows of {sorted(set(map(len, rows)))}; expected {len(base.names)} each")
    images = numpy.array(rows, dtype=numpy.int32).reshape(len(rows), len(base.names))
    return Orbit(base, images, _decode(int, data["per_pair"], f"{where}.per_pair"))


def _whole_numbers(data: Any, where: str, bits: int) -> list[int]:
    if not isinstance(data, list) or any(type(one) is not int or abs(one) >= 2**bits for one in data):
        raise InputError(f"{where}: {_show(data)}; expected a list of whole numbers below 2^{bits}")
    return data


def _decode_places(data: Any, where: str) -> Places:
    if not isinstance(data, dict) or set(data) != {"ranks", "offsets"}:
        raise InputError(f"{where}: {_show(data)}; expected an object with ranks and offsets")
    ranks, offsets = data["ranks"], data["offsets"]
    if isinstance(ranks, str):
        start, _, stop = ranks.partition(":")
        if not (start.isascii() and start.isdigit() and stop.isascii() and stop.isdigit() and len(ranks) < 20):
            raise InputError(f"{where}.ranks: {_show(ranks)}; expected 'first:end'")
        ranks = range(int(start), int(stop))
    else:
        ranks = _decode(tuple[int, ...], ranks, f"{where}.ranks")
    return Places(ranks, _decode(int | tuple[int, ...], offsets, f"{where}.offsets"))


def _number(data: Any, where: str) -> Fraction:
    if isinstance(data, str):
        try:
            return parse_number(data)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
    raise InputError(f'{where}: {_show(data)}; expected a number written as text, such as "25/3"')


def _show(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= 60 else text[:57] + "..."
