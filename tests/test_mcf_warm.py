"""All-to-all after a failure: from the schedule before, with a bound of its own."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from collc import verify
from collc.cli import collc
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import InputError
from collc.ir.collective import Problem, make_collective
from collc.ir.text import dumps
from collc.ir.topology import Topology
from collc.synth._network import Network
from collc.synth.mcf import Mcf, warm
from collc.topology import dumps_yaml
from collc.topology.degrade import degraded

HEALTHY = topology_of(build("genkautz", {"degree": "4", "n": "48"}), Fraction(1), Fraction(0))


def alltoall(topology: Topology) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks))


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("before") / "before.json"
    path.write_text(dumps(Mcf().run(alltoall(HEALTHY))))
    return str(path)


FAULTS = {
    "a link gone": degraded(HEALTHY, ["g0->g44"], [], []),
    "a link at half": degraded(HEALTHY, [], ["g0->g44=1/2"], []),
    "a GPU gone": degraded(HEALTHY, [], [], ["g5"]),
    "nothing": HEALTHY,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_answer_is_near_its_own_bound(before, fault):
    problem = alltoall(FAULTS[fault])
    flow = Mcf(warm=before, within=Fraction(1, 100)).run(problem)
    verify.check(flow)
    # A GPU less upsets the balance of all pairs, so that more come to move than may.
    assert any("solved anew" in note for note in flow.notes) == (fault == "a GPU gone")
    optimum = Mcf(method="columns").run(problem)
    assert flow.bound.time <= optimum.time
    assert optimum.bound.time <= flow.time
    assert flow.time <= flow.bound.time * Fraction(101, 100)


def test_few_pairs_move(before):
    """What a failure does not touch stays as it was."""
    network = Network.of(alltoall(FAULTS["a link at half"]))
    told = warm.read(before, network)
    found = warm.solve(network, told, 0.05)
    assert found is not None
    table, rates, _ = found
    kept = {tuple(row): rate for row, rate in zip(told.table.rows.tolist(), told.rates.tolist(), strict=True)}
    width = told.table.rows.shape[1]
    same = [
        kept.get(tuple(row[:width])) == rate
        for row, rate in zip(table.rows.tolist(), rates.tolist(), strict=True)
        if rate and set(row[width:]) <= {-1}
    ]
    assert sum(same) > len(same) / 2


def test_a_fabric_that_changed_much_is_solved_anew(before):
    other = topology_of(build("torus", {"dims": "6x8"}), Fraction(1), Fraction(0))
    flow = Mcf(warm=before).run(alltoall(other))
    verify.check(flow)
    assert flow.time == Mcf().run(alltoall(other)).time
    assert "solved anew" in flow.notes[0]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "cannot be read"), ("{}", "expected a schedule"), ("x", "expected")]
)
def test_what_is_no_schedule_is_refused(tmp_path, text, message):
    path = tmp_path / "before.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        Mcf(warm=str(path)).run(alltoall(HEALTHY))


def test_the_command_takes_the_schedule_before_and_remembers_which(before, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLC_CACHE_DIR", str(tmp_path / "cache"))
    fabric, file = tmp_path / "broken.yaml", tmp_path / "start.json"
    fabric.write_text(dumps_yaml(FAULTS["a link gone"]))
    file.write_text(Path(before).read_text())
    asked = ["synth", str(fabric), "-c", "alltoall", "-s", "mcf", "-o", f"warm={file}", "-o", "within=1/50", "--json"]
    told = [json.loads(CliRunner().invoke(collc, asked).stdout) for _ in range(2)]
    assert [one["cached"] for one in told] == [False, True]
    file.write_text(dumps(Mcf(method="descent").run(alltoall(HEALTHY))))
    assert not json.loads(CliRunner().invoke(collc, asked).stdout)["cached"]
