"""The MSCCL reader: each rule with a file that breaks it, and hostile input."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handmade import (
    all_programs,
    block,
    chain_broadcast,
    copy,
    i,
    o,
    program,
    recv,
    reduce,
    ring_reduce_scatter,
    s,
    send,
    to_xml,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import run
from msccl_texts import A2A, CLASSIC, EXECUTOR, RCCL, RING, SUM, damage, edit_step, errors, look, put, rules

from collc.ir.collective import make_collective
from collc.verify import rules as rule_book
from collc.verify.msccl_reader import c_number
from collc.verify.rules import RULES

# --- each rule --------------------------------------------------------------------------------------

BIG = program(
    make_collective("alltoall", 2),
    lambda rank: [
        block(1 - rank, 1 - rank, send(i(1 - rank)), recv(o(1 - rank))),
        block(None, None, copy(i(rank), o(rank)), *[copy(i(0), s(0))] * 70),
    ],
    scratch=1,
)
MANY = program(
    make_collective("alltoall", 2),
    lambda rank: [
        block(1 - rank, 1 - rank, send(i(1 - rank)), recv(o(1 - rank))),
        block(None, None, copy(i(rank), o(rank))),
        *[block(None, None)] * 127,
        block(None, None, copy(i(0), s(0))),
        block(None, None, copy(s(0), s(1), after=((129, 0),))),
    ],
    scratch=2,
)
CROWD = program(
    make_collective("alltoall", 34),
    lambda rank: [
        block(None, None, copy(i(rank), o(rank))),
        *(block(peer, peer, send(i(peer)), recv(o(peer))) for peer in range(34) if peer != rank),
    ],
)
WIDE = program(
    make_collective("allgather", 2, 72),
    lambda rank: [
        block(1 - rank, 1 - rank, send(i(0), 72), recv(o(72 - rank * 72), 72)),
        block(None, None, copy(i(0), o(rank * 72), 72)),
    ],
)
TWICE = program(
    make_collective("allreduce", 1, 2),
    lambda _: [
        block(None, None, copy(i(0), s(0), 2), copy(i(0), o(0), 2), reduce(s(0), o(0), 2), reduce(s(0), o(0), 1))
    ],
    scratch=2,
)

REFUSED = {
    "declaration": ('<?xml version="1.0"?>\n' + RING, "xml-syntax"),
    "tab": (put(RING, "\n  <gpu", "\n\t<gpu"), "xml-syntax"),
    "tab between attributes": (put(RING, " proto=", "\tproto="), "xml-syntax"),
    "single quotes": (put(RING, 'proto="Simple"', "proto='Simple'"), "xml-syntax"),
    "attributes on two lines": (put(RING, " proto=", "\nproto="), "xml-syntax"),
    "comment without a space": ("<!--a=b-->\n" + RING, "xml-syntax"),
    "text": (put(RING, "\n  <gpu", "\nhello <gpu"), "xml-syntax"),
    "entity": (put(RING, "\n  <gpu", "\n&amp;<gpu"), "xml-syntax"),
    "byte order mark": (b"\xef\xbb\xbf" + RING.encode(), "xml-syntax"),
    "not closed": (put(RING, "</algo>", ""), "xml-syntax"),
    "no algo": ("<plan/>", "xml-syntax"),
    "empty": ("", "xml-syntax"),
    "seventeen attributes": (
        put(RING, "<algo ", "<algo " + " ".join(f'x{at}="1"' for at in range(7)) + " "),
        "xml-bounds",
    ),
    "long value": (put(RING, "handmade", "h" * 256), "xml-bounds"),
    "octal": (put(RING, 'srcoff="0"', 'srcoff="00"'), "xml-number"),
    "no number": (put(RING, 'cnt="1"', 'cnt="one"'), "xml-number"),
    "number with a tail": (put(RING, 'cnt="1"', 'cnt="1x"'), "xml-number"),
    "a billion as a count": (put(RING, 'nchunksperloop="4"', 'nchunksperloop="1000000000"'), "limit-offset"),
    "too large for an int": (put(RING, 'cnt="1"', 'cnt="99999999999"'), "attribute-value"),
    "no minBytes": (put(RING, ' minBytes="0"', ""), "attribute-missing"),
    "no maxBytes": (put(RING, ' maxBytes="0"', ""), "attribute-missing"),
    "no outofplace": (put(RING, ' outofplace="1"', ""), "attribute-missing"),
    "no hasdep": (put(RING, ' hasdep="0"', ""), "attribute-missing"),
    "no s_chunks": (put(RING, ' s_chunks="0"', ""), "attribute-missing"),
    "protocol in capitals": (put(RING, "Simple", "SIMPLE"), "attribute-value"),
    "unknown buffer": (put(RING, 'srcbuf="i"', 'srcbuf="x"'), "attribute-value"),
    "hasdep of two": (put(RING, 'hasdep="0"', 'hasdep="2"'), "attribute-value"),
    "negative scratch": (put(RING, 's_chunks="0"', 's_chunks="-1"'), "attribute-value"),
    "no ranks": (put(RING, 'ngpus="4"', 'ngpus="0"'), "attribute-value"),
    "no call": (put(RING, 'outofplace="1"', 'outofplace="0"'), "no-calls"),
    "spelling of the first runtime": (
        put(to_xml(ring_reduce_scatter(4)), "reducescatter", "reduce_scatter"),
        "collective-name",
    ),
    "never selected": (put(A2A, "alltoall", "alltoallv"), "collective-unused"),
    "rank missing": (put(RING, 'ngpus="4"', 'ngpus="5"'), "gpu-missing"),
    "rank twice": (put(RING, '<gpu id="1"', '<gpu id="0"'), "gpu-missing"),
    "rank too high": (put(RING, '<gpu id="3"', '<gpu id="4"'), "gpu-missing"),
    "gap in threadblocks": (put(SUM, '<tb id="4"', '<tb id="5"'), "threadblock-ids"),
    "threadblock twice": (put(SUM, '<tb id="4"', '<tb id="3"'), "threadblock-ids"),
    "step number repeated": (edit_step(RING, 0, 0, 1, s=0), "step-order"),
    "step number left out": (edit_step(RING, 0, 0, 4, s=7), "step-order"),
    "unknown type": (put(RING, 'type="rcs"', 'type="ra"'), "step-type"),
    "71 steps": (to_xml(BIG), "limit-steps"),
    "34 ranks on one channel": (to_xml(CROWD), "limit-threadblocks-per-channel"),
    "count of 72": (to_xml(WIDE), "limit-count"),
    "count of 0": (edit_step(RING, 0, 0, 0, cnt=0), "count"),
    "channel at nchannels": (put(RING, 'chan="0"', 'chan="1"', 99), "limit-channels"),
    "channel at the maximum": (put(RING, 'chan="0"', 'chan="32"', 99), "limit-channels"),
    "negative channel": (put(RING, 'chan="0"', 'chan="-1"'), "limit-channels"),
    "33 channels": (put(RING, 'nchannels="1"', 'nchannels="33"'), "limit-channels"),
    "peer at ngpus": (put(RING, 'send="1"', 'send="4"'), "peer"),
    "peer below -1": (put(RING, 'send="1"', 'send="-2"'), "peer"),
    "offset beyond 16 bits": (edit_step(RING, 0, 0, 0, dstoff=32768), "limit-offset"),
    "offset beyond what is declared": (put(RING, 'i_chunks="1"', 'i_chunks="0"', 99), "out-of-range"),
    "offset beyond the buffer": (edit_step(RING, 0, 0, 0, dstoff=3, cnt=2), "out-of-range"),
    "offset of -1": (edit_step(RING, 0, 0, 0, dstoff=-1), "out-of-range"),
    "wait without a step": (edit_step(SUM, 0, 4, 1, deps=-1), "wait-incomplete"),
    "wait not announced": (edit_step(SUM, 0, 2, 0, hasdep=0), "wait-not-announced"),
    "wait for nobody": (edit_step(SUM, 0, 4, 1, depid=9), "wait-target"),
    "wait for threadblock 129": (to_xml(MANY), "wait-threadblock-id"),
    "fused reductions of two counts": (to_xml(TWICE), "reduce-fusion"),
    "empty range": (put(put(RING, 'minBytes="0"', 'minBytes="9"'), 'maxBytes="0"', 'maxBytes="8"'), "byte-range"),
    "range without a multiple": (
        put(put(RING, 'minBytes="0"', 'minBytes="5"'), 'maxBytes="0"', 'maxBytes="7"'),
        "byte-range",
    ),
    "block that ends in a chunk": (put(RING, 'nchunksperloop="4"', 'nchunksperloop="6"'), "chunk-division"),
    "two threadblocks on a connection": (put(A2A, 'send="2" recv="2"', 'send="1" recv="1"'), "duplicate-connection"),
    "step dropped": (re.sub(r' *<step s="4".*\n', "", RING, count=1), "unmatched-send"),
    "wait in a circle": (
        edit_step(edit_step(SUM, 0, 2, 0, depid=4, deps=1), 0, 4, 1, hasdep=1),
        "deadlock",
    ),
    "wrong chunk": (edit_step(A2A, 0, 0, 0, srcoff=2), "wrong-result"),
    "added twice": (edit_step(SUM, 0, 4, 2, srcoff=0), "double-contribution"),
    "wait taken away": (edit_step(SUM, 0, 4, 2, depid=-1, deps=-1), "race"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_fault_is_an_error_of_its_rule(name):
    text, rule = REFUSED[name]
    report = look(text)
    assert rule in errors(report)
    finding = next(finding for finding in report.findings if finding.rule == rule)
    assert finding.severity == RULES[rule].severity
    assert finding.line is not None


WARNED = {
    "small LL chunks": (put(RING, "Simple", "LL"), "min-bytes"),
    "long name": (put(RING, "handmade", "h" * 64), "limit-name"),
    "not ASCII": (put(RING, "handmade", "händmade"), "xml-non-ascii"),
    "declared chunks": (put(RING, 'o_chunks="4"', 'o_chunks="5"'), "chunk-counts"),
    "any root": (to_xml(chain_broadcast(3)), "any-root"),
}


@pytest.mark.parametrize("name", WARNED)
def test_each_doubt_is_a_warning_of_its_rule(name):
    text, rule = WARNED[name]
    assert [(finding.rule, finding.severity) for finding in look(text).findings] == [(rule, "warning")]


def test_a_late_announcement_is_a_warning():
    made = program(
        make_collective("allreduce", 1, 1),
        lambda _: [
            block(None, None, copy(i(0), s(0)), copy(i(0), s(1))),
            block(None, None, copy(s(0), o(0), after=((0, 0),))),
        ],
        scratch=2,
    )
    late = edit_step(edit_step(to_xml(made), 0, 0, 0, hasdep=0), 0, 0, 1, hasdep=1)
    report = look(late)
    assert rules(report) == {"wait-announced-late"}
    assert report.file.programs[0].gpus[0].threadblocks[1].instructions[0].after == ((0, 1),)


def test_fused_reductions_announce_together():
    made = program(
        make_collective("allreduce", 2, 1, inplace=True),
        lambda rank: [
            block(1 - rank, 1 - rank, send(i(0)), recv(s(0))),
            block(None, None, reduce(s(0), i(0), after=((0, 1),)), reduce(s(1), i(0))),
        ],
        scratch=2,
    )
    # Nobody writes s[1]; what counts here is that a wait for either reduction names the second.
    text = edit_step(to_xml(made), 0, 1, 1, hasdep=1)
    text = edit_step(text, 0, 0, 0, depid=1, deps=0)
    assert look(text).file.programs[0].gpus[0].threadblocks[0].instructions[0].after == ((1, 1),)
    assert "wait-announced-late" not in rules(look(text))


def test_more_attributes_and_elements_are_ignored():
    more = put(RING, "<algo ", '<algo redop="sum" ').replace("\n  <gpu", "\n  <note><tb/></note>\n  <gpu", 1)
    assert look("<!-- made by hand -->\n" + more).findings == ()


def test_missing_size_range_names_the_line_of_algo_and_the_rest_is_still_judged():
    old = put(put(put(SUM, ' minBytes="0"', ""), ' maxBytes="0"', ""), ' outofplace="1"', "")
    report = look(edit_step("<!-- -->\n" + old, 0, 4, 2, srcoff=0))
    assert [finding.line for finding in report.findings if finding.rule == "attribute-missing"] == [2, 2, 2]
    assert "double-contribution" in rules(report)


def test_what_differs_between_runtimes():
    scattered = to_xml(ring_reduce_scatter(4), maxBytes=2**30)
    assert errors(look(scattered, EXECUTOR)) == set()
    assert errors(look(scattered, RCCL)) == {"step-type-unsupported"}
    assert errors(look(scattered, CLASSIC)) == {"collective-name"}
    assert errors(look(put(scattered, "reducescatter", "reduce_scatter"), CLASSIC)) == set()
    declared = put(scattered, 'o_chunks="1"', 'o_chunks="2"')
    assert errors(look(declared, CLASSIC)) == {"collective-name", "chunk-counts-refused"}
    assert errors(look(to_xml(MANY), RCCL)) >= {"limit-threadblocks"}


def test_limits_can_be_raised_and_channels_lowered():
    assert errors(look(to_xml(BIG), EXECUTOR.with_limits({"steps": 71}))) == set()
    report = look(put(RING, 'nchannels="1"', 'nchannels="24"'), max_channels=16)
    assert report.findings[0].rule == "limit-channels"
    assert "8 fewer" in report.findings[0].message


@pytest.mark.parametrize(("limit", "rule"), [("elements", "limit-elements"), ("ranks", "limit-ranks")])
def test_limits_of_the_reader(limit, rule):
    assert errors(look(RING, EXECUTOR.with_limits({limit: 3}))) == {rule}


def test_every_rule_has_a_test():
    told = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    mine = (*rule_book._PROGRAM, *rule_book._MSCCL)
    assert [rule for rule in mine if f'"{rule}"' not in told] == []


def test_a_third_unreceived_send_hangs_with_simple_and_a_ninth_with_ll():
    def exchange(count):
        return to_xml(all_programs()["wide_exchange"], maxBytes=2**20) if count == 2 else _exchange(count)

    assert errors(look(exchange(2))) == set()
    assert errors(look(exchange(3))) == {"fifo-depth"}
    assert errors(look(put(exchange(8), "Simple", "LL"))) == set()
    assert errors(look(put(exchange(9), "Simple", "LL"))) == {"fifo-depth"}


def _exchange(count):
    return to_xml(
        program(
            make_collective("allgather", 2, count),
            lambda rank: [
                block(
                    1 - rank,
                    1 - rank,
                    copy(i(0), o(rank * count), count),
                    *(send(i(at)) for at in range(count)),
                    *(recv(o((1 - rank) * count + at)) for at in range(count)),
                )
            ],
        )
    )


# --- hostile input ----------------------------------------------------------------------------------

VAST = put(RING, 'ngpus="4"', 'ngpus="1000"')
VAST = put(VAST, 'nchunksperloop="4"', 'nchunksperloop="32000"')
VAST = VAST[: VAST.index("  <gpu")] + "".join(
    f'<gpu id="{rank}" i_chunks="0" o_chunks="0" s_chunks="0"></gpu>\n' for rank in range(1000)
)


def _vast(shifts: bool) -> str:
    """Some 40 KB that move millions of chunks."""

    def blocks(rank):
        steps = [step for at in range(80) for step in (send(i(0), 32000), recv(s(at * shifts), 32000))]
        return [block(1 - rank, 1 - rank, *steps), block(None, None, copy(i(0), o(0), 32768))]

    return to_xml(program(make_collective("allreduce", 2, 32768), blocks, scratch=65536))


HOSTILE = {
    "a vast allgather": (VAST + "</algo>").encode(),
    "a vast allreduce": (put(VAST, "allgather", "allreduce") + "</algo>").encode(),
    "a vast alltoall": (put(VAST, "allgather", "alltoall") + "</algo>").encode(),
    "entity bomb": b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><algo>&b;</algo>',
    "external entity": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><algo>&x;</algo>',
    "entity bomb in UTF-16": '<!DOCTYPE a [<!ENTITY a "aa">]><algo>&a;</algo>'.encode("utf-16"),
    "entity bomb in EBCDIC": (
        b'<?xml version="1.0" encoding="cp037"?>' + '<!DOCTYPE a [<!ENTITY a "aa">]><algo>&a;</algo>'.encode("cp037")
    ),
    "line ends only": b"\n" * 10**7,
    "small comments": b"<!--a-->" * 2 * 10**6,
    "closing tags only": b"</a>" * 10**6,
    "a million attributes": b"<algo " + b" ".join(b'a%d="1"' % at for at in range(10**6)) + b"/>",
    "deep nesting": b"<algo>" * 100_000,
    "open tags only": b"<" * 10**6,
    "open comments": b"<!--" * 10**6,
    "quotes": b'<algo a="' * 10**5,
    "binary": bytes(range(256)) * 1000,
    "ranks without number": put(RING, 'ngpus="4"', 'ngpus="1000"').encode(),
    "huge rank": put(RING, '<gpu id="3"', '<gpu id="2147483647"').encode(),
    "huge scratch": put(RING, 's_chunks="0"', 's_chunks="1000000000"', 4).encode(),
    "huge count in a huge scratch": (
        put(
            edit_step(RING, 0, 0, 0, cnt=10**9, srcbuf="s", dstbuf="s", dstoff=1),
            's_chunks="0"',
            's_chunks="1000000001"',
            4,
        )
    ).encode(),
    "vast counts in few steps": _vast(False).encode(),
    "vast counts that shift": _vast(True).encode(),
    "huge count": put(RING, 'cnt="1"', 'cnt="1000000000"', 99).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_judged_in_bounded_time(name):
    started = time.process_time()
    report = look(HOSTILE[name])
    assert time.process_time() - started < 2
    assert errors(report) or name == "huge scratch"


def test_hostile_files_are_judged_in_bounded_memory():
    # In a process of its own, which may have 400 MB of addresses in all; each file would take what it can.
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20));"
        "from test_verify_msccl_rules import HOSTILE, look; [look(text) for text in HOSTILE.values()]"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)


def test_more_than_can_be_checked_is_said_so():
    assert errors(look(HOSTILE["a vast allreduce"])) == {"not-judged"}
    assert "not-judged" in errors(look(HOSTILE["huge count in a huge scratch"]))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((RING, SUM, A2A)), st.sampled_from((EXECUTOR, RCCL, CLASSIC)))
def test_any_damage_to_the_text_gets_a_verdict(seed, text, runtime):
    chance = random.Random(seed)
    raw = bytearray(text.encode())
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(raw))
        if chance.random() < 0.5:
            del raw[at : at + chance.randrange(1, 20)]
        else:
            raw[at : at + chance.randrange(2)] = bytes([chance.choice(b'<>"/= \n\t0123456789-xab&\x00\xff')])
    report = look(bytes(raw), runtime)
    for served in report.file.programs if report.file and not errors(report) else ():
        assert run(served, seed, report.fifo_depth_needed).is_right


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict(raw):
    assert errors(look(raw))


@given(st.text(alphabet="-+0123456789abxX \t", max_size=8))
def test_numbers_are_read_as_c_reads_them(text):
    value, is_plain = c_number(text)
    if is_plain:
        assert str(value) == text
    else:
        assert re.fullmatch(r"0|-?[1-9][0-9]*", text) is None


def test_files_with_random_faults_are_caught_or_harmless():
    chance = random.Random(7)
    texts = [to_xml(made) for made in all_programs().values()]
    verdicts = {True: 0, False: 0}
    for index in range(300):
        report = look(damage(texts[index % len(texts)], chance), fifo_depth=64)
        is_clean = not errors(report)
        verdicts[is_clean] += 1
        for seed in range(6) if is_clean else ():
            assert all(run(served, seed, report.fifo_depth_needed).is_right for served in report.file.programs)
    assert min(verdicts.values()) > 20, verdicts
