"""`collc env`, and the launch scripts of the README run with stand-ins for launchers and libraries."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import stub_launcher
import stub_library
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import put, xml

from collc.cli import collc
from collc.launch.export import Export, as_export, as_mpirun

README = Path(__file__).parents[1] / "README.md"
NAMES = ("MSCCL_ALGO_DIR", "MSCCL_XML_FILES", "NCCL_ALGO", "NCCL_MSCCL_ENABLE", "RCCL_MSCCL_FORCE_ENABLE")
PLAN = '{{"name": "p", "gpus": [{}]}}'


def run(*words: object, command: str = "env") -> Result:
    result = CliRunner().invoke(collc, [command, *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def variables(runtime: str, folder: Path, *words: object) -> dict[str, str]:
    result = run("--runtime", runtime, "-d", folder, *words, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["variables"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "algorithms").mkdir()
    put(tmp_path / "algorithms", a=xml(), b=xml())
    return tmp_path / "algorithms"


# --- what is printed -------------------------------------------------------------------------------


def test_only_the_variables_of_that_runtime(folder):
    (folder / "a.xml").rename(folder / "c.xml")
    assert variables("executor", folder) == {"MSCCL_ALGO_DIR": str(folder), "NCCL_MSCCL_ENABLE": "1"}
    assert variables("rccl", folder) == {
        "MSCCL_ALGO_DIR": str(folder),
        "RCCL_MSCCL_ENABLE": "1",
        "RCCL_MSCCL_FORCE_ENABLE": "1",
    }
    assert variables("classic", folder) == {
        "MSCCL_XML_FILES": f"{folder / 'b.xml'}:{folder / 'c.xml'}",
        "NCCL_ALGO": "MSCCL,RING,TREE",
    }
    assert variables("classic", folder, "c.xml")["MSCCL_XML_FILES"] == str(folder / "c.xml")


@pytest.mark.parametrize("runtime", ["executor", "rccl", "classic"])
def test_paths_are_absolute_and_the_doctor_agrees(folder, monkeypatch, runtime):
    monkeypatch.chdir(folder.parent)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    put(folder, a=xml(maxBytes=2**40), b=xml(ngpus=4, maxBytes=2**40))
    made = variables(runtime, Path("algorithms"))
    assert all(path.startswith("/") for name in made if name.startswith("MSCCL") for path in made[name].split(":"))
    for name, value in {**made, "WORLD_SIZE": "8", "NCCL_CONF_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    shown = json.loads(run("--runtime", runtime, "--json", command="doctor").stdout)
    assert shown["warnings"] == []


def test_a_tuner_table_and_its_plugin(folder):
    with_table = folder.parent / "tuner"
    with_table.mkdir()
    (with_table / "t.conf").write_text("allreduce,0,65536,tree,simple,2,1,8\n")
    made = variables("tuner", with_table, "--plugin", "./libx.so")
    assert made == {
        "NCCL_TUNER_CONFIG_FILE": str(with_table / "t.conf"),
        "NCCL_TUNER_PLUGIN": str(Path("libx.so").absolute()),
    }
    assert variables("tuner", with_table, "--plugin", "example")["NCCL_TUNER_PLUGIN"] == "example"
    assert "holds 0 tuner tables" in run("--runtime", "tuner", "-d", folder).stderr


def test_mscclpp_gets_a_program(tmp_path):
    for name, n_ranks in (("two's", 2), ("four", 4)):
        gpus = ", ".join(f'{{"id": {rank}}}' for rank in range(n_ranks))
        (tmp_path / f"{name}.json").write_text(PLAN.format(gpus))
    (tmp_path / "notes").write_text("mine\n")
    result = run("--runtime", "mscclpp", "-d", tmp_path, "--ranks-per-host", 2)
    assert "notes is no MSCCL++ plan" in result.stderr
    program = (
        f"import json, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport test_env\n"
        f"told = []\nsys.modules['mscclpp'] = test_env.fake_mscclpp(told)\n{result.stdout}print(json.dumps(told))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "RANK": "1"}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [
        ["four.json", str(tmp_path / "four.json"), 1, 4, 2],
        ["two's.json", str(tmp_path / "two's.json"), 1, 2, 2],
    ]


def fake_mscclpp(registered: list) -> object:
    """The few names of the MSCCL++ package that register a plan (microsoft/mscclpp, python/mscclpp)."""
    from types import ModuleType, SimpleNamespace

    class Algorithm(SimpleNamespace):
        class Constraint(SimpleNamespace):
            pass

    class Builder:
        def add_algorithm_builder(self, algorithm):
            path, rank = algorithm.execution_plan
            limits = algorithm.constraint
            registered.append((algorithm.id, path, rank, limits.world_size, limits.n_ranks_per_node))

    module = ModuleType("mscclpp")
    module.Algorithm = Algorithm
    module.ExecutionPlan = lambda path, rank: (path, rank)
    module.ext = SimpleNamespace(AlgorithmCollectionBuilder=Builder)
    return module


def test_mscclpp_before_0_9_has_a_directory(tmp_path):
    (tmp_path / "p.json").write_text(PLAN.format('{"id": 0}'))
    assert variables("mscclpp", tmp_path, "--runtime-version", "0.8") == {"MSCCLPP_EXECUTION_PLAN_DIR": str(tmp_path)}
    refused = run("--runtime", "mscclpp", "-d", tmp_path, "--format", "export")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "a program loads the plans" in refused.stderr


def test_a_stray_file_is_warned_of(folder):
    (folder / "README").write_text("mine\n")
    result = run("--runtime", "executor", "-d", folder)
    assert result.exit_code == 0
    assert "README cannot be read, and keeps the others from being used" in result.stderr
    result = run("--runtime", "classic", "-d", folder)
    assert "README cannot be read, and is left out" in result.stderr
    assert "README" not in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["executor", "-d", "gone"], "gone: cannot be read: no such file or directory"),
        (["executor", "-d", ""], "a directory with an empty name"),
        (["executor", "-d", "algorithms", "x.xml"], "algorithms: has no file 'x.xml'"),
        (["executor", "-d", "empty"], "empty: holds no file that executor reads"),
        (["mscclpp", "-d", "algorithms"], "algorithms: holds no MSCCL++ plan"),
        (["executor", "-d", "algorithms", "--format", "python"], "variables do; expected --format export"),
        (["classic", "-d", "many"], "many: holds 5 files, and classic uses at most 4 in a job"),
        (["classic", "-d", "a:b"], "a path with ':'"),
    ],
)
def test_nothing_is_printed_where_nothing_will_do(folder, monkeypatch, words, said):
    monkeypatch.chdir(folder.parent)
    for name in ("empty", "many", "a:b"):
        Path(name).mkdir()
    put(Path("many"), **{f"f{i}": xml() for i in range(5)})
    put(Path("a:b"), f=xml())
    result = run("--runtime", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


PATHS = st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None)
@given(PATHS)
def test_a_shell_reads_back_any_path_to_the_letter(name):
    made = Export("executor", {"MSCCL_ALGO_DIR": f"/x/{name}", "NCCL_MSCCL_ENABLE": "1"})
    show = f"{sys.executable} -c 'import os, sys; sys.stdout.buffer.write(os.environb[b\"MSCCL_ALGO_DIR\"])'"
    for script in (
        f"{as_export(made)}exec {show}",
        f'set -- {as_mpirun(made)}\nexport "$2" "$4"\nexec {show}',
    ):
        done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={"PATH": os.environ["PATH"]})
        assert os.fsdecode(done.stdout) == f"/x/{name}"


# --- the README's launch scripts --------------------------------------------------------------------


def scripts() -> dict[str, str]:
    """Launcher -> script, as the README has it."""
    section = re.search(r"### In a launch script\n(.*?)\n### ", README.read_text(), re.DOTALL)
    assert section
    blocks = re.findall(r"```bash\n(.*?)```", section[1], re.DOTALL)
    return {name: text for text in blocks for name in ("srun", "mpirun", "torchrun") if re.search(rf"\b{name}\b", text)}


def substituted(text: str, changes: dict[str, str]) -> str:
    """The script for a machine small enough for a test."""
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


COUNT = 3 * 4096  # floats of the call each task makes
CASES = {
    "srun": ("executor", {"dgx-a100:hosts=2": "ring:gpus=3"}),
    "mpirun": ("classic", {"dgx-a100:hosts=2": "ring:gpus=3", "-np 16": "-np 3"}),
    "torchrun": ("rccl", {"mi250:hosts=1": "ring:gpus=3", "--nproc-per-node 16": "--nproc-per-node 3"}),
}


def prepared(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A working directory with programs to start, and an environment with stand-ins for the launchers."""
    work, tools, out = tmp_path / "my job's folder", tmp_path / "bin", tmp_path / "out"
    for path in (work, tools, out):
        path.mkdir()
    # A task is the library that makes its call.
    stub = f'exec "{sys.executable}" "{stub_library.__file__}" allreduce {COUNT}\n'
    programs = {
        work / "train": f"#!/bin/sh\n{stub}",
        work / "train.py": f"#!/usr/bin/env python\nimport os\nos.execv('/bin/sh', ['sh', {str(work / 'train')!r}])\n",
        tools / "collc": f'#!/bin/sh\nexec "{sys.executable}" -m collc "$@"\n',
        **{tools / name: f"#!{sys.executable}\n{Path(stub_launcher.__file__).read_text()}" for name in CASES},
    }
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NCCL", "RCCL", "MSCCL", "SLURM"))}
    return work, {
        **kept,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "COLLC_CACHE_DIR": str(tmp_path / "cache"),
        "NCCL_CONF_FILE": os.devnull,
        "SLURM_NTASKS": "3",  # as sbatch sets it
        "STUB_OUT": str(out),
    }


@pytest.mark.parametrize("launcher", CASES)
def test_the_readmes_launch_script_gives_every_task_the_same_file(launcher, tmp_path):
    runtime, changes = CASES[launcher]
    n_tasks = 3
    work, env = prepared(tmp_path)
    done = subprocess.run(
        ["bash", "-c", substituted(scripts()[launcher], changes)],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / "out" / f"rank-{rank}.json").read_text()) for rank in range(n_tasks)]
    words = ["-c", "allreduce", "--ranks", n_tasks, "-n", 4 * COUNT, "--runtime", runtime, "--out-of-place", "--json"]
    explained = json.loads(run("-d", work / "algorithms", *words, command="explain").stdout)["calls"]
    assert len(explained) == 1
    selected = Path(explained[0]["selected"])
    assert selected.parent == work / "algorithms"
    assert told == [{"selected": str(selected), "bytes": selected.stat().st_size}] * n_tasks
