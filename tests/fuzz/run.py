"""The coverage-guided fuzzer: `make fuzz`, or one reader by `python tests/fuzz/run.py xml -max_total_time=60`.

A reader must answer or refuse within ten seconds and one gigabyte, whatever the bytes. Needs atheris
(`pip install 'collc[fuzz]'`); what it finds is kept in build/fuzz.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["collc"]):
    from readers import READERS

_VALUE = re.compile(rb"[A-Za-z_]+|-?[0-9]+")
_ODD = (b"0", b"-1", b"2147483647", b"18446744073709551616", b"1e9", b"", b"\xff", b"null", b"[]", b"<!--", b"&lt;")


def spliced(raw: bytes, size_limit: int, seed: int, seeds: tuple[bytes, ...]) -> bytes:
    """Words and numbers traded within a file or between files, besides what the fuzzer does to bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.3:
        return atheris.Mutate(raw, size_limit)
    pool = [match[0] for match in _VALUE.finditer(chance.choice((raw, *seeds)))] or [b"0"]
    places = list(_VALUE.finditer(raw))
    if not places:
        return chance.choice(seeds)[:size_limit]
    place = chance.choice(places)
    word = chance.choice(_ODD) if chance.random() < 0.2 else chance.choice(pool)
    return (raw[: place.start()] + word + raw[place.end() :])[:size_limit]


def main() -> None:
    if len(sys.argv) < 2:
        print(*READERS)
        return
    name, *options = sys.argv[1:]
    reader = READERS[name]
    kept = Path("build/fuzz") / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as seeds:
        for index, text in enumerate(reader.seeds):
            (Path(seeds) / str(index)).write_bytes(text)
        limits = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=65536", f"-artifact_prefix={kept}/crash-"]
        atheris.Setup(
            [sys.argv[0], *limits, *options, str(kept), seeds],
            reader.check,
            custom_mutator=lambda raw, most, seed: spliced(raw, most, seed, reader.seeds),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
