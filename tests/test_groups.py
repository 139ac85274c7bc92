"""Process groups: several at the same time on the same links, and GPUs outside that relay or do not."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import fabrics
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import cost, verify
from collc.cli import collc
from collc.errors import InputError
from collc.ir import text
from collc.ir.collective import COLLECTIVES, Problem, make_collective
from collc.ir.topology import Topology
from collc.ir.variants import part_of, side_by_side, with_shares
from collc.split import by_group
from collc.synth.direct import Direct
from collc.synth.forestcoll import ForestColl

ROUND = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce")


def grouped(topology: Topology, groups: Sequence[Sequence[int]], name: str, *, relay: bool = False) -> Problem:
    fabric = topology.restricted([rank for group in groups for rank in group], relay=relay)
    return Problem(fabric, side_by_side([make_collective(name, len(group)) for group in groups]))


def test_groups_of_a_collective_are_found():
    for name in COLLECTIVES:
        assert make_collective(name, 5).groups == ((0, 1, 2, 3, 4),)
        both = side_by_side([make_collective(name, 3), make_collective(name, 2)])
        assert both.groups == ((0, 1, 2), (3, 4))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_group_is_what_it_was(name):
    parts = [make_collective(name, n) for n in (3, 4, 2)]
    whole = side_by_side(parts)
    assert whole.n_ranks == 9
    for part, ranks in zip(parts, whole.groups, strict=True):
        written_out = replace(part, chunks=tuple(part.chunks))
        assert part_of(whole, ranks) == written_out


def test_groups_do_the_same_thing():
    with pytest.raises(InputError, match="allgather and reduce side by side"):
        side_by_side([make_collective("allgather", 2), make_collective("reduce", 2)])


# Fabric, groups, collective, algbw [GB/s], why.
KNOWN = [
    (fabrics.star(8), [(0, 1, 2, 3), (4, 5, 6, 7)], "allgather", Fraction(4, 3), "three of four shards into each port"),
    (fabrics.star(8), [(0, 1, 2, 3), (4, 5, 6, 7)], "allreduce", Fraction(2, 3), "both halves"),
    # Every GPU's other neighbour is of the other group, so one direction of half the ring is idle.
    (fabrics.ring(8), [(0, 1, 2, 3), (4, 5, 6, 7)], "broadcast", 1, "a path each"),
    # One leaf is all either group has between its halves: 2 GB/s of 4 each to two spines.
    (fabrics.two_levels(), [(0, 2), (1, 3)], "broadcast", 2, "4 GB/s leave the leaf, for two groups"),
    (fabrics.two_levels(), [(0, 2), (1, 4, 6)], "broadcast", 2, "4 GB/s leave the first leaf, for two groups"),
    (fabrics.a100(2), [tuple(range(0, 16, 2)), tuple(range(1, 16, 2))], "allgather", 200, "eight NICs of 25 a group"),
]


@pytest.mark.parametrize(("topology", "groups", "name", "algbw", "why"), KNOWN)
def test_links_are_shared(topology, groups, name, algbw, why):
    flow = ForestColl().run(grouped(topology, groups, name))
    verify.check(flow)
    assert 1 / flow.time == algbw, why
    assert flow.is_optimal
    assert text.loads(text.dumps(flow)) == flow


@pytest.mark.parametrize("name", ROUND)
def test_each_group_alone_is_at_least_as_fast(name):
    topology, groups = fabrics.hetero3(), [(0, 1, 8, 12), (2, 9, 10), (13,)]
    asked = grouped(topology, groups, name)
    flow = ForestColl().run(asked)
    verify.check(flow)
    assert flow.is_optimal
    for group in groups[:2]:
        alone = ForestColl().run(grouped(topology, [group], name))
        assert alone.time * alone.problem.collective.size_chunks <= flow.time * asked.collective.size_chunks


def test_the_loads_of_the_groups_add_up():
    flow = ForestColl().run(grouped(fabrics.two_levels(), [(0, 2, 4), (1, 3, 5, 7)], "allreduce"))
    parts = by_group(flow)
    size = flow.problem.collective.size_chunks
    total: dict[tuple[str, str], Fraction] = {}
    for part in parts:
        verify.check(part)
        for hop, load in cost.link_loads(part.problem, part.trees).items():
            total[hop] = total.get(hop, Fraction(0)) + load * part.problem.collective.size_chunks
    assert total == {hop: load * size for hop, load in cost.link_loads(flow.problem, flow.trees).items()}
    busiest = max(load / flow.problem.topology.link[hop].bandwidth for hop, load in total.items())
    assert busiest == flow.time * size


@settings(max_examples=25, deadline=None)
@given(random_fabrics(max_ranks=6, max_switches=3), st.sampled_from(ROUND))
def test_random_groups_are_proven_optimal(topology, name):
    """Each group has a switch of its own too, so that it holds together whatever the rest is like."""
    half = topology.n_ranks // 2
    groups = [tuple(range(half)), tuple(range(half, topology.n_ranks))]
    links = [(link.src, link.dst, link.bandwidth) for link in topology.links]
    links += [p for i, group in enumerate(groups) for rank in group for p in fabrics.both(f"g{rank}", f"own{i}", 1)]
    fabric = fabrics.fabric("joined", topology.n_ranks, links, [*topology.switches, "own0", "own1"])
    flow = ForestColl().run(grouped(fabric, groups, name))
    verify.check(flow)
    assert flow.is_optimal or not flow.time


def test_straight_ways_serve_groups_too():
    flow = Direct().run(grouped(fabrics.a100(1), [(0, 1, 2), (3, 4)], "alltoall"))
    verify.check(flow)


def test_groups_may_have_shares():
    parts = [with_shares("allgather", [1, 3]), with_shares("allgather", [0, 2])]
    flow = ForestColl().run(Problem(fabrics.star(4), side_by_side(parts)))
    verify.check(flow)
    # Three slots into one GPU, of the four slots that are the message.
    assert (1 / flow.time, flow.is_optimal) == (Fraction(4, 3), True)


# --- relays --------------------------------------------------------------------------------------


def test_a_gpu_outside_relays_where_it_may():
    path = fabrics.path(3)
    assert path.restricted([0, 2]).links == ()
    relayed = path.restricted([0, 2], relay=True)
    assert (relayed.gpus, relayed.switches) == (("g0", "g2"), ("g1",))
    flow = ForestColl().run(Problem(relayed, make_collective("broadcast", 2)))
    verify.check(flow)
    assert flow.trees[0].broadcast[0].path == ("g0", "g1", "g2")


def test_relays_raise_the_optimum():
    group = [0, 1, 4, 5]
    times = [
        ForestColl()
        .run(Problem(fabrics.torus(4, 4).restricted(group, relay=relay), make_collective("allgather", 4)))
        .time
        for relay in (False, True)
    ]
    assert times[1] < times[0]


# --- the command line ----------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(collc, ["synth", *arguments, "--no-cache"])


def test_groups_from_the_command_line():
    shown = json.loads(run("dgx-a100:hosts=2", "-c", "allreduce", "--ranks", "0-7", "--ranks", "8-15", "--json").stdout)
    assert (shown["ranks"], shown["guarantee"], shown["algbw_exact"]) == (16, "optimal", "1300/7")
    # Both directions of eight ranks, not of sixteen.
    assert shown["busbw_GBps"] == pytest.approx(1300 / 7 * 7 / 4)


APART = """
name: apart
gpus: [a, b, c, d]
links:
  - {between: [a, b], bandwidth: 10, latency: 1}
  - {between: [c, d], bandwidth: 5, latency: 1}
"""


@pytest.mark.parametrize("method", ["simplex", "columns", "descent"])
def test_groups_that_no_link_joins_need_none(tmp_path, method):
    """What lies outside the groups, or between them, is not what a group waits for."""
    (tmp_path / "apart.yaml").write_text(APART)
    fabric = str(tmp_path / "apart.yaml")
    asked = ["synth", fabric, "-c", "alltoall", "-s", "mcf", "-o", f"method={method}", "--json", "--no-cache"]
    for ranks, algbw in ((["0,1"], 20), (["2,3"], 10), (["0,1", "2,3"], 10)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = CliRunner().invoke(collc, [*asked, *(word for one in ranks for word in ("--ranks", one))])
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        # Descent ends within 1/250 of its bound.
        assert algbw * (0.99 if method == "descent" else 1) <= shown["algbw_GBps"] <= algbw
        assert algbw <= shown["bound_algbw_GBps"] <= algbw * 1.01
    for ranks in ([], ["--ranks", "0,2"], ["--ranks", "0,1,2", "--relay"]):
        assert CliRunner().invoke(collc, [*asked, *ranks]).exit_code == 3


def test_each_group_gets_its_own_file(tmp_path):
    result = run(
        "dgx-a100", "-c", "allgather", "--ranks", "0-3", "--ranks", "4,6,5,7", "-b", "rccl", "-d", str(tmp_path)
    )
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "allgather-dgx-a100-group0-4ranks.xml",
        "allgather-dgx-a100-group1-4ranks.xml",
    ]
    assert "each group's communicator must find its own alone" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--ranks", "0-3", "--ranks", "3-5"), 2, "expected each once"),
        (("--relay",), 2, "name the group with --ranks"),
        (("--ranks", "0,2", "--relay", "-b", "rccl"), 2, "rccl files run on the ranks of the group alone"),
        (("--ranks", "0,5"), 3, "no link leaves it"),
        (("--ranks", "0,1", "--ranks", "2,8"), 3, "gpu2 cannot reach"),
    ],
)
def test_wrong_groups_are_refused(arguments, code, message):
    result = run("torus2d:dims=4x4", "-c", "allgather", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_relays_from_the_command_line():
    shown = json.loads(run("torus2d:dims=4x4", "-c", "allgather", "--ranks", "0,2,5,7", "--relay", "--json").stdout)
    assert (shown["ranks"], shown["guarantee"]) == (4, "optimal")
