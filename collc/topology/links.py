"""The links of a topology file: patterns resolved, loops run, parallel cables added up."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from collc.topology.expression import Environment, parse
from collc.topology.pairs import index_pairs
from collc.topology.reader import Links, Selector
from collc.topology.vertices import HostKind, Vertices
from collc.topology.yaml import Item

MAX_LINKS = 1_000_000  # directed, before parallel ones are added up; also rounds of `for`
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass
class Cables:
    """Directed links so far, parallel ones added up."""

    vertices: Vertices
    links: dict[tuple[str, str], tuple[Fraction, Fraction]] = field(default_factory=dict)
    laid: int = 0
    without_latency: list[Item] = field(default_factory=list)
    unequal: list[tuple[str, str]] = field(default_factory=list)

    def warnings(self) -> Iterator[str]:
        """What the user should know."""
        if self.without_latency:
            first = self.without_latency[0]
            others = len(self.without_latency) - 1
            more = f" and {others} more" if others else ""
            yield f"no latency given for {first.key} (line {first.place.line}){more}: taken as 0 us"
        if self.unequal:
            src, dst = self.unequal[0]
            yield f"parallel links with different latencies, {src} -> {dst} first: the largest is taken"

    def lay(self, links: Links, environment: Environment) -> None:
        """All links of one entry."""
        if links.latency is None:
            self.without_latency.append(links.item)
        for values in _rounds(links, environment):
            self._count(links)
            if links.when is None or links.when.holds(values):
                self._lay_round(links, values)

    def _lay_round(self, links: Links, environment: Environment) -> None:
        sides = [_Side.find(end, environment, self.vertices) for end in links.ends]
        if any(side.absent for side in sides):
            return
        bandwidth = links.bandwidth.positive(environment)
        latency = links.latency.positive(environment, or_zero=True) if links.latency else Fraction(0)
        cables = links.count.whole(environment, 1) if links.count else 1
        # Parallel cables are one link of their sum.
        for src, dst, count in self._pairs(links, environment, sides[0], sides[1]):
            self._count(links)
            total = bandwidth * (cables * count) if cables * count != 1 else bandwidth
            self._add(links, src, dst, total, latency)
            if links.both:
                self._add(links, dst, src, total, latency)

    def _pairs(self, links: Links, values: Environment, one: _Side, other: _Side) -> Iterator[tuple[str, str, int]]:
        if not one.inside and not other.inside:
            for i, j, count in index_pairs(links, values, len(one.names), len(other.names)):
                yield one.names[i], other.names[j], count
            return
        kinds = [kind for kind in self.vertices.kinds if one.within(kind) and other.within(kind)]
        if not kinds:
            raise links.item.error("no kind of host has vertices of both ends; expected at least one")
        for kind in kinds:
            left, right = one.within(kind), other.within(kind)
            # One more than the limit, so that `_count` refuses what is cut off here.
            pairs = list(itertools.islice(index_pairs(links, values, len(left), len(right)), MAX_LINKS + 1))
            for prefix in kind.prefixes:
                head = prefix + "."
                for i, j, count in pairs:
                    src = head + left[i] if one.inside else left[i]
                    yield src, head + right[j] if other.inside else right[j], count

    def _count(self, links: Links) -> None:
        self.laid += 1
        if self.laid > MAX_LINKS:
            raise links.item.error(f"makes more than {MAX_LINKS} links; expected at most that many")

    def _add(self, links: Links, src: str, dst: str, bandwidth: Fraction, latency: Fraction) -> None:
        if src == dst:
            hint = "" if links.among else " (links among the same vertices: 'among')"
            raise links.item.error(f"link from '{src}' to itself; expected two different vertices{hint}")
        known = self.links.get((src, dst))
        if known is None:
            self.links[src, dst] = (bandwidth, latency)
            return
        if known[1] != latency:
            self.unequal.append((src, dst))
        self.links[src, dst] = (known[0] + bandwidth, max(known[1], latency))


@dataclass(frozen=True)
class _Side:
    """What one end of an entry means: full names, or patterns inside every host."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    absent: bool = False

    @property
    def inside(self) -> bool:
        return bool(self.patterns)

    def within(self, kind: HostKind) -> tuple[str, ...]:
        if not self.patterns:
            return self.names
        return tuple(name for pattern in self.patterns for name in kind.match(pattern))

    @staticmethod
    def find(selector: Selector, environment: Environment, vertices: Vertices) -> _Side:
        names: list[str] = []
        patterns: list[str] = []
        for item in selector.patterns:
            pattern = _fill(item, environment)
            if vertices.is_inside(pattern):
                patterns.append(pattern)
            elif found := vertices.match(pattern):
                names += found
            elif not vertices.is_absent(pattern):
                raise item.error(vertices.unknown(pattern))
        if names and patterns:
            raise selector.item.error("mixes vertices inside every host with others; expected one or the other")
        return _Side(tuple(names), tuple(patterns), absent=not names and not patterns)


def _fill(item: Item, environment: Environment) -> str:
    """The text of a name with what stands in braces computed."""
    text = str(item.node.value)
    if "{" not in text:
        return text
    pieces = _BRACES.split(text)
    for index in range(1, len(pieces), 2):
        try:
            value = parse(pieces[index])(environment)
        except ValueError as error:
            raise item.error(f"'{{{pieces[index]}}}' {error}") from None
        if not isinstance(value, int):
            raise item.error(f"'{{{pieces[index]}}}' is {value}; expected a whole number")
        pieces[index] = str(value)
    return "".join(pieces)


def _rounds(links: Links, environment: Environment) -> Iterator[Environment]:
    """The environment of each round of `for`; the last variable runs fastest."""
    if not links.loops:
        yield environment
        return
    for name, quantity in links.loops:
        if name in environment:
            raise quantity.item.error(f"variable '{name}' is a parameter already; expected a new name")
    counts = [quantity.whole(environment, 0) for _, quantity in links.loops]
    if math.prod(counts) > MAX_LINKS:
        raise links.item.error(f"'for' has {math.prod(counts)} rounds; expected at most {MAX_LINKS}")
    names = [name for name, _ in links.loops]
    for values in itertools.product(*map(range, counts)):
        yield {**environment, **dict(zip(names, values, strict=True))}
