"""The flow and schedule checkers: right schedules pass, every kind of damage is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations

import pytest
from conftest import both_ways, ring_fabric, star_fabric
from hypothesis import given, settings
from hypothesis import strategies as st

from collc import cost, verify
from collc.errors import VerificationError
from collc.ir.collective import COLLECTIVES, Problem, alltoallv, make_collective
from collc.ir.flow import Bound, Cut, FlowSchedule, Prices, Tree
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route, Topology
from collc.verify.findings import Finding
from collc.verify.rules import RULES
from collc.verify.witness import bound_faults, transfers

HALF = Fraction(1, 2)


def rules(value: FlowSchedule | Schedule) -> set[str]:
    return {finding.rule for finding in verify.findings(value)}


def hop(topology: Topology, src: int, dst: int) -> Route:
    """The direct route, or the one through the star's switch."""
    ends = topology.gpus[src], topology.gpus[dst]
    return Route(src, dst, ends if ends in topology.link else (ends[0], "s", ends[1]))


# --- right schedules, written by hand -----------------------------------------------------------


def ring_allgather(n: int) -> FlowSchedule:
    """Every shard half each way round: each link carries (n-1)/2 shards of 1/n."""
    fabric = ring_fabric(n)
    trees = [
        Tree(
            root, HALF, root, (), tuple(hop(fabric, (root + d * j) % n, (root + d * (j + 1)) % n) for j in range(n - 1))
        )
        for root in range(n)
        for d in (1, -1)
    ]
    time = Fraction(n - 1, 2 * n)
    # All but one GPU: n-1 shards must enter it by two links.
    bound = Bound(time, Cut(fabric.gpus[1:]))
    return FlowSchedule(Problem(fabric, make_collective("allgather", n)), tuple(trees), time, bound)


def star_allreduce(n: int) -> FlowSchedule:
    """The share 1/n of each rank is summed there and sent to all."""
    fabric = star_fabric(n)
    trees = []
    for root in range(n):
        others = [rank for rank in range(n) if rank != root]
        trees.append(
            Tree(
                0,
                Fraction(1, n),
                root,
                tuple(hop(fabric, rank, root) for rank in others),
                tuple(hop(fabric, root, rank) for rank in others),
            )
        )
    time = Fraction(2 * (n - 1), n)
    # Gossip needs 2n-2 calls; every call leaves a GPU, and n links of 1 GB/s leave GPUs.
    bound = Bound(time, Prices(tuple((gpu, "s", Fraction(1)) for gpu in fabric.gpus)))
    return FlowSchedule(Problem(fabric, make_collective("allreduce", n)), tuple(trees), time, bound)


def ring_alltoall(n: int) -> FlowSchedule:
    """Each block goes the short way, relayed by the ranks between; half each way where both are as short."""
    fabric = ring_fabric(n)
    trees = []
    for src, dst in ((s, d) for s in range(n) for d in range(n)):
        ahead = (dst - src) % n
        ways = {1: HALF, -1: HALF} if 2 * ahead == n else {1 if 2 * ahead < n else -1: Fraction(1)}
        for way, weight in ways.items():
            length = min(ahead, n - ahead)
            path = tuple(hop(fabric, (src + way * j) % n, (src + way * (j + 1)) % n) for j in range(length))
            trees.append(Tree(src * n + dst, weight, src, (), path))
    distance = sum(min(a, n - a) for a in range(n))  # from one rank to all
    time = Fraction(distance, 2 * n)
    prices = Prices(tuple((link.src, link.dst, Fraction(3)) for link in fabric.links))
    return FlowSchedule(Problem(fabric, make_collective("alltoall", n)), tuple(trees), time, Bound(time, prices))


def ring_allreduce_steps(n: int) -> Schedule:
    """The textbook ring: n-1 steps that add, n-1 that copy."""
    fabric = ring_fabric(n)
    sends = [
        Send(step, (rank - step) % n, hop(fabric, rank, (rank + 1) % n), reduce=step < n - 1)
        for step in range(2 * n - 2)
        for rank in range(n)
    ]
    problem = Problem(fabric, make_collective("allreduce", n, n))
    return Schedule(problem, tuple(sends), Fraction(2 * n - 2, n))


def star_allgather_steps(n: int, factor: int) -> Schedule:
    """In step d every rank sends its whole shard to the d-th after it: sends of `factor` chunks."""
    fabric = star_fabric(n)
    sends = [
        Send(d - 1, rank * factor, hop(fabric, rank, (rank + d) % n), reduce=False, count=factor)
        for d in range(1, n)
        for rank in range(n)
    ]
    problem = Problem(fabric, make_collective("allgather", n, factor))
    return Schedule(problem, tuple(sends), Fraction(n - 1, n))


RIGHT = [
    ring_allgather(4),
    ring_allgather(7),
    star_allreduce(2),
    star_allreduce(6),
    ring_alltoall(5),
    ring_alltoall(8),
    ring_allreduce_steps(4),
    star_allgather_steps(4, 3),
]


@pytest.mark.parametrize("value", RIGHT)
def test_right_schedules_pass(value):
    assert verify.findings(value) == ()
    assert verify.check(value) is value


def test_these_flows_are_optimal():
    assert ring_allgather(5).is_optimal
    assert star_allreduce(5).is_optimal
    assert ring_alltoall(6).is_optimal


def test_one_gpu_needs_no_trees():
    alone = Topology("one", ("g0",), (), ())
    for name in ("allgather", "allreduce", "alltoall", "broadcast", "scatter"):
        problem = Problem(alone, make_collective(name, 1))
        assert verify.findings(FlowSchedule(problem, (), Fraction(0))) == ()
        assert verify.findings(Schedule(problem, (), Fraction(0))) == ()


# --- seeded faults: flow -------------------------------------------------------------------------


def with_tree(flow: FlowSchedule, index: int, **changes: object) -> FlowSchedule:
    trees = list(flow.trees)
    trees[index] = replace(trees[index], **changes)
    return replace(flow, trees=tuple(trees))


GATHER, REDUCE, EXCHANGE = ring_allgather(4), star_allreduce(4), ring_alltoall(5)
FIRST = GATHER.trees[0].broadcast
STAR_IN, STAR_OUT = REDUCE.trees[0].reduce, REDUCE.trees[0].broadcast
SWAPPED_CHAIN = (FIRST[1], FIRST[0], FIRST[2])
RAISED = Prices((("g0", "g1", Fraction(100)), *EXCHANGE.bound.witness.price[1:]))
LATE = (hop(star_fabric(4), 1, 2), hop(star_fabric(4), 2, 0), hop(star_fabric(4), 3, 2))

FLOW_FAULTS: list[tuple[str, FlowSchedule, str]] = [
    ("a hop dropped at the end", with_tree(GATHER, 0, broadcast=FIRST[:-1]), "tree-incomplete"),
    ("a hop dropped in the middle", with_tree(GATHER, 0, broadcast=(FIRST[0], FIRST[2])), "tree-order"),
    ("two hops swapped", with_tree(GATHER, 0, broadcast=SWAPPED_CHAIN), "tree-order"),
    ("a hop twice", with_tree(GATHER, 0, broadcast=(*FIRST, FIRST[-1])), "tree-double"),
    ("back to the root", with_tree(GATHER, 0, broadcast=(*FIRST, hop(ring_fabric(4), 3, 0))), "tree-double"),
    ("a tree dropped", replace(GATHER, trees=GATHER.trees[1:]), "weights"),
    ("a tree twice", replace(GATHER, trees=(*GATHER.trees, GATHER.trees[0])), "weights"),
    ("a weight shifted", with_tree(GATHER, 0, weight=Fraction(2, 3)), "weights"),
    ("another root", with_tree(GATHER, 0, root=1), "tree-incomplete"),
    ("another chunk", with_tree(GATHER, 0, chunk=1), "tree-incomplete"),
    ("a contributor left out", with_tree(REDUCE, 0, reduce=STAR_IN[1:]), "tree-incomplete"),
    ("a contributor twice", with_tree(REDUCE, 0, reduce=(*STAR_IN, STAR_IN[0])), "tree-double"),
    ("the root sends its part away", with_tree(REDUCE, 0, reduce=(hop(star_fabric(4), 0, 1), *STAR_IN)), "tree-double"),
    ("a part that comes too late", with_tree(REDUCE, 0, reduce=LATE), "tree-order"),
    (
        "a part that ends elsewhere",
        with_tree(REDUCE, 0, reduce=(*STAR_IN[:2], hop(star_fabric(4), 3, 1))),
        "tree-order",
    ),
    ("time too short", replace(GATHER, time=GATHER.time - Fraction(1, 10**9)), "overload"),
    ("time too long", replace(GATHER, time=GATHER.time + Fraction(1, 10**9)), "time"),
    ("a bound too strong", replace(GATHER, bound=Bound(GATHER.time * 2, GATHER.bound.witness)), "bound"),
    ("a bound too weak", replace(GATHER, bound=Bound(GATHER.time / 2, GATHER.bound.witness)), "bound"),
    ("a smaller cut", replace(GATHER, bound=Bound(GATHER.time, Cut(("g1", "g2")))), "bound"),
    ("a cut of everything", replace(GATHER, bound=Bound(GATHER.time, Cut(GATHER.problem.topology.gpus))), "bound"),
    ("a cut of nothing", replace(GATHER, bound=Bound(GATHER.time, Cut(()))), "bound"),
    ("an unknown vertex in the cut", replace(GATHER, bound=Bound(GATHER.time, Cut(("g1", "g9")))), "witness"),
    ("a bound that is beaten", replace(GATHER, time=Fraction(1, 100)), "bound-beaten"),
    ("a price raised", replace(EXCHANGE, bound=Bound(EXCHANGE.time, RAISED)), "bound"),
    ("no prices", replace(EXCHANGE, bound=Bound(EXCHANGE.time, Prices(()))), "bound"),
    (
        "a negative price",
        replace(EXCHANGE, bound=Bound(EXCHANGE.time, Prices((("g0", "g1", Fraction(-1)),)))),
        "witness",
    ),
    (
        "a price twice",
        replace(EXCHANGE, bound=Bound(EXCHANGE.time, Prices(EXCHANGE.bound.witness.price[:1] * 2))),
        "witness",
    ),
    (
        "a price on no link",
        replace(EXCHANGE, bound=Bound(EXCHANGE.time, Prices((("g0", "g2", Fraction(1)),)))),
        "witness",
    ),
    (
        "a link that does not exist",
        with_tree(GATHER, 0, broadcast=(Route(0, 2, ("g0", "g2")), *FIRST[1:])),
        "route-missing",
    ),
    (
        "ends that are not the ranks",
        with_tree(GATHER, 0, broadcast=(Route(0, 1, ("g0", "g3")), *FIRST[1:])),
        "route-ends",
    ),
    ("a route to nowhere", with_tree(GATHER, 0, broadcast=(*FIRST, Route(3, 3, ("g3",)))), "route-ends"),
    (
        "a GPU on the way",
        with_tree(GATHER, 0, broadcast=(FIRST[0], Route(1, 3, ("g1", "g2", "g3")), Route(3, 2, ("g3", "g2")))),
        "route-relay",
    ),
]


@pytest.mark.parametrize(("flow", "rule"), [pytest.param(f, r, id=what) for what, f, r in FLOW_FAULTS])
def test_a_damaged_flow_is_named(flow, rule):
    assert rule in rules(flow)
    with pytest.raises(VerificationError, match="FlowSchedule: "):
        verify.check(flow)


def test_the_counterexample_can_be_followed():
    (finding,) = verify.findings(replace(GATHER, time=GATHER.time + 1))
    assert finding == Finding("time", "error", "the stated time is 11/8 s/GB; the busiest link needs 3/8")
    with pytest.raises(VerificationError, match="rank 3") as caught:
        verify.check(with_tree(GATHER, 0, broadcast=FIRST[:-1]))
    assert caught.value.exit_code == 1


def test_findings_of_one_kind_are_counted_not_listed():
    empty = replace(ring_alltoall(8), trees=())
    weights = [finding for finding in verify.findings(empty) if finding.rule == "weights"]
    assert len(weights) == 11
    assert weights[-1].message == "and 46 more of weights"  # 56 chunks move


def test_an_all_to_all_v_counts_slots():
    fabric = star_fabric(3)
    collective = alltoallv([[0, 5, 0], [0, 0, 1], [2, 0, 1]])
    routes = {chunk: hop(fabric, *pair) for chunk, pair in enumerate([(0, 1), (1, 2), (2, 0)])}
    trees = tuple(Tree(chunk, Fraction(1), route.src, (), (route,)) for chunk, route in routes.items())
    right = FlowSchedule(Problem(fabric, collective), trees, Fraction(5, 5))
    assert verify.findings(right) == ()
    assert rules(replace(right, trees=trees[1:])) == {"weights", "time"}


def test_a_bound_counts_a_price_only_once_where_switches_copy():
    fabric = replace(star_fabric(4), multicast=("s",))
    collective = make_collective("broadcast", 4)
    prices = Prices((("g0", "s", Fraction(1)),))
    trees = (Tree(0, Fraction(1), 0, (), tuple(hop(fabric, 0, rank) for rank in (1, 2, 3))),)
    flow = FlowSchedule(Problem(fabric, collective), trees, Fraction(3), Bound(Fraction(3), prices))
    assert rules(flow) == {"bound"}


def test_the_least_number_of_transfers():
    every = range(4)
    assert [transfers([0], every, 4), transfers(every, [2], 4), transfers(every, every, 4)] == [3, 3, 6]
    assert [transfers([0], [0], 2), transfers([0], [1], 2), transfers([0], [0], 1)] == [0, 1, 0]
    assert transfers([0, 1], [1, 2], 4) == 2


def test_free_ways_make_one_group_of_ranks():
    """Two boxes of two: all-reduce crosses between them twice, and four links of 1 GB/s carry it."""
    links = [*both_ways("g0", "g1", 9), *both_ways("g2", "g3", 9), *both_ways("g0", "g2"), *both_ways("g1", "g3")]
    fabric = Topology("boxes", ("g0", "g1", "g2", "g3"), (), tuple(links))
    tree = Tree(0, Fraction(1), 0, tuple(hop(fabric, *ends) for ends in ((3, 2), (1, 0), (2, 0))),
                tuple(hop(fabric, *ends) for ends in ((0, 1), (0, 2), (2, 3))))  # fmt: skip
    prices = Prices(
        tuple((src, dst, Fraction(1)) for src, dst in (("g0", "g2"), ("g2", "g0"), ("g1", "g3"), ("g3", "g1")))
    )
    flow = FlowSchedule(
        Problem(fabric, make_collective("allreduce", 4)), (tree,), Fraction(1), Bound(Fraction(1, 2), prices)
    )
    assert verify.findings(flow) == ()
    assert rules(replace(flow, bound=Bound(Fraction(3, 4), prices))) == {"bound"}


def test_transfers_against_exhaustive_search():
    """Harary and Schwenk's number, by trying all orders of one-way calls among three ranks."""
    calls = list(permutations(range(3), 2))

    def fewest(limit: int) -> int | None:
        states = {(1, 2, 4)}
        for used in range(1, limit + 1):
            states = {
                tuple(state[r] | state[src] if r == dst else state[r] for r in range(3))
                for state in states
                for src, dst in calls
            }
            if (7, 7, 7) in states:
                return used
        return None

    assert fewest(6) == transfers(range(3), range(3), 3)


# --- seeded faults: schedule ---------------------------------------------------------------------


def with_send(schedule: Schedule, index: int, **changes: object) -> Schedule:
    sends = list(schedule.sends)
    sends[index] = replace(sends[index], **changes)
    return replace(schedule, sends=tuple(sends))


def swap_steps(schedule: Schedule, one: int, other: int) -> Schedule:
    swap = {one: other, other: one}
    sends = [replace(send, step=swap.get(send.step, send.step)) for send in schedule.sends]
    return replace(schedule, sends=tuple(sorted(sends, key=lambda send: send.step)))


RING, STAR = ring_allreduce_steps(4), star_allgather_steps(4, 3)
WITHOUT_STEP = replace(RING, sends=tuple(send for send in RING.sends if send.step != 1))

TWICE = replace(RING.sends[0], step=5)
BESIDE = replace(RING.sends[0], reduce=False)
WIDE = Problem(star_fabric(2), alltoallv([[0, 2], [0, 0]]))

SCHEDULE_FAULTS: list[tuple[str, Schedule, str]] = [
    ("a step dropped", WITHOUT_STEP, "missing-contribution"),
    ("a send dropped", replace(RING, sends=RING.sends[:-1]), "missing-contribution"),
    ("two steps swapped", swap_steps(RING, 2, 3), "missing-contribution"),
    ("added twice", replace(RING, sends=(*RING.sends, TWICE)), "double-contribution"),
    ("added in place of copied", with_send(RING, -1, reduce=True), "double-contribution"),
    ("copied in place of added", with_send(RING, 4, reduce=False), "missing-contribution"),
    ("not held", with_send(STAR, 0, chunk=3), "not-held"),
    ("half of it not held", with_send(STAR, 0, chunk=1), "not-held"),
    ("added to nothing", with_send(STAR, 0, reduce=True), "add-to-nothing"),
    ("two copies into one place", replace(STAR, sends=(STAR.sends[0], *STAR.sends)), "collision"),
    ("a copy beside an addition", replace(RING, sends=(BESIDE, *RING.sends)), "collision"),
    ("fewer chunks than needed", with_send(STAR, 0, count=2), "missing-contribution"),
    ("time too short", replace(RING, time=Fraction(1)), "overload"),
    ("time too long", replace(RING, time=Fraction(2)), "time"),
    ("a channel below zero", with_send(RING, 0, channel=-1), "channel"),
    ("no such link", with_send(RING, 0, route=Route(0, 2, ("g0", "g2"))), "route-missing"),
    ("no such rank", with_send(RING, 0, route=Route(0, 7, ("g0", "g7"))), "route-ends"),
    ("chunks of several slots", Schedule(WIDE, (), Fraction(0)), "chunk-count"),
]


@pytest.mark.parametrize(("schedule", "rule"), [pytest.param(s, r, id=what) for what, s, r in SCHEDULE_FAULTS])
def test_a_damaged_schedule_is_named(schedule, rule):
    assert rule in rules(schedule)
    with pytest.raises(VerificationError, match="Schedule: "):
        verify.check(schedule)


def test_two_additions_into_one_place_are_one_sum():
    fabric = star_fabric(3)
    sends = tuple(Send(0, 0, hop(fabric, src, 0), reduce=True) for src in (1, 2))
    schedule = Schedule(Problem(fabric, make_collective("reduce", 3)), sends, Fraction(2))
    assert verify.findings(schedule) == ()


def test_sends_of_a_step_read_the_state_before_it():
    """A rank cannot pass on in a step what it gets in that step."""
    fabric = ring_fabric(3)
    chain = tuple(Send(step, 0, hop(fabric, src, src + 1), reduce=False) for step, src in ((0, 0), (0, 1)))
    schedule = Schedule(Problem(fabric, make_collective("broadcast", 3)), chain, Fraction(1))
    assert "not-held" in rules(schedule)
    later = replace(schedule, sends=(chain[0], replace(chain[1], step=1)))
    assert verify.findings(later) == ()


def test_many_doublings_are_not_mistaken_for_another_rank():
    """Sums of sums: 2**n times one contribution must not look like a contribution of another rank."""
    fabric = ring_fabric(2)
    sends = tuple(Send(step, 0, hop(fabric, src, 1 - src), reduce=True) for step in range(70) for src in (0, 1))
    schedule = Schedule(Problem(fabric, make_collective("allreduce", 2)), sends, Fraction(70))
    assert rules(schedule) == {"double-contribution"}


# --- properties ----------------------------------------------------------------------------------


def naive_replay(schedule: Schedule) -> bool:
    """The meaning of a schedule in the most obvious way: lists of contributions."""
    table = schedule.problem.collective.chunks
    held = {(r, c): [r] for c, chunk in enumerate(table) for r in chunk.precondition}
    for step in range(schedule.n_steps):
        before = {place: list(value) for place, value in held.items()}
        written: dict[tuple[int, int], list[bool]] = {}
        for send in (send for send in schedule.sends if send.step == step):
            for chunk in range(send.chunk, send.chunk + send.count):
                source, target = (send.route.src, chunk), (send.route.dst, chunk)
                if source not in before or (send.reduce and target not in before):
                    return False
                written.setdefault(target, []).append(send.reduce)
                held[target] = (held[target] if send.reduce else []) + before[source]
        if any(len(kinds) > 1 and not all(kinds) for kinds in written.values()):
            return False
    return all(
        sorted(held.get((r, c), [])) == sorted(chunk.precondition)
        for c, chunk in enumerate(table)
        for r in chunk.postcondition
    )


DAMAGE: list[Callable[[Send, int], Send]] = [
    lambda send, x: replace(send, step=x % 7),
    lambda send, x: replace(send, chunk=x % 4, count=1),
    lambda send, x: replace(send, reduce=not send.reduce),
    lambda send, x: replace(send, route=hop(ring_fabric(4), x % 4, (x + 1) % 4)),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 23), st.integers(0, 3), st.integers(0, 27)), min_size=1, max_size=3))
def test_replay_agrees_with_the_obvious_one(damages):
    sends = list(RING.sends)
    for index, kind, x in damages:
        sends[index] = DAMAGE[kind](sends[index], x)
    damaged = replace(RING, sends=tuple(sends))
    assert (rules(damaged) <= {"time", "overload"}) == naive_replay(damaged)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 6), st.data())
def test_a_random_out_tree_passes_and_loses_its_validity_with_any_hop(n, data):
    fabric = star_fabric(n, Fraction(25, 3))
    order = data.draw(st.permutations(range(n)))
    parents = [data.draw(st.integers(0, i)) for i in range(n - 1)]
    routes = tuple(hop(fabric, order[parent], order[i + 1]) for i, parent in enumerate(parents))
    busiest = max(parents.count(parent) for parent in parents)
    problem = Problem(fabric, make_collective("broadcast", n, root=order[0]))
    flow = FlowSchedule(problem, (Tree(0, Fraction(1), order[0], (), routes),), Fraction(3 * busiest, 25))
    assert verify.findings(flow) == ()
    mirrored = Problem(fabric, make_collective("reduce", n, root=order[0]))
    into = tuple(route.reversed() for route in reversed(routes))
    gather = FlowSchedule(mirrored, (Tree(0, Fraction(1), order[0], into),), Fraction(3 * busiest, 25))
    assert verify.findings(gather) == ()
    dropped = data.draw(st.integers(0, n - 2))
    for whole, part in ((flow, "broadcast"), (gather, "reduce")):
        hops = getattr(whole.trees[0], part)
        damaged = with_tree(whole, 0, **{part: hops[:dropped] + hops[dropped + 1 :]})
        assert rules(damaged) & {"tree-incomplete", "tree-order"}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 5)), st.integers(1, 9))
def test_a_cut_proves_what_crosses_it(inside, bandwidth):
    """On a ring, by hand: shards of the ranks inside over the links that leave."""
    fabric = ring_fabric(6, bandwidth)
    cut = Cut(tuple(f"g{rank}" for rank in sorted(inside)))
    leaving = sum((r + d) % 6 not in inside for r in inside for d in (1, -1)) * bandwidth
    flow = replace(ring_allgather(6), problem=Problem(fabric, make_collective("allgather", 6)))
    flow = replace(flow, time=flow.time / bandwidth)
    proven = Fraction(len(inside), 6) / leaving if leaving else Fraction(0)
    found = rules(replace(flow, bound=Bound(proven, cut)))
    assert found == (set() if leaving else {"bound"})


def test_unequal_cables_are_told_apart():
    """Two ways of unequal width: the load of each is held against its own bandwidth."""
    links = (*both_ways("g0", "s", 3), *both_ways("s", "g1", 3), *both_ways("g0", "g1", 1))
    fabric = Topology("two ways", ("g0", "g1"), ("s",), links)
    problem = Problem(fabric, make_collective("broadcast", 2))
    direct, around = Route(0, 1, ("g0", "g1")), Route(0, 1, ("g0", "s", "g1"))
    split = (Tree(0, Fraction(1, 4), 0, (), (direct,)), Tree(0, Fraction(3, 4), 0, (), (around,)))
    right = FlowSchedule(problem, split, Fraction(1, 4), Bound(Fraction(1, 4), Cut(("g0",))))
    assert right.is_optimal
    assert verify.findings(right) == ()
    shifted = (replace(split[0], weight=Fraction(1, 2)), replace(split[1], weight=Fraction(1, 2)))
    (finding,) = verify.findings(replace(right, trees=shifted))
    assert finding.rule == "overload"
    assert "link g0 -> g1 carries 1/2 of the message" in finding.message


# --- the bounds of the cost model, by independent rules ------------------------------------------

lopsided = st.builds(
    lambda n, widths: Topology(
        "lopsided",
        tuple(f"g{rank}" for rank in range(n)),
        ("s",),
        tuple(
            replace(link, bandwidth=Fraction(widths[i % len(widths)]))
            for i, link in enumerate((*star_fabric(n).links, *ring_fabric(n).links))
        ),
    ),
    st.integers(2, 5),
    st.lists(st.sampled_from([1, 2, 7, Fraction(25, 3)]), min_size=1, max_size=9),
)


@settings(max_examples=60, deadline=None)
@given(lopsided, st.sampled_from(sorted(COLLECTIVES)))
def test_the_checker_proves_every_bound_of_the_cost_model(fabric, name):
    problem = Problem(fabric, make_collective(name, fabric.n_ranks))
    bound = cost.bound(problem)
    assert bound is not None
    assert list(bound_faults(problem, bound, bound.time)) == []
    for wrong in (bound.time * 2, bound.time / 2):
        assert [finding.rule for finding in bound_faults(problem, replace(bound, time=wrong), bound.time)] == ["bound"]


@settings(max_examples=150, deadline=None)
@given(lopsided, st.sampled_from(sorted(COLLECTIVES)), st.data())
def test_no_witness_proves_more_than_a_real_schedule_reaches(fabric, name, data):
    """Soundness: whatever cut or prices are offered, a valid flow is never said to beat them."""
    collective = make_collective(name, fabric.n_ranks)
    problem = Problem(fabric, collective)
    trees = []
    for index, chunk in enumerate(collective.chunks):
        root = data.draw(st.sampled_from(chunk.precondition.ranks))
        gather = [r for r in data.draw(st.permutations(list(chunk.precondition))) if r != root]
        spread = [r for r in data.draw(st.permutations(list(chunk.postcondition))) if r != root]
        # A chain into the root, and one out of it: all that matters is that it is valid.
        into = [*gather, root]
        out = [root, *spread]
        trees.append(
            Tree(
                index,
                Fraction(1),
                root,
                tuple(hop(fabric, a, b) for a, b in pairwise(into)),
                tuple(hop(fabric, a, b) for a, b in pairwise(out)),
            )
        )
    inside = data.draw(st.sets(st.sampled_from((*fabric.gpus, "s"))))
    priced = data.draw(st.lists(st.tuples(st.sampled_from(fabric.links), st.fractions(0, 3, max_denominator=4))))
    prices = {(link.src, link.dst): price for link, price in priced}
    witness = data.draw(
        st.sampled_from([Cut(tuple(sorted(inside))), Prices(tuple((*ends, price) for ends, price in prices.items()))])
    )
    flow = FlowSchedule(problem, tuple(trees), cost.bandwidth_time(problem, trees), Bound(Fraction(1), witness))
    assert rules(flow) <= {"bound"}


def test_every_rule_of_these_checkers_is_listed_with_its_severity():
    for _, value, _ in (*FLOW_FAULTS, *SCHEDULE_FAULTS):
        for finding in verify.findings(value):
            assert RULES[finding.rule].severity == finding.severity
