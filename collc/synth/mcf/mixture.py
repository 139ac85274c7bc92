"""All-to-all where every rank looks alike: rank 0's cheapest trees, mixed, and their images for the others.

The optimum and its prices are exact, and a pair has at most one way more than links have classes.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

from collc import cost
from collc.cost.one_source import Mixture, OneSource, best_mixture
from collc.ir.collective import Problem
from collc.ir.flow import Bound, FlowSchedule, Orbit, Prices
from collc.synth._network import Network
from collc.synth._symmetry import Translations
from collc.synth.mcf import extract

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Weights whose common denominator is larger are rounded to multiples of one over this; a part in 10^12 is lost.
_FINEST = 2**40


def schedule(problem: Problem, network: Network, translations: Translations) -> FlowSchedule:
    """The optimal mixture for rank 0, and renamings that make it everybody's; for the table of an all-to-all."""
    import numpy

    per_pair = len(problem.collective.chunks) // network.n_ranks**2
    classes = translations.classes
    # A link that several translations leave in place is loaded by all of them.
    shares_of_rank = [Fraction(int(size), network.n_ranks) for size in numpy.bincount(classes)]
    firsts = numpy.unique(classes, return_index=True)[1].tolist()
    widths = [int(network.bandwidths[link]) * share for link, share in zip(firsts, shares_of_rank, strict=True)]
    demand = numpy.zeros(network.n_vertices, dtype=numpy.int64)
    demand[: network.n_ranks] = network.demand[0]
    found = best_mixture(widths, OneSource(network.tails, network.heads, classes, demand).cheapest)
    if found is None:
        raise AssertionError("unreachable: no limit was set")
    scale = min(_FINEST, lcm(*(weight.denominator for weight, _ in found.shares)))
    ways = _ways_of(network, found, scale, per_pair)
    own = numpy.arange(network.n_ranks * per_pair)
    base = extract.forest(problem, network, ways, scale, scale * per_pair, own)
    trees = Orbit(base, translations.vertices, per_pair)
    return FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees), _bound(network, classes, found))


def _bound(network: Network, classes: Array, found: Mixture[Array]) -> Bound:
    unit = lcm(*(price.denominator for price in found.prices))
    whole = [int(price * unit) for price in found.prices]
    common = reduce(gcd, whole)
    prices = [Fraction(price // common) for price in whole]
    told = [prices[kind] for kind in classes.tolist()]
    links = network.topology.links
    witness = Prices(tuple((link.src, link.dst, price) for link, price in zip(links, told, strict=True) if price))
    return Bound(found.time / network.unit / network.size, witness)


def _ways_of(network: Network, found: Mixture[Array], scale: int, per_pair: int) -> extract.Ways:
    """The ways of rank 0 to all others, those that several trees share once."""
    import numpy

    # A way is another way, or none, and one link more; equal ways have the same number.
    number: dict[tuple[int, int], int] = {}
    carried: dict[int, int] = {}
    sink_of: dict[int, int] = {}
    tails = network.tails.tolist()
    for units, tree in zip(_whole(found, scale), (tree.tolist() for _, tree in found.shares), strict=True):
        way_to = {0: -1}
        for sink in range(1, network.n_ranks):
            climbed = []
            at = sink
            while at not in way_to:
                climbed.append(at)
                at = tails[tree[at]]
            for at in reversed(climbed):
                step = way_to[tails[tree[at]]], tree[at]
                way_to[at] = number.setdefault(step, len(number))
            carried[way_to[sink]] = carried.get(way_to[sink], 0) + units * per_pair
            sink_of[way_to[sink]] = sink
    steps = list(number)
    ways = sorted((way for way, units in carried.items() if units), key=lambda way: (sink_of[way], way))
    links = [_links(steps, way) for way in ways]
    return extract.Ways(
        numpy.zeros(len(ways), dtype=numpy.int64),
        numpy.array([sink_of[way] for way in ways], dtype=numpy.int64),
        numpy.array([carried[way] for way in ways], dtype=numpy.int64),
        numpy.append(0, numpy.cumsum([len(one) for one in links])),
        numpy.array([link for one in links for link in one], dtype=numpy.int64),
    )


def _whole(found: Mixture[Array], scale: int) -> list[int]:
    """The trees' weights in whole parts of one."""
    units = [int(weight * scale) for weight, _ in found.shares]
    units[units.index(max(units))] += scale - sum(units)
    return units


def _links(steps: list[tuple[int, int]], way: int) -> list[int]:
    """The links of a way, from its source on."""
    found = []
    while way >= 0:
        way, link = steps[way]
        found.append(link)
    return found[::-1]
