"""Direct-connect designs: families, costs, expansions, schedules and bounds, against reference values and replays."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from math import gcd

import pytest
import replay
from hypothesis import given, settings
from hypothesis import strategies as st

from collc.design import bounds, eager, expand, lattice
from collc.design.catalogue import CATALOGUE, distance_regular, intersection_array
from collc.design.eager import best_time, eager_cost
from collc.design.expanded import degree_plan, line_plan, power_plan
from collc.design.families import FAMILIES, describe
from collc.design.graph import Graph
from collc.design.isomorphism import isomorphism
from collc.design.known import dumps, loads, patient_facts, shipped
from collc.design.patient import patient_plan
from collc.design.plan import eager_plan, lanes_of, plan_time
from collc.design.recipe import parse, split
from collc.design.schedule import best_plan, price, reverse_plan
from collc.design.wiring import cables, topology_of, with_symmetries
from collc.errors import BudgetError, CollcError, InfeasibleError, InputError, UnsupportedError


@pytest.fixture(scope="session")
def reference(shared):
    return json.loads((shared / "reference" / "directconnect.json").read_text())


# Names that the reference gives to graphs -> ours.
SINGLE = {
    "Octahedron": "octahedron",
    "Icosahedron": "icosahedron",
    "Dodecahedron": "dodecahedron",
    "Heawood": "Heawood",
    "Pappus": "Pappus",
    "TutteCoxeter": "Tutte-Coxeter",
    "HoffmanSingleton": "Hoffman-Singleton",
    "Paley13": "Paley13",
    "L(Petersen)": "Petersen-line",
    "K5,5-PM": "K5-5-matching",
    "Petersen": "Petersen",
}
CODES = {
    "McGee": "lcf(jumps=12x7x-7,n=24)",
    "Frucht": "lcf(jumps=-5x-2x-4x2x5x-2x2x5x-2x-5x4x2,n=12)",
    "TruncatedTetrahedron": "lcf(jumps=2x6x-2,n=12)",
    "TruncTet": "lcf(jumps=2x6x-2,n=12)",
}


def x(numbers) -> str:
    return "x".join(map(str, numbers))


def built(family: str, p: dict) -> Graph:
    """The graph that a row of the reference is about."""
    match family:
        case "biring" | "uniring":
            parallel = f",parallel={p['parallel']}" if "parallel" in p else ""
            return parse(f"{family}(n={p['n']}{parallel})")
        case "torus":
            return parse(f"torus(dims={x(p['dims'])})")
        case "hypercube":
            return parse(f"hypercube(dimensions={p['k']})")
        case "complete":
            return parse(f"complete(n={p['n']})")
        case "complete_bipartite":
            return parse(f"bipartite(degree={p['a']})")
        case "circulant":
            links = "one-way" if p["directed"] else "two-way"
            return parse(f"circulant(n={p['n']},offsets={x(p['offsets'])},links={links})")
        case "hamming":
            return parse(f"hamming(dimensions={p['k']},side={p['q']})")
        case "distance_regular":
            return distance_regular(SINGLE[p["graph"]])
        case "not_distance_regular":
            return parse(CODES[p["graph"]])
        case "generalized_kautz":
            return parse(f"genkautz(degree={p['d']},n={p['m']})")
        case "de_bruijn":
            return parse(f"debruijn(degree={p['d']},diameter={p['k']})")
        case "kautz":
            return parse(f"kautz(degree={p['d']},diameter={p['diameter']})")
        case "modified_de_bruijn":
            return parse(f"dbjmod(degree={p['d']},diameter={p['k']},cycle={x(p['cycle'])})")
        case "twisted_torus2d":
            return parse(f"twisted(dims={p['b']}x{p['a']},twists={p['twist_of_a_on_b_wrap']})")
        case "diamond_like":
            return parse("diamond()")
    raise AssertionError(family)


def from_name(name: str) -> Graph:
    """The graph that the reference calls by a short name."""
    if name in SINGLE:
        return distance_regular(SINGLE[name])
    if name in CODES:
        return parse(CODES[name])
    numbers = list(map(int, re.findall(r"\d+", name)))
    forms = {
        r"K(\d+)": "complete(n={0})",
        r"K(\d+),\1": "bipartite(degree={0})",
        r"Q\d+": "hypercube(dimensions={0})",
        r"C\(.*": "circulant(n={0},offsets={1}x{2})",
        r"Pi\(.*": "genkautz(degree={0},n={1})",
        r"BiRing\(\d+\)": "biring(n={0})",
        r"UniRing\(\d+\)": "uniring(n={0})",
        r"UniRing\(\d+,\d+\)": "uniring(parallel={0},n={1})",
        r"H\(.*": "hamming(dimensions={0},side={1})",
        r"diamond-like A": "diamond()",
    }
    for form, recipe in forms.items():
        if re.fullmatch(form, name):
            return parse(recipe.format(*numbers))
    raise AssertionError(name)


# --- costs of families -------------------------------------------------------------------------------


def test_every_reference_cost_is_met_exactly_and_by_replays(reference):
    for row in reference["allgather_bfb"]:
        graph = built(row["family"], row["params"])
        cost = eager_cost(graph)
        shape = graph.n, graph.degree, graph.n_loops, graph.is_two_way
        assert shape == (row["N"], row["d"], row["self_loops"], row["bidirectional"]), row["name"]
        assert (cost.steps, cost.time) == (row["TL"], Fraction(row["TB"])), row["name"]
        if "Pappus" not in row["name"]:
            assert cost.loads == tuple(map(Fraction, row["U_per_step"])), row["name"]
        assert bounds.moore_steps(graph.n, graph.degree) == row["moore_steps"]
        assert cost.is_optimal == row["bw_optimal"]
        moore = bounds.alltoall_limit(graph.n, graph.degree)
        assert float(Fraction(graph.degree, graph.n) / moore) == pytest.approx(row["a2a_F_moore_bound"], rel=1e-6)
        if graph.n <= 64:
            plan = eager_plan(lanes_of(graph))
            assert replay.allgather(plan, graph.degree) == (cost.steps, cost.time), row["name"]
            replay.reduce_scatter(plan)


N = 30
EXPECTED = [  # recipe, T_L, T_B as the family's docstring says
    *((f"uniring(n={n},parallel={k})", n - 1, best_time(n)) for n, k in ((2, 1), (7, 1), (5, 3))),
    *((f"biring(n={n},degree={d})", n // 2, best_time(n)) for n, d in ((3, 2), (10, 2), (9, 6))),
    ("complete(n=6)", 1, best_time(6)),
    ("complete(n=4,parallel=2)", 1, best_time(4)),
    ("bipartite(degree=5)", 2, best_time(10)),
    ("bipartite(degree=1)", 1, best_time(2)),
    ("hamming(dimensions=3,side=4)", 3, best_time(64)),
    ("hypercube(dimensions=5)", 5, best_time(32)),
    ("torus(dims=3x4x5)", 5, best_time(60)),
    ("torus(dims=3x3x2)", 3, best_time(18)),
    ("torus(dims=3x3x2,two=double)", 3, Fraction(1)),
    ("diring(degree=6)", 2, best_time(8)),
    ("diamond()", 3, best_time(8)),
    ("kautz(degree=3,diameter=3)", 3, Fraction(13, 12)),
]


@pytest.mark.parametrize(("recipe", "steps", "time"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_families_cost_what_they_say(recipe, steps, time):
    cost = eager_cost(parse(recipe))
    assert (cost.steps, cost.time) == (steps, time)


def test_a_dimension_of_two_is_one_link_or_two():
    assert parse("torus(dims=3x3x2)").degree == 5
    double = parse("torus(dims=3x3x2,two=double)")
    assert double.degree == 6
    assert max(double.arcs.values()) == 2


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogued_graphs_are_what_they_are_called(name):
    graph = distance_regular(name)
    entry = CATALOGUE[name]
    cost = eager_cost(graph)
    assert intersection_array(graph) == (entry.down, entry.up)
    assert graph.is_two_way
    assert (cost.steps, cost.time) == (len(entry.down), best_time(graph.n))


def test_a_wrong_construction_cannot_pass(monkeypatch):
    wrong = {**CATALOGUE, "cube": CATALOGUE["Petersen"].__class__(CATALOGUE["K3-3"].build, (3, 2, 1), (1, 2, 3))}
    monkeypatch.setattr("collc.design.catalogue.CATALOGUE", wrong)
    with pytest.raises(InputError, match="intersection array"):
        distance_regular("cube")
    assert intersection_array(parse("lcf(jumps=12x7x-7,n=24)")) is None


def test_loops_of_generalized_kautz_follow_their_rule():
    for degree in range(1, 7):
        for n in range(2, 70):
            g = gcd(degree + 1, n)
            wanted = 0 if n % (degree + 1) == 0 else g * (degree // g)
            assert parse(f"genkautz(degree={degree},n={n})").n_loops == wanted


def test_repairing_loops_gains_what_the_reference_says(reference):
    for row in reference["generalized_kautz_loop_repair"]:
        degree, n = map(int, re.findall(r"\d+", row["name"]))
        repairs = [row["permutation"]] if row["permutation"] != "any" else ["cycle", "swap halves"]
        for repair in repairs:
            graph = parse(f"genkautz(degree={degree},n={n},repair={'halves' if 'halves' in repair else repair})")
            assert graph.n_loops == 0
            assert float(eager_cost(graph).time) == pytest.approx(row["TB_repaired"], abs=1e-5), row["name"]


def test_the_default_pair_of_offsets_has_the_smallest_diameter():
    for n in range(7, 40):
        chosen = lattice.default_offsets(n, 4)
        pairs = [
            (a, b) for a in range(1, n // 2 + 1) for b in range(a + 1, n // 2 + 1) if 2 * b != n and gcd(a, b, n) == 1
        ]
        best = min(parse(f"circulant(n={n},offsets={a}x{b})").diameter for a, b in pairs)
        assert parse(f"circulant(n={n},offsets={x(chosen)})").diameter == best
        assert eager_cost(parse(f"circulant(n={n})")).is_optimal


def test_random_graphs_are_regular_connected_and_the_same_for_a_seed():
    for n, degree, links in (
        (10, 3, "two-way"),
        (25, 4, "two-way"),
        (9, 8, "two-way"),
        (12, 5, "one-way"),
        (7, 3, "one-way"),
    ):
        recipe = f"random(n={n},degree={degree},seed=5,links={links})"
        graph = parse(recipe)
        assert parse(recipe) == graph
        assert max(graph.arcs.values()) == 1
        assert graph.n_loops == 0
        assert graph.is_two_way or links == "one-way"
        assert graph.diameter < n
        assert eager_cost(graph).time >= best_time(n)


def test_every_family_documents_itself():
    for name in FAMILIES:
        told = describe(name)
        assert all(told[key] for key in ("summary", "exists", "costs", "source")), name


# --- the eager cost, three ways ----------------------------------------------------------------------


@st.composite
def digraphs(draw, most=9):
    """Random regular multigraphs: sums of permutations, loops and parallel links included."""
    n = draw(st.integers(2, most))
    degree = draw(st.integers(1, 4))
    images = [draw(st.permutations(range(n))) for _ in range(degree)]
    return Graph("random", "random", tuple(tuple(image[vertex] for image in images) for vertex in range(n)))


def is_connected(graph: Graph) -> bool:
    try:
        return graph.diameter >= 0
    except InfeasibleError:
        return False


@settings(max_examples=60, deadline=None)
@given(digraphs())
def test_costs_by_sets_by_flows_and_by_definition_agree(graph):
    if not is_connected(graph):
        with pytest.raises(InfeasibleError):
            eager_plan(lanes_of(graph))
        return
    cost = eager_cost(graph)
    by_flows: dict[int, Fraction] = {}
    for far, nearer in eager._blocks(graph, cost.steps):
        eager._raise_by_flows(by_flows, far, nearer, graph.degree)
    assert tuple(by_flows[step] for step in sorted(by_flows)) == cost.loads
    assert tuple(replay.brute_force_loads(graph.heads)) == cost.loads
    plan = eager_plan(lanes_of(graph))
    assert replay.allgather(plan, graph.degree) == (cost.steps, cost.time)
    replay.reduce_scatter(plan)
    assert cost.time >= best_time(graph.n)
    assert cost.steps >= bounds.moore_steps(graph.n, graph.degree)
    total = sum(step * count for step, count in bounds.distance_counts(graph).items())
    assert bounds.alltoall_time(graph) >= bounds.alltoall_limit(graph.n, graph.degree)
    assert total >= bounds.moore_distance_sum(graph.n, graph.degree)


@settings(max_examples=25, deadline=None)
@given(digraphs(most=7), st.integers(1, 7))
def test_coarse_chunks_lose_no_more_than_the_bound(graph, n_chunks):
    if not is_connected(graph):
        return
    cost = eager_cost(graph)
    plan = eager_plan(lanes_of(graph), n_chunks)
    steps, time = replay.allgather(plan, graph.degree)
    assert steps == cost.steps
    assert cost.time <= time <= cost.time + Fraction(graph.degree * cost.steps, graph.n * n_chunks)


def test_chunk_counts_lose_what_the_reference_says(reference):
    for row in reference["chunking"]:
        numbers = list(map(int, re.findall(r"\d+", row["name"])))
        graph = parse(f"torus(dims={x(numbers)})") if row["name"].startswith("Torus") else from_name(row["name"])
        lanes = lanes_of(graph)
        assert eager_plan(lanes).n_chunks == row["lcm_denominators"], row["name"]
        for n_chunks, ratio in row["TB_over_opt_by_chunks"].items():
            if graph.n > 30 and int(n_chunks) > 4:
                continue
            time = plan_time(eager_plan(lanes, int(n_chunks)), graph.degree)
            assert float(time / best_time(graph.n)) == pytest.approx(ratio, abs=6e-5), (row["name"], n_chunks)


def test_many_ports_go_by_flows():
    graph = parse("genkautz(degree=13,n=100)")
    by_sets: dict[int, Fraction] = {}
    for far, nearer in eager._blocks(graph, graph.diameter):
        eager._raise_by_sets(by_sets, far, nearer, graph.degree)
    assert tuple(by_sets[step] for step in sorted(by_sets)) == eager_cost(graph).loads


# --- symmetries --------------------------------------------------------------------------------------

SYMMETRIC = [
    "torus(dims=12x12)",
    "hypercube(dimensions=8)",
    "circulant(n=301)",
    "uniring(n=97)",
    "hamming(dimensions=3,side=6)",
    "twisted(dims=16x12,twists=4)",
    "cayley(a=64,k=13,b=16,generators=253x83x485x171)",
    "affine(p=2,m=3,b=16,matrix=1x0x0x1x1x0x1x1x1,generators=71x73x126x50)",
    "line(circulant(n=200))",
    "degree(circulant(n=150),2)",
    "power(uniring(n=15),2)",
    "product(biring(n=9),complete(n=5),uniring(n=7))",
    "duplex(circulant(n=301,offsets=1x20,links=one-way))",
    "reverse(circulant(n=301,offsets=1x20,links=one-way))",
    "line(uniring(n=120,parallel=3))",
]


@pytest.mark.parametrize("recipe", SYMMETRIC)
def test_one_vertex_of_a_class_tells_the_cost_of_all(recipe):
    graph = parse(recipe)
    assert graph.is_symmetric
    bare = Graph(graph.name, graph.recipe, graph.heads)
    assert not bare.is_symmetric
    assert eager_cost(bare) == eager_cost(graph)
    assert bare.diameter == graph.diameter


def test_a_false_symmetry_is_refused():
    ring = parse("uniring(n=100)")
    swapped = (1, 0, *range(2, 100))
    with pytest.raises(InputError, match="symmetry"):
        eager_cost(Graph("ring", "", ring.heads, (swapped,)))
    with pytest.raises(InputError, match="symmetry"):
        expand.line(Graph("ring", "", parse("complete(n=5)").heads, ((1, 1, 2, 3, 4),)))


@pytest.mark.parametrize("recipe", ["torus(dims=4x6)", "hypercube(dimensions=4)", "circulant(n=15)", "uniring(n=9)"])
def test_symmetries_of_plain_numberings_are_found(recipe):
    assert with_symmetries(Graph("plain", "", parse(recipe).heads)).is_transitive


# --- expansions --------------------------------------------------------------------------------------


def test_expansions_cost_what_the_reference_says(reference):
    for row in reference["expansions"]["line"]:
        if row["base"] == "diamond-like B":
            continue  # its arcs are not ours
        graph = from_name(row["base"])
        if row["base_self_loops"]:
            with pytest.raises(InputError, match="loops"):
                expand.line(graph)
            continue
        wanted = eager_cost(graph).steps, eager_cost(graph).time
        for _ in range(row["times"]):
            wanted = expand.line_price(graph.n, wanted)
            graph = expand.line(graph)
        found = eager_cost(graph)
        assert graph.n == row["N"]
        assert wanted == (row["formula"]["TL"], Fraction(row["formula"]["TB"]))
        assert (found.steps, found.time) == (row["bfb_on_expanded"]["TL"], Fraction(row["bfb_on_expanded"]["TB"]))
    for kind, make, formula in (
        ("degree", expand.degree, expand.degree_price),
        ("power", expand.power, expand.power_price),
    ):
        for row in reference["expansions"][kind]:
            base = from_name(row["base"])
            graph = make(base, row["n"])
            cost, found = eager_cost(base), eager_cost(graph)
            assert (graph.n, graph.degree) == (row["N"], row["d"])
            assert formula(base.n, row["n"], (cost.steps, cost.time)) == (
                row["formula"]["TL"],
                Fraction(row["formula"]["TB"]),
            )
            assert (found.steps, found.time) == (row["bfb_on_expanded"]["TL"], Fraction(row["bfb_on_expanded"]["TB"]))
    for row in reference["expansions"]["product"]:
        graph = expand.product(*map(from_name, row["factors"]))
        found = eager_cost(graph)
        assert (graph.n, graph.degree, found.steps, found.time) == (row["N"], row["d"], row["TL"], Fraction(row["TB"]))


EXPANDED = [
    "line(bipartite(degree=2))",
    "line(complete(n=3),3)",
    "line(uniring(n=4,parallel=3))",
    "line(diamond(),2)",
    "line(genkautz(degree=2,n=9))",
    "degree(uniring(n=5),2)",
    "degree(complete(n=3),3)",
    "degree(genkautz(degree=2,n=9),2)",
    "power(uniring(n=3),2)",
    "power(genkautz(degree=2,n=7),2)",
    "power(kautz(degree=2,diameter=2),2)",
    "power(biring(n=3),3)",
    "power(debruijn(degree=2,diameter=2),2)",
    "duplex(diamond())",
    "duplex(line(diamond()))",
    "duplex(genkautz(degree=2,n=7))",
    "line(power(uniring(n=3),2))",
    "line(dbjmod(degree=2,diameter=3))",
    "power(dbjmod(degree=2,diameter=3),2)",
    "degree(dbjmod(degree=2,diameter=3),2)",
]


@pytest.mark.parametrize("recipe", EXPANDED)
def test_schedules_of_expansions_replay_at_their_price_both_ways(recipe):
    graph, plan = best_plan(recipe)
    assert graph.heads == parse(recipe).heads
    steps, time = replay.allgather(plan, graph.degree)
    replay.reduce_scatter(plan)
    assert time <= price(recipe)[1]
    assert time <= eager_cost(graph).time
    assert best_time(graph.n) <= time
    assert steps >= graph.diameter
    back = reverse_plan(recipe, graph, plan)
    assert back.lanes == lanes_of(graph.transpose)
    _, back_time = replay.allgather(back, graph.degree)
    assert back_time <= eager_cost(graph.transpose).time


@pytest.mark.parametrize(
    "base", ["diamond()", "genkautz(degree=2,n=9)", "uniring(n=4,parallel=2)", "kautz(degree=2,diameter=2)"]
)
def test_formulas_are_what_their_schedules_replay_at(base):
    """The expansions' own schedules of the eager base, not the better of several."""
    graph = parse(base)
    cost, plan = eager_cost(graph), eager_plan(lanes_of(graph))
    known = cost.steps, cost.time
    line, double, square = expand.line(graph), expand.degree(graph, 3), expand.power(graph, 2)
    steps, time = replay.allgather(line_plan(graph, plan, line), line.degree)
    formula = expand.line_price(graph.n, known)
    assert steps == formula[0]
    assert time <= formula[1]  # parallel links save what the receiver owns already
    if max(graph.arcs.values()) == 1:
        assert time == formula[1]
    assert replay.allgather(degree_plan(graph, plan, double), double.degree) == expand.degree_price(graph.n, 3, known)
    assert replay.allgather(power_plan(graph, plan, square, 2), square.degree) == expand.power_price(graph.n, 2, known)


def test_expansions_say_why_they_refuse():
    looped = parse("genkautz(degree=2,n=7)")
    with pytest.raises(InputError, match="2 loops"):
        expand.degree(looped, 2)
    with pytest.raises(InputError, match="2 copies"):
        expand.degree(parse("diamond()"), 1)
    with pytest.raises(InputError, match="2 to 24"):
        expand.power(looped, 1)
    with pytest.raises(InputError, match="two graphs"):
        expand.product(looped)


# --- patient schedules, isomorphisms -----------------------------------------------------------------


@pytest.mark.parametrize("fact", patient_facts(), ids=lambda fact: fact.recipe)
def test_patient_schedules_are_as_good_as_stated(fact):
    graph = parse(fact.recipe)
    plan = patient_plan(graph, fact.steps)
    assert plan is not None
    assert replay.allgather(plan, graph.degree) == (fact.steps, fact.time)
    replay.reduce_scatter(plan)
    assert fact.time == best_time(graph.n) < eager_cost(graph).time
    assert (graph.n, graph.degree) == (fact.n, fact.degree)
    assert graph.diameter <= fact.steps <= graph.diameter + 1


def test_too_few_steps_are_proven_not_to_suffice(reference):
    assert patient_plan(parse("kautz(degree=2,diameter=2)"), 2) is None
    assert patient_plan(parse("genkautz(degree=3,n=8)"), 2) is None
    assert patient_plan(parse("dbjmod(degree=2,diameter=3)"), 3) is None
    with pytest.raises(UnsupportedError, match="divide"):
        patient_plan(parse("genkautz(degree=3,n=8)"), 3, 1)
    with pytest.raises(UnsupportedError, match="arrivals"):
        patient_plan(parse("genkautz(degree=4,n=64)"), 5)


def test_isomorphisms_are_found_and_right():
    for recipe in (
        "diamond()",
        "genkautz(degree=4,n=16)",
        "circulant(n=20,offsets=1x6,links=one-way)",
        "line(diamond())",
    ):
        graph = parse(recipe)
        image = isomorphism(graph, graph.transpose)
        assert image is not None
        assert {(image[u], image[v]): k for (u, v), k in graph.arcs.items()} == dict(graph.transpose.arcs)
    lopsided = parse("dbjmod(degree=2,diameter=4)")
    assert isomorphism(lopsided, lopsided.transpose) is None
    assert isomorphism(parse("torus(dims=4x4)"), parse("hypercube(dimensions=4)")) is not None
    assert isomorphism(parse("circulant(n=16)"), parse("hypercube(dimensions=4)")) is None


# --- known designs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("one", shipped(), ids=lambda one: f"{one.n}-{one.degree}-{one.steps}-{one.recipe[:24]}")
def test_every_known_design_is_as_good_as_stated(one):
    graph = parse(one.recipe)
    bare = Graph(graph.name, graph.recipe, graph.heads)  # all vertices, whatever the symmetries say
    cost, back = eager_cost(bare), eager_cost(bare.transpose)
    assert (graph.n, graph.degree, cost.steps, cost.time) == (one.n, one.degree, one.steps, one.time)
    assert (back.steps, back.time) == (cost.steps, cost.time)
    if graph.n <= 64:
        assert replay.allgather(eager_plan(lanes_of(graph)), graph.degree) == (one.steps, one.time)


def test_a_catalogue_reads_back_and_says_what_is_wrong():
    assert loads(dumps(shipped()), "x") == tuple(
        sorted(shipped(), key=lambda one: (one.degree, one.n, one.steps, one.time, one.recipe))
    )
    for text in ("recipe", "[[design]]\nrecipe = 3", "design = 4", '[[design]]\nrecipe="x"\nvertices="y"'):
        with pytest.raises(InputError, match="catalogue"):
            loads(text, "x.toml")


# --- recipes, wiring, bounds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe", [*SYMMETRIC, *EXPANDED, *(row[0] for row in EXPECTED), "genkautz(degree=4,n=8,repair=halves)"]
)
def test_a_graph_is_built_again_by_its_own_recipe(recipe):
    graph = parse(recipe)
    again = parse(graph.recipe)
    assert (again.heads, again.name) == (graph.heads, graph.name)


@settings(max_examples=150, deadline=None)
@given(st.text("linepowrdgc(),=x0123456789-", max_size=40))
def test_no_text_is_more_than_refused(text):
    try:
        parse(text)
    except CollcError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("recipe", "match"),
    [
        ("circulnt(n=16)", "did you mean 'circulant'"),
        ("line(diamond()", "not closed|brackets"),
        ("line(diamond()))", "closes"),
        ("line(diamond(),99)", "1 to 12"),
        ("power(diamond())", r"power\(X,n\)"),
        ("product(diamond(),2)", "product"),
        ("torus(dims=4x4,dims=3)", "once"),
        ("torus(4x4)", "KEY=VALUE"),
        ("uniring(n=1)", "2 or more"),
        ("genkautz(degree=4,n=99999999)", "at most"),
        ("circulant(n=9,offsets=3x6)", "common factor|negative"),
        ("circulant(n=9,offsets=2x7)", "negative"),
        ("circulant(n=9,degree=3)", "odd degree"),
        ("biring(n=5,degree=3)", "even"),
        ("cayley(a=4,k=2,b=2,generators=1)", "k\\^b"),
        ("affine(p=2,m=2,b=2,matrix=1,generators=1)", "expected 4"),
        ("affine(p=2,m=2,b=2,matrix=1x1x1x0,generators=1)", "power 2"),
        ("cayley(a=4,k=1,b=2,generators=8)", "generator 8"),
        ("distance_regular(graph=Petersn)", "Petersen"),
        ("lcf(jumps=5x5,n=14)", "chord"),
        ("twisted(dims=2x4,twists=0)", "same place"),
        ("twisted(dims=4x4x8,twists=1)", "a twist for each"),
        ("dbjmod(degree=2,diameter=1)", "2 or more"),
        ("dbjmod(degree=2,diameter=3,cycle=1x2x3x4)", "left short"),
        ("random(n=5,degree=3)", "even product"),
        ("genkautz(degree=2,n=9,repair=cycle)", "two vertices"),
        ("x" * 200, "\\.\\.\\."),
    ],
)
def test_wrong_recipes_get_a_sentence(recipe, match):
    with pytest.raises((InputError, BudgetError), match=match):
        parse(recipe)


def test_brackets_in_recipes_are_matched():
    assert split("product(line(a(n=1)),b(x=2,y=3))") == ("product", ["line(a(n=1))", "b(x=2,y=3)"])


@pytest.mark.parametrize(
    "recipe",
    ["circulant(n=9)", "diamond()", "genkautz(degree=4,n=16)", "uniring(n=4,parallel=2)", "biring(n=4,degree=4)"],
)
def test_wiring_uses_every_live_port_once(recipe):
    graph = parse(recipe)
    made = list(cables(graph))
    outs = [(a, p) for a, p, *_ in made] + [(b, q) for _, _, b, q, both in made if both]
    live = [(u, port) for u, row in enumerate(graph.heads) for port, v in enumerate(row) if v != u]
    assert sorted(outs) == live
    if not graph.is_two_way:
        assert len({(b, q) for _, _, b, q, _ in made}) == len(made)
    for a, p, b, q, both in made:
        assert graph.heads[a][p] == b
        assert not both or graph.heads[b][q] == a


def test_a_topology_has_the_graphs_links():
    graph = parse("uniring(n=3,parallel=2)")
    plain = topology_of(graph, Fraction(5), Fraction(1))
    assert {(link.src, link.dst, link.bandwidth) for link in plain.links} == {
        ("g0", "g1", 10),
        ("g1", "g2", 10),
        ("g2", "g0", 10),
    }
    hosted = topology_of(graph, Fraction(5), Fraction(1), Fraction(7))
    assert hosted.link["g0", "nic0"].bandwidth == 7
    assert hosted.link["nic0", "nic1"].bandwidth == 10


def test_moore_bounds():
    assert [bounds.moore_steps(n, 4) for n in (5, 6, 21, 22, 1024)] == [1, 2, 2, 3, 5]
    assert bounds.moore_steps(10, 3, two_way=True) == 2  # the Petersen graph meets it
    assert bounds.moore_steps(50, 7, two_way=True) == 2  # and Hoffman-Singleton
    assert bounds.moore_steps(7, 1) == 6
    assert bounds.moore_distance_sum(16, 4) == 26


@pytest.mark.parametrize(
    ("recipe", "links"),
    [
        ("hypercube(dimensions=6)", 32),
        ("torus(dims=8x8)", 16),
        ("biring(n=20)", 2),
        ("complete(n=8)", 16),
        ("uniring(n=9)", 1),
    ],
)
def test_bisections_of_known_width(recipe, links):
    assert bounds.bisection(parse(recipe)) == links
