"""What each runtime accepts: limits, spellings, ranges and rules, as data.

One TOML file per runtime, named as the user types it; every figure has its source beside it. Writers
and readers look here, so a limit changes in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from collc.errors import InputError, nearest
from collc.runtimes import tables


@dataclass(frozen=True)
class Protocol:
    """How a connection behaves under a protocol.

    Attributes:
        fifo_depth: transfers a sender may have outstanding on a connection before it blocks.
        min_chunk_bytes: a chunk is a multiple of this many bytes.
        buffer_bytes: of a connection, as the runtime allocates it unless told otherwise.
        transfer_bytes: payload that one transfer holds with that buffer.
    """

    fifo_depth: int
    min_chunk_bytes: int
    buffer_bytes: int
    transfer_bytes: int

    def transfer_with(self, buffer_bytes: int | None) -> int:
        """Payload that one transfer holds [bytes] with a buffer of another length, None being the default."""
        return self.transfer_bytes if buffer_bytes is None else self.transfer_bytes * buffer_bytes // self.buffer_bytes


@dataclass(frozen=True)
class Runtime:
    """A consumer of MSCCL XML files.

    Attributes:
        name, version: which consumer, read at which version.
        collectives: collc's name -> the spelling of the `coll` attribute.
        step_types: step types it executes (it may parse more).
        parsed_step_types: step types its parser takes.
        required: attributes an <algo> must have.
        fuses_receives: whether receive-and-forward steps may be written.
        max_*: limits; `max_waited_threadblock` is the largest id a step may wait for, `max_elements`
            counts what one rank's parse sees (1 + GPUs + own threadblocks + own steps).
        counts_all_ranks: collectives whose size, in bytes and in chunks per loop, the runtime takes as
            ranks times the call's count; for the others it is the call's count alone.
        inplace_flags: "serves": two flags say which calls the file may serve;
            "equals": the inplace flag must equal the call's.
        max_bytes_is_exclusive, max_bytes_unlimited: how the upper end of the size range is read, and
            the value that means no limit.
        protocols: by name.
        custom_name: what its parser calls a collective that no name is for; empty where it knows none.
    """

    name: str
    version: str
    collectives: Mapping[str, str]
    step_types: tuple[str, ...]
    parsed_step_types: tuple[str, ...]
    required: tuple[str, ...]
    fuses_receives: bool
    max_threadblocks: int
    max_waited_threadblock: int
    max_threadblocks_per_channel: int
    max_steps: int
    max_count: int
    max_channels: int
    max_offset: int
    max_ranks: int
    max_elements: int
    max_files: int
    max_name: int
    counts_all_ranks: tuple[str, ...]
    inplace_flags: Literal["serves", "equals"]
    max_bytes_is_exclusive: bool
    max_bytes_unlimited: int
    protocols: Mapping[str, Protocol]
    custom_name: str = ""

    def with_limits(self, overrides: Mapping[str, int]) -> Runtime:
        """The same runtime built with other limits, such as `steps=256`.

        Raises:
            InputError: no such limit, or not a positive number.
        """
        return with_limits(self, overrides)


R = TypeVar("R")


def with_limits(runtime: R, overrides: Mapping[str, int]) -> R:
    """A consumer, a dataclass whose limits are its fields `max_*`, built with others.

    Raises:
        InputError: no such limit, or not a positive number.
    """
    described: Any = runtime
    limits = {
        field.name.removeprefix("max_")
        for field in fields(described)
        if field.name[:4] == "max_" and field.type == "int"
    }
    changed = {}
    for key, value in overrides.items():
        if key not in limits:
            raise InputError(f"limit '{key}'" + nearest(key, limits))
        if value < 1:
            raise InputError(f"limit {key}={value}; expected 1 or more")
        changed[f"max_{key}"] = value
    made: R = replace(described, **changed)
    return made


def names() -> tuple[str, ...]:
    """The runtimes collc knows, sorted."""
    return tables.names(Path(__file__).parent)


@cache
def load(name: str) -> Runtime:
    """The runtime of that name.

    Raises:
        InputError: no such runtime; names the nearest.
    """
    told = tables.read(Path(__file__).parent, name)
    protocols = {key: Protocol(**value) for key, value in told.pop("protocols").items()}
    return Runtime(**told, protocols=protocols)
