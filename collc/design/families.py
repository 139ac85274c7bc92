"""The families by name, and their parameters as a user types them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from collc.design import catalogue, cayley, lattice, shuffle
from collc.design.graph import Graph
from collc.errors import InputError, nearest

FAMILIES: Mapping[str, Callable[..., Graph]] = {
    build.__name__: build
    for build in (
        lattice.uniring,
        lattice.biring,
        lattice.complete,
        lattice.bipartite,
        lattice.hamming,
        lattice.hypercube,
        lattice.torus,
        lattice.twisted,
        lattice.circulant,
        lattice.diring,
        shuffle.genkautz,
        shuffle.kautz,
        shuffle.debruijn,
        shuffle.dbjmod,
        shuffle.random,
        catalogue.diamond,
        catalogue.distance_regular,
        catalogue.lcf,
        cayley.cayley,
        cayley.affine,
    )
}


def build(family: str, values: Mapping[str, str]) -> Graph:
    """The graph of a family, its parameters given as text: whole numbers, lists such as 4x4, words.

    Raises:
        InputError: no such family or parameter, a value that it does not take, or no such graph.
    """
    if family not in FAMILIES:
        raise InputError(f"family '{family}'" + nearest(family, FAMILIES))
    known = inspect.signature(FAMILIES[family]).parameters
    hints = typing.get_type_hints(FAMILIES[family])
    for key in values:
        if key not in known:
            raise InputError(f"{family}: no parameter '{key}'" + (nearest(key, known) if known else "; it has none"))
    missing = [key for key, one in known.items() if one.default is one.empty and key not in values]
    if missing:
        raise InputError(f"{family}: expected {', '.join(f'{key}=' for key in missing)}")
    return FAMILIES[family](**{key: _value(hints[key], text, f"{family}: {key}") for key, text in values.items()})


def describe(family: str) -> dict[str, Any]:
    """Name, first docstring line, sections and parameters (name -> default, None where it must be given)."""
    made = FAMILIES[family]
    text = " ".join((inspect.getdoc(made) or "").split())
    body, _, source = text.partition(" Source: ")
    head, _, facts = body.partition(" Exists: ")
    exists, _, costs = facts.partition(" T_L")
    parameters = {
        key: None if one.default is one.empty else _text(one.default)
        for key, one in inspect.signature(made).parameters.items()
    }
    return {
        "name": family,
        "summary": head,
        "exists": exists.rstrip("."),
        "costs": f"T_L{costs}",
        "source": source,
        "parameters": parameters,
    }


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _value(hint: Any, text: str, where: str) -> object:
    if typing.get_origin(hint) is Literal:
        if text not in typing.get_args(hint):
            raise InputError(f"{where}: '{text}'" + nearest(text, typing.get_args(hint)))
        return text
    if hint is str:
        return text
    numbers = text.split("x") if typing.get_origin(hint) is tuple else [text]
    if not all(number.isascii() and number.removeprefix("-").isdigit() and len(number) < 10 for number in numbers):
        wanted = "whole numbers such as 4x4" if typing.get_origin(hint) is tuple else "a whole number"
        raise InputError(f"{where}: '{text}'; expected {wanted}")
    return tuple(map(int, numbers)) if typing.get_origin(hint) is tuple else int(text)
