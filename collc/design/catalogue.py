"""Single graphs worth having: distance-regular graphs of degree 3 to 7, the diamond, and graphs by LCF code.

A distance-regular graph is built and then held against its intersection array, so a wrong
construction cannot pass. Such graphs have T_L = diameter and T_B = (n - 1)/n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from collc.design.graph import Graph, check_scale
from collc.design.lattice import bipartite, complete, hamming, hypercube
from collc.errors import InputError, nearest

Neighbours = Sequence[Iterable[int]]


@dataclass(frozen=True)
class Entry:
    """A distance-regular graph.

    Attributes:
        build: its neighbours, vertex by vertex.
        down, up: the intersection array {b_0, b_1, ...; c_1, c_2, ...}.
    """

    build: Callable[[], Neighbours]
    down: tuple[int, ...]
    up: tuple[int, ...]


def distance_regular(graph: str) -> Graph:
    """A distance-regular graph of the catalogue, by name.

    Exists: for the names listed. T_L: diameter. T_B: (n - 1)/n.
    Source: Brouwer, Cohen, Neumaier, Distance-Regular Graphs, 1989; Brouwer and Koolen, The
    distance-regular graphs of valency four, J. Algebraic Combinatorics 10, 1999.
    """
    if graph not in CATALOGUE:
        raise InputError(f"distance_regular: graph '{graph}'" + nearest(graph, CATALOGUE))
    entry = CATALOGUE[graph]
    made = Graph(graph, f"distance_regular(graph={graph})", tuple(tuple(sorted(row)) for row in entry.build()))
    found = intersection_array(made)
    if found != (entry.down, entry.up):
        raise InputError(f"distance_regular: {graph} has the intersection array {found}; expected {entry}")
    return made


def intersection_array(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(b_0, b_1, ...), (c_1, c_2, ...); None where the graph is not distance-regular.

    Complexity: all distances, and one pass over them for each port.
    """
    import numpy

    far = graph.distances
    beyond, nearer = numpy.zeros_like(far), numpy.zeros_like(far)
    for port in range(graph.degree):
        ways = far[graph.tails[:, port]]
        beyond += ways > far
        nearer += ways < far
    down, up = [], []
    for step in range(graph.diameter + 1):
        at = far == step
        if len(numpy.unique(beyond[at])) > 1 or len(numpy.unique(nearer[at])) > 1:
            return None
        down.append(int(beyond[at][0]))
        up.append(int(nearer[at][0]))
    return tuple(down[:-1]), tuple(up[1:])


def diamond() -> Graph:
    """Eight vertices of degree 2: optimal in both T_L and T_B, one-way, reverse-symmetric.

    Exists: once. T_L: 3. T_B: 7/8.
    Source: arXiv:2202.03356 names it; the arcs were found by search (two classes have these values).
    """
    heads = ((1, 2), (3, 7), (3, 4), (0, 6), (0, 5), (2, 7), (1, 5), (4, 6))
    return Graph("Diamond", "diamond()", heads)


def lcf(jumps: tuple[int, ...], n: int) -> Graph:
    """Cubic graph: a two-way ring, and from vertex i a chord to i + jumps[i mod len(jumps)].

    Exists: chords that agree with each other. T_L, T_B: computed.
    Source: Frucht, A canonical representation of trivalent Hamiltonian graphs, 1977.
    """
    check_scale("lcf", n, 3)
    rows = tuple(((i + 1) % n, (i - 1) % n, (i + jumps[i % len(jumps)]) % n) for i in range(n))
    if n % len(jumps) or any(i not in rows[row[2]] or row[2] == i for i, row in enumerate(rows)):
        raise InputError(f"lcf: jumps {jumps} on {n} vertices: a chord does not lead back; expected pairs of chords")
    code = "x".join(map(str, jumps))
    return Graph(f"LCF([{','.join(map(str, jumps))}],{n})", f"lcf(jumps={code},n={n})", rows)


# --- constructions ---------------------------------------------------------------------------------


def _lcf(jumps: Sequence[int], times: int) -> Callable[[], Neighbours]:
    return lambda: lcf(tuple(jumps), len(jumps) * times).heads


def _joined(things: Iterable[object], are_joined: Callable[..., bool]) -> Neighbours:
    """Vertices for things, joined where a symmetric relation says so."""
    known = list(things)
    return [[j for j, y in enumerate(known) if i != j and are_joined(x, y)] for i, x in enumerate(known)]


def _subsets(n: int, k: int, are_joined: Callable[..., bool]) -> Callable[[], Neighbours]:
    return lambda: _joined(map(frozenset, combinations(range(n), k)), are_joined)


def _incidence(n_points: int, blocks: Sequence[Iterable[int]]) -> Neighbours:
    """Points, then blocks; a point is joined to the blocks that hold it."""
    rows: list[list[int]] = [[] for _ in range(n_points + len(blocks))]
    for index, block in enumerate(blocks):
        for point in block:
            rows[point].append(n_points + index)
            rows[n_points + index].append(point)
    return rows


def _edges_of(build: Callable[[], Neighbours]) -> Callable[[], Neighbours]:
    """The undirected line graph: edges, joined where they share an end."""

    def made() -> Neighbours:
        edges = [frozenset((i, j)) for i, row in enumerate(build()) for j in row if i < j]
        return _joined(edges, lambda x, y: bool(x & y))

    return made


def _coxeter() -> Neighbours:
    """Triples of seven points that are no line of the Fano plane, joined where disjoint."""
    lines = {frozenset((i, (i + 1) % 7, (i + 3) % 7)) for i in range(7)}
    triples = [triple for triple in map(frozenset, combinations(range(7), 3)) if triple not in lines]
    return _joined(triples, lambda x, y: not x & y)


def _biggs_smith() -> Neighbours:
    """Seventeen letters H; its four ends lie on rings of step 1, 4 (one side), 2, 8 (the other)."""
    rows: list[list[int]] = [[] for _ in range(102)]

    def join(a: int, b: int) -> None:
        rows[a].append(b)
        rows[b].append(a)

    for i in range(17):
        join(6 * i, 6 * i + 1)
        for end, (side, step) in enumerate(((0, 1), (0, 4), (1, 2), (1, 8)), start=2):
            join(6 * i + side, 6 * i + end)
            join(6 * i + end, 6 * ((i + step) % 17) + end)
    return rows


def _affine_plane() -> Neighbours:
    """AG(2,4) without the class of vertical lines: points (x, y), lines y = a x + b over GF(4)."""

    def times(a: int, b: int) -> int:  # x^2 = x + 1
        found = (a if b & 1 else 0) ^ (a << 1 if b & 2 else 0)
        return found ^ 7 if found & 4 else found

    lines = [[4 * x + (times(a, x) ^ b) for x in range(4)] for a, b in product(range(4), repeat=2)]
    return _incidence(16, lines)


def _points(dimension: int) -> list[tuple[int, ...]]:
    """Points of the projective space over GF(3): vectors whose first non-zero entry is one."""
    return [v for v in product(range(3), repeat=dimension) if any(v) and v[[e > 0 for e in v].index(True)] == 1]


def _lines_on(points: Sequence[tuple[int, ...]], are_joined: Callable[..., bool]) -> list[frozenset[int]]:
    """Lines through pairs of points that a relation joins, as sets of point numbers."""
    index = {point: number for number, point in enumerate(points)}

    def number(v: Sequence[int]) -> int:
        lead = next(e for e in v if e)
        return index[tuple(e * lead % 3 for e in v)]

    lines: dict[frozenset[int], None] = {}
    for x, y in combinations(points, 2):
        if are_joined(x, y):
            third, fourth = ([(a + s * b) % 3 for a, b in zip(x, y, strict=True)] for s in (1, 2))
            lines[frozenset((index[x], index[y], number(third), number(fourth)))] = None
    return list(lines)


def _quadrangle() -> Neighbours:
    """GQ(3,3): points of PG(3,3) and the lines that a symplectic form vanishes on."""
    points = _points(4)

    def vanishes(x: Sequence[int], y: Sequence[int]) -> bool:
        return (x[0] * y[1] - x[1] * y[0] + x[2] * y[3] - x[3] * y[2]) % 3 == 0

    return _incidence(len(points), _lines_on(points, vanishes))


def _hexagon() -> Neighbours:
    """GH(3,3), the split Cayley hexagon: points of a quadric in PG(6,3), lines by their Plücker coordinates.

    Source: Tits, Sur la trialité et certains groupes qui s'en déduisent, 1959.
    """
    points = [x for x in _points(7) if (x[0] * x[4] + x[1] * x[5] + x[2] * x[6] - x[3] * x[3]) % 3 == 0]
    equal = (((1, 2), (3, 4)), ((5, 4), (3, 2)), ((2, 0), (3, 5)), ((6, 5), (3, 0)), ((0, 1), (3, 6)), ((4, 6), (3, 1)))

    def are_joined(x: Sequence[int], y: Sequence[int]) -> bool:
        def minor(i: int, j: int) -> int:
            return (x[i] * y[j] - x[j] * y[i]) % 3

        across = sum(x[i] * y[i + 4] + x[i + 4] * y[i] for i in range(3)) - 2 * x[3] * y[3]
        return across % 3 == 0 and all(minor(*one) == minor(*other) for one, other in equal)

    return _incidence(len(points), _lines_on(points, are_joined))


def _doubled_odd() -> Neighbours:
    """Triples and quadruples of seven points, joined by inclusion."""
    sets = [frozenset(s) for k in (3, 4) for s in combinations(range(7), k)]
    return _joined(sets, lambda x, y: len(x) != len(y) and (x < y or y < x))


def _hoffman_singleton() -> Neighbours:
    """Five pentagons and five pentagrams; vertex j of pentagon h meets vertex h * i + j of pentagram i."""
    rows: list[set[int]] = [set() for _ in range(50)]

    def join(a: int, b: int) -> None:
        rows[a].add(b)
        rows[b].add(a)

    for h, j in product(range(5), repeat=2):
        join(5 * h + j, 5 * h + (j + 1) % 5)
        join(25 + 5 * h + j, 25 + 5 * h + (j + 2) % 5)
        for i in range(5):
            join(5 * h + j, 25 + 5 * i + (h * i + j) % 5)
    return rows


def _icosahedron() -> Neighbours:
    """Two poles, and two rings of five between them."""
    rows: list[set[int]] = [set() for _ in range(12)]
    for i in range(5):
        following = (i + 1) % 5
        for a, b in (
            (0, 2 + i),
            (1, 7 + i),
            (2 + i, 2 + following),
            (7 + i, 7 + following),
            (2 + i, 7 + i),
            (2 + i, 7 + following),
        ):
            rows[a].add(b)
            rows[b].add(a)
    return rows


def _difference_set(n: int, offsets: Sequence[int]) -> Callable[[], Neighbours]:
    return lambda: _incidence(n, [[(i + offset) % n for offset in offsets] for i in range(n)])


_PETERSEN = _subsets(5, 2, lambda x, y: not x & y)
_HEAWOOD = _lcf((5, -5), 7)
_TUTTE_COXETER = _lcf((-13, -9, 7, -7, 9, 13), 5)
_TUTTE_12 = _lcf((17, 27, -13, -59, -35, 35, -11, 13, -53, 53, -27, 21, 57, 11, -21, -57, 59, -17), 7)
_DODECAHEDRON = _lcf((10, 7, 4, -4, -7, 10, -4, 7, -7, 4), 2)

CATALOGUE: Mapping[str, Entry] = {
    "K4": Entry(lambda: complete(4).heads, (3,), (1,)),
    "K3-3": Entry(lambda: bipartite(3).heads, (3, 2), (1, 3)),
    "Petersen": Entry(_PETERSEN, (3, 2), (1, 1)),
    "cube": Entry(lambda: hypercube(3).heads, (3, 2, 1), (1, 2, 3)),
    "Heawood": Entry(_HEAWOOD, (3, 2, 2), (1, 1, 3)),
    "Pappus": Entry(_lcf((5, 7, -7, 7, -7, -5), 3), (3, 2, 2, 1), (1, 1, 2, 3)),
    "dodecahedron": Entry(_DODECAHEDRON, (3, 2, 1, 1, 1), (1, 1, 1, 2, 3)),
    "Desargues": Entry(_lcf((5, -5, 9, -9), 5), (3, 2, 2, 1, 1), (1, 1, 2, 2, 3)),
    "Coxeter": Entry(_coxeter, (3, 2, 2, 1), (1, 1, 1, 2)),
    "Tutte-Coxeter": Entry(_TUTTE_COXETER, (3, 2, 2, 2), (1, 1, 1, 3)),
    "Foster": Entry(_lcf((17, -9, 37, -37, 9, -17), 15), (3, 2, 2, 2, 2, 1, 1, 1), (1, 1, 1, 1, 2, 2, 2, 3)),
    "Biggs-Smith": Entry(_biggs_smith, (3, 2, 2, 2, 1, 1, 1), (1, 1, 1, 1, 1, 1, 3)),
    "Tutte-12-cage": Entry(_TUTTE_12, (3, 2, 2, 2, 2, 2), (1, 1, 1, 1, 1, 3)),
    "octahedron": Entry(lambda: _joined(range(6), lambda x, y: x % 3 != y % 3), (4, 1), (1, 4)),
    "K5": Entry(lambda: complete(5).heads, (4,), (1,)),
    "K4-4": Entry(lambda: bipartite(4).heads, (4, 3), (1, 4)),
    "H-2-3": Entry(lambda: hamming(2, 3).heads, (4, 2), (1, 2)),
    "K5-5-matching": Entry(
        lambda: _joined(range(10), lambda x, y: x // 5 != y // 5 and x % 5 != y % 5), (4, 3, 1), (1, 3, 4)
    ),
    "Petersen-line": Entry(_edges_of(_PETERSEN), (4, 2, 1), (1, 1, 4)),
    "Q4": Entry(lambda: hypercube(4).heads, (4, 3, 2, 1), (1, 2, 3, 4)),
    "Heawood-line": Entry(_edges_of(_HEAWOOD), (4, 2, 2), (1, 1, 2)),
    "PG-2-3": Entry(_difference_set(13, (0, 1, 3, 9)), (4, 3, 3), (1, 1, 4)),
    "AG-2-4-class": Entry(_affine_plane, (4, 3, 3, 1), (1, 1, 3, 4)),
    "O4": Entry(_subsets(7, 3, lambda x, y: not x & y), (4, 3, 3), (1, 1, 2)),
    "Tutte-Coxeter-line": Entry(_edges_of(_TUTTE_COXETER), (4, 2, 2, 2), (1, 1, 1, 2)),
    "doubled-O4": Entry(_doubled_odd, (4, 3, 3, 2, 2, 1, 1), (1, 1, 2, 2, 3, 3, 4)),
    "GQ-3-3": Entry(_quadrangle, (4, 3, 3, 3), (1, 1, 1, 4)),
    "flags-GH-2-2": Entry(_edges_of(_TUTTE_12), (4, 2, 2, 2, 2, 2), (1, 1, 1, 1, 1, 2)),
    "GH-3-3": Entry(_hexagon, (4, 3, 3, 3, 3, 3), (1, 1, 1, 1, 1, 4)),
    "icosahedron": Entry(_icosahedron, (5, 2, 1), (1, 2, 5)),
    "Paley13": Entry(lambda: _joined(range(13), lambda x, y: (x - y) % 13 in (1, 3, 4, 9, 10, 12)), (6, 3), (1, 3)),
    "Hoffman-Singleton": Entry(_hoffman_singleton, (7, 6), (1, 1)),
}
