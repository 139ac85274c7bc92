"""The MSCCL reader on published files and on files of our own: what it reads, and which sizes are served."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import GOLDEN
from handmade import (
    all_programs,
    block,
    chain_broadcast,
    copy,
    direct_allreduce,
    direct_alltoall,
    direct_gather,
    i,
    o,
    program,
    ring_allgather,
    ring_allreduce,
    s,
    to_xml,
)
from interpreter import run
from msccl_texts import CLASSIC, EXECUTOR, RCCL, RING, SUM, damage, edit_step, errors, line_with, look, put, rules
from mutants import judge, mutate

from collc import runtimes
from collc.ir.collective import make_collective
from collc.ir.program import Instruction, Op
from collc.verify.msccl import why_not_served

CORPUS = Path(__file__).parents[2] / "shared" / "corpus" / "msccl-scheduler"
PUBLISHED = sorted(CORPUS.glob("*/*.xml")) if CORPUS.is_dir() else []


# --- published files --------------------------------------------------------------------------------


@pytest.mark.skipif(not PUBLISHED, reason="the published files are not here")
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_published_files_are_judged_right(path):
    # formats.md 5.1: the executor and the first runtime take them all, and their data is right; RCCL
    # refuses to launch those with fused step types.
    text = path.read_bytes()
    for runtime in (EXECUTOR, CLASSIC):
        assert errors(look(text, runtime)) == set()
    is_fused = re.search(rb'type="(rcs|rrs|rrc|rrcs)"', text) is not None
    assert errors(look(text, RCCL)) == ({"step-type-unsupported"} if is_fused else set())


@pytest.mark.skipif(not PUBLISHED, reason="the published files are not here")
@pytest.mark.parametrize("path", [path for path in PUBLISHED if path.parent.name != "ndv5"], ids=lambda path: path.name)
def test_published_files_run_right(path):
    report = look(path.read_bytes())
    (served,) = report.file.programs
    assert run(served, 1, report.fifo_depth_needed).is_right
    assert run(served, 2, 8).is_right


# Real files: published ones where they are here, and our own. COLLC_MUTANTS=5000 takes some minutes.
OWN = sorted((GOLDEN / "msccl").glob("*.xml"))
REAL = [*OWN, *(path for path in PUBLISHED if path.parent.name != "ndv5" and path.stat().st_size < 200_000)]
N_MUTANTS = int(os.environ.get("COLLC_MUTANTS", "60"))


def real(path):
    """A file, and the report on it by the rules of the runtime it is for."""
    text = path.read_text()
    runtime = runtimes.load(path.name.partition("-")[0]) if path in OWN else EXECUTOR
    return text, runtime, look(text, runtime)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_our_own_files_run_right(path):
    _, _, report = real(path)
    assert errors(report) == set()
    for served in report.file.programs:
        assert all(run(served, seed, report.fifo_depth_needed).is_right for seed in range(3))


def test_verdicts_on_mutants_of_real_programs_agree_with_the_interpreter():
    chance = random.Random(20250102)
    programs = [served for path in REAL for served in real(path)[2].file.programs]
    verdicts = Counter(judge(mutate(chance.choice(programs), chance), 3) for _ in range(N_MUTANTS))
    assert len(verdicts) == 3, verdicts


def test_faults_in_real_files_are_caught_or_harmless():
    chance = random.Random(20250103)
    texts = [real(path)[:2] for path in REAL]
    verdicts = {True: 0, False: 0}
    for _ in range(N_MUTANTS):
        text, runtime = chance.choice(texts)
        report = look(damage(text, chance), runtime, fifo_depth=64)
        is_clean = not errors(report)
        verdicts[is_clean] += 1
        for seed in range(3) if is_clean else ():
            assert all(run(served, seed, report.fifo_depth_needed).is_right for served in report.file.programs)
    assert min(verdicts.values()) > 0, verdicts


@pytest.mark.skipif(not PUBLISHED, reason="the published files are not here")
def test_a_published_file_that_needs_the_default_depth():
    # Eight ranks, each forwarding around rings it also feeds: one place would be a full circle.
    report = look((CORPUS / "ndv4" / "ag-32m-1g.xml").read_bytes())
    assert report.fifo_depth_needed == 2
    shallow = look((CORPUS / "ndv4" / "ag-32m-1g.xml").read_bytes(), fifo_depth=1)
    assert errors(shallow) == {"fifo-depth"}


# --- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", all_programs())
def test_handmade_programs_read_back_as_they_are(name):
    made = all_programs()[name]
    # One of them fits its queues only while chunks share a transfer.
    report = look(to_xml(made, maxBytes=2**20))
    assert errors(report) == set()
    assert report.file.programs == (made,)


def test_attributes_are_kept():
    file = look(put(RING, 'maxBytes="0"', 'maxBytes="1048576"')).file
    assert (file.name, file.collective, file.n_ranks, file.n_channels) == ("handmade", "allgather", 4, 1)
    assert (file.protocol, file.inplace, file.outofplace) == ("Simple", False, True)
    assert (file.min_bytes, file.max_bytes, file.n_chunks) == (0, 1048576, 4)


def test_upper_ends_are_read_as_the_runtime_reads_them():
    limited = put(RING, 'maxBytes="0"', 'maxBytes="1048576"')
    assert look(limited, CLASSIC).file.max_bytes == 1048575
    assert look(RING, EXECUTOR).file.max_bytes is None
    assert "byte-range" in errors(look(RING, CLASSIC))  # 0 means never there
    unsaid = put(RING, ' maxBytes="0"', "")
    assert look(unsaid, CLASSIC).file.max_bytes == (128 << 20) - 1


def test_a_file_for_both_kinds_of_call_is_judged_for_each():
    both = to_xml(direct_alltoall(3, split=True), inplace=1, outofplace=1)
    report = look(both)
    assert [served.collective.inplace for served in report.file.programs] == [False, True]
    assert errors(report) == {"race"}
    assert all(finding.message.endswith("(called in place)") for finding in report.findings)
    assert errors(look(to_xml(direct_alltoall(3), inplace=1, outofplace=1))) == set()


@pytest.mark.parametrize("root", range(3))
@pytest.mark.parametrize("make", [chain_broadcast, direct_gather])
def test_the_root_is_the_one_the_program_serves(make, root):
    report = look(to_xml(make(3, root)))
    assert report.file.programs[0].collective.root == root
    assert rules(report) == {"any-root"}


def test_gather_counts_the_chunks_of_one_rank():
    # In these runtimes gather has no factor n: nchunksperloop divides one rank's block.
    assert look(to_xml(direct_gather(3), nchunksperloop=3)).file.programs[0].collective.input_chunks == 3


def test_lines_and_columns_of_findings():
    damaged = edit_step(SUM, 1, 4, 2, depid=-1, deps=-1)
    (finding,) = look(damaged).findings
    assert finding.rule == "race"
    assert finding.line == line_with(damaged, 'type="re"', 3)
    assert (finding.column, finding.rank, finding.threadblock, finding.step) == (7, 1, 4, 2)


def test_nop_steps_hand_their_waits_to_the_next_step():
    made = direct_allreduce(3)
    adder = made.gpus[0].threadblocks[4].instructions

    def waits_first(rank):
        blocks = list(made.gpus[rank].threadblocks)
        waiting = Instruction(Op.NOP, after=adder[1].after)
        steps = (waiting, replace(adder[0], src=i(rank), dst=o(rank), after=adder[2].after))
        steps += tuple(replace(step, dst=o(rank), after=()) for step in adder[1:])
        for at in (0, 1):
            last = blocks[at].instructions[1]
            blocks[at] = replace(blocks[at], instructions=(blocks[at].instructions[0], replace(last, after=((4, 3),))))
        blocks[4] = replace(blocks[4], instructions=steps)
        return blocks

    text = to_xml(program(made.collective, waits_first, scratch=2))
    assert errors(look(text)) == set()
    assert "nop-chain" in errors(look(edit_step(text, 0, 4, 1, depid=-1, deps=-1)))


def test_nops_at_the_end_wait_for_nothing():
    waits = Instruction(Op.NOP, after=((0, 0),))
    made = program(make_collective("allreduce", 1, 1), lambda _: [block(None, None, copy(i(0), o(0)), waits)])
    assert look(to_xml(made)).file.programs[0].gpus[0].threadblocks[0].instructions[1].after == ()


def test_a_nop_that_waits_for_nothing_shifts_what_is_announced():
    # It is not counted, so the next step announces 0 and a wait for step 1 is never released.
    idle = Instruction(Op.NOP)
    collective = make_collective("allreduce", 1, 1)
    made = program(
        collective,
        lambda _: [
            block(None, None, idle, copy(i(0), s(0))),
            block(None, None, copy(s(0), o(0), after=((0, 1),))),
        ],
        scratch=1,
    )
    assert errors(look(to_xml(made))) == {"wait-not-announced", "race"}


# --- sizes ------------------------------------------------------------------------------------------


def test_small_ll_chunks_are_flagged_up_to_the_size_that_fills_them():
    # Field case 12: 6 ranks, 12 chunks, float32: 48 bytes give 4 to a chunk, 96 bytes give 8.
    made = to_xml(ring_allreduce(6), proto="LL", nchunksperloop=12, minBytes=48)
    halves = program(make_collective("allreduce", 1, 12), lambda _: [block(None, None, copy(i(0), o(0), 12))])
    assert "chunk-counts" in rules(look(made))
    small = to_xml(halves, proto="LL", minBytes=48)
    assert rules(look(small)) == {"min-bytes"}
    assert look(put(small, 'minBytes="48"', 'minBytes="96"')).findings == ()


def test_which_sizes_are_served():
    file = look(to_xml(ring_allgather(3), minBytes=96, maxBytes=3072)).file
    assert why_not_served(file, 96) is None
    assert why_not_served(file, 3072) is None
    assert why_not_served(file, 84) == "below minBytes 96"
    assert why_not_served(file, 3084) == "above the largest size served, 3072"
    assert why_not_served(file, 1024) == "256 elements are no multiple of nchunksperloop 3"
    assert why_not_served(file, 98) == "24.5 elements are no multiple of nchunksperloop 3"
    asked = look(to_xml(ring_allgather(3)), nbytes=(1024, 3072))
    assert [(finding.rule, finding.severity) for finding in asked.findings] == [("size-not-served", "warning")]


def test_gather_is_counted_by_one_ranks_block():
    file = look(to_xml(direct_gather(3), maxBytes=1200)).file
    assert why_not_served(file, 3600) is None
    assert why_not_served(file, 3612) is not None
