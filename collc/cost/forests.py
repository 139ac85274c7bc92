"""Loads and heights of many trees in arrays, without an object per edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from collc.ir.collective import Collective, Problem
from collc.ir.forest import Forest
from collc.ir.orbit import Orbit

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ranks of all trees looked at together; bounds the memory it takes.
_BATCH = 1 << 21
_LIMIT = 2**62


def hop_loads(collective: Collective, forest: Forest) -> dict[tuple[str, str], Fraction] | None:
    """Bytes that cross each link, per byte of message size; None where 64 bits do not hold the sums."""
    import numpy

    counts = collective.columns_of(forest.chunks).counts
    n_edges = len(forest.reduces) + len(forest.broadcasts)
    if not n_edges:
        return {}
    if int(forest.numerators.max()) * int(counts.max()) * n_edges >= _LIMIT:
        return None
    shares = forest.numerators * counts
    by_route = numpy.zeros(len(forest.route_starts) - 1, dtype=numpy.int64)
    for edges, starts in ((forest.reduces, forest.reduce_starts), (forest.broadcasts, forest.broadcast_starts)):
        numpy.add.at(by_route, edges, numpy.repeat(shares, numpy.diff(starts)))
    tails, heads, route = _hops(forest)
    keys, place = numpy.unique(tails * len(forest.names) + heads, return_inverse=True)
    by_hop = numpy.zeros(len(keys), dtype=numpy.int64)
    numpy.add.at(by_hop, place, by_route[route])
    whole = forest.denominator * collective.size_chunks
    loads = {
        (forest.names[key // len(forest.names)], forest.names[key % len(forest.names)]): Fraction(load, whole)
        for key, load in zip(keys.tolist(), by_hop.tolist(), strict=True)
        if load
    }
    return dict(sorted(loads.items()))


def orbit_hop_loads(problem: Problem, orbit: Orbit) -> dict[tuple[str, str], Fraction] | None:
    """The same of images: what a renaming takes to a link is added up there."""
    import numpy

    base = hop_loads(problem.collective, orbit.base)
    if base is None:
        return None
    unit = lcm(*(load.denominator for load in base.values()))
    # Each renaming takes one link at most to a link.
    most = max(base.values(), default=Fraction(0)) * unit * len(orbit.images)
    kind = numpy.dtype(numpy.int64 if most < _LIMIT else object)
    number = {name: vertex for vertex, name in enumerate(orbit.base.names)}
    ends = numpy.array([[number[src], number[dst]] for src, dst in base], dtype=numpy.int64).reshape(-1, 2).T
    shares = numpy.array([int(load * unit) for load in base.values()], dtype=kind)
    links = problem.topology.links
    place = numpy.full((len(number), len(number)), -1, dtype=numpy.int32)
    place[[number[link.src] for link in links], [number[link.dst] for link in links]] = numpy.arange(len(links))
    # What has no link to go to, counted last, is left to the checker.
    loads = numpy.zeros(len(links) + 1, dtype=kind)
    for image in orbit.images:
        loads[place[image[ends[0]], image[ends[1]]]] += shares
    return {
        (link.src, link.dst): Fraction(load, unit)
        for link, load in sorted(zip(links, loads.tolist(), strict=False), key=lambda one: (one[0].src, one[0].dst))
        if load
    }


def _hops(forest: Forest) -> tuple[Array, Array, Array]:
    """Tail, head and route of every step of every route of the table."""
    import numpy

    inner = numpy.ones(len(forest.vertices), dtype=bool)
    inner[forest.route_starts[1:] - 1] = False
    at = numpy.nonzero(inner)[0]
    route = numpy.repeat(numpy.arange(len(forest.route_starts) - 1), numpy.diff(forest.route_starts) - 1)
    return forest.vertices[at], forest.vertices[at + 1], route


def longest_way(forest: Forest, latency: Sequence[int]) -> int:
    """The largest sum of latencies from a contributor of a tree over its root to a consumer.

    Args:
        latency: by route of the table.
    """
    import numpy

    by_route = numpy.array(latency, dtype=numpy.int64)
    sources = forest.vertices[forest.route_starts[:-1]]
    targets = forest.vertices[forest.route_starts[1:] - 1]
    longest = 0
    for trees in _batches(len(forest), forest.n_ranks):
        up = _depths(forest.reduces, forest.reduce_starts, trees, targets, sources, by_route, forest.n_ranks)
        down = _depths(forest.broadcasts, forest.broadcast_starts, trees, sources, targets, by_route, forest.n_ranks)
        longest = max(longest, int((up + down).max()))
    return longest


def route_latencies(forest: Forest, latency: dict[tuple[int, int], int], extra: int) -> list[int]:
    """By route, the sum over its links, by (tail, head), and something for the hop itself."""
    import numpy

    tails, heads, route = _hops(forest)
    keys, place = numpy.unique(tails * len(forest.names) + heads, return_inverse=True)
    n = len(forest.names)
    by_key = numpy.array([latency[key // n, key % n] for key in keys.tolist()], dtype=numpy.int64)
    total = numpy.full(len(forest.route_starts) - 1, extra, dtype=numpy.int64)
    if len(keys):
        numpy.add.at(total, route, by_key[place])
    found: list[int] = total.tolist()
    return found


def _batches(n_trees: int, n_ranks: int) -> Iterator[range]:
    step = max(1, _BATCH // n_ranks)
    for first in range(0, n_trees, step):
        yield range(first, min(first + step, n_trees))


def _depths(
    edges: Array, starts: Array, trees: range, above: Array, below: Array, latency: Array, n_ranks: int
) -> Array:
    """By tree of a batch, the longest way between its root and another rank.

    Args:
        above, below: by route, the rank on the root's side and the other.
    """
    import numpy

    lengths = numpy.diff(starts[trees.start : trees.stop + 1])
    tree = numpy.repeat(numpy.arange(len(trees)), lengths)
    routes = edges[starts[trees.start] : starts[trees.stop]]
    # The edge that leads on towards the root, or one beyond the last that stands for the root itself.
    at = numpy.full(len(trees) * n_ranks, len(routes), dtype=numpy.int64)
    at[tree * n_ranks + below[routes]] = numpy.arange(len(routes))
    onward = numpy.append(at[tree * n_ranks + above[routes]], len(routes))
    depth = numpy.append(latency[routes], 0)
    # Each round looks twice as far.
    for _ in range(n_ranks.bit_length()):
        if (onward == len(routes)).all():
            break
        depth, onward = depth + depth[onward], onward[onward]
    deepest = numpy.zeros(len(trees), dtype=numpy.int64)
    numpy.maximum.at(deepest, tree, depth[:-1])
    return deepest
