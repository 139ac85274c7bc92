"""From a floating-point flow to an exact one.

Each source's flow is made whole by a cheapest flow within its rounded share of the links: no cycles, no
detours, and every byte delivered exactly, however rough the linear program was.

Source: arXiv:2309.13541, child programs; the cheapest flow in place of the child's linear program is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collc import deadline, workers
from collc.solve import cheapest_flow
from collc.synth._master import Fractional
from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# What a flow in floating point may be off.
_NEAR = 1e-7
# By how much of a link's flow a child may exceed it, where the linear program left it short.
_SLACKS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
# Total units of a source stay well inside 64 bits, also times the length of their ways.
_UNITS = 2**44
# Above so many sources, rounding is dealt into so many chains. With the last quarter to set them right, eight
# chains lose no more than one does (generalized Kautz, 512 ranks).
_MANY = 256
_CHAINS = 8


def fine_scale(network: Network) -> int:
    """Units per slot that lose nothing worth mentioning, a power of two."""
    most = int(network.demand.sum(axis=1).max(initial=1))
    return 1 << max(10, (_UNITS // max(1, most)).bit_length() - 1)


def settle(network: Network, found: Fractional, scale: int, *, exactly: bool) -> Array | None:
    """[sources x links] whole flows, in 1/scale slots, that deliver exactly what is asked.

    Args:
        exactly: round to the nearest unit and allow no more; None if some source cannot do with that.
    """
    import numpy

    settled = numpy.zeros(found.flows.shape, dtype=numpy.int64)
    for row, (source, flow) in enumerate(zip(found.sources, found.flows, strict=True)):
        supplies = numpy.zeros(network.n_vertices, dtype=numpy.int64)
        supplies[: network.n_ranks] = -network.demand[source] * scale
        supplies[source] = -supplies.sum()
        for slack in (0.0,) if exactly else _SLACKS:
            whole = numpy.rint(flow * scale) if exactly else numpy.ceil(flow * scale * (1 + slack))
            room = whole.astype(numpy.int64) + int(slack * scale)
            used = numpy.flatnonzero(room)
            costs = numpy.ones(len(used), dtype=numpy.int64)
            carried = cheapest_flow(
                network.n_vertices, network.tails[used], network.heads[used], room[used], costs, supplies
            )
            if carried is not None:
                settled[row, used] = carried
                break
        else:
            return None
    return settled


def round_off(network: Network, found: Fractional, scale: int) -> Array:
    """[sources x links] whole flows, in 1/scale slots, for a coarse scale.

    Rounding errors are not left to chance: what earlier sources put on a link beyond its fractional
    load makes it dear for those that follow. On large fabrics the first sources are dealt into chains
    that heed themselves alone, for workers to share; the last of all set right what those add up to.
    """
    import numpy

    n_chains, n_last = (_CHAINS, len(found.sources) // 4) if len(found.sources) > _MANY else (1, 0)
    n_first = len(found.sources) - n_last
    level = numpy.zeros(network.n_links)
    rows = numpy.array_split(numpy.arange(n_first), n_chains)
    chains = [(found.sources[part], found.flows[part], scale, level) for part in rows]
    team = workers.current() if n_chains > 1 else workers.Workers()
    first = numpy.concatenate(list(team.map(_round_chain, network, chains)))
    if not n_last:
        return first
    excess = first.sum(axis=0) - found.flows[:n_first].sum(axis=0) * scale
    last = _round_chain(network, (found.sources[n_first:], found.flows[n_first:], scale, excess))
    return numpy.concatenate([first, last])


def _round_chain(network: Network, asked: tuple[Array, Array, int, Array]) -> Array:
    """[sources x links] whole flows of some sources, one after another.

    Args:
        asked: sources, their flows, the scale, and by link the excess that others left.
    """
    import numpy

    sources, flows, scale, excess = asked
    excess = excess.copy()
    settled = numpy.zeros(flows.shape, dtype=numpy.int64)
    for row, (source, flow) in enumerate(zip(sources, flows, strict=True)):
        deadline.check()
        supplies = numpy.zeros(network.n_vertices, dtype=numpy.int64)
        supplies[: network.n_ranks] = -network.demand[source] * scale
        supplies[source] = -supplies.sum()
        used = numpy.flatnonzero(flow > _NEAR)
        exact = flow[used] * scale
        room = numpy.floor(exact * (1 + _NEAR) + _NEAR).astype(numpy.int64) + 1
        costs = (100 + 20 * excess[used]).clip(10, 1000).astype(numpy.int64)
        carried = cheapest_flow(network.n_vertices, network.tails[used], network.heads[used], room, costs, supplies)
        if carried is None:
            raise RuntimeError(f"the flow of rank {source} does not deliver what is asked")
        settled[row, used] = carried
        excess[used] += carried - exact
    return settled
