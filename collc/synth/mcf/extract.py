"""From whole flows to ways of pairs, in arrays, and from those to trees.

Source: arXiv:2309.13541, widest-path extraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from collc import cost, deadline, kernels, workers
from collc.ir.collective import Problem
from collc.ir.flow import Bound, FlowSchedule
from collc.ir.forest import Forest
from collc.solve import CAPACITY_LIMIT
from collc.synth import _ways
from collc.synth._network import Network
from collc.synth._symmetry import Translations

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Up to this many ranks the inner loop is interpreted: compiled code takes longer to load.
_FEW_RANKS = 32
# Above so many sources their ways are extracted by workers; each loads the compiled loop first, some 2 s.
_MANY_SOURCES = 640


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways of pairs, sorted by pair.

    Attributes:
        sources, sinks, units: by way, its ranks and what it carries.
        starts: by way, where its links start in `links`; one more at the end.
        links: the links of all ways, each from its source on.
    """

    sources: Array
    sinks: Array
    units: Array
    starts: Array
    links: Array


def ways_of(
    network: Network, sources: Array, flows: Array, scale: int, translations: Translations | None = None
) -> Ways:
    """The ways that flows are made of, widest first for each destination.

    Args:
        sources: whose flows are given; rank 0 alone with translations, whose images are the others'.
        flows: [sources x links] whole units; without cycles, each delivering the demand times `scale`.
    """
    import numpy

    team = workers.current() if len(sources) > _MANY_SOURCES else workers.Workers()
    rows = numpy.array_split(numpy.arange(len(sources)), team.count)
    parts = list(team.map(_peel_all, network, [(sources[some], flows[some], scale) for some in rows]))
    if translations is not None:
        (base,) = parts
        parts = [
            (numpy.full_like(base[0], image[0]), image[base[1]], base[2], base[3], moved[base[4]])
            for image, moved in zip(translations.vertices, translations.links, strict=True)
        ]
    origins, sinks, units, lengths, links = (numpy.concatenate(part) for part in zip(*parts, strict=True))
    starts = numpy.append(0, numpy.cumsum(lengths))
    order = numpy.argsort(origins * network.n_ranks + sinks, kind="stable")
    picked, picked_starts = _ranges(starts[order], lengths[order])
    return Ways(origins[order], sinks[order], units[order], picked_starts, links[picked])


def _ranges(firsts: Array, lengths: Array) -> tuple[Array, Array]:
    """All numbers of the ranges that start at `firsts`, one after another, and where each range starts in them."""
    import numpy

    starts = numpy.append(0, numpy.cumsum(lengths))
    return numpy.repeat(firsts - starts[:-1], lengths) + numpy.arange(starts[-1]), starts


def _peel_all(network: Network, asked: tuple[Array, Array, int]) -> tuple[Array, ...]:
    """Sources, sinks, units, lengths and links of the ways of some sources, whose whole flows are given, and scale."""
    import numpy

    sources, flows, scale = asked
    parts = [_peel(network, source, flow, scale) for source, flow in zip(sources.tolist(), flows, strict=True)]
    return tuple(numpy.concatenate(part) for part in zip(*parts, strict=True))


def _peel(network: Network, source: int, flow: Array, scale: int) -> tuple[Array, Array, Array, Array, Array]:
    """Sources, sinks, units, lengths and links of the ways of one source."""
    import numpy

    deadline.check()
    compiled = network.n_ranks > _FEW_RANKS
    kernel = kernels.load("peel", compiled)

    def given(values: Array) -> Any:
        return values.astype(numpy.int64) if compiled else values.tolist()

    used = numpy.flatnonzero(flow)
    order = used[numpy.argsort(network.heads[used], kind="stable")]
    first = numpy.searchsorted(network.heads[order], numpy.arange(network.n_vertices + 1))
    most = len(used) + network.n_ranks
    room = 8 * most
    while True:
        made = [
            given(numpy.zeros(size, dtype=numpy.int64)) for size in (5 * network.n_vertices, room, most, most, most)
        ]
        _, links, ends, units, sinks = made
        wanted = given(network.demand[source] * scale)
        found = kernel.peel(
            source, wanted, given(flow), given(network.tails), given(first), given(order), *made
        )  # fmt: skip
        if found == -1:
            raise RuntimeError(f"the flow of rank {source} does not bring what is asked")
        if found >= 0:
            break
        room *= 2
    stops = numpy.append(0, numpy.array(ends[:found], dtype=numpy.int64))
    return (
        numpy.full(found, source),
        numpy.array(sinks[:found], dtype=numpy.int64),
        numpy.array(units[:found], dtype=numpy.int64),
        numpy.diff(stops),
        numpy.array(links[: stops[-1]], dtype=numpy.int64),
    )


def schedule(problem: Problem, network: Network, ways: Ways, scale: int, bound: Bound | None) -> FlowSchedule:
    """Every chunk takes the ways of its pair of ranks, in their shares."""
    import numpy

    counts = numpy.unique(network.demand[network.demand > 0]).tolist()
    denominator = scale * lcm(*counts[:64])
    if len(counts) > 64 or denominator >= CAPACITY_LIMIT:
        return _ways.schedule(problem, _named(network, ways, scale), bound)
    every = numpy.arange(len(problem.collective.chunks))
    trees = forest(problem, network, ways, scale, denominator, every)
    return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), bound)


def _named(network: Network, ways: Ways, scale: int) -> dict[tuple[int, int], list[_ways.Way]]:
    """The ways by vertex names, for demands whose shares have no common denominator."""
    found: dict[tuple[int, int], list[_ways.Way]] = {}
    heads = network.heads.tolist()
    starts, links = ways.starts.tolist(), ways.links.tolist()
    columns = ways.sources.tolist(), ways.sinks.tolist(), ways.units.tolist()
    for at, (source, sink, units) in enumerate(zip(*columns, strict=True)):
        stops = (source, *(heads[link] for link in links[starts[at] : starts[at + 1]]))
        share = Fraction(units, int(network.demand[source, sink]) * scale)
        found.setdefault((source, sink), []).append((tuple(network.vertices[stop] for stop in stops), share))
    return found


def forest(problem: Problem, network: Network, ways: Ways, scale: int, denominator: int, chunks: Array) -> Forest:
    """A tree for each of some chunks and way of its pair; what stays with its rank has one without edges.

    Args:
        denominator: of all weights; a multiple of the scale times what any of the pairs asks for.
        chunks: increasing.
    """
    import numpy

    n = network.n_ranks
    table = problem.collective.columns_of(chunks)
    pair = table.sources * n + table.sinks
    stays = table.sources == table.sinks
    of_way = ways.sources * n + ways.sinks
    first, last = numpy.searchsorted(of_way, pair), numpy.searchsorted(of_way, pair, side="right")
    per_chunk = numpy.where(stays, 1, last - first)
    way, _ = _ranges(first, per_chunk)
    is_edge = ~numpy.repeat(stays, per_chunk)
    shares = ways.units * (denominator // (scale * numpy.maximum(network.demand[ways.sources, ways.sinks], 1)))
    numerators = numpy.full(len(way), denominator)
    numerators[is_edge] = shares[way[is_edge]]
    routes, edge_starts, vertices, route_starts = _routes(network, ways)
    lengths = numpy.zeros(len(way), dtype=numpy.int64)
    lengths[is_edge] = numpy.diff(edge_starts)[way[is_edge]]
    picked, _ = _ranges(edge_starts[way[is_edge]], lengths[is_edge])
    tree_starts = numpy.append(0, numpy.cumsum(lengths))
    return Forest(
        names=network.vertices,
        n_ranks=n,
        denominator=denominator,
        chunks=numpy.repeat(chunks, per_chunk),
        numerators=numerators,
        roots=numpy.repeat(table.sources, per_chunk),
        reduces=numpy.zeros(0, dtype=numpy.int64),
        reduce_starts=numpy.zeros(len(way) + 1, dtype=numpy.int64),
        broadcasts=routes[picked],
        broadcast_starts=tree_starts,
        vertices=vertices,
        route_starts=route_starts,
    )


def _routes(network: Network, ways: Ways) -> tuple[Array, Array, Array, Array]:
    """The routes that ways are cut into at GPUs: route of each piece, where each way's pieces start, and a table.

    The table is the vertices of all routes, one after another, and where each route's start.
    """
    import numpy

    begins = network.tails[ways.links] < network.n_ranks
    pieces = numpy.flatnonzero(begins)
    lengths = numpy.diff(numpy.append(pieces, len(ways.links)))
    piece_starts = numpy.append(0, numpy.cumsum(begins))[ways.starts]
    width = int(lengths.max(initial=1))
    if network.n_vertices == network.n_ranks:  # every link is a route
        table = numpy.stack([network.tails, network.heads], axis=1).ravel()
        return ways.links, piece_starts, table, 2 * numpy.arange(network.n_links + 1)
    padded = numpy.full((len(pieces), width), -1)
    for step in range(width):
        here = lengths > step
        padded[here, step] = ways.links[pieces[here] + step]
    kinds, which = numpy.unique(padded, axis=0, return_inverse=True)
    used = kinds >= 0
    stops = numpy.full((len(kinds), width + 1), -1)
    stops[:, 0] = network.tails[kinds[:, 0]]
    stops[:, 1:][used] = network.heads[kinds[used]]
    starts = numpy.append(0, numpy.cumsum(used.sum(axis=1) + 1))
    return which.reshape(-1), piece_starts, stops[stops >= 0], starts
