"""Work spread over processes and a dask cluster: the same answers, nothing lost, nobody left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from collc import deadline, workers
from collc.cli import collc
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import BudgetError, InfeasibleError, InputError
from collc.ir.collective import Problem, make_collective
from collc.synth.mcf import Mcf, children, extract, pricing


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers, each a process that is started again when it dies."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs="CRITICAL"
    ) as made:
        yield made


@pytest.fixture
def engine(cluster) -> str:
    return cluster.scheduler_address.replace("tcp://", "dask://")


# What workers do; they know functions by name.


def plus(shared: int, item: int) -> int:
    return shared + item


def killed_once(shared: str, item: int) -> int:
    """The first to do 3 dies of it, and leaves a file that says so."""
    mark = Path(shared) / "died"
    if item == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return item * item


def killed(shared: None, item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def refused(shared: None, item: int) -> int:
    raise InfeasibleError(f"item {item}")


def seconds_left(shared: None, item: int) -> float | None:
    return deadline.time_left()


def slept(shared: str, item: int) -> int:
    (Path(shared) / str(item)).touch()
    time.sleep(60)
    return item


def workers_inside(shared: None, item: int) -> int:
    return workers.current().count


def test_one_process_works_when_asked():
    begun = []
    answers = workers.Workers().map(lambda shared, item: begun.append(item) or item, None, range(3))
    assert begun == []
    assert next(answers) == 0
    assert begun == [0]


@pytest.mark.parametrize("jobs", [1, 3])
def test_answers_come_in_order(jobs):
    with workers.hired(jobs) as team:
        assert list(team.map(plus, 100, range(20))) == list(range(100, 120))
        assert list(team.map(plus, 7, [1])) == [8]
        assert list(team.map(plus, 7, [])) == []
    assert multiprocessing.active_children() == []


def test_a_killed_process_loses_nothing(tmp_path):
    with workers.hired(2) as team:
        assert list(team.map(killed_once, str(tmp_path), range(8))) == [n * n for n in range(8)]
    assert (tmp_path / "died").exists()


def test_work_that_kills_whoever_does_it_is_given_up():
    with workers.hired(2) as team, pytest.raises(BudgetError, match="died of the same work"):
        list(team.map(killed, None, range(3)))


def test_what_a_worker_refuses_is_raised_here():
    with workers.hired(2) as team, pytest.raises(InfeasibleError, match="item 0"):
        list(team.map(refused, None, range(3)))


def test_what_is_wrong_in_a_worker_is_raised_here_too():
    with workers.hired(2) as team, pytest.raises(TypeError):
        list(team.map(plus, 1, ["one"]))


def test_a_map_may_be_asked_for_between_the_answers_of_another():
    with workers.hired(2) as team:
        found = [(answer, *team.map(plus, 1000, range(3))) for answer in team.map(plus, 100, range(6))]
    assert found == [(100 + n, 1000, 1001, 1002) for n in range(6)]
    assert multiprocessing.active_children() == []


def test_workers_know_the_deadline_and_have_no_workers_of_their_own():
    with workers.hired(2) as team:
        with deadline.within(100):
            (left,) = team.map(seconds_left, None, [0])
        assert 50 < left <= 100
        assert list(team.map(seconds_left, None, [0])) == [None]
        assert list(team.map(workers_inside, None, [0])) == [1]


def test_leaving_early_leaves_no_process(tmp_path):
    with workers.hired(2) as team:
        answers = team.map(slept, str(tmp_path), range(4))
        timer = threading.Timer(20, answers.close)
        try:
            signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(BudgetError("time ran out")))
            signal.setitimer(signal.ITIMER_REAL, 3)
            with pytest.raises(BudgetError):
                next(answers)
        finally:
            timer.cancel()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        assert multiprocessing.active_children() == []
        assert list(team.map(plus, 1, [1])) == [2]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_ended(tmp_path, how):
    """Ctrl-C, and a kill that gives no time to tidy up."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, test_workers\n"
        "from collc import workers\n"
        "if __name__ == '__main__':\n"
        "    with workers.hired(2) as team:\n"
        "        list(team.map(test_workers.left_behind, sys.argv[1], range(2)))\n"
    )
    tests = str(Path(__file__).parent)
    paths = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("pid*"))) == 2)
        (os.killpg if how == signal.SIGINT else os.kill)(run.pid, how)
        run.wait(timeout=20)
        theirs = [int(path.name.removeprefix("pid")) for path in tmp_path.glob("pid*")]
        wait_for(lambda: not any(is_alive(pid) for pid in theirs))
    finally:
        run.kill()
        run.wait()


def left_behind(shared: str, item: int) -> int:
    (Path(shared) / f"pid{os.getpid()}").touch()
    time.sleep(5 if item else 6)
    return item


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_for(what: Any, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


# --- a cluster -----------------------------------------------------------------------------------


def test_a_cluster_answers_in_order(engine):
    with workers.hired(1, engine) as team:
        assert team.count == 2
        assert list(team.map(plus, 100, range(20))) == list(range(100, 120))
        with pytest.raises(InfeasibleError, match="item 0"):
            list(team.map(refused, None, range(3)))
        with deadline.within(100):
            (left,) = team.map(seconds_left, None, [0])
        assert 50 < left <= 100


def test_a_worker_of_a_cluster_killed_midway_loses_nothing(engine, tmp_path):
    with workers.hired(1, engine) as team:
        assert list(team.map(killed_once, str(tmp_path), range(12))) == [n * n for n in range(12)]
    assert (tmp_path / "died").exists()


def test_a_cluster_that_is_not_there_is_told_at_once(monkeypatch):
    monkeypatch.setattr("collc.cluster._PATIENCE", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(InputError, match=f"dask://127.0.0.1:{port}: no dask scheduler answers there"):
        workers.hired(1, f"dask://127.0.0.1:{port}").__enter__()
    assert time.monotonic() - started < 20


WRONG = ("spark://a:1", "dask://nowhere", "127.0.0.1:8786", "dask://:1", "dask://a:b", "dask://a:99999", "")


@pytest.mark.parametrize("engine", WRONG)
def test_an_engine_is_written_with_its_port(engine):
    with pytest.raises(InputError, match="expected dask://HOST:PORT"):
        workers.hired(1, engine).__enter__()


def test_an_engine_is_read_before_a_kept_result_is_served(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLC_CACHE_DIR", str(tmp_path))
    asked = ["synth", "ring:gpus=4", "-c", "alltoall", "-s", "mcf"]
    assert CliRunner().invoke(collc, asked).exit_code == 0
    for engine in WRONG:
        result = CliRunner().invoke(collc, [*asked, "--engine", engine])
        assert (result.exit_code, result.stderr) == (2, f"collc: --engine {engine}; expected dask://HOST:PORT\n")


def test_without_dask_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    asked = ["synth", "ring:gpus=4", "-c", "alltoall", "-s", "mcf", "--no-cache", "--engine", "dask://localhost:1"]
    result = CliRunner().invoke(collc, asked)
    assert result.exit_code == 2
    assert result.stderr == "collc: --engine dask://localhost:1 needs dask: pip install 'collc[dask]'\n"


def test_workers_with_another_collc_are_refused(engine, monkeypatch):
    monkeypatch.setattr("collc.cache.fingerprint", lambda: "another")
    with pytest.raises(InputError, match=r"has collc .* \(\w{12}\); expected collc .* \(another\)"):
        workers.hired(1, engine).__enter__()


def test_jobs_and_engine_are_not_given_both():
    asked = ["synth", "ring:gpus=4", "-c", "alltoall", "--no-cache", "--engine", "dask://localhost:1", "--jobs", "2"]
    result = CliRunner().invoke(collc, asked)
    assert result.exit_code == 2
    assert "give one of the two" in result.stderr


# --- all-to-all ----------------------------------------------------------------------------------


@pytest.fixture
def many(monkeypatch):
    """Small fabrics count as large ones, and workers as quicker."""
    monkeypatch.setattr(children, "_MANY", 16)
    monkeypatch.setattr(extract, "_MANY_SOURCES", 16)
    monkeypatch.setattr(pricing.Pricing, "_quicker", lambda self, prices, sources: workers.current())


def small() -> Problem:
    topology = topology_of(build("genkautz", {"degree": "4", "n": "20"}), Fraction(1), Fraction(0))
    return Problem(topology, make_collective("alltoall", 20))


QUICK = Mcf(method="descent", within=Fraction(1, 10))


def test_a_schedule_is_the_same_whoever_works_on_it(many, engine):
    alone = QUICK.run(small())
    for hired in (workers.hired(2), workers.hired(1, engine)):
        with hired:
            assert same(QUICK.run(small()), alone)


def test_a_schedule_is_the_same_where_a_worker_is_killed_midway(many, engine, cluster, monkeypatch):
    alone = QUICK.run(small())
    priced = pricing.Pricing.flows
    asked = []

    def priced_and_killed(self, prices, sources):
        asked.append(sources)
        if len(asked) == 10:
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        return priced(self, prices, sources)

    monkeypatch.setattr(pricing.Pricing, "flows", priced_and_killed)
    with workers.hired(1, engine):
        assert same(QUICK.run(small()), alone)
    assert len(asked) > 20


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, tree by tree."""
    arrays = ("chunks", "numerators", "roots", "broadcasts", "broadcast_starts", "vertices", "route_starts")
    return (
        one.time == other.time
        and one.bound == other.bound
        and all((getattr(one.trees, key) == getattr(other.trees, key)).all() for key in arrays)
    )
