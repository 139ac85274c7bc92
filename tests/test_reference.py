"""Published and independently computed optima, one row each, reached exactly."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import fabrics
import pytest

from collc import cost
from collc.ir.collective import Problem, make_collective
from collc.ir.topology import Topology
from collc.synth.forestcoll import ForestColl
from collc.synth.forestcoll.scale import scale

FORESTCOLL = "ForestColl (arXiv:2402.06787), value of its published code on this fabric"
CUT = "cut counted by hand"
# Fabric, optimum algbw of allgather [GB/s], source.
OPTIMA: list[tuple[Topology, Fraction, str]] = [
    (fabrics.a100(1), Fraction(2400, 7), FORESTCOLL),
    (fabrics.a100(2), Fraction(1040, 3), FORESTCOLL),
    (fabrics.a100(4), Fraction(800, 3), FORESTCOLL),
    (fabrics.a100(8), Fraction(1600, 7), FORESTCOLL),
    (fabrics.h100(2), Fraction(1600, 3), FORESTCOLL),
    (fabrics.h100(4), Fraction(16000, 31), FORESTCOLL),
    (fabrics.mi250(1), Fraction(2400, 7), FORESTCOLL),
    (fabrics.mi250(2), Fraction(5312, 15), FORESTCOLL),
    (fabrics.mi250(4), Fraction(1024, 3), FORESTCOLL),
    (fabrics.hetero3(), Fraction(336, 5), FORESTCOLL),
    (fabrics.hetero3b(), Fraction(5), FORESTCOLL),
    (fabrics.twobox(), Fraction(8), FORESTCOLL),
    (fabrics.torus(4, 4), Fraction(64, 15), FORESTCOLL),
    (fabrics.hypercube(4), Fraction(64, 15), FORESTCOLL),
    (fabrics.ring(8), Fraction(16, 7), FORESTCOLL),
    (fabrics.one_way_ring(8), Fraction(8, 7), FORESTCOLL),
    (fabrics.star(8), Fraction(8, 7), FORESTCOLL),
    # Six lanes of 25 GB/s into each GPU, which needs seven of the eight shards.
    (fabrics.dgx1(), Fraction(1200, 7), CUT),
    # Eight of the sixteen shards must leave a host by its one link of 12.5 GB/s.
    (fabrics.dgx1(2), Fraction(25), CUT),
    # Seven of eight shards into a GPU over 4 GB/s.
    (fabrics.two_levels(), Fraction(32, 7), CUT),
    (fabrics.torus(8, 8), Fraction(256, 63), CUT),
]


@pytest.mark.parametrize(("topology", "algbw", "source"), OPTIMA, ids=[row[0].name for row in OPTIMA])
def test_the_optimum_is_proven_and_reached(topology, algbw, source):
    flow = ForestColl().run(Problem(topology, make_collective("allgather", topology.n_ranks)))
    assert flow.bound is not None
    assert flow.bound.algbw == algbw, source
    assert cost.algbw(flow.time) == algbw, source


# Fabric, trees per rank asked for, k, U [trees per GB/s], greatest height; all as the published code has them.
PUBLISHED: list[tuple[Topology, int | None, int, Fraction, int]] = [
    (fabrics.a100(1), None, 1, Fraction(7, 300), 7),
    (fabrics.a100(2), None, 13, Fraction(3, 5), 11),
    (fabrics.a100(2), 1, 1, Fraction(7, 150), 8),
    (fabrics.a100(4), None, 1, Fraction(3, 25), 19),
    (fabrics.h100(2), None, 2, Fraction(3, 50), 11),
    (fabrics.h100(2), 1, 1, Fraction(7, 225), 8),
    (fabrics.h100(4), None, 10, Fraction(31, 50), 22),
    (fabrics.mi250(1), None, 3, Fraction(7, 50), 14),
    (fabrics.mi250(1), 1, 1, Fraction(3, 50), 10),
    (fabrics.mi250(1), 2, 2, Fraction(1, 10), 12),
    (fabrics.mi250(1), 4, 4, Fraction(1, 5), 12),
    (fabrics.mi250(2), None, 83, Fraction(15, 2), 19),
    (fabrics.mi250(2), 1, 1, Fraction(1, 10), 12),
    (fabrics.mi250(2), 2, 2, Fraction(3, 16), 21),
    (fabrics.mi250(2), 4, 4, Fraction(3, 8), 17),
    (fabrics.ring(8), None, 2, Fraction(7), 7),
    (fabrics.ring(8), 1, 1, Fraction(4), 4),
    (fabrics.one_way_ring(8), None, 1, Fraction(7), 7),
    (fabrics.star(8), None, 1, Fraction(7), 7),
    (fabrics.torus(4, 4), None, 4, Fraction(15), 8),
    (fabrics.torus(4, 4), 1, 1, Fraction(4), 7),
    (fabrics.hypercube(4), None, 4, Fraction(15), 10),
    (fabrics.hypercube(4), 1, 1, Fraction(4), 7),
    (fabrics.twobox(), None, 1, Fraction(1), 4),
    (fabrics.hetero3b(), None, 1, Fraction(2), 7),
    (fabrics.hetero3(), None, 24, Fraction(5), 11),
    (fabrics.hetero3(), 1, 1, Fraction(1, 4), 10),
    (fabrics.hetero3(), 2, 2, Fraction(5, 12), 11),
]


@pytest.mark.parametrize(
    ("topology", "asked", "k", "u", "height"), PUBLISHED, ids=[f"{row[0].name}-{row[1]}" for row in PUBLISHED]
)
def test_k_and_u_are_the_published_ones_and_no_tree_is_higher(topology, asked, k, u, height):
    """Links carry U x bandwidth trees, k are rooted at each rank, so a slot takes U / k."""
    problem = Problem(topology, make_collective("allgather", topology.n_ranks))
    assert scale(problem, asked).trees[0] == k, FORESTCOLL
    flow = ForestColl(trees_per_rank=asked).run(problem)
    assert flow.time * topology.n_ranks == u / k, FORESTCOLL
    assert cost.max_height(flow.trees) <= height, FORESTCOLL


@pytest.mark.parametrize("topology", [row[0] for row in OPTIMA if row[0].is_symmetric], ids=lambda value: value.name)
def test_allreduce_is_proven_optimal_on_even_fabrics(topology):
    """Twice allgather's time, and prices on what leaves each part of a partition prove that nothing is faster."""
    if topology.name in ("hetero3", "hetero3b"):
        pytest.skip("uneven GPUs: uneven shares would allow more")
    flow = ForestColl().run(Problem(topology, make_collective("allreduce", topology.n_ranks)))
    allgather = cost.bound(Problem(topology, make_collective("allgather", topology.n_ranks)))
    assert allgather is not None
    assert flow.time == 2 * allgather.time
    assert flow.is_optimal


def test_uneven_allreduce_bounds_agree_with_the_linear_program():
    """Optima of the linear program over root rates, computed elsewhere; trees for them are not made yet."""
    for topology, algbw in ((fabrics.hetero3b(), 3), (fabrics.hetero3(), 48), (fabrics.path(6), 1)):
        found = cost.bound(Problem(topology, make_collective("allreduce", topology.n_ranks)))
        assert found is not None
        assert found.algbw == algbw


ALLREDUCE_FABRICS = {
    "ring of 8": fabrics.ring(8), "unidirectional ring of 8": fabrics.one_way_ring(8), "twobox": fabrics.twobox(),
    "star of 8 on one switch": fabrics.star(8), "path of 6": fabrics.path(6), "hetero3": fabrics.hetero3(),
    "torus 4x4": fabrics.torus(4, 4), "hypercube 16": fabrics.hypercube(4), "mi250 n=1": fabrics.mi250(1),
    "a100 n=1": fabrics.a100(1), "h100 n=2": fabrics.h100(2), "mi250 n=2": fabrics.mi250(2),
    "one 8-GPU NVSwitch box, one GPU at half NVLink (150 of 300)": fabrics.half_box(),
    "8-GPU box + 4-GPU box, 300 NVSwitch, 25 NIC each GPU": fabrics.boxes("8+4", (8, 4), (300, 300), (25, 25)),
}  # fmt: skip


def test_allreduce_rates_agree_with_the_shared_reference(shared):
    """Without and with switches that add and copy; the study also lets those be roots, which gains nothing here."""
    rows = json.loads((shared / "reference" / "forestcoll.json").read_text())["allreduce"]["rows"]
    known = [row for row in rows if row["topology"] in ALLREDUCE_FABRICS]
    assert len(known) == len(ALLREDUCE_FABRICS)
    for row in known:
        topology = ALLREDUCE_FABRICS[row["topology"]]
        plain = cost.allreduce_rates(topology)
        branching = cost.allreduce_rates(fabrics.branching(topology, *topology.switches))
        assert plain is not None
        assert branching is not None
        assert float(plain.total) == pytest.approx(row["lp_allreduce_algbw"], rel=1e-6)
        assert float(branching.total) == pytest.approx(row["lp_in_network_allreduce_algbw"], rel=1e-6)


def best_ratio(topology: Topology) -> Fraction:
    """The worst of all cuts: GPUs inside over bandwidth leaving."""
    vertices = topology.gpus + topology.switches
    worst = Fraction(0)
    for picked in range(1, 1 << len(vertices)):
        inside = {vertex for place, vertex in enumerate(vertices) if picked >> place & 1}
        gpus = sum(gpu in inside for gpu in topology.gpus)
        if 0 < gpus < topology.n_ranks:
            leaving = sum(link.bandwidth for link in topology.links if link.src in inside and link.dst not in inside)
            worst = max(worst, Fraction(gpus) / leaving)
    return worst


def random_fabric(seed: int) -> Topology:
    """Closed walks over up to five GPUs and three switches, so that switches are in balance; one-way and uneven."""
    rng = random.Random(seed)
    n = rng.randrange(2, 6)
    gpus, switches = [f"g{rank}" for rank in range(n)], [f"s{i}" for i in range(rng.randrange(4))]
    links: list[fabrics.Pair] = []
    for walk in range(rng.randrange(1, 5)):
        stops = rng.sample(gpus, n) if walk == 0 else rng.choices(gpus + switches, k=rng.randrange(2, 6))
        width = Fraction(rng.randrange(1, 9), rng.randrange(1, 4))
        links += [(a, b, width) for a, b in zip(stops, stops[1:] + stops[:1], strict=True) if a != b]
    return fabrics.fabric(f"random{seed}", n, links, switches)


@pytest.mark.parametrize("block", range(10))
def test_bound_and_schedule_are_the_worst_of_all_cuts(block):
    """200 fabrics, every cut of each: what is proven is what is so, and what is reached."""
    for seed in range(20 * block, 20 * block + 20):
        topology = random_fabric(seed)
        for name, fabric in (("allgather", topology), ("reduce_scatter", topology.reversed())):
            flow = ForestColl().run(Problem(topology, make_collective(name, topology.n_ranks)))
            assert flow.bound is not None
            assert flow.bound.time == flow.time == best_ratio(fabric) / topology.n_ranks


BUILDERS = {
    "a100": fabrics.a100, "mi250": fabrics.mi250, "h100": fabrics.h100, "ring": fabrics.ring,
    "twobox": lambda _: fabrics.twobox(), "hetero3": lambda _: fabrics.hetero3(),
}  # fmt: skip


def test_bounds_agree_with_the_shared_reference(shared):
    rows = json.loads((shared / "reference" / "forestcoll.json").read_text())["optimum"]
    small = [row for row in rows if row["gpus"] <= 128 and row["topology"] in BUILDERS]
    assert len(small) > 5
    for row in small:
        topology = BUILDERS[row["topology"]](row["n"])
        found = cost.bound(Problem(topology, make_collective("allgather", topology.n_ranks)))
        assert found is not None
        assert found.time * row["gpus"] == Fraction(row["inv_x_star"])
