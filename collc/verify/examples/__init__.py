"""For each rule, files that break it beside files that do not: documentation that the tests run.

The data lies beside this file. A `[base.NAME]` is a set of right files and the words after `collc verify`;
a rule's `edits` (file, old, new) make a base wrong, `adds` puts files beside it and `copies` doubles some.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from collc.errors import InputError


@dataclass(frozen=True)
class Example:
    """Right files, the same ones with one fault, and how they are checked.

    Attributes:
        words: what follows `collc verify`.
        good, bad: name -> text; the bad ones break one rule, and no other but those in `also`.
        also: rules that cannot be kept where this one is broken.
    """

    words: tuple[str, ...]
    good: Mapping[str, str]
    bad: Mapping[str, str]
    also: tuple[str, ...] = ()


@cache
def examples() -> Mapping[str, Example]:
    """Rule -> its example.

    Raises:
        InputError: an edit does not apply, which is a fault of the data.
    """
    found: dict[str, Example] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        bases = document.pop("base")
        for rule, told in document.items():
            found[rule] = _example(rule, bases[told["base"]], told)
    return found


def _example(rule: str, base: Mapping[str, Any], told: Mapping[str, Any]) -> Example:
    good: dict[str, str] = base["files"]
    bad = {**good, **told.get("adds", {})}
    for source, copy in told.get("copies", ()):
        bad[copy] = bad[source]
    for file, old, new in told.get("edits", ()):
        if old not in bad[file]:
            raise InputError(f"example of {rule}: {file} has no {old!r}")
        bad[file] = bad[file].replace(old, new, 1)
    words = (*base["words"], *told.get("words", ()))
    return Example(words, good, bad, tuple(told.get("also", ())))
