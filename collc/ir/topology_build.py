"""From declarations to a `Topology`: name the vertices, resolve patterns, add up parallel links."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from collc.errors import nearest
from collc.ir.expression import Environment, Value, parse
from collc.ir.topology import Link, Topology
from collc.ir.topology_pairs import index_pairs
from collc.ir.topology_read import Declared, Host, Links, Quantity, Selector, Switch, vertex_name
from collc.ir.yaml import Item

MAX_VERTICES = 200_000
MAX_LINKS = 1_000_000  # directed, before parallel ones are added up; also rounds of `for`
_BRACES = re.compile(r"\{([^{}]*)\}")
_ONE = Fraction(1)


@dataclass
class _HostKind:
    """Hosts that are alike: their prefixes, and the names inside each."""

    prefixes: list[str]
    names: list[str]
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def match(self, pattern: str) -> tuple[str, ...]:
        """Names that a pattern means, in order of declaration."""
        if pattern not in self.found:
            self.found[pattern] = _matching(pattern, self.names)
        return self.found[pattern]


@dataclass
class _Vertices:
    """All vertices, and how names and patterns find them."""

    gpus: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    multicast: list[str] = field(default_factory=list)
    reduce: list[str] = field(default_factory=list)
    hosts: list[tuple[str, ...]] = field(default_factory=list)
    kinds: list[_HostKind] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)  # stems of what is declared, but is not there now
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def match(self, pattern: str) -> tuple[str, ...]:
        """Full names that a pattern means, in order of declaration."""
        if pattern in self.names:
            return (pattern,)
        if pattern not in self.found:
            self.found[pattern] = _matching(pattern, itertools.chain(self.gpus, self.switches))
        return self.found[pattern]

    def add(self, item: Item, name: str, kind: list[str]) -> None:
        """A new vertex."""
        if name in self.names:
            raise item.error(f"vertex '{name}' is declared twice; expected different names")
        if len(self.names) >= MAX_VERTICES:
            raise item.error(f"makes more than {MAX_VERTICES} vertices; expected at most that many")
        self.names.add(name)
        kind.append(name)


def _matching(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    if "*" not in pattern:
        return tuple(name for name in names if name == pattern)
    regex = re.compile("[^.]*".join(map(re.escape, pattern.split("*"))))
    return tuple(name for name in names if regex.fullmatch(name))


def _stem(name: str) -> str:
    """The kind of vertex a name or pattern means: `h0.nic3` and `nic*` are both `nic`."""
    return name.rpartition(".")[2].rstrip("0123456789*")


def build(declared: Declared, name: str) -> tuple[Topology, tuple[str, ...]]:
    """The topology and what the user should know about it, a sentence each.

    Raises:
        InputError: a name that is not there, a value out of range, too many vertices or links.
    """
    environment: dict[str, Value] = {parameter.name: parameter.value for parameter in declared.parameters}
    vertices = _place_all(declared, environment)
    cables = _Cables(vertices)
    for links in declared.links:
        cables.lay(links, environment)
    if len(vertices.hosts) > 1 or not declared.hosts:
        for links in declared.fabric_links:
            cables.lay(links, environment)
    gpus = _rank_order(declared, vertices)
    rank_of = {gpu: rank for rank, gpu in enumerate(gpus)}
    per_device = declared.ranks_per_device
    topology = Topology(
        name,
        gpus,
        tuple(vertices.switches),
        tuple(Link(src, dst, bandwidth, latency) for (src, dst), (bandwidth, latency) in cables.links.items()),
        tuple(tuple(sorted(rank_of[gpu] for gpu in host)) for host in vertices.hosts),
        tuple(vertices.multicast),
        tuple(vertices.reduce),
        per_device.whole(environment, 1) if per_device else 1,
    )
    return topology, (*cables.warnings(), *_unused(topology))


def _unused(topology: Topology) -> Iterator[str]:
    linked = {link.src for link in topology.links} | {link.dst for link in topology.links}
    idle = [switch for switch in topology.switches if switch not in linked]
    if idle:
        shown = ", ".join(idle[:3]) + (", ..." if len(idle) > 3 else "")
        yield f"{len(idle)} of {len(topology.switches)} switches have no links: {shown}"


# --- vertices ------------------------------------------------------------------------------------


def _place_all(declared: Declared, environment: Environment) -> _Vertices:
    made = _Vertices()
    counts = [_whole(host.count, environment, 1) for host in declared.hosts]
    joined = sum(counts) > 1 or not declared.hosts
    _place_gpus(made, declared, environment)
    for host, count in zip(declared.hosts, counts, strict=True):
        _place_hosts(made, host, count, joined, environment)
    for switch in declared.switches:
        _place_switches(made, switch, environment, there=True)
    for switch in declared.fabric_switches:
        _place_switches(made, switch, environment, there=joined)
    for kind in made.kinds:
        for inner in kind.names:
            if inner in made.names:
                raise declared.item.error(f"'{inner}' is a vertex inside hosts and outside; expected different names")
    return made


def _whole(quantity: Quantity | None, environment: Environment, least: int) -> int:
    """A count, 1 where it is left out; refused before anything of that many is made."""
    if quantity is None:
        return 1
    count = quantity.whole(environment, least)
    if count > MAX_VERTICES:
        raise quantity.item.error(f"found {count}; expected at most {MAX_VERTICES} vertices")
    return count


def _place_gpus(made: _Vertices, declared: Declared, environment: Environment) -> None:
    if declared.gpus is None:
        return
    if isinstance(declared.gpus, tuple):
        if not declared.gpus:
            raise declared.item.error("'gpus' is an empty list; expected at least one GPU")
        for item in declared.gpus:
            made.add(item, vertex_name(item), made.gpus)
    else:
        for index in range(_whole(declared.gpus, environment, 1)):
            made.add(declared.gpus.item, f"gpu{index}", made.gpus)
    if declared.host_lists is None:
        made.hosts.append(tuple(made.gpus))
        return
    for entries in declared.host_lists:
        made.hosts.append(tuple(name for entry in entries for name in _gpus_named(entry, made)))
    _check_cover(declared.item, "hosts", [gpu for host in made.hosts for gpu in host], made.gpus)


def _place_hosts(made: _Vertices, host: Host, count: int, joined: bool, environment: Environment) -> None:
    gpus = [f"gpu{index}" for index in range(_whole(host.gpus, environment, 1))]
    nics = _whole(host.nics, environment, 0) if host.nics and joined else 0
    if nics == 0:
        made.absent.add("nic")
    inner = _Vertices(gpus=gpus, switches=[f"nic{index}" for index in range(nics)], absent=made.absent)
    inner.names = {*inner.gpus, *inner.switches}
    for switch in host.switches:
        _place_switches(inner, switch, environment, there=True)
    if count * len(inner.names) > MAX_VERTICES:
        raise host.item.error(
            f"{count} hosts make {count * len(inner.names)} vertices; expected at most {MAX_VERTICES}"
        )
    kind = _HostKind([f"{host.prefix}{index}" for index in range(count)], [*inner.gpus, *inner.switches])
    for prefix in kind.prefixes:
        for source, target in ((inner.gpus, made.gpus), (inner.switches, made.switches)):
            for name in source:
                made.add(host.item, f"{prefix}.{name}", target)
        made.multicast += [f"{prefix}.{name}" for name in inner.multicast]
        made.reduce += [f"{prefix}.{name}" for name in inner.reduce]
        made.hosts.append(tuple(f"{prefix}.{name}" for name in inner.gpus))
    made.kinds.append(kind)


def _place_switches(made: _Vertices, switch: Switch, environment: Environment, *, there: bool) -> None:
    there = there and (switch.when is None or switch.when.value(environment) != 0)
    count = _whole(switch.count, environment, 0) if there else 0
    if count == 0:
        made.absent.add(_stem(switch.name))
    names = [f"{switch.name}{index}" for index in range(count)] if switch.count else [switch.name] * count
    for name in names:
        made.add(switch.item, name, made.switches)
    for mark, marked in ((switch.multicast, made.multicast), (switch.reduce, made.reduce)):
        if mark is not None and mark.value(environment) != 0:
            marked += names


def _gpus_named(item: Item, made: _Vertices) -> tuple[str, ...]:
    pattern = item.text("a GPU, or a pattern such as gpu*")
    inside = tuple(f"{p}.{name}" for kind in made.kinds for p in kind.prefixes for name in kind.match(pattern))
    gpus = set(made.gpus)
    names = tuple(name for name in inside or made.match(pattern) if name in gpus)
    if not names:
        raise item.error(f"there is no GPU '{pattern}'{_nearest_name(pattern, made.gpus)}")
    return names


def _check_cover(item: Item, key: str, names: list[str], gpus: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise item.error(f"'{key}' names {twice} twice; expected each GPU once")
    missing = [gpu for gpu in gpus if gpu not in set(names)]
    if missing:
        raise item.error(f"'{key}' leaves out {', '.join(missing[:3])}; expected each GPU once")


def _rank_order(declared: Declared, vertices: _Vertices) -> tuple[str, ...]:
    if declared.ranks is None:
        return tuple(vertices.gpus)
    order = [name for item in declared.ranks for name in _gpus_named(item, vertices)]
    _check_cover(declared.item, "ranks", order, vertices.gpus)
    return tuple(order)


def _nearest_name(word: str, names: Iterable[str]) -> str:
    known = list(itertools.islice(names, 2000))  # difflib is slow on long lists
    if not known:
        return ""
    ending = nearest(word, known)
    return ending if "did you mean" in ending or len(known) <= 12 else f"; expected a name such as {known[0]}"


# --- links ---------------------------------------------------------------------------------------


@dataclass
class _Cables:
    """Directed links so far, parallel ones added up."""

    vertices: _Vertices
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
            if links.when is None or links.when.value(values) != 0:
                self._lay_round(links, values)

    def _lay_round(self, links: Links, environment: Environment) -> None:
        sides = [_Side.find(end, environment, self.vertices) for end in links.ends]
        if any(side.absent for side in sides):
            return
        bandwidth = links.bandwidth.positive(environment)
        latency = links.latency.positive(environment, zero=True) if links.latency else Fraction(0)
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
        for kind in self.vertices.kinds:
            left, right = one.within(kind), other.within(kind)
            if not left or not right:
                continue
            pairs = list(index_pairs(links, values, len(left), len(right)))
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
            hint = "" if links.among else " (links among the same vertices are written with 'among')"
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

    def within(self, kind: _HostKind) -> tuple[str, ...]:
        if not self.patterns:
            return self.names
        return tuple(name for pattern in self.patterns for name in kind.match(pattern))

    @staticmethod
    def find(selector: Selector, environment: Environment, vertices: _Vertices) -> _Side:
        names: list[str] = []
        patterns: list[str] = []
        for item in selector.patterns:
            pattern = _fill(item, environment)
            if pattern not in vertices.names and any(kind.match(pattern) for kind in vertices.kinds):
                patterns.append(pattern)
            elif found := vertices.match(pattern):
                names += found
            elif _stem(pattern) not in vertices.absent:
                raise item.error(_no_vertex(pattern, vertices))
        if names and patterns:
            raise selector.item.error("mixes vertices inside every host with others; expected one or the other")
        return _Side(tuple(names), tuple(patterns), absent=not names and not patterns)


def _no_vertex(pattern: str, vertices: _Vertices) -> str:
    if "*" in pattern:
        return f"no vertex matches '{pattern}'" + _nearest_name(pattern, [f"{_stem(n)}*" for n in _some(vertices)])
    return f"there is no vertex '{pattern}'" + _nearest_name(pattern, _some(vertices))


def _some(vertices: _Vertices) -> Iterator[str]:
    inside = (name for kind in vertices.kinds for name in kind.names)
    return itertools.chain(inside, vertices.gpus, vertices.switches)


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
