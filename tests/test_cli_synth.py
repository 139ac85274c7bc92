"""`collc synth` as launch scripts use it: exit codes, JSON keys, what goes where, and nothing half done."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import xml_program
from click.testing import CliRunner, Result
from conftest import SHARED

from collc import registry
from collc.cli import collc
from collc.cli.synth import _deadline
from collc.errors import BudgetError, VerificationError
from collc.synth.direct import Direct

RING = "ring:gpus=4"
# The contract's keys; more may be added, none may go.
KEYS = {
    "topology": str,
    "ranks": int,
    "collective": str,
    "synthesizer": str,
    "options": dict,
    "size_bytes": int | None,
    "guarantee": str,
    "algbw_GBps": float,
    "busbw_GBps": float,
    "bound_algbw_GBps": float,
    "bound_exact": str,
    "algbw_exact": str,
    "witness": dict,
    "predicted_time_us": float | None,
    "steps": int | None,
    "trees": int | None,
    "trees_per_rank": int | None,
    "max_height": int | None,
    "seconds": dict,
    "cached": bool,
    "files": list,
    "checked": list,
    "warnings": list,
}
FILE_KEYS = {
    "path": str,
    "sha256": str,
    "backend": str,
    "min_bytes": int,
    "max_bytes": int | None,
    "channels": int,
    "threadblocks_max": int,
    "steps_max": int,
}


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and a cache of the test's own."""
    monkeypatch.setenv("COLLC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def run(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(collc, ["synth", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def report(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    shown: dict[str, Any] = json.loads(result.stdout)
    return shown


def refused(*arguments: str, code: int = 2) -> str:
    """The one sentence said on stderr; nothing on stdout, nothing written."""
    before = written()
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert written() == before
    assert "Traceback" not in result.stderr
    said = [line for line in result.stderr.splitlines() if not line.startswith("Try '")]
    assert len(said) == 1, said
    assert said[0].startswith("collc: ")
    return said[0].removeprefix("collc: ")


def written() -> list[Path]:
    """Everything under the working directory."""
    return sorted(Path().rglob("*"))


def topology(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


# --- the report -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [[], ["-n", "1GiB"], ["-d", "out"], ["-n", "1KiB:1GiB", "-d", "out", "-b", "rccl"]]
)
def test_the_json_report_has_the_contracts_keys(arguments):
    shown = report("dgx1-v100", "-c", "allgather", "-s", "forestcoll", *arguments)
    for key, kind in KEYS.items():
        assert isinstance(shown[key], kind), key
    assert {"load", "synthesize", "lower", "verify", "emit", "total"} <= set(shown["seconds"])
    assert shown["seconds"]["load"] > 0
    assert shown["topology"] == "dgx1-v100"
    assert (shown["bound_exact"], shown["guarantee"], shown["algbw_exact"]) == ("1200/7", "optimal", "1200/7")
    assert set(shown["witness"]) >= {"kind", "gpus_inside", "links_leaving", "ratio_exact"}
    assert bool(shown["files"]) == ("-d" in arguments)
    assert shown["checked"] == (["flow", "schedule", "program", "file"] if "-d" in arguments else ["flow"])
    for file in shown["files"]:
        for key, kind in FILE_KEYS.items():
            assert isinstance(file[key], kind), key
        assert file["backend"] == ("rccl" if "rccl" in arguments else "executor")
        assert hashlib.sha256(Path(file["path"]).read_bytes()).hexdigest() == file["sha256"]
    if "-n" in arguments:
        assert shown["size_bytes"] == 2**30
        assert shown["algbw_GBps"] == pytest.approx(2**30 / shown["predicted_time_us"] / 1000)
        assert shown["algbw_GBps"] < 1200 / 7
    else:
        assert (shown["size_bytes"], shown["predicted_time_us"]) == (None, None)
        assert shown["algbw_GBps"] == pytest.approx(1200 / 7)
    assert shown["busbw_GBps"] == pytest.approx(shown["algbw_GBps"] * 7 / 8)


def test_the_bound_of_the_report_can_be_added_up_again():
    witness = report("dgx-a100:hosts=2", "-c", "allgather")["witness"]
    leaving = sum(bandwidth for _, _, bandwidth in witness["links_leaving"])
    # An allgather's shards of the GPUs inside must all leave.
    assert len(witness["gpus_inside"]) / 16 / leaving == pytest.approx(3 / 1040)
    assert witness["ratio_exact"] == "3/1040"


@pytest.mark.parametrize(
    ("fabric", "optimum"), [("dgx-a100:hosts=1", "2400/7"), ("mi250:hosts=1", "2400/7"), ("ndv2:hosts=2", "25")]
)
def test_published_optima_are_reached(fabric, optimum):
    # Source: the reference folder's forestcoll.json, as ForestColl (arXiv:2402.06787) defines the bound.
    shown = report(fabric, "-c", "allgather", "-s", "forestcoll")
    assert (shown["algbw_exact"], shown["bound_exact"]) == (optimum, optimum)


def test_text_for_eyes_and_notes_apart():
    result = run("mi250:hosts=1", "-c", "allgather", "-b", "rccl", "-d", "out")
    assert "2400/7 = 342.857 GB/s" in result.stdout
    assert "checked: flow, schedule, program, file" in result.stdout
    assert "note:" not in result.stdout
    assert all(line.startswith("collc: note: ") for line in result.stderr.splitlines())


def test_a_single_gpu_has_a_report_without_bandwidths():
    result = run("ring:gpus=4", "-c", "allgather", "--ranks", "2", "-d", "out")
    assert "nothing moves between ranks" in result.stdout
    shown = report("ring:gpus=4", "-c", "allgather", "--ranks", "2", "-d", "out")
    assert (shown["ranks"], shown["algbw_GBps"], shown["guarantee"]) == (1, None, "optimal")
    assert set(KEYS) <= set(shown)


# --- files ----------------------------------------------------------------------------------------


def test_without_a_directory_nothing_is_written():
    for arguments in ([], ["-b", "executor"], ["-n", "1KiB:1MiB"]):
        shown = report(RING, "-c", "allgather", *arguments)
        assert len(shown["files"]) == ("-b" in arguments)
    assert written() == []


def test_a_directory_holds_only_what_a_runtime_loads():
    shown = report(RING, "-c", "allgather", "-d", "new/deep", "-b", "rccl")
    assert [str(path) for path in written() if path.is_file()] == [shown["files"][0]["path"]]
    text = Path(shown["files"][0]["path"]).read_text()
    assert not xml_program.syntax_faults(text)
    head, _ = xml_program.read(text)
    assert head["minBytes"] == str(shown["files"][0]["min_bytes"])


def test_standard_output_takes_one_file_alone():
    result = run(RING, "-c", "allgather", "-d", "-")
    assert result.exit_code == 0
    assert not xml_program.syntax_faults(result.stdout)
    assert "checked: flow, schedule, program, file" in result.stderr
    told = run(RING, "-c", "allgather", "-d", "-", "--json")
    assert told.stdout == result.stdout
    assert json.loads(told.stderr)["files"][0]["sha256"] == hashlib.sha256(result.stdout.encode()).hexdigest()
    assert written() == []
    own = run(RING, "-c", "allgather", "-d", "-", "-b", "json")
    assert json.loads(own.stdout)["kind"] == "FlowSchedule"
    two = refused(RING, "-c", "alltoall", "-d", "-")
    assert "-d - writes one file, and this makes 2: alltoall-ring-4ranks-inplace.xml" in two
    assert run(RING, "-c", "alltoall", "-d", "-", "--in-place").exit_code == 0


def test_a_file_that_is_there_already_is_left_alone():
    path = Path(report(RING, "-c", "allgather", "-d", "out")["files"][0]["path"])
    os.utime(path, ns=(10**18, 10**18))
    before = path.stat()
    report(RING, "-c", "allgather", "-d", "out")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (10**18, before.st_ino)
    path.write_text("something else")
    report(RING, "-c", "allgather", "-d", "out")
    assert path.read_text().startswith("<algo ")


def test_files_are_replaced_and_never_written_over():
    path = Path(report(RING, "-c", "allgather", "-d", "out")["files"][0]["path"])
    with path.open() as old:
        first = path.read_text()
        report(RING, "-c", "allgather", "-d", "out", "--chunks", "exact", "--instances", "2")
        assert path.read_text() != first
        # Whoever has the old file open still reads all of it.
        assert old.read() == first


def test_a_new_file_can_be_read_by_others():
    before = os.umask(0o022)
    try:
        path = Path(report(RING, "-c", "allgather", "-d", "out")["files"][0]["path"])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_nothing_is_written_when_a_check_fails(monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise VerificationError("x.xml: rank 0 ends with the wrong data [wrong-data]")

    monkeypatch.setattr("collc.verify.check_text", fails)
    assert (
        refused(RING, "-c", "allgather", "-d", "out", code=1) == "x.xml: rank 0 ends with the wrong data [wrong-data]"
    )
    assert not (Path(os.environ["COLLC_CACHE_DIR"])).exists()


def test_nothing_is_written_when_one_of_several_files_cannot_be(monkeypatch):
    report(RING, "-c", "alltoall", "-d", "out")
    before = {path: path.read_bytes() for path in written() if path.is_file()}
    right = Path.write_text

    def full(self: Path, *arguments: Any, **options: Any) -> int:
        if "outofplace" in self.name:
            raise OSError(28, "No space left on device")
        return right(self, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    said = refused(RING, "-c", "alltoall", "-d", "out", "--instances", "2")
    assert said == "out: cannot be written to: no space left on device"
    assert {path: path.read_bytes() for path in written() if path.is_file()} == before


def test_an_interrupt_while_writing_leaves_the_old_file(monkeypatch):
    path = Path(report(RING, "-c", "allgather", "-d", "out")["files"][0]["path"])
    before = path.read_bytes()
    moved = []

    def interrupted(self: Path, target: Path) -> Path:
        moved.append((self, target))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        assert run(RING, "-c", "allgather", "-d", "out", "--instances", "2", "--no-cache").exit_code == 130
    assert [path for path in written() if path.is_file()] == [path]
    assert path.read_bytes() == before
    # The new file was made on the same file system, where no runtime looks: below a folder in the directory.
    assert [(new.name, new.parent.parent, target) for new, target in moved] == [(path.name, path.parent, path)]


@pytest.mark.parametrize("directory", ["file", "file/below", "file/below/deep", ""])
def test_a_place_that_cannot_be_written_to_is_refused_before_any_work(directory, monkeypatch):
    Path("file").write_text("not a directory")
    monkeypatch.setattr(Direct, "run", lambda *_: pytest.fail("worked in vain"))
    said = refused(RING, "-c", "alltoall", "-d", directory)
    assert "is not a directory" in said or "cannot be written to" in said or "an empty name" in said


def test_a_folder_where_the_file_should_go_is_refused():
    name = report(RING, "-c", "allgather", "-b", "executor")["files"][0]["path"]
    (Path("out") / name).mkdir(parents=True)
    assert "out: cannot be written to: " in refused(RING, "-c", "allgather", "-d", "out")


# --- options --------------------------------------------------------------------------------------


def test_ranks_form_a_group():
    shown = report("dgx1-v100", "-c", "allgather", "--ranks", "0,1,4-7")
    assert shown["ranks"] == 6
    said = refused("torus2d", "-c", "allgather", "--ranks", "0,5", code=3)
    assert "cannot" in said


def test_demand_as_csv_and_npy():
    matrix = [[0, 4096, 0], [1024, 0, 2048], [0, 512, 0]]
    Path("d.csv").write_text("# bytes\n" + "\n".join(",".join(map(str, row)) for row in matrix))
    np.save("d.npy", np.array(matrix))
    first = report("ring:gpus=3", "-c", "alltoallv", "--demand", "d.csv", "-b", "json", "-d", "out")
    second = report("ring:gpus=3", "-c", "alltoallv", "--demand", "d.npy", "-b", "json", "-d", "out")
    assert second["cached"]
    assert first["files"][0]["sha256"] == second["files"][0]["sha256"]
    # The larger of the buffers counts: rank 1 receives 4096 and 512 bytes.
    assert (first["size_bytes"], first["collective"]) == (4608, "alltoallv")
    assert first["files"][0]["path"].endswith("alltoallv-ring-3ranks.json")
    written = report("ring:gpus=3", "-c", "alltoallv", "--demand", "d.csv", "-d", "xml", "--in-place")
    assert any("verify it with --demand" in warning for warning in written["warnings"])
    asked = ("ring:gpus=3", "-c", "alltoallv", "--demand", "d.csv", "-d", "xml", "--in-place")
    assert report(*asked)["cached"]
    path = written["files"][0]["path"]
    assert CliRunner().invoke(collc, ["verify", path, "--demand", "d.csv"]).exit_code == 0
    assert CliRunner().invoke(collc, ["verify", path]).exit_code == 1
    said = refused("ring:gpus=4", "-c", "alltoallv", "--demand", "d.csv")
    assert said == "alltoallv on 3 ranks; topology 'ring' has 4"


@pytest.mark.parametrize(
    ("matrix", "factor"),
    [
        ([[0, 0, 0, 0], [0, 0, 0, 1000], [0, 0, 0, 0], [0, 0, 0, 0]], 0.75),
        ([[0, 0, 0, 7], [0, 0, 0, 0], [0, 9, 0, 0], [3, 0, 0, 0]], 0.75),
    ],
)
def test_a_demand_that_leaves_ranks_out_is_still_of_all_of_them(matrix, factor):
    """One file for the one communicator, whatever parts its pairs fall into; and a bound of what it moves."""
    Path("d.csv").write_text("\n".join(",".join(map(str, row)) for row in matrix))
    for synthesizer in ("tsmcf", "mcf"):
        asked = ("ring:gpus=4", "-c", "alltoallv", "--demand", "d.csv", "-s", synthesizer)
        shown = report(*asked, "-b", "rccl", "-d", synthesizer)
        assert shown["busbw_GBps"] == pytest.approx(factor * shown["algbw_GBps"])
        names = [Path(file["path"]).name for file in shown["files"]]
        assert all("-4ranks" in name and "group" not in name for name in names)
        result = CliRunner().invoke(
            collc, ["verify", synthesizer, "--demand", "d.csv", "--runtime", "rccl", "-t", "ring:gpus=4", "--json"]
        )
        assert result.exit_code == 0, result.output
        for file in json.loads(result.stdout)["files"]:
            assert 0 < file["algbw_GBps"] <= file["bound_algbw_GBps"]


def test_a_root_is_where_the_data_comes_from():
    shown = report("ring:gpus=4", "-c", "broadcast", "--root", "3", "-b", "json", "-d", "out")
    trees = json.loads(Path(shown["files"][0]["path"]).read_text())["trees"]
    assert set(trees["roots"]) == {3}


@pytest.mark.parametrize(
    ("text", "low", "high"), [("1024:4096", 1024, 4096), ("1K:1M", 1024, 2**20), ("64KB:64KB", 2**16, 2**16)]
)
def test_a_range_of_sizes_makes_files_that_touch(text, low, high):
    files = report("ring:gpus=4", "-c", "allreduce", "-n", text, "-d", "out")["files"]
    spans = sorted((file["min_bytes"], file["max_bytes"]) for file in files)
    assert (spans[0][0], spans[-1][1]) == (low, high)
    assert all(b[0] == a[1] + 1 for a, b in pairwise(spans))


def test_limits_of_the_runtime_are_obeyed():
    shown = report(RING, "-c", "allgather", "-d", "out", "--instances", "3", "--max-channels", "3")
    assert shown["files"][0]["channels"] == 3
    said = refused(RING, "-c", "allgather", "-d", "out2", "--instances", "4", "--max-channels", "3", "-s", "direct")
    assert said == "executor: the program needs 4 channels; the limit is 3; 3 instances fit"
    wide = report("torus2d", "-c", "alltoall", "-d", "out3", "-b", "rccl", "--limit", "steps=256")
    assert all(file["steps_max"] <= 256 for file in wide["files"])


def test_a_synthesizer_takes_its_options():
    shown = report("dgx1-v100", "-c", "allgather", "-s", "forestcoll", "-o", "trees_per_rank=1")
    assert (shown["synthesizer"], shown["options"], shown["trees_per_rank"]) == (
        "forestcoll",
        {"trees_per_rank": "1"},
        1,
    )


def test_a_time_that_is_too_short_leaves_nothing():
    said = refused("mi250:hosts=2", "-c", "allreduce", "-d", "out", "--time-limit", "0.01", "--no-cache", code=4)
    assert said == "no schedule within 0.01 s; allow more, or name a faster synthesizer with -s"
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '-c COLLECTIVE'."),
        (["-c", "allgater"], "collective 'allgater'; did you mean 'allgather'?"),
        (["-c", "allgather", "-s", "forstcoll"], "synthesizer 'forstcoll'; did you mean 'forestcoll'?"),
        (["-c", "allgather", "-b", "exekutor"], "backend 'exekutor'; did you mean 'executor'?"),
        (["-c", "allgather", "-o", "x"], "-o 'x'; expected KEY=VALUE"),
        (["-c", "alltoall", "-s", "mcf", "-o", "warm="], "-o 'warm='; expected KEY=VALUE"),
        (["-c", "alltoall", "-s", "mcf", "-o", "within=-1"], "mcf: option within: -1; expected a gap to the bound"),
        (["-c", "allgather", "-s", "forestcoll", "-o", "trees_per_rank=0"], "trees_per_rank: 0; expected 1 or more"),
        (["-c", "allgather", "-s", "direct", "-o", "a=1", "-o", "a=2"], "-o a: given twice"),
        (["-c", "allgather", "-n", "0"], "-n 0: a message of no bytes; expected 1 or more"),
        (["-c", "allgather", "-n", "2M:1M"], "-n 2M:1M: expected the smaller size first"),
        (["-c", "allgather", "-n", "1:2:3"], "size '2:3': expected bytes"),
        (["-c", "allgather", "-n", "64 kilo"], "size '64 kilo': expected bytes with an optional suffix"),
        (["-c", "allgather", "--ranks", "0-x"], "--ranks '0-x'; expected ranks and ranges such as 0,1,4-7"),
        (["-c", "allgather", "--ranks", "3-1"], "--ranks '3-1'; expected the smaller rank first"),
        (["-c", "allgather", "--ranks", "0,9"], "rank 9: topology 'ring' has ranks 0 to 3"),
        (["-c", "allgather", "--ranks", "0,1,0"], "ranks [0, 1, 0]; expected each once"),
        (["-c", "allgather", "--root", "1"], "allgather has no root; only broadcast, reduce, gather, scatter have"),
        (["-c", "broadcast", "--root", "4"], "root 4: expected a rank from 0 to 3"),
        (["-c", "alltoallv"], "alltoallv needs a demand matrix: give --demand FILE"),
        (["-c", "alltoallv", "--demand", "none.csv"], "none.csv: cannot be read: No such file or directory"),
        (["-c", "allgather", "--demand", "x"], "--demand is for alltoallv, not for allgather"),
        (["-c", "allgather", "--limit", "stepz=1"], "limit 'stepz'; did you mean 'steps'?"),
        (["-c", "allgather", "--limit", "steps=many"], "--limit steps=many: 'many' is not a whole number"),
        (["-c", "allgather", "--max-channels", "0"], "limit channels=0; expected 1 or more"),
        (["-c", "allgather", "--chunks", "some"], "--chunks 'some'; expected pow2, exact or a number"),
        (["-c", "allgather", "--chunks", "0"], "--chunks '0'; expected pow2, exact or a number"),
        (["-c", "allgather", "--instances", "0"], "instances 0; expected 1 or more"),
        (["-c", "allgather", "--jobs", "0"], "Invalid value for '--jobs': 0 is not in the range x>=1."),
        (["-c", "allgather", "--time-limit", "0"], "--time-limit 0.0; expected a positive number of seconds"),
        (["-c", "allgather", "--time-limit", "nan"], "--time-limit nan; expected a positive number of seconds"),
        (["-c", "gather", "-b", "classic"], "classic has no gather; it serves allgather, allreduce, alltoall"),
        (["-c", "allgather", "--colour"], "No such option '--colour'"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(arguments, message):
    assert message in refused(RING, *arguments)


def test_a_missing_topology_is_named():
    assert refused("-c", "allgather") == "Missing argument 'TOPOLOGY'."


# --- topologies that are wrong --------------------------------------------------------------------

PAIR = "gpus: [a, b]\nlinks:\n  - {between: [a, b], bandwidth: 25, latency: 1}\n"


@pytest.mark.parametrize(
    ("text", "code", "place", "message"),
    [
        (PAIR.replace("links:", "lnks:"), 2, "t.yaml:2:1: lnks: ", "unknown key 'lnks'; did you mean 'links'?"),
        (PAIR.replace("bandwidth", "bandwith"), 2, "t.yaml:3:", "did you mean 'bandwidth'?"),
        ("[1, 2, 3]", 2, "t.yaml:1:1: ", "found a list; expected a mapping"),
        ("just words", 2, "t.yaml:1:1: ", "expected a mapping"),
        ("", 2, "t.yaml: ", "the file is empty"),
        ("# nothing\n", 2, "t.yaml: ", "the file is empty"),
        (b"\x7fELF\x02\x01\x00\x00\xff\xfe", 2, "t.yaml:1: ", "expected a text file"),
        (b"gpus: [a, b]\n\xff\xfe", 2, "t.yaml:2: ", "is not UTF-8; expected a text file"),
        ("a" * 40 * 10**6, 2, "t.yaml: ", "is larger than 8 MiB"),
        (PAIR.replace("[a, b]", "[a, b, c]", 1), 3, "t.yaml: ", "GPU c cannot be reached from a: no link enters it"),
        (PAIR.replace("between: [a, b]", "from: a, to: b"), 3, "t.yaml: ", "GPU b cannot reach a: no link leaves it"),
        (PAIR.replace("25", "25 GB"), 2, "t.yaml:3:34: links[0].bandwidth: ", "found '25 GB'"),
        (PAIR.replace("25", "-25"), 2, "t.yaml:3:", "-25"),
        (PAIR.replace("25", "0"), 2, "t.yaml:3:", "expected"),
        (PAIR.replace("25", ".nan"), 2, "t.yaml:3:", "found '.nan'"),
        (PAIR + "gpus: [x]\n", 2, "t.yaml:4:1: ", "given twice"),
        (PAIR.replace("[a, b], band", "[a, z], band"), 2, "t.yaml:3:", "z"),
        ("gpus: [a, b\n", 2, "t.yaml:", "not YAML"),
    ],
)
def test_a_wrong_topology_is_refused_with_its_place(text, code, place, message):
    said = refused(topology("t.yaml", text), "-c", "allgather", "-d", "out", code=code)
    assert said.startswith(place)
    assert message in said
    assert len(said) < 400


def test_what_is_no_file_is_refused():
    Path("folder.yaml").mkdir()
    assert refused("folder.yaml", "-c", "allgather") == "folder.yaml: is a directory; expected a topology file"
    assert refused("none.yaml", "-c", "allgather").startswith("none.yaml: no such file")
    assert "did you mean 'dgx-a100'" in refused("dgx-a10", "-c", "allgather")
    assert "hosts" in refused("dgx-a100:host=2", "-c", "allgather")


def test_a_topology_from_standard_input():
    result = run("-", "-c", "allgather", "--json", stdin=PAIR)
    assert json.loads(result.stdout)["algbw_GBps"] == 50
    assert run("-", "-c", "allgather", stdin="").exit_code == 2


# --- the list -------------------------------------------------------------------------------------


def test_the_list_for_eyes_and_as_data():
    text = run("--list").stdout
    shown = json.loads(run("--list", "--json").stdout)
    assert [entry["name"] for entry in shown["synthesizers"]] == list(registry.names("synth"))
    assert {entry["name"] for entry in shown["backends"]} >= {"executor", "rccl", "classic", "json"}
    for entry in [*shown["synthesizers"], *shown["backends"]]:
        assert entry["summary"]
        assert f"  {entry['name']}" in text
        assert entry["summary"] in text
    for entry in shown["synthesizers"]:
        assert entry["guarantee"] and entry["supports"]
    option, *_ = next(entry for entry in shown["synthesizers"] if entry["name"] == "forestcoll")["options"]
    assert (option["name"], option["type"], option["default"]) == ("trees_per_rank", "int", None)
    assert "-o trees_per_rank=int" in text


def test_the_contract_names_the_same_keys():
    contract = SHARED / "CLI.md"
    if not contract.is_file():
        pytest.skip("no contract beside the checkout")
    text = contract.read_text().partition("`--json` report:")[2].partition("## collc verify")[0]
    for key in (*KEYS, *FILE_KEYS):
        assert f'"{key}"' in text, key


# --- processes ------------------------------------------------------------------------------------


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "collc", "synth", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def test_the_same_bytes_whatever_the_hash_seed():
    runs = [
        start("dgx1-v100", "-c", "allreduce", "-b", "rccl", "-d", "-", "--no-cache", PYTHONHASHSEED=str(seed))
        for seed in (0, 1, 4711)
    ]
    texts = [process.communicate()[0] for process in runs]
    assert [process.returncode for process in runs] == [0, 0, 0]
    assert len(set(texts)) == 1
    assert len(texts[0]) > 1000


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.02)


def test_an_interrupt_leaves_nothing_behind():
    process = start("mi250:hosts=4", "-c", "allreduce", "-b", "rccl", "-d", "out")
    # In the middle of the synthesis: the solver's library is loaded.
    maps = Path(f"/proc/{process.pid}/maps")
    if maps.exists():
        wait_until(lambda: "ortools" in maps.read_text() or process.poll() is not None)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in said
    assert written() == []
    cache = Path(os.environ["COLLC_CACHE_DIR"])
    assert not cache.exists() or not list(cache.iterdir())


def test_a_reader_that_goes_away_is_no_crash():
    process = subprocess.run(
        f"{sys.executable} -m collc synth mi250:hosts=1 -c allgather -b rccl -d - --no-cache | head -c 10",
        shell=True,
        capture_output=True,
    )
    assert process.stdout == b"<algo name"
    assert b"Traceback" not in process.stderr
    assert b"Exception ignored" not in process.stderr


def test_standard_output_that_is_full_is_an_error():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "collc", "synth", RING, "-c", "allgather", "-d", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert process.returncode != 0
    assert b"Traceback" not in process.stderr


def test_a_deadline_that_strikes_in_a_finalizer_strikes_again():
    """Python drops what is raised there, and the run would go on without a limit."""

    class Slow:
        def __del__(self) -> None:
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass

    hook = sys.unraisablehook
    start = time.monotonic()
    with pytest.raises(BudgetError), _deadline(0.05):
        Slow()
        time.sleep(5)
    assert time.monotonic() - start < 4
    assert sys.unraisablehook is hook
