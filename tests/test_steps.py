"""Schedules of steps as results: their checker, their costs, and the whole road to files."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import fabrics
import pytest
from click.testing import CliRunner

from collc import cost, registry, verify
from collc.cli import collc
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import UnsupportedError, VerificationError
from collc.ir import text
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route, Topology
from collc.ir.variants import side_by_side
from collc.passes.loosen_steps import LoosenSteps
from collc.pipeline import Outcome, compile_request
from collc.report import report
from collc.request import Clock, Request, Target
from collc.split import by_group
from collc.synth.tsmcf import Tsmcf


def alltoall(topology: Topology, nbytes: int | None = None) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks), nbytes)


def ask(
    problem: Problem, target: Target | None = None, sizes: tuple[int, int] | None = None, **options: str
) -> Outcome:
    return compile_request(Request(problem, "tsmcf", options, sizes, target), Clock())


# --- the checker ----------------------------------------------------------------------------------


def two_steps() -> Schedule:
    """All-to-all on a path of three GPUs, links of 1 GB/s: ends send across in two steps."""
    problem = alltoall(fabrics.path(3))
    routes = {pair: Route(*pair, tuple(f"g{rank}" for rank in pair)) for pair in ((0, 1), (1, 0), (1, 2), (2, 1))}
    first = [(1, 0, 1), (2, 0, 1), (3, 1, 0), (5, 1, 2), (6, 2, 1), (7, 2, 1)]
    sends = [Send(0, chunk, routes[src, dst], reduce=False) for chunk, src, dst in first]
    sends += [Send(1, 2, routes[1, 2], reduce=False), Send(1, 6, routes[1, 0], reduce=False)]
    # Chunks 1 and 2 cross in the first step, one more in the second.
    return Schedule(problem, tuple(sends), Fraction(2 + 1, 3), bound=cost.bound(problem), synchronous=True)


def test_steps_by_hand_are_right():
    schedule = verify.check(two_steps())
    assert not schedule.is_optimal
    # In one step each link carries at most two of three blocks.
    loose = replace(schedule, time=Fraction(2, 3), synchronous=False)
    assert verify.check(loose).is_optimal


def damaged(schedule: Schedule, fault: str) -> Schedule:
    sends = schedule.sends
    match fault:
        case "time":
            return replace(schedule, time=schedule.time * 2)
        case "overload":
            return replace(schedule, time=schedule.time * Fraction(9, 10))
        case "missing-contribution":
            return replace(schedule, sends=sends[:-1])
        case "not-held":
            return replace(schedule, sends=tuple(replace(send, step=0) for send in sends))
        case "bound":
            return replace(schedule, bound=replace(schedule.bound, time=schedule.bound.time * 2))
        case _:
            better = Fraction(1, 3)
            return replace(schedule, sends=(), time=better)


@pytest.mark.parametrize("fault", ["time", "overload", "missing-contribution", "not-held", "bound", "bound-beaten"])
def test_a_fault_is_found(fault):
    found = {finding.rule for finding in verify.findings(damaged(two_steps(), fault))}
    assert fault in found
    with pytest.raises(VerificationError):
        verify.check(damaged(two_steps(), fault))


def test_a_bound_that_the_time_beats_is_found():
    schedule = two_steps()
    loose = replace(schedule, synchronous=False, time=schedule.bound.time / 2)
    assert "bound-beaten" in {finding.rule for finding in verify.findings(loose)}


def test_the_text_keeps_everything():
    for schedule in (two_steps(), replace(two_steps(), bound=None, synchronous=False)):
        assert text.loads(text.dumps(schedule)) == schedule


# --- costs ----------------------------------------------------------------------------------------


def test_a_step_costs_its_latency_and_its_busiest_link():
    """Links of 1 GB/s and 0.7 us, software 3.4 us a step; 2000 bytes, then 1000 of the 3000."""
    assert cost.predict(two_steps(), 3000) == 2 * (Fraction(7, 10) + Fraction(17, 5)) + 3


def test_steps_that_are_no_order_for_all_cost_the_busiest_link():
    schedule = two_steps()
    problem, sends = schedule.problem, schedule.sends
    assert cost.steps_time(problem, sends, synchronous=True) == 1
    assert cost.steps_time(problem, sends, synchronous=False) == Fraction(2, 3)


@pytest.mark.parametrize("instances", [1, 2, 3])
@pytest.mark.parametrize("chunks", [None, 6])
def test_loosened_steps_move_the_same_in_smaller_chunks(instances, chunks):
    schedule = Tsmcf().run(alltoall(fabrics.dgx1()))
    loose = verify.check(LoosenSteps(instances, chunks).run(schedule))
    assert loose.problem.collective.chunk_factor == (chunks or 3) * instances
    assert {send.channel for send in loose.sends} == set(range(instances))
    assert loose.time <= schedule.time
    assert (loose.synchronous, loose.n_steps) == (False, schedule.n_steps)


def test_chunks_are_not_put_together():
    schedule = Tsmcf().run(alltoall(fabrics.dgx1()))
    with pytest.raises(UnsupportedError, match="chunks 4: the schedule has 3 chunks per rank block"):
        LoosenSteps(chunks=4).run(schedule)
    with pytest.raises(UnsupportedError, match="chunks 4: the schedule has 3 chunks per rank block"):
        ask(alltoall(fabrics.dgx1()), Target("rccl", chunks=4), chunks="3")


# --- the road -------------------------------------------------------------------------------------

SMALL = [fabrics.ring(8), fabrics.path(4), fabrics.hypercube(3), fabrics.dgx1(), fabrics.star(4), fabrics.hetero3b()]


@pytest.mark.parametrize("backend", ["rccl", "executor", "classic"])
@pytest.mark.parametrize("topology", SMALL, ids=lambda topology: topology.name)
def test_files_for_every_runtime(backend, topology):
    outcome = ask(alltoall(topology), Target(backend))
    assert outcome.files
    for file in outcome.files:
        assert file.report.ok()
        # Messages of powers of two are served, at a small loss that is told.
        assert file.compiled.program.collective.chunk_factor.bit_count() == 1
        assert file.compiled.schedule.time * Fraction(98, 100) <= outcome.best.made.time
        # One channel for each link.
        assert file.compiled.program.n_channels == 1
    shown = report(Request(alltoall(topology), "tsmcf", target=Target(backend)), outcome, topology.name)
    assert (shown["guarantee"], shown["trees"], shown["max_height"]) == ("optimal", None, None)
    assert shown["steps"] == outcome.best.made.n_steps
    assert shown["checked"] == ["schedule", "program", "file"]
    assert Fraction(shown["algbw_exact"]) == Fraction(shown["bound_exact"]) == 1 / outcome.best.made.time


def test_the_schedule_itself_is_a_file():
    (file,) = ask(alltoall(fabrics.dgx1()), Target("json")).files
    schedule = text.loads(file.text)
    assert isinstance(schedule, Schedule)
    assert (1 / schedule.time, schedule.synchronous, schedule.is_optimal) == (75, True, True)
    assert (file.report.format, file.report.algbw, file.report.bound_algbw) == ("collc-schedule", 75, 75)


def test_a_fabric_given_again_adds_the_steps_up_again(tmp_path):
    schedule = two_steps()
    (tmp_path / "path.json").write_text(text.dumps(schedule))
    request = verify.Request(topology=fabrics.path(3))
    (found,) = verify.examine_path(str(tmp_path / "path.json"), request)
    assert (found.algbw, found.bound_algbw) == (1, Fraction(3, 2))
    (found,) = verify.examine_path(str(tmp_path / "path.json"), verify.Request(topology=fabrics.complete(3)))
    assert (found.algbw, found.bound_algbw) == (1, None)


@pytest.mark.parametrize("backend", ["route", "plan"])
def test_what_needs_ways_refuses_steps(backend):
    with pytest.raises(UnsupportedError, match=f"{backend} files need ways without steps; tsmcf makes steps"):
        ask(alltoall(fabrics.ring(4), 2**20), Target(backend))


def test_a_sweep_is_one_file_whose_chunks_fill_the_least_size():
    outcome = ask(alltoall(fabrics.dgx1(), 2**20), Target("rccl"), sizes=(64, 2**20))
    assert {(file.compiled.min_bytes, file.compiled.max_bytes) for file in outcome.files} == {(64, 2**20)}
    assert {file.compiled.program.collective.size_chunks for file in outcome.files} == {16}
    with pytest.raises(UnsupportedError, match="cuts the buffers into 64 slots; at most 1 fit"):
        ask(alltoall(fabrics.dgx1(), 2**20), Target("rccl"), sizes=(4, 2**20))


def test_small_messages_of_a_sweep_take_fewer_steps():
    topology = topology_of(build("genkautz", {"degree": "2", "n": "12"}), Fraction(1), Fraction(0))
    outcome = ask(alltoall(topology, 2**24), Target("rccl", inplace=False), sizes=(2**10, 2**24))
    few, many = outcome.files
    assert (few.compiled.schedule.n_steps, many.compiled.schedule.n_steps) == (3, 4)
    assert few.compiled.max_bytes + 1 == many.compiled.min_bytes


def test_a_number_of_chunks_and_instances_are_obeyed():
    outcome = ask(alltoall(fabrics.dgx1()), Target("rccl", chunks=2, instances=2))
    for file in outcome.files:
        assert file.compiled.program.collective.chunk_factor == 4
    for file in ask(alltoall(fabrics.dgx1()), Target("rccl", chunks="exact")).files:
        assert file.compiled.program.collective.chunk_factor == 3


def test_a_demand_goes_into_xml_as_a_part_of_an_alltoall():
    demand = [[1, 2, 0], [0, 0, 3], [4, 0, 1]]
    outcome = ask(Problem(fabrics.ring(3), alltoallv(demand), 20), Target("rccl"))
    assert outcome.files
    for file in outcome.files:
        assert file.compiled.program.collective.name == "alltoall"
    assert any("blocks of the largest entry, 4 slots" in note for note in outcome.warnings)


def test_groups_side_by_side_get_a_file_each():
    topology = fabrics.ring(8).restricted([0, 1, 2, 3, 4, 5, 6, 7])
    parts = side_by_side([make_collective("alltoall", 4), make_collective("alltoall", 4)])
    schedule = Tsmcf().run(Problem(topology, parts))
    verify.check(schedule)
    for part in by_group(schedule):
        verify.check(part)
        assert part.synchronous
        assert part.time <= schedule.time
    assert len(ask(Problem(topology, parts), Target("rccl", inplace=False)).files) == 2


def test_a_single_gpu_has_nothing_to_do():
    outcome = ask(alltoall(fabrics.single()), Target("rccl"))
    assert (outcome.best.made.sends, outcome.best.made.time) == ((), 0)


@pytest.mark.parametrize("synthesizer", registry.names("synth"))
def test_what_any_synthesizer_makes_goes_all_the_way(synthesizer):
    topology = fabrics.complete(4)
    for name in ("alltoall", "allgather"):
        problem = Problem(topology, make_collective(name, 4))
        if registry.load("synth", synthesizer).supports(problem) is not None:
            continue
        target = Target("executor")
        request = Request(problem, synthesizer, target=target)
        outcome = compile_request(request, Clock())
        assert all(file.report.ok() for file in outcome.files)
        shown = report(request, outcome, topology.name)
        assert shown["steps"] >= 1
        assert (shown["trees"] is None) == isinstance(outcome.best.made, Schedule)
        assert json.dumps(shown)


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(collc, ["synth", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_line(tmp_path):
    for _ in range(2):  # the second from the cache
        code, out, _ = run(
            "ring:gpus=5", "-c", "alltoall", "-s", "tsmcf", "-o", "steps=2", "-b", "rccl", "-d", str(tmp_path)
        )
        assert code == 0
        assert "alltoall on ring:gpus=5, 5 ranks: tsmcf, optimal" in out
        assert "  2 steps" in out
    assert "from the cache" in out
    assert CliRunner().invoke(collc, ["verify", str(tmp_path), "--runtime", "rccl", "-t", "ring:gpus=5"]).exit_code == 0
    code, _, err = run("ring:gpus=8", "-c", "alltoall", "-s", "tsmcf", "-o", "steps=3")
    assert (code, err) == (3, "collc: 3 steps are too few: data from rank 0 to rank 4 takes 4 hops\n")
    code, _, err = run("ring:gpus=8", "-c", "alltoall", "-s", "tsmcf", "-o", "steps=few")
    assert code == 2
    assert "tsmcf: option steps: 'few'; expected auto|int" in err
    code, _, err = run("ring:gpus=8", "-c", "allgather", "-s", "tsmcf")
    assert code == 2
    assert "tsmcf moves each chunk from one rank to one rank; allgather copies or adds" in err
