"""All-to-all in steps: published times, the checker's faults, and everything a schedule of steps goes through."""

from __future__ import annotations

import json
from fractions import Fraction

import fabrics
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics as random_fabrics

from collc import cost, verify
from collc.design.families import build
from collc.design.wiring import topology_of
from collc.errors import BudgetError, InfeasibleError, InputError, UnsupportedError
from collc.ir import text
from collc.ir.collective import Problem, alltoallv, make_collective
from collc.ir.schedule import Schedule
from collc.ir.topology import Topology
from collc.synth import tsmcf
from collc.synth.mcf import Mcf
from collc.synth.tsmcf import Tsmcf, layers


def design(family: str, **values: str) -> Topology:
    """A design with links of 1 GB/s."""
    return topology_of(build(family, values), Fraction(1), Fraction(0))


def alltoall(topology: Topology, nbytes: int | None = None) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks), nbytes)


def total(schedule: Schedule) -> Fraction:
    """The paper's sum of U, where links carry one."""
    return schedule.time * schedule.problem.topology.n_ranks


# --- published ------------------------------------------------------------------------------------

# Steps: as many as the diameter, or one more where that is what the rate of mcf takes.
GRAPHS = {
    "K4,4": ("bipartite", {"degree": "4"}),
    "Q3": ("hypercube", {"dimensions": "3"}),
    "Q4": ("hypercube", {"dimensions": "4"}),
    "Torus(3x3)": ("torus", {"dims": "3x3"}),
    "Torus(4x4)": ("torus", {"dims": "4x4"}),
    "Torus(3x3x3)": ("torus", {"dims": "3x3x3"}),
    "Petersen": ("distance_regular", {"graph": "Petersen"}),
    "C(16,{3,4})": ("circulant", {"n": "16", "offsets": "3x4"}),
    "Pi(3,8)": ("genkautz", {"degree": "3", "n": "8"}),
    "Kautz(2,3)": ("genkautz", {"degree": "2", "n": "12"}),
    "Pi(4,16)": ("genkautz", {"degree": "4", "n": "16"}),
    "Pi(4,20)": ("genkautz", {"degree": "4", "n": "20"}),
}
# Source: 2309.13541, section on time-stepped flow; computed with HiGHS for the reference file.
BEST = {
    "K4,4": (2, "5/2"), "Q3": (3, "4"), "Q4": (4, "8"), "Torus(3x3)": (2, "3"), "Torus(4x4)": (4, "8"),
    "Torus(3x3x3)": (3, "9"), "Petersen": (2, "5"), "C(16,{3,4})": (3, "8"), "Pi(3,8)": (2, "4"),
    "Kautz(2,3)": (4, "43/3"), "Pi(4,16)": (3, "53/7"), "Pi(4,20)": (3, "61/7"),
}  # fmt: skip


@pytest.mark.parametrize("name", BEST)
def test_the_steps_take_as_long_as_the_best_flow(name):
    family, values = GRAPHS[name]
    schedule = Tsmcf().run(alltoall(design(family, **values)))
    verify.check(schedule)
    n_steps, time = BEST[name]
    assert (schedule.n_steps, total(schedule)) == (n_steps, Fraction(time))
    assert schedule.time == schedule.bound.time
    assert not schedule.notes


def test_every_row_of_the_reference_is_met(shared):
    rows = json.loads((shared / "reference" / "directconnect.json").read_text())["time_stepped_mcf"]
    assert len(rows) >= 12
    for row in rows:
        family, values = GRAPHS[row["name"]]
        schedule = Tsmcf(steps=row["steps"]).run(alltoall(design(family, **values)))
        verify.check(schedule)
        assert schedule.n_steps <= row["steps"]
        assert float(total(schedule)) == pytest.approx(row["sumU"], rel=1e-9)
        assert float(schedule.bound.time * schedule.problem.topology.n_ranks) == pytest.approx(row["inv_F"], rel=1e-9)


@pytest.mark.parametrize(
    ("topology", "steps", "algbw"),
    [
        (fabrics.ring(8, 50), 4, 50), (fabrics.dgx1(), 2, 75), (fabrics.mi250(1), 5, 75),  # the rates of mcf
        (fabrics.star(4), 1, Fraction(4, 3)), (fabrics.a100(2), 2, 50), (fabrics.hetero3b(), 1, Fraction(5, 3)),
    ],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_machines_and_switches(topology, steps, algbw):
    problem = alltoall(topology)
    schedule = Tsmcf().run(problem)
    verify.check(schedule)
    assert (schedule.n_steps, 1 / schedule.time) == (steps, algbw)
    assert schedule.is_optimal
    assert Mcf().run(problem).time == schedule.time


# --- what is asked for ----------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(random_fabrics(max_ranks=5), st.sampled_from(["alltoall", "gather", "scatter", "alltoallv"]), st.integers(0, 3))
def test_random_fabrics_are_served(topology, name, seed):
    n = topology.n_ranks
    if name == "alltoallv":
        collective = alltoallv([[(seed + 3 * a + b) % 4 + (a != b) for b in range(n)] for a in range(n)])
    else:
        collective = make_collective(name, n, root=None if name == "alltoall" else seed % n)
    schedule = Tsmcf().run(Problem(topology, collective))
    verify.check(schedule)
    assert schedule.bound is not None
    # At most a tenth is lost to whole chunks.
    assert schedule.time * Fraction(9, 10) <= max(schedule.bound.time, _fluid(Problem(topology, collective)))
    assert text.loads(text.dumps(schedule)) == schedule


def _fluid(problem: Problem) -> Fraction:
    """The time of the linear program in the same steps, to the accuracy of the solver."""
    network = tsmcf.Network.of(problem)
    _, fluid, _ = Tsmcf()._best(problem, network, None)
    return fluid.slots / network.unit / network.size


def test_a_size_decides_how_many_steps():
    topology = design("genkautz", degree="4", n="16")
    few, many = (Tsmcf().run(alltoall(topology, nbytes)) for nbytes in (2**10, 2**24))
    assert (few.n_steps, many.n_steps) == (2, 3)
    assert cost.predict(few, 2**10) < cost.predict(many, 2**10)
    assert cost.predict(few, 2**24) > cost.predict(many, 2**24)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"steps": 1}, InfeasibleError, "1 steps are too few: data from rank 0 to rank 4 takes 4 hops"),
        ({"steps": 0}, InputError, "steps: 0; expected 1 or more"),
        ({"chunks": -1}, InputError, "chunks: -1; expected 1 or more"),
        ({"chunks": 10**6}, UnsupportedError, "-s mcf"),
    ],
)
def test_what_cannot_be_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        Tsmcf(**options).run(alltoall(fabrics.ring(8)))


def test_a_rank_out_of_reach_is_infeasible():
    apart = fabrics.fabric("apart", 3, fabrics.both("g0", "g1", 1))
    for topology in (apart, fabrics.fabric("bare", 3, [])):
        with pytest.raises(InfeasibleError):
            Tsmcf().run(alltoall(topology))


def test_what_is_too_large_is_left_to_mcf(monkeypatch):
    monkeypatch.setattr(tsmcf, "MOST_FLOWS", 100)
    with pytest.raises(UnsupportedError, match="208 variables in 2 steps; it stops at 100, -s mcf does not"):
        Tsmcf().run(alltoall(fabrics.dgx1()))


def test_more_steps_are_given_up_where_time_runs_out(monkeypatch):
    topology, real = design("genkautz", degree="4", n="16"), tsmcf.program.solve

    def solve(some, bound):
        if some.n_steps > 2:
            raise BudgetError("late")
        return real(some, bound)

    monkeypatch.setattr(tsmcf.program, "solve", solve)
    schedule = Tsmcf().run(alltoall(topology))
    assert (schedule.n_steps, total(schedule)) == (2, 8)


def test_a_bound_is_left_where_its_program_takes_too_long(monkeypatch):
    def late(*_):
        raise BudgetError("late")

    monkeypatch.setattr(tsmcf._master.Master, "solve", late)
    schedule = Tsmcf().run(alltoall(fabrics.torus(3, 3)))
    verify.check(schedule)
    assert schedule.bound == cost.bound(alltoall(fabrics.torus(3, 3)))


def test_a_solver_that_is_too_slow_says_who_is_not(monkeypatch):
    monkeypatch.setattr(tsmcf.deadline, "time_left", lambda: 1e-9)
    with pytest.raises(BudgetError, match="-s mcf takes less time"):
        Tsmcf().run(alltoall(fabrics.dgx1()))


@pytest.mark.parametrize(
    ("topology", "chunks", "cut", "kept"),
    [
        (fabrics.dgx1(), "exact", 3, 1),
        (fabrics.dgx1(), "pow2", 8, Fraction(128, 129)),  # 3200/43 of 75 GB/s
        (fabrics.dgx1(), 1, 1, Fraction(8, 9)),
        (fabrics.dgx1(), 6, 6, 1),
        (fabrics.ring(8), 1, 1, 1),  # not one source for all, but ranks that choose their own side
        (fabrics.ring(8), 3, 3, 1),
        (fabrics.path(2), 2, 2, 1),
    ],
)
def test_chunks_are_whole_and_the_loss_is_told(topology, chunks, cut, kept):
    schedule = Tsmcf(chunks=chunks).run(alltoall(topology))
    verify.check(schedule)
    assert schedule.problem.collective.chunk_factor == cut
    assert schedule.bound.time / schedule.time == kept
    assert schedule.is_optimal == (kept == 1)
    assert bool(schedule.notes) == (kept != 1)
    assert kept == 1 or f"rates rounded to {cut} chunks per rank block: " in schedule.notes[0]


def test_many_sources_are_relieved_where_no_integer_program_is_tried(monkeypatch):
    monkeypatch.setattr(tsmcf.whole, "_by_program", lambda *_: None)
    schedule = Tsmcf().run(alltoall(design("genkautz", degree="4", n="32")))
    verify.check(schedule)
    assert (total(schedule), schedule.problem.collective.chunk_factor) == (Fraction(85, 4), 4)
    assert schedule.is_optimal
    # Also where all ranks look the same, and one source stood for all.
    assert Tsmcf(chunks=1).run(alltoall(fabrics.torus(3, 3))).is_optimal
    monkeypatch.setattr(tsmcf.whole, "MOST_FLOWS", 10)
    with pytest.raises(BudgetError, match="-s mcf needs none"):
        Tsmcf(chunks=1).run(alltoall(fabrics.torus(3, 3)))


def test_all_ranks_do_what_rank_0_does_where_they_look_the_same():
    """The single source's optimum is that of all sources."""
    network = tsmcf.Network.of(alltoall(fabrics.torus(4, 4)))
    found = layers.hops(network)
    times = [
        tsmcf.program.solve(layers.Layers.of(network, 4, some, found), None).slots
        for some in (None, tsmcf._symmetry.find(network))
    ]
    assert times == [8, 8]
