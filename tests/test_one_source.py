"""The exact optimum of fabrics that look alike from every rank: both its witnesses are added up again."""

from __future__ import annotations

import random
from fractions import Fraction
from math import lcm

import networkx
import numpy
import pytest

from collc.cost.one_source import Mixture, OneSource, Priced, best_mixture
from collc.errors import InfeasibleError

# Offsets of a circulant (a Cayley graph of a product of rings), and 1/F: ../shared/facts/directconnect.md, section 6.
RINGS = {
    "Q3": ((2, 2, 2), ((1, 0, 0), (0, 1, 0), (0, 0, 1)), Fraction(4)),
    "torus 4x4": ((4, 4), ((1, 0), (3, 0), (0, 1), (0, 3)), Fraction(8)),
    "C(16,{3,4})": ((16,), ((3,), (13,), (4,), (12,)), Fraction(8)),
    "torus 3x3x3": ((3, 3, 3), ((1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 2, 0), (0, 0, 1), (0, 0, 2)), Fraction(9)),
    "Q6": ((2,) * 6, tuple(tuple(int(i == j) for j in range(6)) for i in range(6)), Fraction(32)),
    "ring of 5, one way": ((5,), ((1,),), Fraction(10)),
}


def of_rings(dims: tuple[int, ...], offsets: tuple[tuple[int, ...], ...], demand: list[int] | None = None) -> OneSource:
    spots = list(numpy.ndindex(*dims))
    place = {spot: number for number, spot in enumerate(spots)}
    links = [
        (place[spot], place[tuple((a + b) % m for a, b, m in zip(spot, offset, dims, strict=True))], kind)
        for spot in spots
        for kind, offset in enumerate(offsets)
    ]
    tails, heads, kinds = (numpy.array(column) for column in zip(*links, strict=True))
    return OneSource(tails, heads, kinds, numpy.array(demand or [0] + [1] * (len(spots) - 1)))


def check(source: OneSource, widths: list[Fraction], found: Mixture | None) -> None:
    """Feasible at `time`, and nothing is faster: every slot pays the cheapest way."""
    assert found is not None
    assert sum(weight for weight, _ in found.shares) == 1
    load = [Fraction(0)] * len(widths)
    balance = [Fraction(0)] * len(source.demand)
    for weight, tree in found.shares:
        assert weight > 0
        for link, slots in enumerate(source.carried(tree).tolist()):
            load[source.classes[link]] += weight * slots
            balance[source.heads[link]] += weight * slots
            balance[source.tails[link]] -= weight * slots
    assert balance[1:] == source.demand.tolist()[1:]
    assert max(one / width for one, width in zip(load, widths, strict=True)) == found.time
    assert min(found.prices) >= 0
    assert sum(price * width for price, width in zip(found.prices, widths, strict=True)) == 1
    unit = lcm(*(price.denominator for price in found.prices))
    graph = networkx.DiGraph()
    for tail, head, kind in zip(source.tails.tolist(), source.heads.tolist(), source.classes.tolist(), strict=True):
        price = int(found.prices[kind] * unit)
        known = graph.get_edge_data(tail, head, {"weight": price})["weight"]
        graph.add_edge(tail, head, weight=min(price, known))
    far = networkx.single_source_dijkstra_path_length(graph, 0)
    paid = sum(far[vertex] * slots for vertex, slots in enumerate(source.demand.tolist()) if slots)
    assert Fraction(paid, unit) == found.time


@pytest.mark.parametrize("name", RINGS)
def test_known_optima(name):
    dims, offsets, time = RINGS[name]
    source = of_rings(dims, offsets)
    found = best_mixture([1] * len(offsets), source.cheapest)
    check(source, [Fraction(1)] * len(offsets), found)
    assert found.time == time


@pytest.mark.parametrize("seed", range(60))
def test_random_widths_offsets_and_demands(seed):
    chance = random.Random(seed)
    dims = tuple(chance.choice([(7,), (30,), (3, 8), (2, 3, 5), (64,), (6, 6)]))
    n_offsets = chance.randrange(1, 7)
    units = [tuple(int(i == j) for j in range(len(dims))) for i in range(len(dims))]
    offsets = tuple(dict.fromkeys([*units, *(tuple(map(chance.randrange, dims)) for _ in range(n_offsets))]))
    offsets = tuple(offset for offset in offsets if any(offset))
    demand = [0] + [chance.choice([0, 1, 1, 5]) for _ in range(numpy.prod(dims) - 2)] + [3]
    widths = [Fraction(chance.randrange(1, 9), chance.choice([1, 2, 3])) for _ in offsets]
    source = of_rings(dims, offsets, demand)
    found = best_mixture(widths, source.cheapest)
    check(source, widths, found)
    # Under a limit it is the same, or proven to take longer.
    assert best_mixture(widths, source.cheapest, found.time).time == found.time
    assert best_mixture(widths, source.cheapest, found.time * Fraction(999, 1000)) is None


def test_parallel_links_a_vertex_that_only_forwards_and_a_dead_end():
    # 0 -> 1 twice, 1 -> 2 -> 3; vertex 4 gets nothing and cannot be reached.
    source = OneSource(
        numpy.array([0, 0, 1, 2, 4]), numpy.array([1, 1, 2, 3, 0]), numpy.arange(5), numpy.array([0, 2, 0, 6, 0])
    )
    widths = [Fraction(1), Fraction(1, 3), Fraction(10), Fraction(10), Fraction(1)]
    found = best_mixture(widths, source.cheapest)
    check(source, widths, found)
    assert found.time == 6


def test_what_cannot_be_reached_is_told():
    source = OneSource(numpy.array([0, 2]), numpy.array([1, 0]), numpy.array([0, 0]), numpy.array([0, 1, 1]))
    with pytest.raises(InfeasibleError, match="rank 2"):
        best_mixture([1], source.cheapest)


def test_prices_too_large_for_64_bits_are_added_up_all_the_same():
    source = of_rings((30,), ((1,), (7,)))
    small, large = source.cheapest([3, 5]), source.cheapest([3 * 10**30, 5 * 10**30])
    assert isinstance(large, Priced)
    assert small.loads == large.loads
