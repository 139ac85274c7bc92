"""How deep queues must be, connection by connection and by message size, against brute force."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner
from handmade import all_programs, allpairs_allreduce, block, copy, i, o, program, recv, send, to_xml, wide_exchange
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import run
from msccl_texts import RCCL, errors, look
from mutants import in_transfers, mutate

from collc.cli import collc
from collc.ir.collective import make_collective
from collc.verify.depths import Transfers
from collc.verify.graph import build
from collc.verify.liveness import Run, rendezvous
from collc.verify.program import examine
from collc.verify.rules import Collector

PROGRAMS = all_programs() | {
    "wide exchange of 8": wide_exchange(8, 8),
    "wide exchange of 7 by 3": wide_exchange(6, 3),
    "all pairs": allpairs_allreduce(3, 2, 5),
}
KIB, MIB = 1 << 10, 1 << 20


def graph_of(made):
    return build(made, Collector())


# --- runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_depths_are_those_of_brute_force(name, width):
    graph, split = graph_of(PROGRAMS[name]), in_transfers(PROGRAMS[name], width)
    depth = Run(graph, width).depth
    assert run(split, 3, depth).is_right
    assert depth == 1 or run(split, 3, depth - 1).hung


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32), st.integers(1, 3))
def test_mutants_hang_as_brute_force_says(name, seed, width):
    graph = graph_of(mutate(PROGRAMS[name], random.Random(seed)))
    if graph is None:
        return
    made = Run(graph, width)
    split = in_transfers(graph.program, width)
    assert made.ends != run(split, seed, made.depth).hung
    if made.ends and made.depth > 1:
        assert run(split, seed, made.depth - 1).hung


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32))
def test_what_ends_without_queues_ends_with_one_place_at_any_width(name, seed):
    graph = graph_of(mutate(PROGRAMS[name], random.Random(seed)))
    order = rendezvous(graph) if graph else None
    if order is None:
        return
    assert sorted(order) == list(range(len(graph.instructions)))
    place = {number: at for at, number in enumerate(order)}
    assert all(place[before] < place[at] for at, known in enumerate(graph.predecessors()) for before in known)
    assert {Run(graph, width).depth for width in (1, 2, 1 << 62)} == {1}


def test_narrower_transfers_are_never_safer():
    graph = graph_of(allpairs_allreduce(3, 1, 12))
    depths = [Run(graph, width).depth for width in range(1, 14)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[-1]) == (12, 1)


# --- each connection --------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 2))
def test_each_connection_needs_what_brute_force_says(name, seed, width, more):
    chance = random.Random(seed)
    made = PROGRAMS[name] if seed % 3 else mutate(PROGRAMS[name], chance)
    report = examine(made)
    if report.fifo_depth_needed is None:
        return
    available = report.liveness.at(width).needed + more
    depths = examine(made, fifo_depth=available).liveness.at(width)
    assert depths.slack == more
    split = in_transfers(made, width)
    keys = [(one.connection.src, one.connection.dst, one.connection.channel) for one in depths.connections]
    for key, one in zip(keys, depths.connections, strict=True):
        assert one.slack == available - one.needed
        others = dict.fromkeys(keys, available)
        assert not run(split, seed, others | {key: max(1, one.needed)}).hung
        assert one.needed <= 1 or run(split, seed, others | {key: one.needed - 1}).hung


def test_the_one_tight_connection_is_found():
    # Rank 1 takes nothing from channel 0 before what rank 0 sends on channel 1, after all of channel 0.
    def blocks(rank):
        if rank == 0:
            early = [send(i(at)) for at in range(3)]
            return [
                block(1, None, *early),
                block(1, None, send(i(3), after=((0, 2),)), channel=1),
                block(None, None, copy(i(0), o(0), 4)),
            ]
        late = [recv(o(0), after=((1, 0),)), recv(o(1)), recv(o(2))]
        return [block(None, 0, *late), block(None, 0, recv(o(3)), channel=1)]

    made = program(make_collective("broadcast", 2, 4, root=0), blocks)
    tight, rest = examine(made, fifo_depth=4).liveness.at(1).connections
    assert (tight.connection.channel, tight.needed, tight.slack) == (0, 3, 1)
    assert (rest.connection.channel, rest.needed, rest.slack) == (1, 1, 3)
    assert {finding.rule for finding in examine(made, fifo_depth=2).findings} == {"fifo-depth"}


def test_a_connection_with_nothing_in_it_needs_nothing():
    made = program(make_collective("allreduce", 2, 1), lambda rank: [block(1 - rank, None, copy(i(0), o(0)))])
    assert [one.needed for one in examine(made).liveness.at(1).connections] == [0, 0]


# --- message sizes ----------------------------------------------------------------------------------


def test_widths_by_message_size():
    # 8 chunks of a quarter of the buffer still go four at a time; a byte more, and three.
    at_most = [Transfers(8, 1024, 71, size).width for size in (1, 8, 8 * 256, 8 * 257, 8 * 1024, 8 * 1025, None)]
    assert at_most == [71, 71, 4, 3, 1, 1, 1]
    assert Transfers(8, 1024, 71, None).largest_bytes(4) == 8 * 256
    assert Transfers(8, 1024, 71, None).largest_bytes(1) is None


# Published all-pairs files for 8 ranks send 8 chunks of 512 to each peer before anyone receives; a
# runtime with two places needs 4 chunks in a transfer for that.
ALLPAIRS = allpairs_allreduce(8, 8, 8)


@pytest.mark.parametrize(
    ("buffer", "safe"), [(None, 256 * MIB), (128 * KIB, 8 * MIB), (64 * KIB, 4 * MIB), (8 * MIB, 512 * MIB)]
)
def test_the_largest_safe_size_follows_the_buffer(buffer, safe):
    def judged(max_bytes):
        text = to_xml(ALLPAIRS, nchunksperloop=512, maxBytes=max_bytes)
        return look(text, RCCL, buffer_bytes=buffer)

    assert errors(judged(safe)) == set()
    unsafe = judged(safe + 512)
    assert errors(unsafe) == {"fifo-depth-large"}
    assert unsafe.transfers.largest_bytes(unsafe.liveness.least_width) == safe
    assert errors(judged(0)) == {"fifo-depth-large"}  # no upper end


def test_what_matters_only_beyond_the_sizes_served_is_not_told():
    text = to_xml(ALLPAIRS, nchunksperloop=512, maxBytes=16 * MIB)
    assert look(text, RCCL).findings == ()
    assert errors(look(text, RCCL, buffer_bytes=128 * KIB)) == {"fifo-depth-large"}


def test_the_command_line_tells_of_queues(tmp_path):
    file = tmp_path / "allpairs.xml"
    file.write_text(to_xml(ALLPAIRS, nchunksperloop=512, maxBytes=16 * MIB))
    words = ["verify", str(file), "--runtime", "rccl"]
    plain = CliRunner().invoke(collc, words)
    assert plain.exit_code == 0
    assert "cannot hang in messages up to 256MiB" in plain.stdout
    data = json.loads(CliRunner().invoke(collc, [*words, "--json"]).stdout)["files"][0]
    assert (data["fifo_depth_available"], data["fifo_depth_needed"], data["largest_safe_bytes"]) == (2, 1, 256 * MIB)
    assert (data["transfer_bytes"], data["connections_total"], len(data["connections"])) == (2 * MIB, 448, 64)
    small = CliRunner().invoke(collc, [*words, "--buffer", "128KiB", "--json"])
    data = json.loads(small.stdout)["files"][0]
    assert small.exit_code == 1
    assert (data["largest_safe_bytes"], data["fifo_slack"]) == (8 * MIB, -2)
    assert data["findings"][0]["message"].startswith("hangs in messages above 8MiB, and serves up to 16MiB")
    assert data["connections"][0].keys() == {"from", "to", "channel", "sends", "depth_needed", "slack"}
