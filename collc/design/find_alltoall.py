"""The best designs for all-to-all: families, tori with twists, known Cayley graphs and their line graphs.

Ranked by the exact optimum where symmetries give it (`alltoall`). What has too few of them, such as the
generalized Kautz graphs, is shown beside, with the bound by distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, permutations, product
from math import prod

from collc.design import bounds
from collc.design.alltoall import alltoall_optimum
from collc.design.find import Finder, check_request, factors
from collc.design.graph import Graph
from collc.design.known import Known
from collc.design.recipe import parse
from collc.errors import InfeasibleError, InputError

# Places that tori of all twists may have in all; beyond, only twists by half of a side are tried.
_MOST_PLACES = 60_000
# Designs whose optimum is computed, by their bounds; and line and duplex graphs of so many smaller ones.
_MOST_SOLVED = 24
_SMALLER = 3


@dataclass(frozen=True)
class AllToAll:
    """A design and what its best all-to-all costs.

    Attributes:
        graph: the design.
        bound: T by distances [M/B]; no schedule beats it.
        time: T of the best schedule [M/B]; None where it is not known.
    """

    graph: Graph
    bound: Fraction
    time: Fraction | None

    @property
    def least(self) -> Fraction:
        """What is proven: no schedule is quicker."""
        return self.bound if self.time is None else self.time

    @property
    def over_moore(self) -> Fraction:
        """How much more than any graph of as many vertices and ports needs."""
        return self.least / bounds.alltoall_limit(self.graph.n, self.graph.degree)


def find_alltoall(n: int, degree: int, *, two_way: bool = False, known: Iterable[Known] = ()) -> tuple[AllToAll, ...]:
    """Designs by the time of their best all-to-all, those of unknown optimum last.

    Args:
        two_way: only designs whose links all have twins, for full-duplex cables.
        known: further designs to draw on.

    Raises:
        InputError: there is no such design.
    """
    check_request(n, degree, two_way=two_way)
    known = tuple(known)
    bounded: dict[str, AllToAll] = {}
    for graph in _graphs(n, degree, two_way, known):
        try:
            bounded[graph.recipe] = AllToAll(graph, bounds.alltoall_time(graph), None)
        except InfeasibleError:
            continue  # it falls apart
    ranked = sorted(bounded.values(), key=_order)
    found = [AllToAll(one.graph, one.bound, alltoall_optimum(one.graph)) for one in ranked[:_MOST_SOLVED]]
    return tuple(sorted([*found, *ranked[_MOST_SOLVED:]], key=_order))


def _order(one: AllToAll) -> tuple[bool, Fraction, int, int, str]:
    graph = one.graph
    return one.time is None, one.least, graph.diameter, len(graph.recipe), graph.recipe


def _graphs(n: int, degree: int, two_way: bool, known: tuple[Known, ...]) -> Iterator[Graph]:
    for recipe in dict.fromkeys(_recipes(n, degree, two_way, known)):
        try:
            graph = parse(recipe)
        except InputError:
            continue  # this family has no such graph
        if (graph.n, graph.degree) == (n, degree) and (graph.is_two_way or not two_way):
            yield graph


def _recipes(n: int, degree: int, two_way: bool, known: tuple[Known, ...]) -> Iterator[str]:
    yield from Finder(two_way=two_way, published=False, known=known).recipes(n, degree)
    yield from _tori(n, degree)
    if two_way:
        if degree % 2 == 0:
            yield from (f"duplex({recipe})" for recipe in _best(n, degree // 2, known))
    elif n % degree == 0 and n // degree > degree > 1:
        yield from (f"line({recipe})" for recipe in _best(n // degree, degree, known))


def _best(n: int, degree: int, known: tuple[Known, ...]) -> Iterator[str]:
    """The best known designs of a size for all-to-all, and families of it."""
    good = [one for one in known if (one.n, one.degree) == (n, degree) and one.alltoall is not None]
    good.sort(key=lambda one: (one.alltoall, one.recipe))
    yield from (one.recipe for one in good[:_SMALLER])
    yield from Finder(two_way=False, published=False, known=()).recipes(n, degree)


def _tori(n: int, degree: int) -> Iterator[str]:
    """Tori with a ring for each two ports, plain and twisted; hypercubes among them."""
    if degree > 1 and n == 2**degree:
        yield f"hypercube(dimensions={degree})"
    if degree % 2 or degree < 4:
        return
    for sides in _boxes(n, degree // 2):
        yield f"torus(dims={'x'.join(map(str, sides))})"
        for dims in sorted(set(permutations(sides))):
            later = [(i, dims[j]) for i in range(len(dims)) for j in range(i + 1, len(dims))]
            # Turning the direction of a dimension turns the sign of what the first one's wraps shift it by.
            tried = [range(side if i else side // 2 + 1) for i, side in later]
            if prod(map(len, tried)) * n > _MOST_PLACES:
                tried = [range(0, side, max(1, side // 2)) for _, side in later]
            for twists in product(*tried):
                if any(twists):
                    yield f"twisted(dims={'x'.join(map(str, dims))},twists={'x'.join(map(str, twists))})"


def _boxes(n: int, n_sides: int) -> list[tuple[int, ...]]:
    """The most even of the boxes of a volume."""
    boxes = [sides for sides in combinations_with_replacement(factors(n), n_sides) if prod(sides) == n]
    return sorted(boxes, key=lambda sides: (sum(sides), sides))[:1]
