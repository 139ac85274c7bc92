"""What each MSCCL++ version accepts in an execution plan, as data.

One TOML file per version, named as the user types it; `mscclpp` is the newest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collc.errors import InputError, nearest


@dataclass(frozen=True)
class PlanRuntime:
    """A version of MSCCL++ that loads execution plans.

    Attributes:
        name, version: as the user types it, and what was read.
        operations: names its loader knows.
        channel_types, buffer_types, protocols: words it knows.
        former_words: word of earlier versions -> what it is called now.
        collectives: collc's name -> the plan's.
        max_operations: operations in a threadblock, those inside pipelines among them; checked at launch.
        max_channels: channels in a threadblock.
        max_operation_channels: channels an operation names.
        max_syncers: barriers, and likewise semaphores.
        max_offset: bytes that an offset reaches.
        max_bytes_is_exclusive: how the upper end of the size range is read.
        zero_chunks_crash: whether a GPU without input or output chunks kills the process.
        checks_alignment: whether sizes must fill whole chunks of aligned units.
        loads_directory: whether it parses every file of a directory, for any number of ranks.
    """

    name: str
    version: str
    operations: tuple[str, ...]
    channel_types: tuple[str, ...]
    buffer_types: tuple[str, ...]
    protocols: tuple[str, ...]
    former_words: Mapping[str, str]
    collectives: Mapping[str, str]
    max_operations: int
    max_channels: int
    max_operation_channels: int
    max_syncers: int
    max_offset: int
    max_bytes_is_exclusive: bool
    zero_chunks_crash: bool
    checks_alignment: bool
    loads_directory: bool


def names() -> tuple[str, ...]:
    """The versions collc knows, as the user types them, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))


@cache
def load(name: str) -> PlanRuntime:
    """The version of that name.

    Raises:
        InputError: no such version; names the nearest.
    """
    if name not in names():
        raise InputError(f"runtime '{name}'" + nearest(name, names()))
    data = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    lists = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
    return PlanRuntime(**{"name": name, **data, **lists})
