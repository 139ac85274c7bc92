"""The reader of tuner tables: the grammar, what exists, overlaps, gaps, and how the dialects differ."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli_verify import report, rules, run

from collc.runtimes import tuners, with_limits
from collc.verify import formats, nccl_tuner

NVIDIA, EXAMPLE, BUILT_IN = (tuners.load(name) for name in ("tuner", "tuner-rccl-example", "tuner-rccl"))
END = 2**64 - 1


def judge(text: str, dialect=EXAMPLE):
    return nccl_tuner.examine(text.encode(), dialect)


def told(text: str, dialect=EXAMPLE) -> list[tuple[str, int]]:
    return [(finding.rule, finding.line) for finding in judge(text, dialect)[1]]


def message(text: str, dialect=EXAMPLE) -> str:
    (finding,) = judge(text, dialect)[1]
    return finding.message


# --- the grammar: each of these was seen to be read as something else by the plugin's own reader ----


@pytest.mark.parametrize(
    ("line", "rule", "column"),
    [
        ("allReduce,0,9,ring,ll,4,1,8", "tuner-word", 1),
        ("sum,0,9,ring,ll,4,1,8", "tuner-word", 1),
        ("allreduce,0,9,Ring,ll,4,1,8", "tuner-word", 15),
        ("allreduce,0,9,ring,LL,4,1,8", "tuner-word", 20),
        ("allreduce,0,9, ring,ll,4,1,8", "tuner-word", 15),
        ("allreduce,0,1M,ring,ll,4,1,8", "tuner-number", 13),
        ("allreduce,0,010,ring,ll,4,1,8", "tuner-number", 13),
        ("allreduce,-1,9,ring,ll,4,1,8", "tuner-number", 11),
        ("allreduce,0,18446744073709551616,ring,ll,4,1,8", "tuner-number", 13),
        ("allreduce,0,9,ring,ll,4,0,8", "tuner-number", 25),
        ("allreduce,0,9,ring,ll,4,1,8,-1,2", "tuner-number", 32),
        ("allreduce,0,9,ring,ll,4,1", "tuner-columns", 1),
        ("allreduce,0,9,ring,ll,4,1,8,1,1,1", "tuner-columns", 1),
        ("allreduce,,9,ring,ll,4,1,8", "tuner-empty-field", 11),
        ("allreduce,0,9,ring,ll,4,1,8,", "tuner-empty-field", 29),
        ("collective_type,min_bytes,max_bytes", "tuner-header", 1),
        ("allreduce,0,9,ring,ll,4,1,8 # fast", "tuner-comment", 29),
        (" # indented", "tuner-comment", 2),
        ("allreduce,0,9,ring,ll,-2,1,8", "tuner-number", 23),
        ("allreduce,0,9,ring,ll,129,1,8", "tuner-channels", 23),
        ("allreduce,9,0,ring,ll,4,1,8", "tuner-range", 11),
    ],
)
def test_what_a_line_may_not_say(line, rule, column):
    findings = judge(f"# first\nallreduce,100,200,ring,ll,4,1,8\n{line}\n")[1]
    assert [(f.rule, f.line, f.column) for f in findings] == [(rule, 3, column)]


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,0,9,ring,ll,4,1,8",
        "allreduce,0,9,ring,ll,4,-1,-1",
        "allreduce,0,9,ring,ll,-1,1,8,-1",
        f"allreduce,0,{END},ring,ll,4,1,8,2,0",
        "allreduce,7,7,nvls_tree,simple,128,1,8,-1,1",
    ],
)
def test_what_a_line_may_say(line):
    assert told(line) == []
    assert told(line + "\r") == []
    assert told("# " + "-" * 253 + "\n\n" + line) == []
    assert told("# " + "-" * 254 + "\n" + line) == [("tuner-long-line", 1)]


def test_what_a_word_becomes_is_told():
    assert "the reader takes it for allreduce" in message("gather,0,9,ring,ll,4,1,8")
    assert "did you mean 'ring'?; the reader takes it for ring" in message("allreduce,0,9,rings,ll,4,1,8")
    assert "the reader takes it for simple" in message("allreduce,0,9,ring,eager,4,1,8")
    assert "the line is left out" in message("gather,0,9,ring,ll,4,1,8", BUILT_IN)


# --- what exists ---------------------------------------------------------------------------------

# The library's own table of costs: which entries it fills in.
EXISTS = {
    "broadcast": {"ring": "ll ll128 simple"},
    "reduce": {"ring": "ll ll128 simple"},
    "allgather": {"ring": "ll ll128 simple", "pat": "simple", "nvls": "simple", "collnet_direct": "simple"},
    "reducescatter": {"ring": "ll ll128 simple", "pat": "simple", "nvls": "simple", "collnet_direct": "simple"},
    "allreduce": {
        "ring": "ll ll128 simple",
        "tree": "ll ll128 simple",
        **dict.fromkeys(("nvls", "nvls_tree", "collnet_direct", "collnet_chain"), "simple"),
    },
}


@pytest.mark.parametrize("dialect", [NVIDIA, EXAMPLE, BUILT_IN], ids=lambda dialect: dialect.name)
def test_lines_the_library_cannot_run_are_named(dialect):
    for collective in dialect.collectives.values():
        for algorithm in dialect.algorithms:
            for protocol in dialect.protocols:
                line = f"{collective},0,{END},{algorithm},{protocol},16,1,8"
                exists = protocol in EXISTS[collective].get(algorithm, "").split()
                assert (("tuner-unavailable", 1) in told(line, dialect)) != exists, line


def test_a_line_that_never_applies_wins_nothing():
    """The pair nvls with ll is passed over, and a later line that matches is taken."""
    lines = "allreduce,0,1048576,nvls,ll,16,1,8\nallreduce,0,1048576,ring,ll,16,1,8\n"
    assert told(lines) == [("tuner-unavailable", 1)]
    (line,) = judge(lines)[0].lines
    assert (line.number, line.choice) == (2, "ring/ll")


# --- overlaps ------------------------------------------------------------------------------------


def test_closed_ends_overlap_and_the_first_wins():
    lines = "allreduce,0,65536,tree,ll,8,-1,-1\nallreduce,65536,1048576,ring,ll,8,-1,-1\n"
    assert told(lines) == [("tuner-overlap", 2)]
    assert message(lines) == ("allreduce of 65536 to 65536 bytes is also served by line 1; line 1 wins with tree/ll")
    assert message(lines, BUILT_IN).endswith("which wins is not known")
    assert told(lines.replace("\nallreduce,65536", "\nallreduce,65537")) == []


@pytest.mark.parametrize(
    ("first", "second", "rule"),
    [
        ("-1,-1", "4,32", "tuner-overlap"),
        ("4,32", "4,-1", "tuner-overlap"),
        ("4,-1", "-1,32", "tuner-overlap"),
        ("4,32", "8,32", None),
        ("4,32,1", "4,32,2", None),
        ("4,32,-1,0", "4,32,-1,1", None),
        ("4,32,1", "4,32", "tuner-overlap"),
    ],
)
def test_lines_meet_where_their_columns_do(first, second, rule):
    lines = f"allreduce,0,65536,tree,ll,8,{first}\nallreduce,32768,1048576,ring,ll,8,{second}\n"
    assert told(lines) == ([(rule, 2)] if rule else [])
    assert told(lines.replace("\nallreduce", "\nallgather")) == []


def test_lines_behind_others_never_apply():
    wide = "allreduce,0,65535,ring,ll,8,-1,-1\nallreduce,65536,131072,ring,simple,8,-1,-1\n"
    assert told(wide + "allreduce,100,131072,tree,ll,8,4,32\n") == [("tuner-shadowed", 3)]
    assert ("tuner-shadowed", 3) not in told(wide + "allreduce,100,131073,tree,ll,8,4,32\n")
    assert told("allreduce,100,200,tree,ll,8,4,32\n" + wide) == [("tuner-overlap", 2)]
    narrow = "allreduce,0,65535,ring,ll,8,4,32\n"
    assert told(narrow + "allreduce,0,65535,ring,ll,8,-1,-1\n") == [("tuner-overlap", 2)]


boxes = st.tuples(
    st.integers(0, 12), st.integers(0, 6), st.sampled_from(["-1", "1", "2"]), st.sampled_from(["-1", "8"])
)


@settings(max_examples=150, deadline=None)
@given(st.lists(boxes, min_size=1, max_size=6))
def test_findings_agree_with_asking_for_every_call(rows):
    """The plugin's rule, the first line that matches, tried on every call there is in a small world."""
    text = "".join(f"allreduce,{low},{low + span},ring,ll,4,{nodes},{ranks}\n" for low, span, nodes, ranks in rows)
    findings = judge(text)[1]
    served: dict[int, set[tuple[int, int, int]]] = {index: set() for index in range(len(rows))}
    met = set()
    for nbytes in range(20):
        for nodes in (1, 2, 3):
            for ranks in (8, 16):
                fits = [
                    index
                    for index, (low, span, node, rank) in enumerate(rows)
                    if low <= nbytes <= low + span and node in ("-1", str(nodes)) and rank in ("-1", str(ranks))
                ]
                if fits:
                    served[fits[0]].add((nbytes, nodes, ranks))
                met |= {line + 1 for line in fits[1:]}
    dead = {index + 1 for index, calls in served.items() if not calls}
    told_dead = {finding.line for finding in findings if finding.rule == "tuner-shadowed"}
    assert told_dead <= dead
    # A line that only several others with narrower columns cover together is told as overlapping.
    assert {finding.line for finding in findings if not finding.message.startswith("and ")} == met


# --- calls that no line serves -------------------------------------------------------------------


def full(*, without: str = "") -> str:
    names = [name for name in NVIDIA.collectives.values() if name != without]
    return "".join(f"{name},0,{END},ring,simple,16,-1,-1\n" for name in names)


def test_uncovered_calls_run_on_one_channel_with_nvidias_plugin_alone():
    assert told(full(), NVIDIA) == []
    assert told(full(without="reduce"), NVIDIA) == [("tuner-uncovered", 1)]
    assert message(full(without="reduce"), NVIDIA) == "reduce has no line for 0 up bytes in general"
    assert told(full(without="reduce"), EXAMPLE) == told(full(without="reduce"), BUILT_IN) == []
    hole = full(without="reduce") + f"reduce,0,99,ring,ll,4,-1,-1\nreduce,200,{END},ring,ll,4,-1,-1\n"
    assert message(hole, NVIDIA) == "reduce has no line for 100 to 199 bytes in general"


def test_gaps_of_a_kind_of_call_of_its_own():
    special = full(without="reduce") + f"reduce,0,99,ring,ll,4,2,16\nreduce,0,{END},ring,ll,4,4,-1\n"
    assert (
        message(special, NVIDIA)
        == "reduce has no line for 0 up bytes in general; 100 up bytes with nNodes=2, nRanks=16"
    )


def test_channels_of_minus_one():
    line = f"reduce,0,{END},ring,ll,-1,-1,-1\n"
    assert told(full(without="reduce") + line, NVIDIA) == [("tuner-one-channel", 5)]
    assert told(line, EXAMPLE) == told(line, BUILT_IN) == []


def test_an_end_that_is_none():
    assert told("allreduce,0,4294967295,ring,ll,4,1,8") == [("tuner-infinity", 1)]


def test_a_table_without_lines():
    for text in ("# nothing\n", "\n", "# a\n# b\n"):
        assert told(text) == told(text, NVIDIA) == [("tuner-no-lines", 1)]


# --- dialects and the command line ---------------------------------------------------------------


def test_columns_that_one_dialect_has():
    line = "allreduce,0,9,ring,ll,4,1,8,-1,-1,cpx,-1"
    assert told(line, BUILT_IN) == []
    assert told(line, EXAMPLE) == [("tuner-columns", 1)]
    assert told(line.replace("cpx", "dpx"), BUILT_IN) == [("tuner-word", 1)]


def test_tables_are_told_by_content_and_read_as_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t").write_text("# any name\n" + full())
    (entry,) = report("t")["files"]
    assert (entry["format"], entry["runtime"], entry["runtime_guessed"], entry["ok"]) == (
        "tuner-csv",
        "tuner",
        True,
        True,
    )
    assert report("t", "--runtime", "tuner-rccl")["files"][0]["runtime_guessed"] is False
    assert run("t", "--runtime", "executor").exit_code == 2
    Path("t").write_text("allreduce,0,9,ring,ll\n")
    assert run("t").exit_code == 2
    assert rules(report("t", "--runtime", "tuner")) >= {"tuner-columns"}
    Path("t").write_text(full() + "reduce,1,2,ring,ll,100,-1,-1\n")
    assert rules(report("t", "--limit", "channels=128")) == {"tuner-shadowed"}
    assert rules(report("t")) == {"tuner-channels"}
    Path("t").write_text("")
    assert run("t", "--runtime", "tuner").exit_code == 2
    assert formats.detect(b"a,b,c,d,e,f\0") == "unknown"


def test_limits_of_a_dialect():
    assert with_limits(NVIDIA, {"line": 80}).max_line == 80


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="allreducing,,,,-0123456789#\n\r \0\u00e9", max_size=120), st.sampled_from((NVIDIA, BUILT_IN)))
def test_any_text_gets_a_verdict(text, dialect):
    for finding in judge(text, dialect)[1]:
        assert finding.line is None or 1 <= finding.line <= text.count("\n") + 1


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_lines_get_a_verdict(seed):
    chance = random.Random(seed)
    raw = bytearray(full().encode())
    for _ in range(chance.randrange(1, 8)):
        raw[chance.randrange(len(raw))] = chance.choice(b"\n,-#0a\xff ")
    nccl_tuner.examine(bytes(raw), NVIDIA)


def test_hostile_tables_are_judged_in_bounded_time():
    nested = "".join(f"allreduce,{at},{10**6 - at},ring,ll,4,-1,-1\n" for at in range(20_000))
    kinds = "".join(f"allreduce,{at},{at},ring,ll,4,{at + 1},-1\n" for at in range(20_000))
    commas = "," * 2_000_000
    started = time.process_time()
    assert ("not-judged") in {rule for rule, _ in told(nested, NVIDIA)}
    told(kinds, NVIDIA)
    told(commas, NVIDIA)
    assert time.process_time() - started < 10


# --- the published table -------------------------------------------------------------------------


def test_the_published_table_holds_lines_that_never_apply(shared):
    path = shared / "corpus" / "tuner" / "nccl_tuner.conf"
    for name in ("tuner", "tuner-rccl", "tuner-rccl-example"):
        findings = report(path, "--runtime", name)["files"][0]["findings"]
        errors = {(f["rule"], f["line"]) for f in findings if f["severity"] == "error"}
        # Broadcast, reduce-scatter and reduce with tree.
        assert errors == {("tuner-unavailable", line) for line in (30, 40, 45)}
        assert ("tuner-uncovered" in {f["rule"] for f in findings}) == (name == "tuner")
