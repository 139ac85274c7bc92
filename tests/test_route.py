"""Source routes: layers without circles, the ways of the schedule, and a checker that sees every fault."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise

import fabrics
import networkx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from strategies import fabrics as random_fabrics

from collc import registry, verify
from collc.cli import collc
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import UnsupportedError, VerificationError
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.flow import FlowSchedule
from collc.ir.program import Compiled
from collc.ir.topology import Topology
from collc.synth.mcf import Mcf


def design(family: str, **values: str) -> Topology:
    return topology_of(build(family, values), Fraction(1), Fraction(0))


def alltoall(topology: Topology) -> FlowSchedule:
    return Mcf().run(Problem(topology, make_collective("alltoall", topology.n_ranks)))


def routes(flow: FlowSchedule, layers: int | None = None) -> dict:
    """The document, once the checker has nothing against it."""
    ((name, text),) = registry.load("backend", "route", layers=layers).emit([Compiled(flow)]).items()
    assert name.endswith(".routes.json")
    verify.check_text(text, None, name=name)
    return json.loads(text)


def assert_free_of_circles(document: dict) -> None:
    """The channel dependency graph, built anew with another library."""
    channels = networkx.DiGraph()
    for _, _, _, layer, links in document["routes"]:
        channels.add_edges_from(((layer, one), (layer, other)) for one, other in pairwise(links))
    assert networkx.is_directed_acyclic_graph(channels)


# Layers that LASH opened for the reference: one to three on graphs of up to 27 ranks (directconnect.md, section 6).
GRAPHS = [
    design("bipartite", degree="4"),
    design("hypercube", dimensions="4"),
    design("torus", dims="4x4"),
    design("genkautz", degree="4", n="16"),
    design("torus", dims="3x3x3"),
]


@pytest.mark.parametrize("topology", GRAPHS, ids=lambda topology: topology.name)
def test_few_layers_keep_the_rate(topology):
    flow = alltoall(topology)
    document = routes(flow)
    assert_free_of_circles(document)
    assert 1 <= document["layers"] <= 3
    assert Fraction(document["time"]) == flow.time


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=6, max_switches=3))
def test_any_fabric_gets_routes_free_of_deadlock(topology):
    flow = alltoall(topology)
    document = routes(flow)
    assert_free_of_circles(document)
    assert Fraction(document["time"]) == flow.time


def test_a_one_way_ring_of_three_needs_two_layers():
    """Three ways of two links close the circle; two do not."""
    flow = alltoall(fabrics.one_way_ring(3))
    assert routes(flow)["layers"] == 2
    with pytest.raises(UnsupportedError, match="too few virtual channels"):
        routes(flow, layers=1)


def test_with_too_few_layers_paths_take_other_ways():
    """A ring has circles both ways, and ways that stop at one of its cables have none."""
    flow = alltoall(fabrics.ring(6))
    assert routes(flow)["layers"] > 1
    document = routes(flow, layers=1)
    assert document["layers"] == 1
    assert_free_of_circles(document)
    assert Fraction(document["time"]) > flow.time


@settings(max_examples=30, deadline=None)
@given(random_fabrics(max_ranks=6, max_switches=3, symmetric=True))
def test_one_layer_serves_any_two_way_fabric(topology):
    document = routes(alltoall(topology), layers=1)
    assert document["layers"] == 1
    assert_free_of_circles(document)


def test_layers_the_fabric_has_are_a_limit_of_the_command_line(tmp_path):
    words = ["synth", "ring:gpus=6", "-c", "alltoall", "-s", "mcf", "-b", "route", "-d", str(tmp_path)]
    assert CliRunner().invoke(collc, [*words, "--limit", "layers=1"]).exit_code == 0
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["layers"] == 1
    done = CliRunner().invoke(collc, ["verify", str(path), "-t", "ring:gpus=6", "--json"])
    assert done.exit_code == 0, done.output
    (file,) = json.loads(done.stdout)["files"]
    assert (file["format"], file["ranks"], file["collective"]) == ("collc-routes", 6, "alltoall")


def test_a_demand_has_routes_for_its_pairs_alone():
    rows = [[0, 3, 0, 1], [0, 0, 2, 0], [5, 0, 0, 0], [0, 0, 1, 0]]
    document = routes(Mcf().run(Problem(fabrics.ring(4), alltoallv(rows))))
    assert {(src, dst) for src, dst, *_ in document["routes"]} == {
        (src, dst) for src, row in enumerate(rows) for dst, slots in enumerate(row) if slots
    }


def test_what_copies_or_adds_has_no_routes():
    assert "found allreduce" in registry.load("backend", "route").supports("allreduce")


FAULTS = {
    "path-form": lambda d: d.pop("size"),
    "path-links": lambda d: d["routes"][0][4].append(d["routes"][0][4][0]),
    "path-shares": lambda d: d["routes"].pop(),
    "path-layer": lambda d: d["routes"][0].__setitem__(3, d["layers"]),
    "path-deadlock": lambda d: [row.__setitem__(3, 0) for row in d["routes"]],
    "path-time": lambda d: d.__setitem__("time", "1/1000"),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_seeded_fault_is_found(rule):
    document = routes(alltoall(fabrics.one_way_ring(5)))
    FAULTS[rule](document)
    with pytest.raises(VerificationError, match=rf"\[{rule}\]"):
        verify.check_text(json.dumps(document), None, name="x.routes.json")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_document_is_never_a_traceback(seed):
    """Any value of the file in place of any other is read, or refused in words."""
    import random

    chance = random.Random(seed)
    document = routes(alltoall(fabrics.one_way_ring(4)))
    strange = [None, -1, 10**30, "x", [], {}, 0.5, True]
    spots = [(document, key) for key in document if key != "kind"]
    spots += [(row, at) for row in document["routes"] for at in range(5)]
    spots += [(row, at) for row in document["links"] for at in range(3)]
    holder, at = chance.choice(spots)
    holder[at] = chance.choice(strange)
    with pytest.raises(VerificationError):
        verify.check_text(json.dumps(document), None, name="x.routes.json")
