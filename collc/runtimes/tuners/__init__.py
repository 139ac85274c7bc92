"""What each reader of tuner tables makes of a line, as data.

One TOML file per dialect, named as the user types it; `tuner` is NVIDIA's example plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from collc.runtimes import tables


@dataclass(frozen=True)
class Dialect:
    """A reader of tuner tables.

    Attributes:
        name, version: as the user types it, and what was read.
        columns: names of the fields, in order.
        n_required: how many of them every line must have.
        collectives, protocols: words it knows.
        algorithms: word -> collective -> protocols the library can run it with; others do not exist.
        unknown_word: "default": an unknown word silently becomes a known one, `defaults`; "skipped": the
            line is left out, with a warning in the log.
        empty_field: "shifts": an empty field is swallowed, and those after it move up; "skipped": as above.
        no_channels: "one": channels -1, and calls that no line serves, run on one channel; "library": the
            library's own choice stands.
        first_wins: whether the first of several lines that match is taken; otherwise collc does not know.
        max_line: characters in a line that are read.
        max_channels: channels the library has.
        infinity: the largest size a field can hold [bytes].
    """

    name: str
    version: str
    columns: tuple[str, ...]
    n_required: int
    collectives: Mapping[str, str]
    protocols: tuple[str, ...]
    algorithms: Mapping[str, Mapping[str, tuple[str, ...]]]
    unknown_word: Literal["default", "skipped"]
    defaults: Mapping[str, str]
    empty_field: Literal["shifts", "skipped"]
    no_channels: Literal["one", "library"]
    first_wins: bool
    max_line: int
    max_channels: int
    infinity: int

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that a line may leave out."""
        return self.columns[self.n_required :]


def names() -> tuple[str, ...]:
    """The dialects collc knows, as the user types them, sorted."""
    return tables.names(Path(__file__).parent)


@cache
def load(name: str) -> Dialect:
    """The dialect of that name.

    Raises:
        InputError: no such dialect; names the nearest.
    """
    told = tables.read(Path(__file__).parent, name)
    algorithms = {
        word: {collective: tuple(protocols) for collective, protocols in table.items()}
        for word, table in told.pop("algorithms").items()
    }
    return Dialect(**told, algorithms=algorithms)
