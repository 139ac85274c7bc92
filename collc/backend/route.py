"""Source routes with virtual channels, for fabrics whose NICs forward.

A path waits for the next link while it holds the last, so paths whose links wait for each other in a
circle can stop for good. Each path gets a virtual channel (a layer) on every link; within a layer no such
circle may close.

    {"collc": 1, "kind": "SourceRoutes", "collective": ..., "ranks": n, "vertices": [names, GPUs first],
     "links": [[tail, head, "GB/s"], ...], "demand": [[slots, row's rank to column's rank], ...], "size": slots,
     "parts": p, "layers": l, "time": "s/GB", "routes": [[src, dst, parts, layer, [links]], ...]}

A route carries parts/p of what its pair exchanges over the numbered links, on its layer all the way.

Source: LASH: Skeie, Lysne, Theiss, IPDPS 2002; Dally & Seitz, IEEE Trans. Computers 36(5), 1987.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any, ClassVar

from collc.cost.demand import Demand
from collc.errors import InputError, UnsupportedError
from collc.ir.flow import FlowSchedule
from collc.ir.program import Compiled
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology

_SERVED = ("alltoall", "alltoallv", "gather", "scatter")
_Links = tuple[int, ...]
_Shares = dict[tuple[int, int, _Links], Fraction]
_Placed = dict[tuple[int, int, int, _Links], Fraction]


@dataclass(frozen=True)
class Route:
    """Source routes with a virtual channel each, free of deadlock.

    Attributes:
        layers: virtual channels the fabric has; paths that fit in none of them take another way.
            None: as many as are needed.
    """

    level: ClassVar[str] = "flow"
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.layers is not None and self.layers < 1:
            raise InputError(f"layers {self.layers}; expected 1 or more")

    def supports(self, collective: str) -> str | None:
        """None, or that routes are for chunks from one rank to one."""
        return None if collective in _SERVED else f"source routes are for {', '.join(_SERVED)}; found {collective}"

    def emit(self, sweep: Sequence[Compiled]) -> dict[str, str]:
        """File name -> text.

        Raises:
            UnsupportedError: the layers the fabric has are too few for any choice of ways, or a schedule of steps.
        """
        return {f"{compiled.stem}.routes.json": _text(compiled.made, self.layers) for compiled in sweep}


def _text(flow: FlowSchedule | Schedule, most_layers: int | None) -> str:
    if isinstance(flow, Schedule):
        raise UnsupportedError("source routes lead all the way; this schedule stores and forwards, step by step")
    problem, topology = flow.problem, flow.problem.topology
    demand = Demand.of(problem.collective)
    shares = _shares(flow)
    n_layers, placed = _placed(topology, shares, None)
    if most_layers is not None and n_layers > most_layers:
        n_layers, placed = _placed(topology, shares, most_layers)
    parts = lcm(*(share.denominator for share in placed.values()))
    number = {vertex: at for at, vertex in enumerate(topology.gpus + topology.switches)}
    routes = [
        [src, dst, int(share * parts), layer, links] for (src, dst, layer, links), share in sorted(placed.items())
    ]
    document = {
        "collc": 1,
        "kind": "SourceRoutes",
        "collective": problem.collective.name,
        "ranks": topology.n_ranks,
        "vertices": list(number),
        "links": [[number[link.src], number[link.dst], str(link.bandwidth)] for link in topology.links],
        "demand": demand.pairs.tolist(),
        "size": demand.size,
        "parts": parts,
        "layers": n_layers,
        "time": str(_time(topology, demand, placed)),
        "routes": routes,
    }
    return _lines(document)


def _lines(document: dict[str, Any]) -> str:
    """JSON with a line for each key, and for each route."""
    texts = []
    for key, value in document.items():
        if key == "routes":
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            texts.append(f'"routes":[\n{rows}]')
        else:
            texts.append(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}")
    return "{" + ",\n".join(texts) + "}\n"


def _shares(flow: FlowSchedule) -> _Shares:
    """(sender, receiver, links) -> share of what the pair exchanges."""
    chunks = flow.problem.collective.chunks
    number = {(link.src, link.dst): at for at, link in enumerate(flow.problem.topology.links)}
    moved: dict[tuple[int, int, _Links], Fraction] = defaultdict(Fraction)
    total: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for tree in flow.trees:
        if tree.reduce or any(one.dst != other.src for one, other in pairwise(tree.broadcast)):
            raise UnsupportedError("source routes are for ways from one rank to one; this schedule copies or adds")
        if tree.broadcast:
            ends = tree.root, tree.broadcast[-1].dst
            links = tuple(number[hop] for route in tree.broadcast for hop in route.hops)
            moved[(*ends, links)] += tree.weight * chunks[tree.chunk].count
            total[ends] += tree.weight * chunks[tree.chunk].count
    return {key: amount / total[key[0], key[1]] for key, amount in moved.items()}


def _placed(topology: Topology, shares: _Shares, most: int | None) -> tuple[int, _Placed]:
    """Layers used, and (sender, receiver, layer, links) -> share; long ways first, as the hardest to place."""
    layers = Layers(topology, most)
    placed: _Placed = defaultdict(Fraction)
    for (src, dst, links), share in sorted(shares.items(), key=lambda item: (-len(item[0][2]), item[0])):
        layer, taken = layers.place(links)
        placed[src, dst, layer, taken] += share
    return layers.n_used, placed


def _time(topology: Topology, demand: Demand, placed: _Placed) -> Fraction:
    """[s/GB of message size] of the busiest link, all layers together."""
    loads: dict[int, Fraction] = defaultdict(Fraction)
    for (src, dst, _, links), share in placed.items():
        for link in links:
            loads[link] += share * int(demand.pairs[src, dst])
    busiest = max((load / topology.links[link].bandwidth for link, load in loads.items()), default=Fraction(0))
    return busiest / demand.size


class Layers:
    """Virtual channels, filled one after the other; each keeps free of circles as paths are added.

    Where there may be only so many, the last keeps to an order of links in which every two vertices are
    joined by a way that rises: towards a root and away from it again. What fits nowhere goes that way.

    Args:
        most: layers at most; None for no limit.
    """

    def __init__(self, topology: Topology, most: int | None) -> None:
        vertex = {name: at for at, name in enumerate(topology.gpus + topology.switches)}
        self._ends = [(vertex[link.src], vertex[link.dst]) for link in topology.links]
        self._after: list[dict[int, set[int]]] = []
        self._most_free = None if most is None else most - 1
        self._order = [] if most is None else self._rising(len(vertex))
        self._place = {link: at for at, link in enumerate(self._order)}
        self._is_last_used = False

    @property
    def n_used(self) -> int:
        """Layers that hold a path."""
        return len(self._after) + self._is_last_used

    def place(self, links: _Links) -> tuple[int, _Links]:
        """The layer a path goes to, and the links it takes there.

        Raises:
            UnsupportedError: no layer takes it, nor any other way between its ends.
        """
        for layer, after in enumerate(self._after):
            if self._fits(after, links):
                self._add(after, links)
                return layer, links
        if self._most_free is None or len(self._after) < self._most_free:
            self._after.append(defaultdict(set))
            self._add(self._after[-1], links)
            return len(self._after) - 1, links
        self._is_last_used = True
        places = [self._place[link] for link in links]
        return self._most_free, links if places == sorted(places) else self._rising_way(links)

    @staticmethod
    def _add(after: dict[int, set[int]], links: _Links) -> None:
        for one, other in pairwise(links):
            after[one].add(other)

    @staticmethod
    def _fits(after: dict[int, set[int]], links: _Links) -> bool:
        """Whether no circle closes: from no link of the path do waits lead back to an earlier one."""
        if all(other in after.get(one, ()) for one, other in pairwise(links)):
            return True
        earlier = set(links[:1])
        for link in links[1:]:
            if _reaches(after, link, earlier):
                return False
            earlier.add(link)
        return True

    def _rising(self, n_vertices: int) -> list[int]:
        """All links: those nearer to the root first by their distance to it, then the rest by that from it."""
        links = range(len(self._ends))
        touching = [sum(vertex in ends for ends in self._ends) for vertex in range(n_vertices)]
        root = touching.index(max(touching))
        away = _distances(root, self._ends)
        back = _distances(root, [(head, tail) for tail, head in self._ends])
        far = n_vertices

        def key(link: int) -> tuple[bool, int, int]:
            tail, head = self._ends[link]
            is_down = back.get(head, far) >= back.get(tail, far)
            return is_down, away.get(tail, far) if is_down else -back[tail], link

        return sorted(links, key=key)

    def _rising_way(self, links: _Links) -> _Links:
        """The shortest way between the ends of a path along which links rise in the order."""
        start, end = self._ends[links[0]][0], self._ends[links[-1]][1]
        best: dict[int, _Links] = {start: ()}
        for link in self._order:
            tail, head = self._ends[link]
            if tail in best and (head not in best or len(best[tail]) + 1 < len(best[head])):
                best[head] = (*best[tail], link)
        if end not in best:
            raise UnsupportedError("too few virtual channels: some ranks have no way free of circles between them")
        return best[end]


def _reaches(after: dict[int, set[int]], start: int, goals: set[int]) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        for link in after.get(waiting.pop(), ()):
            if link in goals:
                return True
            if link not in seen:
                seen.add(link)
                waiting.append(link)
    return False


def _distances(root: int, ends: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Vertex -> links on the shortest way from the root."""
    onward: dict[int, list[int]] = defaultdict(list)
    for tail, head in ends:
        onward[tail].append(head)
    found, front = {root: 0}, [root]
    for vertex in front:
        for head in onward[vertex]:
            if head not in found:
                found[head] = found[vertex] + 1
                front.append(head)
    return found
