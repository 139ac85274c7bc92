"""From packings to forests: links of hops become routes, copies become weights, all in arrays."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from collc.ir.flow import Forest
from collc.synth.forestcoll.packing import Packing
from collc.synth.forestcoll.scale import Instance

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


def spread(instance: Instance, packing: Packing, chunk_of: dict[int, int]) -> Forest:
    """The packed trees as out-trees.

    Args:
        chunk_of: by root, the chunk that it spreads.
    """
    import numpy

    routes, vertices, route_starts = _routes(instance, packing)
    denominator = lcm(*(trees for trees in instance.trees if trees))
    # What one copy carries, by root.
    unit = numpy.array([denominator // trees if trees else 0 for trees in instance.trees], dtype=numpy.int64)
    chunks = numpy.array([chunk_of.get(rank, 0) for rank in range(instance.n_ranks)], dtype=numpy.int64)
    return Forest(
        instance.names,
        instance.n_ranks,
        denominator,
        chunks[packing.roots],
        packing.copies * unit[packing.roots],
        packing.roots,
        numpy.zeros(0, dtype=numpy.int64),
        numpy.zeros(len(packing.roots) + 1, dtype=numpy.int64),
        routes,
        packing.first,
        vertices,
        route_starts,
    )


def gathered(forest: Forest) -> Forest:
    """Out-trees walked backwards: in-trees of the reversed fabric."""
    import numpy

    edges, vertices = _turned(forest)
    none = numpy.zeros(0, dtype=numpy.int64)
    starts = numpy.zeros(len(forest) + 1, dtype=numpy.int64)
    return _with(forest, edges, forest.broadcast_starts, none, starts, vertices, forest.route_starts)


def summed(forest: Forest, n_chunks: int) -> Forest:
    """Each tree first backwards and then forwards: sums that all get, an equal share for each root."""
    import numpy

    edges, turned = _turned(forest)
    edges = edges + (len(forest.route_starts) - 1)
    vertices = numpy.concatenate([forest.vertices, turned])
    starts = numpy.concatenate([forest.route_starts, forest.route_starts[1:] + forest.route_starts[-1]])
    both = _with(forest, edges, forest.broadcast_starts, forest.broadcasts, forest.broadcast_starts, vertices, starts)
    return _repeated(both, n_chunks)


def _repeated(forest: Forest, n_chunks: int) -> Forest:
    """The trees for each chunk of a table whose chunks all ranks share."""
    import numpy

    n = len(forest)
    lengths = [numpy.tile(numpy.diff(starts), n_chunks) for starts in (forest.reduce_starts, forest.broadcast_starts)]
    return Forest(
        forest.names,
        forest.n_ranks,
        forest.denominator * forest.n_ranks,
        numpy.repeat(numpy.arange(n_chunks, dtype=numpy.int64), n),
        numpy.tile(forest.numerators, n_chunks),
        numpy.tile(forest.roots, n_chunks),
        numpy.tile(forest.reduces, n_chunks),
        _starts(lengths[0]),
        numpy.tile(forest.broadcasts, n_chunks),
        _starts(lengths[1]),
        forest.vertices,
        forest.route_starts,
    )


def _with(
    forest: Forest,
    reduces: Array,
    reduce_starts: Array,
    broadcasts: Array,
    broadcast_starts: Array,
    vertices: Array,
    route_starts: Array,
) -> Forest:
    return Forest(
        forest.names,
        forest.n_ranks,
        forest.denominator,
        forest.chunks,
        forest.numerators,
        forest.roots,
        reduces,
        reduce_starts,
        broadcasts,
        broadcast_starts,
        vertices,
        route_starts,
    )


def _turned(forest: Forest) -> tuple[Array, Array]:
    """The edges of out-trees, each tree's from the last, and the vertices of every route, each from the last."""
    return (
        forest.broadcasts[_backwards(forest.broadcast_starts)],
        forest.vertices[_backwards(forest.route_starts)],
    )


def _backwards(starts: Array) -> Array:
    """Places of a table in rows, each row from its end."""
    import numpy

    lengths = numpy.diff(starts)
    order: Array = numpy.repeat(starts[:-1] + starts[1:] - 1, lengths) - numpy.arange(starts[-1])
    return order


def _starts(lengths: Array) -> Array:
    import numpy

    return numpy.concatenate([numpy.zeros(1, dtype=numpy.int64), numpy.cumsum(lengths)])


def _routes(instance: Instance, packing: Packing) -> tuple[Array, Array, Array]:
    """By hop its route, and the table of routes: vertices, and where each begins."""
    import numpy

    tails, heads = instance.ends
    lengths = numpy.diff(packing.starts)
    # A number for each different row of links, column by column.
    number = numpy.zeros(len(lengths), dtype=numpy.int64)
    for column in range(int(lengths.max(initial=0))):
        longer = lengths > column
        links = packing.arcs[packing.starts[:-1][longer] + column]
        number[longer] = number[longer] * (len(tails) + 1) + links + 1
        if (int(number.max()) + 1) * (len(tails) + 1) >= 1 << 62:
            # Numbers start anew, high enough that no longer row comes to that of a shorter one.
            number = numpy.unique(number, return_inverse=True)[1].astype(numpy.int64) + len(number) + 1
    _, first, routes = numpy.unique(number, return_index=True, return_inverse=True)
    route_lengths = lengths[first]
    starts = _starts(route_lengths + 1)
    vertices = numpy.empty(int(starts[-1]), dtype=numpy.int64)
    vertices[starts[:-1]] = tails[packing.arcs[packing.starts[:-1][first]]]
    within = numpy.arange(int(route_lengths.sum())) - numpy.repeat(_starts(route_lengths)[:-1], route_lengths)
    places = numpy.repeat(packing.starts[:-1][first], route_lengths) + within
    vertices[numpy.repeat(starts[:-1] + 1, route_lengths) + within] = heads[packing.arcs[places]]
    return routes.astype(numpy.int64), vertices, starts
