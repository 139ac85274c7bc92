"""Designs for all-to-all: exact optima, the catalogue, the finder, and what `-s mcf` makes of its designs."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from collc import registry
from collc.cli import collc
from collc.design import bounds
from collc.design.alltoall import alltoall_optimum
from collc.design.eager import eager_cost
from collc.design.find_alltoall import find_alltoall
from collc.design.graph import Graph
from collc.design.known import dumps, loads, shipped_alltoall
from collc.design.recipe import parse
from collc.design.search_alltoall import search_alltoall
from collc.design.wiring import topology_of
from collc.errors import InfeasibleError, InputError
from collc.ir.collective import Problem, make_collective

REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "directconnect.json"
CAYLEY = json.loads(REFERENCE.read_text())["cayley_alltoall_designs"] if REFERENCE.exists() else []

# Time over the Moore bound that designs of degree 4 are to reach (facts/directconnect.md, section 6).
WANTED = {16: 1.026, 32: 1.0145, 64: 1.0243, 128: 1.035, 256: 1.052, 512: 1.0442, 1024: 1.062}
# F; the same section.
RATES = {
    "bipartite(degree=4)": Fraction(2, 5),
    "hypercube(dimensions=3)": Fraction(1, 4),
    "hypercube(dimensions=4)": Fraction(1, 8),
    "torus(dims=4x4)": Fraction(1, 8),
    "circulant(n=16,offsets=3x4)": Fraction(1, 8),
    "line(complete(n=5))": Fraction(7, 61),
    "torus(dims=3x3x2)": Fraction(1, 9),
    "torus(dims=3x3x3)": Fraction(1, 9),
    "hypercube(dimensions=6)": Fraction(1, 32),
    "torus(dims=4x4x8)": Fraction(1, 128),
    "twisted(dims=4x4x8,twists=0x4x4)": Fraction(3, 220),
    "torus(dims=4x8x8)": Fraction(1, 256),
    "twisted(dims=4x8x8,twists=4x4x0)": Fraction(1, 184),
    "torus(dims=32x32)": Fraction(1, 4096),
    "torus(dims=16x16x16)": Fraction(1, 8192),
    "hypercube(dimensions=10)": Fraction(1, 512),
    "complete(n=7,parallel=2)": Fraction(2),
    "uniring(n=5)": Fraction(1, 10),
}


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(collc, words)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def rate(graph: Graph) -> Fraction | None:
    time = alltoall_optimum(graph)
    return None if time is None else Fraction(graph.degree, graph.n) / time


def by_mcf(graph: Graph) -> tuple[Fraction, Fraction]:
    """T that the synthesizer reaches and T that it proves, by its linear program over links."""
    problem = Problem(topology_of(graph, Fraction(1), Fraction(0)), make_collective("alltoall", graph.n))
    flow = registry.load("synth", "mcf").run(problem)
    return flow.time * graph.degree, flow.bound.time * graph.degree


# --- the optimum -------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RATES)
def test_known_rates_exactly(recipe):
    graph = parse(recipe)
    assert rate(graph) == RATES[recipe]
    assert alltoall_optimum(graph) >= bounds.alltoall_time(graph)


@pytest.mark.parametrize("row", CAYLEY, ids=lambda row: f"{row['N']}-{row['links']}")
def test_reference_designs(row):
    group = row["group"]
    generators = "x".join(map(str, row["generators"]))
    if group["kind"] == "semidirect_cyclic":
        recipe = f"cayley(a={group['a']},k={group['k']},b={group['b']},generators={generators})"
    else:
        matrix = "x".join(str(entry) for line in group["M"] for entry in line)
        recipe = f"affine(p={group['p']},m={group['m']},b={group['b']},matrix={matrix},generators={generators})"
    graph = parse(recipe)
    assert (graph.n, graph.degree, graph.diameter) == (row["N"], row["d"], row["diameter"])
    assert float(rate(graph)) == pytest.approx(row["F"], rel=1e-9)
    ratio = alltoall_optimum(graph) / bounds.alltoall_limit(graph.n, graph.degree)
    assert float(ratio) == pytest.approx(row["time_over_moore_bound"], abs=1e-5)


MIXED = [
    "line(complete(n=4))",
    "line(cayley(a=5,k=4,b=2,generators=1x3))",
    "line(circulant(n=7,offsets=1x3,links=one-way))",
    "product(uniring(n=3),complete(n=3))",
    "degree(uniring(n=4),2)",
    "duplex(circulant(n=9,offsets=1x4,links=one-way))",
    "twisted(dims=3x5,twists=2)",
]


@pytest.mark.parametrize("recipe", MIXED)
def test_the_optimum_is_that_of_the_linear_program_over_links(recipe):
    graph = parse(recipe)
    reached, proven = by_mcf(graph)
    time = alltoall_optimum(graph)
    assert proven <= time <= reached
    assert float(reached) == pytest.approx(float(proven), rel=1e-8)


def test_designs_without_symmetries_are_left_open():
    assert alltoall_optimum(parse("genkautz(degree=4,n=64)")) is None
    assert alltoall_optimum(parse("line(torus(dims=3x3x3))")) is None  # 36 kinds of links
    with pytest.raises(InfeasibleError):
        alltoall_optimum(parse("cayley(a=4,k=1,b=2,generators=2x4)"))


# --- the catalogue and the search --------------------------------------------------------------------


@pytest.mark.parametrize("one", shipped_alltoall(), ids=lambda one: f"{one.n}-{one.degree}-{one.recipe[:24]}")
def test_every_shipped_design_is_what_it_says(one):
    graph = parse(one.recipe)
    cost = eager_cost(graph)
    assert (graph.n, graph.degree, cost.steps, cost.time) == (one.n, one.degree, one.steps, one.time)
    assert alltoall_optimum(graph) == one.alltoall


@pytest.mark.parametrize("n", WANTED)
def test_shipped_designs_are_near_the_moore_bound(n):
    best = min(one.alltoall for one in shipped_alltoall() if (one.n, one.degree) == (n, 4))
    assert best / bounds.alltoall_limit(n, 4) <= WANTED[n]


def test_a_search_finds_better_and_better_designs_and_the_same_ones_for_a_seed():
    def first(tries: int) -> list:
        found = search_alltoall(32, 4, seed=1)
        return [one for one in (next(found) for _ in range(tries)) if one is not None]

    found = first(3000)
    assert found == first(3000)
    for n in (8, 32):
        times = [one.alltoall for one in found if one.n == n]
        assert times == sorted(set(times), reverse=True)
    for one in random.Random(0).sample(found, 5):
        assert alltoall_optimum(parse(one.recipe)) == one.alltoall
    assert all(next(search_alltoall(32, 4, seed=1, known=found[-1:])) is None for _ in range(5))
    duplex = search_alltoall(24, 4, two_way=True)
    kept = [one for one in (next(duplex) for _ in range(300)) if one is not None]
    assert kept
    assert all(parse(one.recipe).is_two_way for one in kept)
    assert loads(dumps(kept), "x")[-1].alltoall is not None
    with pytest.raises(InputError, match="up to degree"):
        next(search_alltoall(100, 9))


# --- the finder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "degree", "two_way"), [(16, 4, False), (36, 3, False), (30, 4, True), (13, 2, False)])
def test_designs_come_by_their_exact_time(n, degree, two_way):
    found = find_alltoall(n, degree, two_way=two_way, known=shipped_alltoall())
    exact = [one.time for one in found if one.time is not None]
    assert exact == sorted(exact)
    assert [one.time is None for one in found] == sorted(one.time is None for one in found)
    for one in found:
        assert (one.graph.n, one.graph.degree) == (n, degree)
        assert one.graph.is_two_way or not two_way
        assert one.least >= one.bound
        assert one.over_moore >= 1


def test_line_graphs_of_good_designs_are_better_still():
    """Beyond the Cayley graphs themselves: 1.035, 1.052, 1.044 and 1.062 by ../shared/facts/directconnect.md."""
    for n, most in {128: 1.0161, 256: 1.0176, 512: 1.0211, 1024: 1.0378}.items():
        best = find_alltoall(n, 4, known=shipped_alltoall())[0]
        assert best.graph.recipe.startswith("line(")
        assert best.over_moore <= most


def test_twisted_tori_beat_the_published_ones():
    tori = [one for one in find_alltoall(128, 6, two_way=True) if one.graph.recipe.startswith("twisted")]
    assert rate(tori[0].graph) == Fraction(1, 72) > RATES["twisted(dims=4x4x8,twists=0x4x4)"]
    assert rate(parse("twisted(dims=4x8x8,twists=4x4x1)")) == Fraction(3, 548) > Fraction(1, 184)


# --- commands ----------------------------------------------------------------------------------------

TRIPS = [("16", "4"), *((recipe,) for recipe in sorted(RATES) if recipe.startswith("twisted"))]
TRIPS += [(one.recipe,) for one in shipped_alltoall() if one.n in (32, 64)]


@pytest.mark.parametrize("words", TRIPS, ids=lambda words: words[0])
def test_a_found_design_reaches_its_rate_in_the_synthesizer(words, tmp_path):
    file = str(tmp_path / "design.yaml")
    if len(words) == 2:
        asked = ("--nodes", words[0], "--degree", words[1], "--objective", "alltoall", "--json")
        shown = json.loads(run("topo", "find", *asked))
        best = shown["designs"][0]
        recipe, claimed = best["recipe"], Fraction(12 + Fraction(1, 2)) / Fraction(best["alltoall_time_exact"])
        assert best["alltoall_over_moore"] <= WANTED[int(words[0])]
        assert best["algbw_GBps"] == float(claimed)
    else:
        recipe = words[0]
        graph = parse(recipe)
        claimed = Fraction(25, 8) * graph.degree / alltoall_optimum(graph)
    run("topo", "generate", recipe, "-o", file)
    made = json.loads(run("synth", file, "-c", "alltoall", "-s", "mcf", "--json", "--no-cache"))
    assert made["guarantee"] == "optimal"
    assert Fraction(made["algbw_exact"]) == Fraction(made["bound_exact"]) == claimed


def test_find_tells_exact_times_and_brackets():
    shown = json.loads(run("topo", "find", "--nodes", "20", "--degree", "4", "--objective", "alltoall", "--json"))
    keys = {"name", "recipe", "tl_steps", "tb_exact", "tl_moore", "tb_optimal_exact", "diameter", "directed"}
    for one in shown["designs"]:
        assert keys <= set(one)
        assert one["alltoall_bound_over_moore"] <= one["alltoall_over_moore"]
    kautz = next(one for one in shown["designs"] if one["recipe"] == "genkautz(degree=4,n=20)")
    assert kautz["alltoall_over_moore"] == pytest.approx(1.025, abs=1e-3)
    assert Fraction(kautz["rate_exact"]) == RATES["line(complete(n=5))"]
    large = json.loads(run("topo", "find", "--nodes", "100", "--degree", "4", "--objective", "alltoall", "--json"))
    kautz = next(one for one in large["designs"] if one["recipe"] == "genkautz(degree=4,n=100)")
    assert kautz["alltoall_time_exact"] is None
    assert not kautz["alltoall_is_exact"]


def test_find_shows_a_table():
    words = ("topo", "find", "--nodes", "16", "--degree", "4", "--objective", "alltoall")
    text = run(*words, "--link-bandwidth", "25", "--alpha", "1")
    assert "all-to-all of 1MiB at 25 GB/s per port, 1 us per step" in text
    assert "3/20" in text
    assert "no design can beat" in text
    assert "60.000" in text  # 25 GB/s x 4 ports x 3/5
    assert "at least" in run("topo", "find", "--nodes", "100", "--degree", "4", "--objective", "alltoall")
    duplex = json.loads(run(*words, "--duplex", "--json"))
    assert not any(one["directed"] for one in duplex["designs"])
    assert "expected --objective allgather" in run(*words, "--published", code=2)


def test_a_search_adds_to_the_users_catalogue(tmp_path):
    file = tmp_path / "mine.toml"
    words = ("topo", "find", "--nodes", "21", "--degree", "3", "--objective", "alltoall", "--json")
    first = json.loads(run(*words, "--search", "0.5", "--catalogue", str(file)))
    kept = loads(file.read_text(), "mine.toml")
    assert [one.n for one in kept] == [7, 21]
    assert all(alltoall_optimum(parse(one.recipe)) == one.alltoall for one in kept)
    again = json.loads(run(*words, "--catalogue", str(file)))
    assert again["designs"] == first["designs"]
    # What is kept for all-to-all stays when designs for allgather join it.
    run("topo", "find", "--nodes", "21", "--degree", "3", "--search", "0.3", "--catalogue", str(file))
    assert set(kept) <= set(loads(file.read_text(), "mine.toml"))
