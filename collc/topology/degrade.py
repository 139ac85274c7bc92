"""A fabric with links gone or slower, or GPUs gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from collc.errors import InputError, nearest
from collc.ir.topology import Topology
from collc.units import parse_number


def degraded(topology: Topology, drop: Sequence[str], scale: Sequence[str], drop_gpus: Sequence[str]) -> Topology:
    """The fabric as it is after failures.

    Args:
        drop: links that are gone, `a->b` or `a-b` for both directions.
        scale: links that are slower, LINK=FACTOR.
        drop_gpus: GPUs that are gone, by name or rank.

    Raises:
        InputError: no such link or GPU, a factor that is none, a link named twice, or no GPU left.
    """
    factors: dict[tuple[str, str], Fraction] = {}
    for text in drop:
        _note(factors, _ends(topology, text, "--drop"), Fraction(0), f"--drop {text}")
    for text in scale:
        link, equals, factor = text.rpartition("=")
        if not equals:
            raise InputError(f"--scale {text}; expected LINK=FACTOR, such as a-b=1/2")
        _note(factors, _ends(topology, link, "--scale"), _factor(text, factor), f"--scale {text}")
    links = tuple(
        replace(link, bandwidth=link.bandwidth * factors.get((link.src, link.dst), Fraction(1)))
        for link in topology.links
        if factors.get((link.src, link.dst)) != 0
    )
    gone = {_rank(topology, gpu) for gpu in drop_gpus}
    if len(gone) == topology.n_ranks:
        raise InputError(f"--drop-gpu: all {len(gone)} GPUs are gone; expected one to stay")
    fewer = replace(topology, links=links)
    return fewer.restricted([rank for rank in range(topology.n_ranks) if rank not in gone]) if gone else fewer


def _note(
    factors: dict[tuple[str, str], Fraction], ends: Sequence[tuple[str, str]], factor: Fraction, where: str
) -> None:
    for src, dst in ends:
        if (src, dst) in factors:
            raise InputError(f"{where}: link {src} -> {dst} is named before; expected it once")
        factors[src, dst] = factor


def _factor(text: str, factor: str) -> Fraction:
    try:
        value = parse_number(factor)
    except ValueError as error:
        raise InputError(f"--scale {text}: {error}") from None
    if value <= 0:
        raise InputError(f"--scale {text}: factor {value}; expected a positive number (--drop removes a link)")
    return value


def _ends(topology: Topology, text: str, option: str) -> list[tuple[str, str]]:
    """The links that a text names: one with `->`, both directions with `-`."""
    if "->" in text:
        src, _, dst = (part.strip() for part in text.partition("->"))
        found = [(src, dst)] if (src, dst) in topology.link else []
    else:
        # Names may hold dashes themselves, so every split is tried.
        splits = [(text[:at].strip(), text[at + 1 :].strip()) for at, char in enumerate(text) if char == "-"]
        pairs = [pair for a, b in splits for pair in ((a, b), (b, a))]
        found = [pair for pair in pairs if pair in topology.link]
        if len({frozenset(pair) for pair in found}) > 1:
            raise InputError(f"{option} {text}: may mean several links; write them as {found[0][0]}->{found[0][1]}")
    if not found:
        known = [f"{src}->{dst}" if "->" in text else f"{src}-{dst}" for src, dst in topology.link]
        raise InputError(f"{option} {text}: no such link" + nearest(text, known))
    return found


def _rank(topology: Topology, text: str) -> int:
    if text in topology.rank_of:
        return topology.rank_of[text]
    if text.isascii() and text.isdigit() and int(text) < topology.n_ranks:
        return int(text)
    raise InputError(f"--drop-gpu {text}: no such GPU" + nearest(text, topology.gpus))
