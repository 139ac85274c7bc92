"""What no design of so many vertices and ports can beat, and what a given one looks like."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from collc.cost.limits import moore_layers
from collc.design.graph import Graph

if TYPE_CHECKING:
    from collc.design.graph import Matrix, Row


def moore_steps(n: int, degree: int, *, two_way: bool = False) -> int:
    """The least diameter: so many steps until the ports could have led to all vertices.

    Args:
        two_way: links go both ways, so the first step back is wasted.

    >>> moore_steps(1024, 4), moore_steps(10, 3, two_way=True)
    (5, 2)
    """
    return len(moore_layers(n, degree, two_way=two_way)) - 1


def moore_distance_sum(n: int, degree: int, *, two_way: bool = False) -> int:
    """The least sum of distances from a vertex to all others."""
    return sum(step * count for step, count in enumerate(moore_layers(n, degree, two_way=two_way)))


def distance_counts(graph: Graph) -> dict[int, Fraction]:
    """Distance -> how many vertices lie that far, on average over the vertices."""
    if graph.is_transitive:
        counts = Counter(map(int, graph.distances_to(0)))
        return {step: Fraction(count) for step, count in sorted(counts.items())}
    counts = Counter(map(int, graph.distances.ravel()))
    return {step: Fraction(count, graph.n) for step, count in sorted(counts.items())}


def alltoall_time(graph: Graph) -> Fraction:
    """T that no all-to-all on the graph beats [M/B, M: what one vertex sends]: distances over links.

    Each pair's data crosses as many links as their distance; the live ports share the work at best.
    """
    total = graph.n * sum(step * count for step, count in distance_counts(graph).items())
    live = graph.n * graph.degree - graph.n_loops
    return Fraction(total) * Fraction(graph.degree, graph.n) / live


def alltoall_limit(n: int, degree: int) -> Fraction:
    """T that no all-to-all on any graph of n vertices and so many ports beats [M/B]."""
    return Fraction(moore_distance_sum(n, degree), n)


def bisection(graph: Graph) -> int:
    """Links out of one half of the vertices: the least of a few halves, so an upper estimate.

    The halves are those nearest to a vertex, and those that the second eigenvector parts (where numpy
    finds it quickly); each is then improved by swapping single vertices while that helps.
    """
    import numpy

    heads = numpy.array(graph.heads)
    halves = [
        numpy.argsort(graph.distances_to(vertex), kind="stable")[: graph.n // 2] for vertex in graph.representatives[:8]
    ]
    halves.append(numpy.arange(graph.n // 2))
    halves.append(numpy.arange(0, graph.n - graph.n % 2, 2))
    if (fiedler := _fiedler(graph)) is not None:
        halves.append(numpy.argsort(fiedler, kind="stable")[: graph.n // 2])
    best = graph.n * graph.degree
    for half in halves:
        inside = numpy.zeros(graph.n, dtype=bool)
        inside[half] = True
        best = min(best, _improved(heads, graph.tails, inside))
    return best


def _fiedler(graph: Graph) -> Row | None:
    """The eigenvector of the second largest eigenvalue of the graph made symmetric."""
    import numpy

    if graph.n > 1100:
        return None
    matrix = numpy.zeros((graph.n, graph.n))
    for (tail, head), count in graph.arcs.items():
        matrix[tail, head] += count
        matrix[head, tail] += count
    second: Row = numpy.round(numpy.linalg.eigh(matrix)[1][:, -2], 9)
    return second


def _improved(heads: Matrix, tails: Matrix, inside: Row) -> int:
    """Links leaving after the best swaps of one vertex inside with one outside, while they help."""
    import numpy

    def leaving() -> int:
        return int((inside[:, None] & ~inside[heads]).sum())

    best = leaving()
    for _ in range(len(inside)):
        # What leaving and entering links a vertex would add or remove by changing sides.
        out, back = inside[heads].sum(axis=1), inside[tails].sum(axis=1)
        gain = numpy.where(inside, (heads.shape[1] - out) - back, back - (heads.shape[1] - out))
        one = int(numpy.where(inside, gain, -(10**9)).argmax())
        other = int(numpy.where(~inside, gain, -(10**9)).argmax())
        inside[one], inside[other] = False, True
        if (now := leaving()) >= best:
            inside[one], inside[other] = True, False
            break
        best = now
    return best
