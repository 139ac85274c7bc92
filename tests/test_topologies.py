"""The shipped topologies: each loads, is connected and says its sources; the known ones are exact."""

import json
import time
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest
from test_topology_file import as_json

import collc
from collc.topology import dumps_yaml, load, load_text, open_topology, schema, shipped
from collc.topology.yaml import compose

FOLDER = Path(collc.__file__).parents[1] / "topologies"
MACHINES = Path(__file__).parents[2] / "shared" / "reference" / "machines.json"

EXPECTED = {
    "dgx-a100", "dgx-b200", "dgx-h100", "dgx1-v100", "dgx2", "dragonfly", "fat-tree", "gb200-nvl72", "hgx-h200",
    "hypercube", "mesh2d", "mi250", "mi300x", "ndv2", "p4d", "rail-optimized", "ring", "torus2d", "torus3d",
}  # fmt: skip

HOSTED = sorted(EXPECTED - {"dragonfly", "gb200-nvl72", "hypercube", "mesh2d", "ring", "torus2d", "torus3d"})


@pytest.fixture(scope="module")
def machines():
    if not MACHINES.exists():
        pytest.skip("no reference folder beside the checkout")
    return json.loads(MACHINES.read_text())


def bandwidths(topology):
    """(rank or switch name, the same) -> GB/s."""
    rank = topology.rank_of
    return {(rank.get(a, a), rank.get(b, b)): link.bandwidth for (a, b), link in topology.link.items()}


def figures(topology):
    """(rank, rank) -> (GB/s, us), of a fabric without switches."""
    rank = topology.rank_of
    return {(rank[a], rank[b]): (link.bandwidth, link.latency) for (a, b), link in topology.link.items()}


def from_reference(links):
    return {(a, b): (Fraction(str(bandwidth)), Fraction(str(latency))) for a, b, bandwidth, latency in links}


def both_ways(links):
    return links | {(b, a): value for (a, b), value in links.items()}


def test_all_are_there():
    assert set(shipped()) == EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_shipped_file(name):
    loaded = open_topology(name)
    topology = loaded.topology
    assert topology.name == name
    assert loaded.doc
    assert loaded.warnings == ()
    assert loaded.sources
    assert all(parameter.doc for parameter in loaded.parameters)
    assert topology.is_symmetric
    assert load_text(dumps_yaml(topology), "t.yaml") == topology
    import jsonschema

    text = (FOLDER / f"{name}.yaml").read_text()
    jsonschema.Draft202012Validator(schema()).validate(as_json(compose(text, name)))


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_figure_of_a_machine_has_its_source(name):
    loaded = open_topology(name)
    sources = dict(loaded.sources)
    assert "" in sources
    if name in HOSTED and name not in ("fat-tree", "rail-optimized"):  # shapes, not machines
        for parameter in loaded.parameters:
            assert parameter.name in ("hosts", "nvls") or f"parameters.{parameter.name}" in sources


@pytest.mark.parametrize("hosts", [2, 3, 4])
@pytest.mark.parametrize("name", HOSTED)
def test_more_hosts(name, hosts):
    one, several = load(f"{name}:hosts=1"), load(f"{name}:hosts={hosts}")
    assert several.n_ranks == hosts * one.n_ranks
    assert len(several.hosts) == hosts
    # What is inside a host is the same, however many there are.
    inside = {ends for ends in several.link if all(end.startswith("h0.") and ".nic" not in end for end in ends)}
    assert inside == {ends for ends in one.link if "leaf" not in ends[0] + ends[1]}


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_dgx_a100_is_the_fabric_of_forestcoll(machines, hosts):
    host = machines["dgx-a100 (ForestColl setting)"]["host"]
    topology = load(f"dgx-a100:hosts={hosts}")
    expected = {}
    for h in range(hosts):
        for g in range(host["gpus"]):
            rank = h * host["gpus"] + g
            expected[rank, f"h{h}.nvswitch"] = Fraction(host["nvswitch_GBps_per_gpu"])
            if hosts > 1:
                expected[rank, f"h{h}.nic{g}"] = Fraction(host["nic_GBps"])
                expected[f"h{h}.nic{g}", f"ib{g % 2}"] = Fraction(host["nic_GBps"])
    assert bandwidths(topology) == both_ways(expected)
    assert len(topology.switches) == (1 if hosts == 1 else 9 * hosts + 2)


@pytest.mark.parametrize("hosts", [1, 2])
def test_dgx_h100(machines, hosts):
    host = machines["dgx-h100"]["host"]
    expected = {}
    for h in range(hosts):
        for g in range(host["gpus"]):
            rank = h * host["gpus"] + g
            expected[rank, f"h{h}.nvswitch"] = Fraction(host["nvswitch_GBps_per_gpu"])
            if hosts > 1:
                expected[rank, f"h{h}.nic{g}"] = Fraction(host["nic_GBps"])
                expected[f"h{h}.nic{g}", "ib"] = Fraction(host["nic_GBps"])
    assert bandwidths(load(f"dgx-h100:hosts={hosts}")) == both_ways(expected)


@pytest.mark.parametrize("hosts", [1, 2])
def test_mi250_is_the_fabric_of_forestcoll(machines, hosts):
    machine = machines["mi250 (ForestColl setting)"]
    host, lanes = machine["host"], machine["lanes"]
    topology = load(f"mi250:hosts={hosts}")
    expected = {}
    for h in range(hosts):
        for a, row in enumerate(lanes):
            for b, n in enumerate(row):
                if n:
                    expected[16 * h + a, 16 * h + b] = Fraction(n * host["xgmi_GBps_per_lane"])
            if hosts > 1:
                expected[16 * h + a, "ib"] = Fraction(host["ib_GBps_per_gcd"])
    assert bandwidths(topology) == both_ways(expected)
    assert topology.ranks_per_device == 2
    assert topology.switches == (() if hosts == 1 else ("ib",))


def test_dgx1_v100(machines):
    assert figures(load("dgx1-v100")) == from_reference(machines["dgx1-v100"]["links"])


def test_ndv2(machines):
    topology = load("ndv2:hosts=2")
    assert topology.switches == ()
    assert figures(topology) == from_reference(machines["ndv2 x2"]["links"])


def test_dgx2(machines):
    assert machines["dgx2 x2"]["gpus"] == 32
    topology = load("dgx2:hosts=2")
    inside = {(16 * h + g, f"h{h}.nvswitch"): Fraction(125) for h in range(2) for g in range(16)}
    between = {(16 * h + 2 * i + 1, 16 * (1 - h) + 2 * i): Fraction(25, 2) for h in range(2) for i in range(8)}
    assert bandwidths(topology) == both_ways(inside) | between
    latencies = {link.latency for link in topology.links}
    assert latencies == {Fraction(35, 100), Fraction(26, 10)}


def test_three_hosts_of_a_machine_that_two_join_directly():
    for name in ("ndv2", "dgx2"):
        assert load(f"{name}:hosts=3").switches[-1] == "ib"


def test_p4d_shares_an_adapter_between_two_gpus():
    topology = load("p4d:hosts=2")
    assert topology.link["h1.gpu6", "h1.nic3"].bandwidth == Fraction(25, 2)
    assert topology.link["h1.gpu7", "h1.nic3"].bandwidth == Fraction(25, 2)
    assert topology.link["h1.nic3", "efa"].bandwidth == Fraction(25, 2)


def test_gb200_racks():
    one = load("gb200-nvl72")
    assert (one.n_ranks, len(one.hosts), one.switches) == (72, 18, ("nvswitch0",))
    two = load("gb200-nvl72:racks=2")
    assert (two.n_ranks, len(two.hosts), len(two.switches)) == (144, 36, 144 + 3)
    assert two.link["h18.gpu0", "nvswitch1"].bandwidth == 900
    assert ("h17.gpu3", "nvswitch1") not in two.link


@pytest.mark.parametrize("dims", [(4, 4), (2, 3), (1, 5), (2, 2)])
def test_torus_degrees(dims):
    topology = load(f"torus2d:dims={dims[0]}x{dims[1]}")
    degree = sum(min(2, length - 1) for length in dims)
    assert topology.n_ranks == prod(dims)
    assert {len(heads) for heads in topology.successors.values()} == {degree}


def test_hypercube_links_ranks_one_bit_apart():
    topology = load("hypercube:dimension=5")
    pairs = {(topology.rank_of[link.src], topology.rank_of[link.dst]) for link in topology.links}
    assert pairs == {(a, a ^ (1 << bit)) for a in range(32) for bit in range(5)}


@pytest.mark.parametrize("groups", [1, 2, 5, 9])
def test_dragonfly(groups):
    topology = load(f"dragonfly:groups={groups}")

    def group(router):
        return int(router.removeprefix("router")) // 4

    far = [(group(a), group(b)) for a, b in topology.link if "router" in a and "router" in b and group(a) != group(b)]
    assert sorted(far) == [(a, b) for a in range(groups) for b in range(groups) if a != b], "one link for two groups"
    per_router = [
        sum("router" in b and group(a) != group(b) for b in topology.successors[a]) for a in topology.switches
    ]
    assert max(per_router) <= 2, "no router has more global links than ports for them"
    near = [1 for a, b in topology.link if "router" in a and "router" in b and group(a) == group(b)]
    assert len(near) == groups * 4 * 3


@pytest.mark.parametrize(("oversubscription", "up"), [(1, 400), (2, 200), ("4/3", 300)])
def test_fat_tree_oversubscription(oversubscription, up):
    topology = load(f"fat-tree:oversubscription={oversubscription}")
    links = [link for link in topology.links if link.src == "leaf1" and link.dst.startswith("spine")]
    assert [link.bandwidth for link in links] == [up, up]
    below = sum(link.bandwidth for link in topology.links if link.dst == "leaf1" and "gpu" in link.src)
    assert below == Fraction(oversubscription) * 2 * up


def test_fat_tree_of_an_uneven_count_of_hosts():
    topology = load("fat-tree:hosts=5")
    assert topology.link["h4.gpu0", "leaf2"].bandwidth == 50
    assert load("fat-tree:hosts=2").switches == ("h0.nvswitch", "h1.nvswitch", "leaf0"), "one leaf needs no spine"


@pytest.mark.parametrize("name", ["dgx-h100", "hgx-h200", "dgx-b200", "gb200-nvl72"])
def test_nvlink_sharp_can_be_turned_off(name):
    marked, plain = load(name), load(f"{name}:nvls=0")
    assert marked.multicast == marked.reduce != ()
    assert plain.multicast == plain.reduce == ()
    assert plain.links == marked.links


@pytest.mark.parametrize(("reference", "limit"), [("dgx-a100:hosts=128", 0.5), ("torus2d:dims=64x64", 1.5)])
def test_large_fabrics_load_quickly(reference, limit):
    load("ring")  # imports are not meant
    start = time.process_time()
    load(reference)
    assert time.process_time() - start < limit
