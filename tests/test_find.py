"""The finder and its commands: published frontiers, what goes beyond them, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from collc.cli import collc
from collc.design import bounds
from collc.design.eager import best_time, eager_cost
from collc.design.find import check_request, find
from collc.design.graph import Graph
from collc.design.known import Known, loads, shipped
from collc.design.recipe import parse
from collc.design.schedule import price
from collc.design.search import search
from collc.errors import InputError
from collc.topology import load_text, open_topology

REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "directconnect.json"
ROWS = json.loads(REFERENCE.read_text())["finder"] if REFERENCE.exists() else {"paper_style_reproduced": []}

# (N, T_L, T_B) of degree 4 that must be met or beaten, one-way and full-duplex (own search).
BEYOND = {
    16: [(2, 1), (3, Fraction(15, 16))],
    32: [(3, Fraction(31, 32))],
    64: [(3, Fraction(17, 16)), (4, Fraction(63, 64))],
    128: [(4, 1), (5, Fraction(127, 128))],
    256: [(4, Fraction(69, 64)), (5, Fraction(255, 256))],
    512: [(5, Fraction(129, 128)), (6, Fraction(511, 512))],
    1024: [(5, Fraction(277, 256)), (6, 1), (7, Fraction(1023, 1024))],
}
BEYOND_DUPLEX = {64: 5, 128: 6, 256: 7, 1024: 8}


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(collc, words)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def is_met(frontier, steps: int, time: Fraction) -> bool:
    return any(one.steps <= steps and one.time <= time for one in frontier)


# --- frontiers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS["paper_style_reproduced"], ids=lambda row: f"{row['N']}-{row['d']}")
def test_published_frontiers_are_reproduced_exactly(row):
    found = find(row["N"], row["d"], published=True)
    assert [design.price for design in found] == [(one["TL"], Fraction(one["TB"])) for one in row["frontier"]]
    for design, one in zip(found, row["frontier"], strict=True):
        for name, nbytes in (("1KiB", 2**10), ("1MiB", 2**20), ("1GiB", 2**30)):
            us = 2 * (design.steps * 10 + design.time * Fraction(nbytes, 12500))
            assert float(us) == pytest.approx(one["allreduce_us"][name], abs=0.06)


def test_the_published_table_at_1024():
    """arXiv:2202.03356: five designs of 1024 GPUs with 4 ports, 1 MiB, 10 us, 100 Gbit/s."""
    shown = json.loads(run("topo", "find", "--nodes", "1024", "--degree", "4", "--published", "--json"))
    rows = [(one["tl_steps"], round(one["tb"], 5), round(one["allreduce_us"], 1)) for one in shown["designs"]]
    assert rows == [
        (5, 1.33203, 323.5),
        (6, 1.01953, 291.0),
        (8, 1.00391, 328.4),
        (11, 1.0, 387.8),
        (20, 0.99902, 567.6),
    ]
    assert shown["best"] == shown["designs"][1]["recipe"]
    assert round(shown["bound_allreduce_us"], 1) == 267.6


@pytest.mark.parametrize("n", BEYOND)
def test_known_designs_beat_the_published_frontier(n):
    found = find(n, 4, known=shipped())
    for steps, time in BEYOND[n]:
        assert is_met(found, steps, Fraction(time))
    for design in find(n, 4, published=True):
        assert is_met(found, *design.price)


@pytest.mark.parametrize("n", BEYOND_DUPLEX)
def test_full_duplex_designs(n):
    found = find(n, 4, two_way=True, known=shipped())
    assert is_met(found, BEYOND_DUPLEX[n], best_time(n))
    assert all(design.build().is_two_way for design in found)


SIZES = [
    (2, 1),
    (3, 2),
    (5, 1),
    (13, 2),
    (17, 16),
    (23, 3),
    (30, 5),
    (31, 4),
    (36, 6),
    (61, 7),
    (64, 3),
    (72, 9),
    (97, 12),
    (96, 11),
    (100, 10),
    (210, 4),
    (251, 13),
    (128, 16),
]


@pytest.mark.parametrize(("n", "degree"), SIZES)
@pytest.mark.parametrize("two_way", [False, True], ids=["any", "duplex"])
def test_there_is_always_an_answer_at_its_price(n, degree, two_way):
    if two_way and (n * degree % 2 or (degree == 1 and n > 2)):
        with pytest.raises(InputError):
            check_request(n, degree, two_way=True)
        return
    found = find(n, degree, two_way=two_way, known=shipped())
    assert found
    assert [one.steps for one in found] == sorted({one.steps for one in found})
    assert [one.time for one in found] == sorted({one.time for one in found}, reverse=True)
    for design in found:
        graph = design.build()
        assert (graph.n, graph.degree, graph.n_loops) == (n, degree, design.n_loops)
        assert design.steps >= bounds.moore_steps(n, degree, two_way=two_way)
        assert design.time >= best_time(n)
        cost = eager_cost(Graph(graph.name, graph.recipe, graph.heads))
        if design.is_eager:
            assert (cost.steps, cost.time) == design.price
        else:
            assert design.time <= cost.time
        assert not two_way or graph.is_two_way


def test_prices_of_recipes_are_those_the_finder_states():
    for design in find(64, 2, known=shipped()):
        assert price(design.recipe) == design.price


@pytest.mark.parametrize(
    ("n", "degree", "two_way", "match"),
    [
        (1, 1, False, "2 to 4096"),
        (10**7, 4, False, "2 to 4096"),
        (8, 0, False, "1 to 16"),
        (40, 17, False, "1 to 16"),
        (5, 5, False, "all pairs"),
        (5, 3, True, "odd"),
        (4, 1, True, "fall apart"),
    ],
)
def test_silly_requests_are_refused(n, degree, two_way, match):
    with pytest.raises(InputError, match=match):
        find(n, degree, two_way=two_way)


# --- search ------------------------------------------------------------------------------------------


def test_a_search_finds_good_designs_and_the_same_ones_for_a_seed():
    def first(tries: int) -> list[Known]:
        found = search(32, 4, seed=3)
        return [one for one in (next(found) for _ in range(tries)) if one is not None]

    found = first(4000)
    assert found == first(4000)
    assert any((one.n, one.steps, one.time) == (32, 3, Fraction(31, 32)) for one in found)
    for one in found:
        graph = parse(one.recipe)
        cost = eager_cost(Graph("bare", "", graph.heads))
        assert (graph.n, cost.steps, cost.time) == (one.n, one.steps, one.time)
    duplex = search(24, 3, two_way=True, seed=1)
    assert all(parse(one.recipe).is_two_way for one in (next(duplex) for _ in range(500)) if one is not None)
    with pytest.raises(InputError, match="up to degree"):
        next(search(100, 9))


def test_what_is_known_is_not_found_again():
    known = [Known("", 24, 4, 1, Fraction(0)), Known("", 6, 4, 1, Fraction(0))]
    tries = search(24, 4, known=known)
    assert all(next(tries) is None for _ in range(300))


def test_a_search_adds_to_the_users_catalogue(tmp_path):
    file = tmp_path / "mine.toml"
    words = ("topo", "find", "--nodes", "20", "--degree", "3", "--search", "0.5", "--catalogue", str(file), "--json")
    first = json.loads(run(*words))
    kept = loads(file.read_text(), "mine.toml")
    again = json.loads(run(*words[:6], "--catalogue", str(file), "--json"))
    assert again["designs"] == first["designs"]
    assert all(eager_cost(parse(one.recipe)).time == one.time for one in kept)


# --- commands ----------------------------------------------------------------------------------------


def test_find_tells_what_the_contract_says():
    shown = json.loads(run("topo", "find", "--nodes", "16", "--degree", "4", "--json"))
    assert (shown["nodes"], shown["degree"]) == (16, 4)
    keys = {"name", "recipe", "tl_steps", "tb_exact", "tl_moore", "tb_optimal_exact", "diameter", "directed"}
    for one in shown["designs"]:
        assert keys <= set(one)
        assert parse(one["recipe"]).diameter == one["diameter"]
    text = run("topo", "find", "--nodes", "16", "--degree", "4", "-n", "1KiB", "--alpha", "1", "--link-bandwidth", "25")
    assert "allreduce of 1KiB at 25 GB/s per port, 1 us per step" in text
    assert "no design can beat" in text
    assert shown["designs"][0]["recipe"] in text


def test_generated_files_load_and_tell_their_recipe(tmp_path):
    recipe = "line(uniring(n=4,parallel=2))"
    text = run("topo", "generate", recipe, "--bandwidth", "10", "--latency", "0")
    topology = load_text(text, "x.yaml")
    graph = parse(recipe)
    assert {(link.src, link.dst): link.bandwidth for link in topology.links} == {
        (f"g{u}", f"g{v}"): 10 * count for (u, v), count in graph.arcs.items()
    }
    file = tmp_path / "design.yaml"
    run("topo", "generate", "torus", "dims=3x4", "-o", str(file))
    loaded = open_topology(str(file))
    assert loaded.sources == (("", "collc topo generate torus(dims=3x4)"),)
    shown = json.loads(run("topo", "show", str(file), "--json"))["design"]
    assert (shown["recipe"], shown["tl_steps"], shown["tb_exact"]) == ("torus(dims=3x4)", 3, "11/12")
    assert shown["distances"] == {"0": 1, "1": 4, "2": 5, "3": 2}
    assert "T_L 3 steps (Moore bound 2), T_B 11/12" in run("topo", "show", str(file))


def test_show_says_nothing_of_designs_where_there_is_none(tmp_path):
    assert "direct-connect" not in run("topo", "show", "dgx-a100")
    assert json.loads(run("topo", "show", "dgx1-v100", "--json"))["design"]["degree"] == 6
    edited = tmp_path / "edited.yaml"
    edited.write_text(run("topo", "generate", "uniring", "n=5").replace("uniring(n=5,parallel=1)", "uniring(n=6)"))
    assert "T_L 4 steps" in run("topo", "show", str(edited))
    edited.write_text(run("topo", "generate", "uniring", "n=5").replace("uniring(n=5,parallel=1)", "unring(n=6)"))
    assert "T_L 4 steps" in run("topo", "show", str(edited))


def test_wiring_and_lists():
    assert run("topo", "generate", "uniring", "n=3", "--wiring") == "g0:0 -> g1:0\ng1:0 -> g2:0\ng2:0 -> g0:0\n"
    cables = json.loads(run("topo", "generate", "complete", "n=4", "--wiring", "--json"))
    assert len(cables) == 6
    assert all(cable["both_ways"] for cable in cables)
    assert json.loads(run("topo", "generate", "kautz", "degree=2", "diameter=2", "--json"))["tb_exact"] == "1"
    listed = json.loads(run("topo", "generate", "--list", "--json"))
    assert {"torus", "genkautz", "cayley"} <= {one["name"] for one in listed}
    assert "genkautz degree n [repair=no]" in run("topo", "generate", "--list")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("generate", "tors", "dims=4x4"), "did you mean 'torus'"),
        (("generate", "torus", "dim=4"), "did you mean 'dims'"),
        (("generate", "torus"), "expected dims="),
        (("generate", "torus", "dims=4y4"), "whole numbers"),
        (("generate", "torus", "dims=4x4", "two=both"), "single"),
        (("generate",), "FAMILY"),
        (("generate", "diamond()", "n=3"), "expected none"),
        (("generate", "torus", "dims=4x4", "--bandwidth", "0"), "positive"),
        (("generate", "torus", "dims=4x4", "--latency", "x"), "not a number"),
        (("generate", "uniring", "n=4x4"), "a whole number"),
        (("generate", "cayley", "a=4", "k=1", "b=2", "generators=2"), "reached"),
        (("generate", "torus", "dims=4x4", "-o", "/dev/null/x"), "cannot be written"),
        (("find", "--nodes", "16", "--degree", "4", "-n", "0"), "no bytes"),
        (("find", "--nodes", "16", "--degree", "4", "--search", "0"), "positive"),
        (("find", "--nodes", "16", "--degree", "4", "--link-bandwidth", "-1"), "positive"),
        (("find", "--nodes", "16"), "--degree"),
        (("find", "--nodes", "16", "--degree", "4", "--catalogue", "/"), "cannot be read"),
    ],
)
def test_wrong_words_get_a_sentence(words, match):
    said = run("topo", *words, code=3 if "reached" in match else 2)
    assert match in said
    assert "Traceback" not in said
