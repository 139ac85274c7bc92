"""Cheapest trees at prices: what each source would send if everything took its cheapest way.

Sources do not heed each other, so they are spread over workers where that is quicker.
"""

from __future__ import annotations

from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from collc import workers
from collc.errors import InfeasibleError
from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Sources from which workers are tried; starting them takes as long as all trees of a smaller fabric.
_MANY = 384


class Pricing:
    """Prices asked for again and again."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._team: workers.Workers | None = None

    def flows(self, prices: Array, sources: Array) -> Array:
        """[sources x links] what flows if everything takes the cheapest way.

        Raises:
            InfeasibleError: a rank cannot be reached.
        """
        if self._team is None:
            self._team = self._quicker(prices, sources)
        return self._spread(self._team, prices, sources)

    def _spread(self, team: workers.Workers, prices: Array, sources: Array) -> Array:
        import numpy

        parts = numpy.array_split(sources, min(team.count, len(sources)))
        return numpy.concatenate(list(team.map(flows, self._network, [(prices, part) for part in parts])))

    def _quicker(self, prices: Array, sources: Array) -> workers.Workers:
        """The workers, if they are quicker than this process, prices and trees being sent to and fro."""
        alone, team = workers.Workers(), workers.current()
        if team.count == 1 or self._network.n_ranks < _MANY:
            return alone
        self._spread(team, prices, sources)  # starts them, and brings them the network
        started = perf_counter()
        self._spread(team, prices, sources)
        together = perf_counter() - started
        self._spread(alone, prices, sources)
        return team if together < perf_counter() - started - together else alone


def total(fares: Array, demand: Array) -> float:
    """What all demand pays; pairs that send nothing may be out of reach of each other."""
    import numpy

    return float((numpy.where(demand > 0, fares, 0) * demand).sum())


def fares(network: Network, asked: tuple[Array, Array]) -> Array:
    """[sources x ranks] the least fares.

    Args:
        asked: prices by link, and sources.
    """
    found, _ = trees(network, *asked)
    return found[: network.n_ranks].T


def flows(network: Network, asked: tuple[Array, Array]) -> Array:
    """[sources x links] what flows if everything takes the cheapest way.

    Args:
        asked: prices by link, and sources.

    Raises:
        InfeasibleError: a rank cannot be reached.
    """
    import numpy

    prices, sources = asked
    _, links = trees(network, prices, sources)
    n_sources = links.shape[1]
    column = numpy.arange(n_sources)
    carried = numpy.zeros(links.shape)
    carried[: network.n_ranks] = network.demand[sources].T
    if ((links < 0) & (carried > 0)).any():
        rank, row = numpy.argwhere((links < 0) & (carried > 0))[0]
        raise InfeasibleError(f"rank {rank} cannot be reached from rank {sources[row]}")
    above = numpy.where(links < 0, -1, numpy.append(network.tails, 0)[links])
    depth = _depths(above)
    flat = above * n_sources + column
    for level in range(int(depth.max()), 0, -1):
        here = depth == level
        carried += numpy.bincount(flat[here], carried[here], carried.size).reshape(carried.shape)
    found = numpy.zeros((n_sources, network.n_links))
    used = links >= 0
    found[numpy.broadcast_to(column, links.shape)[used], links[used]] = carried[used]
    return found


def trees(network: Network, prices: Array, sources: Array) -> tuple[Array, Array]:
    """[vertices x sources] the least fare from each source, and the link by which it arrives."""
    import numpy

    shape = network.n_vertices, len(sources)
    entering, tails = network.entering, network.entering_tails
    steps = numpy.append(prices, numpy.inf)[entering]
    fares = numpy.full(shape, numpy.inf)
    fares[sources, numpy.arange(len(sources))] = 0
    links = numpy.full(shape, -1)
    while True:
        best = fares.copy()
        for port in range(entering.shape[1]):
            fare = fares[tails[:, port]] + steps[:, port, None]
            cheaper = fare < best
            numpy.copyto(best, fare, where=cheaper)
            numpy.copyto(links, entering[:, port, None], where=cheaper)
        if numpy.array_equal(best, fares):
            return fares, links
        fares = best


def _depths(above: Array) -> Array:
    """[vertices x sources] links from the source, by what lies above each vertex in its tree."""
    import numpy

    column = numpy.arange(above.shape[1])
    depth = numpy.zeros(above.shape, dtype=numpy.int64)
    at = above
    for _ in count():
        alive = at >= 0
        if not alive.any():
            return depth
        depth += alive
        at = numpy.where(alive, above[at, column], -1)
    return depth
