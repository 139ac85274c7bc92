"""What crosses between hosts: doors, the load and the connections of NICs, channels that pair them unevenly."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import ring_fabric
from handmade import block, i, o, program, recv, send, to_xml
from test_cli_verify import report, rules, run
from test_verify_mscclpp import hosts

from collc.ir.collective import make_collective
from collc.ir.topology import Link, Topology
from collc.topology import open_topology
from collc.verify.fit import program_on
from collc.verify.nics import doors


def all_pairs(n: int, instances: int):
    """Every rank sends its block for each other one, a channel per instance, one threadblock per connection."""
    return program(
        make_collective("alltoall", n, instances),
        lambda rank: [
            block(peer, peer, send(i(peer * instances + c)), recv(o(peer * instances + c)), channel=c)
            for c in range(instances)
            for peer in range(n)
            if peer != rank
        ],
    )


def found(fit) -> list[str]:
    return [finding.rule for finding in fit.findings]


# --- doors ---------------------------------------------------------------------------------------


def test_doors_are_the_nics_of_each_host():
    assert doors(hosts(2, 4, 2)) == (("h0.n0", "h0.n1"), ("h1.n0", "h1.n1"))
    assert doors(hosts(1, 4, 2)) == ((),)
    assert doors(ring_fabric(4)) == ((),)


def test_gpus_on_a_fabric_of_their_own_are_doors():
    fabric = open_topology("mi250:hosts=2").topology
    assert [len(found) for found in doors(fabric)] == [16, 16]
    assert [len(found) for found in doors(open_topology("dgx-a100:hosts=4").topology)] == [8] * 4
    assert [len(found) for found in doors(open_topology("p4d:hosts=2").topology)] == [4] * 2


# --- load and connections ------------------------------------------------------------------------


def test_an_all_pairs_schedule_over_one_nic_with_four_instances():
    """16 ranks on 2 hosts with a NIC each: 8 x 8 x 4 connections each way."""
    fit = program_on(all_pairs(16, 4), hosts(2, 8, 1))
    assert {key: load.connections for key, load in fit.nics.items()} == {
        (f"h{host}.n0", direction): 256 for host in (0, 1) for direction in ("in", "out")
    }
    # Of the message of a rank, 8 ranks each send half to the other host.
    assert {load.share for load in fit.nics.values()} == {Fraction(8, 2)}
    assert found(fit) == []
    assert found(program_on(all_pairs(16, 4), hosts(2, 8, 1), max_nic_connections=256)) == []
    fit = program_on(all_pairs(16, 4), hosts(2, 8, 1), max_nic_connections=255)
    assert found(fit) == ["nic-connections"] * 4
    assert fit.findings[0].message == "256 connections go in through h0.n0; 255 are allowed"
    assert fit.time  # the schedule still has its load


def test_traffic_is_shared_between_nics_on_equal_ways():
    fit = program_on(all_pairs(4, 1), hosts(2, 2, 2))
    assert {load.share for load in fit.nics.values()} == {Fraction(1, 2)}
    assert {load.connections for load in fit.nics.values()} == {4}


def test_one_host_has_nothing_to_cross():
    assert program_on(all_pairs(4, 1), hosts(1, 4, 2), max_nic_connections=1).nics == {}


# --- parity --------------------------------------------------------------------------------------


def rails(*, crossed: bool) -> Topology:
    """Two hosts of two GPUs, each GPU with a NIC of its own; the NICs form a ring with one-way cables."""
    gpus = ("a0", "a1", "b0", "b1")
    pairs = [("a0", "a1"), ("a1", "a0"), ("b0", "b1"), ("b1", "b0")]
    nics = ("A", "AA", "B", "BB")
    # Host a enters and leaves by A. Host b enters by B and leaves by B, or by BB.
    pairs += [("a0", "A"), ("A", "a0"), ("b0", "B"), ("B", "b0"), ("b0", "BB"), ("BB", "b0"), ("a0", "AA")]
    pairs += [("A", "B"), ("BB", "A") if crossed else ("B", "A")]
    return Topology("rails", gpus, nics, tuple(Link(a, b, 1) for a, b in pairs), ((0, 1), (2, 3)))


@pytest.mark.parametrize("crossed", [False, True])
def test_a_channel_that_leaves_one_host_by_another_nic_than_it_enters(crossed):
    """Channel 0 enters A and leaves A on host 0, but enters B and leaves BB on host 1."""
    peers = {0: (2, 2), 2: (0, 0)}
    made = program(
        make_collective("alltoall", 4),
        lambda rank: [block(*peers[rank], send(i(peers[rank][0])), recv(o(peers[rank][0])))] if rank in peers else [],
    )
    fit = program_on(made, rails(crossed=crossed))
    assert found(fit) == (["nic-parity"] if crossed else [])
    if crossed:
        assert fit.findings[0].message == (
            "channel 0 enters host 0 by A and leaves by the same, but enters host 1 by B and leaves by BB"
        )


# --- the command line ----------------------------------------------------------------------------


def test_nics_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a2a.xml").write_text(to_xml(all_pairs(16, 1)))
    words = ("a2a.xml", "-t", "p4d:hosts=2", "--runtime", "executor")
    (entry,) = report(*words)["files"]
    # Two GPUs share a NIC, and each reaches the 8 of the other host by it: 8 of 16 blocks of two ranks.
    assert entry["nics"] == [
        {"nic": f"h{host}.nic{nic}", "direction": way, "share_exact": "1", "connections": 16}
        for host in (0, 1)
        for nic in range(4)
        for way in ("in", "out")
    ]
    assert entry["share_of_bound"] == pytest.approx(entry["algbw_GBps"] / entry["bound_algbw_GBps"])
    assert "of 8 NICs in use" in run(*words).stdout
    assert "nic-connections" in rules(report(*words, "--max-conn-per-nic", "7"))
    assert "nic-connections" not in rules(report(*words, "--max-conn-per-nic", "1000"))
    assert run(*words, "--max-conn-per-nic", "0").exit_code == 2
    json.dumps(entry)
