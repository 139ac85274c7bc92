"""Few and low trees for small messages, all the bandwidth for large ones: forestcoll's variants, by prediction."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import cache

import fabrics
import pytest
from click.testing import CliRunner

from collc import cost
from collc.choose import Candidate, candidates
from collc.cli import collc
from collc.ir.collective import Problem, make_collective
from collc.ir.topology import Topology
from collc.request import Clock, Request
from collc.synth.forestcoll import ForestColl

FABRICS = {
    "mi250x2": fabrics.mi250(2),
    "mi250x1": fabrics.mi250(1),
    "h100x4": fabrics.h100(4),
    "torus8x8": fabrics.torus(8, 8),
}


@cache
def offered(name: str, nbytes: int) -> tuple[Candidate, ...]:
    """All variants, best first at a size."""
    topology: Topology = FABRICS[name]
    problem = Problem(topology, make_collective("allgather", topology.n_ranks), nbytes)
    return tuple(candidates(Request(problem, "forestcoll"), Clock())[0])


@pytest.mark.parametrize("name", FABRICS)
def test_no_size_is_slower_than_by_the_plain_forest(name):
    found = offered(name, 1024)
    plain = next(one for one in found if not one.options)
    assert plain.made.is_optimal
    for bits in range(6, 36):
        best = min(found, key=lambda one: one.time_us(1 << bits))
        assert best.time_us(1 << bits) <= plain.time_us(1 << bits)
    # In the end bandwidth is all.
    assert min(found, key=lambda one: one.time_us(1 << 40)) is plain


@pytest.mark.parametrize(
    ("name", "gain"),
    # The plain forest's latency over the best one's: 9 hops to 2 of some us each, 7 to 5, 4 to 3.
    [("mi250x2", 2.5), ("mi250x1", 1.3), ("h100x4", 1.4)],
)
def test_small_messages_take_lower_trees_at_less_bandwidth(name, gain):
    best, plain = offered(name, 1024)[0], next(one for one in offered(name, 1024) if not one.options)
    assert best.time_us(1024)[0] * Fraction(gain) < plain.time_us(1024)[0]
    assert best.options["trees_per_rank"] == "1"
    assert cost.max_height(best.made.trees) < cost.max_height(plain.made.trees)
    assert not best.made.is_optimal
    assert best.made.bound == plain.made.bound


def test_where_no_trees_are_lower_the_plain_forest_stays():
    """Torus 8x8: eight hops are the diameter, and the optimum's trees need no more."""
    (best, *_) = offered("torus8x8", 1024)
    least = cost.height_bound(best.made, any_rate=True)
    assert least is not None
    assert best.options == {}
    assert cost.max_height(best.made.trees) == least.hops == 8


def test_large_messages_ask_for_nothing_else():
    topology = fabrics.mi250(1)
    problem = Problem(topology, make_collective("allgather", 16), 2**34)
    found, passed_over = candidates(Request(problem, "forestcoll"), Clock())
    assert [one.options for one in found] == [{}]
    assert passed_over == {}


def test_given_options_are_what_is_made():
    topology = fabrics.mi250(1)
    problem = Problem(topology, make_collective("allgather", 16), 1024)
    found, _ = candidates(Request(problem, "forestcoll", {"trees_per_rank": "3"}), Clock())
    assert [one.options for one in found] == [{"trees_per_rank": "3"}]


def test_the_report_says_how_to_ask_for_the_same():
    asked = ["synth", "mi250", "-c", "reduce_scatter", "-s", "forestcoll", "-n", "16KiB", "--no-cache", "--json"]
    shown = json.loads(CliRunner().invoke(collc, asked).stdout)
    assert shown["guarantee"] == "bounded"
    assert shown["trees"] == 16
    options = [word for key, value in shown["options"].items() for word in ("-o", f"{key}={value}")]
    again = json.loads(CliRunner().invoke(collc, [*asked, *options]).stdout)
    assert {key: again[key] for key in again if key not in ("seconds", "passed_over")} == {
        key: shown[key] for key in shown if key not in ("seconds", "passed_over")
    }
    assert "forestcoll" in shown["passed_over"]


def test_each_range_of_a_sweep_has_its_own_and_all_verify(tmp_path):
    asked = ["synth", "mi250", "-c", "allgather", "-s", "forestcoll", "-n", "4KiB:256MiB", "-b", "rccl", "-d"]
    done = CliRunner().invoke(collc, [*asked, str(tmp_path), "--no-cache", "--json"])
    assert done.exit_code == 0, done.output
    files = json.loads(done.stdout)["files"]
    assert files[0]["options"]["trees_per_rank"] == "1"
    assert files[-1]["options"] == {}
    assert [file["min_bytes"] for file in files[1:]] == [file["max_bytes"] + 1 for file in files[:-1]]
    checked = CliRunner().invoke(collc, ["verify", str(tmp_path), "--runtime", "rccl"])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("slack", [0, Fraction(1, 4), 1, 15])
def test_slack_bounds_what_links_carry(slack):
    """One tree per rank, and no link with more than so much over what one tree per rank needs."""
    problem = Problem(fabrics.hetero3(), make_collective("allgather", 14))
    needed = ForestColl(trees_per_rank=1).run(problem).time
    assert ForestColl(trees_per_rank=1, slack=Fraction(slack)).run(problem).time <= needed * (1 + slack)


def test_slack_below_zero_is_refused():
    asked = ["synth", "ring", "-c", "allgather", "-s", "forestcoll", "-o", "slack=-1", "--no-cache"]
    done = CliRunner().invoke(collc, asked)
    assert done.exit_code == 2
    assert "slack" in done.stderr
