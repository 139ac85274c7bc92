"""The road as a whole: which schedule is kept and why, size ranges, and what happens when a runtime is too small."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise

import fabrics
import pytest

from collc import choose, registry, verify
from collc.choose import OUT_OF_TIME, candidates, ranges
from collc.errors import BudgetError, InputError, UnsupportedError, VerificationError
from collc.ir.collective import NAMES, Problem, alltoallv, make_collective
from collc.ir.topology import Topology
from collc.pipeline import Outcome, compile_request
from collc.report import report
from collc.request import Clock, Request, Target
from collc.synth.direct import Direct


def ask(
    topology: Topology,
    name: str,
    target: Target | None = None,
    nbytes: int | None = None,
    synthesizer: str = "auto",
    options: Mapping[str, str] | None = None,
    sizes: tuple[int, int] | None = None,
    jobs: int = 1,
) -> Outcome:
    problem = Problem(topology, make_collective(name, topology.n_ranks), sizes[1] if sizes else nbytes)
    return compile_request(Request(problem, synthesizer, options or {}, sizes, target, jobs), Clock())


# Whose trees are as low as can be.
LOWEST = ("bfb", "direct")

# --- which is kept --------------------------------------------------------------------------------


def test_auto_keeps_the_best_and_says_why_the_others_are_out():
    outcome = ask(fabrics.dgx1(), "allgather")
    assert outcome.best.synthesizer == "forestcoll"
    assert 1 / outcome.best.made.time == Fraction(1200, 7)
    assert set(outcome.passed_over) == set(registry.names("synth")) - {"forestcoll"}
    assert outcome.passed_over["direct"].startswith("predicted ")
    assert not outcome.files


def test_a_limit_that_one_proves_holds_for_all():
    """Direct ways on a one-way ring are optimal, but only the prices of mcf say so: cuts and distances allow 8/3."""
    links = [("g0", "g1", 10), ("g1", "g2", 3), ("g2", "g0", Fraction(7, 3))]
    ring = fabrics.fabric("uneven", 3, links)
    found, _ = candidates(Request(Problem(ring, make_collective("alltoall", 3))), Clock())
    assert (found[0].synthesizer, 1 / found[0].made.time) == ("direct", Fraction(7, 3))
    assert found[0].made.is_optimal
    assert len({one.made.bound for one in found}) == 1
    for one in found:
        verify.check(one.made)


def test_small_messages_take_the_fewest_hops():
    ring = fabrics.ring(8)
    times = {}
    for nbytes in (64, 2**30):
        found, _ = candidates(Request(Problem(ring, make_collective("allreduce", 8), nbytes)), Clock())
        assert [one.time_us(nbytes) for one in found] == sorted(one.time_us(nbytes) for one in found)
        times[nbytes] = found[0].synthesizer
    assert times[64] in LOWEST
    assert times[2**30] != "direct"


def test_equal_bandwidth_is_told_apart_by_latency():
    found, passed_over = candidates(Request(Problem(fabrics.complete(4), make_collective("allgather", 4))), Clock())
    assert found[0].made.time == found[1].made.time
    latencies = [one.time_us(None)[1] for one in found]
    assert latencies == sorted(latencies)
    assert set(passed_over) == {one.synthesizer for one in found[1:]} | (set(passed_over) - {"direct", "forestcoll"})


def test_one_that_does_not_serve_the_collective_says_so():
    found, passed_over = candidates(Request(Problem(fabrics.star(4), make_collective("alltoall", 4))), Clock())
    assert "direct" in {one.synthesizer for one in found}
    assert "alltoall does not" in passed_over["forestcoll"]
    with pytest.raises(UnsupportedError, match=r"forestcoll: .*alltoall does not"):
        ask(fabrics.star(4), "alltoall", synthesizer="forestcoll")


@pytest.mark.parametrize(
    ("synthesizer", "options", "message"),
    [
        ("forrestcoll", {}, "synthesizer 'forrestcoll'; did you mean 'forestcoll'"),
        ("forestcoll", {"tree_per_rank": "2"}, "no option 'tree_per_rank'; did you mean 'trees_per_rank'"),
        ("forestcoll", {"trees_per_rank": "two"}, "option trees_per_rank: 'two'; expected int"),
        ("direct", {"x": "1"}, "no option 'x'; it has none"),
        ("auto", {"trees_per_rank": "2"}, "options belong to one synthesizer; name it with -s"),
    ],
)
def test_wrong_words_are_named(synthesizer, options, message):
    with pytest.raises(InputError, match=message):
        ask(fabrics.star(3), "allgather", synthesizer=synthesizer, options=options)


@pytest.mark.parametrize("wrong", [{"backend": "rcll"}, {"instances": 0}])
def test_a_target_is_checked_when_made(wrong):
    with pytest.raises(InputError, match=r"'rcll'; did you mean 'rccl'|instances 0; expected 1 or more"):
        Target(**wrong)


def test_what_time_ran_out_for_is_passed_over_where_there_is_another(monkeypatch):
    def too_slow(self: object, problem: Problem) -> None:
        raise BudgetError("no schedule within 1 s")

    monkeypatch.setattr("collc.synth.forestcoll.ForestColl.run", too_slow)
    outcome = ask(fabrics.star(4), "allgather")
    assert outcome.best.synthesizer in LOWEST
    assert outcome.passed_over["forestcoll"] == OUT_OF_TIME
    for name in LOWEST:
        monkeypatch.setattr(registry.plugin("synth", name), "run", too_slow)
    with pytest.raises(BudgetError):
        ask(fabrics.star(4), "allgather")


def test_a_wrong_schedule_never_gets_past_its_checker(monkeypatch):
    right = Direct.run

    def forgetful(self: Direct, problem: Problem) -> object:
        flow = right(self, problem)
        return type(flow)(flow.problem, flow.trees[1:], flow.time, flow.bound)

    monkeypatch.setattr(Direct, "run", forgetful)
    with pytest.raises(VerificationError):
        ask(fabrics.star(4), "allgather", Target(), synthesizer="direct")


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "name"),
    [(fabrics.ring(8), "allreduce"), (fabrics.dgx1(), "allgather"), (fabrics.twobox(), "broadcast")],
)
@pytest.mark.parametrize("sizes", [(256, 2**26), (1000, 10**6), (2**20, 2**20)])
def test_ranges_touch_cover_and_do_not_overlap(topology, name, sizes):
    outcome = ask(topology, name, Target("rccl"), sizes=sizes)
    spans = [(file.compiled.min_bytes, file.compiled.max_bytes) for file in outcome.files if file.compiled.inplace]
    assert spans == sorted(spans)
    assert (spans[0][0], spans[-1][1]) == sizes
    assert all(low == high + 1 for (_, high), (low, _) in pairwise(spans))
    assert len({file.name for file in outcome.files}) == len(outcome.files)
    # Every power of two of floats in a file's range is one of the sizes it serves.
    for file in outcome.files:
        collective = file.compiled.program.collective
        if collective.size_chunks & (collective.size_chunks - 1) == 0:
            powers = [
                1 << bits for bits in range(40) if file.compiled.min_bytes <= 1 << bits <= file.compiled.max_bytes
            ]
            assert all(size // 4 % collective.size_chunks == 0 for size in powers)


def test_instances_share_the_chunks_that_the_smallest_size_allows():
    for instances in (1, 2, 4):
        first, *rest = ask(
            fabrics.dgx1(),
            "allgather",
            Target("rccl", instances=instances),
            synthesizer="forestcoll",
            sizes=(512, 2**20),
        ).files
        assert first.compiled.program.collective.size_chunks <= 512 // 4
        # Where more chunks keep more of the bandwidth, the larger messages get a file with those.
        assert [file.compiled.min_bytes // 4 for file in rest] == [
            file.compiled.program.collective.size_chunks for file in rest
        ]
        assert all(file.compiled.schedule.time < first.compiled.schedule.time for file in rest)


def test_jobs_find_the_same():
    alone = ask(fabrics.star(4), "allgather")
    together = ask(fabrics.star(4), "allgather", jobs=2)
    assert (together.best, together.passed_over) == (alone.best, alone.passed_over)


def test_each_range_has_its_own_best():
    outcome = ask(fabrics.dgx1(), "allgather", Target("rccl"), sizes=(1024, 2**28))
    kept = [file.candidate.synthesizer for file in outcome.files]
    assert kept[0] in LOWEST
    assert kept[-1] == outcome.best.synthesizer
    assert kept[-1] not in LOWEST
    assert len(kept) == len(set(kept))


def test_one_size_makes_one_range():
    found, _ = candidates(Request(Problem(fabrics.star(4), make_collective("allgather", 4), 4096)), Clock())
    (only,) = ranges(found, (4096, 4096))
    assert (only.low, only.high) == (4096, 4096)
    (every,) = ranges(found, None)
    assert (every.low, every.high) == (None, None)


def test_sizes_that_the_protocol_cannot_move_are_refused():
    target = Target("rccl", protocol="LL128")
    with pytest.raises(UnsupportedError, match=r"LL128 moves at least 16 bytes .* 4 chunks is 64 bytes; found 32"):
        ask(fabrics.star(4), "allgather", target, sizes=(32, 2**20))
    outcome = ask(fabrics.star(4), "allgather", target, sizes=(64, 2**20))
    assert not [f for file in outcome.files for f in file.report.findings]


@pytest.mark.parametrize(("protocol", "least"), [("Simple", 1), ("LL", 8), ("LL128", 16)])
def test_without_sizes_a_file_starts_at_its_smallest_message(protocol, least):
    (file,) = ask(fabrics.star(4), "allgather", Target("rccl", protocol), synthesizer="direct").files
    assert file.compiled.min_bytes == 4 * least
    assert file.compiled.max_bytes is None
    assert not file.report.findings


# --- runtimes that are too small ------------------------------------------------------------------


def test_too_many_instances_are_refused_with_how_many_fit():
    small = {"channels": 3}
    with pytest.raises(UnsupportedError, match=r"rccl: the program needs 8 channels; the limit is 3; 3 instances fit$"):
        ask(fabrics.star(4), "allgather", Target("rccl", instances=8, limits=small), synthesizer="direct")
    (file,) = ask(fabrics.star(4), "allgather", Target("rccl", instances=3, limits=small), synthesizer="direct").files
    assert file.report.channels == 3
    with pytest.raises(UnsupportedError, match=r"2 channels; the limit is 1; 1 instance fits$"):
        ask(fabrics.star(4), "allgather", Target("rccl", instances=2, limits={"channels": 1}), synthesizer="direct")
    with pytest.raises(UnsupportedError, match=r"not even one instance fits$"):
        ask(fabrics.star(8), "allgather", Target("rccl", instances=2, limits={"threadblocks": 2}), synthesizer="direct")


def test_a_runtime_too_small_for_the_trees_gets_fewer():
    tight = Target("rccl", limits={"steps": 5, "channels": 1})
    outcome = ask(fabrics.dgx1(), "allgather", tight, synthesizer="forestcoll")
    kept = outcome.best.options["trees_per_rank"]
    assert f"trees_per_rank={kept}: the runtime cannot hold more" in outcome.warnings
    (file,) = outcome.files
    assert file.report.channels == 1
    fixed = {"trees_per_rank": "6"}
    with pytest.raises(UnsupportedError, match=r"needs . channels; the limit is 1"):
        ask(fabrics.dgx1(), "allgather", tight, synthesizer="forestcoll", options=fixed)


def test_where_the_best_does_not_fit_the_next_is_taken():
    outcome = ask(fabrics.dgx1(), "allreduce", Target("rccl", limits={"steps": 4, "channels": 2}))
    assert outcome.best.synthesizer == "direct"
    assert outcome.passed_over["forestcoll"].startswith("rccl: the program needs ")
    assert "direct" not in outcome.passed_over


def test_where_nothing_fits_the_reason_is_the_best_ones():
    with pytest.raises(UnsupportedError, match="rccl: rank 0 needs 8 ranks; the limit is 4"):
        ask(fabrics.star(8), "allreduce", Target("rccl", limits={"ranks": 4}))


# --- kinds of request -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["executor", "rccl", "classic", "json"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "alltoallv"])
def test_a_single_gpu_works_or_is_refused_by_name(backend, name):
    try:
        outcome = ask(fabrics.single(), name, Target(backend))
    except UnsupportedError as error:
        assert (backend, name) in (("classic", "gather"), ("classic", "scatter"))
        assert f"classic has no {name}" in str(error)
        return
    assert outcome.files
    shown = report(Request(outcome.best.made.problem, target=Target(backend)), outcome, "single")
    assert (shown["algbw_GBps"], shown["bound_exact"], shown["guarantee"]) == (None, None, "optimal")


def test_alltoallv_goes_into_collcs_own_file_as_it_is():
    problem = Problem(fabrics.star(3), alltoallv([[1, 2, 0], [0, 0, 3], [4, 0, 1]]), 20)
    (file,) = compile_request(Request(problem, target=Target("json")), Clock()).files
    assert file.name == "alltoallv-star3-3ranks.json"
    assert file.report.ok()


@pytest.mark.parametrize("backend", ["executor", "rccl", "classic"])
def test_alltoallv_goes_into_xml_as_blocks_of_one_size_of_which_the_demand_moves(backend):
    demand = [[1, 2, 0], [0, 0, 3], [4, 0, 1]]
    outcome = compile_request(Request(Problem(fabrics.star(3), alltoallv(demand), 20), target=Target(backend)), Clock())
    for file in outcome.files:
        program = file.compiled.program
        assert (program.collective.name, program.collective.size_chunks) == ("alltoall", 3 * 4)
        sent = [
            sum(one.count for tb in gpu.threadblocks for one in tb.instructions if one.op.sends) for gpu in program.gpus
        ]
        assert sent == [sum(row) - row[rank] for rank, row in enumerate(demand)]
    assert any("blocks of the largest entry, 4 slots" in note for note in outcome.warnings)
    huge = Problem(fabrics.star(3), alltoallv([[0, 10**6 + 1, 1], [1, 0, 1], [1, 1, 0]]), 20)
    with pytest.raises(UnsupportedError, match="3000003 slots at the least; the runtime addresses 32768"):
        compile_request(Request(huge, target=Target(backend)), Clock())


def test_a_refused_collective_costs_no_synthesis(monkeypatch):
    monkeypatch.setattr(choose, "synthesize", lambda *_: pytest.fail("synthesized in vain"))
    with pytest.raises(UnsupportedError):
        ask(fabrics.star(3), "gather", Target("classic"))


@pytest.mark.parametrize(
    ("inplace", "calls"), [(True, [(True, False)]), (False, [(False, True)]), (None, [(True, True)])]
)
def test_the_kinds_of_call_asked_for_are_served(inplace, calls):
    outcome = ask(fabrics.star(4), "allreduce", Target("executor", inplace=inplace), synthesizer="direct")
    served = [(file.report.in_place, file.report.out_of_place) for file in outcome.files]
    assert served == calls or (inplace is None and sorted(served) == [(False, True), (True, False)])


def test_alltoall_is_made_for_each_kind_of_call():
    # In place, what is received must wait until what lies there is sent.
    outcome = ask(fabrics.star(4), "alltoall", Target("executor"))
    assert [(f.report.in_place, f.report.out_of_place) for f in outcome.files] == [(True, False), (False, True)]
    assert [f.name for f in outcome.files] == [
        "alltoall-star4-4ranks-inplace.xml",
        "alltoall-star4-4ranks-outofplace.xml",
    ]


def test_a_rooted_collective_warns_of_the_other_roots():
    outcome = ask(fabrics.star(4), "broadcast", Target("rccl"))
    assert any("root 0" in warning for warning in outcome.warnings)


def test_the_loss_of_rounding_is_told_and_exact_weights_lose_nothing():
    rounded = ask(fabrics.dgx1(), "allgather", Target("rccl"))
    exact = ask(fabrics.dgx1(), "allgather", Target("rccl", chunks="exact"))
    assert 1 / exact.files[0].compiled.schedule.time == Fraction(1200, 7)
    assert not any("rounded" in warning for warning in exact.warnings)
    loss = rounded.files[0].compiled.schedule.time > Fraction(7, 1200)
    assert loss == any("rounded" in warning for warning in rounded.warnings)


def test_the_clock_tells_every_stage():
    outcome = ask(fabrics.star(4), "allgather", Target("executor"))
    assert list(outcome.seconds) == ["load", "synthesize", "lower", "verify", "emit"]
    assert all(outcome.seconds[stage] > 0 for stage in ("synthesize", "lower", "verify", "emit"))


def test_two_runs_write_the_same_bytes():
    first, second = (ask(fabrics.twobox(), "allreduce", Target("rccl")).files for _ in range(2))
    assert [(f.name, f.text) for f in first] == [(f.name, f.text) for f in second]


def test_every_stage_is_checked(monkeypatch):
    seen = []
    check = verify.check
    monkeypatch.setattr(verify, "check", lambda value: seen.append(type(value).__name__) or check(value))
    ask(fabrics.star(4), "allreduce", Target("executor"), synthesizer="direct")
    assert {"FlowSchedule", "Schedule", "Program"} <= set(seen)
