"""Flows of trees that renamings repeat, and many ways in arrays: what they stand for; no fault in them passes."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import fabrics
import numpy
import pytest

from collc import cost, registry, verify
from collc.design.recipe import parse
from collc.design.wiring import topology_of
from collc.errors import InputError
from collc.ir.collective import AllPairs, Problem, alltoallv, make_collective
from collc.ir.flow import Bound, Cut, FlowSchedule, Forest, Orbit, Prices
from collc.ir.text import dumps, loads
from collc.ir.topology import Link, Topology
from collc.passes.lower_flow import LowerFlow
from collc.passes.round_weights import RoundWeights
from collc.synth import mcf
from collc.synth._network import Network
from collc.synth._symmetry import find
from collc.synth.mcf import Mcf
from collc.verify.flow import traffic


def design(recipe: str) -> Topology:
    return topology_of(parse(recipe), Fraction(1), Fraction(0))


def alltoall(topology: Topology, per_pair: int = 1) -> Problem:
    return Problem(topology, make_collective("alltoall", topology.n_ranks, per_pair))


@pytest.fixture(autouse=True)
def mix_everywhere(monkeypatch):
    monkeypatch.setattr(mcf, "_FEW_RANKS", 1)


def shuffled(topology: Topology, seed: int) -> Topology:
    """The same fabric with ranks and links in another order: neither numbers nor ports tell its symmetry."""
    chance = random.Random(seed)
    gpus, links = list(topology.gpus), list(topology.links)
    chance.shuffle(gpus)
    chance.shuffle(links)
    return replace(topology, gpus=tuple(gpus), links=tuple(links))


ALIKE = [
    "torus(dims=3x4)",
    "hypercube(dimensions=3)",
    "circulant(n=16,offsets=3x4)",
    "cayley(a=7,k=2,b=3,generators=4x7)",
]


@pytest.mark.parametrize("recipe", ALIKE)
@pytest.mark.parametrize("per_pair", [1, 3])
def test_an_orbit_stands_for_all_trees(recipe, per_pair, monkeypatch):
    problem = alltoall(design(recipe), per_pair)
    flow = Mcf().run(problem)
    assert isinstance(flow.trees, Orbit)
    verify.check(flow)
    assert flow.time == flow.bound.time
    written_out = replace(flow, trees=tuple(flow.trees))
    verify.check(written_out)
    (by_route, share), (again, part) = traffic(flow), traffic(written_out)
    assert {route: load * share for route, load in by_route.items()} == {
        route: load * part for route, load in again.items()
    }
    assert len(written_out.trees) == len(flow.trees)
    assert [flow.trees[at] for at in range(len(flow.trees))] == list(written_out.trees)
    assert cost.link_loads(problem, flow.trees) == cost.link_loads(problem, written_out.trees)
    assert cost.predict(flow, 2**20) == cost.predict(written_out, 2**20)
    assert cost.max_height(flow.trees) == cost.max_height(written_out.trees)
    assert flow.chunks_per_slot == written_out.chunks_per_slot
    monkeypatch.setattr(mcf, "_FEW_RANKS", 10**9)
    assert Mcf().run(problem).time == flow.time


@pytest.mark.parametrize("recipe", ALIKE)
def test_the_text_loses_nothing(recipe):
    flow = Mcf().run(alltoall(design(recipe)))
    text = dumps(flow)
    again = loads(text)
    assert again == flow
    assert hash(again.trees) == hash(flow.trees)
    assert dumps(again) == text


def test_files_are_made_of_it_all_the_same():
    flow = Mcf().run(alltoall(design("torus(dims=3x3)")))
    rounded = RoundWeights().run(flow)
    verify.check(rounded)
    verify.check(LowerFlow().run(rounded))


def test_ways_of_uneven_latency_are_timed_one_by_one():
    plain = design("circulant(n=8,offsets=1x2)")
    slow = tuple(replace(link, latency=Fraction(at)) for at, link in enumerate(plain.links))
    flow = Mcf().run(alltoall(replace(plain, links=slow)))
    assert isinstance(flow.trees, Orbit)
    assert cost.predict(flow, 1) == cost.predict(replace(flow, trees=tuple(flow.trees)), 1)


@pytest.mark.parametrize("recipe", ALIKE)
@pytest.mark.parametrize("seed", range(3))
def test_translations_are_found_whatever_the_numbers(recipe, seed):
    plain, other = design(recipe), shuffled(design(recipe), seed)
    network = Network.of(alltoall(other))
    found = find(network)
    assert found is not None
    assert sorted(found.vertices[:, 0].tolist()) == list(range(other.n_ranks))
    for image, links in zip(found.vertices, found.links, strict=True):
        assert (network.tails[links] == image[network.tails]).all()
        assert (network.heads[links] == image[network.heads]).all()
    assert (found.classes == numpy.unique(found.links.min(axis=0), return_inverse=True)[1]).all()
    assert Mcf().run(alltoall(other)).time == Mcf().run(alltoall(plain)).time


def test_graphs_that_look_alike_from_all_vertices_need_not_have_translations():
    """Petersen's graph is no Cayley graph (its group of 120 has no subgroup of 10 that moves every vertex)."""
    problem = alltoall(design("distance_regular(graph=Petersen)"))
    assert find(Network.of(problem)) is None
    assert isinstance(Mcf().run(problem).trees, Forest)


@pytest.mark.parametrize("graph", ["Foster", "O4"])
def test_a_search_for_translations_ends(graph, monkeypatch):
    from collc.synth import _symmetry

    taken = []
    looks = _symmetry._looks
    monkeypatch.setattr(_symmetry, "_looks", lambda *given: taken.append(1) or looks(*given))
    find(Network.of(alltoall(design(f"distance_regular(graph={graph})"))))
    assert len(taken) <= 2 * _symmetry._MOST_LOOKS


def test_loads_beyond_64_bits_are_added_up_exactly(monkeypatch):
    flow = Mcf().run(alltoall(design("torus(dims=3x4)")))
    base = flow.trees.base
    fine = replace(base, numerators=base.numerators * 2**54, denominator=base.denominator * 2**54)
    same = replace(flow, trees=replace(flow.trees, base=fine))
    verify.check(same)
    assert cost.link_loads(flow.problem, same.trees) == cost.link_loads(flow.problem, flow.trees)


def test_weights_without_a_small_denominator_are_rounded(monkeypatch):
    monkeypatch.setattr("collc.synth.mcf.mixture._FINEST", 2**20)
    flow = Mcf().run(alltoall(design("cayley(a=64,k=5,b=16,generators=17x39x182x517)")))
    verify.check(flow)
    assert flow.chunks_per_slot <= 2**20
    assert 0 < flow.time / flow.bound.time - 1 < Fraction(1, 2**16)


# --- faults --------------------------------------------------------------------------------------


@pytest.fixture
def flow() -> FlowSchedule:
    found = Mcf().run(alltoall(design("torus(dims=3x4)")))
    verify.check(found)
    return found


def rules(flow: FlowSchedule) -> set[str]:
    return {finding.rule for finding in verify.findings(flow)}


def with_images(flow: FlowSchedule, images: numpy.ndarray) -> FlowSchedule:
    return replace(flow, trees=replace(flow.trees, images=images))


def with_base(flow: FlowSchedule, **arrays: numpy.ndarray) -> FlowSchedule:
    return replace(flow, trees=replace(flow.trees, base=replace(flow.trees.base, **arrays)))


def test_an_image_that_is_no_permutation(flow):
    images = flow.trees.images.copy()
    images[5, 3] = images[5, 4]
    assert rules(with_images(flow, images)) == {"symmetry"}


def test_an_image_that_takes_a_link_to_none(flow):
    images = flow.trees.images.copy()
    images[5, [1, 7]] = images[5, [7, 1]]
    assert rules(with_images(flow, images)) == {"symmetry"}


def test_an_image_that_takes_a_link_to_one_of_another_bandwidth(flow):
    topology = flow.problem.topology
    wide = (replace(topology.links[0], bandwidth=Fraction(2)), *topology.links[1:])
    problem = replace(flow.problem, topology=replace(topology, links=wide))
    assert "symmetry" in rules(replace(flow, problem=problem, bound=None))


def test_an_image_that_takes_a_gpu_to_a_switch():
    """Two GPUs and two switches in a ring: turned by one, links are kept, and nothing else."""
    topology = fabrics.fabric(
        "round", 2, [("g0", "s0", 1), ("s0", "g1", 1), ("g1", "s1", 1), ("s1", "g0", 1)], ["s0", "s1"]
    )
    made = Mcf().run(alltoall(topology)).trees
    own = numpy.array([0, 1])
    base = replace(
        made,
        chunks=made.chunks[own], numerators=made.numerators[own], roots=made.roots[own],
        reduce_starts=made.reduce_starts[:3], broadcasts=made.broadcasts[: made.broadcast_starts[2]],
        broadcast_starts=made.broadcast_starts[:3],
    )  # fmt: skip
    time = cost.bandwidth_time(alltoall(topology), made)
    for images, found in (([[0, 1, 2, 3], [1, 0, 3, 2]], set()), ([[0, 1, 2, 3], [2, 3, 1, 0]], {"symmetry"})):
        orbit = Orbit(base, numpy.array(images, dtype=numpy.int32))
        assert rules(FlowSchedule(alltoall(topology), orbit, time)) == found


def test_a_rank_that_is_served_twice_and_one_never(flow):
    images = flow.trees.images.copy()
    images[3] = images[4]
    assert rules(with_images(flow, images)) >= {"weights"}
    assert "weights" in rules(with_images(flow, images[:-1]))
    assert "weights" in rules(with_images(flow, numpy.concatenate([images, images[:1]])))


def test_a_base_that_is_wrong(flow):
    base = flow.trees.base
    assert "weights" in rules(with_base(flow, denominator=2 * base.denominator))
    roots = base.roots.copy()
    roots[4] = 1
    assert rules(with_base(flow, roots=roots)) & {"tree-incomplete", "tree-order"}
    chunks = base.chunks.copy()
    chunks[-1] -= 1
    assert rules(with_base(flow, chunks=chunks)) >= {"weights", "tree-incomplete"}
    broadcasts = base.broadcasts.copy()
    at = int(base.broadcast_starts[numpy.flatnonzero(numpy.diff(base.broadcast_starts) > 1)[0]])
    broadcasts[[at, at + 1]] = broadcasts[[at + 1, at]]
    assert rules(with_base(flow, broadcasts=broadcasts)) & {"tree-order", "tree-double"}
    vertices = base.vertices.copy()
    vertices[1] = next(v for v in range(12) if (base.names[0], base.names[v]) not in flow.problem.topology.link and v)
    assert "route-missing" in rules(with_base(flow, vertices=vertices))


def test_claims_of_time_and_bound_that_are_wrong(flow):
    assert rules(replace(flow, time=flow.time * 2)) == {"time"}
    assert rules(replace(flow, time=flow.time / 2, bound=None)) == {"overload"}
    assert rules(replace(flow, bound=replace(flow.bound, time=flow.bound.time * 2))) == {"bound"}


def test_prices_that_renamings_do_not_keep_are_added_up_for_every_rank(flow):
    prices = list(flow.bound.witness.price)
    src, dst, price = prices[0]
    uneven = Prices(((src, dst, 5 * price), *prices[1:]))
    problem = flow.problem
    network = Network.of(problem)
    at = {(link.src, link.dst): number for number, link in enumerate(problem.topology.links)}
    whole = numpy.zeros(network.n_links, dtype=numpy.int64)
    for one, other, paid in uneven.price:
        whole[at[one, other]] = int(paid)
    proven = network.price_bound(whole).time
    assert proven < flow.bound.time
    assert rules(replace(flow, bound=Bound(proven, uneven))) == set()
    assert rules(replace(flow, bound=Bound(flow.bound.time, uneven))) == {"bound"}


def test_a_table_that_is_not_the_same_for_all_pairs(flow):
    orbit, topology = flow.trees, flow.problem.topology
    uneven = alltoallv([[2 if (a, b) == (0, 1) else 1 for b in range(12)] for a in range(12)])
    for table in (uneven, make_collective("alltoall", 12, 2), make_collective("allgather", 12)):
        with pytest.raises(InputError, match="the table is not 1 chunks from each of 12 ranks to each"):
            FlowSchedule(Problem(topology, table), orbit, flow.time)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"images":[[0,', '"images":[["0",', "expected a list of whole numbers below 2^31"),
        ('"images":[[0,', '"images":[[', "rows of [11, 12]; expected 12 each"),
        ('"images":[[0,', '"images":[[99,', "images hold 0..99; expected 0..11"),
        ('"images":[[0,', '"pictures":[[0,', "expected an object with the fields of Forest"),
        ('"per_pair":1},"time"', '"per_pair":true},"time"', "expected int"),
        ('"per_pair":1},"time"', '"per_pair":0},"time"', "0 chunks for each pair"),
        ('"per_pair":1},"time"', '"per_pair":99999999999999999999},"time"', "chunks at most"),
    ],
)  # fmt: skip
def test_texts_that_are_wrong(flow, old, new, message):
    text = dumps(flow)
    assert old in text
    with pytest.raises(InputError, match=message.replace("[", r"\[").replace("^", r"\^")):
        loads(text.replace(old, new, 1))
    with pytest.raises(InputError, match="one or more rows"):
        Orbit(flow.trees.base, numpy.zeros((0, 12), dtype=numpy.int32))


# --- many ways in arrays -------------------------------------------------------------------------


@pytest.fixture
def forest() -> FlowSchedule:
    found = Mcf(method="simplex").run(alltoall(design("genkautz(degree=2,n=8)")))
    assert isinstance(found.trees, Forest)
    verify.check(found)
    return found


def one_of_two_hops(trees: Forest) -> int:
    return int(numpy.flatnonzero(numpy.diff(trees.broadcast_starts) == 2)[0])


def test_a_way_that_is_wrong(forest):
    trees = forest.trees
    start = int(trees.broadcast_starts[one_of_two_hops(trees)])

    def after(**arrays: numpy.ndarray) -> set[str]:
        return rules(replace(forest, trees=replace(trees, **arrays)))

    def changed(name: str, at: int, value: int) -> dict[str, numpy.ndarray]:
        array = getattr(trees, name).copy()
        array[at] = value
        return {name: array}

    first, second = trees.broadcasts[start : start + 2].tolist()
    swapped = trees.broadcasts.copy()
    swapped[start : start + 2] = second, first
    assert "tree-order" in after(broadcasts=swapped)
    assert "tree-double" in after(**changed("broadcasts", start + 1, first))
    tree = one_of_two_hops(trees)
    assert after(**changed("roots", tree, (trees.roots[tree] + 1) % 8)) & {"tree-incomplete", "tree-order"}
    assert after(**changed("chunks", tree, (trees.chunks[tree] + 1) % 64)) >= {"weights"}
    if trees.denominator > 1:
        assert "weights" in after(**changed("numerators", tree, trees.numerators[tree] % trees.denominator + 1))
    reduces = numpy.append(trees.reduces, first)
    starts = trees.reduce_starts.copy()
    starts[tree + 1 :] += 1
    assert after(reduces=reduces, reduce_starts=starts) & {"tree-order", "tree-double", "tree-incomplete"}


def test_a_way_around_that_comes_home_is_not_one_way(forest):
    """From g0 round a circle and on: every edge follows the last, but a rank is met twice."""
    topology = fabrics.ring(4)
    made = Mcf(method="simplex").run(alltoall(topology))
    tree = int(numpy.flatnonzero(made.trees.chunks == 1)[0])
    hops = {made.trees.route(at).path: at for at in range(len(made.trees.route_starts) - 1)}
    around = [hops["g0", "g3"], hops["g3", "g0"], hops["g0", "g1"]]
    starts = made.trees.broadcast_starts.copy()
    length = int(starts[tree + 1] - starts[tree])
    broadcasts = numpy.concatenate(
        [made.trees.broadcasts[: starts[tree]], around, made.trees.broadcasts[starts[tree + 1] :]]
    )
    starts[tree + 1 :] += len(around) - length
    wrong = replace(made, trees=replace(made.trees, broadcasts=broadcasts, broadcast_starts=starts))
    assert "tree-double" in rules(wrong)


def test_the_rule_and_the_table_written_out_are_checked_alike(forest):
    written_out = replace(forest.problem.collective, chunks=tuple(forest.problem.collective.chunks))
    assert isinstance(forest.problem.collective.chunks, AllPairs)
    other = replace(forest, problem=replace(forest.problem, collective=written_out))
    verify.check(other)
    assert rules(replace(other, bound=replace(other.bound, time=other.bound.time * 2))) == {"bound"}


def test_prices_beyond_64_bits_are_added_up_exactly(forest):
    large = Prices(tuple((src, dst, price * 10**30) for src, dst, price in forest.bound.witness.price))
    assert rules(replace(forest, bound=replace(forest.bound, witness=large))) == set()
    off = replace(forest.bound, witness=large, time=forest.bound.time + Fraction(1, 10**40))
    assert rules(replace(forest, bound=off)) == {"bound"}


def test_a_cut_is_added_up_by_the_pairs_that_cross_it():
    topology = fabrics.ring(6)
    problem = alltoall(topology)
    direct = registry.load("synth", "direct").run(problem)
    cut = Cut(topology.gpus[:2])
    # Two ranks send to four each: eight of six slots over two links.
    bound = Bound(Fraction(8, 6) / sum(link.bandwidth for link in topology.links if leaves(link, cut)), cut)
    assert rules(replace(direct, bound=bound)) == set()
    assert rules(replace(direct, bound=replace(bound, time=bound.time * 2))) == {"bound"}


def leaves(link: Link, cut: Cut) -> bool:
    return link.src in cut.inside and link.dst not in cut.inside


def test_amounts_of_any_length_are_added_up_without_their_common_denominator():
    """Some hundred random lengths: their least common multiple would have hundreds of digits."""
    topology = design("torus(dims=4x5)")
    chance = random.Random(0)
    rows = [[chance.randrange(10**6, 10**7) if a != b else 0 for b in range(20)] for a in range(20)]
    made = Mcf(method="descent").run(Problem(topology, alltoallv(rows)))
    verify.check(made)
    assert rules(replace(made, time=made.time * 2)) == {"time"}
    _, share = traffic(made)
    assert share.denominator < 2**64
