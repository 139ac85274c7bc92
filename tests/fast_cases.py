"""Machines and demands for the tests of all-to-all plans, and their time worked out the slow way."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy
from hypothesis import strategies as st

from collc.fast import Host, Machine, Plan
from collc.ir.demand_pattern import make_demand

# Demands of the reference, and how `--demand` writes them.
KINDS = {"uniform": "uniform:", "zipf-cell": "zipf:0.8", "zipf-expert": "expert-skew:0.5", "balanced": "balanced:"}


def h200(hosts: int, **latencies: int) -> Machine:
    """H200 with 400G cards, as the reference states it."""
    return Machine.uniform(hosts, 8, nic="48.85", inner=380, **latencies)


def demand(kind: str, hosts: int, seed: int = 1) -> numpy.ndarray:
    """A demand of the reference for hosts of 8 GPUs [bytes]."""
    return numpy.array(make_demand(f"{KINDS[kind]},seed={seed}", hosts * 8))


def digest(matrix: numpy.ndarray) -> str:
    """As the reference gives it: of units of 512 bytes."""
    return hashlib.sha256((matrix // 512).astype("<i8").tobytes()).hexdigest()[:16]


def machine(counts: list[int], nics: list[list[int]], **rest: object) -> Machine:
    """Hosts of some GPUs each, with the cards' speeds."""
    hosts, first = [], 0
    for count, speeds in zip(counts, nics, strict=True):
        ranks = tuple(range(first, first + count))
        hosts.append(Host(ranks, tuple(map(Fraction, speeds)), Fraction(100), bool(rest.get("is_mesh"))))
        first += count
    told = {key: value for key, value in rest.items() if key != "is_mesh"}
    return Machine(tuple(hosts), **told)  # type: ignore[arg-type]


MACHINES = {
    "alike": Machine.uniform(4, 4, nic=10, inner=100),
    "mesh": Machine.uniform(3, 4, nic=10, inner=30, is_mesh=True),
    "one host": Machine.uniform(1, 4, nic=10, inner=100),
    "one rank": Machine.uniform(1, 1, nic=10, inner=100),
    "one GPU a host": Machine.uniform(5, 1, nic=10, inner=1),
    "two hosts": Machine.uniform(2, 3, nic=10, inner=100, stage_latency=5, inner_latency=2),
    "unequal counts": machine([4, 2, 6], [[10] * 4, [10] * 2, [10] * 6]),
    "coprime counts": machine([3, 2, 1], [[10] * 3, [10] * 2, [10]]),
    "unequal hosts": machine([3, 3, 3], [[10] * 3, [20] * 3, [15] * 3]),
    "unequal cards": machine([3, 3, 3], [[10, 20, 5], [10, 10, 10], [7, 20, 5]], is_mesh=True),
    "rails": machine([4, 2, 4], [[10] * 4, [10] * 2, [10] * 4], is_rail_only=True),
    "scattered ranks": Machine(
        (
            Host((0, 3), (Fraction(1), Fraction(1)), Fraction(9)),
            Host((2, 1), (Fraction(1), Fraction(1)), Fraction(9)),
        )
    ),
}


@st.composite
def demands(draw, n: int) -> numpy.ndarray:
    """Matrices of entries from nothing to more than 64 bits hold, with empty rows and columns."""
    scale = draw(st.sampled_from([1, 3, 1000, 10**6, 10**15, 10**24]))
    cells = draw(st.lists(st.integers(0, 9), min_size=n * n, max_size=n * n))
    extra = draw(st.lists(st.integers(0, scale - 1), min_size=n, max_size=n))
    matrix = numpy.array(cells, dtype=object).reshape(n, n) * scale
    for rank, more in enumerate(extra):
        matrix[rank, (rank * 7 + more) % n] += more
    for rank in draw(st.lists(st.integers(0, n - 1), max_size=2)):
        matrix[rank, :] = 0
    for rank in draw(st.lists(st.integers(0, n - 1), max_size=2)):
        matrix[:, rank] = 0
    return matrix if matrix.max() >= 2**63 else matrix.astype(numpy.int64)


def slow_time(plan: Plan) -> dict[str, float]:
    """The predicted time by the model's words, a loop at a time."""
    machine, n_stages = plan.machine, plan.n_stages
    host_of = {rank: index for index, host in enumerate(machine.hosts) for rank in host.ranks}
    nic = {rank: speed for host in machine.hosts for rank, speed in zip(host.ranks, host.nic, strict=True)}
    wire = [Fraction(0)] * n_stages
    moved: list[dict[tuple[int, int], int]] = [{} for _ in range(n_stages + 2)]

    def move(phase: int, src: int, dst: int, nbytes: int) -> None:
        if src != dst and nbytes:
            moved[phase][src, dst] = moved[phase].get((src, dst), 0) + nbytes

    for m, (stage, src, dst, nbytes) in enumerate(zip(plan.stage, plan.src, plan.dst, plan.count, strict=True)):
        wire[stage] = max(wire[stage], Fraction(int(nbytes)) / (min(nic[src], nic[dst]) * 1000))
        for p in range(plan.first[m], plan.first[m + 1]):
            move(stage, plan.origin[p], src, int(plan.length[p]))
            move(stage + 2, dst, plan.final[p], int(plan.length[p]))
    for a in range(machine.n_ranks):
        for b in range(machine.n_ranks):
            if host_of[a] == host_of[b]:
                move(plan.inside_stage + 1, a, b, int(plan.matrix[a, b]))
    phases = [max((_inside_time(machine, host, links) for host in machine.hosts), default=0) for links in moved]
    late = [
        max(0, phase + (machine.inner_latency if phase else 0) - wire[stage] - machine.stage_latency)
        for stage, phase in enumerate(phases[1:-1])
    ]
    alone = sum(1 for phase in (phases[0], phases[-1]) if phase)
    return {
        "balance": float(phases[0]),
        "wire": float(sum(wire)),
        "exposed": float(sum(late) + phases[-1]),
        "latency": float(machine.stage_latency * n_stages + machine.inner_latency * alone),
    }


def _inside_time(machine: Machine, host: Host, links: dict[tuple[int, int], int]) -> Fraction:
    mine = {ends: nbytes for ends, nbytes in links.items() if ends[0] in host.ranks}
    if host.is_mesh:
        busiest = max(mine.values(), default=0)
    else:
        sums = [sum(n for ends, n in mine.items() if ends[side] == rank) for rank in host.ranks for side in (0, 1)]
        busiest = max(sums, default=0)
    return Fraction(busiest) / (host.inner * 1000)
