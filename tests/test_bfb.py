"""The bfb synthesizer: trees of least height at the least load, checked at every level."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import fabrics
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collc import registry, verify
from collc.design.eager import best_time, eager_cost
from collc.design.find import find
from collc.design.known import shipped
from collc.design.plan import Lane, Lanes, eager_plan
from collc.design.recipe import parse
from collc.design.wiring import topology_of
from collc.errors import InfeasibleError, InputError, UnsupportedError
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import FlowSchedule
from collc.ir.topology import Link, Topology
from collc.pipeline import compile_request
from collc.request import Clock, Request, Target

BANDWIDTH = Fraction(3)
COLLECTIVES = ("allgather", "reduce_scatter", "allreduce")


def topology(recipe: str) -> Topology:
    return topology_of(parse(recipe), BANDWIDTH, Fraction(1, 2))


def flow(fabric: Topology, collective: str = "allgather", **options: object) -> FlowSchedule:
    method = registry.load("synth", "bfb", **options)
    asked = Problem(fabric, make_collective(collective, fabric.n_ranks))
    assert method.supports(asked) is None
    made = method.run(asked)
    verify.check(made)
    return made


def lockstep(made: FlowSchedule) -> list[tuple[int, Fraction]]:
    """(T_L, T_B) that the notes state, of each half."""
    found = []
    for note in made.notes:
        costs = note.rpartition("; T_L ")[2].removesuffix(" M/B").split(", T_B ")
        found.append((int(costs[0]), Fraction(costs[1])))
    return found


RECIPES = [
    "torus(dims=4x4)",
    "torus(dims=3x3x2)",
    "hypercube(dimensions=4)",
    "circulant(n=16)",
    "genkautz(degree=2,n=9)",
    "diamond()",
    "line(diamond())",
    "uniring(n=5,parallel=3)",
    "distance_regular(graph=Petersen)",
    "bipartite(degree=4)",
    "cayley(a=8,k=7,b=2,generators=4x14x5x11)",
    "circulant(n=21,offsets=3x7x10)",
    "kautz(degree=2,diameter=3)",
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_designs_reach_their_cost(recipe, collective):
    graph = parse(recipe)
    made = flow(topology(recipe), collective)
    cost, back = eager_cost(graph), eager_cost(graph.transpose)
    wanted = {"allgather": [cost], "reduce_scatter": [back], "allreduce": [back, cost]}[collective]
    assert lockstep(made) == [(one.steps, one.time) for one in wanted]
    assert max(tree.height for tree in made.trees) == sum(one.steps for one in wanted)
    # M / B with B = degree x bandwidth; the busiest link is no busier than all steps' busiest together.
    assert made.time <= sum(one.time for one in wanted) / graph.degree / BANDWIDTH
    if all(one.is_optimal for one in wanted) and not graph.n_loops:
        assert made.time == len(wanted) * best_time(graph.n) / graph.degree / BANDWIDTH
        assert made.is_optimal


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_dead_ports_are_paid_for_in_time_only(collective):
    """Ranks then have different numbers of links, so that a T_B would mislead; the rate says it all."""
    cost = eager_cost(parse("genkautz(degree=2,n=7)"))
    made = flow(topology("genkautz(degree=2,n=7)"), collective)
    rate = float(7 * BANDWIDTH / sum(cost.loads))
    assert all(f"{cost.steps} steps; step by step at most {rate:.6g} GB/s" in note for note in made.notes)
    assert not any("T_B" in note for note in made.notes)


@pytest.mark.parametrize("backend", ["classic", "executor", "rccl"])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("recipe", ["torus(dims=3x4)", "cayley(a=8,k=7,b=2,generators=4x14x5x11)"])
def test_files_are_written_and_read_back(backend, collective, recipe):
    fabric = topology(recipe)
    asked = Problem(fabric, make_collective(collective, fabric.n_ranks))
    outcome = compile_request(Request(asked, "bfb", {}, None, Target(backend)), Clock())
    assert outcome.files
    assert not [finding for file in outcome.files for finding in file.report.findings]


def test_from_find_to_a_verified_file():
    design = find(16, 4, known=shipped())[0]
    fabric = topology(design.recipe)
    asked = Problem(fabric, make_collective("allreduce", 16))
    outcome = compile_request(Request(asked, "bfb", {"recipe": design.recipe}, None, Target("executor")), Clock())
    assert outcome.files
    assert not [finding for file in outcome.files for finding in file.report.findings]
    assert outcome.best.made.time <= 2 * design.time / 4 / BANDWIDTH


# --- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    ("recipe", "steps", "time"),
    [
        ("dbjmod(degree=2,diameter=3)", 4, Fraction(7, 8)),
        ("dbjmod(degree=3,diameter=2)", 3, Fraction(8, 9)),
        ("line(dbjmod(degree=2,diameter=3))", 5, Fraction(1)),
    ],
)
def test_a_recipe_brings_its_schedule(recipe, steps, time, collective):
    graph = parse(recipe)
    assert eager_cost(graph).time > time
    made = flow(topology(recipe), collective, recipe=recipe)
    assert set(lockstep(made)) == {(steps, time)}
    assert len(made.notes) == (2 if collective == "allreduce" else 1)


def test_extra_steps_keep_every_port_busy():
    made = flow(topology("genkautz(degree=3,n=8)"), "allreduce", extra_steps=1)
    assert lockstep(made) == [(3, Fraction(7, 8))] * 2
    assert made.time == 2 * best_time(8) / 3 / BANDWIDTH
    # With one step more Pi(2,9) is proven to have no such schedule of one chunk per shard (reference).
    with pytest.raises(InfeasibleError, match="proven"):
        flow(topology("genkautz(degree=2,n=9)"), extra_steps=1, chunks=1)


def test_chunks_are_taken_at_their_word():
    coarse = flow(topology("torus(dims=4x4)"), chunks=1)
    assert "1 chunk per shard" in coarse.notes[0]
    assert lockstep(coarse) == [(4, Fraction(5, 4))]  # 4/3 of the optimum, as the reference table says
    assert all(tree.weight == 1 for tree in coarse.trees)


def test_options_that_do_not_fit_are_refused():
    ring = topology("uniring(n=4)")
    for options, match in (
        ({"chunks": 0}, "1 to 4096"),
        ({"extra_steps": 9}, "0 to 8"),
        ({"recipe": "uniring(n=4)", "chunks": 2}, "recipe"),
        ({"recipe": "uniring(n=5)"}, "another graph"),
        ({"recipe": "biring(n=4)"}, "another graph"),
        ({"recipe": "nothing"}, "recipe 'nothing'"),
    ):
        with pytest.raises(InputError, match=match):
            flow(ring, **options)
    with pytest.raises(UnsupportedError, match="equally many"):
        flow(fabrics.path(4), extra_steps=1)


# --- other fabrics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "fabric", [fabrics.star(5), fabrics.dgx1(), fabrics.path(4), fabrics.complete(4), fabrics.a100(1)]
)
def test_other_fabrics_are_served(fabric, collective):
    made = flow(fabric, collective)
    assert max(tree.height for tree in made.trees) <= 2 * (fabric.n_ranks - 1)


def test_unequal_links_share_in_proportion():
    """Two ways into a corner of a square, one three times as wide: what comes from afar is split 3 to 1."""
    width = {("g1", "g3"): 3, ("g2", "g3"): 1}
    ends = [(a, b) for a, b in (("g0", "g1"), ("g1", "g3"), ("g0", "g2"), ("g2", "g3"))]
    links = tuple(Link(a, b, Fraction(width.get((a, b), 12))) for pair in ends for a, b in (pair, pair[::-1]))
    made = flow(Topology("square", ("g0", "g1", "g2", "g3"), (), links))
    shares: Counter[int] = Counter()
    for tree in made.trees:
        for route in tree.broadcast:
            if (tree.root, route.dst) == (0, 3):
                shares[route.src] += tree.weight
    assert shares == {1: Fraction(3, 4), 2: Fraction(1, 4)}


@pytest.mark.parametrize("host", [1, 2, 4, 8])
def test_hosts_that_forward_share_what_they_have(host):
    """A 3x3 torus of links of 1 GB/s: 8 shards of 1/9 come in over 4 links or the host, whichever is less."""
    fabric = topology_of(parse("torus(dims=3x3)"), Fraction(1), Fraction(0), Fraction(host))
    for collective in ("allgather", "reduce_scatter"):
        made = flow(fabric, collective)
        assert made.time == Fraction(8, 9) / min(4, host)
        assert made.is_optimal


def test_what_leaves_a_host_is_limited_too():
    """Vertex 0 feeds three others that have no other way to it; its port lets out two units at a time."""
    lanes = tuple(Lane(a, b) for a in range(4) for b in range(4) if a != b)
    limited = eager_plan(Lanes(4, lanes, leaving=(2, None, None, None)))
    assert limited.loads == (Fraction(3, 2),)
    assert eager_plan(Lanes(4, lanes, entering=(2, None, None, None))).loads == (Fraction(3, 2),)
    assert eager_plan(Lanes(4, lanes)).loads == (1,)


@st.composite
def lane_fabrics(draw):
    """A two-way ring with chords, unequal links, and limits on some vertices."""
    n = draw(st.integers(3, 7))
    capacity = st.integers(1, 4)
    ends = {(i, (i + 1) % n) for i in range(n)} | {((i + 1) % n, i) for i in range(n)}
    for _ in range(draw(st.integers(0, 4))):
        a, b = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
        ends |= {(a, b)} if a != b else set()
    limit = st.one_of(st.none(), st.integers(1, 6))
    sides = [tuple(draw(limit) for _ in range(n)) if draw(st.booleans()) else () for _ in range(2)]
    return Lanes(n, tuple(Lane(a, b, draw(capacity)) for a, b in sorted(ends)), *sides)


@settings(max_examples=60, deadline=None)
@given(lane_fabrics())
def test_plans_of_unequal_fabrics_keep_to_least_loads(lanes):
    """Complete, and no step is better by an independent linear program."""
    import numpy

    plan = eager_plan(lanes)
    held = [{(v, c) for c in range(plan.n_chunks)} for v in range(lanes.n)]
    steps = sorted({move.step for move in plan.moves})
    for step in steps:
        moves = [move for move in plan.moves if move.step == step]
        for move in moves:
            lane = lanes.lanes[move.lane]
            pieces = {(move.source, c) for c in range(move.first, move.first + move.n_chunks)}
            assert pieces <= held[lane.tail]
            assert not pieces & held[lane.head]
        for move in moves:
            held[lanes.lanes[move.lane].head] |= {
                (move.source, c) for c in range(move.first, move.first + move.n_chunks)
            }
    assert all(len(have) == lanes.n * plan.n_chunks for have in held)
    ideal = _ideal_loads(lanes)
    assert numpy.allclose([float(load) for load in plan.loads], ideal, atol=1e-6)


def _ideal_loads(lanes: Lanes) -> list[float]:
    """Each step's least load, by the linear program of the paper (GLOP)."""
    from ortools.linear_solver import pywraplp

    n = lanes.n
    out: dict[int, list[int]] = {v: [] for v in range(n)}
    for lane in lanes.lanes:
        out[lane.tail].append(lane.head)
    far = []
    for source in range(n):
        seen = {source: 0}
        waiting = [source]
        for vertex in waiting:
            for head in out[vertex]:
                if head not in seen:
                    seen[head] = seen[vertex] + 1
                    waiting.append(head)
        far.append(seen)
    loads = []
    for step in range(1, max(max(seen.values()) for seen in far) + 1):
        solver = pywraplp.Solver.CreateSolver("GLOP")
        top = solver.NumVar(0, solver.infinity(), "U")
        used: dict[int, list] = {index: [] for index in range(len(lanes.lanes))}
        for source in range(n):
            for u in range(n):
                if far[source][u] != step:
                    continue
                parts = []
                for index, lane in enumerate(lanes.lanes):
                    if lane.head == u and far[source][lane.tail] == step - 1:
                        part = solver.NumVar(0, 1, "")
                        parts.append(part)
                        used[index].append(part)
                solver.Add(sum(parts) == 1)
        for index, lane in enumerate(lanes.lanes):
            solver.Add(sum(used[index]) <= lane.capacity * top)
        for limits, end in ((lanes.leaving, 0), (lanes.entering, 1)):
            for vertex, limit in enumerate(limits):
                if limit:
                    crossing = [p for index, lane in enumerate(lanes.lanes) if lane[end] == vertex for p in used[index]]
                    solver.Add(sum(crossing) <= limit * top)
        solver.Minimize(top)
        assert solver.Solve() == pywraplp.Solver.OPTIMAL
        loads.append(top.solution_value())
    return loads


def test_what_is_not_served_says_why():
    method = registry.load("synth", "bfb")
    for fabric, collective, said in (
        (fabrics.ring(4), "alltoall", "alltoall does not"),
        (fabrics.ring(4), "broadcast", "broadcast does not"),
        (fabrics.a100(2), "allgather", "one port each"),
        (fabrics.two_levels(), "allgather", "shared"),
    ):
        assert said in method.supports(Problem(fabric, make_collective(collective, fabric.n_ranks)))
    alone = Topology("alone", ("g0",), (), ())
    assert "one rank" in method.supports(Problem(alone, make_collective("allgather", 1)))


def test_one_way_fabrics_reduce_over_their_reverse():
    made = flow(fabrics.one_way_ring(4), "reduce_scatter")
    assert {(route.src, route.dst) for tree in made.trees for route in tree.reduce} == {
        (i, (i + 1) % 4) for i in range(4)
    }
    assert replace(made, notes=()).time == Fraction(3, 4)
