"""Topologies and bounds for eyes: tables, link classes, and a cut in words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from collc.cost.limits import Limit
from collc.ir.flow import Bound, Cut, Prices
from collc.ir.topology import Link, Topology
from collc.topology import Loaded
from collc.topology.dump import number
from collc.topology.expression import Value
from collc.topology.vertices import stem
from collc.units import format_rate

_FEW = 4  # names that are listed before they are counted instead
_KINDS = 12  # kinds of vertices that keep their own name in the table of links


@dataclass(frozen=True)
class Table:
    """Rows under a header; the last column may be long."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = str | Table


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[Block, ...]:
    """One table alone."""
    return (Table(tuple(header), tuple(tuple(row) for row in rows)),)


def render(blocks: Sequence[Block]) -> Iterator[str]:
    """The texts of blocks: drawn tables on a terminal, aligned columns elsewhere."""
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif sys.stdout.isatty():
            yield _drawn(block)
        else:
            yield _aligned(block)


def _drawn(block: Table) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawing
    from rich.text import Text

    drawing = Drawing(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in block.header:
        drawing.add_column(Text(name), overflow="fold")
    for row in block.rows:
        drawing.add_row(*map(Text, row))
    console = Console()
    with console.capture() as captured:
        console.print(drawing)
    return captured.get().rstrip("\n")


def _aligned(block: Table) -> str:
    widths = [max(len(row[column]) for row in (block.header, *block.rows)) for column in range(len(block.header))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (block.header, *block.rows)
    )
    return "\n".join(line.rstrip() for line in lines)


# --- a topology ----------------------------------------------------------------------------------


def summary(loaded: Loaded) -> tuple[Block, ...]:
    """What `collc topo show` says."""
    fabric = loaded.topology
    blocks: list[Block] = [f"{fabric.name}: {loaded.doc}" if loaded.doc else fabric.name]
    blocks.append(
        f"{plural(fabric.n_ranks, 'rank')} on {_hosts(fabric)}; {_switches(fabric)}; {len(fabric.links)} links"
    )
    if fabric.ranks_per_device != 1:
        blocks.append(f"{fabric.ranks_per_device} ranks share a device")
    if loaded.parameters:
        rows = [(p.name, value_text(p.value), value_text(p.default), p.doc) for p in loaded.parameters]
        blocks += ["", *table(("parameter", "value", "default", ""), rows)]
    if fabric.links:
        blocks += ["", *table(("links", "", "", "count", "GB/s each", "us"), _link_classes(fabric))]
    if loaded.sources:
        blocks += [
            "",
            *table(("source of", ""), [(key or "the whole", " ".join(text.split())) for key, text in loaded.sources]),
        ]
    return tuple(blocks)


def value_text(value: Value) -> str:
    """A parameter's value as the command line takes it.

    >>> value_text((4, 4)), value_text(Fraction(25, 3)), value_text(8)
    ('4x4', '25/3', '8')
    """
    return "x".join(map(str, value)) if isinstance(value, tuple) else number(Fraction(value))


def _hosts(fabric: Topology) -> str:
    counts = Counter(len(host) for host in fabric.hosts)
    return ", ".join(f"{plural(n, 'host')} of {plural(gpus, 'GPU')}" for gpus, n in counts.items())


def _switches(fabric: Topology) -> str:
    counts = Counter(stem(switch) for switch in fabric.switches)
    if not counts or len(counts) > _KINDS:
        return plural(len(fabric.switches), "switch", "switches")
    marks = {stem(name) for name in fabric.multicast} & {stem(name) for name in fabric.reduce}
    return ", ".join(f"{n} {kind}{' (multicast, reduce)' * (kind in marks)}" for kind, n in counts.items())


def _link_classes(fabric: Topology) -> Iterator[tuple[str, ...]]:
    """Links between the same kinds of vertices with the same figures, counted; twins once, as both ways."""
    kinds = _kinds(fabric)
    counts: Counter[tuple[str, str, bool, Fraction, Fraction]] = Counter()
    for link in fabric.links:
        both = fabric.link.get((link.dst, link.src)) == Link(link.dst, link.src, link.bandwidth, link.latency)
        src, dst = kinds[link.src], kinds[link.dst]
        if both and (dst, src, both, link.bandwidth, link.latency) in counts:
            src, dst = dst, src
        counts[src, dst, both, link.bandwidth, link.latency] += 1
    for (src, dst, both, bandwidth, latency), count in counts.items():
        pairs = count // 2 if both else count
        yield src, "<->" if both else "->", dst, str(pairs), number(bandwidth), number(latency)


def _kinds(fabric: Topology) -> dict[str, str]:
    kinds = {name: stem(name) or name for name in fabric.gpus + fabric.switches}
    if len(set(kinds.values())) <= _KINDS:
        return kinds
    return {**dict.fromkeys(fabric.gpus, "GPU"), **dict.fromkeys(fabric.switches, "switch")}


# --- a bound -------------------------------------------------------------------------------------


def proof(fabric: Topology, bound: Bound) -> Iterator[str]:
    """What proves a bound, a line each."""
    match bound.witness:
        case Cut(inside):
            yield from _cut(fabric, bound.time, frozenset(inside))
        case Prices(price, rooted):
            earned = sum((fabric.link[src, dst].bandwidth * value for src, dst, value in price), Fraction(0))
            if rooted:
                yield f"because  trees into any GPU and out of it cost {exactly(bound.time * earned)} at prices on"
                yield f"         {plural(len(price), 'link')}, which are paid {exactly(earned)} GB/s together at most"
                return
            yield f"because  each byte of the message needs {exactly(bound.time * earned)} transfers or more,"
            yield f"         and the {plural(len(price), 'link')} they must use carry {exactly(earned)} GB/s together"


def side_by_side(limits: Sequence[Limit]) -> Iterator[str]:
    """What limits an all-to-all, the least first."""
    names = {"distance": "distances", "moore": "Moore bound", "cut": "cuts", "host": "a rank's links"}
    known = sorted((limit.algbw, names[limit.kind]) for limit in limits if limit.algbw is not None)
    word = "limits   "
    for algbw, name in known:
        yield f"{word}{exactly(algbw)} GB/s by {name}"
        word = " " * len(word)
    for limit in limits:
        if limit.algbw is None:
            yield f"{word}none by {names[limit.kind]}: {limit.because}"


def _cut(fabric: Topology, time: Fraction, inside: frozenset[str]) -> Iterator[str]:
    leaving = [link.bandwidth for link in fabric.links if link.src in inside and link.dst not in inside]
    total = sum(leaving, Fraction(0))
    grouped = " + ".join(
        f"{n} x {number(bandwidth)}" for bandwidth, n in sorted(Counter(leaving).items(), reverse=True)
    )
    gpus = [rank for rank, gpu in enumerate(fabric.gpus) if gpu in inside]
    yield f"because  {describe(fabric, gpus)}: {plural(len(gpus), 'GPU')} inside, {grouped} GB/s leaving"
    switches = [switch for switch in fabric.switches if switch in inside]
    if switches:
        yield f"         (with {plural(len(switches), 'switch', 'switches')}: {_some(switches)})"
    yield f"         and {number(time * total)} of the message must leave over {number(total)} GB/s"


def describe(fabric: Topology, ranks: Sequence[int]) -> str:
    """A set of ranks in words: whole hosts by number, others by name or count."""
    everyone = fabric.n_ranks
    if everyone - _FEW <= len(ranks) < everyone and len(ranks) > everyone // 2:
        chosen = frozenset(ranks)
        missing = [gpu for rank, gpu in enumerate(fabric.gpus) if rank not in chosen]
        return f"all but {_some(missing)}"
    chosen = frozenset(ranks)
    whole = [index for index, host in enumerate(fabric.hosts) if chosen.issuperset(host)]
    rest = [rank for index, host in enumerate(fabric.hosts) if index not in whole for rank in host if rank in chosen]
    parts = []
    if whole and len(fabric.hosts) > 1:
        parts.append(("host " if len(whole) == 1 else "hosts ") + _ranges(whole))
    elif whole:
        parts.append("all GPUs")
    if rest:
        parts.append(_some([fabric.gpus[rank] for rank in rest]))
    return " and ".join(parts)


def _ranges(numbers: Sequence[int]) -> str:
    parts = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [value for _, value in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ", ".join(parts)


def _some(names: Sequence[str]) -> str:
    if len(names) <= _FEW:
        return ", ".join(names)
    return f"{', '.join(names[: _FEW - 1])}, ... {names[-1]}"


def exactly(value: Fraction) -> str:
    """A bandwidth as a fraction and for eyes.

    >>> exactly(Fraction(2400, 7)), exactly(Fraction(25))
    ('2400/7 = 342.857', '25')
    """
    shown = format_rate(value)
    return shown if Fraction(shown) == value else f"{value} = {shown}"


def plural(count: int, word: str, words: str | None = None) -> str:
    """A count with its word.

    >>> plural(1, "rank"), plural(2, "switch", "switches")
    ('1 rank', '2 switches')
    """
    return f"{count} {word if count == 1 else words or word + 's'}"
