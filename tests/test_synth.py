"""Every synthesizer on small fabrics, by the conditions themselves; then what each one promises."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import fabrics
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import cost, registry, verify
from collc.errors import InfeasibleError, InputError, UnsupportedError
from collc.ir import text
from collc.ir.collective import COLLECTIVES, Problem, alltoallv, make_collective
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.kernels import load
from collc.kernels.growth import LEFT
from collc.synth.forestcoll import ForestColl
from collc.synth.forestcoll.balance import balance
from collc.synth.forestcoll.pack import pack
from collc.synth.forestcoll.scale import scale
from collc.synth.ring import Ring

SMALL = {
    topology.name: topology
    for topology in (
        fabrics.single(), fabrics.path(2), fabrics.star(4), fabrics.ring(5), fabrics.one_way_ring(4),
        fabrics.torus(3, 3), fabrics.hypercube(3), fabrics.twobox(), fabrics.hetero3b(), fabrics.two_levels(),
        fabrics.dgx1(), fabrics.a100(2),
    )
}  # fmt: skip


def problem(topology: Topology, name: str, root: int | None = None) -> Problem:
    return Problem(topology, make_collective(name, topology.n_ranks, root=root))


def assert_serves(flow: FlowSchedule) -> None:
    """The conditions of a flow schedule, written anew and without the checkers."""
    topology, collective = flow.problem.topology, flow.problem.collective
    shares = dict.fromkeys(range(len(collective.chunks)), Fraction(0))
    loads: dict[tuple[str, str], Fraction] = {}
    for tree in flow.trees:
        shares[tree.chunk] += tree.weight
        assert_joins(tree, flow.problem)
        for hop in (hop for route in tree.reduce + tree.broadcast for hop in route.hops):
            loads[hop] = loads.get(hop, Fraction(0)) + tree.weight * collective.chunks[tree.chunk].count
    assert set(shares.values()) <= {Fraction(1)}
    busiest = max((load / topology.link[hop].bandwidth for hop, load in loads.items()), default=Fraction(0))
    assert flow.time == busiest / collective.size_chunks
    assert (flow.bound is None) == (flow.time == 0)
    assert flow.bound is None or flow.bound.time <= flow.time


def assert_joins(tree: Tree, asked: Problem) -> None:
    chunk = asked.collective.chunks[tree.chunk]
    for route in tree.reduce + tree.broadcast:
        assert (route.path[0], route.path[-1]) == (asked.topology.gpus[route.src], asked.topology.gpus[route.dst])
        assert set(route.path[1:-1]) <= set(asked.topology.switches)
    held = {rank: [rank] for rank in chunk.precondition}
    gone: set[int] = set()
    for route in tree.reduce:
        assert not {route.src, route.dst} & gone
        held.setdefault(route.dst, []).extend(held.pop(route.src, []))
        gone.add(route.src)
    assert sorted(held[tree.root]) == sorted(chunk.precondition)
    reached = {tree.root}
    for route in tree.broadcast:
        assert route.src in reached
        assert route.dst not in reached
        reached.add(route.dst)
    assert set(chunk.postcondition) <= reached


def assert_steps_serve(schedule: Schedule, asked: Problem) -> None:
    """The conditions of a schedule of steps whose chunks have one holder and one receiver, written anew."""
    topology, collective = asked.topology, schedule.problem.collective
    assert collective == asked.collective.refined(collective.chunk_factor // asked.collective.chunk_factor)
    at = [chunk.precondition.ranks[0] for chunk in collective.chunks]
    times = {step: dict.fromkeys(topology.link, Fraction(0)) for step in range(schedule.n_steps)}
    for step in times:
        before = list(at)
        for send in (send for send in schedule.sends if send.step == step):
            assert not send.reduce
            assert (send.route.path[0], send.route.path[-1]) == (
                topology.gpus[send.route.src],
                topology.gpus[send.route.dst],
            )
            assert set(send.route.path[1:-1]) <= set(topology.switches)
            for chunk in range(send.chunk, send.chunk + send.count):
                assert before[chunk] == send.route.src
                at[chunk] = send.route.dst
            for hop in send.route.hops:
                times[step][hop] += send.count / topology.link[hop].bandwidth / collective.size_chunks
    assert at == [chunk.postcondition.ranks[0] for chunk in collective.chunks]
    assert schedule.time == sum(max(busy.values(), default=0) for busy in times.values())
    assert (schedule.bound is None) == (schedule.time == 0)
    assert schedule.bound is None or schedule.bound.time <= schedule.time


# --- conformance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("synthesizer", registry.names("synth"))
@pytest.mark.parametrize("topology", SMALL)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_synthesizer_serves_what_it_supports(synthesizer, topology, collective):
    asked = problem(SMALL[topology], collective)
    method = registry.load("synth", synthesizer)
    if method.supports(asked):
        pytest.skip(method.supports(asked))
    try:
        flow = method.run(asked)
    except UnsupportedError as error:
        pytest.skip(str(error))
    if isinstance(flow, FlowSchedule):
        assert_serves(flow)
    else:
        assert_steps_serve(flow, asked)
    verify.check(flow)
    assert text.dumps(method.run(asked)) == text.dumps(flow)


@pytest.mark.parametrize("synthesizer", registry.names("synth"))
def test_a_synthesizer_describes_itself(synthesizer):
    shown = registry.describe("synth", synthesizer)
    assert {"guarantee", "supports", "source"} <= set(shown)


@settings(max_examples=30, deadline=None)
@given(random_fabrics(), st.sampled_from(sorted(COLLECTIVES)), st.data())
def test_synthesizers_serve_random_fabrics(topology, collective, data):
    root = data.draw(st.integers(0, topology.n_ranks - 1)) if collective in ("broadcast", "reduce", "gather") else None
    asked = problem(topology, collective, root)
    for name in ("direct", "forestcoll"):
        method = registry.load("synth", name)
        if method.supports(asked) is None:
            assert_serves(method.run(asked))


def test_direct_serves_any_demand():
    topology = fabrics.hetero3b()
    demand = [[(3 * a + b) % 4 for b in range(10)] for a in range(10)]
    flow = registry.load("synth", "direct").run(Problem(topology, alltoallv(demand)))
    assert_serves(flow)
    verify.check(flow)


def test_synthesis_does_not_depend_on_the_hash_seed():
    script = (
        "import fabrics; from collc import registry; from collc.ir import text;"
        "from collc.ir.collective import Problem, make_collective;"
        "fabric = fabrics.mi250(1); asked = Problem(fabric, make_collective('allreduce', 16));"
        "[print(text.dumps(registry.load('synth', name).run(asked))) for name in ('forestcoll', 'ring', 'direct')]"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


# --- forestcoll ----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    random_fabrics(max_ranks=6, max_switches=4), st.sampled_from(["allgather", "reduce_scatter", "broadcast", "reduce"])
)
def test_forestcoll_reaches_the_bound(topology, collective):
    flow = ForestColl().run(problem(topology, collective))
    assert_serves(flow)
    assert flow.is_optimal


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=4, max_switches=2), st.integers(1, 4))
def test_a_fixed_number_of_trees_gets_the_least_scale(topology, k):
    """U is the least for which floor(U x bandwidth) suffices: the next smaller candidate does not."""
    asked = problem(topology, "allgather")
    instance = scale(asked, k)
    unit = cost.common_unit([link.bandwidth for link in topology.links])
    bandwidths = [int(link.bandwidth / unit) for link in topology.links]
    assert not instance.oracle().violated(instance.capacities, instance.trees)
    # Every smaller U floors to at most these capacities: those of just below the U that was found.
    scaled = max(Fraction(c, b) for c, b in zip(instance.capacities, bandwidths, strict=True))
    below = [-(-scaled * b // 1) - 1 if (scaled * b).denominator == 1 else scaled * b // 1 for b in bandwidths]
    assert instance.oracle().violated([int(capacity) for capacity in below], instance.trees)


@settings(max_examples=25, deadline=None)
@given(random_fabrics(max_ranks=5, symmetric=True), st.integers(1, 3))
def test_a_fixed_number_of_trees_is_served_on_symmetric_fabrics(topology, k):
    flow = ForestColl(trees_per_rank=k).run(problem(topology, "allgather"))
    assert_serves(flow)
    assert all((tree.weight * k).denominator == 1 for tree in flow.trees)


def test_quality_is_not_monotone_in_the_trees_per_rank():
    """One MI250 host with k = 1, 2, 3, 4 (facts: ForestColl's published code gives the same)."""
    rates = [ForestColl(trees_per_rank=k).run(problem(fabrics.mi250(1), "allgather")).time for k in (1, 2, 3, 4)]
    assert [1 / time for time in rates] == [Fraction(800, 3), 320, Fraction(2400, 7), 320]


def test_an_odd_number_of_bits_is_exact():
    links = [(f"g{a}", f"g{b}", Fraction("3.14159265") + Fraction(a, 7)) for a in range(4) for b in range(4) if a != b]
    topology = fabrics.fabric("odd", 4, links)
    flow = ForestColl().run(problem(topology, "allgather"))
    assert_serves(flow)
    assert flow.is_optimal


def test_too_many_trees_for_64_bits_are_refused_with_advice():
    primes = [1000003, 1000033, 1000037, 1000039]
    links = [link for i, p in enumerate(primes) for link in fabrics.both(f"g{i}", f"g{(i + 1) % 4}", Fraction(1, p))]
    asked = problem(fabrics.fabric("primes", 4, links), "allgather")
    with pytest.raises(UnsupportedError, match="trees_per_rank=K"):
        ForestColl().run(asked)
    assert_serves(ForestColl(trees_per_rank=4).run(asked))


def test_the_last_resort_alone_packs_exactly(monkeypatch):
    """Where growing finds nothing, every path is tried against the oracle; here for each hop of each tree."""
    monkeypatch.setattr(load("growth", compiled=False), "advance", lambda tree, sets, n_ranks: tree.now[LEFT] == 0)
    for topology in (fabrics.star(4), fabrics.torus(3, 3), fabrics.two_levels(), fabrics.hetero3b()):
        flow = ForestColl().run(problem(topology, "allgather"))
        assert_serves(flow)
        assert flow.is_optimal


def test_a_switch_out_of_balance_is_trimmed_or_named():
    # The switch takes in more than it sends out, and the trees can do without the surplus.
    links = [("g0", "s", 5), ("g1", "s", 1), ("s", "g1", 1), ("s", "g0", 1), *fabrics.both("g0", "g1", 1)]
    flow = ForestColl().run(problem(fabrics.fabric("spare", 2, links, ["s"]), "allgather"))
    assert_serves(flow)
    assert flow.is_optimal
    # Here both links out of the switch are needed, though only one leads in: it would have to copy.
    links = [("g0", "s", 1), ("s", "g1", 1), ("s", "g2", 1), *fabrics.both("g0", "g1", 9), *fabrics.both("g0", "g2", 9)]
    links = [link for link in links if link[:2] not in (("g0", "g1"), ("g0", "g2"))]
    copying = problem(fabrics.fabric("copy", 3, links, ["s"]), "broadcast")
    flow = ForestColl().run(copying)
    assert_serves(flow)
    assert (flow.time, flow.is_optimal) == (2, True)  # half of each link out of the switch
    assert flow.notes == ("rates by linear program, since switches take in and send out different sums",)
    with pytest.raises(UnsupportedError, match="switch 's' takes in"):
        ForestColl(trees_per_rank=1).run(copying)


def test_allreduce_lays_both_halves_over_each_other():
    flow = ForestColl().run(problem(fabrics.one_way_ring(5), "allreduce"))
    assert_serves(flow)
    assert flow.time == 2 * Fraction(4, 5)
    assert "composed" in flow.notes[0]


def test_options_are_checked():
    with pytest.raises(InputError, match="trees_per_rank: 0"):
        ForestColl(trees_per_rank=0).run(problem(fabrics.star(3), "allgather"))


def test_unreachable_ranks_are_infeasible():
    topology = fabrics.fabric("apart", 3, fabrics.both("g0", "g1", 1))
    asked = problem(topology, "allgather")
    synthesizers = [registry.load("synth", name) for name in registry.names("synth")]
    for synthesizer in [one for one in synthesizers if one.supports(asked) is None]:
        with pytest.raises(InfeasibleError):
            synthesizer.run(asked)


@pytest.mark.parametrize(
    ("topology", "height"),
    [(fabrics.a100(1), 1), (fabrics.a100(2), 4), (fabrics.a100(4), 2), (fabrics.h100(2), 4), (fabrics.mi250(1), 7),
     (fabrics.torus(4, 4), 4), (fabrics.torus(8, 8), 9), (fabrics.hypercube(4), 4), (fabrics.dgx1(), 3),
     (fabrics.ring(8), 5)],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_trees_are_low(topology, height):
    flow = ForestColl().run(problem(topology, "allgather"))
    assert flow.is_optimal
    assert max(tree.height for tree in flow.trees) <= height


@settings(max_examples=20, deadline=None)
@given(random_fabrics(max_ranks=6), st.sampled_from([0, 1, 2, 8]))
def test_packings_keep_to_capacities_at_any_cost_of_depth(topology, depth_cost):
    instance = balance(scale(problem(topology, "allgather"), None))
    trees = pack(instance, depth_cost)
    assert trees is not None
    rooted = [sum(tree.copies for tree in trees if tree.root == rank) for rank in range(topology.n_ranks)]
    assert tuple(rooted) == instance.trees
    used = [0] * len(instance.capacities)
    for tree in trees:
        for arc in (arc for path in tree.paths for arc in path):
            used[arc] += tree.copies
    assert all(a <= b for a, b in zip(used, instance.capacities, strict=True))


# --- ring ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "algbw"),
    [
        (fabrics.star(8), Fraction(8, 7)),  # one switch: each GPU's port carries 7 of 8 shards
        (fabrics.ring(8), Fraction(16, 7)),  # both directions
        (fabrics.torus(4, 4), Fraction(64, 15)),  # two disjoint rings, both directions
        (fabrics.dgx1(), Fraction(1200, 7)),  # six lanes per GPU, three rings both ways
        (fabrics.a100(2), Fraction(16, 15) * 200),  # eight NICs of 25 GB/s, each byte crosses them once
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_rings_use_the_links_there_are(topology, algbw):
    flow = Ring().run(problem(topology, "allgather"))
    assert_serves(flow)
    assert cost.algbw(flow.time) == algbw


@settings(max_examples=25, deadline=None)
@given(random_fabrics(max_ranks=6, symmetric=True), st.sampled_from(["allgather", "allreduce", "reduce"]))
def test_rings_serve_random_fabrics(topology, collective):
    # Each fabric has a walk through all GPUs both ways, so a ring exists.
    assert_serves(Ring().run(problem(topology, collective)))


def test_a_link_may_be_crossed_several_times():
    """Three hosts with a rank on each of two leaves: a ring must cross between the leaves twice each way."""
    links = [pair for rank in range(6) for pair in fabrics.both(f"g{rank}", f"leaf{rank % 2}", 4)]
    links += fabrics.both("leaf0", "leaf1", 4)
    topology = fabrics.fabric("mixed", 6, links, ["leaf0", "leaf1"], ((0, 1), (2, 3), (4, 5)))
    flow = Ring().run(problem(topology, "broadcast"))
    assert_serves(flow)
    assert cost.algbw(flow.time) == 2


def test_a_ring_enters_each_host_once():
    flow = Ring().run(problem(fabrics.mi250(2), "broadcast"))
    for tree in flow.trees:
        host = [tree.root // 16, *(route.dst // 16 for route in tree.broadcast)]
        assert sum(a != b for a, b in itertools.pairwise(host)) <= 2


def test_a_fabric_without_a_ring_says_so():
    with pytest.raises(UnsupportedError, match="no ring through all 4 ranks"):
        Ring().run(problem(fabrics.path(4), "allgather"))
