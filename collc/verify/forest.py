"""Checks many trees in arrays at once; which of them need to be looked at one by one.

A tree passes here if its edges reach (or, read backwards, leave) every rank but the root exactly
once, each after the edge that feeds it: then it spans and has no circle. A tree between two ranks passes
if its edges are one way from the one to the other. All others are left to the checker of single trees,
which says what is wrong.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from collc.ir.collective import Collective
from collc.ir.flow import Forest
from collc.ir.topology import Route, Topology

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

_BATCH = 1 << 21  # ranks of all trees looked at together; bounds the memory
_LARGEST = 1 << 62  # sums beyond are left to Python's own integers


def suspects(forest: Forest, collective: Collective) -> list[int]:
    """Trees that do not gather from, or do not reach, all ranks they should in the simplest way."""
    import numpy

    n = collective.n_ranks
    first, final = forest.vertices[forest.route_starts[:-1]], forest.vertices[forest.route_starts[1:] - 1]
    found: list[int] = []
    step = max(1, _BATCH // n)
    for start in range(0, len(forest), step):
        batch = slice(start, min(start + step, len(forest)))
        chunk, root = forest.chunks[batch], forest.roots[batch]
        down = _Edges.of(forest.broadcasts, forest.broadcast_starts, batch, first, final)
        up = _Edges.of(forest.reduces, forest.reduce_starts, batch, first, final).backwards()
        table = collective.columns_of(chunk)
        alone = (table.contributors == 1) & (table.consumers == 1)
        good = alone & (table.sources == root) & _is_way(down, root, n, table.sinks)
        good &= numpy.bincount(up.tree, minlength=len(root)) == 0
        if not alone.all():
            spreads = _fits(down, root, n, table.consumers, table.sinks)
            good |= ~alone & spreads & _fits(up, root, n, table.contributors, table.sources)
        found += (numpy.nonzero(~good)[0] + start).tolist()
    return found


def route_suspects(forest: Forest, topology: Topology) -> list[int]:
    """Routes of the table that go where there is no link, or through a GPU."""
    import numpy

    tails, heads, route = _steps(forest)
    number = {name: vertex for vertex, name in enumerate(forest.names)}
    links = numpy.array([number[link.src] * len(number) + number[link.dst] for link in topology.links])
    bad = ~numpy.isin(tails * len(number) + heads, links)
    # All but the first vertex of a route and its last are passed through.
    bad |= (heads < forest.n_ranks) & (numpy.append(route[1:], -1) == route)
    nowhere = forest.vertices[forest.route_starts[:-1]] == forest.vertices[forest.route_starts[1:] - 1]
    return sorted({*route[bad].tolist(), *numpy.nonzero(nowhere)[0].tolist()})


def hop_loads(forest: Forest, collective: Collective) -> tuple[dict[tuple[str, str], int], Fraction] | None:
    """Load of each link in whole units, and the unit [share of the message]; None where 64 bits do not do."""
    import numpy

    if (found := _by_route(forest, collective)) is None:
        return None
    tails, heads, route = _steps(forest)
    keys, place = numpy.unique(tails * len(forest.names) + heads, return_inverse=True)
    loads = numpy.zeros(len(keys), dtype=numpy.int64)
    numpy.add.at(loads, place, found[route])
    ends = [divmod(key, len(forest.names)) for key in keys.tolist()]
    named = {(forest.names[a], forest.names[b]): load for (a, b), load in zip(ends, loads.tolist(), strict=True)}
    return named, Fraction(1, forest.denominator * collective.size_chunks)


def route_loads(forest: Forest, collective: Collective) -> tuple[dict[Route, int], Fraction] | None:
    """Load of each route in whole units, and the unit [share of the message]; None where 64 bits do not do."""
    if (found := _by_route(forest, collective)) is None:
        return None
    taken = {forest.route(index): load for index, load in enumerate(found.tolist()) if load}
    return taken, Fraction(1, forest.denominator * collective.size_chunks)


def _steps(forest: Forest) -> tuple[Array, Array, Array]:
    """Every link that a route of the table takes: its ends and the route."""
    import numpy

    lengths = forest.route_starts[1:] - forest.route_starts[:-1]
    route = numpy.repeat(numpy.arange(len(lengths)), lengths)
    same = route[1:] == route[:-1]
    return forest.vertices[:-1][same], forest.vertices[1:][same], route[1:][same]


def _by_route(forest: Forest, collective: Collective) -> Array | None:
    """By route of the table, what it carries [shares of a slot x the denominator]."""
    import numpy

    counts = collective.columns_of(forest.chunks).counts
    n_edges = len(forest.reduces) + len(forest.broadcasts)
    if n_edges and int(forest.numerators.max()) * int(counts.max()) * n_edges >= _LARGEST:
        return None
    loads = numpy.zeros(len(forest.route_starts) - 1, dtype=numpy.int64)
    for edges, starts in ((forest.reduces, forest.reduce_starts), (forest.broadcasts, forest.broadcast_starts)):
        numpy.add.at(loads, edges, numpy.repeat(forest.numerators * counts, starts[1:] - starts[:-1]))
    return loads


def unbalanced(forest: Forest, collective: Collective) -> dict[int, Fraction] | None:
    """Chunk -> the sum of its trees' weights where that is not one; None where 64 bits do not do.

    A chunk that need not move may have no tree.
    """
    import numpy

    if len(forest) and int(forest.numerators.max()) * len(forest) >= _LARGEST:
        return None
    table = collective.columns
    total = numpy.zeros(len(table.sources), dtype=numpy.int64)
    numpy.add.at(total, forest.chunks, forest.numerators)
    stays = (table.sources == table.sinks) & (table.sources >= 0)
    wrong = numpy.flatnonzero((total != forest.denominator) & ((total != 0) | ~stays)).tolist()
    return {chunk: Fraction(int(total[chunk]), forest.denominator) for chunk in wrong}


class _Edges:
    """The edges of a batch of trees, in order: the tree, the rank that has it, the rank that gets it."""

    def __init__(self, tree: Array, giver: Array, taker: Array) -> None:
        self.tree, self.giver, self.taker = tree, giver, taker

    @staticmethod
    def of(edges: Array, starts: Array, batch: slice, first: Array, final: Array) -> _Edges:
        import numpy

        own = starts[batch.start : batch.stop + 1]
        routes = edges[own[0] : own[-1]]
        return _Edges(numpy.repeat(numpy.arange(len(own) - 1), own[1:] - own[:-1]), first[routes], final[routes])

    def backwards(self) -> _Edges:
        return _Edges(self.tree[::-1], self.taker[::-1], self.giver[::-1])


def _is_way(edges: _Edges, root: Array, n: int, sink: Array) -> Array:
    """By tree, whether its edges lead one after another from its root to a rank, and meet no rank twice."""
    import numpy

    n_trees = len(root)
    end = root.copy()
    end[edges.tree] = edges.taker  # of several, the last stays
    starts = numpy.append(True, edges.tree[1:] != edges.tree[:-1])[: len(edges.tree)]
    before = numpy.where(starts, root[edges.tree], numpy.roll(edges.taker, 1))
    wrong = numpy.bincount(edges.tree, before != edges.giver, minlength=n_trees) > 0
    met = numpy.sort(numpy.concatenate([edges.tree * n + edges.taker, numpy.arange(n_trees) * n + root]))
    wrong[met[1:][met[1:] == met[:-1]] // n] = True
    is_way: Array = ~wrong & (end == sink)
    return is_way


def _fits(edges: _Edges, root: Array, n: int, concerned: Array, sole: Array) -> Array:
    """By tree, whether it reaches every rank once, and from ranks that were reached before.

    Args:
        concerned: by tree, how many ranks are to be reached; where one is, `sole`, that must be the root.
    """
    import numpy

    n_trees = len(root)
    never = len(edges.tree)
    base = edges.tree * n
    times = numpy.bincount(base + edges.taker, minlength=n_trees * n).reshape(n_trees, n)
    times[numpy.arange(n_trees), root] += 1
    when = numpy.full(n_trees * n, never, dtype=numpy.int64)
    when[base + edges.taker] = numpy.arange(never)
    when[numpy.arange(n_trees) * n + root] = -1
    late = numpy.bincount(edges.tree, when[base + edges.giver] >= numpy.arange(never), minlength=n_trees) > 0
    everywhere = (times == 1).all(axis=1) & (concerned == n)
    nowhere = (numpy.bincount(edges.tree, minlength=n_trees) == 0) & (concerned == 1) & (sole == root)
    fits: Array = (everywhere & ~late) | nowhere
    return fits
