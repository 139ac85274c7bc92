"""How low trees can be: what is proven, held against brute force, and how near forestcoll comes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

import fabrics
import pytest
from click.testing import CliRunner
from test_reference import random_fabric

from collc import cost
from collc.cli import collc
from collc.ir.collective import Problem, make_collective
from collc.ir.flow import FlowSchedule
from collc.ir.topology import Topology
from collc.solve import Simplex
from collc.synth.forestcoll import ForestColl

Hop = tuple[str, ...]


def run(topology: Topology, name: str = "allgather") -> FlowSchedule:
    return ForestColl().run(Problem(topology, make_collective(name, topology.n_ranks)))


def hops_of(topology: Topology) -> dict[str, list[Hop]]:
    """By GPU, every simple path over switches that ends there."""
    found: dict[str, list[Hop]] = {gpu: [] for gpu in topology.gpus}
    waiting: list[Hop] = [(gpu,) for gpu in topology.gpus]
    while waiting:
        path = waiting.pop()
        for link in topology.links:
            if link.src == path[-1] and link.dst not in path:
                if link.dst in found:
                    found[link.dst].append((*path, link.dst))
                else:
                    waiting.append((*path, link.dst))
    return found


def all_trees(topology: Topology, root: str) -> Iterator[tuple[int, tuple[Hop, ...]]]:
    """Every spanning tree of hops from a root, with its height."""
    hops = hops_of(topology)
    for tree in itertools.product(*(hops[gpu] for gpu in topology.gpus if gpu != root)):
        depth = {root: 0}
        for _ in tree:
            depth |= {hop[-1]: depth[hop[0]] + 1 for hop in tree if hop[0] in depth}
        if len(depth) == topology.n_ranks:
            yield max(depth.values()), tree


def least_by_force(topology: Topology, rate: float) -> int:
    """The least height at which trees from all roots reach a rate, by a program over all trees there are."""
    trees = [(root, *tree) for root in topology.gpus for tree in all_trees(topology, root)]
    for most in range(1, topology.n_ranks):
        low = [(root, tree) for root, height, tree in trees if height <= most]
        program = Simplex([1] + [0] * len(low))
        for gpu in topology.gpus:
            program.add_row([(1, 0)] + [(-1, 1 + at) for at, (root, _) in enumerate(low) if root == gpu], 0)
        for link in topology.links:
            terms = [
                (count * link.bandwidth.denominator, 1 + at)
                for at, (_, tree) in enumerate(low)
                if (count := sum((link.src, link.dst) in itertools.pairwise(hop) for hop in tree))
            ]
            program.add_row(terms, link.bandwidth.numerator)
        found = program.solve()
        if found is not None and found[0] >= rate * (1 - 1e-9):
            return most
    raise AssertionError("no height suffices")


@pytest.mark.parametrize("block", range(6))
def test_no_trees_are_lower_than_what_is_proven(block):
    """60 fabrics with up to four GPUs, all trees of each."""
    reached = 0
    for seed in range(10 * block, 10 * block + 10):
        topology = random_fabric(seed)
        if topology.n_ranks > 4 or len(topology.switches) > 2:
            continue
        for name, fabric in (("allgather", topology), ("reduce_scatter", topology.reversed())):
            flow = run(topology, name)
            proven = cost.height_bound(flow)
            assert proven is not None
            least = least_by_force(fabric, float(1 / flow.time) / topology.n_ranks)
            assert proven.hops <= least <= cost.max_height(flow.trees)
            reached += proven.hops == least
    assert reached > 0


def test_what_is_proven_is_strong_where_hosts_are_the_bottleneck():
    """Each host's NICs are full, so a tree enters a host once and needs a hop inside; no shorter way is slower."""
    flow = run(fabrics.h100(16))
    proven = cost.height_bound(flow)
    assert proven is not None
    assert proven.hops == 2 == cost.max_height(flow.trees)
    assert proven.why == "trees fill all links to g0, g1, g2, ..., so each goes there once and 1 hop on"
    # At half the bandwidth every root could serve all others itself.
    halved = cost.height_bound(replace(flow, time=2 * flow.time))
    assert halved is not None
    assert halved.hops == 1


@pytest.mark.parametrize(
    ("topology", "most"),
    # What the published program's trees need: 7, 11, 14, 19 and 22 hops.
    [
        (fabrics.a100(1), 1),
        (fabrics.a100(2), 2),
        (fabrics.mi250(1), 7),
        (fabrics.mi250(2), 9),
        (fabrics.torus(8, 8), 8),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_trees_are_low(topology, most):
    flow = run(topology)
    assert flow.is_optimal
    assert cost.max_height(flow.trees) <= most


def test_the_report_says_why_trees_are_not_lower():
    shown = CliRunner().invoke(collc, ["synth", "torus2d:dims=4x4", "-c", "allgather", "--no-cache", "--json"]).stdout
    report = json.loads(shown)
    assert (report["max_height"], report["height_at_least"]) == (4, 4)
    assert report["height_because"] == "gpu0 is 4 hops from gpu10"
    asked = ["synth", "mi250", "-c", "reduce_scatter", "-s", "forestcoll", "--no-cache"]
    told = CliRunner().invoke(collc, asked).stdout
    assert "7 hops at most; 5 or more: h0.gpu4 is 5 hops from h0.gpu15" in told
