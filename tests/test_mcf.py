"""All-to-all by multi-commodity flow: published optima, brute force, and both sides of every claim."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import fabrics
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import cost, deadline, registry, verify
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import BudgetError, InfeasibleError
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.flow import OPTIMAL_WITHIN, FlowSchedule, Prices
from collc.ir.topology import Topology
from collc.solve import LinearProgram, linear_program
from collc.synth import _exact, _master, _symmetry
from collc.synth._network import Network
from collc.synth.forestcoll import ForestColl
from collc.synth.mcf import Mcf, children, descent, extract
from collc.topology import open_topology


def design(family: str, **values: str) -> Topology:
    """A design with links of 1 GB/s."""
    return topology_of(build(family, values), Fraction(1), Fraction(0))


def alltoall(topology: Topology) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks))


def pair_rate(problem: Problem, time: Fraction) -> Fraction:
    """The rate of each pair where links carry one: F of the paper."""
    return 1 / (time * problem.topology.n_ranks)


def assert_certified(flow: FlowSchedule) -> None:
    """The checker replays the ways and adds up the witness again."""
    verify.check(flow)
    assert flow.is_optimal
    assert isinstance(flow.bound.witness, Prices)


DIRECTCONNECT = "2309.13541; computed with HiGHS for the reference file"
RATES = [
    ("bipartite", {"degree": "4"}, "2/5"),
    ("hypercube", {"dimensions": "3"}, "1/4"),
    ("hypercube", {"dimensions": "4"}, "1/8"),
    ("hypercube", {"dimensions": "6"}, "1/32"),
    ("torus", {"dims": "4x4"}, "1/8"),
    ("torus", {"dims": "3x3x3"}, "1/9"),
    ("torus", {"dims": "4x4x8"}, "1/128"),
    ("circulant", {"n": "16", "offsets": "3x4"}, "1/8"),
    ("genkautz", {"degree": "4", "n": "16"}, "7/53"),
    ("genkautz", {"degree": "4", "n": "20"}, "7/61"),
    ("genkautz", {"degree": "4", "n": "32"}, "4/85"),
]


@pytest.mark.parametrize(("family", "values", "rate"), RATES, ids=lambda value: str(value).replace(" ", ""))
def test_the_published_rate_is_reached_and_proven(family, values, rate):
    problem = alltoall(design(family, **values))
    flow = Mcf().run(problem)
    assert_certified(flow)
    assert flow.time == flow.bound.time
    assert pair_rate(problem, flow.time) == Fraction(rate), DIRECTCONNECT


NAMED = {
    "K2,2": ("bipartite", {"degree": "2"}),
    "K8": ("complete", {"n": "8"}),
    "Petersen": ("distance_regular", {"graph": "Petersen"}),
    "Pi(3,8)": ("genkautz", {"degree": "3", "n": "8"}),
    "Pi(2,16)": ("genkautz", {"degree": "2", "n": "16"}),
    "Pi(4,48)": ("genkautz", {"degree": "4", "n": "48"}),
    "Torus(3x3x2)": ("torus", {"dims": "3x3x2"}),
    "Torus(8x8)": ("torus", {"dims": "8x8"}),
    "C(64,{6,7})": ("circulant", {"n": "64", "offsets": "6x7"}),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_reference_rate(shared, name):
    rows = json.loads((shared / "reference" / "directconnect.json").read_text())["alltoall"]
    (expected,) = [row["F"] for row in rows if row["name"] == name]
    family, values = NAMED[name]
    problem = alltoall(design(family, **values))
    flow = Mcf().run(problem)
    assert_certified(flow)
    assert float(pair_rate(problem, flow.time)) == pytest.approx(expected, rel=1e-6)


MACHINES = [
    (fabrics.ring(8, 50), "50"),
    (open_topology("mesh2d:dims=4x4").topology, "50"),
    (open_topology("torus2d:dims=4x4").topology, "100"),
    (open_topology("hypercube:dimension=4").topology, "100"),
    (fabrics.dgx1(), "75"),
    (fabrics.dgx1(2), "25/8"),
    (fabrics.a100(1), "2400/7"),
    (fabrics.a100(2), "50"),
    (fabrics.mi250(1), "75"),
]


@pytest.mark.parametrize(("topology", "algbw"), MACHINES, ids=[row[0].name for row in MACHINES])
def test_machines_reach_their_fluid_optimum(topology, algbw):
    """Source: peers.json, alltoall_fluid_optimum."""
    flow = Mcf().run(alltoall(topology))
    assert_certified(flow)
    assert 1 / flow.time == Fraction(algbw)


@pytest.mark.parametrize("host", [2, 3, 6])
def test_a_host_bottleneck_in_both_fabrics(shared, host):
    """Hosts that forward pay for what passes through; NICs that forward do not."""
    rows = json.loads((shared / "reference" / "directconnect.json").read_text())["host_bottleneck"]
    (row,) = [row for row in rows if row["host_cap_in_links"] == host and row["name"] == "Torus(3x3x3)"]
    graph = build("torus", {"dims": "3x3x3"})
    for forwarding, key in (("host", "F_store_and_forward"), ("nic", "F_nic_forwarding")):
        problem = alltoall(topology_of(graph, Fraction(1), Fraction(0), Fraction(host), forwarding))
        flow = Mcf().run(problem)
        assert_certified(flow)
        assert float(pair_rate(problem, flow.time)) == pytest.approx(row[key], rel=1e-6)


def test_hosts_of_four_links_on_the_published_testbed():
    """3x3x3 torus, h = 4: the facts of 2309.13541, section on the host bottleneck."""
    graph = build("torus", {"dims": "3x3x3"})
    for forwarding, rate in (("host", Fraction(2, 27)), ("nic", Fraction(1, 9))):
        problem = alltoall(topology_of(graph, Fraction(1), Fraction(0), Fraction(4), forwarding))
        flow = Mcf().run(problem)
        assert_certified(flow)
        assert float(pair_rate(problem, flow.time)) == pytest.approx(float(rate), rel=1e-9)


# --- brute force ---------------------------------------------------------------------------------


def per_pair_time(topology: Topology, demand: numpy.ndarray, size: int) -> float:
    """The optimum by one commodity for every pair: another linear program than the one under test."""
    vertices = {vertex: at for at, vertex in enumerate(topology.gpus + topology.switches)}
    pairs = [(int(s), int(d)) for s, d in zip(*demand.nonzero(), strict=True)]
    n_links, n_vertices = len(topology.links), len(vertices)
    entries, lows = [], []
    for number, (src, dst) in enumerate(pairs):
        first = number * n_vertices
        for at, link in enumerate(topology.links):
            entries.append((first + vertices[link.dst], number * n_links + at, 1.0))
            entries.append((first + vertices[link.src], number * n_links + at, -1.0))
        lows += [float(demand[src, dst]) * ((v == dst) - (v == src)) for v in range(n_vertices)]
    highs = list(lows)
    for at, link in enumerate(topology.links):
        entries += [(len(lows), number * n_links + at, 1.0) for number in range(len(pairs))]
        entries.append((len(lows), len(pairs) * n_links, -float(link.bandwidth)))
        lows.append(-numpy.inf)
        highs.append(0.0)
    n_columns = len(pairs) * n_links + 1
    rows, columns, values = map(numpy.array, zip(*entries, strict=True))
    costs = numpy.zeros(n_columns)
    costs[-1] = 1
    answer = linear_program(
        LinearProgram(
            costs, numpy.zeros(n_columns), numpy.full(n_columns, numpy.inf), numpy.array(lows), numpy.array(highs),
            rows, columns, values,
        ),
        "simplex",
    )  # fmt: skip
    return float(answer.values[-1]) / size


@settings(max_examples=250, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=3))
def test_the_optimum_is_that_of_one_commodity_per_pair(topology):
    problem = alltoall(topology)
    flow = Mcf().run(problem)
    assert_certified(flow)
    n = topology.n_ranks
    demand = numpy.ones((n, n), dtype=int) - numpy.eye(n, dtype=int)
    assert float(flow.time) == pytest.approx(per_pair_time(topology, demand, n), rel=1e-6)


@st.composite
def demands(draw: st.DrawFn) -> tuple[Topology, list[list[int]]]:
    topology = draw(random_fabrics(max_ranks=5, max_switches=2))
    n = topology.n_ranks
    rows = draw(st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n))
    rows[0][1] += 1
    return topology, rows


@settings(max_examples=100, deadline=None)
@given(demands())
def test_any_demand_is_served_at_its_optimum(asked):
    topology, rows = asked
    problem = Problem(topology, alltoallv(rows))
    flow = Mcf().run(problem)
    assert_certified(flow)
    demand = numpy.array(rows) * (1 - numpy.eye(len(rows), dtype=int))
    assert float(flow.time) == pytest.approx(per_pair_time(topology, demand, problem.collective.size_chunks), rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=6, max_switches=3))
def test_no_synthesizer_beats_the_bound_and_no_bound_beats_the_optimum(topology):
    problem = alltoall(topology)
    best = Mcf().run(problem)
    limit = cost.bound(problem)
    assert limit is None or limit.time <= best.time
    for name in registry.names("synth"):
        other = registry.load("synth", name)
        if name != "mcf" and other.supports(problem) is None:
            assert other.run(problem).time >= best.bound.time


@settings(max_examples=30, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=2), st.sampled_from(["scatter", "gather"]))
def test_scatter_and_gather_reach_the_cut_that_bounds_them(topology, collective):
    problem = Problem(topology, make_collective(collective, topology.n_ranks, root=topology.n_ranks - 1))
    flow = Mcf().run(problem)
    verify.check(flow)
    assert flow.is_optimal
    assert flow.time == pytest.approx(cost.bound(problem).time, rel=1e-9)


SMALL = [
    fabrics.mi250(1),
    fabrics.hetero3b(),
    fabrics.two_levels(),
    fabrics.one_way_ring(5),
    design("genkautz", degree="2", n="9"),
    design("kautz", degree="2", diameter="2"),
]


def slowest_alone(topology: Topology, of_sinks: bool) -> Fraction:
    """The longest that a rank takes to get a slot from every other (or give it one), with the fabric for itself."""
    n = topology.n_ranks
    network = Network.of(alltoall(topology))
    times = []
    for rank in range(n):
        demand = numpy.zeros((n, n), dtype=numpy.int64)
        (demand.T if of_sinks else demand)[rank] = 1 - (numpy.arange(n) == rank)
        alone = replace(network, demand=demand)
        times.append(_exact.certify(alone, _master.Master(alone, None).solve("simplex").prices).time)
    return max(times)


@pytest.mark.parametrize("topology", SMALL, ids=lambda topology: topology.name)
@pytest.mark.parametrize(("collective", "of_sinks"), [("allgather", True), ("reduce_scatter", False)])
def test_one_flow_per_rank_agrees_with_forestcoll(topology, collective, of_sinks):
    """Every rank's own flow within the same links: the same machinery bounds trees (Edmonds)."""
    trees = ForestColl().run(Problem(topology, make_collective(collective, topology.n_ranks)))
    assert float(slowest_alone(topology, of_sinks)) == pytest.approx(float(trees.time), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=2))
def test_one_flow_per_rank_agrees_with_forestcoll_on_any_fabric(topology):
    for collective, of_sinks in (("allgather", True), ("reduce_scatter", False)):
        trees = ForestColl().run(Problem(topology, make_collective(collective, topology.n_ranks)))
        assert float(slowest_alone(topology, of_sinks)) == pytest.approx(float(trees.time), rel=1e-9)


# --- parts ---------------------------------------------------------------------------------------


def test_translations_are_found_and_are_symmetries():
    for topology in (design("torus", dims="3x4"), design("hypercube", dimensions="3"), fabrics.ring(5)):
        network = Network.of(alltoall(topology))
        found = _symmetry.find(network)
        assert found is not None, topology.name
        for image, links in zip(found.vertices, found.links, strict=True):
            assert (network.tails[links] == image[network.tails]).all()
            assert (network.heads[links] == image[network.heads]).all()
            assert (network.bandwidths[links] == network.bandwidths).all()


def test_renamings_that_are_no_group_are_not_taken_for_one():
    """On a complete graph every renaming keeps the links, and the order of links tells nothing."""
    topology = design("complete", n="8")
    network = Network.of(alltoall(topology))
    found = _symmetry.find(network)
    assert found is not None
    every = {tuple(image) for image in found.vertices.tolist()}
    assert all(tuple(one[other].tolist()) in every for one in found.vertices for other in found.vertices)
    assert pair_rate(alltoall(topology), Mcf().run(alltoall(topology)).time) == 1


def test_a_fabric_with_one_link_slowed_has_no_translations():
    topology = fabrics.torus(4, 4)
    slowed = topology.links[0].__class__(topology.links[0].src, topology.links[0].dst, Fraction(1, 2))
    links = (slowed, *topology.links[1:])
    other = Topology("slowed", topology.gpus, (), links)
    assert _symmetry.find(Network.of(alltoall(topology))) is not None
    assert _symmetry.find(Network.of(alltoall(other))) is None
    assert_certified(Mcf().run(alltoall(other)))


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 2, 1, 1], [1, 0, 1, 2], [1, 1, 0, 2], [2, 1, 1, 0]],
        # Every rank has one partner; most get nothing.
        [[0, 5, 0, 0, 0], [0, 0, 5, 0, 0], [5, 0, 0, 0, 0], [0, 0, 0, 0, 5], [0, 0, 0, 5, 0]],
    ],
)
def test_a_demand_that_is_not_even_has_no_translations(rows):
    problem = Problem(fabrics.ring(len(rows)), alltoallv(rows))
    assert _symmetry.find(Network.of(problem)) is None
    assert_certified(Mcf().run(problem))


def test_one_source_has_the_optimum_of_all_sources():
    network = Network.of(alltoall(design("torus", dims="3x4")))
    alone = _exact.certify(network, _master.Master(network, _symmetry.find(network)).solve("simplex").prices)
    every = _exact.certify(network, _master.Master(network, None).solve("simplex").prices)
    assert alone.time == every.time


@pytest.mark.parametrize("method", ["simplex", "ipm", "pdlp", "columns"])
def test_every_method_comes_to_the_same_optimum(method):
    problem = alltoall(fabrics.two_levels())
    flow = Mcf(method=method).run(problem)
    verify.check(flow)
    assert float(flow.time) == pytest.approx(float(Mcf().run(problem).time), rel=1e-5)


@pytest.mark.parametrize(
    "topology",
    [
        design("genkautz", degree="4", n="40"),
        fabrics.two_levels(),
        fabrics.hetero3(),
        design("kautz", degree="2", diameter="3"),
    ],
    ids=lambda topology: topology.name,
)
def test_descent_ends_near_the_optimum_with_few_parts(topology):
    problem = alltoall(topology)
    flow = Mcf(method="descent").run(problem)
    verify.check(flow)
    optimum = Mcf(method="simplex").run(problem).time
    assert flow.bound.time <= optimum <= flow.time
    assert flow.bound.time >= optimum * Fraction(98, 100)
    assert flow.chunks_per_slot <= 16


def test_descent_can_be_stopped_at_any_step(monkeypatch):
    """A deadline ends the search with what there is."""
    problem = alltoall(design("genkautz", degree="4", n="40"))
    swept = descent.Descent._sweep

    def limited(self, sharpness):
        if sharpness > 20:
            raise BudgetError("time ran out")
        swept(self, sharpness)

    monkeypatch.setattr(descent.Descent, "_sweep", limited)
    flow = Mcf(method="descent").run(problem)
    verify.check(flow)
    assert not flow.is_optimal
    assert flow.time < flow.bound.time * Fraction(12, 10)


def test_a_deadline_too_near_for_the_linear_program_leaves_descent(monkeypatch):
    """And that ends while there is time to finish; the answer is bounded, with its gap."""
    problem = alltoall(design("genkautz", degree="4", n="48"))
    monkeypatch.setattr(deadline, "time_left", lambda: 0.01)
    flow = Mcf().run(problem)
    verify.check(flow)
    assert not flow.is_optimal
    assert flow.time < flow.bound.time * Fraction(16, 10)
    with pytest.raises(BudgetError):
        Mcf(method="ipm").run(problem)


@pytest.mark.parametrize("few", [0, 100])
def test_ways_add_up_to_the_flow(monkeypatch, few):
    """Compiled and interpreted alike."""
    monkeypatch.setattr(extract, "_FEW_RANKS", few)
    network = Network.of(alltoall(design("genkautz", degree="4", n="16")))
    found = _master.Master(network, None).solve("simplex")
    scale = children.fine_scale(network)
    flows = children.settle(network, found, scale, exactly=False)
    ways = extract.ways_of(network, found.sources, flows, scale)
    total = numpy.zeros((16, network.n_links), dtype=numpy.int64)
    got = numpy.zeros((16, 16), dtype=numpy.int64)
    for at, (source, sink, units) in enumerate(zip(ways.sources, ways.sinks, ways.units, strict=True)):
        links = ways.links[ways.starts[at] : ways.starts[at + 1]]
        assert network.tails[links[0]] == source
        assert network.heads[links[-1]] == sink
        assert (network.heads[links[:-1]] == network.tails[links[1:]]).all()
        total[source, links] += units
        got[source, sink] += units
    assert (total == flows).all()
    assert (got == network.demand * scale).all()


def test_long_ways_find_room():
    """On a one-way ring ways are longer than was thought at first."""
    assert_certified(Mcf().run(alltoall(fabrics.one_way_ring(40))))


def test_demands_without_a_common_denominator_are_served():
    n = 9
    rows = [[0 if a == b else 10**9 + 7 * a + 13 * b * b for b in range(n)] for a in range(n)]
    assert_certified(Mcf().run(Problem(design("torus", dims="3x3"), alltoallv(rows))))


def test_demands_too_uneven_for_a_linear_program_are_left_to_descent():
    rows = [[0, 10**17 + 3, 7, 5], [3, 0, 1, 10**17 + 3], [1, 2, 0, 3], [3, 3, 3, 0]]
    problem = Problem(fabrics.ring(4), alltoallv(rows))
    verify.check(Mcf().run(problem))
    with pytest.raises(BudgetError):
        Mcf(method="simplex").run(problem)


def test_few_ways_per_pair():
    """Pi(4,20) has 380 pairs; the published extraction found 420 ways."""
    flow = Mcf().run(alltoall(design("genkautz", degree="4", n="20")))
    assert sum(bool(tree.broadcast) for tree in flow.trees) <= 420


@pytest.mark.parametrize(
    ("values", "expected"), [([0.5, 0.25, 1.0], 4), ([1 / 3, 2.0], 3), ([0.0, 7.0], 1), ([2**0.5], None)]
)
def test_common_denominator(values, expected):
    assert _exact.common_denominator(numpy.array(values)) == expected


@settings(max_examples=50, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=3), st.integers(0, 2**32))
def test_any_prices_prove_no_more_than_the_optimum(topology, seed):
    network = Network.of(alltoall(topology))
    some = numpy.random.default_rng(seed).integers(0, 5, network.n_links)
    if some.any():
        found = network.price_bound(some)
        optimum = Mcf().run(alltoall(topology))
        assert found.time <= optimum.time
        verify.check(FlowSchedule(optimum.problem, optimum.trees, optimum.time, found))


def test_a_rank_out_of_reach_is_infeasible():
    for links in ([("g0", "g1", 1), ("g1", "g2", 1)], []):
        topology = fabrics.fabric("broken", 3, links)
        for method in ("auto", "descent"):
            with pytest.raises(InfeasibleError):
                Mcf(method=method).run(alltoall(topology))


def test_nothing_to_move():
    flow = Mcf().run(alltoall(fabrics.single()))
    assert flow.time == 0
    assert flow.bound is None


def test_it_refuses_what_is_copied_or_added():
    problem = Problem(fabrics.ring(4), make_collective("allreduce", 4))
    assert "allreduce copies or adds" in Mcf().supports(problem)


def test_the_tolerance_of_optimal_is_one_part_in_a_billion():
    flow = Mcf().run(alltoall(fabrics.ring(4)))
    near = FlowSchedule(flow.problem, flow.trees, flow.time * (1 + OPTIMAL_WITHIN / 2), flow.bound)
    far = FlowSchedule(flow.problem, flow.trees, flow.time * (1 + 2 * OPTIMAL_WITHIN), flow.bound)
    assert near.is_optimal
    assert not far.is_optimal
