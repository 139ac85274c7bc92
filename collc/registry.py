"""A name the user types -> the plug-in file of that name.

Dropping `collc/synth/NAME.py` (or a folder of that name) into place is the whole registration: the
file defines exactly one public frozen dataclass, whose fields are its options.
"""

from __future__ import annotations

import importlib
import typing
from dataclasses import MISSING, Field, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from collc.errors import InputError, nearest
from collc.units import parse_number

KINDS = ("synth", "passes", "backend")
_WORDS = {"synth": "synthesizer", "passes": "pass", "backend": "backend"}


def names(kind: str) -> tuple[str, ...]:
    """The plug-ins of a kind, sorted; nothing is imported."""
    folder = Path(__file__).parent / kind
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return tuple(sorted(name for name in found if not name.startswith("_")))


def plugin(kind: str, name: str) -> type[Any]:
    """The one public class of a plug-in file.

    Raises:
        InputError: no such plug-in; names the nearest.
    """
    if name not in names(kind):
        raise InputError(f"{_WORDS[kind]} '{name}'" + nearest(name, names(kind)))
    module = importlib.import_module(f"collc.{kind}.{name}")
    public = [
        item
        for key, item in vars(module).items()
        if isinstance(item, type)
        and item.__module__ == module.__name__
        and not key.startswith("_")
        and is_dataclass(item)
    ]
    if len(public) != 1:
        raise TypeError(f"collc/{kind}/{name}: {len(public)} public dataclasses; expected exactly one")
    return public[0]


def load(kind: str, name: str, **options: object) -> Any:
    """A plug-in with its options set; text values are converted by the field's annotation.

    Raises:
        InputError: no such plug-in, no such option, or a value the option does not take.
    """
    cls = plugin(kind, name)
    hints = typing.get_type_hints(cls)
    known = {field.name for field in fields(cls)}
    values = {}
    for key, value in options.items():
        if key not in known:
            ending = nearest(key, known) if known else "; it has none"
            raise InputError(f"{name}: no option '{key}'{ending}")
        values[key] = _convert(hints[key], value, f"{name}: option {key}") if isinstance(value, str) else value
    return cls(**values)


def describe(kind: str, name: str) -> dict[str, Any]:
    """Name, first docstring line, docstring sections and options of a plug-in, as data."""
    cls = plugin(kind, name)
    hints = typing.get_type_hints(cls)
    lines = (cls.__doc__ or "").splitlines()
    sections = {}
    for line in lines:
        word, colon, rest = line.strip().partition(": ")
        if colon and word in ("Guarantee", "Supports", "Source"):
            sections[word.lower()] = rest
    options = [
        {"name": field.name, "type": _type_name(hints[field.name]), "default": _default(field)} for field in fields(cls)
    ]
    return {"name": name, "summary": lines[0].strip() if lines else "", **sections, "options": options}


def _default(field: Field[Any]) -> object:
    if field.default is MISSING:
        return None
    return str(field.default) if isinstance(field.default, Fraction) else field.default


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "|".join(map(str, typing.get_args(hint)))
    inner = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return "|".join(_type_name(kind) for kind in inner) if inner else getattr(hint, "__name__", str(hint))


def _convert(hint: Any, text: str, where: str) -> object:
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if text not in choices:
            raise InputError(f"{where}: '{text}'" + nearest(text, choices))
        return text
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    if text in (word for kind in kinds for word in typing.get_args(kind)):  # a word in place of a number
        return text
    kinds = [kind for kind in kinds if typing.get_origin(kind) is not Literal]
    try:
        match kinds[0].__name__:
            case "bool" if text in ("true", "false"):
                return text == "true"
            case "int" if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19:
                return int(text)
            case "Fraction":
                return parse_number(text)
            case "str":
                return text
    except ValueError:
        pass
    raise InputError(f"{where}: '{text}'; expected {_type_name(hint)}")
