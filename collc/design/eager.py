"""What the breadth-first broadcast costs: every vertex gets each shard by a shortest way, as soon as it can.

Vertex u receives the shard of source v in step dist(v, u), split over those in-neighbours that are
one step nearer to v. Per vertex and step this is a one-sided transport problem, and by max-flow
min-cut its best largest load is

    U(u, t) = max over non-empty sets W of ports into u:
              (sources at distance t all of whose nearer ports lie in W) / (ports in W),

exact, with no linear program. A step costs its busiest link; T_B = degree / n * sum over t of max U(., t).
Up to `_DENSE_PORTS` ports all sets are tried by a subset sum over arrays; above, where the bounds do
not settle it, by Newton's method on maximum flows.

Source: arXiv:2202.03356, breadth-first-broadcast schedules; the subset formula is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from collc.design.graph import MOST_VERTICES, Graph
from collc.errors import InputError
from collc.solve import FlowNetwork

if TYPE_CHECKING:
    from collc.design.graph import Matrix

_DENSE_PORTS = 12
_DENSE_WORK = 2 * 10**9  # array additions that trying all sets may take
_BLOCK = 2**22  # entries of one array of subset counts


@dataclass(frozen=True)
class Cost:
    """What an allgather costs.

    Attributes:
        n, degree: of the graph.
        loads: by step, shards on its busiest link (U_t).
    """

    n: int
    degree: int
    loads: tuple[Fraction, ...]

    @property
    def steps(self) -> int:
        """T_L: steps."""
        return len(self.loads)

    @property
    def time(self) -> Fraction:
        """T_B [M/B]: each step's busiest link, added up."""
        return Fraction(self.degree, self.n) * sum(self.loads)

    @property
    def is_optimal(self) -> bool:
        """Whether every port into a vertex is busy with new shards all the time."""
        return self.time == best_time(self.n)


def best_time(n: int) -> Fraction:
    """T_B that no allgather on n vertices beats: each must receive n - 1 shards [M/B]."""
    return Fraction(n - 1, n)


# Digest of a graph -> its cost. Costs are small; the graphs, with their distances, are not kept.
_KNOWN: dict[bytes, Cost] = {}


def eager_cost(graph: Graph) -> Cost:
    """Steps and loads of the breadth-first broadcast, exactly.

    Only one vertex of each class of the graph's checked symmetries is looked at.

    Raises:
        InfeasibleError: some vertex cannot be reached from some other.
        InputError: too many vertices, and no symmetry that makes them few.
    """
    if graph.digest not in _KNOWN:
        _KNOWN[graph.digest] = _cost(graph)
    return _KNOWN[graph.digest]


def _cost(graph: Graph) -> Cost:
    if graph.n > MOST_VERTICES and not graph.is_symmetric:
        raise InputError(f"{graph.name}: {graph.n} vertices that do not look alike; expected {MOST_VERTICES} at most")
    loads: dict[int, Fraction] = {}
    n_steps = graph.diameter
    by_sets = graph.degree <= _DENSE_PORTS and (
        len(graph.representatives) * n_steps * graph.degree << graph.degree <= _DENSE_WORK
    )
    for far, nearer in _blocks(graph, n_steps):
        if by_sets:
            _raise_by_sets(loads, far, nearer, graph.degree)
        else:
            _raise_by_flows(loads, far, nearer, graph.degree)
    return Cost(graph.n, graph.degree, tuple(loads[step] for step in range(1, n_steps + 1)))


def _blocks(graph: Graph, n_steps: int) -> Iterator[tuple[Matrix, Matrix]]:
    """For some vertices at a time: [k x n] distances from each source, and its nearer ports as bits."""
    import numpy

    some = numpy.array(graph.representatives)
    size = max(1, min(_BLOCK // (n_steps + 1) >> min(graph.degree, _DENSE_PORTS), _BLOCK // graph.n))
    for start in range(0, len(some), size):
        block = some[start : start + size]
        if not graph.is_symmetric:
            far = graph.distances[block]
            ways = [graph.distances[graph.tails[block, port]] for port in range(graph.degree)]
        else:
            needed = {*block.tolist(), *graph.tails[block].ravel().tolist()}
            known = {vertex: graph.distances_to(vertex) for vertex in sorted(needed)}
            far = numpy.array([known[int(vertex)] for vertex in block])
            ways = [
                numpy.array([known[int(tail)] for tail in graph.tails[block, port]]) for port in range(graph.degree)
            ]
        nearer = numpy.zeros(far.shape, dtype=numpy.int32)
        for port, way in enumerate(ways):
            nearer |= (way < far).astype(numpy.int32) << port
        yield far, nearer


def _raise_by_sets(loads: dict[int, Fraction], far: Matrix, nearer: Matrix, degree: int) -> None:
    import numpy

    k, n_steps = len(far), int(far.max())
    rows = numpy.arange(k, dtype=numpy.int64)[:, None] * (n_steps + 1) + far
    counts = numpy.bincount(((rows << degree) + nearer).ravel(), minlength=k * (n_steps + 1) << degree)
    within = counts.reshape(k * (n_steps + 1), 1 << degree).astype(numpy.int32)
    for port in range(degree):  # sources all of whose nearer ports lie in the set
        halves = within.reshape(-1, 1 << (degree - port - 1), 2, 1 << port)
        halves[:, :, 1] += halves[:, :, 0]
    most = within.reshape(k, n_steps + 1, 1 << degree).max(axis=0)
    n_ports = numpy.bitwise_count(numpy.arange(1 << degree))
    for step in range(1, n_steps + 1):
        best = max(Fraction(int(most[step, n_ports == ports].max()), ports) for ports in range(1, degree + 1))
        loads[step] = max(loads.get(step, best), best)


def _raise_by_flows(loads: dict[int, Fraction], far: Matrix, nearer: Matrix, degree: int) -> None:
    """Only where an even split over the nearer ports does not show a vertex to be no worse than the worst."""
    import numpy

    k, n_steps = len(far), int(far.max())
    whole = lcm(*range(1, degree + 1))
    ports = numpy.bitwise_count(nearer).astype(numpy.int64)
    part = numpy.where(ports > 0, whole // numpy.maximum(ports, 1), 0).astype(numpy.float64)  # exact below 2^53
    rows = (numpy.arange(k, dtype=numpy.int64)[:, None] * (n_steps + 1) + far).ravel()
    size = k * (n_steps + 1)
    even = numpy.zeros((degree, size))
    for port in range(degree):
        even[port] = numpy.bincount(rows, weights=(part * (nearer >> port & 1)).ravel(), minlength=size)
    most = even.max(axis=0).reshape(k, n_steps + 1)
    for step in range(1, n_steps + 1):
        for row in map(int, numpy.argsort(-most[:, step], kind="stable")):
            best = loads.get(step, Fraction(0))
            if most[row, step] <= best * whole:
                break
            sets, counts = numpy.unique(nearer[row, far[row] == step], return_counts=True)
            found = worst_set(dict(zip(map(int, sets), map(int, counts), strict=True)), best)
            loads[step] = max(best, found)


def worst_set(wanted: dict[int, int], least: Fraction = Fraction(0)) -> Fraction:
    """The largest load that sources force on ports of unit capacity, or `least` if that is more.

    Args:
        wanted: set of ports, as bits -> sources that must come through them.

    Complexity: discrete Newton, a few maximum flows.

    >>> worst_set({0b01: 1, 0b11: 2})
    Fraction(3, 2)
    """
    ports = [port for port in range(max(wanted).bit_length()) if any(bits >> port & 1 for bits in wanted)]
    column = {port: len(wanted) + index for index, port in enumerate(ports)}
    source, sink = len(wanted) + len(ports), len(wanted) + len(ports) + 1
    arcs = [(source, row) for row in range(len(wanted))]
    arcs += [(column[port], sink) for port in ports]
    arcs += [(row, column[port]) for row, bits in enumerate(wanted) for port in ports if bits >> port & 1]
    network = FlowNetwork(sink + 1, [tail for tail, _ in arcs], [head for _, head in arcs])
    total = sum(wanted.values())
    ratio = max(least, Fraction(total, len(ports)))
    while True:
        offers = [count * ratio.denominator for count in wanted.values()]
        unlimited = sum(offers)
        network.set_capacities(
            offers + [ratio.numerator] * len(ports) + [unlimited] * (len(arcs) - len(wanted) - len(ports))
        )
        if network.max_flow(source, sink) == unlimited:
            return ratio
        inside = network.source_side()
        forced = sum(count for row, count in enumerate(wanted.values()) if inside[row])
        ratio = Fraction(forced, sum(inside[column[port]] for port in ports))
