"""The best designs for so many vertices and ports: families, and expansions of smaller designs, recursively.

A design counts by (T_L, T_B). Three classes are pruned apart, since expansions need the latter two:
all; without loops (line and degree expansion); eager and BW-optimal (products of different graphs).
Of designs that tie, a few are kept: the eager broadcast may tell their expansions apart.

Source: arXiv:2202.03356, topology finder. Eager costs of the expanded graphs, the catalogue of known
designs and one-way circulants go beyond it; `published=True` leaves these out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt

from collc.design import expand
from collc.design.catalogue import CATALOGUE
from collc.design.eager import best_time, eager_cost
from collc.design.graph import MOST_VERTICES, Graph
from collc.design.known import Known, patient_facts
from collc.design.lattice import default_offsets
from collc.design.recipe import parse
from collc.errors import InfeasibleError, InputError

MOST_DEGREE = 16
_TIES = 3  # designs kept of equal cost


@dataclass(frozen=True)
class Design:
    """A graph and what its best known allgather costs.

    Attributes:
        name, recipe: of the graph.
        n, degree: vertices and ports.
        steps: T_L.
        time: T_B [M/B].
        n_loops: dead ports.
        is_eager: whether the eager broadcast costs that (else: the schedule of the recipe).
    """

    name: str
    recipe: str
    n: int
    degree: int
    steps: int
    time: Fraction
    n_loops: int = 0
    is_eager: bool = True

    @property
    def price(self) -> tuple[int, Fraction]:
        """(T_L, T_B)."""
        return self.steps, self.time

    @property
    def is_optimal(self) -> bool:
        """Whether T_B is the least possible."""
        return self.time == best_time(self.n)

    def build(self) -> Graph:
        """The graph."""
        return parse(self.recipe)


def check_request(n: int, degree: int, *, two_way: bool = False) -> None:
    """Refuse what no design can serve.

    Raises:
        InputError: says why.
    """
    if n < 2 or n > MOST_VERTICES:
        raise InputError(f"--nodes {n}; expected 2 to {MOST_VERTICES}")
    if degree < 1 or degree > MOST_DEGREE:
        raise InputError(f"--degree {degree}; expected 1 to {MOST_DEGREE}")
    if degree >= n:
        raise InputError(
            f"--degree {degree} with {n} nodes: all pairs are joined at degree {n - 1}; expected that or less"
        )
    if two_way and n * degree % 2:
        raise InputError(f"{n} nodes of odd degree {degree} have no full-duplex wiring: the number of ports is odd")
    if two_way and degree == 1 and n > 2:
        raise InputError(f"{n} nodes with one full-duplex cable each fall apart; expected --degree 2 or more")


def find(
    n: int, degree: int, *, two_way: bool = False, published: bool = False, known: Iterable[Known] = ()
) -> tuple[Design, ...]:
    """The Pareto frontier of (T_L, T_B), quickest first.

    Args:
        two_way: only designs whose links all have twins, for full-duplex cables.
        published: only the paper's families and formulas.
        known: further designs to draw on.

    Raises:
        InputError: there is no such design.
    """
    check_request(n, degree, two_way=two_way)
    found = Finder(two_way=two_way, published=published, known=tuple(known)).designs(n, degree)
    return pareto(found, ties=1)


def pareto(designs: Iterable[Design], ties: int = _TIES) -> tuple[Design, ...]:
    """Those that no other beats in both T_L and T_B; of equal ones the first few by eagerness and name."""
    kept: list[Design] = []
    for design in sorted(designs, key=lambda one: (*one.price, not one.is_eager, len(one.recipe), one.recipe)):
        equal = [other.recipe for other in kept if other.price == design.price]
        is_new = bool(equal) and len(equal) < ties and design.recipe not in equal
        if is_new or not kept or design.time < kept[-1].time:
            kept.append(design)
    return tuple(kept)


class Finder:
    """The recursive search, remembering what it found for smaller designs."""

    def __init__(self, *, two_way: bool, published: bool, known: tuple[Known, ...]) -> None:
        self._two_way, self._published = two_way, published
        self._known: dict[tuple[int, int], list[Known]] = {}
        for one in known:
            self._known.setdefault((one.n, one.degree), []).append(one)
        self._designs: dict[tuple[int, int], tuple[Design, ...]] = {}
        self._optimal: dict[tuple[int, int], Design | None] = {}
        self._one_way: Finder | None = None
        if two_way:
            self._one_way = Finder(two_way=False, published=published, known=known)

    def designs(self, n: int, degree: int) -> tuple[Design, ...]:
        """The frontiers of the three classes together."""
        key = n, degree
        if key not in self._designs:
            everything = list(self._bases(n, degree))
            if best := self.optimal(n, degree):
                everything.append(best)
            everything += self._expansions(n, degree, best)
            classes = (
                everything,
                [design for design in everything if not design.n_loops],
                [design for design in everything if design.is_eager and design.is_optimal],
            )
            kept = {design.recipe: design for some in classes for design in pareto(some)}
            self._designs[key] = tuple(kept.values())
        return self._designs[key]

    def optimal(self, n: int, degree: int) -> Design | None:
        """The BW-optimal eager design of fewest steps that products, powers and families give."""
        key = n, degree
        if key not in self._optimal:
            self._optimal[key] = None
            found = [design for design in self._bases(n, degree, only_optimal=True) if design.is_optimal]
            found += [*self._products(n, degree)]
            for copies in _divisors(degree):
                base = self.optimal(n // copies, degree // copies) if n % copies == 0 and n > copies else None
                if base is not None:
                    made = self._degree(base, copies)
                    found += [made] if made.is_eager and made.is_optimal else []
            self._optimal[key] = min(found, key=lambda one: (one.steps, len(one.recipe), one.recipe), default=None)
        return self._optimal[key]

    # --- families ------------------------------------------------------------------------------

    def _bases(self, n: int, degree: int, *, only_optimal: bool = False) -> Iterator[Design]:
        for recipe in self.recipes(n, degree, only_optimal=only_optimal):
            try:
                graph = parse(recipe)
                if not self._two_way or graph.is_two_way:
                    yield measured(graph)
            except (InputError, InfeasibleError):
                continue  # this family has no such graph
        for fact in patient_facts() if not self._two_way and not only_optimal else ():
            is_wanted = fact.recipe.startswith("dbjmod") or not self._published
            if is_wanted and (fact.n, fact.degree) == (n, degree):
                name = parse(fact.recipe).name
                yield Design(name, fact.recipe, n, degree, fact.steps, fact.time, is_eager=False)

    def recipes(self, n: int, degree: int, *, only_optimal: bool = False) -> Iterator[str]:
        """Recipes to try; those that make no sense are refused by their family.

        Args:
            only_optimal: leave out families that are not BW-optimal.
        """
        yield f"uniring(n={n},parallel={degree})"
        if degree % 2 == 0:
            yield f"biring(n={n},degree={degree})"
        if degree % (n - 1) == 0:
            yield f"complete(n={n},parallel={degree // (n - 1)})"
        if n == 2 * degree:
            yield f"bipartite(degree={degree})"
        if n == degree + 2:
            yield f"diring(degree={degree})"
        for dimensions in range(1, degree + 1):
            side = degree // dimensions + 1
            if dimensions * (side - 1) == degree and side**dimensions == n:
                yield f"hamming(dimensions={dimensions},side={side})"
        if (n, degree) == (8, 2):
            yield "diamond()"
        for name, entry in CATALOGUE.items():
            if entry.down[0] == degree and _n_vertices(entry.down, entry.up) == n:
                yield f"distance_regular(graph={name})"
        if degree < n and (degree == 4 or (not self._published and degree > 2)):
            yield f"circulant(n={n},degree={degree})"
        if not only_optimal and not self._two_way and degree < n:
            yield f"genkautz(degree={degree},n={n})"
        if not self._published:
            yield from self._further(n, degree, only_optimal)

    def _further(self, n: int, degree: int, only_optimal: bool) -> Iterator[str]:
        """Recipes beyond the paper."""
        if self._two_way and not only_optimal and degree > 2:
            yield f"random(n={n},degree={degree})"
        if degree < n and not self._two_way:
            if degree == 2:
                yield f"circulant(n={n},offsets=1x{_best_double_loop(n)},links=one-way)"
            elif degree > 2:
                offsets = "x".join(map(str, default_offsets(n, degree, "one-way")))
                yield f"circulant(n={n},offsets={offsets},links=one-way)"
            if not only_optimal:
                yield f"genkautz(degree={degree},n={n},repair=cycle)"
                yield f"genkautz(degree={degree},n={n},repair=halves)"
        for one in self._known.get((n, degree), ()):
            yield one.recipe

    # --- expansions ----------------------------------------------------------------------------

    def _expansions(self, n: int, degree: int, best: Design | None) -> Iterator[Design]:
        """Expansions of smaller designs, but for those that cannot have fewer steps than the best has.

        Args:
            best: BW-optimal, so that no expansion of as many steps beats it.
        """
        most = best.steps if best else n
        if degree > 1 and n % degree == 0 and n > degree and not self._two_way:
            for base in self.designs(n // degree, degree):
                if not base.n_loops and base.steps + 1 <= most:
                    yield self._line(base)
        for copies in _divisors(degree):
            if n % copies == 0 and n > copies:
                for base in self.designs(n // copies, degree // copies):
                    if not base.n_loops and base.steps <= most:
                        yield self._degree(base, copies)
        for exponent in _divisors(degree):
            if root := _root(n, exponent):
                for base in self.designs(root, degree // exponent):
                    if exponent * base.steps <= most:
                        yield self._power(base, exponent)
        if self._one_way is not None and degree % 2 == 0:
            for base in self._one_way.designs(n, degree // 2):
                yield self._duplex(base)

    def _products(self, n: int, degree: int) -> Iterator[Design]:
        """Products of two BW-optimal eager designs: eager and BW-optimal again, T_L adds up."""
        for first in factors(n):
            for ports in range(1, degree):
                one, other = self.optimal(first, ports), self.optimal(n // first, degree - ports)
                if one is not None and other is not None and (one.n, one.degree) <= (other.n, other.degree):
                    name, recipe = _product_names(one, other)
                    yield Design(name, recipe, n, degree, one.steps + other.steps, best_time(n))

    def _line(self, base: Design) -> Design:
        return self._better(base, expand.line, expand.line_price(base.n, base.price))

    def _degree(self, base: Design, copies: int) -> Design:
        return self._better(
            base, lambda graph: expand.degree(graph, copies), expand.degree_price(base.n, copies, base.price)
        )

    def _power(self, base: Design, exponent: int) -> Design:
        formula = expand.power_price(base.n, exponent, base.price)
        return self._better(base, lambda graph: expand.power(graph, exponent), formula)

    def _duplex(self, base: Design) -> Design:
        graph = base.build()
        forth, back = eager_cost(graph), eager_cost(graph.transpose)
        price = expand.duplex_price(base.degree, base.n, forth.loads, back.loads)
        return self._better(replace(base, is_eager=True), expand.duplex, price)

    def _better(self, base: Design, make: Callable[[Graph], Graph], formula: tuple[int, Fraction]) -> Design:
        """The expansion at the price of its formula, or of the eager broadcast where that is as good."""
        graph = make(base.build())
        steps, time = formula
        loops = graph.n_loops
        if self._published:
            return Design(graph.name, graph.recipe, graph.n, graph.degree, steps, time, loops, base.is_eager)
        eager = measured(graph)
        if eager.steps <= steps and eager.time <= time:
            return eager
        return Design(graph.name, graph.recipe, graph.n, graph.degree, steps, time, loops, is_eager=False)


def measured(graph: Graph) -> Design:
    """A graph at the price of its eager broadcast.

    Raises:
        InfeasibleError: it is not connected.
    """
    cost = eager_cost(graph)
    return Design(graph.name, graph.recipe, graph.n, graph.degree, cost.steps, cost.time, graph.n_loops)


def _product_names(one: Design, other: Design) -> tuple[str, str]:
    if one.recipe == other.recipe:
        return f"({one.name})^[2]", f"power({one.recipe},2)"
    return f"({one.name}) x ({other.name})", f"product({one.recipe},{other.recipe})"


def _best_double_loop(n: int) -> int:
    """The offset s for which {1, s} has the smallest diameter, of those up to a few roots of n."""
    import numpy

    targets = numpy.arange(n)
    best, chosen = n, 2
    for s in range(2, min(n, 4 * isqrt(n) + 4)):
        jumps = numpy.arange(min(n, 3 * isqrt(n) + 3))[:, None]
        diameter = int((jumps + (targets - jumps * s) % n).min(axis=0).max())
        if diameter < best:
            best, chosen = diameter, s
    return chosen


def _n_vertices(down: tuple[int, ...], up: tuple[int, ...]) -> int:
    layer = total = 1
    for b, c in zip(down, up, strict=True):
        layer = layer * b // c
        total += layer
    return total


def _divisors(number: int) -> list[int]:
    """Divisors above one."""
    return [value for value in range(2, number + 1) if number % value == 0]


def factors(n: int) -> list[int]:
    """Divisors above one and below n."""
    return [value for value in range(2, n) if n % value == 0]


def _root(n: int, exponent: int) -> int | None:
    """The whole exponent-th root of n above one, if there is one."""
    guess = round(n ** (1 / exponent))
    return next((value for value in (guess - 1, guess, guess + 1) if value > 1 and value**exponent == n), None)
