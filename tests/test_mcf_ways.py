"""All-to-all on given ways and by column generation: published rates, and bounds that stay those of all ways."""

from __future__ import annotations

from fractions import Fraction

import fabrics
import numpy
import pytest
from hypothesis import given, settings
from strategies import fabrics as random_fabrics

from collc import verify
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import InfeasibleError, InputError, UnsupportedError
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.topology import Topology
from collc.registry import load
from collc.synth._network import Network
from collc.synth.mcf import Mcf, columns, paths
from collc.topology.degrade import degraded


def design(family: str, **values: str) -> Topology:
    """A design with links of 1 GB/s."""
    return topology_of(build(family, values), Fraction(1), Fraction(0))


def alltoall(topology: Topology) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks))


# Source: 2309.13541; computed with HiGHS for the reference file.
GIVEN = [
    ("genkautz", {"degree": "4", "n": "16"}, "shortest", "1/9"),
    ("genkautz", {"degree": "4", "n": "16"}, "short+1", "7/53"),
    ("genkautz", {"degree": "4", "n": "16"}, "disjoint", "5/41"),
    ("genkautz", {"degree": "4", "n": "20"}, "shortest", "1/9"),
    ("genkautz", {"degree": "4", "n": "20"}, "short+1", "7/61"),
    ("genkautz", {"degree": "4", "n": "20"}, "disjoint", "7/61"),
    ("bipartite", {"degree": "4"}, "shortest", "2/5"),
    ("hypercube", {"dimensions": "4"}, "shortest", "1/8"),
    ("hypercube", {"dimensions": "4"}, "disjoint", "1/8"),
    ("torus", {"dims": "3x3x3"}, "shortest", "1/9"),
]


@pytest.mark.parametrize(("family", "values", "ways", "rate"), GIVEN)
def test_given_ways_reach_their_rate_and_the_bound_stays_that_of_all(family, values, ways, rate):
    problem = alltoall(design(family, **values))
    flow = Mcf(ways=ways).run(problem)
    verify.check(flow)
    assert float(1 / (flow.time * problem.topology.n_ranks)) == pytest.approx(float(Fraction(rate)), rel=1e-11)
    best = Mcf().run(problem)
    assert flow.bound == best.bound
    assert flow.is_optimal == (best.time * (1 + Fraction(1, 10**9)) >= flow.time)


def test_rates_on_given_ways_are_exact_where_they_are_simple_fractions():
    problem = alltoall(design("genkautz", degree="4", n="16"))
    assert 1 / (Mcf(ways="shortest").run(problem).time * 16) == Fraction(1, 9)
    assert 1 / (Mcf(ways="disjoint").run(problem).time * 16) == Fraction(5, 41)
    flow = Mcf(ways="short+1").run(problem)
    assert flow.time == flow.bound.time == Fraction(53, 7 * 16)


def ends(network: Network, table: paths.Table):
    """By pair, its ways as lists of links."""
    found: dict[tuple[int, int], list[list[int]]] = {}
    for source, sink, *links in table.rows.tolist():
        way = [link for link in links if link >= 0]
        stops = [source, *network.heads[way].tolist()]
        assert network.tails[way].tolist() == stops[:-1]
        assert stops[-1] == sink
        found.setdefault((source, sink), []).append(way)
    return found


def test_disjoint_ways_share_no_link_and_there_are_no_more():
    network = Network.of(alltoall(design("genkautz", degree="4", n="16")))
    for (source, sink), ways in ends(network, paths.given(network, "disjoint")).items():
        links = [link for way in ways for link in way]
        assert len(links) == len(set(links))
        leaving, entering = (network.tails == source).sum(), (network.heads == sink).sum()
        assert len(ways) == min(leaving, entering)


def test_short_ways_are_as_long_as_allowed():
    network = Network.of(alltoall(design("torus", dims="3x4")))
    shortest = ends(network, paths.given(network, "shortest"))
    longer = ends(network, paths.given(network, "short+2"))
    for pair, ways in shortest.items():
        least = len(ways[0])
        assert {len(way) for way in ways} == {least}
        assert max(len(way) for way in longer[pair]) <= least + 2
        assert all(way in longer[pair] for way in ways)


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=2))
def test_fewer_ways_never_do_better(topology):
    problem = alltoall(topology)
    best = Mcf().run(problem)
    for ways in ("shortest", "short+1", "disjoint"):
        flow = Mcf(ways=ways).run(problem)
        verify.check(flow)
        assert flow.time >= best.bound.time


def test_too_many_ways_are_refused_and_say_how_many():
    with pytest.raises(UnsupportedError, match="more than 1000 short ways"):
        Mcf(ways="shortest").run(alltoall(design("hypercube", dimensions="7")))


def test_an_unknown_set_of_ways_is_refused():
    with pytest.raises(InputError, match="option ways: 'shorter'"):
        load("synth", "mcf", ways="shorter")


@pytest.mark.parametrize("ways", ["shortest", "disjoint"])
def test_a_rank_out_of_reach_has_no_ways(ways):
    network = Network.of(alltoall(fabrics.fabric("broken", 3, [("g0", "g1", 1), ("g1", "g2", 1)])))
    with pytest.raises(InfeasibleError):
        paths.given(network, ways)


# --- columns -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(random_fabrics(max_ranks=6, max_switches=2))
def test_columns_come_to_the_optimum(topology):
    flow = Mcf(method="columns").run(alltoall(topology))
    verify.check(flow)
    assert flow.is_optimal
    assert float(flow.time) == pytest.approx(float(Mcf(method="simplex").run(alltoall(topology)).time), rel=1e-9)


@pytest.mark.parametrize(
    "topology",
    [
        design("genkautz", degree="4", n="64"),
        degraded(design("torus", dims="6x6"), ["g0->g1"], ["g7-g8=1/2"], []),
    ],
    ids=["Pi(4,64)", "torus with faults"],
)
def test_columns_are_optimal_with_few_ways(topology):
    flow = Mcf(method="columns").run(alltoall(topology))
    verify.check(flow)
    assert flow.is_optimal
    n = topology.n_ranks
    assert sum(bool(tree.broadcast) for tree in flow.trees) < 1.5 * n * (n - 1)


def test_columns_find_the_ways_that_the_first_lack(monkeypatch):
    """From one bad way per pair, prices lead to the rest."""
    network = Network.of(alltoall(design("genkautz", degree="3", n="12")))
    monkeypatch.setattr(columns.descent, "solve", flat_start)
    table, rates, _, is_cut_short = columns.solve(network, 1e-10)
    assert not is_cut_short
    assert len(table.rows) > 12 * 11
    optimum = Mcf(method="simplex").run(alltoall(network.topology)).time * 12
    assert rates.time == pytest.approx(float(optimum), rel=1e-9)


def flat_start(network: Network, within: float):
    return columns.descent.Descent(network).found, False


def test_columns_serve_any_demand():
    rows = numpy.random.default_rng(1).integers(0, 10**6, (12, 12)).tolist()
    problem = Problem(design("genkautz", degree="3", n="12"), alltoallv(rows))
    flow = Mcf(method="columns").run(problem)
    verify.check(flow)
    assert flow.is_optimal
