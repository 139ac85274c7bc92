"""What each MSCCL++ version accepts in an execution plan, as data.

One TOML file per version, named as the user types it; `mscclpp` is the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collc.runtimes import tables


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
    return tables.names(Path(__file__).parent)


@cache
def load(name: str) -> PlanRuntime:
    """The version of that name.

    Raises:
        InputError: no such version; names the nearest.
    """
    return PlanRuntime(**tables.read(Path(__file__).parent, name))
