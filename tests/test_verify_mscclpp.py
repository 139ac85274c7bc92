"""The reader of MSCCL++ plans: what each version loads, what it names, hostile plans."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import star_fabric
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli_verify import report, rules, run

from collc.errors import InputError
from collc.ir.topology import Link, Topology
from collc.runtimes import plans, with_limits
from collc.verify import mscclpp
from collc.verify.examples import examples
from collc.verify.json_text import Entry, JsonError, loads

NEW, NINE, EIGHT = (plans.load(name) for name in ("mscclpp", "mscclpp-0.9", "mscclpp-0.8"))
PLAN: dict[str, Any] = json.loads(examples()["plan-value"].good["plan.json"])


def judge(plan: Any, runtime=NEW, **options):
    return mscclpp.examine(json.dumps(plan).encode(), runtime, **options)


def told(plan: Any, runtime=NEW) -> set[str]:
    return {finding.rule for finding in judge(plan, runtime)[1]}


def copied() -> dict[str, Any]:
    return json.loads(json.dumps(PLAN))


def block(plan: dict[str, Any], rank: int = 0) -> dict[str, Any]:
    return plan["gpus"][rank]["threadblocks"][0]


# --- versions ------------------------------------------------------------------------------------


def test_versions_differ_as_their_loaders_do():
    for word, known in (("recpkt", (NINE, NEW)), ("gstore", (NEW,)), ("re", (EIGHT, NINE, NEW)), ("glre", ())):
        for runtime in (EIGHT, NINE, NEW):
            assert (word in runtime.operations) == (runtime in known)
    empty = copied()
    empty["gpus"][0]["output_chunks"] = 0
    assert told(empty, NEW) == told(empty, NINE) == {"plan-zero-chunks"}
    assert told(empty, EIGHT) == set()


def test_the_upper_end_is_exclusive_in_0_8_alone():
    plan = {**copied(), "min_message_size": 64, "max_message_size": 64}
    assert told(plan, NEW) == set()
    assert told(plan, EIGHT) == {"plan-byte-range"}
    assert judge({**plan, "max_message_size": 65}, EIGHT)[0].max_bytes == 64


def test_words_of_0_7_are_named_with_what_they_are_called_now():
    for word, now in (("rs", "res"), ("rrcs", "rres"), ("tpkt", "upkt"), ("rspkt", "respkt")):
        plan = copied()
        block(plan)["ops"][3]["name"] = word
        (finding,) = judge(plan)[1]
        assert finding.rule == "plan-former-word"
        assert f"'{word}': called '{now}' since 0.8" in finding.message
    plan = copied()
    plan["gpus"][0]["channels"][0]["channel_type"] = "sm"
    assert "plan-former-word" in told(plan)


def test_versions_are_found_by_name():
    with pytest.raises(InputError, match="did you mean 'mscclpp"):
        plans.load("msccl++")
    assert with_limits(NEW, {"operations": 9}).max_operations == 9
    with pytest.raises(InputError, match="limit 'steps'"):
        with_limits(NEW, {"steps": 9})


# --- references and ranges -----------------------------------------------------------------------


def test_a_finding_knows_its_object():
    text = examples()["plan-range"].bad["plan.json"]
    ((finding),) = mscclpp.examine(text.encode(), NEW)[1]
    line = text.splitlines()[finding.line - 1]
    assert line[finding.column - 1 :].startswith('{"type": "s", "index": 1, "size": 2}')
    assert "reaches chunk 2 of rank 0 scratch, which has 2" in finding.message


def test_a_remote_buffer_has_the_size_of_its_owners():
    plan = copied()
    plan["gpus"][1]["scratch_chunks"] = 1
    messages = [finding.message for finding in judge(plan)[1] if finding.rule == "plan-range"]
    assert any("put reaches chunk 1 of rank 1 scratch" in message for message in messages)


def test_ids_count_within_the_threadblock_and_by_kind_of_channel():
    plan = copied()
    plan["gpus"][0]["channels"].append({"channel_type": "port", "connected_to": [1]})
    block(plan)["channels"].append({"channel_type": "port", "channel_ids": [0]})
    assert told(plan) == set()
    block(plan)["ops"][1].update(channel_type="port", channel_ids=[1])
    assert told(plan) == {"plan-channel-reference"}
    block(plan)["channels"][1]["channel_ids"] = [0, 1]
    assert told(plan) == {"plan-channel-reference"}


def test_a_buffer_is_reached_by_the_kinds_it_lists():
    plan = copied()
    block(plan)["remote_buffer_refs"][0]["access_channel_type"] = "port"
    assert told(plan) == {"plan-buffer-reference"}


def test_switch_channels_and_semaphores_are_looked_up():
    plan = copied()
    gpu = plan["gpus"][0]
    group = {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]}
    gpu["channels"].append(group)
    gpu["semaphores"] = [{"init_value": 0}]
    block(plan)["channels"].append({"channel_type": "switch", "channel_ids": [0]})
    operand = {"switch_channel_id": 0, "index": 0, "size": 1}
    load = {"name": "glres", "src_buff": [operand], "dst_buff": [operand], "channel_type": "switch"}
    block(plan)["ops"] += [load, {"name": "sem_acquire", "semaphore_ids": [0]}]
    assert told(plan) == set()
    operand["index"] = 2
    assert told(plan) == {"plan-range"}
    operand.update(index=0, switch_channel_id=1)
    assert told(plan) == {"plan-buffer-reference"}
    operand["switch_channel_id"] = 0
    block(plan)["ops"][-1]["semaphore_ids"] = [1]
    assert told(plan) == {"plan-buffer-reference"}
    group["rank_groups"][0]["ranks"] = [0, 2]
    assert "plan-rank" in told(plan)


def test_operations_inside_a_pipeline_count_and_are_checked():
    plan = copied()
    inner = {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}]}
    inner["dst_buff"] = [{"type": "s", "index": 0, "size": 1}]
    pipeline = {"name": "pipeline", "iter_context": {"unit_size": 1024, "num_chunks": 1}, "ops": [inner] * 59}
    block(plan)["ops"].append(pipeline)
    assert told(plan) == set()
    pipeline["ops"] = [inner] * 60
    assert told(plan) == {"plan-limit-operations"}
    pipeline["ops"] = [pipeline | {"ops": []}]
    assert "plan-operation" in told(plan)
    pipeline["ops"] = [inner | {"src_buff": [{"type": "i", "index": 9, "size": 1}]}]
    assert told(plan) == {"plan-range"}


@pytest.mark.parametrize(
    ("collective", "chunks", "is_right"),
    [
        ("allgather", (1, 2), True),
        ("allgather", (2, 2), False),
        ("reducescatter", (2, 1), True),
        ("reducescatter", (1, 2), False),
        ("alltoall", (2, 2), True),
        ("broadcast", (2, 4), False),
        ("sendrecv", (1, 5), True),
    ],
)
def test_chunks_of_input_and_output_are_of_one_size(collective, chunks, is_right):
    gpu = {"threadblocks": [], "channels": [], "remote_buffers": [], "scratch_chunks": 0}
    gpu |= dict(zip(("input_chunks", "output_chunks"), chunks, strict=True))
    plan = {**copied(), "collective": collective, "gpus": [{**gpu, "id": rank} for rank in (0, 1)]}
    assert told(plan) == (set() if is_right else {"plan-chunk-counts"})


# --- sizes ---------------------------------------------------------------------------------------


def test_sizes_are_multiples_of_aligned_chunks_of_both_buffers():
    gpu = {"input_chunks": 3, "output_chunks": 6, "scratch_chunks": 0, "threadblocks": [], "channels": []}
    gpu["remote_buffers"] = []
    plan = {**copied(), "collective": "allgather", "gpus": [{**gpu, "id": rank} for rank in (0, 1)]}
    read, findings = judge(plan, nbytes=(96, 100, 192, 2 << 20))
    # The output of 2 ranks has 6 chunks, each a multiple of 16 bytes.
    assert read.grain == 96
    assert [finding.rule for finding in findings] == ["size-not-served"] * 2
    assert "no multiple of 96 bytes" in read.why_not_served(100)
    assert "above the largest size" in read.why_not_served(2 << 20)
    assert judge({**plan, "min_message_size": 97})[0].why_not_served(96) == "below min_message_size 97"


def test_sizes_are_asked_for_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PLAN))
    document = report("p.json", "--sizes", "64,100")
    (entry,) = document["files"]
    assert (entry["format"], entry["runtime"], entry["runtime_guessed"]) == ("mscclpp-plan", "mscclpp", True)
    assert (entry["collective"], entry["ranks"], entry["in_place"], entry["out_of_place"]) == (
        "allreduce",
        2,
        True,
        False,
    )
    assert [size["served"] for size in entry["sizes"]] == [True, False]
    assert entry["multiple_bytes"] == 32
    assert "serves messages that are multiples of 32 bytes" in run("p.json").stdout
    assert rules(report("p.json", "-c", "allgather")) == {"collective-differs"}
    assert run("p.json", "--runtime", "executor").exit_code == 2


# --- fabrics -------------------------------------------------------------------------------------


def hosts(n_hosts: int, n_gpus: int, n_nics: int) -> Topology:
    """Hosts of GPUs on a switch, with NICs on one spine."""
    links, gpus, switches = [], [], ["spine"]
    for host in range(n_hosts):
        own = [f"h{host}.g{index}" for index in range(n_gpus)]
        nics = [f"h{host}.n{index}" for index in range(n_nics)]
        gpus += own
        switches += [*nics, f"h{host}.s"]
        ends = [(vertex, f"h{host}.s") for vertex in (*own, *nics)] + [(nic, "spine") for nic in nics]
        links += [Link(a, b, 1) for ends_ in ends for a, b in (ends_, ends_[::-1])]
    ranks = tuple(tuple(range(host * n_gpus, (host + 1) * n_gpus)) for host in range(n_hosts))
    return Topology("hosts", tuple(gpus), tuple(switches), tuple(links), ranks)


def channels(n_ranks: int, kind: str) -> mscclpp.Plan:
    """A plan in which every rank has a channel to every other."""
    gpus = [
        {
            "id": rank,
            "input_chunks": 1,
            "output_chunks": 1,
            "scratch_chunks": 0,
            "threadblocks": [],
            "channels": [{"channel_type": kind, "connected_to": [peer for peer in range(n_ranks) if peer != rank]}],
            "remote_buffers": [],
        }
        for rank in range(n_ranks)
    ]
    plan, findings = judge({**copied(), "gpus": gpus})
    assert findings == ()
    return plan


def test_memory_channels_stay_inside_a_host():
    assert mscclpp.fits(channels(4, "memory"), hosts(1, 4, 1)) == ()
    found = mscclpp.fits(channels(4, "memory"), hosts(2, 2, 2))
    assert {finding.rule for finding in found} == {"plan-memory-across-hosts"}
    assert "rank 0 of host 0 and rank 2 of host 1" in found[0].message
    assert {finding.rule for finding in mscclpp.fits(channels(3, "memory"), star_fabric(4))} == {"topology-ranks"}


def test_each_rank_needs_the_nic_of_its_number():
    """Two hosts of 4 GPUs and 1 NIC; one host of 12 GPUs."""
    assert mscclpp.fits(channels(8, "port"), hosts(2, 4, 4)) == ()
    found = mscclpp.fits(channels(8, "port"), hosts(2, 4, 1))
    assert [finding.rule for finding in found] == ["plan-nic-index"] * 2
    assert "host 0 has 4 ranks and 1 NICs; rank 1 takes NIC 1" in found[0].message
    assert [finding.rule for finding in mscclpp.fits(channels(12, "port"), hosts(1, 12, 12))] == ["plan-nic-index"]
    assert mscclpp.fits(channels(8, "port"), hosts(1, 8, 0)) == ()


# --- directories ---------------------------------------------------------------------------------


def test_plans_of_a_directory_do_not_overlap(tmp_path):
    for name, low, high in (("a", 0, 1024), ("b", 1024, 2048)):
        (tmp_path / f"{name}.json").write_text(
            json.dumps({**PLAN, "name": name, "min_message_size": low, "max_message_size": high})
        )
    assert rules(report(tmp_path)) == {"overlapping-ranges"}
    # In 0.8 the upper end is exclusive, so the two only touch.
    assert rules(report(tmp_path, "--runtime", "mscclpp-0.8")) == set()
    (tmp_path / "notes.txt").write_text("words\n")
    assert rules(report(tmp_path, "--runtime", "mscclpp-0.8")) == {"stray-file"}
    assert run(tmp_path, "--runtime", "mscclpp").exit_code == 1  # what is no plan is read as a broken one


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (b'{"gpus": [}', "no JSON: ", (1, 11)),
        (b'{\n "a": 1,\n "a": 2}', "key 'a' is given twice", (1, 1)),
        (b'{"a": NaN}', "'NaN' is no JSON number", (1, 1)),
        (b'{"a": "\xff"}', "no UTF-8", (1, 1)),
        (b"[" * 200_000, "nested too deeply", (1, 1)),
        (b'{"a": ' + b"9" * 5000 + b"}", "no JSON that can be read", (1, 1)),
        (b"", "no JSON: ", (1, 1)),
    ],
)
def test_text_that_is_no_json(text, message, place):
    with pytest.raises(JsonError) as caught:
        loads(text)
    assert message in caught.value.message
    assert caught.value.place == place
    assert {finding.rule for finding in mscclpp.examine(text, NEW)[1]} == {"plan-syntax"}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\{}[]\n\t,:\u00e9', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='ab"{', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(values, st.sampled_from([None, 1, "\t"]))
def test_every_object_knows_where_it_opens(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    read = loads(text.encode())
    assert read == value
    lines = text.split("\n")
    left, places = [read], []
    while left:
        item = left.pop()
        if isinstance(item, Entry):
            line, column = item.place
            assert lines[line - 1][column - 1] == "{"
            places.append(item.place)
        left += list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
    assert len(set(places)) == len(places)


# --- anything ------------------------------------------------------------------------------------

anything = (
    st.none() | st.booleans() | st.integers(-3, 70) | st.sampled_from([10**9, 2**64, -(10**30), "i", "port", [], {}])
)


@settings(max_examples=300, deadline=None)
@given(st.lists(anything, min_size=1, max_size=3), st.sampled_from((EIGHT, NINE, NEW)), st.data())
def test_a_plan_changed_anywhere_is_judged(put, runtime, data):
    plan = copied()
    for thing in put:
        at: Any = plan
        key = data.draw(st.sampled_from(sorted(at)))
        while isinstance(at[key], dict | list) and at[key] and data.draw(st.integers(0, 7)):
            at = at[key]
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if data.draw(st.booleans()) or isinstance(at, list):
            at[key] = thing
        else:
            del at[key]
    read, findings = judge(plan, runtime, nbytes=(0, 64, 10**9))
    if read:
        mscclpp.fits(read, hosts(2, 1, 1))
    assert all(finding.line for finding in findings if not finding.message.startswith("and "))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_plan_with_damaged_bytes_is_judged(data):
    raw = json.dumps(PLAN).encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw = raw[:at] + data.draw(st.binary(max_size=3)) + raw[at + data.draw(st.integers(0, 5)) :]
    mscclpp.examine(raw, NEW)


def test_hostile_plans_are_judged_in_bounded_time():
    many = copied()
    many["gpus"][0]["channels"][0]["connected_to"] = [1] * 200_000
    many["gpus"][0]["threadblocks"] = [block(copied()) | {"id": index} for index in range(2000)]
    wide = copied()
    wide["gpus"] = [PLAN["gpus"][0] | {"id": rank, "input_chunks": rank + 1} for rank in range(500)]
    huge = copied()
    huge["gpus"][0].update(input_chunks=10**9, scratch_chunks=2**63)
    started = time.process_time()
    for plan in (many, wide, huge):
        judge(plan)
    assert time.process_time() - started < 4


# --- published plans -----------------------------------------------------------------------------


def test_published_plans_are_judged_as_the_loader_does(shared):
    """Ten of eleven load; the pipeline one has no output chunks and dies in the loader."""
    for path in sorted((shared / "corpus" / "mscclpp-plans").glob("*.json")):
        for name in ("mscclpp", "mscclpp-0.9", "mscclpp-0.8"):
            document = report(path, "--runtime", name)
            errors = {f["rule"] for f in document["files"][0]["findings"] if f["severity"] == "error"}
            expected = set()
            if path.name == "allreduce_pipeline.json":
                expected = {"plan-key-missing"} | ({"plan-zero-chunks"} if name != "mscclpp-0.8" else set())
            elif name == "mscclpp-0.8" and path.name in ("reduce_pack.json", "reduce_pack_tbg.json"):
                expected = {"plan-operation"}  # recspkt came with 0.9
            assert errors == expected, (path.name, name)
            assert rules(document) - errors == {"plan-offset-wraps"}
