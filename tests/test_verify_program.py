"""The program checker: seeded faults by rule, and agreement with an interpreter on random mutants."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from handmade import (
    all_programs,
    allpairs_allreduce,
    block,
    copy,
    direct_allreduce,
    direct_alltoall,
    i,
    o,
    program,
    recv,
    reduce,
    ring_allgather,
    ring_allreduce,
    rrc,
    s,
    send,
    wide_exchange,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import run
from mutants import changed, edited, judge, mutate, widened, with_step

from collc.ir.collective import Chunk, Collective, Places, alltoallv, make_collective
from collc.ir.program import Gpu, Instruction, Op, Program, Threadblock
from collc.verify.program import examine, examine_calls
from collc.verify.rules import RULES

PROGRAMS = all_programs()


def rules(report) -> set[str]:
    return {finding.rule for finding in report.findings}


# --- right programs -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_programs_are_proven_right_and_run_right(name):
    report = examine(PROGRAMS[name])
    assert report.findings == ()
    for seed in range(10):
        assert run(PROGRAMS[name], seed, report.fifo_depth_needed).is_right
    if report.fifo_depth_needed > 1:
        assert run(PROGRAMS[name], 0, report.fifo_depth_needed - 1).hung


def test_ring_of_fused_instructions_needs_two_places():
    # Each rank must hold one item it has received and one it has sent, so depth 1 is a full circle.
    assert examine(ring_allgather(5)).fifo_depth_needed == 2
    assert examine(ring_allgather(5, fused=False)).fifo_depth_needed == 1


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_k_sends_before_k_receives_need_depth_k(k):
    # Field case 18: two ranks, each sends k chunks and then receives k.
    report = examine(wide_exchange(k, 1))
    assert (report.findings, report.fifo_depth_needed) == ((), k)
    assert examine(wide_exchange(k, 1), fifo_depth=k).findings == ()
    if k > 1:
        shallow = examine(wide_exchange(k, 1), fifo_depth=k - 1)
        assert rules(shallow) == {"fifo-depth"}
        assert shallow.fifo_depth_needed == k
        assert f"needs {k} sends outstanding" in shallow.findings[0].message
        assert "waits for a free place to rank 1 on channel 0" in shallow.findings[0].message


def test_wide_instructions_need_more_places_in_large_messages():
    report = examine(wide_exchange(8, 4), fifo_depth=2)
    assert (report.fifo_depth_needed, report.fifo_depth_large) == (2, 8)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("fifo-depth-large", "error")]


def test_order_through_another_rank_counts():
    # Field case 13: rank 0's second threadblock sends what the first has received, and is told that it
    # may only by a token that goes over rank 1.
    def blocks(rank):
        if rank == 0:
            return [block(1, 1, recv(o(0)), send(o(0))), block(1, 1, recv(s(0)), send(o(0)), channel=1)]
        return [
            block(0, 0, send(i(0)), recv(s(0))),
            block(0, 0, send(i(0), after=((0, 1),)), recv(s(1)), channel=1),
        ]

    tokens = program(make_collective("broadcast", 2, root=1, inplace=True), blocks, scratch=2)
    assert examine(tokens).findings == ()
    assert rules(examine(with_step(tokens, 1, 1, 0, after=()))) == {"race"}


def test_a_wait_orders_what_comes_before_it():
    collective = make_collective("allreduce", 1, 1)
    steps = [
        block(None, None, copy(i(0), s(0)), copy(s(0), s(1))),
        block(None, None, Instruction(Op.NOP, after=((0, 1),)), copy(s(0), o(0))),
    ]
    assert examine(program(collective, lambda _: steps, scratch=2)).findings == ()


def test_a_copy_onto_itself_touches_nothing():
    collective = make_collective("allreduce", 1, 1, inplace=True)
    steps = [block(None, None, copy(i(0), o(0))), block(None, None, copy(o(0), i(0)))]
    assert examine(program(collective, lambda _: steps)).findings == ()


def test_every_pair_of_a_demand_matrix_arrives():
    collective = alltoallv([[1, 2], [3, 0]])

    def blocks(rank):
        if rank == 0:
            return [block(1, 1, copy(i(0), o(0)), send(i(1), 2), recv(o(1), 3))]
        return [block(0, 0, send(i(0), 3), recv(o(0), 2))]

    assert examine(program(collective, blocks)).findings == ()


def test_chunks_that_share_contributors_stay_exact():
    # Chunk 0 is a + b and chunk 1 is b + c: the table of no standard collective, and still exact.
    chunks = (
        Chunk(Places((0, 1), (0, 0)), Places((0,), 0)),
        Chunk(Places((1, 2), (0, 0)), Places((0,), 1)),
    )
    collective = Collective("custom", 3, 1, 1, 2, chunks, (9, 9, 9))

    def blocks(rank):
        if rank:
            return [block(0, None, *[send(i(0))] * (3 - rank))]
        return [
            block(None, 1, copy(i(0), s(0)), rrc(s(0), o(0)), recv(s(1))),
            block(None, 2, rrc(s(1), o(1), after=((0, 2),))),
        ]

    right = program(collective, blocks, scratch=2)
    assert examine(right).findings == ()
    assert run(right, 0).is_right
    assert rules(examine(with_step(right, 0, 1, 0, src=s(0)))) == {"wrong-result", "missing-contribution"}


def test_thirty_thousand_contributions_do_not_wrap_round():
    # 17 doublings: a digit of 16 bits would come back to zero and look like nothing at all.
    collective = make_collective("allreduce", 1, 1)
    steps = [copy(i(0), o(0)), *[reduce(o(0), o(0))] * 17]
    report = examine(program(collective, lambda _: [block(None, None, *steps)]))
    assert rules(report) == {"double-contribution"}


# --- seeded faults --------------------------------------------------------------------------------

RING = ring_allgather(4)
DIRECT = direct_allreduce(3)
ROOMY = replace(DIRECT, gpus=tuple(replace(gpu, scratch_chunks=9) for gpu in DIRECT.gpus))
A2A = direct_alltoall(3)
SUM = ring_allreduce(3)
FAULTS = {
    "drop a receive": (edited(RING, 0, 0, lambda steps: steps.pop()), "unmatched-send"),
    "drop a send": (edited(A2A, 1, 0, lambda steps: steps.pop(0)), "unmatched-receive"),
    "send twice": (edited(A2A, 1, 0, lambda steps: steps.append(steps[0])), "unmatched-send"),
    "another count": (with_step(wide_exchange(4, 2), 0, 0, 1, count=1), "count-mismatch"),
    "another channel": (changed(A2A, 0, 0, channel=1), "unmatched-send"),
    "two threadblocks on one connection": (changed(A2A, 0, 1, send_peer=1, recv_peer=1), "duplicate-connection"),
    "past the end": (with_step(RING, 2, 0, 0, dst=o(4)), "out-of-range"),
    "count past the end": (with_step(RING, 2, 0, 0, dst=o(2), count=3), "out-of-range"),
    "before the start": (with_step(RING, 2, 0, 0, dst=o(-1)), "out-of-range"),
    "count of zero": (with_step(RING, 2, 0, 0, count=0), "count"),
    "no source": (with_step(RING, 2, 0, 1, src=None), "operand"),
    "no destination": (with_step(RING, 2, 0, 0, dst=None), "operand"),
    "no peer": (changed(RING, 2, 0, send_peer=None), "peer"),
    "peer beyond the ranks": (changed(RING, 2, 0, send_peer=4), "peer"),
    "peer is itself": (changed(RING, 2, 0, send_peer=2), "peer"),
    "negative channel": (changed(RING, 2, 0, channel=-1), "channel"),
    "wait for nobody": (with_step(DIRECT, 0, 4, 1, after=((9, 0),)), "wait-target"),
    "wait for a step too far": (with_step(DIRECT, 0, 4, 1, after=((2, 7),)), "wait-target"),
    "wait for itself": (with_step(DIRECT, 0, 4, 0, after=((4, 0),)), "deadlock"),
    "wait in a circle": (with_step(DIRECT, 0, 2, 0, after=((4, 1),)), "deadlock"),
    "receive before sending": (
        # Both ends of one pair of threadblocks; one alone would still run.
        edited(edited(A2A, 0, 0, list.reverse), 1, 0, list.reverse),
        "deadlock",
    ),
    "wait removed": (with_step(DIRECT, 1, 4, 2, after=()), "race"),
    "wait for another step": (with_step(DIRECT, 1, 4, 2, after=((2, 0),)), "race"),
    "in-place write of what is still to be sent": (direct_alltoall(3, inplace=True, split=True), "race"),
    "shifted source": (with_step(A2A, 0, 0, 0, src=i(2)), "wrong-result"),
    "shifted destination": (with_step(RING, 0, 0, 4, dst=o(2)), "missing-contribution"),
    "added twice": (with_step(DIRECT, 0, 4, 2, src=s(0)), "double-contribution"),
    "not added": (with_step(DIRECT, 0, 4, 1, op=Op.NOP), "missing-contribution"),
    "replaced instead of added": (
        with_step(SUM, 0, 0, 2, op=Op.RECV_COPY_SEND, src=None),
        "missing-contribution",
    ),
    "reads scratch nobody wrote": (with_step(ROOMY, 0, 0, 0, src=s(8)), "uninitialized-read"),
    "input written": (with_step(A2A, 0, 0, 1, dst=i(1)), "input-overwritten"),
    "overlapping copy": (with_step(wide_exchange(4, 2), 0, 0, 0, src=o(1), dst=o(0), count=4), "self-overlap"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_caught_by_its_rule(name):
    damaged, rule = FAULTS[name]
    report = examine(damaged)
    assert rule in rules(report)
    finding = next(finding for finding in report.findings if finding.rule == rule)
    assert finding.severity == RULES[rule].severity
    assert finding.rank is not None or rule in ("missing-contribution",)


def test_output_of_a_rank_that_has_none_is_a_warning():
    chain = PROGRAMS["chain_reduce"]
    through_output = edited(chain, 0, 0, lambda steps: steps.insert(0, copy(i(0), o(0))))
    report = examine(through_output)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("no-output-buffer", "warning")]
    in_place = edited(PROGRAMS["chain_reduce in place"], 0, 0, lambda steps: steps.insert(0, copy(i(0), o(0))))
    assert examine(in_place).findings == ()


def test_other_input_slots_must_stay_in_place_too():
    # In place the output of rank 0 is input[0]; input[1] belongs to the caller.
    damaged = edited(PROGRAMS["ring_reduce_scatter in place"], 0, 0, lambda steps: steps.append(copy(i(0), i(1))))
    assert rules(examine(damaged)) == {"input-overwritten"}


def test_the_waiting_circle_is_told_step_by_step():
    report = examine(FAULTS["receive before sending"][0])
    assert report.fifo_depth_needed is None
    assert report.findings[0].message == (
        "hangs however deep the queues are: "
        "rank 0 threadblock 0 step 0 waits for what rank 1 threadblock 0 step 1 is to send; "
        "rank 1 threadblock 0 step 0 waits for what rank 0 threadblock 0 step 1 is to send"
    )


def test_a_race_names_both_accesses_and_the_missing_wait():
    report = examine(FAULTS["wait removed"][0])
    assert report.findings[0].message == (
        "rank 1 threadblock 3 step 0 (recv writes scratch[1]) and rank 1 threadblock 4 step 2 (reduce reads "
        "scratch[1]) may run in either order; threadblock 4 step 2 has to wait for threadblock 3 step 0"
    )


def test_many_findings_of_a_rule_are_counted():
    n = 16
    silent = Program(make_collective("allgather", n), tuple(Gpu(rank, 0, ()) for rank in range(n)))
    report = examine(silent)
    assert len(report.findings) == 11
    assert report.findings[-1].message == "and 246 more of missing-contribution"


def test_what_is_wrong_in_thousands_of_slots_is_counted():
    n = 40
    silent = Program(make_collective("allgather", n), tuple(Gpu(rank, 0, ()) for rank in range(n)))
    assert "1344 more output slots are wrong, 1600 in all" in {found.message for found in examine(silent).findings}


def test_findings_carry_lines():
    report = examine(FAULTS["added twice"][0], lines={(0, 4, 2): (17, 7)})
    assert {(finding.line, finding.column) for finding in report.findings if finding.threadblock == 4} == {(17, 7)}


def test_a_scratch_of_a_billion_chunks_costs_nothing():
    vast = tuple(replace(gpu, scratch_chunks=10**9) for gpu in DIRECT.gpus)
    assert examine(replace(DIRECT, gpus=vast)).findings == ()


# --- mutants --------------------------------------------------------------------------------------


def test_verdicts_on_mutants_agree_with_the_interpreter():
    n_mutants = int(os.environ.get("COLLC_MUTANTS", "400"))
    chance = random.Random(20250101)
    names = sorted(PROGRAMS)
    verdicts = {"refused": 0, "harmless": 0, "wrong": 0}
    for index in range(n_mutants):
        mutant = mutate(PROGRAMS[names[index % len(names)]], chance)
        verdicts[judge(mutant, 8)] += 1
    assert min(verdicts.values()) > n_mutants // 50, verdicts


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32))
def test_any_mutant_is_judged_like_the_interpreter_does(name, seed):
    judge(mutate(PROGRAMS[name], random.Random(seed)), 4)


WIDE = {name: widened(made, 3) for name, made in PROGRAMS.items()} | {"all pairs": allpairs_allreduce(3, 2, 5)}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(WIDE)), st.integers(0, 2**32))
def test_programs_that_move_many_chunks_are_judged_like_the_interpreter_does(name, seed):
    judge(mutate(WIDE[name], random.Random(seed)), 4)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(WIDE)), st.integers(0, 2**32))
def test_slots_that_move_together_stand_for_each(name, seed):
    mutant = mutate(WIDE[name], random.Random(seed)) if seed % 8 else WIDE[name]
    together = examine(mutant)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("collc.verify.memory.cuts", lambda graph, overlay: None)
        alone = examine(mutant)
    assert rules(together) == rules(alone)
    assert together.fifo_depth_needed == alone.fifo_depth_needed


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted({**PROGRAMS, **WIDE})), st.booleans(), st.integers(0, 2**32))
def test_both_kinds_of_call_together_are_judged_as_each_alone(name, is_wide, seed):
    made = (WIDE if is_wide else {**WIDE, **PROGRAMS})[name]
    mutant = mutate(made, random.Random(seed)) if seed % 4 else made
    calls = tuple(replace(mutant, collective=replace(mutant.collective, inplace=kind)) for kind in (False, True))
    assert [report.findings for report in examine_calls(calls)] == [examine(call).findings for call in calls]


def test_a_copy_that_is_none_in_place_still_races_out_of_place():
    steps = [copy(i(0), o(0)), copy(o(0), s(0), after=())]
    made = program(
        make_collective("allreduce", 1, 1),
        lambda _: [block(None, None, step) for step in steps],
        scratch=1,
    )
    calls = (made, replace(made, collective=made.collective.called_inplace()))
    assert [rules(report) for report in examine_calls(calls)] == [{"race"}, set()]


def test_reading_an_overwritten_input_is_found_in_place_only():
    # Rank r sends its input on after the sum is in its output; in place that is no longer the input.
    def blocks(rank):
        other = 1 - rank
        first = [send(i(0)), recv(s(0)), copy(i(0), o(0)), reduce(s(0), o(0))]
        again = [send(i(0)), recv(s(1)), copy(s(0), o(0)), reduce(i(0), o(0))]
        return [block(other, other, *first, *again)]

    made = program(make_collective("allreduce", 2, 1), blocks, scratch=2)
    calls = (made, replace(made, collective=made.collective.called_inplace()))
    outside, inside = examine_calls(calls)
    assert outside.findings == ()
    assert rules(inside) == {"double-contribution", "missing-contribution"}
    assert inside.findings == examine(calls[1]).findings


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_program_gets_a_verdict(data):
    """No exception on programs drawn at random, well-formed or not."""
    numbers = st.integers(-1, 3)
    slots = st.none() | st.builds(lambda make, at: make(at), st.sampled_from((i, o, s)), numbers)
    waits = st.lists(st.tuples(numbers, numbers), max_size=2).map(lambda found: tuple(sorted(found)))
    steps = st.builds(Instruction, st.sampled_from(Op), slots, slots, st.integers(0, 2), waits)
    peers = st.none() | numbers
    blocks = st.builds(Threadblock, peers, peers, st.integers(0, 1), st.lists(steps, max_size=4).map(tuple))
    name = data.draw(st.sampled_from(("allgather", "allreduce", "reduce_scatter", "alltoall", "gather", "scatter")))
    collective = make_collective(name, 2, inplace=data.draw(st.booleans()))
    gpus = tuple(Gpu(rank, 2, tuple(data.draw(st.lists(blocks, max_size=3)))) for rank in range(2))
    report = examine(Program(collective, gpus), fifo_depth=1)
    if not report.findings:
        assert run(Program(collective, gpus), 0).is_right
