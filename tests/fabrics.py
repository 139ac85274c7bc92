"""Small fabrics built in Python, so that tests need no file. Bandwidths in GB/s, latencies in us."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from collc.ir.topology import Link, Topology

# Lanes of 50 GB/s between the 16 GCDs of an MI250 host (machines.json, ForestColl's setting).
MI250_LANES = {
    (0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4, (8, 9): 4, (10, 11): 4, (12, 13): 4, (14, 15): 4,
    (0, 4): 2, (3, 7): 2, (8, 12): 2, (11, 15): 2,
    (0, 8): 1, (1, 5): 1, (1, 9): 1, (1, 10): 1, (2, 6): 1, (2, 9): 1, (2, 10): 1, (3, 11): 1, (4, 6): 1,
    (5, 6): 1, (5, 7): 1, (9, 13): 1, (10, 14): 1, (12, 14): 1, (13, 14): 1, (13, 15): 1,
}  # fmt: skip
# NVLink pairs of the DGX-1V's hybrid cube mesh with their cables of 25 GB/s (machines.json).
DGX1_LANES = {
    (0, 1): 2, (0, 2): 1, (0, 3): 1, (0, 4): 2, (1, 2): 1, (1, 3): 2, (1, 5): 1, (2, 3): 2, (2, 6): 2,
    (3, 7): 1, (4, 5): 2, (4, 6): 1, (4, 7): 1, (5, 6): 1, (5, 7): 2, (6, 7): 2,
}  # fmt: skip

Pair = tuple[str, str, Fraction | int]


def fabric(
    name: str,
    n_ranks: int,
    links: Iterable[Pair],
    switches: Sequence[str] = (),
    hosts: tuple[tuple[int, ...], ...] = (),
    latency: Fraction = Fraction(7, 10),
) -> Topology:
    """A topology with GPUs g0, g1, ...; parallel links are added up."""
    total: dict[tuple[str, str], Fraction] = {}
    for src, dst, bandwidth in links:
        total[src, dst] = total.get((src, dst), Fraction(0)) + bandwidth
    made = tuple(Link(src, dst, bandwidth, latency) for (src, dst), bandwidth in total.items())
    return Topology(name, tuple(f"g{rank}" for rank in range(n_ranks)), tuple(switches), made, hosts)


def both(a: str, b: str, bandwidth: Fraction | int) -> list[Pair]:
    return [(a, b, bandwidth), (b, a, bandwidth)]


def _split(n_hosts: int, per_host: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(host * per_host, (host + 1) * per_host)) for host in range(n_hosts))


def a100(n_hosts: int) -> Topology:
    links: list[Pair] = []
    switches = [f"nvs{host}" for host in range(n_hosts)]
    for rank in range(8 * n_hosts):
        links += both(f"g{rank}", f"nvs{rank // 8}", 300)
        if n_hosts > 1:
            links += both(f"g{rank}", f"nic{rank}", 25) + both(f"nic{rank}", f"ib{rank % 2}", 25)
    if n_hosts > 1:
        switches += [f"nic{rank}" for rank in range(8 * n_hosts)] + ["ib0", "ib1"]
    return fabric(f"a100x{n_hosts}", 8 * n_hosts, links, switches, _split(n_hosts, 8))


def h100(n_hosts: int) -> Topology:
    links: list[Pair] = []
    for rank in range(8 * n_hosts):
        links += both(f"g{rank}", f"nvs{rank // 8}", 450) + (both(f"g{rank}", "ib", 50) if n_hosts > 1 else [])
    switches = [f"nvs{host}" for host in range(n_hosts)] + (["ib"] if n_hosts > 1 else [])
    return fabric(f"h100x{n_hosts}", 8 * n_hosts, links, switches, _split(n_hosts, 8))


def mi250(n_hosts: int) -> Topology:
    links: list[Pair] = []
    for host, ((a, b), lanes) in itertools.product(range(n_hosts), MI250_LANES.items()):
        links += both(f"g{16 * host + a}", f"g{16 * host + b}", 50 * lanes)
    if n_hosts > 1:
        links += [pair for rank in range(16 * n_hosts) for pair in both(f"g{rank}", "ib", 16)]
    return fabric(f"mi250x{n_hosts}", 16 * n_hosts, links, ["ib"] if n_hosts > 1 else [], _split(n_hosts, 16))


def dgx1(n_hosts: int = 1) -> Topology:
    """One DGX-1V, or the two of ndv2's published setting: one link each way between the hosts."""
    links: list[Pair] = []
    for host, ((a, b), lanes) in itertools.product(range(n_hosts), DGX1_LANES.items()):
        links += both(f"g{8 * host + a}", f"g{8 * host + b}", 25 * lanes)
    if n_hosts == 2:
        links += [("g0", "g9", Fraction(25, 2)), ("g8", "g1", Fraction(25, 2))]
    return fabric(f"dgx1x{n_hosts}", 8 * n_hosts, links, (), _split(n_hosts, 8))


def ring(n: int, bandwidth: Fraction | int = 1) -> Topology:
    return fabric(f"ring{n}", n, [p for i in range(n) for p in both(f"g{i}", f"g{(i + 1) % n}", bandwidth)])


def one_way_ring(n: int) -> Topology:
    return fabric(f"uniring{n}", n, [(f"g{i}", f"g{(i + 1) % n}", 1) for i in range(n)])


def path(n: int) -> Topology:
    return fabric(f"path{n}", n, [p for i in range(n - 1) for p in both(f"g{i}", f"g{i + 1}", 1)])


def star(n: int, bandwidth: Fraction | int = 1) -> Topology:
    return fabric(f"star{n}", n, [p for i in range(n) for p in both(f"g{i}", "s", bandwidth)], ["s"])


def torus(rows: int, columns: int) -> Topology:
    links: list[Pair] = []
    for i, j in itertools.product(range(rows), range(columns)):
        here = f"g{i * columns + j}"
        links += both(here, f"g{i * columns + (j + 1) % columns}", 1)
        links += both(here, f"g{(i + 1) % rows * columns + j}", 1)
    return fabric(f"torus{rows}x{columns}", rows * columns, links)


def hypercube(dimension: int) -> Topology:
    n = 1 << dimension
    edges = [(i, i ^ (1 << d)) for i in range(n) for d in range(dimension) if i < i ^ (1 << d)]
    return fabric(f"hypercube{n}", n, [p for a, b in edges for p in both(f"g{a}", f"g{b}", 1)])


def complete(n: int) -> Topology:
    return fabric(f"complete{n}", n, [(f"g{a}", f"g{b}", 1) for a, b in itertools.permutations(range(n), 2)])


def boxes(name: str, sizes: Sequence[int], inside: Sequence[int], uplink: Sequence[int]) -> Topology:
    """Boxes with a switch each, all GPUs on one common switch."""
    links: list[Pair] = []
    hosts, first = [], 0
    for box, n in enumerate(sizes):
        hosts.append(tuple(range(first, first + n)))
        for rank in hosts[-1]:
            links += both(f"g{rank}", f"box{box}", inside[box]) + both(f"g{rank}", "top", uplink[box])
        first += n
    return fabric(name, first, links, [f"box{box}" for box in range(len(sizes))] + ["top"], tuple(hosts))


def twobox() -> Topology:
    return boxes("twobox", (4, 4), (10, 10), (1, 1))


def hetero3b() -> Topology:
    return boxes("hetero3b", (4, 4, 2), (10, 10, 10), (1, 1, 2))


def hetero3() -> Topology:
    """Eight GPUs on NVSwitch, four in a full mesh, two on NVSwitch; NICs of 25, 12 and 50 GB/s."""
    links: list[Pair] = []
    for rank in range(14):
        links += both(f"g{rank}", "top", 25 if rank < 8 else 12 if rank < 12 else 50)
        if rank < 8:
            links += both(f"g{rank}", "boxA", 300)
        elif rank >= 12:
            links += both(f"g{rank}", "boxC", 450)
    links += [(f"g{a}", f"g{b}", 50) for a, b in itertools.permutations(range(8, 12), 2)]
    hosts = (tuple(range(8)), tuple(range(8, 12)), (12, 13))
    return fabric("hetero3", 14, links, ["boxA", "boxC", "top"], hosts)


def half_box() -> Topology:
    """Eight GPUs on one NVSwitch, the first with half of its links."""
    return fabric("half-box", 8, [p for i in range(8) for p in both(f"g{i}", "s", 300 if i else 150)], ["s"])


def two_levels() -> Topology:
    """Four leaves of two GPUs, two spines; half the bandwidth above the leaves."""
    links: list[Pair] = []
    for rank in range(8):
        links += both(f"g{rank}", f"leaf{rank // 2}", 4)
    for leaf, spine in itertools.product(range(4), range(2)):
        links += both(f"leaf{leaf}", f"spine{spine}", 2)
    switches = [f"leaf{i}" for i in range(4)] + ["spine0", "spine1"]
    return fabric("two-levels", 8, links, switches, _split(4, 2))


def single() -> Topology:
    return fabric("single", 1, [])


def branching(topology: Topology, *switches: str) -> Topology:
    """The same fabric with switches that add and copy."""
    return replace(topology, multicast=switches, reduce=switches)


def without_cable(topology: Topology, a: str, b: str) -> Topology:
    """The same fabric without the links between two vertices."""
    return replace(topology, links=tuple(link for link in topology.links if {link.src, link.dst} != {a, b}))
