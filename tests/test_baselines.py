"""Baselines of all-to-all: the rates of the reference table, and what each promises of its ways."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import fabrics
import pytest
from hypothesis import given, settings
from strategies import fabrics as random_fabrics

from collc import registry, verify
from collc.choose import candidates
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import InfeasibleError, UnsupportedError
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.topology import Topology
from collc.request import Clock, Request
from collc.synth._network import Network

BASELINES = ("dimension_ordered", "equal_split", "shortest", "single_path")


def design(family: str, **values: str) -> Topology:
    return topology_of(build(family, values), Fraction(1), Fraction(0))


def alltoall(topology: Topology) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks))


def rate(name: str, topology: Topology, **options: object) -> Fraction:
    flow = registry.load("synth", name, **options).run(alltoall(topology))
    verify.check(flow)
    return 1 / (flow.time * topology.n_ranks)


# Graph, equal split, single path: the reference table (directconnect.md, section 6).
RATES = [
    (design("bipartite", degree="4"), "2/5", "1/3"),
    (design("hypercube", dimensions="3"), "1/4", "1/4"),
    (design("hypercube", dimensions="4"), "1/8", "1/8"),
    (design("circulant", n="16", offsets="3x4"), "1/8", "1/8"),
    (design("genkautz", degree="4", n="16"), "1/9", "1/9"),
    (design("genkautz", degree="4", n="20"), "1/9", "1/9"),
    (design("torus", dims="3x3x3"), "1/9", "1/9"),
]


@pytest.mark.parametrize(("topology", "split", "single"), RATES, ids=[row[0].name for row in RATES])
def test_the_reference_rates(topology, split, single):
    assert rate("equal_split", topology) == Fraction(split)
    assert rate("single_path", topology) == Fraction(single)


def test_ties_of_even_rings_decide_dimension_order():
    torus = design("torus", dims="4x4")
    assert rate("dimension_ordered", torus) == Fraction(1, 8)
    assert rate("dimension_ordered", torus, ties="up") == Fraction(1, 12)


@pytest.mark.parametrize(
    "topology",
    [design("torus", dims="3x5"), design("torus", dims="2x2x3"), design("hypercube", dimensions="3"), fabrics.path(5)],
)
def test_dimension_order_never_returns_to_a_dimension(topology):
    flow = registry.load("synth", "dimension_ordered").run(alltoall(topology))
    verify.check(flow)
    network = Network.of(alltoall(topology))
    fewest = {pair: len(paths[0]) - 1 for pair, paths in network.short_ways(0, 1000).items()}
    for tree in flow.trees:
        if tree.broadcast:
            assert len(tree.broadcast) == fewest[tree.root, tree.broadcast[-1].dst]


def test_dimension_order_needs_a_grid():
    for topology in (fabrics.star(4), design("genkautz", degree="2", n="8"), fabrics.dgx1()):
        assert "needs a mesh or torus" in registry.load("synth", "dimension_ordered").supports(alltoall(topology))


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=3))
def test_ways_are_as_short_as_they_claim(topology):
    problem = alltoall(topology)
    ways = Network.of(problem).short_ways(0, 1000)
    single = registry.load("synth", "single_path").run(problem)
    for name in ("equal_split", "shortest", "single_path"):
        flow = registry.load("synth", name).run(problem)
        verify.check(flow)
        per_pair: Counter[int] = Counter()
        for tree in flow.trees:
            if tree.broadcast:
                hops = sum(len(route.hops) for route in tree.broadcast)
                assert hops == len(ways[tree.root, tree.broadcast[-1].dst][0]) - 1
                per_pair[tree.chunk] += 1
        if name != "equal_split":
            assert set(per_pair.values()) == {1}
            assert flow.time >= single.time  # the integer program chooses best


def test_they_weigh_a_demand():
    demand = [[(3 * a + b) % 4 for b in range(10)] for a in range(10)]
    for name in ("equal_split", "shortest", "single_path"):
        verify.check(registry.load("synth", name).run(Problem(fabrics.hetero3b(), alltoallv(demand))))


def test_auto_does_not_try_them():
    problem = alltoall(fabrics.ring(4))
    found, passed_over = candidates(Request(problem), Clock())
    assert {passed_over[name] for name in BASELINES} == {"tried only where -s names it"}
    assert found[0].made.is_optimal


def test_what_cannot_be_reached_or_listed():
    broken = fabrics.fabric("broken", 3, [("g0", "g1", 1), ("g1", "g2", 1)])
    for name in ("equal_split", "shortest", "single_path"):
        with pytest.raises(InfeasibleError):
            registry.load("synth", name).run(alltoall(broken))
    with pytest.raises(UnsupportedError, match="more than 2 short ways"):
        registry.load("synth", "equal_split", most=2).run(alltoall(design("torus", dims="4x4")))
