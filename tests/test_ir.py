"""The values everything is made of: what they refuse, and that their text form loses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from conftest import ring_fabric, star_fabric
from hypothesis import given, settings
from hypothesis import strategies as st

from collc.cost.demand import Demand
from collc.errors import InputError, Place, nearest
from collc.ir import text
from collc.ir.collective import COLLECTIVES, Chunk, Collective, Places, Problem, alltoallv, make_collective
from collc.ir.flow import Bound, Cut, FlowSchedule, Prices, Tree
from collc.ir.program import Buffer, Gpu, Instruction, Op, Program, Slot, Threadblock
from collc.ir.schedule import Schedule, Send
from collc.ir.text import dumps, loads
from collc.ir.topology import Link, Route, Topology

ONE = Fraction(1)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (Place("x.yaml", 3, 7, "links[0]"), "x.yaml:3:7: links[0]"),
        (Place("x.yaml"), "x.yaml"),
        (Place(line=3), "line 3"),
        (Place(key="a.b"), "a.b"),
        (Place(), ""),
    ],
)
def test_a_place_names_what_is_known(place, shown):
    assert str(place) == shown
    assert str(InputError("wrong", place)) == (f"{shown}: wrong" if shown else "wrong")


def test_the_nearest_word_or_all_of_them():
    assert nearest("allgahter", COLLECTIVES) == "; did you mean 'allgather'?"
    assert nearest("?", ["b", "a"]) == "; expected one of a, b"


# --- topology ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Link("a", "a", ONE), "link from 'a' to itself"),
        (lambda: Link("a", "b", Fraction(0)), "bandwidth 0 GB/s; expected a positive number"),
        (lambda: Link("a", "b", Fraction(-25)), "bandwidth -25"),
        (lambda: Link("a", "b", ONE, Fraction(-1)), "latency -1 us"),
        (lambda: Topology("t", (), (), ()), "has no GPUs"),
        (lambda: Topology("t", ("a", "a"), (), ()), "'a' is declared twice"),
        (lambda: Topology("t", ("a",), ("a",), ()), "'a' is declared twice"),
        (lambda: Topology("t", ("a",), (), (Link("a", "b", ONE),)), "no vertex 'b'"),
        (lambda: Topology("t", ("a", "b"), (), (Link("a", "b", ONE),) * 2), "given twice"),
        (lambda: Topology("t", ("a", "b"), (), (), hosts=((0,),)), "do not hold each rank once"),
        (lambda: Topology("t", ("a",), (), (), multicast=("a",)), "names 'a', which is no switch"),
        (lambda: Topology("t", ("a",), (), (), ranks_per_device=0), "ranks_per_device 0"),
    ],
)
def test_a_wrong_fabric_is_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_a_fabric_answers_questions():
    fabric = star_fabric(3, 25)
    assert fabric.n_ranks == 3
    assert fabric.rank_of["g2"] == 2
    assert fabric.hosts == ((0, 1, 2),)
    assert fabric.host_of[1] == 0
    assert fabric.successors["s"] == ("g0", "g1", "g2")
    assert fabric.link["g1", "s"].bandwidth == 25
    assert fabric.is_symmetric
    lame = replace(fabric, links=fabric.links[1:])
    assert not lame.is_symmetric
    assert lame.reversed().reversed() == lame
    assert ("s", "g0") in lame.link
    assert ("g0", "s") in lame.reversed().link


def test_a_route_is_walked_both_ways():
    route = Route(0, 1, ("g0", "s", "g1"))
    assert route.hops == (("g0", "s"), ("s", "g1"))
    assert route.reversed() == Route(1, 0, ("g1", "s", "g0"))


def test_a_reversed_fabric_trades_copying_for_adding():
    fabric = replace(star_fabric(2), multicast=("s",))
    assert fabric.reversed().reduce == ("s",)
    assert fabric.reversed().multicast == ()


# --- collectives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 2), (5, 4)])
def test_the_table_fills_every_output_once_and_reads_every_input(name, n, k):
    collective = make_collective(name, n, k)
    written = [(r, chunk.postcondition[r]) for chunk in collective.chunks for r in chunk.postcondition]
    assert len(written) == len(set(written))
    read = {(r, chunk.precondition[r]) for chunk in collective.chunks for r in chunk.precondition}
    if collective.root is None:
        assert len(written) == n * collective.output_chunks
        assert len(read) == n * collective.input_chunks
    assert collective.size_chunks == max(collective.input_chunks, collective.output_chunks)


def test_the_table_by_hand():
    gather = make_collective("allgather", 3, 2).chunks[3]  # rank 1, piece 1
    assert dict(gather.precondition) == {1: 1}
    assert dict(gather.postcondition) == {0: 3, 1: 3, 2: 3}
    scatter = make_collective("reduce_scatter", 3, 2).chunks[3]
    assert dict(scatter.precondition) == {0: 3, 1: 3, 2: 3}
    assert dict(scatter.postcondition) == {1: 1}
    exchange = make_collective("alltoall", 3).chunks[5]  # from 1 to 2
    assert dict(exchange.precondition) == {1: 2}
    assert dict(exchange.postcondition) == {2: 1}
    rooted = make_collective("broadcast", 3, root=2).chunks[0]
    assert dict(rooted.precondition) == {2: 0}


@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 1), (3, 5)])
def test_the_table_of_an_alltoall_is_a_rule(n, k):
    rule = make_collective("alltoall", n, k)
    written_out = replace(rule, chunks=tuple(rule.chunks))
    assert rule == make_collective("alltoall", n).refined(k)
    assert written_out.refined(2).chunks == tuple(rule.refined(2).chunks)
    assert tuple(rule.chunks[at] for at in range(-len(rule.chunks), 0)) == written_out.chunks == rule.chunks[:]
    assert rule.groups == written_out.groups
    assert rule.shapes == written_out.shapes == {(1, 1)}
    for name, column in vars(rule.columns).items():
        assert column.tolist() == getattr(written_out.columns, name).tolist()
    assert (Demand.of(rule).pairs == Demand.of(written_out).pairs).all()
    with pytest.raises(IndexError):
        rule.chunks[n * n * k]


def test_a_rule_is_short_in_text_and_written_out_tables_are_still_read():
    problem = Problem(ring_fabric(3), make_collective("alltoall", 3, 2))
    text = dumps(problem)
    assert '"chunks":{"n_ranks":3,"per_pair":2}' in text
    assert loads(text) == problem
    written_out = replace(problem, collective=replace(problem.collective, chunks=tuple(problem.collective.chunks)))
    assert loads(dumps(written_out)) == written_out
    for found, message in (
        ("3,", 'Problem.collective.chunks.n_ranks: "3,"; expected int'),
        (0, "2 chunks for each pair of 0 ranks"),
        (4, "ranks 3..3; expected 0..2"),
        (10**6, "67108864 chunks at most"),
    ):
        with pytest.raises(InputError, match=message):
            loads(text.replace('"chunks":{"n_ranks":3', f'"chunks":{{"n_ranks":{json.dumps(found)}'))
    with pytest.raises(InputError, match="the buffer has 6"):
        loads(text.replace('"per_pair":2', '"per_pair":3'))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_in_place_overlap_is_where_nccl_says(name):
    """A rank's own block: the same memory before and after."""
    collective = make_collective(name, 4, 2).called_inplace()
    assert collective.inplace
    for chunk in collective.chunks:
        for rank in set(chunk.precondition) & set(chunk.postcondition):
            here = chunk.precondition[rank] + collective.shift[rank]
            if name != "alltoall":
                assert here == chunk.postcondition[rank]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_collective("allgahter", 2), "did you mean 'allgather'"),
        (lambda: make_collective("alltoallv", 2), "needs a demand matrix"),
        (lambda: make_collective("allgather", 2, root=0), "allgather has no root"),
        (lambda: make_collective("reduce", 2, root=2), "root 2: expected a rank from 0 to 1"),
        (lambda: make_collective("allreduce", 0), "0 ranks"),
        (lambda: make_collective("allreduce", 2, 0), "chunk factor 0"),
        (lambda: alltoallv([[1, 2], [3]]), "row 1 has 1 entries"),
        (lambda: alltoallv([[0, -1], [0, 0]]), "row 0 column 1 is -1"),
        (lambda: alltoallv([[0, 0], [0, 0]]), "every entry is zero"),
        (lambda: Places((1, 1), 0), "expected increasing numbers"),
        (lambda: Places((0, 1), (0,)), "1 offsets for 2 ranks"),
        (lambda: one_chunk(Places((2,), 0), Places((0,), 0)), "ranks 2..2; expected 0..1"),
        (lambda: one_chunk(Places((0,), 1), Places((0,), 0)), "the buffer has 1"),
        (lambda: one_chunk(Places((), 0), Places((0,), 0)), "names no rank"),
        (lambda: Problem(ring_fabric(3), make_collective("allreduce", 2)), "on 2 ranks; topology 'ring' has 3"),
    ],
)
def test_a_wrong_collective_is_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


def one_chunk(before: Places, after: Places) -> Collective:
    return Collective("custom", 2, 1, 1, 1, (Chunk(before, after),), (0, 0))


def test_places_are_a_mapping():
    places = Places(range(0, 6, 2), (5, 6, 7))
    assert dict(places) == {0: 5, 2: 6, 4: 7}
    assert 1 not in places
    with pytest.raises(KeyError):
        Places((0, 2), 1)[1]


# --- schedules -----------------------------------------------------------------------------------


def test_schedules_name_what_is_out_of_range():
    problem = Problem(ring_fabric(2), make_collective("allgather", 2))
    hop = Route(0, 1, ("g0", "g1"))
    for build, message in (
        (lambda: Tree(0, Fraction(0), 0), "weight 0"),
        (lambda: Tree(0, Fraction(3, 2), 0), "weight 3/2"),
        (lambda: FlowSchedule(problem, (Tree(2, ONE, 0),), ONE), "tree 0: chunk 2; the table has 2"),
        (lambda: Schedule(problem, (Send(0, 1, hop, False, 2),), ONE), "chunks 1..2; the table has 2"),
        (lambda: Schedule(problem, (Send(0, 0, hop, False, 0),), ONE), "the table has 2"),
        (lambda: Schedule(problem, (Send(-1, 0, hop, False),), ONE), "step -1"),
        (lambda: Program(problem.collective, (Gpu(1, 0, ()), Gpu(0, 0, ()))), "expected 0..1"),
    ):
        with pytest.raises(InputError, match=message):
            build()


def test_a_tree_knows_its_height():
    def hop(src: int, dst: int) -> Route:
        return Route(src, dst, (f"g{src}", f"g{dst}"))

    assert Tree(0, ONE, 0).height == 0
    assert Tree(0, ONE, 0, (), (hop(0, 1), hop(1, 2), hop(0, 3))).height == 2
    assert Tree(0, ONE, 0, (hop(2, 1), hop(1, 0)), (hop(0, 1),)).height == 3


# --- text ----------------------------------------------------------------------------------------

fractions = st.fractions(min_value=Fraction(1, 10**9), max_value=10**12)
fabrics = st.builds(
    lambda n, bandwidth, marked: replace(star_fabric(n, bandwidth), multicast=("s",) if marked else ()),
    st.integers(1, 5),
    fractions,
    st.booleans(),
)


@st.composite
def values(draw):
    fabric = draw(fabrics)
    n = fabric.n_ranks
    name = draw(st.sampled_from(sorted(COLLECTIVES)))
    collective = make_collective(name, n, draw(st.integers(1, 3)), inplace=draw(st.booleans()))
    problem = Problem(fabric, collective, draw(st.none() | st.integers(0, 2**70)))
    route = Route(0, n - 1, ("g0", "s", f"g{n - 1}"))
    witness = draw(st.sampled_from([Cut(("g0", "s")), Prices((("g0", "s", Fraction(2, 3)),))]))
    flow = FlowSchedule(
        problem,
        (Tree(0, draw(st.sampled_from([ONE, Fraction(1, 3)])), 0, (), (route,)),),
        draw(fractions),
        draw(st.none() | st.builds(Bound, fractions, st.just(witness))),
        ('a note with \u00e9 and "quotes"',),
    )
    schedule = Schedule(problem, (Send(0, 0, route, draw(st.booleans()), 1, 2),), draw(fractions))
    step = Instruction(Op.RECV_REDUCE_COPY_SEND, Slot(Buffer.INPUT, 0), Slot(Buffer.SCRATCH, 7), 2, ((0, 1), (3, 4)))
    threadblock = Threadblock(draw(st.none() | st.integers(0, 4)), None, 3, (step, Instruction(Op.NOP)))
    program = Program(collective, tuple(Gpu(rank, 8, (threadblock,)) for rank in range(n)), "LL128")
    return draw(st.sampled_from([fabric, problem, flow, schedule, program]))


@settings(max_examples=80, deadline=None)
@given(values())
def test_text_round_trips_exactly(value):
    written = text.dumps(value)
    assert text.loads(written) == value
    assert text.dumps(text.loads(written)) == written
    assert written.endswith("}\n")


def test_an_all_to_all_v_round_trips():
    problem = Problem(star_fabric(2), alltoallv([[0, 3], [10**15, 1]]))
    assert text.loads(text.dumps(problem)) == problem


def test_many_ranks_are_written_as_a_rule():
    document = text.dumps(Problem(star_fabric(64), make_collective("allgather", 64)))
    assert len(document) < 64 * 300


def damaged(change) -> str:
    document = json.loads(text.dumps(Problem(star_fabric(2), make_collective("allgather", 2))))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("collc"), "not a collc document"),
        (lambda d: d.update(collc=99), "another version"),
        (lambda d: d.update(kind="Problme"), "did you mean 'Problem'"),
        (lambda d: d.update(kind=["Problem"]), "kind"),
        (lambda d: d.pop("collective"), "Problem: no field 'collective'"),
        (lambda d: d.update(nbyte=1), "unknown field 'nbyte'; did you mean 'nbytes'"),
        (lambda d: d.update(nbytes="1"), "Problem.nbytes"),
        (lambda d: d.update(nbytes=True), "Problem.nbytes: true"),
        (lambda d: d["topology"].update(gpus="g0"), 'Problem.topology.gpus: "g0"; expected a list'),
        (
            lambda d: d["topology"]["links"][0].update(bandwidth=25),
            r"links\[0\].bandwidth: 25; expected a number",
        ),
        (lambda d: d["topology"]["links"][0].update(bandwidth="NaN"), "'NaN' is not a number"),
        (lambda d: d["topology"]["links"][0].update(bandwidth="1/0"), "divides by zero"),
        (lambda d: d["topology"]["links"].__setitem__(0, 5), r"links\[0\]: 5; expected an object"),
        (lambda d: d["collective"]["chunks"][0].update(precondition={}), "expected an object with ranks and offsets"),
        (lambda d: d["collective"]["chunks"][0]["postcondition"].update(ranks="0-2"), "expected 'first:end'"),
        (lambda d: d["collective"]["chunks"][0]["postcondition"].update(ranks="0:99999999999999999999"), "expected"),
        (lambda d: d["collective"]["chunks"][0]["postcondition"].update(ranks="0:999999999999"), "expected 0..1"),
    ],
)
def test_a_damaged_document_is_named(change, message):
    with pytest.raises(InputError, match=message):
        text.loads(damaged(change))


def test_a_document_without_a_field_that_came_later_is_read():
    assert text.loads(damaged(lambda d: d.pop("nbytes"))).nbytes is None
    assert text.loads(damaged(lambda d: d["topology"].pop("ranks_per_device"))).topology.ranks_per_device == 1


@pytest.mark.parametrize("words", ["", "{", "[]", "null", '{"a":1}', "[" * 100_000, "\x00", '{"collc":1}'])
def test_what_is_no_document_is_refused(words):
    with pytest.raises(InputError):
        text.loads(words)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["1/3", "0:2", "send"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(values(), st.data())
def test_any_value_anywhere_is_read_or_refused(value, data):
    """Put something else in one place of a document: never a traceback."""
    document = json.loads(text.dumps(value))
    at = document
    while True:
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(list(keys)))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
            at = at[key]
        else:
            break
    at[key] = data.draw(json_values)
    try:
        text.loads(json.dumps(document))
    except InputError as error:
        assert str(error)
