"""`collc explain`: which file a call uses and why not the others, held against a library played by other code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import stub_library
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from collc import runtimes
from collc.cli import collc
from collc.launch import files as launch_files
from collc.launch.call import Call
from collc.launch.files import read_all
from collc.launch.select import RULES, select
from collc.runtimes import launch
from collc.verify.rules import RULES as VERIFY_RULES

ALGO = {
    "name": "t",
    "proto": "Simple",
    "nchannels": "1",
    "nchunksperloop": "8",
    "ngpus": "8",
    "coll": "allreduce",
    "inplace": "1",
    "outofplace": "1",
    "minBytes": "0",
    "maxBytes": "0",
}


def xml(n_gpus: int | None = None, body: str | None = None, **changed: object) -> str:
    """A file of that head (None leaves an attribute out) which does nothing."""
    algo = {key: value for key, value in {**ALGO, **changed}.items() if value is not None}
    head = " ".join(f'{key}="{value}"' for key, value in algo.items())
    n = n_gpus if n_gpus is not None else int(str(algo.get("ngpus", 8)))
    gpus = "".join(f'  <gpu id="{r}" i_chunks="0" o_chunks="0" s_chunks="0">\n  </gpu>\n' for r in range(n))
    return f"<algo {head}>\n{gpus if body is None else body}</algo>\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "algorithms").mkdir()
    return tmp_path / "algorithms"


def put(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.xml").write_text(text)


def run(*words: object, env: dict[str, str] | None = None) -> Result:
    result = CliRunner().invoke(collc, ["explain", *map(str, words)], env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def explain(folder: Path, *words: object) -> dict:
    """The one call of the JSON document; allreduce of 1 MiB on 8 ranks, out of place, unless other words come last."""
    given = {"-c": "allreduce", "--ranks": 8, "--bytes": "1MiB", "--runtime": "executor"}
    given |= dict(zip(words[::2], words[1::2], strict=True)) if words and len(words) % 2 == 0 else {}
    flags = [] if len(words) % 2 == 0 else list(words)
    result = run("--dir", folder, *(w for pair in given.items() for w in pair), *flags, "--out-of-place", "--json")
    assert result.exit_code == 0, result.stderr
    calls = json.loads(result.stdout)["calls"]
    return calls[0]


def ruled(call: dict) -> dict[str, str | None]:
    """File -> the rule by which it was passed over."""
    return {Path(file["path"]).stem: file["rule"] for file in call["files"]}


# --- each rule -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "changed", "words"),
    [
        ("ranks", {"ngpus": 4}, []),
        ("collective", {"coll": "broadcast"}, []),
        ("collective", {"coll": "alltoallv"}, []),
        ("in-place", {"outofplace": 0}, []),
        ("size-range", {"minBytes": 2 << 20}, []),
        ("size-range", {"maxBytes": (1 << 20) - 1}, []),
        ("divisibility", {"nchunksperloop": 3}, []),
        ("op", {}, ["--op", "avg"]),
        ("size-range", {}, ["--bytes", 0]),
        ("dtype", {}, ["--dtype", "fp8", "--runtime", "rccl"]),
        ("dtype", {}, ["--dtype", "bf16", "--runtime", "rccl", "--bytes", "16MiB"]),
        ("dtype", {}, ["--dtype", "fp8", "--runtime", "classic"]),
        ("channels", {"nchannels": 24}, ["--runtime", "rccl", "--max-channels", 16]),
        ("process-model", {}, ["--procs-per-host", 1]),
        ("process-model", {}, ["--procs-per-node", 1, "--runtime", "rccl"]),
    ],
)
def test_the_first_rule_by_which_a_file_is_passed_over(folder, rule, changed, words):
    put(folder, a=xml(**changed))
    call = explain(folder, *words)
    assert ruled(call) == {"a": rule}
    assert (call["selected"], call["own_algorithm"], call["fails"]) == (None, True, None)


@pytest.mark.parametrize("runtime", ["executor", "rccl", "classic"])
def test_a_file_that_fits_is_used(folder, runtime):
    put(folder, a=xml(nchannels=24, maxBytes=2**40, inplace=int(runtime != "classic")))
    for words in ([], ["--bytes", "8MiB", "--dtype", "bf16"], ["--op", "max", "--procs-per-host", 8]):
        call = explain(folder, *words, "--runtime", runtime)
        assert (call["selected"], call["own_algorithm"]) == (str(folder / "a.xml"), False)
        assert ruled(call) == {"a": None}


def test_every_rule_id_is_met_by_a_test():
    source = Path(__file__).read_text()
    assert {rule for rule in RULES if f'"{rule}"' in source} == set(RULES)
    assert set(VERIFY_RULES) >= launch_files.PARSER_REFUSES


def test_a_single_process_is_told_what_to_do(folder):
    put(folder, a=xml())
    [file] = explain(folder, "--procs-per-host", 1, "--runtime", "rccl")["files"]
    assert (
        "rccl skips MSCCL unless single-process mode is enabled (RCCL_MSCCL_ENABLE_SINGLE_PROCESS=1" in file["reason"]
    )
    words = ("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", "1MiB", "--procs-per-host", 1, "--runtime", "rccl")
    assert "uses " in run(*words, "--single-process", "--runtime-version", "2.28").stdout
    # As many hosts as ranks: one GPU each, and nothing to complain of.
    assert "uses " in run(*words, "--hosts", 8, "--runtime-version", "2.28").stdout


def test_bfloat16_is_scheduled_up_to_8_mib_and_only_allreduce_is_not(folder):
    put(folder, a=xml(), b=xml(coll="reduce"))
    assert explain(folder, "--dtype", "bf16", "--runtime", "rccl", "--bytes", "8MiB")["selected"]
    words = ("-c", "reduce", "--dtype", "bf16", "--runtime", "rccl", "--bytes", "16MiB")
    assert Path(explain(folder, *words)["selected"]).stem == "b"
    assert explain(folder, "--dtype", "fp8", "--runtime", "rccl", "--runtime-version", "2.21")["selected"]


def test_the_executor_runs_fp8_and_is_known_to_get_it_wrong(folder):
    put(folder, a=xml())
    call = explain(folder, "--dtype", "fp8")
    assert call["selected"]
    assert any("should not be scheduled" in warning for warning in call["warnings"])


# --- order, and files that spoil others ------------------------------------------------------------


def test_the_first_of_two_by_path_or_any_by_the_host(folder):
    put(folder, b=xml(), a=xml())
    call = explain(folder)
    assert ruled(call) == {"a": None, "b": "later"}
    old = explain(folder, "--runtime", "rccl", "--runtime-version", "2.21.5")
    assert ruled(old) == {"a": "ambiguous", "b": "ambiguous"}
    assert (old["selected"], old["own_algorithm"]) == (None, False)
    assert [Path(path).stem for path in old["ambiguous"]] == ["a", "b"]
    # Without a version, the old ones are shown as well, as they do something else.
    result = run("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024, "--runtime", "rccl", "--in-place")
    assert "by rccl 2.28:\n  uses " in result.stdout
    assert "by rccl 2.21:\n  may use any of 2 files" in result.stdout


def test_one_file_is_the_same_for_all_versions(folder):
    put(folder, a=xml())
    result = run("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024, "--runtime", "rccl", "--in-place", "--json")
    assert [call["runtime_version"] for call in json.loads(result.stdout)["calls"]] == ["2.28"]


@pytest.mark.parametrize(
    "stray", ["a readme\n", "", '{"a": 1}', "<algo/>", xml(minBytes=None), xml(coll="reduce_scatter")]
)
def test_a_stray_file_takes_the_others_with_it(folder, stray):
    put(folder, a=xml(), z=xml())
    (folder / "m.txt").write_text(stray)
    call = explain(folder)
    assert ruled(call) == {"a": "scan-stopped", "m": "unreadable", "z": "scan-stopped"}
    assert "half made" in call["files"][0]["reason"]
    assert "never read" in call["files"][2]["reason"]
    assert set(ruled(explain(folder, "--runtime", "rccl", "--runtime-version", "2.21")).values()) == {
        "scan-stopped",
        "unreadable",
    }


@pytest.mark.parametrize("stray", ["a readme\n", '{"a": 1}', xml(name=None), xml(coll="reducescatter")])
def test_the_first_runtime_goes_on_without_a_stray_file(folder, stray):
    put(folder, z=xml(maxBytes=2**40, inplace=0))
    (folder / "m.txt").write_text(stray)
    assert ruled(explain(folder, "--runtime", "classic")) == {"m": "unreadable", "z": None}


@pytest.mark.parametrize("stray", ["", "<!-- empty -->\n", '<topology version="1"/>\n'])
def test_the_first_runtime_crashes_on_a_file_without_algo(folder, stray):
    put(folder, z=xml(maxBytes=2**40, inplace=0))
    (folder / "m.txt").write_text(stray)
    assert "m.txt has no <algo>; classic crashes" in explain(folder, "--runtime", "classic")["fails"]


def test_links_and_hidden_files_count_and_folders_do_not(folder, tmp_path):
    put(folder, b=xml())
    (folder / "sub").mkdir()
    (tmp_path / "elsewhere.xml").write_text(xml())
    (folder / ".a").symlink_to(tmp_path / "elsewhere.xml")
    assert ruled(explain(folder)) == {".a": None, "b": "later"}
    (folder / ".a").unlink()
    (folder / ".a").symlink_to(tmp_path / "gone.xml")
    assert ruled(explain(folder)) == {".a": "unreadable", "b": "scan-stopped"}
    (folder / ".a").unlink()
    (folder / ".a").symlink_to(folder / "sub")  # the runtimes look at the entry, not at what it leads to
    assert ruled(explain(folder)) == {".a": "unreadable", "b": "scan-stopped"}


def test_a_file_that_breaks_later_on_keeps_the_job_from_starting(folder):
    put(folder, a=xml(), b=xml(body="  <gpu id='0'>\n"))
    call = explain(folder)
    assert "b.xml cannot be read whole, so the communicator is not created" in call["fails"]
    assert set(ruled(call).values()) == {"start-fails"}
    assert not call["own_algorithm"]
    # For another number of ranks its rest is never looked at; the first runtime ignores it.
    put(folder, b=xml(ngpus=4, body="  <gpu id='0'>\n"))
    assert explain(folder)["selected"]
    put(folder, b=xml(body="  <gpu id='0'>\n"), a=xml(maxBytes=2**40, inplace=0))
    assert ruled(explain(folder, "--runtime", "classic")) == {"a": None, "b": "unreadable"}


def test_no_chunks_end_the_process(folder):
    put(folder, a=xml(nchunksperloop=0, ngpus=2))
    assert "divides by it" in explain(folder)["fails"]


def test_the_first_runtime_holds_four_files_that_it_can_use(folder):
    put(folder, a=xml(ngpus=4), **{f"f{i}": xml(inplace=0, maxBytes=2 << i << 20) for i in range(5)})
    call = explain(folder, "--runtime", "classic", "--bytes", "32MiB")
    assert ruled(call) == {
        "a": "ranks",
        "f0": "size-range",
        "f1": "size-range",
        "f2": "size-range",
        "f3": "size-range",  # its end is exclusive
        "f4": "beyond-limit",
    }


def test_more_files_for_these_ranks_than_the_runtime_holds(folder):
    runtime = runtimes.load("executor").with_limits({"files": 2})
    put(folder, **{f"f{i}": xml() for i in range(3)}, other=xml(ngpus=4))
    files = read_all(launch_files.listed(str(folder)), runtime, 8)
    answer = select(files, Call("allreduce", 8, 1024), runtime, launch.load("executor").versions["2.23"])
    assert answer.fails == "3 files are for 8 ranks, and executor holds 2"


def test_fused_steps_are_chosen_and_fail_at_launch_on_rccl(folder):
    step = (
        '<step s="0" type="rcs" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    )
    block = f'    <tb id="0" send="{{0}}" recv="{{0}}" chan="0">\n      {step}\n    </tb>\n'
    gpus = "".join(
        f'  <gpu id="{r}" i_chunks="0" o_chunks="0" s_chunks="0">\n{block.format(r ^ 1)}  </gpu>\n' for r in range(8)
    )
    put(folder, a=xml(body=gpus))
    call = explain(folder, "--runtime", "rccl")
    assert call["selected"]
    assert "the launch fails" in call["fails"]
    assert explain(folder)["fails"] is None


# --- roots, sizes, the environment, refusals -------------------------------------------------------


def test_a_root_the_file_is_not_for_gives_wrong_results(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLC_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "out"
    made = CliRunner().invoke(collc, ["synth", "ring:gpus=4", "-c", "broadcast", "--root", "2", "-d", str(folder)])
    assert made.exit_code == 0, made.stderr
    words = ("-c", "broadcast", "--ranks", 4)
    assert explain(folder, *words, "--root", 2)["warnings"] == []
    assert "for root 2, so results are wrong" in explain(folder, *words, "--root", 1)["warnings"][0]
    assert "must be for the root" in explain(folder, *words)["warnings"][0]


def test_old_rccl_counts_one_ranks_block(folder):
    put(folder, a=xml(coll="allgather", nchunksperloop=16))
    words = ("-c", "allgather", "--bytes", 8 * 4 * 8, "--runtime", "rccl")
    assert explain(folder, *words)["selected"]
    old = explain(folder, *words, "--runtime-version", "2.20")
    assert ruled(old) == {"a": "divisibility"}
    assert old["files"][0]["reason"] == "8 elements are no multiple of its 16 chunks"


def test_gather_is_counted_by_one_ranks_block(folder):
    put(folder, a=xml(coll="gather", minBytes=1024, maxBytes=1024, nchunksperloop=1))
    assert explain(folder, "-c", "gather", "--bytes", 8192)["selected"]
    assert ruled(explain(folder, "-c", "gather", "--bytes", 1024)) == {"a": "size-range"}


def test_alltoall_in_place_fails_on_the_first_runtime(folder):
    put(folder, a=xml(coll="alltoall", inplace=1, maxBytes=2**40))
    words = ("-d", folder, "-c", "alltoall", "--ranks", 8, "-n", "1MiB", "--runtime", "classic", "--json")
    out, inside = json.loads(run(*words).stdout)["calls"]
    assert (out["in_place"], out["selected"]) == (False, str(folder / "a.xml"))
    assert (inside["in_place"], inside["selected"]) == (True, None)
    assert "the call fails" in inside["fails"]


def test_the_files_may_come_from_the_environment(folder):
    put(folder, b=xml(), a=xml())
    words = ("-c", "allreduce", "--ranks", 8, "-n", 1024, "--in-place")
    assert f"uses {folder / 'a.xml'}" in run(*words, env={"MSCCL_ALGO_DIR": str(folder)}).stdout
    put(folder, b=xml(maxBytes=2**40), a=xml(maxBytes=2**40))
    listed = {"MSCCL_XML_FILES": f"{folder / 'b.xml'}:{folder / 'a.xml'}"}
    assert f"uses {folder / 'b.xml'}" in run(*words, "--runtime", "classic", env=listed).stdout
    refused = run(*words, env={"MSCCL_ALGO_DIR": ""})
    assert refused.exit_code == 2
    assert refused.stderr == "collc: no files: give --dir, or set MSCCL_ALGO_DIR\n"


def test_an_empty_directory_leaves_the_library_alone(folder):
    result = run("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024)
    assert result.exit_code == 0
    assert "the library's own algorithm runs; there are no files" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bytes", 10], "10 bytes are no whole number of float32; 8B are"),
        (["-c", "allgather", "--bytes", 1000], "no whole number of float32 for each of 8 ranks; 992B are"),
        (["-c", "allredcue"], "did you mean 'allreduce'?"),
        (["--dtype", "flaot"], "did you mean 'float'?"),
        (["--op", "summ"], "did you mean 'sum'?"),
        (["--ranks", 0], "--ranks 0; expected 1 or more"),
        (["--root", 8], "--root 8; expected 0 to 7"),
        (["--runtime-version", "x"], "version 'x'; expected numbers with dots"),
        (["--runtime", "rccl", "--runtime-version", "1.0"], "older than 2.18, the oldest collc knows"),
        (["--dir", "/nowhere/at/all"], "/nowhere/at/all: cannot be read: no such file or directory"),
        (["--bytes", "many"], "size 'many'"),
    ],
)
def test_requests_that_make_no_sense_are_refused(folder, words, said):
    given = ["-d", folder, "-c", "allreduce", "--ranks", 8, "--bytes", 1024]
    result = run(*given, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


# --- against a library played by other code ---------------------------------------------------------

HEADS = st.fixed_dictionaries(
    {
        "coll": st.sampled_from(["allreduce", "allgather"]),
        "ngpus": st.sampled_from([2, 4]),
        "nchunksperloop": st.sampled_from([2, 4, 6]),
        "inplace": st.sampled_from([0, 1]),
        "outofplace": st.sampled_from([0, 1]),
        "minBytes": st.sampled_from([0, 16, 64]),
        "maxBytes": st.sampled_from([0, 64, 96, None]),
    }
)
SETS = st.dictionaries(
    st.sampled_from("abcdefg"), st.one_of(HEADS, HEADS, HEADS, st.just(None)), min_size=1, max_size=7
)


@settings(max_examples=150, deadline=None)
@given(
    SETS,
    st.sampled_from(["executor", "classic"]),
    st.sampled_from(["allreduce", "allgather"]),
    st.integers(0, 30),
    st.booleans(),
)
def test_the_choice_is_that_of_a_library(tmp_path_factory, heads, runtime, collective, count, inplace):
    folder = tmp_path_factory.mktemp("set")
    for name, head in heads.items():
        (folder / name).write_text("a note\n" if head is None else xml(**head))
    paths = launch_files.listed(str(folder))
    told, rules = runtimes.load(runtime), next(reversed(launch.load(runtime).versions.values()))
    nbytes = 4 * count * (2 if collective == "allgather" else 1)
    answer = select(read_all(paths, told, 2), Call(collective, 2, nbytes, inplace=inplace), told, rules)
    environ = {"executor": {"MSCCL_ALGO_DIR": str(folder)}}.get(
        runtime, {"MSCCL_XML_FILES": ":".join(paths), "NCCL_ALGO": "MSCCL,RING"}
    )
    assert answer.selected == stub_library.choose(environ, collective, 2, count, inplace=inplace)
    assert [verdict.path for verdict in answer.verdicts] == paths
    assert sum(verdict.rule is None for verdict in answer.verdicts) == (answer.selected is not None)
    assert all(verdict.rule is None or verdict.rule in RULES for verdict in answer.verdicts)


@pytest.mark.parametrize("group", ["ncv4", "ndv4", "ndv5"])
def test_published_files_are_chosen_as_a_library_would(shared, group):
    folder = shared / "corpus" / "msccl-scheduler" / group
    told, rules = runtimes.load("executor"), launch.load("executor").versions["2.23"]
    for n_ranks in (8, 16):
        files = read_all(launch_files.listed(str(folder)), told, n_ranks)
        for collective in ("allreduce", "allgather", "alltoall"):
            for exponent in range(10, 29, 3):
                call = Call(collective, n_ranks, 1 << exponent, inplace=True)
                answer = select(files, call, told, rules)
                expected = stub_library.choose(
                    {"MSCCL_ALGO_DIR": str(folder)}, collective, n_ranks, call.count, inplace=True
                )
                assert (answer.selected, answer.fails) == (expected, None)


PIECES = st.sampled_from(
    [
        b"<algo",
        b">",
        b"/>",
        b'"',
        b"<!--",
        b"-->",
        b' coll="allreduce"',
        b' ngpus="2"',
        b"\n",
        b"\t",
        b"<!DOCTYPE a>",
        b"\xff",
    ]
)
BYTES = st.one_of(st.binary(max_size=80), st.lists(PIECES, max_size=12).map(b"".join), st.just(xml().encode()))


@settings(max_examples=200, deadline=None)
@given(BYTES, BYTES, st.integers(0, 900), st.sampled_from(["executor", "rccl", "classic"]))
def test_no_file_breaks_the_explanation(tmp_path_factory, start, end, cut, name):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "f").write_bytes(start + xml(ngpus=2).encode()[:cut] + end)
    runtime, told = runtimes.load(name), launch.load(name)
    files = read_all(launch_files.listed(str(folder)), runtime, 2)
    for rules in told.versions.values():
        answer = select(files, Call("allreduce", 2, 1024), runtime, rules)
        assert [verdict.path for verdict in answer.verdicts] == [str(folder / "f")]
        assert answer.verdicts[0].reason


# --- debug logs -------------------------------------------------------------------------------------

INFO = "host:123:456 [0] NCCL INFO "
WARN = "[2024-01-01 00:00:00] host:123:456 [0] include/x.cc:1 NCCL WARN "


def logged(folder: Path, runtime: str, *lines: str) -> dict:
    log = folder.parent / "debug.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    words = ("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024, "--runtime", runtime, "--log", log)
    assert "the log proves:\n" in run(*words).stdout
    return json.loads(run(*words, "--json").stdout)["log"]


def proofs(reading: dict) -> set[tuple[str | None, str]]:
    return {(p["path"] and Path(p["path"]).stem, p["proves"]) for p in reading["proofs"]}


def test_a_log_of_the_first_runtime_names_each_file(folder):
    put(folder, a=xml(), b=xml(), c=xml())
    reading = logged(
        folder,
        "classic",
        f"{INFO}MSCCL_XML_FILES set by environment to {folder}/a.xml:{folder}/b.xml",
        f"{INFO}Parsed MSCCL Algorithm {folder}/a.xml successfully.",
        f"{WARN}MSCCL: algorithm {folder}/b.xml failed to initialize. Will be ignored.",
        f"{INFO}Parsed MSCCL Algorithm /elsewhere/c.xml successfully.",
        f"{INFO}Connected 1 MSCCL algorithms",
    )
    assert proofs(reading) == {("a", "loaded"), ("b", "refused"), (None, "connected")}
    assert reading["proofs"][0]["line"] == 2


def test_a_log_of_the_executor_proves_the_directory_and_a_choice(folder):
    put(folder, a=xml())
    start = [f"{INFO}Using MSCCL Algo files from {folder}", f"{INFO}MSCCL: Initialization finished"]
    choice = f"MSCCL: SchedulerSelectAlgo: Algo {folder}/a.xml is selected"
    reading = logged(folder, "executor", *start, f"{INFO}comm 0x1 rank 0 nRanks 8 nNodes 1", choice)
    assert proofs(reading) == {(None, "directory"), (None, "loaded"), ("a", "selected")}
    assert reading["ranks"] == [8]
    off = logged(folder, "executor", f"{INFO}MSCCL doesn't support multiple GPUs in one process and is not available")
    assert proofs(off) == {(None, "off")}


def test_a_log_that_is_about_another_directory_proves_nothing(folder):
    put(folder, a=xml())
    reading = logged(
        folder, "rccl", f"{INFO}Using MSCCL files from /opt/rocm/share", f"{INFO}MSCCL: Initialization finished"
    )
    assert (proofs(reading), reading["other_directory"]) == (set(), "/opt/rocm/share")
    assert proofs(logged(folder, "rccl", "nothing here")) == set()


def test_a_log_of_rccl_names_the_files_it_drops(folder):
    put(folder, a=xml(nchannels=24))
    dropped = (
        f"{WARN}NCCL_MAX_NCHANNELS:16 is lesser than number of channels required by MSCCL:24, so disabling MSCCL for "
        f"mscclFuncAllReduce between minBytes:0 and maxBytes:0 from file: {folder}/a.xml"
    )
    reading = logged(
        folder,
        "rccl",
        f"{INFO}Using MSCCL files from {folder}/",
        dropped,
        f"{INFO}MSCCL: typeMask 3 fnIndex 1 Setup Kernel finished",
    )
    assert proofs(reading) == {(None, "directory"), ("a", "dropped"), (None, "ran")}


def test_a_log_of_any_bytes_is_read(folder):
    put(folder, a=xml())
    (folder.parent / "noise").write_bytes(bytes(range(256)) * 40)
    words = ("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024, "--log", folder.parent / "noise")
    assert run(*words).exit_code == 0


def test_names_that_are_no_text_do_not_break_the_output(folder):
    (folder / os.fsdecode(b"\xff\n\x1b.xml")).write_text(xml())
    result = run("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout


def test_values_the_parser_takes_as_they_come_do_not_break_a_file(folder):
    put(folder, a=xml(inplace=2, outofplace=-5, nchannels=0))
    for kind in ("--in-place", "--out-of-place"):
        result = run("-d", folder, "-c", "allreduce", "--ranks", 8, "-n", 1024, kind)
        assert f"uses {folder / 'a.xml'}" in result.stdout
