"""Switches that add and copy: what they gain, how their loads are counted, and who must do without them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import fabrics
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collc import cost, verify
from collc.errors import InputError, UnsupportedError, VerificationError
from collc.ir import text
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import FlowSchedule, Prices, Tree
from collc.ir.topology import Route, Topology
from collc.passes.lower_flow import LowerFlow
from collc.pipeline import compile_request
from collc.request import Clock, Request, Target
from collc.synth.forestcoll import ForestColl
from collc.verify.flow import examine
from collc.verify.sharing import crossings


def problem(topology: Topology, name: str = "allreduce") -> Problem:
    return Problem(topology, make_collective(name, topology.n_ranks))


def hosts(n: int) -> tuple[str, ...]:
    return tuple(f"nvs{host}" for host in range(n))


STUDY = "linear program of the project's own study (forestcoll.json), every switch adding and copying"
BEST = [
    (fabrics.branching(fabrics.a100(1), "nvs0"), 300, STUDY),
    (fabrics.branching(fabrics.star(8), "s"), 1, STUDY),
    (fabrics.branching(fabrics.half_box(), "s"), 150, STUDY),
    (fabrics.branching(fabrics.hetero3(), "boxA", "boxC", "top"), 48, STUDY),
    (fabrics.branching(fabrics.h100(2), *hosts(2), "ib"), 400, STUDY),
    (fabrics.branching(fabrics.h100(2), *hosts(2)), 400, "each host's eight NICs of 50 carry each byte once each way"),
    (fabrics.branching(fabrics.h100(4), *hosts(4)), Fraction(800, 3), "four hosts as one ring: 400 x 4 / 6"),
]


@pytest.mark.parametrize(("topology", "best", "source"), BEST, ids=[f"{t.name}{len(t.reduce)}" for t, _, _ in BEST])
def test_allreduce_is_as_fast_as_the_switches_allow(topology, best, source):
    flow = ForestColl().run(problem(topology))
    verify.check(flow)
    assert 1 / flow.time == best, source
    assert flow.is_optimal
    # Where trees without are as fast, they are kept.
    plain = cost.allreduce_rates(topology.without_branching())
    assert plain is not None
    assert flow.in_network == ("add and copy" in flow.notes[0]) == (best > plain.total)
    assert text.loads(text.dumps(flow)) == flow


def test_without_the_option_it_is_the_plain_schedule_with_its_own_bound():
    marked = fabrics.branching(fabrics.h100(2), *hosts(2))
    flow = ForestColl(in_network=False).run(problem(marked))
    plain = ForestColl().run(problem(fabrics.h100(2)))
    assert not flow.in_network
    assert 1 / flow.time == flow.bound.algbw == 1 / plain.time == Fraction(800, 3)


def test_copying_alone_gains_nothing_on_one_switch():
    """Copies would leave each GPU but once; sums and copies still come in 14 times for 8 ports."""
    flow = ForestColl().run(problem(replace(fabrics.star(8), multicast=("s",))))
    verify.check(flow)
    assert (1 / flow.time, flow.in_network) == (Fraction(4, 7), False)


def test_allgather_gains_nothing():
    flow = ForestColl().run(problem(fabrics.branching(fabrics.a100(1), "nvs0"), "allgather"))
    verify.check(flow)
    assert (1 / flow.time, flow.is_optimal, flow.in_network) == (Fraction(2400, 7), True, False)


def test_prices_prove_nothing_between_hosts_that_a_switch_joins():
    """A common switch that adds and copies serves all hosts at once; the bound of four hosts must not hold."""
    inside = cost.bound(problem(fabrics.branching(fabrics.h100(4), *hosts(4))))
    joined = cost.bound(problem(fabrics.branching(fabrics.h100(4), *hosts(4), "ib")))
    assert inside is not None
    assert joined is not None
    assert isinstance(inside.witness, Prices)
    assert (inside.algbw, joined.algbw) == (Fraction(800, 3), 400)


# --- loads ---------------------------------------------------------------------------------------


def star_tree(n: int) -> Tree:
    """Rank 0 collects from all and copies to all, over the switch."""
    out = tuple(Route(0, rank, ("g0", "s", f"g{rank}")) for rank in range(1, n))
    return Tree(0, Fraction(1), 0, tuple(route.reversed() for route in out), out)


def test_a_shared_way_counts_once():
    marked = problem(fabrics.branching(fabrics.star(4), "s"))
    plain = cost.link_loads(marked, [star_tree(4)])
    shared = cost.link_loads(marked, [star_tree(4)], in_network=True)
    assert (plain["g0", "s"], plain["s", "g0"]) == (3, 3)
    assert (shared["g0", "s"], shared["s", "g0"]) == (1, 1)
    assert all(shared[f"g{rank}", "s"] == shared["s", f"g{rank}"] == 1 for rank in range(1, 4))
    flow = FlowSchedule(marked, (star_tree(4),), Fraction(1), in_network=True)
    assert list(examine(flow)) == []


def test_each_direction_needs_its_own_mark():
    for marks, down, up in (({"multicast": ("s",)}, 1, 3), ({"reduce": ("s",)}, 3, 1)):
        loads = cost.link_loads(problem(replace(fabrics.star(4), **marks)), [star_tree(4)], in_network=True)
        assert (loads["g0", "s"], loads["s", "g0"]) == (down, up)


def test_a_stream_splits_only_where_a_switch_copies():
    """Two switches in a row: what the second copies runs as one over both; what the first copies runs apart."""
    links = [
        *fabrics.both("g0", "a", 9),
        *fabrics.both("a", "b", 9),
        *fabrics.both("b", "g1", 9),
        *fabrics.both("b", "g2", 9),
    ]
    base = fabrics.fabric("row", 3, links, ["a", "b"])
    out = tuple(Route(0, rank, ("g0", "a", "b", f"g{rank}")) for rank in (1, 2))
    tree = Tree(0, Fraction(1), 0, broadcast=out)
    for copying, first, second in (("b", 1, 1), ("a", 1, 2)):
        asked = Problem(fabrics.branching(base, copying), make_collective("broadcast", 3))
        loads = cost.link_loads(asked, [tree], in_network=True)
        assert (loads["g0", "a"], loads["a", "b"]) == (first, second)


def test_a_claim_beyond_the_shared_load_is_found():
    marked = problem(fabrics.branching(fabrics.star(4), "s"))
    with pytest.raises(VerificationError, match="carries"):
        verify.check(FlowSchedule(marked, (star_tree(4),), Fraction(1, 2), in_network=True))
    with pytest.raises(VerificationError, match="carries"):
        verify.check(FlowSchedule(marked, (star_tree(4),), Fraction(1)))


def test_a_fabric_without_such_switches_is_refused():
    with pytest.raises(InputError, match="no switch of topology 'star4' adds or copies"):
        FlowSchedule(problem(fabrics.star(4)), (star_tree(4),), Fraction(1), in_network=True)


@st.composite
def switch_trees(draw: st.DrawFn) -> tuple[Problem, Tree]:
    """A tree over random ways through three switches, of which some branch."""
    n = draw(st.integers(2, 5))
    vertices = [*(f"g{rank}" for rank in range(n)), "a", "b", "c"]
    links = [(x, y, 1) for x in vertices for y in vertices if x != y]
    topology = fabrics.fabric("any", n, links, ["a", "b", "c"])
    branch = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, unique=True)
    topology = replace(topology, multicast=tuple(draw(branch)), reduce=tuple(draw(branch)))

    def ways() -> tuple[Route, ...]:
        parents = [draw(st.integers(0, rank - 1)) for rank in range(1, n)]
        through = [tuple(draw(st.permutations("abc"))[: draw(st.integers(0, 3))]) for _ in parents]
        return tuple(
            Route(parent, rank, (f"g{parent}", *path, f"g{rank}"))
            for rank, (parent, path) in enumerate(zip(parents, through, strict=True), start=1)
        )

    up = tuple(route.reversed() for route in reversed(ways()))
    return problem(topology), Tree(0, Fraction(1), 0, up, ways())


@settings(max_examples=100, deadline=None)
@given(switch_trees())
def test_two_ways_of_counting_agree(case):
    asked, tree = case
    counted = cost.link_loads(asked, [tree], in_network=True)
    flow = FlowSchedule(asked, (tree,), Fraction(1), in_network=True)
    assert counted == {hop: Fraction(load) for hop, load in crossings(flow).items()}


# --- who cannot ----------------------------------------------------------------------------------


def ask(options: dict[str, str], backend: str | None, synthesizer: str = "forestcoll"):
    marked = problem(fabrics.branching(fabrics.a100(1), "nvs0"))
    target = Target(backend) if backend else None
    return compile_request(Request(marked, synthesizer, options, target=target), Clock())


@pytest.mark.parametrize("backend", ["rccl", "executor", "classic"])
def test_xml_gets_the_best_plain_schedule_and_its_bound(backend):
    outcome = ask({}, backend)
    assert 1 / outcome.best.made.time == outcome.best.made.bound.algbw == Fraction(1200, 7)
    assert f"{backend} files cannot make switches add or copy; schedule and bound do without" in outcome.warnings


def test_xml_is_refused_by_name_where_it_is_asked_for():
    with pytest.raises(UnsupportedError, match="rccl files cannot make switches add or copy"):
        ask({"in_network": "true"}, "rccl")
    with pytest.raises(UnsupportedError, match="switches add or copy"):
        LowerFlow().run(ask({}, None).best.made)


def test_collcs_own_file_holds_it():
    (file,) = ask({}, "json").files
    flow = text.loads(file.text)
    assert isinstance(flow, FlowSchedule)
    assert flow.in_network
    assert 1 / flow.time == 300


def test_auto_keeps_it():
    best = ask({}, None, "auto").best
    assert (best.synthesizer, 1 / best.made.time) == ("forestcoll", 300)
