"""`collc doctor`: each thing that defeats a schedule is named, and nothing else is."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import put, xml

from collc.cli import collc
from collc.launch.doctor import diagnose, guess
from collc.launch.environment import Environment, Variable, read_environment
from collc.launch.job import RULES
from collc.runtimes import launch

PREFIXES = (
    "MSCCL",
    "NCCL_",
    "RCCL_",
    "SLURM_",
    "OMPI_",
    "PMI_",
    "MPI_",
    "CUDA_VISIBLE",
    "HIP_",
    "ROCR_",
    "WORLD_SIZE",
    "LOCAL_",
)
NAMES = [
    "MSCCL_ALGO_DIR",
    "MSCCL_XML_FILES",
    "MSCCL_CONFIG",
    "MSCCL_SCHEDULER",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_TUNER_PLUGIN",
    "RCCL_MSCCL_ENABLE",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_MSCCL_ENABLE",
    "RCCL_MSCCL_FORCE_ENABLE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_GPUS_ON_NODE",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_GRAPH_FILE",
    "MSCCLPP_EXECUTION_PLAN_DIR",
    "OMPI_COMM_WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NCCL_CONF_FILE",
]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a job for which everything is well: the executor, 8 ranks, one file."""
    for name in [name for name in os.environ if name.startswith(PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "algorithms"
    folder.mkdir()
    put(folder, a=xml())
    (tmp_path / "empty").write_text("")
    return {"MSCCL_ALGO_DIR": str(folder), "NCCL_MSCCL_ENABLE": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}


def run(env: dict[str, str | None], *words: object, user: str = "empty", system: str = "empty") -> Result:
    given = ["doctor", *map(str, words), "--user-config", user, "--system-config", system]
    result = CliRunner().invoke(collc, given, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rules(env: dict[str, str | None], *words: object, **configs: str) -> list[str]:
    result = run(env, *words, "--json", **configs)
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["ok"] == (shown["warnings"] == [])
    # Whatever is wrong, it is a warning unless asked otherwise.
    assert run(env, *words, "--strict", **configs).exit_code == (0 if shown["ok"] else 1)
    return [warning["rule"] for warning in shown["warnings"]]


RCCL = {"NCCL_MSCCL_ENABLE": None, "RCCL_MSCCL_ENABLE": "1", "RCCL_MSCCL_FORCE_ENABLE": "1"}
CLASSIC = {"MSCCL_ALGO_DIR": None, "NCCL_MSCCL_ENABLE": None, "NCCL_ALGO": "MSCCL,RING,TREE"}
TUNER = {"MSCCL_ALGO_DIR": None, "NCCL_MSCCL_ENABLE": None, "NCCL_TUNER_CONFIG_FILE": "{folder}/a.xml"}

CASES = [
    # Nothing wrong.
    ({}, []),
    (RCCL, []),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml"}, []),
    (TUNER, []),
    ({**TUNER, "NCCL_TUNER_PLUGIN": "example"}, []),
    ({"NCCL_MSCCL_ENABLE": "0x1"}, []),
    ({"NCCL_ALGO": "RING"}, []),  # it does not touch the files of these runtimes
    ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, []),
    ({"NCCL_MIN_NCHANNELS": "112"}, []),
    # Variables of another runtime (field case 4).
    ({"MSCCL_XML_FILES": "{folder}/a.xml"}, ["foreign-variable"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "MSCCL_ALGO_DIR": "{folder}"}, ["foreign-variable"]),
    ({"MSCCLPP_EXECUTION_PLAN_DIR": "/x"}, ["foreign-variable"]),
    ({**RCCL, "NCCL_MSCCL_ENABLE": "1"}, ["foreign-variable"]),
    # Switches.
    ({"NCCL_MSCCL_ENABLE": "0"}, ["msccl-off"]),
    ({"NCCL_MSCCL_ENABLE": "00"}, ["msccl-off"]),
    ({**RCCL, "RCCL_MSCCL_ENABLE": "0"}, ["msccl-off"]),
    ({**RCCL, "RCCL_MSCCL_FORCE_ENABLE": None}, ["msccl-not-forced"]),
    ({**RCCL, "RCCL_MSCCL_FORCE_ENABLE": "0"}, ["msccl-not-forced"]),
    ({"MSCCL_SCHEDULER": "{folder}/a.xml"}, ["external-scheduler"]),
    ({**RCCL, "MSCCL_SCHEDULER": "{folder}/a.xml"}, ["external-scheduler"]),
    ({**RCCL, "RCCL_ENABLE_MSCCLPP": "1"}, ["mscclpp-first"]),
    ({**RCCL, "RCCL_MSCCLPP_ENABLE": "1"}, ["mscclpp-first"]),
    ({"NCCL_ALGO": "MSCCL,RING"}, ["algo-names-msccl"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "NCCL_ALGO": None}, ["algo-without-msccl"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "NCCL_ALGO": "^MSCCL"}, ["algo-without-msccl"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "MSCCL_CONFIG": "{folder}/a.xml"}, ["config-wins"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "NCCL_PROTO": "LL"}, ["protocol-off"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "NCCL_PROTO": "^simple"}, ["protocol-off"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "{folder}/a.xml", "NCCL_PROTO": "Simple,LL"}, []),
    # NCCL_ALGO and NCCL_PROTO beat a tuner (field cases 9 and 10).
    ({**TUNER, "NCCL_ALGO": "Ring"}, ["algo-beats-tuner"]),
    ({**TUNER, "NCCL_PROTO": "LL"}, ["algo-beats-tuner"]),
    ({**TUNER, "NCCL_TUNER_PLUGIN": "none"}, ["no-tuner-plugin"]),
    # Paths (field case 11).
    ({"MSCCL_ALGO_DIR": "algorithms"}, ["relative-path"]),
    ({"MSCCL_ALGO_DIR": "/nowhere"}, ["path-missing", "no-files"]),
    ({"MSCCL_ALGO_DIR": "/" + "x" * 5000}, ["path-missing", "no-files"]),
    ({"MSCCL_ALGO_DIR": "{folder}/a.xml"}, ["path-missing", "no-files"]),
    ({**TUNER, "NCCL_TUNER_PLUGIN": "./algorithms/a.xml"}, ["relative-path"]),
    ({**TUNER, "NCCL_TUNER_CONFIG_FILE": "t.conf"}, ["relative-path", "path-missing"]),
    ({**CLASSIC, "MSCCL_XML_FILES": "algorithms/a.xml:/gone.xml"}, ["relative-path", "path-missing"]),
    ({"MSCCL_ALGO_DIR": ""}, ["nothing-named"]),
    ({**CLASSIC, "MSCCL_XML_FILES": ""}, ["nothing-named"]),
    # Ranks and processes (field cases 8, 47, 48).
    ({"WORLD_SIZE": "16"}, ["rank-count"]),
    ({"WORLD_SIZE": None, "SLURM_NTASKS": "16"}, ["rank-count"]),
    ({"WORLD_SIZE": None, "OMPI_COMM_WORLD_SIZE": "4"}, ["rank-count"]),
    ({"WORLD_SIZE": None, "SLURM_NTASKS": "many"}, []),
    ({**RCCL, "WORLD_SIZE": "4", "NCCL_MIN_NCHANNELS": "112"}, ["rank-count", "min-channels"]),
    ({**RCCL, "WORLD_SIZE": "4", "NCCL_MIN_NCHANNELS": "64"}, ["rank-count"]),
    ({**RCCL, "NCCL_MAX_NCHANNELS": "0"}, ["max-channels"]),
    ({"CUDA_VISIBLE_DEVICES": "3"}, ["one-visible-gpu"]),
    ({"ROCR_VISIBLE_DEVICES": "GPU-1234", **RCCL}, ["one-visible-gpu"]),
    ({"SLURM_GPUS_PER_TASK": "1"}, ["one-visible-gpu"]),
    ({"LOCAL_WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": "0,1"}, ["process-model"]),
    ({**RCCL, "LOCAL_WORLD_SIZE": "1", "HIP_VISIBLE_DEVICES": "0,1"}, ["process-model"]),
    (
        {**RCCL, "LOCAL_WORLD_SIZE": "1", "HIP_VISIBLE_DEVICES": "0,1", "RCCL_MSCCL_ENABLE_SINGLE_PROCESS": "1"},
        [],
    ),
    # One Slurm task on each host, which starts the rest: nothing is known yet.
    (
        {
            "WORLD_SIZE": None,
            "LOCAL_WORLD_SIZE": None,
            "SLURM_NTASKS": "2",
            "SLURM_NNODES": "2",
            "SLURM_GPUS_ON_NODE": "8",
            "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        },
        [],
    ),
]


def filled(job: dict[str, str], changed: dict[str, str | None]) -> dict[str, str | None]:
    folder = job["MSCCL_ALGO_DIR"]
    return {**job, **{key: value and value.replace("{folder}", folder) for key, value in changed.items()}}


@pytest.mark.parametrize(("changed", "expected"), CASES)
def test_each_fault_alone_is_named(job, changed, expected):
    runtime = "tuner" if changed.keys() >= TUNER.keys() else "classic" if changed.keys() >= CLASSIC.keys() else None
    words = ["--runtime", runtime] if runtime else []
    assert rules(filled(job, changed), *words) == expected


def test_files_that_spoil_a_directory(job):
    folder = Path(job["MSCCL_ALGO_DIR"])
    (folder / "README").write_text("about these files\n")
    assert rules(job) == ["stray-file"]
    (folder / "README").unlink()
    put(folder, b=xml(body="  <gpu id='0'>\n"))
    assert rules(job) == ["broken-file"]
    put(folder, b=xml(ngpus=4, body="  <gpu id='0'>\n"))
    assert rules(job) == []
    for path in folder.iterdir():
        path.unlink()
    assert rules(job) == ["no-files"]


def test_more_files_than_the_first_runtime_holds(job):
    folder = Path(job["MSCCL_ALGO_DIR"])
    put(folder, **{f"f{i}": xml(maxBytes=2**30) for i in range(5)})
    listed = ":".join(str(folder / f"f{i}.xml") for i in range(5))
    env = filled(job, {**CLASSIC, "MSCCL_XML_FILES": listed})
    assert rules(env, "--runtime", "classic") == ["too-many-files"]
    # Those for other numbers of ranks take no place.
    put(folder, f0=xml(ngpus=4))
    assert rules(env, "--runtime", "classic") == []


def test_the_largest_minimum_of_channels_is_named(job):
    env = filled(job, {**RCCL, "WORLD_SIZE": "4", "NCCL_MIN_NCHANNELS": "112"})
    put(Path(job["MSCCL_ALGO_DIR"]), a=xml(ngpus=4))
    [warning] = json.loads(run(env, "--json").stdout)["warnings"]
    assert warning["rule"] == "min-channels"
    assert "the largest that is accepted is 64" in warning["message"]
    assert rules(env, "--ranks", 8) == ["rank-count"]


# --- configuration files ------------------------------------------------------------------------


def test_the_environment_wins_over_the_users_file_and_that_over_the_systems(tmp_path):
    (tmp_path / "user").write_text("A=user\nB=user\n")
    (tmp_path / "system").write_text("A=system\nB=system\nC=system\n# D=system\n")
    read = read_environment({"A": "env"}, user_config=str(tmp_path / "user"), system_config=str(tmp_path / "system"))
    assert [(read.value(name), read.source(name)) for name in "ABCD"] == [
        ("env", "the environment"),
        ("user", f"{tmp_path / 'user'}:2"),
        ("system", f"{tmp_path / 'system'}:3"),
        (None, None),
    ]
    assert read.odd_lines == ()


def test_a_variable_nobody_remembers_is_named_with_its_line(job):
    Path("system").write_text("NCCL_DEBUG=INFO\nMSCCL_XML_FILES=/etc/old.xml\n")
    [warning] = json.loads(run(job, "--json", system="system").stdout)["warnings"]
    assert (warning["rule"], warning["source"]) == ("foreign-variable", "system:2")
    assert "(system:2)" in run(job, system="system").stdout
    Path("system").write_text("NCCL_MAX_NCHANNELS=64\n")
    assert rules(job, system="system") == ["config-file"]
    # A file may also name what the job is for; set in both, the environment counts.
    Path("user").write_text("MSCCL_ALGO_DIR=/gone\n")
    assert rules(job, user="user") == []


def test_another_users_file_may_be_named(tmp_path):
    (tmp_path / "mine").write_text("NCCL_ALGO=RING\n")
    read = read_environment({"NCCL_CONF_FILE": str(tmp_path / "mine")})
    assert read.source("NCCL_ALGO") == f"{tmp_path / 'mine'}:1"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("export NCCL_ALGO=RING", "expected no 'export'"),
        ("NCCL_ALGO = RING", "with a space in its name"),
        ("NCCL_ALGO='RING'", "quotes as part of its value"),
        ("NCCL_DEBUG=INFO\r", "a carriage return at its end"),
        ("NCCL_DEBUG= INFO", "spaces round it"),
        ("NCCL_DEBUG", "has no '='"),
    ],
)
def test_lines_the_library_takes_to_the_letter(job, line, said):
    Path("user").write_bytes(f"{line}\n".encode())
    warnings = json.loads(run(job, "--json", user="user").stdout)["warnings"]
    told = [warning for warning in warnings if warning["rule"] == "config-line"]
    assert len(told) == 1
    assert said in told[0]["message"]
    assert told[0]["source"] == "user:1"


def test_a_graph_file_for_other_gpus(job):
    channel = '<channel>\n    <net dev="0"/>\n    <gpu dev="0"/>\n    <gpu dev="1"/>\n  </channel>'
    text = f'<graphs version="1">\n<graph id="0" nchannels="1">\n  {channel}\n</graph>\n</graphs>\n'
    Path("graph.xml").write_text(text)
    graph = {**job, "NCCL_GRAPH_FILE": str(Path("graph.xml").absolute())}
    assert rules(graph) == ["graph-file"]
    assert rules({**graph, "LOCAL_WORLD_SIZE": "2"}) == []
    assert rules({**job, "NCCL_GRAPH_FILE": "/gone.xml"}) == ["graph-file"]
    Path("system").write_text(f"NCCL_GRAPH_FILE={Path('graph.xml').absolute()}\n")
    assert rules(job, system="system") == ["config-file", "graph-file"]


def test_a_named_file_that_is_not_there_is_refused(job):
    result = run(job, user="gone")
    assert result.exit_code == 2
    assert result.stderr == "collc: gone: cannot be read: no such file or directory\n"


# --- the whole ------------------------------------------------------------------------------------


def test_text_and_exit_codes(job):
    result = run(job)
    assert result.exit_code == 0
    assert result.stdout.startswith("executor (guessed; see --runtime), 8 ranks: nothing wrong\n")
    both = {**job, "MSCCL_XML_FILES": f"{job['MSCCL_ALGO_DIR']}/a.xml"}
    assert "executor (guessed; see --runtime), 8 ranks: 1 warning\n" in run(both).stdout
    assert (run(both).exit_code, run(both, "--strict").exit_code) == (0, 1)
    nothing = run({}).stdout
    assert nothing.startswith("no runtime: 1 warning\n  warning [nothing-named] no variable names a directory")


def test_known_issues_go_with_the_version(job):
    def known(*words: str) -> set[str]:
        return {issue["name"] for issue in json.loads(run(job, "--json", *words).stdout)["known_issues"]}

    assert known("--runtime", "rccl") == {"ll-corruption", "deprecated", "unsorted"}
    assert known("--runtime", "rccl", "--runtime-version", "2.21.5") == {"unsorted"}
    assert known("--runtime", "rccl", "--runtime-version", "2.27") == {"ll-corruption"}
    assert known("--runtime", "rccl", "--runtime-version", "2.28.3") == {"deprecated"}
    assert known("--runtime", "mscclpp", "--runtime-version", "0.8") == {"ll-graph-capture", "plan-directory"}
    assert run(job, "--runtime", "rccl", "--runtime-version", "new").exit_code == 2


@pytest.mark.parametrize(
    ("names", "runtime"),
    [
        ("MSCCL_ALGO_DIR", "executor"),
        ("MSCCL_ALGO_DIR RCCL_MSCCL_ENABLE", "rccl"),
        ("MSCCL_ALGO_DIR HIP_VISIBLE_DEVICES", "rccl"),
        ("MSCCL_ALGO_DIR MSCCL_XML_FILES", "executor"),
        ("MSCCL_XML_FILES", "classic"),
        ("MSCCLPP_EXECUTION_PLAN_DIR", "mscclpp"),
        ("NCCL_TUNER_CONFIG_FILE", "tuner"),
        ("NCCL_ALGO PATH", None),
    ],
)
def test_the_runtime_is_guessed_by_its_variables(names, runtime):
    assert guess(Environment({name: Variable("x") for name in names.split()})) == runtime


def test_every_rule_is_met_by_a_test():
    source = Path(__file__).read_text()
    of_settings = {setting.rule for name in launch.names() for setting in launch.load(name).settings}
    met = of_settings - {"plan-directory-gone", "forced-fallback"} | set(RULES)
    assert {rule for rule in met if f'"{rule}"' not in source} == set()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("MSCCLPP_EXECUTION_PLAN_DIR", "plan-directory-gone"),
        ("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "forced-fallback"),
    ],
)
def test_mscclpp_has_no_directory_any_more(name, rule, tmp_path):
    found = diagnose(Environment({name: Variable(str(tmp_path))}), runtime="mscclpp")
    assert [problem.rule for problem in found.problems] == [rule]


def test_the_launch_data_says_nothing_that_is_not_read():
    for name in launch.names():
        told = tomllib.loads((Path(launch.__file__).parent / f"{name}.toml").read_text())
        known = {"variable", "holds", "exports", "variables", "hints", "paths", "settings", "issues", "log"}
        assert set(told) <= known | {"min_channels", "selection", "versions"}, name


NAME = st.sampled_from(NAMES)
VALUE = st.one_of(st.sampled_from(["", "0", "1", "/tmp", "a:b", "MSCCL", "8(x2)", "-1", "٣"]), st.text(max_size=20))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAME, VALUE, max_size=8), st.sampled_from([None, *launch.names()]), st.booleans())
def test_no_environment_breaks_the_doctor(values, runtime, in_a_file):
    source = "/etc/nccl.conf:1" if in_a_file else "the environment"
    found = diagnose(
        Environment({name: Variable(value.replace("\0", ""), source) for name, value in values.items()}),
        runtime=runtime,
    )
    assert all(problem.message for problem in found.problems)
