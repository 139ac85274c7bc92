"""All-reduce at the best rates: against published and hand-made optima, against all trees there are, and its proof."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import fabrics
import networkx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from ortools.linear_solver import pywraplp
from strategies import fabrics as random_fabrics

from collc import cost, verify
from collc.cli import collc
from collc.cost import allreduce
from collc.cost.exact import ExactProgram, solve_exactly
from collc.cost.rates import Part, best_rates
from collc.errors import InfeasibleError, VerificationError
from collc.ir import text
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import FlowSchedule, Prices
from collc.ir.topology import Topology
from collc.synth.forestcoll import ForestColl
from collc.verify.witness import cheapest_trees


def problem(topology: Topology, name: str = "allreduce") -> Problem:
    return Problem(topology, make_collective(name, topology.n_ranks))


def run(topology: Topology) -> FlowSchedule:
    flow = ForestColl().run(problem(topology))
    verify.check(flow)
    return flow


def equal_shares(topology: Topology) -> Fraction:
    """What a reduce-scatter and then an allgather reach, both optimal [GB/s]."""
    halves = [cost.bound(problem(topology, name)) for name in ("reduce_scatter", "allgather")]
    return 1 / sum((half.time for half in halves if half is not None), Fraction(0))


PROGRAM = "linear program of the project's own study (forestcoll.json, allreduce), solved there in floating point"
HAND = "counted by hand: the weakest GPU sends and receives each byte once"
# Fabric, equal shares, best [GB/s], source.
BEST = [
    (fabrics.half_box(), Fraction(600, 7), 150, HAND),
    (fabrics.boxes("8+4", (8, 4), (300, 300), (25, 25)), 75, 100, PROGRAM),
    (fabrics.path(6), Fraction(3, 5), 1, HAND),
    (fabrics.hetero3(), Fraction(168, 5), 48, PROGRAM),
    (fabrics.hetero3b(), Fraction(5, 2), 3, PROGRAM),
    (fabrics.boxes("h100+a100", (8, 8), (450, 300), (50, 25)), Fraction(520, 3), 175, PROGRAM),
    (fabrics.without_cable(fabrics.a100(2), "g0", "nvs0"), Fraction(40, 3), 25, HAND),
    (fabrics.ring(8), Fraction(8, 7), Fraction(8, 7), PROGRAM),
    (fabrics.one_way_ring(8), Fraction(4, 7), Fraction(4, 7), PROGRAM),
    (fabrics.twobox(), 4, 4, PROGRAM),
    (fabrics.star(8), Fraction(4, 7), Fraction(4, 7), PROGRAM),
    (fabrics.torus(4, 4), Fraction(32, 15), Fraction(32, 15), PROGRAM),
    (fabrics.hypercube(4), Fraction(32, 15), Fraction(32, 15), PROGRAM),
    (fabrics.mi250(1), Fraction(1200, 7), Fraction(1200, 7), PROGRAM),
    (fabrics.a100(1), Fraction(1200, 7), Fraction(1200, 7), PROGRAM),
    (fabrics.h100(2), Fraction(800, 3), Fraction(800, 3), PROGRAM),
]


@pytest.mark.parametrize(("topology", "equal", "best", "source"), BEST, ids=[row[0].name for row in BEST])
def test_the_best_is_reached_and_proven(topology, equal, best, source):
    assert equal_shares(topology) == equal
    flow = run(topology)
    assert 1 / flow.time == best, source
    assert flow.is_optimal
    # On the path both halves are busy on different links, so that equal shares at the same time do.
    composed = best == equal or topology.name == "path6"
    assert ("composed" in flow.notes[0]) == composed
    assert ("linear program" in flow.notes[0]) != composed


def test_mi250_x2_is_proven_to_gain_nothing():
    rates = cost.allreduce_rates(fabrics.mi250(2))
    assert rates is not None
    assert rates.total == equal_shares(fabrics.mi250(2)) == Fraction(2656, 15)
    bound = cost.tree_bound(problem(fabrics.mi250(2)))
    assert bound is not None
    assert bound.algbw == rates.total


@pytest.mark.parametrize("n_hosts", [4, 8])
def test_a_broken_link_among_many_hosts_is_exact(n_hosts):
    rates = cost.allreduce_rates(fabrics.without_cable(fabrics.a100(n_hosts), "g0", "nvs0"))
    assert rates is not None
    assert rates.total == 25  # all that g0 has left is its NIC


@settings(max_examples=60, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=3))
def test_random_fabrics_reach_what_is_proven(topology):
    flow = run(topology)
    assert flow.is_optimal
    assert 1 / flow.time >= equal_shares(topology)


# --- against all trees ---------------------------------------------------------------------------


def all_trees(n: int) -> list[list[tuple[int, ...]]]:
    """By root, every out-tree over n ranks, as the parent of each rank."""
    found: list[list[tuple[int, ...]]] = []
    for root in range(n):
        choices = [[-1] if rank == root else [p for p in range(n) if p != rank] for rank in range(n)]
        found.append([parents for parents in itertools.product(*choices) if is_tree(parents)])
    return found


def is_tree(parents: tuple[int, ...]) -> bool:
    def reaches(rank: int) -> bool:
        for _ in parents:
            rank = parents[rank] if rank >= 0 else rank
        return rank < 0

    return all(map(reaches, range(len(parents))))


def best_by_enumeration(topology: Topology) -> float:
    """The most that any mixture of in-trees and out-trees with common roots carries, without switches."""
    n = topology.n_ranks
    width = {(topology.rank_of[link.src], topology.rank_of[link.dst]): link.bandwidth for link in topology.links}
    solver = pywraplp.Solver.CreateSolver("GLOP")
    rows = {ends: solver.Constraint(0, float(value)) for ends, value in width.items()}
    solver.Objective().SetMaximization()
    for trees in all_trees(n):
        meeting = solver.Constraint(0, 0)  # as much is copied from the root as is summed there
        for parents, inward in itertools.product(trees, (True, False)):
            edges = [(rank, up) if inward else (up, rank) for rank, up in enumerate(parents) if up >= 0]
            if all(edge in width for edge in edges):
                variable = solver.NumVar(0, solver.infinity(), "")
                for edge in edges:
                    rows[edge].SetCoefficient(variable, 1)
                meeting.SetCoefficient(variable, 1 if inward else -1)
                solver.Objective().SetCoefficient(variable, float(inward))
    assert solver.Solve() == solver.OPTIMAL
    return float(solver.Objective().Value())


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=4, max_switches=0))
def test_no_mixture_of_trees_is_better(topology):
    rates = cost.allreduce_rates(topology)
    assert rates is not None
    assert float(rates.total) == pytest.approx(best_by_enumeration(topology), rel=1e-7)


# --- exactness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [Fraction("3.14159265"), Fraction(10**7), Fraction(1, 3)])
def test_any_bandwidth_is_exact(unit):
    base = fabrics.hetero3b()
    odd = replace(
        base, links=tuple(replace(link, bandwidth=link.bandwidth * unit) for link in base.links), name="scaled"
    )
    assert 1 / run(odd).time == 3 * unit


def test_uneven_odd_bandwidths_are_exact():
    links = [
        (f"g{a}", f"g{b}", Fraction("3.14159265") + Fraction(3 * a + b, 7))
        for a, b in itertools.permutations(range(5), 2)
    ]
    assert run(fabrics.fabric("odd", 5, links)).is_optimal


def test_systems_are_solved_exactly():
    rng = random.Random(7)
    for n in range(1, 12):
        rows = [{j: rng.randrange(-3, 4) for j in rng.sample(range(n), min(n, 3))} for _ in range(n)]
        rows = [{j: v for j, v in (*row.items(), (i, 5)) if v} for i, row in enumerate(rows)]
        values = [Fraction(rng.randrange(-9, 10), rng.randrange(1, 9)) for _ in range(n)]
        right = [sum(v * values[j] for j, v in row.items()) for row in rows]
        common = 5040
        found = solve_exactly(rows, [int(value * common) for value in right])
        assert found == [value * common for value in values]


def test_a_system_without_one_solution_has_none():
    assert solve_exactly([{0: 1, 1: 1}, {0: 2, 1: 2}], [1, 2]) is None
    assert solve_exactly([{0: 1}, {0: 2}], [1, 2]) is None
    assert solve_exactly([], []) == []


def test_a_corner_is_proven_optimal():
    program = ExactProgram([3, 2], 10)
    program.add_row([(1, 0), (1, 1)], 4)
    program.add_row([(1, 0), (3, 1)], 6)
    program.add_row([(3, 0), (-7, 1)], 0, equal=True)
    program.solve()
    corner = program.corner()
    assert corner is not None
    assert corner.values == [Fraction(21, 8), Fraction(9, 8)]
    assert corner.prices[0] * 4 + corner.prices[1] * 6 == 3 * Fraction(21, 8) + 2 * Fraction(9, 8)


def test_rates_are_as_even_as_the_best_allows():
    rates = cost.allreduce_rates(fabrics.half_box(), even=True)
    assert rates is not None
    assert rates.total == 150
    # The weak GPU can be root of as much as the others, but no more is wanted of any.
    assert max(rates.rates) == Fraction(150, 8)


def test_links_split_between_parts_keep_to_their_bandwidth():
    topology = fabrics.hetero3()
    rates = cost.allreduce_rates(topology)
    assert rates is not None
    for link, sums, copies in zip(topology.links, *rates.shares, strict=True):
        assert 0 <= sums + copies <= link.bandwidth
    worth = sum(price * link.bandwidth for link, price in zip(topology.links, rates.prices, strict=True))
    assert worth == rates.total


def test_a_part_that_must_stay_away_from_a_vertex_does():
    topology = fabrics.ring(4)
    part = Part(("g0", "g1"), (("g0", 0, 1),), absent=frozenset({"g2", "g3"}))
    rates = best_rates(topology, [part], [1])
    assert rates is not None
    assert rates.total == 1
    used = {(link.src, link.dst) for link, share in zip(topology.links, rates.shares[0], strict=True) if share}
    assert used == {("g0", "g1")}


# --- the proof -----------------------------------------------------------------------------------


# A one-way ring with one wide link; found by search. For schedules of trees more is proven than for all.
WIDE = [("g0", "g1", 1), ("g1", "g2", 1), ("g2", "g3", 2), ("g3", "g0", 1)]


def rooted_flow() -> FlowSchedule:
    return run(fabrics.fabric("wide", 4, WIDE))


def with_prices(flow: FlowSchedule, **changes: object) -> FlowSchedule:
    assert flow.bound is not None
    assert isinstance(flow.bound.witness, Prices)
    return replace(flow, bound=replace(flow.bound, witness=replace(flow.bound.witness, **changes)))


def test_a_rooted_bound_says_so_and_is_re_added():
    flow = rooted_flow()
    assert flow.bound is not None
    assert isinstance(flow.bound.witness, Prices)
    assert flow.bound.witness.rooted
    general = cost.bound(flow.problem)
    assert general is not None
    assert general.time < flow.bound.time == flow.time
    assert text.loads(text.dumps(flow)) == flow


def test_a_damaged_proof_is_found():
    flow = rooted_flow()
    assert flow.bound is not None
    assert isinstance(flow.bound.witness, Prices)
    price = flow.bound.witness.price
    (src, dst, first), *rest = price
    for broken in (
        with_prices(flow, rooted=False),
        with_prices(flow, price=((src, dst, first * 2), *rest)),
        with_prices(flow, price=tuple(rest)),
        replace(flow, bound=replace(flow.bound, time=flow.bound.time * 2)),
    ):
        with pytest.raises(VerificationError, match="bound"):
            verify.check(broken)


def test_cheapest_trees_are_those_of_another_method():
    rng = random.Random(11)
    for _ in range(150):
        n = rng.randrange(2, 8)
        fares = [[rng.randrange(6) for _ in range(n)] for _ in range(n)]
        found = cheapest_trees(fares)
        for root in range(n):
            graph = networkx.DiGraph()
            edges = [(a, b, fares[a][b]) for a, b in itertools.permutations(range(n), 2) if b != root]
            graph.add_weighted_edges_from(edges)
            assert found[root] == networkx.minimum_spanning_arborescence(graph).size(weight="weight")


def test_large_fabrics_are_left_to_equal_shares(monkeypatch):
    monkeypatch.setattr(allreduce, "MOST_RANKS", 4)
    allreduce.allreduce_rates.cache_clear()
    flow = run(fabrics.half_box())
    allreduce.allreduce_rates.cache_clear()
    assert 1 / flow.time == Fraction(600, 7)
    assert not flow.is_optimal
    assert "composed" in flow.notes[0]


def test_what_cannot_be_reached_is_infeasible():
    links = [*fabrics.both("g0", "g1", 1), ("g1", "g2", 1)]
    with pytest.raises(InfeasibleError, match="g2"):
        ForestColl().run(problem(fabrics.fabric("one-way", 3, links)))


def test_rates_do_not_depend_on_the_hash_seed():
    script = (
        "import fabrics; from collc.ir import text; from collc.synth.forestcoll import ForestColl;"
        "from collc.ir.collective import Problem, make_collective;"
        "fabric = fabrics.half_box(); marked = fabrics.branching(fabrics.star(5), 's');"
        "[print(text.dumps(ForestColl().run(Problem(f, make_collective('allreduce', f.n_ranks)))))"
        " for f in (fabric, marked)]"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ
            | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_bound_for_schedules_of_trees_is_told_as_one(tmp_path):
    path = tmp_path / "wide.yaml"
    links = "".join(f"  - {{from: {a}, to: {b}, bandwidth: {w}, latency: 0}}\n" for a, b, w in WIDE)
    path.write_text(f"name: wide\ngpus: [g0, g1, g2, g3]\nlinks:\n{links}")
    told = CliRunner().invoke(collc, ["topo", "bound", str(path), "-c", "allreduce"]).stdout
    assert "2/3 = 0.666667 GB/s algbw: no schedule of trees is faster" in told
    shown = CliRunner().invoke(collc, ["synth", str(path), "-c", "allreduce", "--no-cache", "--json"]).stdout
    assert json.loads(shown)["witness"]["over"] == "schedules of trees"


@pytest.mark.parametrize(("within", "algbw"), [("1", 150), ("9/10", 150), ("1/2", Fraction(600, 7))])
def test_equal_shares_are_kept_where_they_are_within_the_share_asked_for(within, algbw):
    """One of eight GPUs has half its links: 85.7 GB/s by equal shares, 150 by the linear program."""
    problem = Problem(fabrics.half_box(), make_collective("allreduce", 8))
    flow = ForestColl(within=Fraction(within)).run(problem)
    assert cost.algbw(flow.time) == algbw
