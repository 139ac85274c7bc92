"""Costs by hand, and bounds against all cuts there are."""

from __future__ import annotations

import itertools
from fractions import Fraction

import fabrics
import pytest
from hypothesis import given, settings
from strategies import fabrics as random_fabrics

from collc import cost, verify
from collc.errors import InfeasibleError
from collc.ir.collective import COLLECTIVES, Problem, alltoallv, make_collective
from collc.ir.flow import Cut, FlowSchedule, Prices, Tree
from collc.ir.topology import Link, Route, Topology
from collc.solve import CAPACITY_LIMIT, FlowNetwork


def problem(topology: Topology, name: str) -> Problem:
    return Problem(topology, make_collective(name, topology.n_ranks))


def brute_force(asked: Problem) -> Fraction:
    """The best cut of all, straight from the definition."""
    topology, chunks = asked.topology, asked.collective.chunks
    vertices = topology.gpus + topology.switches
    best = Fraction(0)
    for picked in itertools.product((False, True), repeat=len(vertices)):
        inside = {vertex for vertex, within in zip(vertices, picked, strict=True) if within}
        ranks = {rank for rank, gpu in enumerate(topology.gpus) if gpu in inside}
        slots = sum(c.count for c in chunks if ranks & set(c.precondition) and set(c.postcondition) - ranks)
        leaving = sum(link.bandwidth for link in topology.links if link.src in inside and link.dst not in inside)
        if slots:
            best = max(best, Fraction(slots, asked.collective.size_chunks) / leaving)
    return best


# --- max-flow ------------------------------------------------------------------------------------


def test_flows_and_cuts_of_a_small_network():
    network = FlowNetwork(4, [0, 0, 1, 2, 1], [1, 2, 3, 3, 2])
    network.set_capacities([3, 2, 2, 3, 5])
    assert network.max_flow(0, 3) == 5
    network.set_capacities([3, 2, 2, 1, 5])
    assert network.max_flow(0, 3) == 3
    assert network.source_side() == [True, True, True, False]
    assert network.max_flow(3, 0) == 0


def test_a_vertex_without_links_gets_no_flow():
    network = FlowNetwork(3, [0], [1])
    network.set_capacities([7])
    assert network.max_flow(0, 2) == 0


def test_the_solver_refuses_floats():
    network = FlowNetwork(2, [0], [1])
    for capacity in (1.0, True):
        with pytest.raises(TypeError, match="int"):
            network.set_capacities([capacity])  # type: ignore[list-item]


def test_capacities_beyond_64_bits_are_exact():
    huge = CAPACITY_LIMIT**2 + 1
    network = FlowNetwork(4, [0, 0, 1, 2, 1, 0], [1, 2, 3, 3, 2, 1])
    network.set_capacities([huge, 2, 2, huge, 5, 1])
    assert network.max_flow(0, 3) == 9
    network.set_capacities([huge, huge, huge - 1, huge - 2, 0, 0])
    assert network.max_flow(0, 3) == 2 * huge - 3
    assert network.source_side() == [True, True, True, False]
    network.set_capacities([1, 1, 1, 1, 0, 0])
    assert network.max_flow(0, 3) == 2


# --- costs ---------------------------------------------------------------------------------------


def chain(topology: Topology, *ranks: int) -> tuple[Route, ...]:
    return tuple(Route(a, b, (f"g{a}", f"g{b}")) for a, b in itertools.pairwise(ranks))


def test_loads_and_times_by_hand():
    topology = fabrics.ring(4, 5)
    asked = problem(topology, "broadcast")
    trees = (
        Tree(0, Fraction(2, 3), 0, broadcast=chain(topology, 0, 1, 2, 3)),
        Tree(0, Fraction(1, 3), 0, broadcast=chain(topology, 0, 3, 2, 1)),
    )
    loads = cost.link_loads(asked, trees)
    assert loads["g0", "g1"] == Fraction(2, 3)
    assert loads["g2", "g1"] == Fraction(1, 3)
    assert ("g1", "g0") not in loads
    assert cost.bandwidth_time(asked, trees) == Fraction(2, 3) / 5
    flow = FlowSchedule(asked, trees, Fraction(2, 15))
    # Three hops of 0.7 us and the software's share, then 3000 bytes at 7.5 GB/s: 0.4 us.
    assert cost.predict(flow, 3000) == 3 * (Fraction(7, 10) + cost.HOP_LATENCY) + Fraction(2, 5)


def test_allreduce_counts_both_ways_of_a_tree():
    topology = fabrics.path(3)
    tree = Tree(0, Fraction(1), 1, reduce=(*chain(topology, 0, 1), *chain(topology, 2, 1)),
                broadcast=(*chain(topology, 1, 0), *chain(topology, 1, 2)))  # fmt: skip
    flow = FlowSchedule(problem(topology, "allreduce"), (tree,), Fraction(1))
    assert cost.predict(flow, 0) == 2 * (Fraction(7, 10) + cost.HOP_LATENCY)
    assert cost.bandwidth_time(flow.problem, flow.trees) == 1


def test_counts_of_chunks_weigh():
    topology = fabrics.complete(3)
    asked = Problem(topology, alltoallv([[0, 3, 1], [0, 0, 0], [2, 0, 0]]))
    trees = tuple(
        Tree(i, Fraction(1), c.precondition.ranks[0], (), chain(topology, c.precondition.ranks[0], *c.postcondition))
        for i, c in enumerate(asked.collective.chunks)
    )
    assert cost.link_loads(asked, trees)["g0", "g1"] == Fraction(3, 4)
    assert cost.bandwidth_time(asked, trees) == Fraction(3, 4)


def test_nothing_moves_on_one_rank():
    asked = problem(fabrics.single(), "allgather")
    assert cost.bound(asked) is None
    assert cost.bandwidth_time(asked, ()) == 0
    assert cost.algbw(Fraction(0)) is None
    assert cost.predict(FlowSchedule(asked, (), Fraction(0)), 1000) == 0


@pytest.mark.parametrize(
    ("name", "factor"),
    [("allreduce", Fraction(3, 2)), ("broadcast", 1), ("reduce", 1), ("allgather", Fraction(3, 4)),
     ("reduce_scatter", Fraction(3, 4)), ("alltoall", Fraction(3, 4)), ("gather", Fraction(3, 4))],
)  # fmt: skip
def test_bus_factors_are_those_of_nccl_tests(name, factor):
    assert cost.bus_factor(make_collective(name, 4)) == factor
    assert cost.busbw(make_collective(name, 4), Fraction(8)) == 8 * factor


# --- bounds --------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=4))
def test_cut_bounds_are_the_best_of_all_cuts(topology):
    for name in ("allgather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter"):
        asked = problem(topology, name)
        found = cost.bound(asked)
        assert found is not None
        assert isinstance(found.witness, Cut)
        assert found.time == brute_force(asked)


@settings(max_examples=25, deadline=None)
@given(random_fabrics(max_ranks=4))
def test_allreduce_and_alltoall_bounds_are_at_least_the_min_cuts(topology):
    for name in ("allreduce", "alltoall"):
        asked = problem(topology, name)
        found = cost.bound(asked)
        assert found is not None
        if isinstance(found.witness, Cut):
            assert found.time <= brute_force(asked)
        if name == "allreduce":
            assert found.time >= brute_force(asked)


@settings(max_examples=25, deadline=None)
@given(random_fabrics())
def test_the_checker_re_adds_every_witness(topology):
    for name in COLLECTIVES:
        asked = problem(topology, name)
        direct = cost.bound(asked)
        assert direct is not None
        # A schedule without trees fails for other reasons; only what is said of the bound counts.
        claim = FlowSchedule(asked, (), direct.time, direct)
        assert not [f for f in verify.findings(claim) if f.rule in ("bound", "witness", "bound-beaten")]


def test_unreachable_ranks_are_named_either_way():
    links = [("g0", "g1", 1), ("g1", "g0", 1), ("g1", "g2", 1)]
    topology = fabrics.fabric("one-way", 3, links)
    for name in ("allgather", "reduce_scatter", "allreduce", "alltoall"):
        with pytest.raises(InfeasibleError, match=r"cannot be reached from g2: no link"):
            cost.bound(problem(topology, name))
    assert cost.bound(problem(topology, "broadcast")) is not None
    with pytest.raises(InfeasibleError, match=r"cannot be reached from g2: no link"):
        cost.bound(Problem(topology, make_collective("broadcast", 3, root=2)))
    with pytest.raises(InfeasibleError):
        cost.bound(problem(topology, "reduce"))


K33 = fabrics.fabric("K33", 6, [(f"g{a}", f"g{b}", 1) for a in range(6) for b in range(6) if a // 3 != b // 3])


def test_prices_prove_what_no_cut_does():
    for topology, name, algbw in [
        (fabrics.star(8), "allreduce", Fraction(8, 14)),
        (fabrics.ring(8), "allreduce", Fraction(16, 14)),
        (fabrics.torus(4, 4), "allreduce", Fraction(64, 30)),
        # K_{3,3}: 6 ranks, 7 hops from each in all, 18 links: 7/3 slots per link and 6 in a buffer.
        (K33, "alltoall", Fraction(18, 7)),
    ]:
        found = cost.bound(problem(topology, name))
        assert found is not None
        assert isinstance(found.witness, Prices)
        assert found.algbw == algbw


def test_multicast_takes_prices_away():
    star = fabrics.star(4)
    marked = Topology("nvls", star.gpus, star.switches, star.links, multicast=("s",), reduce=("s",))
    found = cost.bound(problem(marked, "allreduce"))
    assert found is not None
    assert isinstance(found.witness, Cut)
    assert found.algbw == 1


def test_bandwidths_are_exact():
    gpus = ("g0", "g1", "g2")
    for bandwidth in (Fraction("3.14159265"), Fraction(10**7), Fraction(25, 3)):
        links = tuple(Link(a, b, bandwidth) for a, b in itertools.permutations(gpus, 2))
        found = cost.bound(problem(Topology("odd", gpus, (), links), "allgather"))
        assert found is not None
        assert found.algbw == 3 * bandwidth


def test_bandwidths_without_a_common_measure_are_exact():
    primes = [1000003, 1000033, 1000037, 1000039]
    links = [link for i, p in enumerate(primes) for link in fabrics.both(f"g{i}", f"g{(i + 1) % 4}", Fraction(1, p))]
    asked = problem(fabrics.fabric("primes", 4, links), "allgather")
    found = cost.bound(asked)
    assert found is not None
    assert found.time == brute_force(asked)


def test_the_bound_of_1024_gpus():
    found = cost.bound(problem(fabrics.a100(128), "allgather"))
    assert found is not None
    assert found.algbw == Fraction(25600, 127)
