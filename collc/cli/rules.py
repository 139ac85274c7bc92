"""The reference of rules: what each says, why it matters, and an example that breaks it beside one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from difflib import unified_diff

from collc.errors import InputError, nearest
from collc.verify.examples import Example, examples
from collc.verify.rules import RULES


def as_text(names: Sequence[str] = ()) -> str:
    """Every rule, or those of the given names, for eyes.

    Raises:
        InputError: no rule of that name; names the nearest.
    """
    return "\n".join(line for name in _chosen(names) for line in _told(name))


def as_json(names: Sequence[str] = ()) -> str:
    """Every rule, or those of the given names, as data; examples are whole files.

    Raises:
        InputError: no rule of that name; names the nearest.
    """
    told = [{"rule": name, **asdict(RULES[name]), **asdict(examples()[name])} for name in _chosen(names)]
    return json.dumps(told, indent=2)


def _chosen(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in RULES:
            raise InputError(f"rule '{name}'" + nearest(name, RULES))
    return sorted(names or RULES)


def _told(name: str) -> Iterator[str]:
    rule, example = RULES[name], examples()[name]
    yield f"{name} ({rule.severity})"
    yield f"  {rule.meaning}."
    yield f"  Why: {rule.why}."
    yield f"  Example: collc verify {' '.join(example.words)}"
    for line in _difference(example):
        yield f"    {line}"


def _difference(example: Example) -> Iterator[str]:
    """What makes the bad files bad: lines marked `bad` beside the `good` ones in their place."""
    for file in sorted({*example.good, *example.bad}):
        good, bad = (files.get(file, "").splitlines() for files in (example.good, example.bad))
        if good == bad:
            continue
        yield f"{file}" if file in example.bad else f"{file} (not there)"
        marks = {"-": "good |", "+": "bad  |"}
        for line in list(unified_diff(good, bad, n=0, lineterm=""))[2:]:
            if line[0] in marks:
                yield f"{marks[line[0]]} {_short(line[1:].strip())}"


def _short(line: str) -> str:
    return line if len(line) <= 240 else f"{line[:237]}..."
