"""The plain form of a topology file: every vertex and link written out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction

from collc.errors import InputError
from collc.ir.topology import Link, Topology

# What is plain text to every YAML reader; all else is put in quotes.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*([.-][A-Za-z0-9_]+)*", re.ASCII)
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


def dumps_yaml(topology: Topology, *, degraded_from: str = "") -> str:
    """The text of a topology; loading it gives an equal one.

    Args:
        degraded_from: the healthy topology, as a user names it.

    Raises:
        InputError: a vertex name that a topology file cannot hold.
    """
    lines = list(_lines(topology))
    if degraded_from:
        lines.insert(1, f"degraded_from: {_word(degraded_from)}")
    return "\n".join(lines) + "\n"


def _lines(topology: Topology) -> Iterator[str]:
    yield f"name: {_word(topology.name)}"
    yield f"gpus: [{', '.join(map(_name, topology.gpus))}]"
    if topology.switches:
        yield "switches:"
        yield from (f"  - {_switch(topology, switch)}" for switch in topology.switches)
    if len(topology.hosts) > 1:
        yield "hosts:"
        for host in topology.hosts:
            yield f"  - [{', '.join(_name(topology.gpus[rank]) for rank in host)}]"
    if topology.ranks_per_device != 1:
        yield f"ranks_per_device: {topology.ranks_per_device}"
    if topology.links:
        yield "links:  # bandwidth GB/s per direction, latency us"
        yield from (f"  - {{{entry}}}" for entry in _entries(topology.links))


def _switch(topology: Topology, switch: str) -> str:
    marks = [mark for mark in ("multicast", "reduce") if switch in getattr(topology, mark)]
    if not marks:
        return _name(switch)
    return "{" + ", ".join([f"name: {_name(switch)}", *(f"{mark}: true" for mark in marks)]) + "}"


def _entries(links: tuple[Link, ...]) -> Iterator[str]:
    """One line for a link, or for it and its twin where that is the next one."""
    index = 0
    while index < len(links):
        link = links[index]
        twin = Link(link.dst, link.src, link.bandwidth, link.latency)
        both = index + 1 < len(links) and links[index + 1] == twin
        ends = f"between: [{_name(link.src)}, {_name(link.dst)}]"
        if not both:
            ends = f"from: {_name(link.src)}, to: {_name(link.dst)}"
        yield f"{ends}, bandwidth: {number(link.bandwidth)}, latency: {number(link.latency)}"
        index += 2 if both else 1


def number(value: Fraction) -> str:
    """A decimal where that is exact and short, else `p/q`.

    >>> number(Fraction(25, 2)), number(Fraction(25, 3)), number(Fraction(300))
    ('12.5', '25/3', '300')
    """
    if 1_000_000 % value.denominator or value.denominator == 1:
        return str(value)
    whole, rest = divmod(value, 1)
    return f"{whole}.{int(rest * 1_000_000):06}".rstrip("0")


def _name(name: str) -> str:
    if not name or any(not c.isprintable() or c in "*{}" for c in name):
        raise InputError(f"vertex '{name}': expected printable characters without *, {{ and }}")
    return _word(name)


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
