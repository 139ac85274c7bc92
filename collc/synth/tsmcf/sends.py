"""From whole flows through the layers to sends: each chunk gets its way, step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from collc.ir.collective import Collective
from collc.ir.schedule import Send
from collc.ir.topology import Route
from collc.synth.tsmcf.layers import Layers
from collc.synth.tsmcf.whole import Whole

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# (step, link) from the source on; what stays is left out.
_Way = tuple[tuple[int, int], ...]
# (first chunk, number of them)
_Run = tuple[int, int]


def sends_of(whole: Whole, collective: Collective) -> tuple[Send, ...]:
    """The sends of all chunks; steps in which nothing moves are left out.

    Args:
        collective: as asked; its slots are cut into chunks.
    """
    runs = _runs(collective, whole.scale)
    moved: dict[tuple[int, tuple[int, ...], int], list[_Run]] = defaultdict(list)
    for src, dst, way, units in _ways(whole):
        hops = [(step, tuple(link for _, link in hop)) for step, hop in groupby(way, key=lambda one: one[0])]
        for row, run in _taken(runs[src, dst], units):
            for step, links in hops:
                moved[step, links, row].append(run)
    number = {step: place for place, step in enumerate(sorted({step for step, *_ in moved}))}
    route = _Routes(whole.layers)
    sends = [
        Send(number[step], start, route.of(links), reduce=False, count=count)
        for (step, links, _), several in moved.items()
        for start, count in _joined(several)
    ]
    return tuple(sorted(sends, key=lambda send: (send.step, send.chunk, send.route.src, send.route.dst)))


class _Routes:
    """Routes by their links; equal ones are one object."""

    def __init__(self, layers: Layers) -> None:
        network = layers.network
        self._vertices = network.vertices
        self._tails, self._heads = network.tails.tolist(), network.heads.tolist()
        self._made: dict[tuple[int, ...], Route] = {}

    def of(self, links: tuple[int, ...]) -> Route:
        if links not in self._made:
            stops = [self._tails[links[0]], *(self._heads[link] for link in links)]
            self._made[links] = Route(stops[0], stops[-1], tuple(self._vertices[stop] for stop in stops))
        return self._made[links]


def _runs(collective: Collective, scale: int) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """Pair of ranks -> (row of the table, first chunk, number) of what it exchanges, the last first."""
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    starts = accumulate((chunk.count * scale for chunk in collective.chunks), initial=0)
    for row, (chunk, start) in enumerate(zip(collective.chunks, starts, strict=False)):
        pair = chunk.precondition.ranks[0], chunk.postcondition.ranks[0]
        found[pair].append((row, start, chunk.count * scale))
    for several in found.values():
        several.reverse()
    return found


def _taken(left: list[tuple[int, int, int]], units: int) -> Iterator[tuple[int, _Run]]:
    """So many chunks off what is left, row by row."""
    while units:
        row, start, count = left.pop()
        taken = min(count, units)
        if count > taken:
            left.append((row, start + taken, count - taken))
        units -= taken
        yield row, (start, taken)


def _joined(runs: list[_Run]) -> Iterator[_Run]:
    """Runs of one row, those that touch as one."""
    first = last = -1
    for start, count in sorted(runs):
        if start != last:
            if last > first:
                yield first, last - first
            first = start
        last = start + count
    yield first, last - first


def _ways(whole: Whole) -> Iterator[tuple[int, int, _Way, int]]:
    """(source, destination, way, chunks) of all data; those of a pair that begin alike follow each other."""
    translations = whole.layers.translations
    for row, source in enumerate(whole.layers.sources.tolist()):
        found = sorted(_peeled(whole, row))
        if translations is None:
            for sink, way, units in found:
                yield source, sink, way, units
            continue
        for vertices, links in zip(translations.vertices.tolist(), translations.links.tolist(), strict=True):
            for sink, way, units in found:
                yield vertices[0], vertices[sink], tuple((step, links[link]) for step, link in way), units


def _peeled(whole: Whole, row: int) -> Iterator[tuple[int, _Way, int]]:
    """The ways of one source's flow, widest last arc first: (destination, way, chunks)."""
    import numpy

    layers, flows = whole.layers, whole.flows
    network, n = layers.network, layers.network.n_ranks
    tails, heads = layers.ends
    used = numpy.flatnonzero((layers.row == row) & (flows > 0))
    left = dict(zip(layers.arc[used].tolist(), flows[used].tolist(), strict=True))
    entering: dict[int, list[int]] = defaultdict(list)
    for arc in left:
        entering[int(heads[arc])].append(arc)
    source = int(layers.sources[row])
    for sink in network.demand[source].nonzero()[0].tolist():
        wanted = int(network.demand[source, sink]) * whole.scale
        while wanted:
            vertex, arcs = layers.n_steps * n + sink, []
            while vertex != source:
                arcs.append(max(entering[vertex], key=lambda arc: (left[arc], -arc)))
                vertex = int(tails[arcs[-1]])
            units = min(wanted, *(left[arc] for arc in arcs))
            for arc in arcs:
                left[arc] -= units
            wanted -= units
            moving = [arc for arc in reversed(arcs) if arc < layers.n_steps * network.n_links]
            yield sink, tuple(divmod(arc, network.n_links) for arc in moving), units
