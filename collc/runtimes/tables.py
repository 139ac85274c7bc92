"""The TOML files of a folder, each named as the user types it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from collc.errors import InputError, nearest


def names(folder: Path) -> tuple[str, ...]:
    """The names in a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def read(folder: Path, name: str) -> dict[str, Any]:
    """What the file of that name says; its lists as tuples, and the name itself.

    Raises:
        InputError: no such runtime; names the nearest.
    """
    if name not in (known := names(folder)):
        raise InputError(f"runtime '{name}'" + nearest(name, known))
    told = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    return {"name": name, **{key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}}
