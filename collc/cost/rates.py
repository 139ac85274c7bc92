"""How much of each link which trees should get: the best rates, by a linear program over cuts.

Trees of one kind, all out-trees or all in-trees over the same vertices, are a part. Trees rooted at v
at rate y(v) can be packed into what a part has of the links if and only if every vertex set that holds
a vertex to be reached lets in at least the rates rooted outside, and what is not to be reached forwards
as much as it takes in (the packing's own theorem, see forestcoll). So the program has a variable for
each root's rate and each part's share of each link, and a row for each cut; rows are added as they are
found violated. They are looked for between the program's corner and a point known to satisfy all of
them, which takes tens of rounds where corners alone take hundreds.

Source: Edmonds, Combinatorial Algorithms 1973; Bang-Jensen, Frank & Jackson, SIAM J. Discrete Math.
    8(2), 1995; Ben-Ameur & Neto, Networks 49(1), 2007, for the point in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from collc.cost.cuts import common_unit
from collc.cost.exact import Corner, ExactProgram
from collc.ir.flow import Prices
from collc.ir.topology import Topology
from collc.solve import FlowNetwork

# Floating-point rates are rounded to so many parts of their sum before cuts are looked for,
_PARTS = 1 << 30
# of which so many may be missing without that the cut counts as violated. The last check is exact.
_MISSING = 2000
_ROUNDS = 1000
_EVEN_ROUNDS = 100


@dataclass(frozen=True)
class Part:
    """Trees of one kind.

    Attributes:
        spanned: vertices that every tree reaches.
        roots: (vertex, rate, weight): trees are rooted there at weight x that rate.
        inward: whether they lead from all vertices to the root.
        absent: vertices they stay away from.
    """

    spanned: tuple[str, ...]
    roots: tuple[tuple[str, int, int], ...]
    inward: bool = False
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rates:
    """The best there is.

    Attributes:
        total: what was to be maximal [GB/s].
        rates: by rate [GB/s].
        shares: by part and link, what the part has of it [GB/s].
        prices: by link, what one GB/s more would add to the total [GB/s].
    """

    total: Fraction
    rates: tuple[Fraction, ...]
    shares: tuple[tuple[Fraction, ...], ...]
    prices: tuple[Fraction, ...]

    def witness(self, topology: Topology) -> Prices:
        """The prices of the links, which add up, over bandwidths, to the total.

        The trees of all roots that one unit of the objective asks for pay one at least.
        """
        priced = zip(topology.links, self.prices, strict=True)
        return Prices(tuple((link.src, link.dst, price) for link, price in priced if price), rooted=True)


def best_rates(
    topology: Topology,
    parts: Sequence[Part],
    objective: Sequence[int],
    ties: Sequence[Sequence[tuple[int, int]]] = (),
    even: Sequence[int] = (),
) -> Rates | None:
    """The rates of greatest objective; None where floating point leads to no exact answer.

    Args:
        objective: by rate.
        ties: sums of (coefficient, rate) that must be zero.
        even: rates whose largest is to be as small as the greatest objective allows, where that is found.
            Many roots make lower trees than few.
    """
    search = _Search(topology, parts, objective, ties)
    best = search.run()
    return best and (search.run_even(best, even) or best if even else best)


class _Search:
    """The program and its cuts. Bandwidths are whole multiples of `unit` [GB/s].

    Variables are the rates, then for each part its share of each link, then the largest of some rates.
    """

    def __init__(
        self,
        topology: Topology,
        parts: Sequence[Part],
        objective: Sequence[int],
        ties: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        self.unit = common_unit([link.bandwidth for link in topology.links])
        self.bandwidths = [int(link.bandwidth / self.unit) for link in topology.links]
        self.n_rates, n_links = len(objective), len(self.bandwidths)
        self.n_variables = self.n_rates + len(parts) * n_links
        self.objective = [*objective, *[0] * (len(parts) * n_links), 0]
        self.program = ExactProgram(self.objective, max(self.bandwidths))
        for link, bandwidth in enumerate(self.bandwidths):
            terms = [(1, self.n_rates + number * n_links + link) for number in range(len(parts))]
            self.program.add_row(terms, bandwidth)
        for tie in ties:
            self.program.add_row(tie, 0, equal=True)
        self.parts = [
            _Cuts(topology, part, self.program, self.n_rates + number * n_links) for number, part in enumerate(parts)
        ]

    def run(self) -> Rates | None:
        corner = self._corner(self._inner(), _ROUNDS)
        return corner and self._rates(corner, corner.prices)

    def run_even(self, best: Rates, even: Sequence[int]) -> Rates | None:
        """Rates as good as the best whose largest is least; None where that takes too long."""
        total = best.total / self.unit
        terms = [(gain * total.denominator, variable) for variable, gain in enumerate(self.objective) if gain]
        self.program.add_row(terms, total.numerator, equal=True)
        for rate in even:
            self.program.add_row([(1, rate), (-1, self.n_variables)], 0)
        self.program.set_objective([0] * self.n_variables + [-1])
        corner = self._corner(None, _EVEN_ROUNDS)
        return corner and self._rates(corner, best.prices)

    def _corner(self, inner: list[float] | None, rounds: int) -> Corner | None:
        for _ in range(rounds):
            outer = self.program.solve()
            if outer is None:
                return None
            if inner is None:
                found = self._separate(outer)
            else:
                inner, found = self._between(inner, outer)
            if found:
                continue
            corner = self.program.corner()
            if corner is None:
                return None
            if not self._violated_exactly(corner):
                return corner
        return None

    def _inner(self) -> list[float] | None:
        """A point inside all rows: every part has an equal share of each link, and no rate."""
        if not all(part.is_balanced(self.bandwidths) for part in self.parts):
            return None
        share = [bandwidth / len(self.parts) for bandwidth in self.bandwidths]
        return [*[0.0] * self.n_rates, *share * len(self.parts), 0.0]

    def _between(self, inner: list[float], outer: list[float]) -> tuple[list[float], bool]:
        """Look for cuts half way to the corner, then nearer to it, last at it; the best point inside so far."""
        away = 0.5
        while away > 0.01:
            middle = [away * a + (1 - away) * b for a, b in zip(inner, outer, strict=True)]
            if self._separate(middle):
                return inner, True
            inner, away = middle, away / 4
        return inner, self._separate(outer)

    def _separate(self, point: Sequence[float]) -> bool:
        """Add the cuts that a point violates; whether there were any."""
        scale = _PARTS / (sum(point[: self.n_rates]) or 1)
        whole = [max(0, round(value * scale)) for value in point]
        # Every part is to learn, so nothing is cut short.
        return sum(part.learn(whole, _MISSING) for part in self.parts) > 0

    def _violated_exactly(self, corner: Corner) -> bool:
        common = lcm(*(value.denominator for value in corner.values))
        whole = [int(value * common) for value in corner.values]
        return sum(part.learn(whole, 0) for part in self.parts) > 0

    def _rates(self, corner: Corner, prices: Sequence[Fraction]) -> Rates:
        values = [value * self.unit for value in corner.values]
        n_links = len(self.bandwidths)
        starts = range(self.n_rates, self.n_variables, n_links)
        return Rates(
            sum((gain * value for gain, value in zip(self.objective, values, strict=True)), Fraction(0)),
            tuple(values[: self.n_rates]),
            tuple(tuple(values[start : start + n_links]) for start in starts),
            tuple(prices[:n_links]),
        )


class _Cuts:
    """The rows of one part: balance where nothing needs to be reached, and the cuts found so far."""

    def __init__(self, topology: Topology, part: Part, program: ExactProgram, first: int) -> None:
        self.part, self.program, self.first = part, program, first
        vertices = topology.gpus + topology.switches
        index = {vertex: number for number, vertex in enumerate(vertices)}
        self.n_vertices = len(vertices)
        self.spanned = [index[vertex] for vertex in part.spanned]
        self.roots = [(index[vertex], rate, weight) for vertex, rate, weight in part.roots]
        self.links = [
            number
            for number, link in enumerate(topology.links)
            if link.src not in part.absent and link.dst not in part.absent
        ]
        # In-trees are out-trees of the reversed fabric.
        ends = [(index[link.src], index[link.dst]) for link in topology.links]
        self.tails = [ends[link][part.inward] for link in self.links]
        self.heads = [ends[link][not part.inward] for link in self.links]
        self.known: set[tuple[bool, ...]] = set()
        self.network = FlowNetwork(
            self.n_vertices + 1,
            self.tails + [self.n_vertices] * len(self.roots),
            self.heads + [vertex for vertex, _, _ in self.roots],
        )
        for vertex in range(self.n_vertices):
            if vertex not in set(self.spanned) and vertices[vertex] not in part.absent:
                program.add_row(self._surplus(vertex), 0, equal=True)
        for vertex in self.spanned:
            self._add([other == vertex for other in range(self.n_vertices)])
            self._add([other != vertex for other in range(self.n_vertices)])
        # Links to what is absent carry nothing.
        used = set(self.links)
        for number in range(len(topology.links)):
            if number not in used:
                program.add_row([(1, first + number)], 0)

    def is_balanced(self, bandwidths: Sequence[int]) -> bool:
        """Whether all rows of balance hold where the part has all of each link."""
        surplus = [0] * self.n_vertices
        for link, tail, head in zip(self.links, self.tails, self.heads, strict=True):
            surplus[head] += bandwidths[link]
            surplus[tail] -= bandwidths[link]
        free = set(self.spanned)
        return all(not value or vertex in free for vertex, value in enumerate(surplus))

    def learn(self, whole: Sequence[int], missing: int) -> bool:
        """Add a cut for each vertex that is reached by too little; whether there were any."""
        supplies = [whole[rate] * weight for _, rate, weight in self.roots]
        self.network.set_capacities([whole[self.first + link] for link in self.links] + supplies)
        needed = sum(supplies) - missing
        found: list[list[bool]] = []
        for sink in self.spanned:
            if any(inside[sink] for inside in found):
                continue
            if self.network.max_flow(self.n_vertices, sink) < needed:
                found.append([not there for there in self.network.source_side()[: self.n_vertices]])
        return sum(self._add(inside) for inside in found) > 0

    def _add(self, inside: Sequence[bool]) -> bool:
        """What enters a set is at least what is rooted outside; whether that is a new row."""
        if (key := tuple(inside)) in self.known or not any(inside[vertex] for vertex in self.spanned):
            return False
        self.known.add(key)
        rates: dict[int, int] = {}
        for vertex, rate, weight in self.roots:
            if not inside[vertex]:
                rates[rate] = rates.get(rate, 0) + weight
        entering = self._where(lambda tail, head: inside[head] and not inside[tail])
        terms = [(weight, rate) for rate, weight in rates.items()] + [(-1, self.first + link) for link in entering]
        if rates:
            self.program.add_row(terms, 0)
        return bool(rates)

    def _surplus(self, vertex: int) -> list[tuple[int, int]]:
        entering = self._where(lambda tail, head: head == vertex)
        leaving = self._where(lambda tail, head: tail == vertex)
        return [(1, self.first + link) for link in entering] + [(-1, self.first + link) for link in leaving]

    def _where(self, wanted: Callable[[int, int], bool]) -> list[int]:
        ends = zip(self.links, self.tails, self.heads, strict=True)
        return [link for link, tail, head in ends if wanted(tail, head)]
