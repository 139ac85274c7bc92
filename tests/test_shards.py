"""Blocks of unequal length: allgather and reduce-scatter with a share for each rank."""

from __future__ import annotations

import json
from fractions import Fraction

import fabrics
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import cost, verify
from collc.cli import collc
from collc.cli.request import read_shares
from collc.errors import InputError, UnsupportedError
from collc.ir import text
from collc.ir.collective import Problem, make_collective
from collc.ir.variants import whole_shares, with_shares
from collc.pipeline import compile_request
from collc.request import Clock, Request, Target
from collc.synth.forestcoll import ForestColl


def test_blocks_lie_one_after_another():
    gathered = with_shares("allgather", [2, 0, 3])
    assert [(chunk.precondition.ranks, chunk.count) for chunk in gathered.chunks] == [((0,), 2), ((2,), 3)]
    assert [chunk.postcondition[1] for chunk in gathered.chunks] == [0, 2]
    assert (gathered.input_chunks, gathered.output_chunks, gathered.shift) == (3, 5, (0, 2, 2))
    scattered = with_shares("reduce_scatterv", [2, 0, 3])
    assert [(chunk.postcondition.ranks, chunk.count) for chunk in scattered.chunks] == [((0,), 2), ((2,), 3)]
    assert (scattered.input_chunks, scattered.output_chunks, scattered.shift) == (5, 3, (0, -2, -2))


def test_equal_shares_are_the_plain_collective():
    for name in ("allgather", "reduce_scatter"):
        assert with_shares(name, [1] * 5).chunks == make_collective(name, 5).chunks


@pytest.mark.parametrize(
    ("shares", "message"),
    [([1, -1], "share of rank 1: -1"), ([0, 0], "every share is zero"), ([], "every share is zero")],
)
def test_shares_that_mean_nothing_are_refused(shares, message):
    with pytest.raises(InputError, match=message):
        whole_shares([Fraction(share) for share in shares])


def test_other_collectives_have_no_shares():
    with pytest.raises(InputError, match="allreduce has no shares"):
        with_shares("allreduce", [1, 1])
    with pytest.raises(InputError, match="allgatherv needs a share for each rank"):
        make_collective("allgatherv", 4)


BOX = fabrics.a100(1)  # eight GPUs of 300 GB/s on one switch
# Shares, best [GB/s of the whole buffer]: a GPU must take in all but its own share.
KNOWN = [
    ([1] * 8, Fraction(2400, 7)),
    ([1, 0, 0, 0, 0, 0, 0, 0], Fraction(300)),  # a broadcast
    ([0, 1, 1, 1, 1, 1, 1, 1], Fraction(300)),  # the first takes in everything
    ([1, 2, 3, 4, 5, 6, 7, 8], Fraction(300 * 36, 35)),
]


@pytest.mark.parametrize(("shares", "algbw"), KNOWN)
@pytest.mark.parametrize("name", ["allgather", "reduce_scatter"])
def test_the_optimum_is_reached(name, shares, algbw):
    flow = ForestColl().run(Problem(BOX, with_shares(name, shares)))
    verify.check(flow)
    assert 1 / flow.time == algbw
    assert flow.is_optimal
    assert text.loads(text.dumps(flow)) == flow


@settings(max_examples=40, deadline=None)
@given(random_fabrics(max_ranks=5, max_switches=3), st.data(), st.sampled_from(["allgather", "reduce_scatter"]))
def test_random_shares_reach_the_bound(topology, data, name):
    counts = data.draw(st.lists(st.integers(0, 4), min_size=topology.n_ranks, max_size=topology.n_ranks).filter(any))
    flow = ForestColl().run(Problem(topology, with_shares(name, counts)))
    verify.check(flow)
    assert flow.is_optimal


@pytest.mark.parametrize("k", [1, 2])
def test_a_fixed_number_of_trees_is_for_each_slot(k):
    flow = ForestColl(trees_per_rank=k).run(Problem(fabrics.mi250(1), with_shares("allgather", [1, 3] * 8)))
    verify.check(flow)
    assert all(
        (tree.weight * k * flow.problem.collective.chunks[tree.chunk].count).denominator == 1 for tree in flow.trees
    )


def test_reduce_scatter_on_one_way_links_has_its_own_optimum():
    """Shares travel a one-way ring the long way round, sums the other way in time."""
    ring = fabrics.one_way_ring(4)
    gather, scatter = (
        ForestColl().run(Problem(ring, with_shares(n, [3, 1, 0, 0]))) for n in ("allgather", "reduce_scatter")
    )
    for flow in (gather, scatter):
        verify.check(flow)
        assert flow.is_optimal
    bound = cost.bound(scatter.problem)
    assert bound is not None
    assert scatter.time == bound.time


def test_files_are_collcs_own():
    asked = Problem(BOX, with_shares("allgather", [1, 2, 0, 1, 1, 1, 1, 1]))
    with pytest.raises(UnsupportedError, match="rccl has no allgatherv"):
        compile_request(Request(asked, target=Target("rccl")), Clock())
    (file,) = compile_request(Request(asked, target=Target("json")), Clock()).files
    assert file.name.startswith("allgatherv-")


# --- the command line ----------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(collc, ["synth", *arguments, "--no-cache"])


def test_shares_from_the_command_line_and_from_a_file(tmp_path):
    path = tmp_path / "shares.txt"
    path.write_text("# by rank\n1, 0.5\n0 1/2 1 1 1 1\n")
    shown = [
        json.loads(run("dgx-a100", "-c", "allgather", "--shares", shares, "--json").stdout)
        for shares in ("1,0.5,0,0.5,1,1,1,1", str(path))
    ]
    assert shown[0]["algbw_exact"] == shown[1]["algbw_exact"] == "300"
    assert (shown[0]["collective"], shown[0]["guarantee"]) == ("allgatherv", "optimal")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-c", "allgather", "--shares", "1,2"), "--shares: 2 shares for 8 ranks"),
        (("-c", "allgather", "--shares", "1,x"), "'x' is not a number"),
        (
            ("-c", "allgather", "--shares", "missing.txt"),
            "is not a number; expected numbers such as 3,1,0,2, or a file",
        ),
        (("-c", "allreduce", "--shares", "1,1,1,1,1,1,1,1"), "allreduce has no shares"),
        (("-c", "allgather", "--shares", "0,0,0,0,0,0,0,0"), "every share is zero"),
        (("-c", "allgather", "--shares", "1,-1,0,0,0,0,0,0"), "share of rank 1: -1"),
        (("-c", "allgather", "--root", "1", "--shares", "1,1,1,1,1,1,1,1"), "neither --root nor --demand"),
        (("-c", "allgatherv"), "--shares 3,1,0,2"),
    ],
)
def test_wrong_shares_are_refused(arguments, message):
    result = run("dgx-a100", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_that_is_no_list_of_shares_is_named(tmp_path):
    (tmp_path / "words").write_text("one two")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, message in (("words", "'one' is not a number"), ("bytes", "cannot be read")):
        with pytest.raises(InputError, match=message):
            read_shares(str(tmp_path / name))
