"""The passes from flow to threadblocks: right on random fabrics, within every limit, refused beyond it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

import fabrics
import handmade
import interpreter
import pytest
from cases.lowering import (
    RUNTIMES,
    SYNTHESIZERS,
    crossed_connections,
    flow_of,
    flows,
    hangs,
    lower,
    n_steps,
    over_limit,
    random_collective,
    random_fabric,
    writes_input,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collc import cost, runtimes, verify
from collc.errors import CollcError, UnsupportedError
from collc.ir.collective import COLLECTIVES, NAMES, Problem, alltoallv, make_collective
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock
from collc.ir.schedule import Schedule
from collc.ir.topology import Route
from collc.passes.fuse import Fuse
from collc.passes.lower_flow import LowerFlow
from collc.passes.lower_schedule import LowerSchedule
from collc.passes.round_weights import RoundWeights

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
EXECUTOR, RCCL = runtimes.load("executor"), runtimes.load("rccl")
SEEDS = st.integers(0, 10**6)


@st.composite
def any_flow(draw: st.DrawFn) -> FlowSchedule:
    """A checked flow of some synthesizer for some collective on a random fabric."""
    topology = random_fabric(draw(SEEDS))
    collective = random_collective(draw(st.sampled_from(NAMES)), topology.n_ranks, draw(SEEDS))
    for synthesizer in draw(st.permutations(SYNTHESIZERS)):
        flow = flow_of(topology, collective, synthesizer)
        if flow is not None:
            return flow
    raise AssertionError("direct serves everything")


def in_place(flow: FlowSchedule) -> FlowSchedule:
    return replace(flow, problem=replace(flow.problem, collective=flow.problem.collective.called_inplace()))


# --- the whole road -------------------------------------------------------------------------------


@given(
    flow=any_flow(),
    runtime=st.sampled_from(RUNTIMES),
    chunks=st.sampled_from(("pow2", "exact", 2, 8)),
    instances=st.integers(1, 3),
    inplace=st.booleans(),
    seed=SEEDS,
)
@settings(few, max_examples=120)
def test_every_road_ends_in_a_right_program_within_the_limits(flow, runtime, chunks, instances, inplace, seed):
    consumer = runtimes.load(runtime)
    program = lower(flow, consumer, chunks=chunks, instances=instances, inplace=inplace)
    assert not over_limit(program, consumer)
    assert not crossed_connections(program)
    assert not hangs(program, consumer.protocols["Simple"].fifo_depth)
    for depth in (1, 2, 8) if not consumer.fuses_receives else (2, 8):
        assert interpreter.run(program, seed, depth).is_right
    assert inplace or not writes_input(program)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("make", [fabrics.one_way_ring, fabrics.star, fabrics.path])
def test_every_collective_and_synthesizer_computes_what_it_should(runtime, make):
    served = Counter()
    for flow in flows(make(4), seed=3):
        for inplace in (False, True):
            program = lower(flow, runtimes.load(runtime), inplace=inplace)
            for seed in range(3):
                outcome = interpreter.run(program, seed, 2)
                assert outcome.is_right, (flow.problem.collective.name, outcome)
            served[flow.problem.collective.name] += 1
    assert set(served) == set(NAMES)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_rank_needs_no_peer(name):
    flow = flow_of(fabrics.single(), make_collective(name, 1), "direct")
    program = lower(flow, EXECUTOR)
    assert all(tb.send_peer is None and tb.recv_peer is None for tb in program.gpus[0].threadblocks)
    assert interpreter.run(program, 0).is_right


# --- RoundWeights ---------------------------------------------------------------------------------


def weights(flow: FlowSchedule) -> dict[int, list[Fraction]]:
    found = defaultdict(list)
    for tree in flow.trees:
        found[tree.chunk].append(tree.weight)
    return found


def largest_remainders(flow: FlowSchedule, chunks: int) -> Fraction:
    """Time with the plain rounding: whole units, the largest remainders one more."""
    rows = defaultdict(list)
    for index, tree in enumerate(flow.trees):
        rows[tree.chunk].append(index)
    units = {}
    for row, members in rows.items():
        total = chunks * flow.problem.collective.chunks[row].count
        shares = {index: flow.trees[index].weight * total for index in members}
        units.update({index: int(share) for index, share in shares.items()})
        left = total - sum(units[index] for index in members)
        for index in sorted(members, key=lambda index: (int(shares[index]) - shares[index], index))[:left]:
            units[index] += 1
    trees = [
        replace(tree, weight=Fraction(units[i], chunks * flow.problem.collective.chunks[tree.chunk].count))
        for i, tree in enumerate(flow.trees)
        if units[i]
    ]
    return cost.bandwidth_time(flow.problem, trees)


@given(flow=any_flow(), loss=st.sampled_from((Fraction(1, 50), Fraction(1, 5), Fraction(0))))
@few
def test_pow2_keeps_totals_and_loses_no_more_than_stated(flow, loss):
    rounded = verify.check(RoundWeights("pow2", loss, most=4096).run(flow))
    for row, shares in weights(rounded).items():
        assert sum(shares) == 1
        count = flow.problem.collective.chunks[row].count
        least = max((share * count).denominator for share in shares)
        assert all((share * count).denominator & ((share * count).denominator - 1) == 0 for share in shares)
        assert least * flow.problem.collective.size_chunks <= 4096
    assert rounded.time == cost.bandwidth_time(flow.problem, rounded.trees)
    assert rounded.bound == flow.bound
    if loss:
        assert flow.time >= (1 - loss) * rounded.time
    if rounded.time > flow.time:
        assert "kept" in rounded.notes[-1]


@given(flow=any_flow(), chunks=st.integers(1, 24))
@few
def test_rounding_is_never_worse_than_largest_remainders(flow, chunks):
    rounded = RoundWeights(chunks).run(flow)
    assert rounded.time <= largest_remainders(flow, chunks)
    for row, shares in weights(rounded).items():
        assert all((chunks * flow.problem.collective.chunks[row].count * share).denominator == 1 for share in shares)


@given(flow=any_flow())
@few
def test_exact_keeps_the_weights(flow):
    assert RoundWeights("exact").run(flow) is flow


def ways(*shares: Fraction, rows: int = 1) -> FlowSchedule:
    """A broadcast to one rank over as many switches as there are shares, each over links of 1 GB/s."""
    switches = [f"s{index}" for index in range(len(shares))]
    links = [pair for s in switches for pair in (("g0", s, 1), (s, "g1", 1))]
    topology = fabrics.fabric("ways", 2, [*links, ("g1", "g0", 1)], switches)
    problem = Problem(topology, make_collective("broadcast", 2, rows))
    trees = tuple(
        Tree(row, share, 0, (), (Route(0, 1, ("g0", switch, "g1")),))
        for row in range(rows)
        for switch, share in zip(switches, shares, strict=True)
    )
    return verify.check(FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees)))


def thirds() -> FlowSchedule:
    """No power of two of chunks splits these weights evenly."""
    return ways(*[Fraction(1, 3)] * 3)


@pytest.mark.parametrize(
    ("loss", "chunks"),
    # The fullest way gets 2 of 4 chunks, 3 of 8, 6 of 16, 11 of 32, 22 of 64, 43 of 128, against a third.
    [(Fraction(1, 3), 4), (Fraction(1, 9), 8), (Fraction(1, 10), 32), (Fraction(1, 50), 128)],
)
def test_pow2_takes_the_smallest_count_that_is_good_enough(loss, chunks):
    rounded = RoundWeights("pow2", loss).run(thirds())
    assert max(tree.weight.denominator for tree in rounded.trees) == chunks
    assert Fraction(1, 3) >= (1 - loss) * rounded.time


@pytest.mark.parametrize("most", [8, 16, 31])
def test_pow2_takes_the_best_that_fits_where_none_is_good_enough(most):
    # 16 chunks do no better than 8 and would serve fewer sizes.
    rounded = RoundWeights("pow2", Fraction(1, 1000), most=most).run(thirds())
    assert rounded.time == Fraction(3, 8)
    assert "rounded to 8 chunks" in rounded.notes[-1]
    assert "0.8889" in rounded.notes[-1]


def test_buffers_that_no_chunk_count_fits_are_refused():
    with pytest.raises(UnsupportedError, match="the buffers have 1 slots at the least; the runtime addresses 0"):
        RoundWeights(most=0).run(thirds())


@pytest.mark.parametrize(("chunks", "most"), [("exact", 2), (9, 8)])
def test_a_refusal_names_the_limit_and_what_fits(chunks, most):
    with pytest.raises(
        UnsupportedError, match=rf"slots in a buffer; the runtime addresses {most}; at most {most} chunks"
    ):
        RoundWeights(chunks, most=most).run(thirds())


def test_rounding_moves_units_off_the_busiest_link():
    # Two rows over the same two ways: remainders alone would give both rows' odd unit to the first way.
    flow = ways(Fraction(1, 2), Fraction(1, 2), rows=2)
    assert largest_remainders(flow, 1) == 1
    assert RoundWeights(1).run(flow).time == Fraction(1, 2)


# --- LowerFlow ------------------------------------------------------------------------------------


@given(flow=any_flow(), instances=st.integers(1, 3))
@few
def test_steps_have_one_send_per_pair_and_channel_and_feed_forward(flow, instances):
    schedule = verify.check(LowerFlow(instances).run(flow))
    assert max(Counter((s.step, s.route.src, s.route.dst, s.channel) for s in schedule.sends).values(), default=1) == 1
    assert {send.channel for send in schedule.sends} <= set(range(instances))
    assert schedule.time == flow.time
    # A send passes on what came before, and nothing later feeds it.
    for send in schedule.sends:
        before = [s for s in schedule.sends if s.chunk == send.chunk and s.route.dst == send.route.src]
        if send.reduce:
            assert all(s.step < send.step for s in before if s.reduce)
        else:
            assert all(s.step < send.step for s in before)
    assert [(s.step, s.chunk) for s in schedule.sends] == sorted((s.step, s.chunk) for s in schedule.sends)


@given(flow=any_flow(), instances=st.integers(1, 3))
@few
def test_every_link_carries_what_the_trees_say(flow, instances):
    schedule = LowerFlow(instances).run(flow)
    loads = defaultdict(Fraction)
    for send in schedule.sends:
        for ends in send.route.hops:
            loads[ends] += Fraction(send.count, schedule.problem.collective.size_chunks)
    assert loads == {ends: load for ends, load in cost.link_loads(flow.problem, flow.trees).items() if load}


def test_no_instances_are_refused():
    with pytest.raises(UnsupportedError, match="instances 0, chunks 1; expected 1 or more of each"):
        LowerFlow(0).run(thirds())


def test_more_chunks_than_the_trees_need():
    collective = LowerFlow(chunks=4).run(thirds()).problem.collective
    assert collective.chunk_factor == 12


def test_deep_trees_go_first():
    # Path 0-1-2-3: the way to rank 3 must not wait behind what rank 1 alone wants.
    flow = flow_of(fabrics.path(4), make_collective("scatter", 4, root=0), "direct")
    sends = LowerFlow().run(flow).sends
    first = next(send for send in sends if send.step == 0)
    assert first.chunk == 3
    # Chunks from ranks 0 and 4 meet at rank 1; the one for rank 3 goes on before the one for rank 2.
    links = [link for a, b in ((0, 1), (4, 1), (1, 2), (2, 3)) for link in fabrics.both(f"g{a}", f"g{b}", 1)]
    demand = [[0] * 5 for _ in range(5)]
    demand[0][2] = demand[4][3] = 1
    flow = flow_of(fabrics.fabric("fork", 5, links), alltoallv(demand), "direct")
    steps = {send.chunk: send.step for send in LowerFlow().run(flow).sends if send.route.src == 1}
    assert steps == {0: 2, 1: 1}


# --- LowerSchedule --------------------------------------------------------------------------------


@given(flow=any_flow(), instances=st.integers(1, 3), inplace=st.booleans(), chunks=st.sampled_from(("pow2", 4, 200)))
@few
def test_threadblocks_are_safe_with_one_slot_however_transfers_are_cut(flow, instances, inplace, chunks):
    program = lower(flow, RCCL, instances=instances, inplace=inplace, chunks=chunks, loss=Fraction(1), fuse=False)
    assert not hangs(program, 1)
    assert not over_limit(program, RCCL)
    assert not crossed_connections(program)
    assert interpreter.run(program, 5, 1).is_right
    assert inplace or not writes_input(program)


def test_long_transfers_are_cut_at_the_largest_count():
    program = lower(ways(Fraction(200, 201), Fraction(1, 201)), EXECUTOR, chunks="exact")
    counts = [one.count for one in program.gpus[1].threadblocks[0].instructions]
    assert sorted(counts) == [1, 58, 71, 71]


def wide(chunks: int, n: int = 2) -> tuple[Schedule, FlowSchedule]:
    """A broadcast along a path in `chunks` sends of one chunk each."""
    topology = fabrics.path(n)
    problem = Problem(topology, make_collective("broadcast", n, chunks))
    whole = flow_of(topology, make_collective("broadcast", n), "direct").trees[0]
    trees = tuple(replace(whole, chunk=chunk) for chunk in range(chunks))
    flow = verify.check(FlowSchedule(problem, trees, cost.bandwidth_time(problem, trees)))
    return LowerFlow().run(flow), flow


def test_a_connection_of_many_steps_takes_several_channels():
    program = verify.check(LowerSchedule(EXECUTOR).run(wide(150)[0]))
    assert program.n_channels == 3
    assert max(n_steps(tb) for gpu in program.gpus for tb in gpu.threadblocks) <= 64
    assert interpreter.run(program, 1).is_right


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"channels": 2}, "needs 3 channels; the limit is 2"),
        ({"steps": 4, "channels": 8}, r"needs 38 channels; the limit is 8"),
        ({"threadblocks": 1}, "a rank needs 5 threadblocks; the limit is 1"),
        ({"waited_threadblock": 1}, "a rank needs 5 threadblocks; the limit is 2"),
        ({"elements": 100}, "rank 0 needs 159 elements in its parser; the limit is 100"),
        ({"ranks": 1}, "rank 0 needs 2 ranks; the limit is 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_resource_and_limit(limits, message):
    with pytest.raises(UnsupportedError, match=f"executor: .*{message}"):
        LowerSchedule(EXECUTOR.with_limits(limits)).run(wide(150)[0])


def test_scratch_beyond_the_offsets_is_refused():
    schedule = LowerFlow().run(flow_of(fabrics.path(3), make_collective("gather", 3, 8, root=0), "direct"))
    with pytest.raises(UnsupportedError, match="rank 1 needs 8 slots of scratch; the limit is 4"):
        LowerSchedule(EXECUTOR.with_limits({"offset": 3})).run(schedule)


def test_a_full_channel_makes_room_in_the_next():
    flow = flow_of(fabrics.star(6), make_collective("alltoall", 6), "direct")
    tight = RCCL.with_limits({"threadblocks_per_channel": 2})
    program = lower(flow, tight)
    assert not over_limit(program, tight)
    assert program.n_channels >= 3


@pytest.mark.parametrize("name", ["allgather", "allreduce", "alltoall"])
@pytest.mark.parametrize("inplace", [False, True])
def test_too_many_threadblocks_are_joined_in_pairs(name, inplace):
    flow = flow_of(fabrics.complete(5), make_collective(name, 5), "direct")
    roomy = lower(flow, RCCL, inplace=inplace)
    tight = RCCL.with_limits({"threadblocks": 5})
    program = lower(flow, tight, inplace=inplace)
    assert max(len(gpu.threadblocks) for gpu in roomy.gpus) > 5
    assert not over_limit(program, tight)
    assert any(tb.send_peer is not None and tb.recv_peer is not None for tb in program.gpus[0].threadblocks)
    assert not hangs(program, 1)
    assert all(interpreter.run(program, seed).is_right for seed in range(5))


@given(flow=any_flow(), room=st.integers(2, 12), steps=st.integers(2, 20), seed=SEEDS, inplace=st.booleans())
@settings(few, max_examples=60)
def test_tight_limits_are_kept_or_refused(flow, room, steps, seed, inplace):
    tight = EXECUTOR.with_limits({"threadblocks": room, "steps": steps, "channels": 6, "threadblocks_per_channel": 3})
    try:
        program = lower(flow, tight, inplace=inplace, chunks=4, instances=2)
    except UnsupportedError as error:
        assert "limit" in str(error) or "steps" in str(error)
        return
    assert not over_limit(program, tight)
    assert not crossed_connections(program)
    assert not hangs(program, 2)
    assert interpreter.run(program, seed, 2).is_right


def test_a_chunk_sent_before_it_is_held_is_refused():
    schedule, _ = wide(1, n=3)
    backwards = replace(schedule, sends=(replace(schedule.sends[1], step=0),))
    with pytest.raises(CollcError, match="rank 1 sends chunk 0, which it does not hold"):
        LowerSchedule(EXECUTOR).run(backwards)


def test_waits_that_order_implies_are_not_written():
    flow = flow_of(fabrics.path(3), make_collective("broadcast", 3), "direct")
    program = lower(flow, RCCL, chunks=1)
    forward = [one for tb in program.gpus[1].threadblocks for one in tb.instructions if one.op is Op.SEND]
    assert [one.after for one in forward] == [((0, 0),)]


# --- Fuse -----------------------------------------------------------------------------------------


def count_of(program: Program) -> int:
    return sum(len(tb.instructions) for gpu in program.gpus for tb in gpu.threadblocks)


@given(flow=any_flow(), inplace=st.booleans(), instances=st.integers(1, 2), seed=SEEDS)
@settings(few, max_examples=60)
def test_fusing_keeps_the_meaning_in_fewer_instructions(flow, inplace, instances, seed):
    plain = lower(flow, EXECUTOR, inplace=inplace, instances=instances, fuse=False)
    fused = verify.check(Fuse(EXECUTOR).run(plain))
    assert count_of(fused) <= count_of(plain)
    assert fused.notes == plain.notes
    assert not hangs(fused, 2)
    assert interpreter.run(fused, seed, 2).is_right
    assert Fuse(RCCL).run(plain) is plain


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_only_what_the_runtime_executes_is_written(runtime):
    flow = flow_of(fabrics.one_way_ring(5), make_collective("allreduce", 5), "direct")
    program = lower(flow, runtimes.load(runtime))
    fused = {one.op for gpu in program.gpus for tb in gpu.threadblocks for one in tb.instructions if one.op.receives}
    assert (fused > {Op.RECV}) == runtimes.load(runtime).fuses_receives


def test_a_forwarding_rank_needs_one_threadblock():
    program = lower(flow_of(fabrics.path(3), make_collective("broadcast", 3), "direct"), EXECUTOR, chunks=1)
    (block,) = program.gpus[1].threadblocks
    assert [one.op for one in block.instructions] == [Op.RECV_COPY_SEND]


def test_a_partial_sum_that_is_passed_on_is_not_stored():
    program = lower(flow_of(fabrics.path(3), make_collective("reduce", 3, root=0), "direct"), EXECUTOR, chunks=1)
    (block,) = program.gpus[1].threadblocks
    assert [(one.op, one.dst) for one in block.instructions] == [(Op.RECV_REDUCE_SEND, None)]


@pytest.mark.parametrize("steps", [2, 3, 4, 6, 8])
def test_fusing_keeps_to_the_steps_of_a_threadblock(steps):
    tight = EXECUTOR.with_limits({"steps": steps})
    lowered = 0
    for flow in flows(fabrics.hypercube(3), "allgather", "allreduce", "alltoall"):
        try:
            program = lower(flow, tight, chunks=8, instances=2)
        except UnsupportedError:
            continue
        lowered += 1
        assert not over_limit(program, tight)
    assert lowered


def forwarding_pair(first_sends: int) -> Program:
    """Two ranks that each send `first_sends` slots before they take what the other sent, on two threadblocks."""
    collective = make_collective("allgather", 2, first_sends)

    def blocks(rank: int) -> list[Threadblock]:
        other = 1 - rank
        sends = [handmade.send(handmade.i(slot)) for slot in range(first_sends)]
        receives = [handmade.recv(handmade.o(other * first_sends + slot)) for slot in range(first_sends)]
        copies = handmade.copy(handmade.i(0), handmade.o(rank * first_sends), first_sends)
        return [handmade.block(None, other, *receives), handmade.block(other, None, *sends, copies)]

    return handmade.program(collective, blocks)


def echo(slots: int) -> Program:
    """Rank 0 sends `slots` chunks to rank 1, which passes them on to rank 2; counts of several chunks."""
    collective = make_collective("broadcast", 3, slots)
    o, i = handmade.o, handmade.i
    gpus = (
        Gpu(0, 0, (handmade.block(1, None, handmade.send(i(0), slots), handmade.copy(i(0), o(0), slots)),)),
        Gpu(
            1,
            0,
            (
                handmade.block(None, 0, handmade.recv(o(0), slots)),
                handmade.block(2, None, handmade.send(o(0), slots, after=((0, 0),))),
            ),
        ),
        Gpu(2, 0, (handmade.block(None, 1, handmade.recv(o(0), slots)),)),
    )
    return Program(collective, gpus)


def test_fusing_joins_counts_of_several_chunks():
    fused = verify.check(Fuse(EXECUTOR).run(echo(6)))
    assert fused.gpus[1].threadblocks == (
        Threadblock(2, 0, 0, (Instruction(Op.RECV_COPY_SEND, None, Slot(Buffer.OUTPUT, 0), 6),)),
    )


def test_a_sum_that_is_needed_again_is_stored():
    # Ranks 2, 0 and 1 add up in a chain; rank 1 sends the sum from scratch to both and keeps a copy.
    i, o, s, block = handmade.i, handmade.o, handmade.s, handmade.block
    summing = block(None, 0, handmade.recv(s(0)), handmade.reduce(i(0), s(0)))
    copying = handmade.copy(s(0), o(0), after=((0, 1),))
    blocks = {
        0: [block(1, 2, handmade.rrs(i(0))), block(None, 1, handmade.recv(o(0)))],
        1: [
            summing,
            block(0, None, handmade.send(s(0), after=((0, 1),)), copying),
            block(2, None, handmade.send(s(0), after=((0, 1),))),
        ],
        2: [block(0, None, handmade.send(i(0))), block(None, 1, handmade.recv(o(0)))],
    }
    plain = verify.check(handmade.program(make_collective("allreduce", 3), lambda rank: blocks[rank], scratch=1))
    fused = verify.check(Fuse(EXECUTOR).run(plain))
    assert Op.RECV_REDUCE_COPY_SEND in {one.op for tb in fused.gpus[1].threadblocks for one in tb.instructions}
    assert interpreter.run(fused, 0).is_right


def test_fusing_never_puts_a_send_before_what_it_waits_for():
    # Rank 1 passes on to 2 what it got last before what it got first.
    i, o, block = handmade.i, handmade.o, handmade.block
    collective = make_collective("broadcast", 3, 2)
    blocks = {
        0: [block(1, None, handmade.send(i(0)), handmade.send(i(1)), handmade.copy(i(0), o(0), 2))],
        1: [
            block(None, 0, handmade.recv(o(0)), handmade.recv(o(1))),
            block(2, None, handmade.send(o(1), after=((0, 1),)), handmade.send(o(0), after=((0, 0),))),
        ],
        2: [block(None, 1, handmade.recv(o(1)), handmade.recv(o(0)))],
    }
    plain = verify.check(handmade.program(collective, lambda rank: blocks[rank]))
    fused = verify.check(Fuse(EXECUTOR).run(plain))
    assert interpreter.run(fused, 0).is_right


@pytest.mark.parametrize("late", [False, True])
def test_fusing_never_overwrites_what_is_still_to_be_sent(late):
    # In place, rank 1 copies what it received over its own data once that is sent, on the receiving threadblock.
    i, o, s, block = handmade.i, handmade.o, handmade.s, handmade.block
    from_0 = [handmade.recv(s(0)), handmade.recv(s(1)), handmade.copy(s(1), o(0), after=((3, 1),))]
    from_2 = [handmade.recv(s(2)), handmade.recv(s(3)), handmade.copy(s(3), o(2), after=((2, 1),))]
    to_2 = [handmade.send(s(0), after=((0, 0),)), handmade.send(i(2))]
    to_0 = [handmade.send(s(2), after=((1, 0),)), handmade.send(i(0))]
    rank_1 = [block(None, 0, *from_0), block(None, 2, *from_2), block(2, None, *to_2), block(0, None, *to_0)]
    if late:
        # The copies change places, so that each waits for the sends it is joined with.
        from_0[2], from_2[2] = (
            handmade.copy(s(3), o(2), after=((1, 1), (2, 1))),
            handmade.copy(s(1), o(0), after=((0, 1), (3, 1))),
        )
        rank_1[:2] = [block(None, 0, *from_0), block(None, 2, *from_2)]
    ends = {
        rank: [
            block(1, None, handmade.send(i(far)), handmade.send(i(1))),
            block(None, 1, handmade.recv(o(far), after=((0, 0),)), handmade.recv(o(1), after=((0, 1),))),
        ]
        for rank, far in ((0, 2), (2, 0))
    }
    program = handmade.program(
        make_collective("alltoall", 3, inplace=True), lambda rank: rank_1 if rank == 1 else ends[rank], scratch=4
    )
    fused = verify.check(Fuse(EXECUTOR).run(verify.check(program)))
    assert count_of(fused) < count_of(program)
    assert all(interpreter.run(fused, seed).is_right for seed in range(5))


def test_threadblocks_that_pass_nothing_on_stay_apart():
    plain = verify.check(forwarding_pair(5))
    assert Fuse(EXECUTOR).run(plain) == plain


def eager_ring(slots: int, count: int) -> Program:
    """Three ranks in a one-way ring gather `slots` chunks each, `count` in an instruction.

    Each sends all of its own before it passes on; in one threadblock that would fill the connection.
    """
    i, o = handmade.i, handmade.o
    starts = range(0, slots, count)

    def blocks(rank: int) -> list[Threadblock]:
        before, last = (rank - 1) % 3 * slots, (rank - 2) % 3 * slots
        sends = [handmade.send(i(at), count) for at in starts]
        sends += [handmade.send(o(before + at), count, after=((0, index),)) for index, at in enumerate(starts)]
        receives = [handmade.recv(o(start + at), count) for start in (before, last) for at in starts]
        copies = handmade.copy(i(0), o(rank * slots), slots)
        return [
            handmade.block(None, (rank - 1) % 3, *receives),
            handmade.block((rank + 1) % 3, None, *sends, copies),
        ]

    return handmade.program(make_collective("allgather", 3, slots), blocks)


@pytest.mark.parametrize(("slots", "count", "joins"), [(1, 1, True), (2, 1, False), (3, 1, False), (2, 2, False)])
def test_what_would_hang_with_two_transfers_outstanding_is_not_joined(slots, count, joins):
    plain = verify.check(eager_ring(slots, count))
    fused = verify.check(Fuse(EXECUTOR).run(plain))
    assert (count_of(fused) < count_of(plain)) == joins
    assert not hangs(fused, 2)
    assert joins or fused == plain
    assert interpreter.run(fused, 1, 2).is_right


@given(seed=SEEDS)
@settings(few, max_examples=40)
def test_waits_on_what_was_fused_still_hold(seed):
    """Happens-before is kept: whatever had to come after an instruction still comes after what it became."""
    flow = flow_of(
        random_fabric(seed),
        make_collective("allreduce", random_fabric(seed).n_ranks),
        ("direct", "forestcoll")[seed % 2],
    )
    plain = lower(flow, EXECUTOR, chunks=2, fuse=False)
    fused = Fuse(EXECUTOR).run(plain)
    for order in range(4):
        assert interpreter.run(fused, order, 2).is_right
    assert not [f for f in verify.findings(fused) if f.severity == "error"]
