"""Checks a file of source routes: ways, shares, layers, and that no layer can deadlock.

Deadlock is judged by the graph of channels: a channel is a link on a layer, and leads to those that some
route takes next. Routes that hold a channel while they wait for the next can only stop for good where that
graph has a circle (Dally & Seitz, IEEE Trans. Computers 36(5), 1987).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from collc.errors import InputError, Place
from collc.ir.topology import Topology
from collc.units import parse_number
from collc.verify.findings import Finding
from collc.verify.report import FileReport, Load, Request
from collc.verify.rules import collected

KIND = "SourceRoutes"


class _BadFormError(Exception):
    """A field that is not as documented."""


@dataclass(frozen=True)
class _Way:
    src: int
    dst: int
    parts: int
    layer: int
    links: Sequence[int]


@dataclass(frozen=True)
class _File:
    """What the file says."""

    collective: str
    n_ranks: int
    vertices: Sequence[str]
    links: Sequence[tuple[int, int, Fraction]]
    demand: Sequence[Sequence[int]]
    size: int
    parts: int
    n_layers: int
    time: Fraction
    ways: Sequence[_Way]


def examine(raw: bytes, path: str, request: Request) -> FileReport:
    """The report on a file of source routes.

    Raises:
        InputError: it is no JSON.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no file of source routes that can be read: {error}", Place(path)) from None
    report = FileReport(path, "collc-routes", source=raw)
    try:
        file = _read(document)
    except _BadFormError as error:
        return replace(report, findings=(Finding("path-form", "error", f"the file cannot be understood: {error}"),))
    found = [*_way_faults(file), *_share_faults(file), *_fabric_faults(file, request.topology)]
    loads = {} if any(finding.rule == "path-links" for finding in found) else _loads(file)
    if not any(finding.rule in ("path-links", "path-layer") for finding in found):
        found += _deadlock_faults(file)
        found += _time_faults(file, loads)
    return replace(
        report,
        collective=file.collective,
        ranks=file.n_ranks,
        channels=file.n_layers,
        algbw=1 / file.time if file.time else None,
        loads=_shown(file, loads),
        findings=collected(found),
    )


# --- reading -------------------------------------------------------------------------------------


def _read(document: Mapping[str, Any]) -> _File:
    if document.get("collc") != 1:
        raise _BadFormError("written by another version of collc; this one reads version 1")
    vertices = document.get("vertices")
    if not isinstance(vertices, list) or not all(isinstance(name, str) for name in vertices):
        raise _BadFormError("vertices: expected a list of names")
    n_ranks = _count(document.get("ranks"), "ranks", 1, len(vertices))
    links = [_link(entry, f"links[{at}]", len(vertices)) for at, entry in enumerate(_list(document, "links"))]
    n_layers = _count(document.get("layers"), "layers", 0)
    demand = [
        [_count(slots, f"demand[{row}]", 0) for slots in _items(entries, f"demand[{row}]", n_ranks)]
        for row, entries in enumerate(_items(document.get("demand"), "demand", n_ranks))
    ]
    collective = document.get("collective")
    if not isinstance(collective, str):
        raise _BadFormError("collective: expected its name")
    ways = [_way(entry, f"routes[{at}]", n_ranks, len(links)) for at, entry in enumerate(_list(document, "routes"))]
    return _File(
        collective,
        n_ranks,
        vertices,
        links,
        demand,
        _count(document.get("size"), "size", 1),
        _count(document.get("parts"), "parts", 1),
        n_layers,
        _number(document.get("time"), "time"),
        ways,
    )


def _list(document: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = document.get(key)
    if not isinstance(value, list):
        raise _BadFormError(f"{key}: expected a list")
    return value


def _items(value: Any, where: str, length: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise _BadFormError(f"{where}: expected {length} entries")
    return value


def _count(value: Any, where: str, low: int, high: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        raise _BadFormError(f"{where}: {value!r}; expected a whole number from {low}" + (f" to {high}" if high else ""))
    return value


def _number(value: Any, where: str) -> Fraction:
    try:
        number = parse_number(value) if isinstance(value, str) else None
    except ValueError:
        number = None
    if number is None:
        raise _BadFormError(f'{where}: {value!r}; expected a number written as text, such as "25/3"')
    return number


def _link(entry: Any, where: str, n_vertices: int) -> tuple[int, int, Fraction]:
    tail, head, width = _items(entry, where, 3)
    bandwidth = _number(width, where)
    if bandwidth <= 0:
        raise _BadFormError(f"{where}: {width} GB/s; expected more than none")
    return _count(tail, where, 0, n_vertices - 1), _count(head, where, 0, n_vertices - 1), bandwidth


def _way(entry: Any, where: str, n_ranks: int, n_links: int) -> _Way:
    src, dst, parts, layer, links = _items(entry, where, 5)
    if not isinstance(links, list) or not links:
        raise _BadFormError(f"{where}: expected a list of links")
    return _Way(
        _count(src, where, 0, n_ranks - 1),
        _count(dst, where, 0, n_ranks - 1),
        _count(parts, where, 1),
        _count(layer, where, 0),
        [_count(link, where, 0, n_links - 1) for link in links],
    )


# --- checking ------------------------------------------------------------------------------------


def _way_faults(file: _File) -> Iterator[Finding]:
    for at, way in enumerate(file.ways):
        stops = [file.links[way.links[0]][0], *(file.links[link][1] for link in way.links)]
        joined = all(file.links[one][1] == file.links[other][0] for one, other in pairwise(way.links))
        shown = " -> ".join(file.vertices[stop] for stop in stops)
        where = f"route {at} from rank {way.src} to rank {way.dst}"
        if not joined or (stops[0], stops[-1]) != (way.src, way.dst):
            yield Finding("path-links", "error", f"{where}: its links lead {shown}", rank=way.src)
        elif len(set(stops)) != len(stops):
            yield Finding("path-links", "error", f"{where}: {shown} passes a vertex twice", rank=way.src)
        if way.layer >= file.n_layers:
            yield Finding("path-layer", "error", f"{where}: layer {way.layer} of {file.n_layers}", rank=way.src)


def _share_faults(file: _File) -> Iterator[Finding]:
    carried: dict[tuple[int, int], int] = defaultdict(int)
    for way in file.ways:
        carried[way.src, way.dst] += way.parts
    for src, row in enumerate(file.demand):
        for dst, slots in enumerate(row):
            wanted = file.parts if slots and src != dst else 0
            if carried[src, dst] != wanted:
                said = f"the routes carry {carried[src, dst]} parts; expected {wanted}"
                yield Finding("path-shares", "error", f"rank {src} to rank {dst}: {said}", rank=src)


def _fabric_faults(file: _File, topology: Topology | None) -> Iterator[Finding]:
    if topology is None:
        return
    for tail, head, width in file.links:
        ends = file.vertices[tail], file.vertices[head]
        if ends not in topology.link or topology.link[ends].bandwidth != width:
            found = f"{topology.link[ends].bandwidth} GB/s" if ends in topology.link else "no such link"
            yield Finding("path-fabric", "error", f"link {ends[0]} -> {ends[1]}, {width} GB/s: the fabric has {found}")


def _loads(file: _File) -> dict[int, Fraction]:
    """By link, share of the message."""
    loads: dict[int, int] = defaultdict(int)
    for way in file.ways:
        for link in way.links:
            loads[link] += way.parts * file.demand[way.src][way.dst]
    return {link: Fraction(load, file.parts * file.size) for link, load in sorted(loads.items())}


def _shown(file: _File, loads: Mapping[int, Fraction]) -> dict[tuple[str, str], Load]:
    busy = {link: load / file.links[link][2] for link, load in loads.items()}
    most = max(busy.values(), default=Fraction(1))
    names = {link: (file.vertices[file.links[link][0]], file.vertices[file.links[link][1]]) for link in loads}
    return {names[link]: Load(load, busy[link] / most) for link, load in loads.items()}


def _time_faults(file: _File, loads: Mapping[int, Fraction]) -> Iterator[Finding]:
    busiest = max((load / file.links[link][2] for link, load in loads.items()), default=Fraction(0))
    if busiest != file.time:
        yield Finding("path-time", "error", f"the busiest link takes {busiest} s/GB; the file states {file.time}")


def _deadlock_faults(file: _File) -> Iterator[Finding]:
    for layer in range(file.n_layers):
        after: dict[int, set[int]] = defaultdict(set)
        for way in file.ways:
            if way.layer == layer:
                for one, other in pairwise(way.links):
                    after[one].add(other)
        if circle := _circle(after):
            ends = (file.links[link] for link in circle)
            shown = ", ".join(f"{file.vertices[tail]} -> {file.vertices[head]}" for tail, head, _ in ends)
            yield Finding("path-deadlock", "error", f"layer {layer}: these links wait for each other in turn: {shown}")


def _circle(after: Mapping[int, set[int]]) -> list[int]:
    """The links of a circle, in order; empty where there is none. Colours as in a depth-first search."""
    done: set[int] = set()
    for start in sorted(after):
        if start in done:
            continue
        trail, place = [start], {start: 0}
        onward = [iter(sorted(after[start]))]
        while trail:
            head = next(onward[-1], None)
            if head is None:
                done.add(trail[-1])
                del place[trail.pop()]
                onward.pop()
            elif head in place:
                return trail[place[head] :]
            elif head not in done:
                place[head] = len(trail)
                trail.append(head)
                onward.append(iter(sorted(after.get(head, ()))))
    return []
