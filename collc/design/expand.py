"""Large designs of small ones: line graph, degree expansion, powers, products, and both directions at once.

Each comes with what the paper's schedule for it costs; running the eager broadcast on the result may
do better, and `find` keeps the better of both.

Source: arXiv:2202.03356, expansion techniques.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product as tuples
from math import prod

from collc.design.graph import Graph, Permutation, check_scale
from collc.errors import InputError

# (T_L, T_B)
Price = tuple[int, Fraction]


def line(graph: Graph) -> Graph:
    """A vertex for every link; it leads to the links that start where it ends.

    Link `port` of vertex u is vertex u * degree + port.

    Raises:
        InputError: the graph has loops: the line graph would not be regular, and the cost formula wrong.
    """
    _refuse_loops("line", graph)
    check_scale(f"L({graph.name})", graph.n * graph.degree, graph.degree)
    ports = range(graph.degree)
    heads = tuple(tuple(v * graph.degree + port for port in ports) for row in graph.heads for v in row)
    moves = tuple(on_links(graph, image) for image in graph.symmetries)
    return Graph(_line_name(graph.name), f"line({graph.recipe})", heads, moves)


def line_price(n: int, base: Price) -> Price:
    """What the line graph's schedule costs, from that of the base on n vertices."""
    return base[0] + 1, base[1] + Fraction(1, n)


def on_links(graph: Graph, image: Permutation) -> Permutation:
    """Where a symmetry takes each link; parallel links keep their order."""
    places: Mapping[tuple[int, int], list[int]] = _links_between(graph)
    met: dict[tuple[int, int], int] = {}
    moved = []
    for u, row in enumerate(graph.heads):
        for v in row:
            ends = image[u], image[v]
            nth = met.get((u, v), 0)
            met[u, v] = nth + 1
            found = places.get(ends, [])
            if nth >= len(found):
                raise InputError(f"{graph.name}: a stated symmetry does not map links onto links")
            moved.append(found[nth])
    return tuple(moved)


def _links_between(graph: Graph) -> dict[tuple[int, int], list[int]]:
    places: dict[tuple[int, int], list[int]] = {}
    for u, row in enumerate(graph.heads):
        for port, v in enumerate(row):
            places.setdefault((u, v), []).append(u * graph.degree + port)
    return places


def _line_name(name: str) -> str:
    if name.startswith("L(") and name.endswith(")"):
        return f"L^2({name[2:-1]})"
    if name.startswith("L^") and name.endswith(")"):
        power, _, inner = name[2:-1].partition("(")
        return f"L^{int(power) + 1}({inner})"
    return f"L({name})"


def degree(graph: Graph, n: int) -> Graph:
    """N copies of every vertex; every link becomes all n * n links between the copies of its ends.

    Copy a of vertex u is vertex u * n + a; port p of u becomes its ports p * n to p * n + n - 1.

    Raises:
        InputError: the graph has loops, or n is below 2.
    """
    _refuse_loops("degree", graph)
    if n < 2:
        raise InputError(f"degree({graph.name},{n}): expected 2 copies or more")
    check_scale(f"{graph.name}*{n}", graph.n * n, graph.degree * n)
    heads = tuple(tuple(v * n + b for v in row for b in range(n)) for row in graph.heads for _ in range(n))
    turn = tuple(u * n + (a + 1) % n for u in range(graph.n) for a in range(n))
    moves = tuple(tuple(image[u] * n + a for u in range(graph.n) for a in range(n)) for image in graph.symmetries)
    return Graph(f"{_bracketed(graph.name)}*{n}", f"degree({graph.recipe},{n})", heads, (turn, *moves))


def degree_price(n: int, copies: int, base: Price) -> Price:
    """What the degree expansion's schedule costs, from that of the base on n vertices."""
    return base[0] + 1, base[1] + Fraction(copies - 1, copies * n)


def power(graph: Graph, n: int) -> Graph:
    """Cartesian power: words of n vertices, joined where they differ in one letter that the graph joins.

    Raises:
        InputError: n is below 2.
    """
    if n < 2 or n > 24:
        raise InputError(f"power({graph.name},{n}): expected 2 to 24 factors")
    made = product(*[graph] * n)
    # Turning the word round is a symmetry too.
    words = list(tuples(range(graph.n), repeat=n))
    places = [graph.n**exponent for exponent in range(n - 1, -1, -1)]
    turn = tuple(
        sum(letter * place for letter, place in zip((*word[1:], word[0]), places, strict=True)) for word in words
    )
    name = f"{_bracketed(graph.name)}^[{n}]"
    return Graph(name, f"power({graph.recipe},{n})", made.heads, (*made.symmetries, turn))


def power_price(n: int, exponent: int, base: Price) -> Price:
    """What the power's schedule costs, from that of the base on n vertices."""
    return exponent * base[0], base[1] * Fraction(n, n - 1) * Fraction(n**exponent - 1, n**exponent)


def product(*graphs: Graph) -> Graph:
    """Cartesian product: a vertex of each graph; a link changes one of them. The last counts least.

    Ports of the first graph come first.

    Raises:
        InputError: fewer than two graphs, or the result is too large.
    """
    if len(graphs) < 2:
        raise InputError("product: expected two graphs or more")
    name = " x ".join(_bracketed(graph.name) for graph in graphs)
    n = prod(graph.n for graph in graphs)
    check_scale(name, n, sum(graph.degree for graph in graphs))
    places = [prod(graph.n for graph in graphs[axis + 1 :]) for axis in range(len(graphs))]
    heads: list[tuple[int, ...]] = []
    for number, word in enumerate(tuples(*(range(graph.n) for graph in graphs))):
        row: list[int] = []
        for axis, graph in enumerate(graphs):
            rest = number - word[axis] * places[axis]
            row += [rest + head * places[axis] for head in graph.heads[word[axis]]]
        heads.append(tuple(row))
    moves = [_on_axis(image, places[axis], n) for axis, graph in enumerate(graphs) for image in graph.symmetries]
    return Graph(name, f"product({','.join(graph.recipe for graph in graphs)})", tuple(heads), tuple(moves))


def _on_axis(image: Sequence[int], place: int, n: int) -> Permutation:
    letters = len(image)
    return tuple(number + (image[number // place % letters] - number // place % letters) * place for number in range(n))


def duplex(graph: Graph) -> Graph:
    """The graph and its reverse together: twice the ports, every cable full-duplex.

    Half the data takes the graph's schedule, half the reverse's. Where the two are alike, T_L and
    T_B stay as they were.
    """
    check_scale(f"{graph.name} both ways", graph.n, 2 * graph.degree)
    heads = tuple(row + back for row, back in zip(graph.heads, graph.transpose.heads, strict=True))
    return Graph(f"{_bracketed(graph.name)} both ways", f"duplex({graph.recipe})", heads, graph.symmetries)


def duplex_price(degree: int, n: int, forth: Sequence[Fraction], back: Sequence[Fraction]) -> Price:
    """What both halves cost together, from the loads of the graph and of its reverse, step by step."""
    steps = max(len(forth), len(back))
    padded = [[*loads, *[Fraction(0)] * (steps - len(loads))] for loads in (forth, back)]
    return steps, Fraction(degree, n) * sum(max(one, other) for one, other in zip(*padded, strict=True))


def _refuse_loops(what: str, graph: Graph) -> None:
    if graph.n_loops:
        raise InputError(
            f"{what}({graph.name}): the graph has {graph.n_loops} loops (dead ports), on which the expansion's "
            "schedule is not valid; expected none"
        )


def _bracketed(name: str) -> str:
    return f"({name})" if any(mark in name for mark in (" ", "^[", "*")) and not name.startswith("L^") else name
