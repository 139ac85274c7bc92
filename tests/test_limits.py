"""Limits of all-to-all side by side: none is ever beaten, and each binds where it is known to."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import fabrics
import networkx
import pytest
from click.testing import CliRunner
from fabrics import both, fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import registry
from collc.cli import collc
from collc.cost import alltoall_limits, bound, limits_document
from collc.cost.demand import Demand
from collc.cost.ways import paid_by_pairs
from collc.design.recipe import parse
from collc.design.wiring import topology_of
from collc.errors import InfeasibleError
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.topology import Topology


def limits(problem: Problem) -> dict[str, Fraction | None]:
    return {limit.kind: limit.algbw for limit in alltoall_limits(problem)}


def alltoall(topology: Topology) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks))


def of_design(recipe: str) -> Problem:
    return alltoall(topology_of(parse(recipe), Fraction(1), Fraction(0)))


@settings(max_examples=60, deadline=None)
@given(random_fabrics(), st.booleans(), st.integers(0, 10**6))
def test_no_limit_is_beaten(topology, is_even, seed):
    chance = random.Random(seed)
    problem = alltoall(topology)
    if not is_even:
        n = topology.n_ranks
        sizes = [[chance.choice([0, 1, 1, 3, 20]) for _ in range(n)] for _ in range(n)]
        sizes[0][1] = 2
        problem = Problem(topology, alltoallv(sizes))
    flow = registry.load("synth", "mcf").run(problem)
    found = limits(problem)
    assert set(found) == {"distance", "moore", "cut", "host"}
    assert all(algbw is None or algbw * flow.time >= 1 for algbw in found.values())
    assert (found["moore"] is None) == bool(topology.switches)
    # Ways have at least as many links as ports allow; one rank is a cut.
    if found["moore"] is not None:
        assert found["distance"] <= found["moore"]
    assert found["cut"] <= found["host"]


# What binds, and F = rate of a pair on links of 1 GB/s: ../shared/facts/directconnect.md, section 6.
BINDING = [
    ("torus(dims=4x4x8)", "cut", Fraction(1, 128)),
    ("torus(dims=4x8x8)", "cut", Fraction(1, 256)),
    ("torus(dims=3x3x2)", "cut", Fraction(1, 9)),
    ("torus(dims=32x32)", "distance", Fraction(1, 4096)),
    ("hypercube(dimensions=6)", "distance", Fraction(1, 32)),
    ("twisted(dims=4x4x8,twists=0x4x4)", "distance", Fraction(3, 220)),
    ("bipartite(degree=4)", "moore", Fraction(2, 5)),
    ("complete(n=5)", "host", Fraction(1)),
]


@pytest.mark.parametrize(("recipe", "kind", "rate"), BINDING, ids=[recipe for recipe, _, _ in BINDING])
def test_what_binds(recipe, kind, rate):
    problem = of_design(recipe)
    found = limits(problem)
    assert found[kind] == min(found.values()) == rate * problem.topology.n_ranks
    assert bound(problem).algbw == found[kind]


def test_fast_and_slow_links_count_by_the_time_they_take():
    # Two pairs of GPUs on fast links, joined by slow ones: by number of links the fast ones hide the slow.
    topology = fabric("pairs", 4, [*both("g0", "g1", 100), *both("g2", "g3", 100), *both("g1", "g2", 1)])
    problem = alltoall(topology)
    # Ways take 1/100 within pairs and 1, 1.01, 1.01, 1.02 across: 2 x (2/100 + 4.04) = 8.12; six links.
    assert limits(problem)["distance"] == 4 / (Fraction(812, 100) / 6)


def test_other_tables_have_none():
    topology = fabrics.a100(2)
    assert alltoall_limits(Problem(topology, make_collective("allgather", 16))) == ()
    assert limits_document(()) == {}
    found = limits(Problem(topology, make_collective("scatter", 16, root=3)))
    assert found["host"] == Fraction(325 * 16, 15)


@pytest.mark.parametrize("seed", range(8))
def test_ways_of_all_pairs_against_dijkstra(seed):
    chance = random.Random(seed)
    n = chance.choice([3, 9, 70, 150])
    links = [(f"g{v}", f"g{(v + 1) % n}", Fraction(1)) for v in range(n)]
    links += [(f"g{a}", f"g{b}", Fraction(1)) for a, b in (chance.sample(range(n), 2) for _ in range(2 * n))]
    topology = fabric("random", n, links)
    top = chance.choice([0, 1, 9, 10**18])
    prices = {(link.src, link.dst): chance.randint(0, top) if top else 1 for link in topology.links}
    demand = Demand.of(make_collective("alltoall", n))
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((src, dst, price) for (src, dst), price in prices.items())
    expected = sum(sum(far.values()) for _, far in networkx.all_pairs_dijkstra_path_length(graph))
    assert paid_by_pairs(topology, demand, prices) == expected


def test_ranks_that_cannot_be_reached_are_told():
    topology = fabric("one way", 3, [("g0", "g1", 1), ("g1", "g2", 1), ("g2", "g1", 1)])
    demand = Demand.of(make_collective("alltoall", 3))
    links = [(link.src, link.dst) for link in topology.links]
    for price in (1, 2):
        with pytest.raises(InfeasibleError):
            paid_by_pairs(topology, demand, dict.fromkeys(links, price))


def test_commands_show_them(tmp_path):
    file = str(tmp_path / "torus.yaml")
    runner = CliRunner()
    assert runner.invoke(collc, ["topo", "generate", "torus", "dims=4x2", "-o", file]).exit_code == 0
    shown = json.loads(runner.invoke(collc, ["topo", "bound", file, "-c", "alltoall", "--json"]).stdout)
    assert shown["bounds_exact"]["cut"] == shown["bound_exact"]
    assert shown["binds"] in ("cut", "distance")
    text = runner.invoke(collc, ["topo", "bound", "dgx-a100:hosts=2", "-c", "alltoall"]).stdout
    assert "GB/s by cuts" in text
    assert "none by Moore bound: the fabric has switches" in text
    made = json.loads(runner.invoke(collc, ["synth", file, "-c", "alltoall", "-s", "mcf", "--json"]).stdout)
    assert made["bounds_exact"] == shown["bounds_exact"]
    assert "limits" not in runner.invoke(collc, ["topo", "bound", file]).stdout


def test_a_large_torus_takes_little():
    found = limits(of_design("torus(dims=16x16x8)"))
    # 256 links join the halves of a side of 16; 1024 x 1024 pairs must cross, 2048 blocks make a rank's buffer.
    assert found["cut"] == min(found.values()) == Fraction(2048 * 256, 1024**2)
