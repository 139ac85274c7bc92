"""Designs that come with collc: recipes and what they cost, as data; a test checks each one again."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from collc.errors import InputError, Place


@dataclass(frozen=True)
class Known:
    """A design and its cost.

    Attributes:
        recipe: builds it.
        n, degree: vertices and ports.
        steps, time: T_L and T_B [M/B] of its allgather.
        is_patient: whether that takes a schedule that is not eager.
        alltoall: T of its best all-to-all [M/B], where it is kept for that.
    """

    recipe: str
    n: int
    degree: int
    steps: int
    time: Fraction
    is_patient: bool = False
    alltoall: Fraction | None = None


@lru_cache(maxsize=1)
def shipped() -> tuple[Known, ...]:
    """The designs that come with collc, patient ones aside."""
    return tuple(one for one in _shipped() if not one.is_patient)


@lru_cache(maxsize=1)
def shipped_alltoall() -> tuple[Known, ...]:
    """The designs that come with collc for all-to-all."""
    return _read("alltoall.toml")


@lru_cache(maxsize=1)
def patient_facts() -> tuple[Known, ...]:
    """Designs of the paper whose schedule is not eager (modified de Bruijn)."""
    return tuple(one for one in _shipped() if one.is_patient)


def _shipped() -> tuple[Known, ...]:
    return _read("known.toml")


def _read(name: str) -> tuple[Known, ...]:
    return loads(Path(__file__).with_name(name).read_text(encoding="utf-8"), name)


def loads(text: str, file: str) -> tuple[Known, ...]:
    """Designs from a catalogue's text.

    Raises:
        InputError: not such a text.
    """
    try:
        entries = tomllib.loads(text).get("design", [])
        return tuple(_entry(entry) for entry in entries)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"not a catalogue of designs: {error}", Place(file)) from None


def _entry(entry: dict[str, Any]) -> Known:
    return Known(
        str(entry["recipe"]),
        int(entry["vertices"]),
        int(entry["degree"]),
        int(entry["steps"]),
        Fraction(entry["time"]),
        bool(entry.get("patient", False)),
        Fraction(entry["alltoall"]) if "alltoall" in entry else None,
    )


def dumps(designs: Iterable[Known]) -> str:
    """The text of a catalogue."""
    lines: list[str] = []
    for one in sorted(designs, key=lambda one: (one.degree, one.n, one.steps, one.time, one.recipe)):
        lines += ["[[design]]", f'recipe = "{one.recipe}"', f"vertices = {one.n}", f"degree = {one.degree}"]
        lines += [f"steps = {one.steps}", f'time = "{one.time}"']
        lines += ["patient = true"] if one.is_patient else []
        lines += [f'alltoall = "{one.alltoall}"'] if one.alltoall is not None else []
        lines.append("")
    return "\n".join(lines)
