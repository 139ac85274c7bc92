"""MSCCL files as text for tests: how they are looked at, and how they are damaged."""

from __future__ import annotations

import random
import re

from handmade import direct_allreduce, direct_alltoall, ring_allgather, to_xml

from collc import runtimes
from collc.verify.msccl import examine

EXECUTOR, RCCL, CLASSIC = (runtimes.load(name) for name in ("executor", "rccl", "classic"))

RING = to_xml(ring_allgather(4))
SUM = to_xml(direct_allreduce(3))  # rank r's threadblock 4 adds up; 0 and 1 send, 2 and 3 receive
A2A = to_xml(direct_alltoall(3))


def look(text: str | bytes, runtime=EXECUTOR, **options):
    return examine(text.encode() if isinstance(text, str) else text, runtime, **options)


def rules(report) -> set[str]:
    return {finding.rule for finding in report.findings}


def errors(report) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity == "error"}


def line_with(text: str, part: str, number: int = 0) -> int:
    """The number of the line that holds a part, counted from one."""
    return [at for at, line in enumerate(text.splitlines(), 1) if part in line][number]


def put(text: str, old: str, new: str, count: int = 1) -> str:
    """The text with something in it replaced, which must be there."""
    assert old in text
    return text.replace(old, new, count)


def edit_step(text: str, rank: int, number: int, step: int, **values: object) -> str:
    """The text with attributes of one step changed."""
    lines = text.splitlines()
    gpu = line_with(text, f'<gpu id="{rank}"') - 1
    tb = next(at for at in range(gpu, len(lines)) if f'<tb id="{number}"' in lines[at])
    at = tb + 1 + step
    for key, value in values.items():
        lines[at], n = re.subn(rf'\b{key}="[^"]*"', f'{key}="{value}"', lines[at])
        assert n == 1
    return "\n".join((*lines, ""))


_MUTABLE = re.compile(r'\b(srcoff|dstoff|cnt|depid|deps|hasdep|send|recv|chan|type|srcbuf|dstbuf)="([^"]*)"')


def damage(text: str, chance: random.Random) -> str:
    """The text with one value replaced by another that stands somewhere for the same attribute."""
    found = list(_MUTABLE.finditer(text))
    match = chance.choice(found)
    values = [other[2] for other in found if other[1] == match[1] and other[2] != match[2]]
    value = chance.choice(values) if values else {"hasdep": "1", "depid": "0", "cnt": "2"}.get(match[1], "3")
    return text[: match.start(2)] + value + text[match.end(2) :]
