"""Limits of time and word of progress: the best so far in time, and nothing shown where nobody looks."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from fractions import Fraction

import pytest
from click.testing import CliRunner

from collc import choose, deadline, progress, verify
from collc.cli import collc, progress_line
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import BudgetError
from collc.ir.collective import Problem, make_collective
from collc.ir.topology import Topology
from collc.request import Clock
from collc.synth._master import Master
from collc.synth._network import Network
from collc.synth.mcf import Mcf, children, columns, descent, paths
from collc.synth.tsmcf import Tsmcf
from collc.topology import dumps_yaml


def kautz(n: int) -> Topology:
    return topology_of(build("genkautz", {"degree": "4", "n": str(n)}), Fraction(1), Fraction(0))


@pytest.fixture
def fabric(tmp_path, monkeypatch) -> str:
    """A file of a fabric that descent works on for some seconds; and a cache of its own."""
    monkeypatch.setenv("COLLC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kautz.yaml"
    path.write_text(dumps_yaml(kautz(150)))
    return str(path)


def synth(fabric: str, *words: str) -> dict:
    asked = ["synth", fabric, "-c", "alltoall", "-s", "mcf", "-o", "method=descent", "--json", *words]
    result = CliRunner().invoke(collc, asked)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_work_has_no_more_time_than_the_work_around_it():
    assert deadline.time_left() is None
    with deadline.within(1000):
        with deadline.within(2000):
            assert 900 < deadline.time_left() <= 1000
        with deadline.within(10), deadline.within(None):
            assert 5 < deadline.time_left() <= 10
        assert deadline.time_left() > 900
    assert deadline.time_left() is None


def test_no_time_left_stops_who_asks():
    deadline.check()
    with deadline.within(0), pytest.raises(BudgetError):
        deadline.check()


def test_the_first_schedule_is_one_way_per_pair_and_bounded():
    problem = Problem(kautz(20), make_collective("alltoall", 20))
    flow = Mcf().first(problem)
    verify.check(flow)
    assert len(flow.trees) == 20 * 20
    assert flow.bound.time <= Mcf().run(problem).time <= flow.time
    assert flow.notes == (deadline.CUT_SHORT,)


def test_steps_have_a_first_schedule_too(monkeypatch):
    """It is in the fewest steps and of one chunk a block; the whole one, which takes longer, is better."""
    problem = Problem(kautz(16), make_collective("alltoall", 16))
    first = Tsmcf().first(problem)
    verify.check(first)
    assert (first.n_steps, first.problem.collective.chunk_factor) == (2, 1)
    assert first.notes[-1] == deadline.CUT_SHORT
    with deadline.within(300), monkeypatch.context() as patched:
        patched.setattr(Tsmcf, "_most_parts", out_of_time_unless_one_chunk)
        assert choose.synthesize(problem, "tsmcf", {}, Clock()).made == first


def out_of_time_unless_one_chunk(self: Tsmcf, problem: Problem) -> int:
    return 1 if self.chunks == 1 else out_of_time()


def test_where_time_runs_out_the_first_schedule_is_kept_but_not_remembered(fabric, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(children, "round_off", out_of_time)
        shown = synth(fabric, "--time-limit", "300")
    assert (shown["guarantee"], shown["cached"]) == ("bounded", False)
    assert deadline.CUT_SHORT in shown["warnings"]
    better = synth(fabric, "--time-limit", "300")
    assert not better["cached"]
    assert better["algbw_GBps"] > shown["algbw_GBps"]
    assert deadline.CUT_SHORT not in better["warnings"]
    assert synth(fabric)["cached"]


def out_of_time(*_):
    raise BudgetError("time ran out")


def test_a_search_that_a_deadline_ends_says_so_and_is_not_remembered(fabric, monkeypatch):
    monkeypatch.setattr(descent, "_MARGIN", 1e9)
    shown = synth(fabric, "--time-limit", "300")
    assert deadline.CUT_SHORT in shown["warnings"]
    assert not synth(fabric, "--time-limit", "300")["cached"]


def test_columns_that_a_deadline_ends_say_so(monkeypatch):
    real, calls = paths.solve, []

    def solve(*asked):
        calls.append(asked)
        if len(calls) > 1:
            raise BudgetError("late")
        return real(*asked)

    monkeypatch.setattr(paths, "solve", solve)
    monkeypatch.setattr(columns.descent, "solve", lambda network, within: (descent.Descent(network).found, False))
    flow = Mcf(method="columns").run(Problem(kautz(20), make_collective("alltoall", 20)))
    verify.check(flow)
    assert flow.notes == (deadline.CUT_SHORT,)


@pytest.mark.parametrize("seconds", [None, 1000])
def test_descent_in_place_of_a_program_is_cut_short_only_by_a_deadline(monkeypatch, seconds):
    monkeypatch.setattr(Master, "solve", out_of_time)
    with deadline.within(seconds):
        flow = Mcf().run(Problem(kautz(20), make_collective("alltoall", 20)))
    assert (deadline.CUT_SHORT in flow.notes) == (seconds is not None)


@pytest.mark.parametrize("seconds", [None, 1000])
def test_steps_whose_bound_a_deadline_leaves_out_say_so(monkeypatch, seconds):
    monkeypatch.setattr(Master, "solve", out_of_time)
    with deadline.within(seconds):
        made = Tsmcf().run(Problem(kautz(8), make_collective("alltoall", 8)))
    assert (deadline.CUT_SHORT in made.notes) == (seconds is not None)


def test_whole_chunks_for_which_time_is_short_say_so():
    """Of a whole that loses something, and of none that does not."""
    problem = Problem(kautz(16), make_collective("alltoall", 16))
    with deadline.within(3):
        assert deadline.CUT_SHORT in Tsmcf(chunks=1).run(problem).notes
    with deadline.within(1000):
        assert deadline.CUT_SHORT not in Tsmcf(chunks=1).run(problem).notes


def test_a_loser_that_a_deadline_cut_short_might_have_won():
    """So the result is not remembered, though its winner took all the time it wanted."""
    problem = Problem(kautz(12), make_collective("alltoall", 12))
    best, other = Mcf().run(problem), Mcf().first(problem)
    found = [choose.Candidate(name, {}, problem, made) for name, made in (("late", other), ("best", best))]
    assert choose._ranked(found, None)["late"].endswith(f"; {choose.OUT_OF_TIME}")


def test_a_first_schedule_that_is_optimal_is_not_made_again(monkeypatch):
    fabric = topology_of(build("complete", {"n": "6"}), Fraction(1), Fraction(0))
    monkeypatch.setattr(Mcf, "run", out_of_time)
    with deadline.within(1000):
        found = choose.synthesize(Problem(fabric, make_collective("alltoall", 6)), "mcf", {}, Clock())
    assert found.made.is_optimal
    assert found.made.notes == ()


def test_the_search_leaves_time_for_what_follows():
    """A slow finish ends it early, a quick one late."""
    network = Network.of(Problem(kautz(60), make_collective("alltoall", 60)))
    with deadline.within(5):
        _, is_cut_short = descent.solve(network, 0.0, lambda found: time.sleep(0.3))
        assert is_cut_short
        assert deadline.time_left() > 2
    with deadline.within(500):
        _, is_cut_short = descent.solve(network, 0.004, lambda found: None)
        assert not is_cut_short


# --- progress ------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_after_a_second_and_goes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_line, "monotonic", lambda: now[0])
    stream = Terminal()
    with progress_line.shown(stream):
        progress.report("too early")
        now[0] += 12
        progress.report("mcf: within 1.3 % of the bound")
        progress.report("too soon after")
    assert stream.getvalue() == "\r\x1b[Kmcf: within 1.3 % of the bound, 12 s\r\x1b[K"


def test_short_work_shows_nothing():
    stream = Terminal()
    with progress_line.shown(stream):
        progress.report("quick")
    assert stream.getvalue() == ""


def test_progress_is_for_terminals_only():
    stream = io.StringIO()
    with progress_line.shown(stream):
        progress.report("anything")
    assert stream.getvalue() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_long_run_tells_how_near_it_is(fabric):
    """On a terminal; standard output stays the report alone."""
    ours, theirs = pty.openpty()
    asked = [sys.executable, "-m", "collc", "synth", fabric, "-c", "alltoall", "-s", "mcf", "-o", "method=descent"]
    with subprocess.Popen([*asked, "--json"], stdout=subprocess.PIPE, stderr=theirs) as run:
        out = run.stdout.read()
    os.close(theirs)
    told = os.read(ours, 10**6).decode()
    os.close(ours)
    assert run.returncode == 0
    assert json.loads(out)["synthesizer"] == "mcf"
    assert "% of the bound" in told
    assert told.endswith("\r\x1b[K")
