"""Any bytes get an answer: right files of every kind, damaged at random, through every reader.

`make fuzz` runs the same readers under a coverage-guided fuzzer.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
from readers import READERS

_VALUE = re.compile(rb"[A-Za-z_]+|-?[0-9]+")
_BYTES = b"<>\"'{}[]:,=&#%!?/ \n\t\r0123456789-.xeE\x00\xff\xef"


def damaged(seeds: tuple[bytes, ...], chance: random.Random) -> bytes:
    """A right file after a few random edits of words, numbers, lines and bytes."""
    raw = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        kind = chance.random()
        places = list(_VALUE.finditer(raw))
        if kind < 0.6 and places:
            place, other = chance.choice(places), chance.choice(places)
            raw = raw[: place.start()] + other[0] + raw[place.end() :]
        elif kind < 0.8:
            lines = raw.splitlines(keepends=True) or [b""]
            at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[at : at + chance.randrange(2)] = [lines[other]] * chance.randrange(2)
            raw = b"".join(lines)
        else:
            at = chance.randrange(len(raw) + 1)
            raw = raw[:at] + bytes([chance.choice(_BYTES)]) + raw[at + chance.randrange(3) :]
    return raw


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_damage_is_answered_at_once(name, seed):
    reader = READERS[name]
    raw = damaged(reader.seeds, random.Random(seed))
    start = process_time()
    reader.check(raw)
    assert process_time() - start < 10


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=300))
def test_any_bytes_are_answered(name, raw):
    READERS[name].check(raw)


@pytest.mark.parametrize("name", READERS)
def test_what_fuzzing_starts_from_is_read(name):
    assert len(READERS[name].seeds) > 1
    for seed in READERS[name].seeds:
        READERS[name].check(seed)
