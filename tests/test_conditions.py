"""Collectives of the user's own, in YAML: what they mean, where a mistake is, and files held against them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from handmade import block, copy, direct_alltoall, i, o, program, recv, reduce, s, send, to_xml
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli_verify import report, rules, run

from collc import runtimes
from collc.conditions import read_conditions, schema
from collc.errors import InputError
from collc.ir.collective import Places, alltoallv, make_collective
from collc.verify.msccl import examine

EXECUTOR, CLASSIC = runtimes.load("executor"), runtimes.load("classic")
HALO = """
name: halo
ranks: 3
chunks:
  - {precondition: {0: 0}, postcondition: {1: 0}}   # each rank's block goes to the next
  - {precondition: {1: 0}, postcondition: {2: 0}}
  - {precondition: {2: 0}, postcondition: {0: 0}}
"""


def halo_program(n=3):
    return program(
        make_collective("allreduce", n),
        lambda rank: [block((rank + 1) % n, (rank - 1) % n, send(i(0)), recv(o(0)))],
    )


# --- reading -------------------------------------------------------------------------------------


def test_a_table_is_read_as_it_says():
    made = read_conditions(HALO, "halo.yaml")
    assert (made.name, made.n_ranks, made.input_chunks, made.output_chunks) == ("halo", 3, 1, 1)
    assert [dict(chunk.precondition) for chunk in made.chunks] == [{0: 0}, {1: 0}, {2: 0}]
    assert [dict(chunk.postcondition) for chunk in made.chunks] == [{1: 0}, {2: 0}, {0: 0}]
    assert made.shift == (0, 0, 0)


def test_ranges_counts_and_buffers():
    text = """
    ranks: 4
    shift: 2
    output_chunks: 9
    chunks:
      - {precondition: {all: 1}, postcondition: {0-2: 0, 3: 4}, count: 3}
    """
    made = read_conditions(text, "c.yaml")
    (chunk,) = made.chunks
    assert chunk.precondition == Places((0, 1, 2, 3), (1, 1, 1, 1))
    assert chunk.postcondition == Places((0, 1, 2, 3), (0, 0, 0, 4))
    assert (made.name, made.input_chunks, made.output_chunks, made.shift) == ("custom", 4, 9, (2,) * 4)


@pytest.mark.parametrize("name", ["allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast", "gather"])
def test_the_known_collectives_can_be_written_down(name):
    known = make_collective(name, 3, 2)
    chunks = [
        {"precondition": dict(chunk.precondition), "postcondition": dict(chunk.postcondition)} for chunk in known.chunks
    ]
    document = {"ranks": 3, "chunks": chunks, "input_chunks": known.input_chunks, "output_chunks": known.output_chunks}
    made = read_conditions(yaml.safe_dump(document), "c.yaml")
    for mine, theirs in zip(made.chunks, known.chunks, strict=True):
        assert dict(mine.precondition) == dict(theirs.precondition)
        assert dict(mine.postcondition) == dict(theirs.postcondition)


ONE = "{precondition: {0: 0}, postcondition: {1: 0}}"
BROKEN = {
    "": "c.yaml: is empty; expected ranks and chunks",
    "ranks: 2": "c.yaml:1:1: key 'chunks' is missing",
    "- 1": "c.yaml:1:1: found a list; expected conditions: ranks and chunks",
    "ranks: 2\nchnks: []": "c.yaml:2:1: chnks: unknown key 'chnks'; did you mean 'chunks'?",
    "ranks: two\nchunks: []": "c.yaml:1:8: ranks: found 'two'; expected a number of ranks",
    "ranks: 0\nchunks: []": "c.yaml:1:8: ranks: found '0'; expected a number of ranks, from 1 to 1024",
    "ranks: 1.5\nchunks: []": "expected a number of ranks, from 1 to 1024",
    "ranks: 2\nchunks: []": "c.yaml:2:9: chunks: has 0 chunks; expected 1 to",
    "ranks: 2\nchunks:\n- {precondition: {0: 0}}": "c.yaml:3:3: chunks[0]: key 'postcondition' is missing",
    "ranks: 2\nchunks:\n- {precondition: {0: 0}, postcondition: {2: 0}}": "c.yaml:3:45: chunks[0].postcondition.2: "
    "'2': expected ranks from 0 to 1, the smaller first",
    "ranks: 2\nchunks:\n- {precondition: {0: 0}, postcondition: {1-0: 0}}": "'1-0': expected ranks from 0 to 1",
    "ranks: 2\nchunks:\n- {precondition: {x: 0}, postcondition: {1: 0}}": "'x' names no rank",
    "ranks: 2\nchunks:\n- {precondition: {0-: 0}, postcondition: {1: 0}}": "'0-' names no rank",
    "ranks: 2\nchunks:\n- {precondition: {}, postcondition: {1: 0}}": "names no rank; expected at least one",
    "ranks: 2\nchunks:\n- {precondition: {0: -1}, postcondition: {1: 0}}": "found '-1'; expected a slot, from 0 to",
    "ranks: 2\nchunks:\n- {precondition: {0: 0, all: 1}, postcondition: {1: 0}}": "rank 0 is named twice",
    f"ranks: 2\nchunks:\n- {ONE}\n- {ONE.replace('0: 0', '1: 0', 1)}": "c.yaml:4:3: chunks[1]: rank 1 slot 0 is "
    "asked to hold chunk 0 as well",
    f"ranks: 2\noutput_chunks: 1\nchunks:\n- {ONE[:-3]}1}}}}": "c.yaml:2:16: output_chunks: found '1'; expected 2 or "
    "more slots",
    "ranks: 1024\nchunks:\n- {precondition: {0: 0}, postcondition: {all: 0}, count: 1048576}": "output slots in all",
    "ranks: [": "not YAML: did not find",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_mistake_is_told_with_its_place(text):
    with pytest.raises(InputError) as caught:
        read_conditions(text, "c.yaml")
    assert BROKEN[text] in str(caught.value)
    assert str(caught.value).startswith("c.yaml")


def test_the_schema_takes_what_the_reader_takes():
    check = jsonschema.Draft202012Validator(schema())
    check.check_schema(schema())
    assert check.is_valid(json.loads(json.dumps(yaml.safe_load(HALO))))
    for broken in ({"ranks": 2}, {"ranks": 2, "chunks": [], "more": 1}, {"ranks": 0, "chunks": [{}]}):
        assert not check.is_valid(broken)
    printed = run("--conditions-schema")
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == schema()


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ranks: chu{}[]0123-,all\n\t'&*", max_size=80))
def test_any_text_is_read_or_refused(text):
    for whole in (text, HALO + text, HALO.replace("{0: 0}", text)):
        try:
            made = read_conditions(whole, "c.yaml")
        except InputError as error:
            assert str(error).startswith("c.yaml")
        else:
            assert made.chunks


# --- files held against them ---------------------------------------------------------------------


def judge(text: str, conditions: str, runtime=EXECUTOR):
    return {
        finding.rule
        for finding in examine(text.encode(), runtime, asked=read_conditions(conditions, "c.yaml")).findings
    }


def test_a_file_is_held_against_the_table_and_not_its_label():
    labelled = to_xml(halo_program())
    assert "missing-contribution" in {finding.rule for finding in examine(labelled.encode(), EXECUTOR).findings}
    assert judge(labelled, HALO) == set()
    swapped = HALO.replace("{1: 0}}", "{9}").replace("{2: 0}}", "{1: 0}}").replace("{9}", "{2: 0}}")
    assert "wrong-result" in judge(labelled, swapped)


def test_slots_of_the_table_are_equally_many_chunks_of_the_file():
    twice = to_xml(halo_program()).replace('nchunksperloop="1"', 'nchunksperloop="2"').replace('cnt="1"', 'cnt="2"')
    assert judge(twice.replace('_chunks="1"', '_chunks="2"'), HALO) == set()
    two = HALO.replace("ranks: 3", "ranks: 3\ninput_chunks: 2")
    assert judge(to_xml(halo_program()), two) == {"collective-shape"}
    assert judge(to_xml(halo_program(4)), HALO) == {"collective-shape"}


def test_sums_that_no_collective_is_named_for():
    """Two ranks add up for rank 0 alone, while rank 2 keeps to itself."""
    made = program(
        make_collective("allreduce", 3),
        lambda rank: [
            [block(None, 1, copy(i(0), o(0)), recv(s(0)), reduce(s(0), o(0)))],
            [block(0, None, send(i(0)))],
            [block(None, None, copy(i(0), o(0)))],
        ][rank],
        scratch=1,
    )
    text = """
    ranks: 3
    chunks:
      - {precondition: {0: 0, 1: 0}, postcondition: {0: 0}}
      - {precondition: {2: 0}, postcondition: {2: 0}}
    """
    assert judge(to_xml(made), text) == set()
    # Rank 1 adds into rank 0 what the table does not ask for: first as a slot that is nobody's, then as rank 2's.
    alone = text.replace("{0: 0, 1: 0}", "{0: 0}")
    assert judge(to_xml(made), alone) == {"uninitialized-read"}
    assert judge(to_xml(made), alone.replace("{2: 0}, post", "{1: 0}, post")) >= {"wrong-result"}
    assert judge(to_xml(made).replace('type="cpy"', 'type="re"', 1), text) == {"uninitialized-read"}


def test_in_place_the_table_says_where_the_input_lies():
    made = program(
        make_collective("allreduce", 3, inplace=True),
        lambda rank: [block((rank + 1) % 3, (rank - 1) % 3, send(i(0)), recv(o(0)))],
    )
    flags = to_xml(made).replace('inplace="0" outofplace="1"', 'inplace="1" outofplace="0"')
    # One threadblock sends before it overwrites; so it is right for one buffer too.
    assert judge(flags, HALO) == set()
    far = HALO + "shift: 1\noutput_chunks: 2\n"
    assert judge(flags.replace('nchunksperloop="1"', 'nchunksperloop="2"'), far) == set()


def test_a_name_that_says_nothing_needs_conditions():
    custom = (
        to_xml(halo_program()).replace('coll="allreduce"', 'coll="custom"').replace('maxBytes="0"', 'maxBytes="99999"')
    )
    found = examine(custom.encode(), CLASSIC).findings
    assert [finding.rule for finding in found] == ["not-judged"]
    assert "--conditions" in found[0].message
    assert judge(custom, HALO, CLASSIC) == set()
    assert judge(custom, HALO, EXECUTOR) == {"collective-unused"}


def test_conditions_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("halo.xml").write_text(to_xml(halo_program()))
    Path("halo.yaml").write_text(HALO)
    Path("bad.yaml").write_text("ranks: 3\n")
    for words in (["--conditions", "halo.yaml"], ["-c", "halo.yaml"]):
        (entry,) = report("halo.xml", *words)["files"]
        assert (entry["ok"], entry["collective"]) == (True, "halo")
    (entry,) = report("halo.xml", "-c", "halo.yaml", "-t", "ring:gpus=3")["files"]
    assert entry["algbw_GBps"] > 0
    assert entry["bound_algbw_GBps"] >= entry["algbw_GBps"]
    assert run("halo.xml", "-c", "bad.yaml").stderr == "collc: bad.yaml:1:1: key 'chunks' is missing\n"
    assert run("halo.xml", "-c", "none.yaml").exit_code == 2
    assert run("halo.xml", "-c", "halo.yaml", "--conditions", "halo.yaml").exit_code == 2


# --- all-to-all-v --------------------------------------------------------------------------------

DEMAND = [[1, 2, 0], [0, 0, 1], [1, 0, 0]]


def alltoallv_program():
    """Everybody sends what the demand says; blocks lie one after another."""
    sent = [[sum(row[:dst]) for dst in range(3)] for row in DEMAND]
    got = [[sum(DEMAND[other][dst] for other in range(src)) for dst in range(3)] for src in range(3)]

    def blocks(rank):
        made = []
        for peer in range(3):
            out, back = DEMAND[rank][peer], DEMAND[peer][rank]
            if peer == rank:
                made += [block(None, None, copy(i(sent[rank][peer]), o(got[rank][peer]), out))] if out else []
                continue
            steps = [send(i(sent[rank][peer]), out)] if out else []
            steps += [recv(o(got[peer][rank]), back)] if back else []
            if steps:
                made.append(block(peer if out else None, peer if back else None, *steps))
        return made

    return program(alltoallv(DEMAND), blocks)


def test_an_all_to_all_v_is_held_against_its_demand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = to_xml(alltoallv_program())
    Path("v.xml").write_text(made)
    Path("v.csv").write_text("\n".join(",".join(str(64 * count) for count in row) for row in DEMAND))
    Path("w.csv").write_text("64,64,64\n0,0,64\n64,0,0\n")
    # The runtime reads the name, passes a count of zero, and so never selects the file.
    assert rules(report("v.xml", "--runtime", "executor", "--demand", "v.csv")) == {"collective-unused"}
    other = rules(report("v.xml", "--runtime", "executor", "--demand", "w.csv"))
    assert other > {"collective-unused"}
    assert "wrong-result" in other or "missing-contribution" in other


def test_an_all_to_all_serves_a_demand_with_blocks_of_the_largest_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a2a.xml").write_text(to_xml(direct_alltoall(3)))
    Path("v.csv").write_text("10,20,0\n0,0,10\n10,0,0\n")
    Path("two.csv").write_text("1,2\n3,4\n")
    document = report("a2a.xml", "--demand", "v.csv")
    (finding,) = document["files"][0]["findings"]
    assert (finding["rule"], document["ok"]) == ("demand-padded", True)
    assert "move 3.6 times its bytes" in finding["message"]
    assert rules(report("a2a.xml", "--demand", "two.csv")) == {"demand-differs"}
