"""What a schedule costs and what no schedule can beat, exactly.

Costs are loads of links: a share of a chunk that crosses a link takes its bytes there. Bounds come
from the chunk table alone, whatever the collective is called, and carry the witness that a checker
re-adds: a cut (`cuts`), or prices on links (`prices`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from math import lcm

from collc.cost.allreduce import MOST_RANKS, allreduce_parts, allreduce_rates, rooted_bound
from collc.cost.cuts import best_cut, common_unit
from collc.cost.demand import Demand
from collc.cost.forests import hop_loads, longest_way, orbit_hop_loads, route_latencies
from collc.cost.heights import Least, Roots, height_bound, least_height
from collc.cost.limits import Limit, alltoall_limits, limits_document
from collc.cost.prices import candidate_prices, price_bound
from collc.cost.rates import Rates
from collc.cost.sharing import shared_hops
from collc.cost.steps import steps_latency, steps_time
from collc.ir.collective import Collective, Problem
from collc.ir.flow import Bound, FlowSchedule, Forest, Orbit, Tree
from collc.ir.schedule import Schedule
from collc.ir.topology import Route, Topology

__all__ = [
    "HOP_LATENCY",
    "MOST_RANKS",
    "Least",
    "Limit",
    "Rates",
    "Roots",
    "algbw",
    "allreduce_parts",
    "allreduce_rates",
    "alltoall_limits",
    "bandwidth_time",
    "bound",
    "bus_factor",
    "busbw",
    "common_unit",
    "height_bound",
    "least_height",
    "limits_document",
    "link_loads",
    "max_height",
    "predict",
    "steps_time",
    "tree_bound",
]

# Software latency of one rank-to-rank hop [us]: NCCL's own model takes 3.4 us for a ring hop over
# NVLink under Simple (src/graph/tuning.cc, hwLat). Wire latency comes from the topology's links.
HOP_LATENCY = Fraction(17, 5)


def link_loads(problem: Problem, trees: Iterable[Tree], *, in_network: bool = False) -> dict[tuple[str, str], Fraction]:
    """Bytes that cross each link, per byte of message size, by (src, dst); idle links are absent.

    Args:
        in_network: whether switches that copy and add do so, see `FlowSchedule`.
    """
    if isinstance(trees, Orbit) and not in_network:
        found = orbit_hop_loads(problem, trees)
    else:
        found = hop_loads(problem.collective, trees) if isinstance(trees, Forest) and not in_network else None
    if found is not None:
        return found
    trees = tuple(trees)
    chunks = problem.collective.chunks
    # Shares of slots, not of chunks: where chunks differ in length, weights may have no common denominator to speak of.
    slots = [tree.weight * chunks[tree.chunk].count for tree in trees]
    unit = lcm(*(share.denominator for share in slots))
    shares: dict[tuple[str, str], int] = {}
    for tree, part in zip(trees, slots, strict=True):
        share = int(part * unit)
        for hop in shared_hops(problem.topology, tree) if in_network else _hops(tree):
            shares[hop] = shares.get(hop, 0) + share
    whole = unit * problem.collective.size_chunks
    return {hop: Fraction(share, whole) for hop, share in sorted(shares.items())}


def _hops(tree: Tree) -> Iterator[tuple[str, str]]:
    for route in (*tree.reduce, *tree.broadcast):
        yield from route.hops


def bandwidth_time(problem: Problem, trees: Iterable[Tree], *, in_network: bool = False) -> Fraction:
    """Time [s/GB of message size] in which the busiest link carries its load; zero if nothing moves."""
    link = problem.topology.link
    loads = link_loads(problem, trees, in_network=in_network)
    return max((load / link[hop].bandwidth for hop, load in loads.items()), default=Fraction(0))


def algbw(time: Fraction) -> Fraction | None:
    """Message size / time [GB/s], as nccl-tests counts; None where nothing moves (one rank)."""
    return 1 / time if time else None


def bus_factor(collective: Collective) -> Fraction:
    """What algbw is multiplied by to give busbw, as nccl-tests defines it; zero for one rank.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    # Groups side by side move their data at the same time; the largest counts. A demand is of one group.
    n = collective.n_ranks if collective.name == "alltoallv" else max(map(len, collective.groups))
    match collective.name:
        case "allreduce":
            return Fraction(2 * (n - 1), n)
        case "broadcast" | "reduce":
            return Fraction(1)
        case _:
            return Fraction(n - 1, n)


def busbw(collective: Collective, algbw: Fraction) -> Fraction:
    """Bus bandwidth [GB/s] of an algorithm bandwidth."""
    return algbw * bus_factor(collective)


def predict(made: FlowSchedule | Schedule, nbytes: int) -> Fraction:
    """Time [us] by the alpha-beta model.

    Of a flow: the longest way of any tree, then the bytes at full rate. Of steps: for each of them the
    slowest route and the bytes of the busiest link.

    Source of the latter: arXiv:2202.03356, cost of a step.
    """
    topology = made.problem.topology
    if isinstance(made, Schedule):
        rise = steps_latency(made, HOP_LATENCY)
    elif isinstance(made.trees, Orbit):
        # Images have the same links; where these are alike, so are the ways.
        alike = len({link.latency for link in topology.links}) == 1
        images = range(1 if alike else len(made.trees.images))
        rise = max(_forest_latency(topology, made.trees.moved(image)) for image in images)
    elif isinstance(made.trees, Forest):
        rise = _forest_latency(topology, made.trees)
    else:
        rise = _latency(topology, made.trees)
    return rise + made.time * nbytes / 1000


def max_height(trees: Sequence[Tree]) -> int:
    """Rank-to-rank hops on the longest way of any tree."""
    if isinstance(trees, Orbit):
        return max_height(trees.base)
    if isinstance(trees, Forest):
        return longest_way(trees, [1] * (len(trees.route_starts) - 1)) if len(trees) else 0
    return max((tree.height for tree in trees), default=0)


@lru_cache(maxsize=16)
def _forest_latency(topology: Topology, forest: Forest) -> Fraction:
    """Latency [us] of the longest way of any tree."""
    if not len(forest):
        return Fraction(0)
    number = {name: vertex for vertex, name in enumerate(forest.names)}
    unit = lcm(HOP_LATENCY.denominator, *(link.latency.denominator for link in topology.links))
    links = {(number[link.src], number[link.dst]): int(link.latency * unit) for link in topology.links}
    return Fraction(longest_way(forest, route_latencies(forest, links, int(HOP_LATENCY * unit))), unit)


def _latency(topology: Topology, trees: Sequence[Tree]) -> Fraction:
    """The same of trees one by one: from a contributor through the root to a consumer."""
    unit = lcm(HOP_LATENCY.denominator, *(link.latency.denominator for link in topology.links))
    wire = {(link.src, link.dst): int(link.latency * unit) for link in topology.links}

    @cache
    def latency(route: Route) -> int:
        return int(HOP_LATENCY * unit) + sum(wire[hop] for hop in route.hops)

    longest = 0
    for tree in trees:
        down, up = {tree.root: 0}, {tree.root: 0}
        for route in tree.broadcast:
            down[route.dst] = down.get(route.src, 0) + latency(route)
        for route in reversed(tree.reduce):
            up[route.src] = up.get(route.dst, 0) + latency(route)
        longest = max(longest, max(down.values()) + max(up.values()))
    return Fraction(longest, unit)


def bound(problem: Problem) -> Bound | None:
    """The best limit on time [s/GB of message size] that cuts and prices prove; None if nothing must move.

    Exact (attained by some schedule) for tables in which every chunk has one contributor and goes to
    all ranks, or the reverse, and for those with one common consumer or contributor.

    Raises:
        InfeasibleError: some rank cannot be reached from another that it needs data of.

    Complexity: some rounds of n_ranks integer max-flows.
    Source: ForestColl (arXiv:2402.06787), optimality cut; Dinkelbach, Management Science 13(7), 1967.
    """
    demand = Demand.of(problem.collective)
    if not demand.moves:
        return None
    best = best_cut(problem.topology, demand)
    if demand.cuts_are_exact:
        return best
    for prices in candidate_prices(problem.topology):
        found = price_bound(problem.topology, demand, prices)
        if found is not None and found.time > best.time:
            best = found
    return best


def tree_bound(problem: Problem) -> Bound | None:
    """`bound`, or the better one that holds for schedules of trees, where there is one.

    Exact for all-reduce up to `allreduce.MOST_RANKS` ranks where no switch adds or copies.

    Raises:
        InfeasibleError: some rank cannot be reached from another that it needs data of.
    """
    best = bound(problem)
    rooted = rooted_bound(problem.topology, problem.collective) if best is not None else None
    return rooted if rooted is not None and best is not None and rooted.time > best.time else best
