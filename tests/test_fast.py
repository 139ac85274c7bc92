"""All-to-all plans: stages, bytes, staging, predicted time, bars of the reference, faults in files."""

from __future__ import annotations

import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction

import numpy
import pytest
from click.testing import CliRunner
from fast_cases import KINDS, MACHINES, demand, demands, digest, h200, slow_time
from hypothesis import given, settings
from hypothesis import strategies as st

from collc.cli import collc
from collc.errors import InputError, UnsupportedError
from collc.fast import Host, Machine, baselines, file, machine_of, plan
from collc.fast.matching import decompose
from collc.topology import open_topology
from collc.verify import fast as checker
from collc.verify.report import Request


def findings(made):
    """What the checker says of a plan's file."""
    return checker.examine(file.dumps(made).encode(), "plan", Request()).findings


# --- stages --------------------------------------------------------------------------------------

loads = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.lists(st.integers(0, 12) | st.integers(0, 10**18), min_size=n, max_size=n), min_size=n, max_size=n
    )
)


@settings(max_examples=120, deadline=None)
@given(loads, st.sampled_from([1, 2, 7, 10**9]))
def test_stages_are_bottleneck_permutations_that_add_to_the_line_sum(rows, quantum):
    n = len(rows)
    for index in range(n):
        rows[index][index] = 0
    stages = decompose(rows, quantum)
    assert sum(stages.weights) == stages.line_sum
    assert len(stages.weights) <= n * n - 2 * n + 2
    if quantum == 1:
        assert stages.line_sum == max(max(map(sum, rows)), max(map(sum, zip(*rows, strict=True))))
    left = [[0] * n for _ in range(n)]
    for partner, weight in zip(stages.partners, stages.weights, strict=True):
        assert sorted(partner) == list(range(n))
        for row, column in enumerate(partner):
            left[row][column] += weight
    assert all(left[row][column] >= rows[row][column] for row in range(n) for column in range(n))
    # `left` is the padded matrix; each stage must be the best matching of what remains of it.
    for partner, weight in zip(stages.partners, stages.weights, strict=True):
        best = max(min(left[row][way[row]] for row in range(n)) for way in itertools.permutations(range(n)))
        assert weight == best
        for row, column in enumerate(partner):
            left[row][column] -= weight


@pytest.mark.parametrize(("hosts", "most"), [(16, 95), (40, 230), (64, 365)])
@pytest.mark.parametrize("kind", ["uniform", "zipf-cell", "zipf-expert"])
def test_bottleneck_stages_are_few(kind, hosts, most):
    tiles = (demand(kind, hosts) // 512).reshape(hosts, 8, hosts, 8).sum(axis=(1, 3))
    numpy.fill_diagonal(tiles, 0)
    stages = decompose((-(-tiles // 8)).tolist())
    assert len(stages.weights) <= most
    assert sum(stages.busy) == stages.line_sum  # no padding ever delays what moves


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_plan_is_right_on_any_demand(name, data):
    machine = MACHINES[name]
    matrix = data.draw(demands(machine.n_ranks))
    for method in ("staged", "direct", "auto"):
        made = plan(matrix, machine, method=method)
        assert not findings(made)
        assert made.predicted.total >= float(made.bound.time) * (1 - 1e-9)
    staged = plan(matrix, machine, method="staged")
    told = slow_time(staged)
    for part, expected in told.items():
        assert getattr(staged.predicted, part) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert not findings(staged.update(matrix))


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_to_send_takes_no_time(name):
    machine = MACHINES[name]
    made = plan(numpy.zeros((machine.n_ranks,) * 2, dtype=numpy.int64), machine)
    assert (made.n_stages, made.predicted.total, len(made.stage), made.order) == (0, 0.0, 0, "none")
    assert not findings(made)
    own = numpy.diag(numpy.arange(machine.n_ranks) + 1)
    assert plan(own, machine).predicted.total == 0


def test_all_cards_of_a_host_share_what_one_rank_has():
    """One rank sends 50 KiB to one of another host: four cards carry a quarter each."""
    machine = Machine.uniform(2, 4, nic=1, inner=1000)
    matrix = numpy.zeros((8, 8), dtype=numpy.int64)
    matrix[1, 6] = 51200
    made = plan(matrix, machine, method="staged")
    assert sorted(zip(made.src, made.dst, strict=True)) == sorted(
        itertools.chain.from_iterable([[(k, k + 4)] * made.n_stages for k in range(4)])
    )
    assert made.bound.time == Fraction(51200, 4000)
    assert (made.bound.what, made.bound.nbytes) == ("host", 51200)
    assert made.predicted.wire == pytest.approx(12.8)
    assert made.nbytes.sum() == 51200


def test_arrays_by_stage_and_rank():
    made = plan(demand("uniform", 4), h200(4))
    assert made.peer.shape == made.nbytes.shape == made.start.shape == (made.n_stages, 32)
    assert (made.nbytes.sum(axis=0) == made.start[-1] + made.nbytes[-1]).all()
    for stage in range(made.n_stages):
        assert sorted(made.peer[stage]) == list(range(32))
        idle = made.peer[stage] == numpy.arange(32)
        assert (made.nbytes[stage][idle] == 0).all()
    assert (made.peer[made.stage, made.src] == made.dst).all()


def test_equal_arguments_give_equal_plans_in_any_thread():
    matrix, machine = demand("zipf-cell", 4), h200(4, stage_latency=5, inner_latency=2)
    with ThreadPoolExecutor(8) as pool:
        texts = set(pool.map(lambda _: file.dumps(plan(matrix, machine)), range(16)))
    assert len(texts) == 1


def test_the_matrix_a_plan_keeps_is_its_own():
    matrix = demand("uniform", 2)
    made = plan(matrix, h200(2))
    matrix[:] = 0
    assert made.matrix.any()


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (numpy.zeros((3, 3), dtype=int), "3 x 3; expected 16 x 16"),
        (numpy.zeros((16, 16)), "float64; expected whole numbers"),
        (numpy.full((16, 16), -1), "negative"),
        ([[0.5] * 16] * 16, "no whole number"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix, words):
    with pytest.raises(InputError, match=words):
        plan(matrix, h200(2))


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ((), "each rank once"),
        ((Host((0, 2), (Fraction(1),) * 2, Fraction(1)),), "each rank once"),
        ((Host((0, 1), (Fraction(1),), Fraction(1)),), "1 cards for 2 ranks"),
        ((Host((0,), (Fraction(0),), Fraction(1)),), "bandwidth of 0"),
    ],
)
def test_a_machine_that_is_none_is_refused(hosts, words):
    with pytest.raises(InputError, match=words):
        Machine(hosts)


def test_small_messages_go_direct_and_large_ones_never_do():
    small, large = demand("uniform", 4) // 512, demand("uniform", 4)
    slow = h200(4, stage_latency=50, inner_latency=20)
    assert plan(small, slow).method == "direct"
    assert plan(large * 100, slow).method == "staged"
    assert plan(small, slow, method="staged").method == "staged"
    # However long a stage takes, what congests a card is not sent at once.
    assert plan(large, h200(4, stage_latency=10**6)).method == "staged"


# --- updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uniform", "zipf-expert"])
def test_an_update_keeps_the_matchings_and_loses_little(kind):
    matrix, machine = demand(kind, 8), h200(8)
    made = plan(matrix, machine)
    changed = (matrix * numpy.random.default_rng(1).uniform(0.97, 1.03, matrix.shape)).astype(numpy.int64)
    updated = made.update(changed)
    assert not findings(updated)
    assert set(updated.partners) == set(made.partners)
    assert updated.predicted.total <= 1.03 * plan(changed, machine).predicted.total


def test_updates_of_updates_do_not_pile_up_stages():
    matrix, machine = demand("uniform", 4), h200(4)
    made = first = plan(matrix, machine)
    for seed in range(12):
        changed = matrix * numpy.random.default_rng(seed).uniform(0.98, 1.02, matrix.shape)
        made = made.update(changed.astype(numpy.int64))
        assert not findings(made)
    assert made.n_stages <= first.n_stages
    assert made.predicted.total <= 1.05 * float(made.bound.time)


def test_an_update_to_something_else_plans_afresh():
    machine = h200(8)
    made = plan(demand("uniform", 8), machine)
    other = demand("zipf-expert", 8, seed=3)
    assert file.dumps(made.update(other)) == file.dumps(plan(other, machine))
    new_pair = demand("uniform", 8)
    new_pair[:8, 8:16] = 0
    sparse = plan(new_pair, machine)
    # Traffic where there was none gets further stages.
    assert not findings(sparse.update(demand("uniform", 8)))


# --- the reference -------------------------------------------------------------------------------

BARS = {"uniform": (1.05, 1.03, 1.03), "zipf-cell": (1.07, 1.05, 1.04), "zipf-expert": (1.03, 1.03, 1.03)}


@pytest.mark.parametrize("kind", BARS)
@pytest.mark.parametrize(("place", "hosts"), list(enumerate((4, 8, 16))))
def test_time_over_the_bound(kind, place, hosts):
    matrix = demand(kind, hosts)

    def ratio(machine: Machine) -> float:
        made = plan(matrix, machine)
        return made.predicted.total / float(made.bound.time)

    assert ratio(h200(hosts)) <= BARS[kind][place]
    assert ratio(h200(hosts, stage_latency=5, inner_latency=2)) <= 1.14
    assert ratio(Machine.uniform(hosts, 8, nic=11, inner=448)) <= 1.02
    assert ratio(Machine.uniform(hosts, 8, nic=11, inner=64, is_mesh=True)) <= 1.02


@pytest.mark.parametrize("hosts", [40, 64])
def test_time_with_latency_on_many_hosts(hosts):
    for kind in BARS:
        made = plan(demand(kind, hosts), h200(hosts, stage_latency=5, inner_latency=2))
        assert made.predicted.total <= 1.14 * float(made.bound.time)


def test_bounds_and_other_ways_are_those_of_the_reference(shared):
    cases = json.loads((shared / "reference/fast.json").read_text())["cases"]
    for case in cases:
        if case["servers"] > 16:
            continue
        matrix = demand(case["kind"], case["servers"])
        assert (int(matrix.sum()) // 512, digest(matrix)) == (case["sum_units"], case["sha256_16"])
        machine = h200(case["servers"])
        limit = baselines.bound(matrix, machine).time
        told = case["h200_400g"]
        assert float(limit) == pytest.approx(told["lower_bound_us"]["lb"], abs=1e-3)
        ratios = {name: other.total / float(limit) for name, other in baselines.comparisons(matrix, machine).items()}
        for ours, theirs in {"direct": "no_rebalance", "rail": "rail_pxn", "spread-out": "spreadout"}.items():
            assert ratios[ours] == pytest.approx(told["ratio_to_bound"][theirs], abs=1e-3)


# --- fabrics -------------------------------------------------------------------------------------


def test_a_machine_is_read_off_a_fabric():
    machine = machine_of(open_topology("hgx-h200:hosts=4,nvlink=380,nic=48.85").topology)
    assert machine == h200(4).__class__.uniform(
        4, 8, nic="48.85", inner=380, stage_latency=Fraction("7.4"), inner_latency=Fraction("4.8")
    )
    mesh = machine_of(open_topology("mi300x:hosts=2,nic=11").topology)
    assert [(host.is_mesh, host.inner, set(host.nic)) for host in mesh.hosts] == [(True, 64, {11})] * 2
    shared_cards = machine_of(open_topology("p4d:hosts=3").topology)
    assert {nic for host in shared_cards.hosts for nic in host.nic} == {Fraction(25, 4)}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mi250:hosts=2", "joined in several ways"),
        ("torus2d", "neither linked nor on one switch"),
        ("fat-tree", "expected a network that never is the bottleneck"),
        ("dragonfly", "only through the network"),
    ],
)
def test_a_fabric_without_two_tiers_is_refused_with_the_reason(name, words):
    with pytest.raises(UnsupportedError, match=words):
        machine_of(open_topology(name).topology)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_both_forms_of_a_file_hold_the_plan(name):
    machine = MACHINES[name]
    rng = numpy.random.default_rng(5)
    matrix = (rng.random((machine.n_ranks,) * 2) ** 4 * 3000).astype(numpy.int64)
    for method in ("staged", "direct"):
        made = plan(matrix, machine, method=method)
        text, binary = file.dumps(made), file.dump_bytes(made)
        assert file.dumps(file.loads(text)) == file.dumps(file.loads(binary)) == text
        assert not checker.examine(binary, "plan", Request()).findings


def test_what_is_no_plan_is_refused():
    good = file.dump_bytes(plan(demand("uniform", 2), h200(2)))
    for bad in (
        b"",
        b"{}",
        b"[1]",
        b'{"kind": "AllToAllPlan", "collc": 9}',
        good[:40],
        good[:-20],
        good[:8] + b"\xff" * 9,
    ):
        with pytest.raises(InputError):
            file.loads(bad)
    with pytest.raises(UnsupportedError, match="64 bits"):
        file.dump_bytes(plan([[0, 2**70], [0, 0]], Machine.uniform(2, 1, nic=1, inner=1)))


def _may_move(document, bad, message):
    """Whether a message is as well off in the other stage: the same partner there, and nothing sent to it yet."""
    columns = document["messages"]
    now, then, src = columns["stage"][message], bad["messages"]["stage"][message], columns["src"][message]
    port = next(index for index, ranks in enumerate(document["ports"]) if src in ranks)
    sent = set(zip(columns["stage"], columns["src"], strict=True))
    partners = document["partners"]
    return 0 <= then < len(partners) and partners[then][port] == partners[now][port] and (then, src) not in sent


def test_every_fault_in_a_file_is_found():
    """A number of the plan off by one makes it wrong, and the checker says so."""
    matrix = (demand("zipf-cell", 2) // 512)[:8, :8].copy()
    matrix[:4, 4:] *= 3
    machine = Machine.uniform(4, 2, nic=10, inner=100, is_mesh=True)
    document = json.loads(file.dumps(plan(matrix, machine, method="staged")))
    places = [("line_sum",), *(("weights", index) for index in range(len(document["weights"])))]
    for part in ("messages", "pieces"):
        places += [(part, name, index) for name, column in document[part].items() for index in range(len(column))]
    rng = random.Random(7)
    for place in rng.sample(places, 150) + places[: 1 + len(document["weights"])]:
        for change in (1, -1):
            bad = json.loads(json.dumps(document))
            inner = bad
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] += change
            if place[:2] == ("messages", "stage") and _may_move(document, bad, place[2]):
                continue
            assert checker.examine(json.dumps(bad).encode(), "plan", Request()).findings, (place, change)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 400))
def test_no_bytes_crash_the_readers(junk, at):
    good = file.dump_bytes(plan(demand("balanced", 1), h200(1)))
    for raw in (good[:at] + junk + good[at + len(junk) :], checker.MAGIC + junk):
        with suppress(InputError):
            file.loads(raw)
        with suppress(InputError):
            checker.examine(raw, "plan", Request())


# --- the command ---------------------------------------------------------------------------------


def run(*words: str):
    return CliRunner().invoke(collc, [*words, "--no-cache"] if words[0] == "synth" else list(words))


def test_the_command_tells_the_plan_and_writes_it(tmp_path):
    words = ("synth", "hgx-h200:hosts=4", "-c", "alltoallv", "--demand", "zipf:1.2,seed=1", "-s", "fast")
    shown = json.loads(run(*words, "--json", "-b", "plan", "-d", str(tmp_path)).stdout)
    told = shown["plan"]
    assert told["bound_by"]["words"] == "host 2 sends 242270720 bytes to other hosts"
    assert set(told["comparison_us"]) == {"direct", "rail", "spread-out"}
    assert sum(told["predicted_us"][part] for part in ("balance", "wire", "exposed", "latency")) == pytest.approx(
        told["predicted_us"]["total"]
    )
    assert 1 <= told["over_bound"] < 1.2
    assert Fraction(shown["bound_exact"]) >= Fraction(shown["algbw_exact"])
    (written,) = tmp_path.iterdir()
    made = file.loads(written.read_bytes())
    assert made.predicted.total == told["predicted_us"]["total"]
    checked = run("verify", str(written), "-t", "hgx-h200:hosts=4", "-c", "alltoallv")
    assert checked.exit_code == 0, checked.output
    assert "fast, " in run(*words).stdout
    held = ("verify", str(written), "-t", "hgx-h200:hosts=4", "--demand")
    assert run(*held, "zipf:1.2,seed=1").exit_code == 0
    assert run(*held, "zipf:1.2,seed=2").exit_code == 1
    assert run("verify", str(written), "--demand", "uniform:").exit_code == 2


def test_verify_holds_a_plan_against_what_was_asked_for(tmp_path):
    path, other = tmp_path / "plan", tmp_path / "m.csv"
    matrix = demand("uniform", 2)
    path.write_bytes(file.dump_bytes(plan(matrix, h200(2))))
    other.write_text("\n".join(",".join(map(str, row)) for row in (matrix * 3).tolist()))
    assert run("verify", str(path), "--demand", str(other)).exit_code == 0
    other.write_text("\n".join(",".join(map(str, row)) for row in (matrix + 1).tolist()))
    for words in (["--demand", str(other)], ["-t", "hgx-h200:hosts=3"], ["-c", "allgather"]):
        assert run("verify", str(path), *words).exit_code == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--demand", "zip:1.2"), "did you mean 'zipf'"),
        (("--demand", "zipf:x"), "exponent 'x'"),
        (("--demand", "uniform:1.2"), "expected seed=N and mean=SIZE"),
        (("--demand", "uniform:mean=3"), "expected a multiple of 2048"),
        (("--demand", "uniform:", "-b", "executor"), "the runtime addresses 32768"),
    ],
)
def test_requests_that_cannot_be_served(words, told):
    result = run("synth", "hgx-h200:hosts=2", "-c", "alltoallv", "-s", "fast", *words)
    assert result.exit_code == 2
    assert told in result.stderr


def test_even_traffic_is_written_for_the_runtimes(tmp_path):
    words = ("synth", "hgx-h200:hosts=2", "-c", "alltoall", "-s", "fast", "-d", str(tmp_path))
    assert run(*words, "-b", "executor").exit_code == 0
    assert run("verify", str(tmp_path), "--runtime", "executor").exit_code == 0
    refused = run(*words, "-b", "executor", "--limit", "threadblocks=4")
    assert refused.exit_code == 2
    assert "threadblocks" in refused.stderr
    assert "-n" in run(*words, "-b", "plan").stderr  # a plan moves a number of bytes
    assert run(*words, "-b", "plan", "-n", "64MiB").exit_code == 0


def test_rules_draw_the_same_everywhere():
    for kind, rule in KINDS.items():
        assert (demand(kind, 2) == demand(kind, 2)).all(), rule
        assert not demand(kind, 2).diagonal().any()
    assert digest(demand("uniform", 4)) == "3c1e8130f29a4f15"  # of the reference
    assert (demand("uniform", 4) != demand("uniform", 4, seed=2)).any()
