"""Prices on links: what all transfers must pay at least / what the links can earn in unit time.

Rule of prices: a chunk needs at least t transfers between ranks, and each costs at least the
cheapest way between two distinct ranks. With one contributor p, t = consumers other than p; with one
consumer, or some of each, t = ranks concerned - 1, which join them; with all n ranks on both sides,
t = 2n - 2 (one-way gossip: Harary & Schwenk, Journal of the Franklin Institute 297(6), 1974). A
chunk with one contributor and one consumer pays the cheapest way between those two.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from fractions import Fraction

from collc.cost.demand import Demand
from collc.ir.flow import Bound, Prices
from collc.ir.topology import Topology

LinkPrices = Mapping[tuple[str, str], int]


def candidate_prices(topology: Topology) -> list[LinkPrices]:
    """Prices worth trying: one on all links out of GPUs, on all into GPUs, on all links."""
    gpus = topology.rank_of
    wanted: tuple[Callable[[str, str], bool], ...] = (
        lambda src, dst: src in gpus,
        lambda src, dst: dst in gpus,
        lambda src, dst: True,
    )
    return [{(link.src, link.dst): 1 for link in topology.links if priced(link.src, link.dst)} for priced in wanted]


def price_bound(topology: Topology, demand: Demand, prices: LinkPrices) -> Bound:
    """What those prices prove."""
    earned = sum((topology.link[ends].bandwidth * price for ends, price in prices.items()), Fraction(0))
    n = demand.n_ranks
    distances = [_distances(topology, prices, rank) for rank in range(n)]
    least = min(distances[a][b] for a in range(n) for b in range(n) if a != b and b in distances[a])
    transfers = sum(slots * (n - 1) for slots in (*demand.spread, *demand.gathered))
    transfers += sum(slots * _n_transfers(before, after, n) for before, after, slots in demand.others)
    paid = transfers * least
    for src, dst in zip(*demand.pairs.nonzero(), strict=True):
        paid += int(demand.pairs[src, dst]) * distances[src][dst]
    witness = Prices(tuple((src, dst, Fraction(price)) for (src, dst), price in prices.items()))
    return Bound(Fraction(paid, demand.size) / earned, witness)


def _n_transfers(before: frozenset[int], after: frozenset[int], n_ranks: int) -> int:
    """Rank-to-rank transfers that a chunk needs at least (the rule of prices)."""
    if len(before) == 1:
        return len(after - before)
    if len(before) == n_ranks and len(after) == n_ranks:
        return 2 * n_ranks - 2
    return len(before | after) - 1


def _distances(topology: Topology, prices: LinkPrices, rank: int) -> dict[int, int]:
    """Rank -> least sum of prices on a way there, through anything."""
    done: dict[str, int] = {}
    waiting = [(0, topology.gpus[rank])]
    while waiting:
        distance, vertex = heapq.heappop(waiting)
        if vertex in done:
            continue
        done[vertex] = distance
        for head in topology.successors[vertex]:
            if head not in done:
                heapq.heappush(waiting, (distance + prices.get((vertex, head), 0), head))
    return {topology.rank_of[vertex]: distance for vertex, distance in done.items() if vertex in topology.rank_of}
