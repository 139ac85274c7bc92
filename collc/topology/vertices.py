"""The vertices of a topology file: what they are called, and what names and patterns mean."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collc.errors import nearest
from collc.topology.expression import Environment
from collc.topology.reader import Declared, Host, Switch, vertex_name
from collc.topology.values import Quantity
from collc.topology.yaml import Item

MAX_VERTICES = 200_000


@dataclass
class HostKind:
    """Hosts that are alike: their prefixes, and the names inside each."""

    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def match(self, pattern: str) -> tuple[str, ...]:
        """Names that a pattern means, in order of declaration."""
        if pattern not in self.found:
            self.found[pattern] = _matching(pattern, self.names)
        return self.found[pattern]


@dataclass
class Vertices:
    """All vertices, in order of declaration.

    Attributes:
        hosts: the GPUs of each host.
        kind_of: prefix of a host -> what is inside.
        absent: stems of vertices that are declared, but not there now.
    """

    gpus: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    multicast: list[str] = field(default_factory=list)
    reduce: list[str] = field(default_factory=list)
    hosts: list[tuple[str, ...]] = field(default_factory=list)
    kinds: list[HostKind] = field(default_factory=list)
    kind_of: dict[str, HostKind] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def match(self, pattern: str) -> tuple[str, ...]:
        """Full names that a pattern means."""
        if pattern in self.names:
            return (pattern,)
        if "*" not in pattern:
            return ()
        head, _, inner = pattern.partition(".")
        if head in self.kind_of:
            # The same names as below would find, without a walk over every host.
            return tuple(f"{head}.{name}" for name in self.kind_of[head].match(inner))
        if pattern not in self.found:
            self.found[pattern] = _matching(pattern, (*self.gpus, *self.switches))
        return self.found[pattern]

    def is_inside(self, pattern: str) -> bool:
        """Whether it means vertices inside every host."""
        return pattern not in self.names and any(kind.match(pattern) for kind in self.kinds)

    def is_absent(self, pattern: str) -> bool:
        """Whether it means vertices of which there are none now."""
        return stem(pattern) in self.absent

    def unknown(self, pattern: str) -> str:
        """What to say of a name or pattern that means nothing."""
        inside = (name for kind in self.kinds for name in kind.names)
        shown = pattern if len(pattern) <= 60 else pattern[:57] + "..."
        names = list(dict.fromkeys(itertools.islice(itertools.chain(inside, self.gpus, self.switches), 2000)))
        if "*" in pattern:
            return f"no vertex matches '{shown}'{nearest(shown, {stem(name) + '*' for name in names})}"
        ending = nearest(shown, names)
        if "did you mean" not in ending and len(names) > 12:
            ending = f"; expected a name such as {names[0]} or {names[-1]}"
        return f"there is no vertex '{shown}'{ending}"

    def add(self, item: Item, name: str, kind: list[str]) -> None:
        """A new vertex of a kind: `gpus` or `switches`.

        Raises:
            InputError: the name is taken, or there are too many.
        """
        if name in self.names:
            raise item.error(f"vertex '{name}' is declared twice; expected different names")
        if len(self.names) >= MAX_VERTICES:
            raise item.error(f"makes more than {MAX_VERTICES} vertices; expected at most that many")
        self.names.add(name)
        kind.append(name)


def _matching(pattern: str, names: Sequence[str]) -> tuple[str, ...]:
    if "*" not in pattern:
        return (pattern,) if pattern in names else ()
    # A star stops at dots. Atomic groups keep the work linear, whatever the pattern.
    first, *middle, last = map(re.escape, pattern.split("*"))
    regex = re.compile(first + "".join(f"(?>[^.]*?{part})" for part in middle) + "[^.]*" + last)
    return tuple(name for name in names if regex.fullmatch(name))


def stem(name: str) -> str:
    """The kind of vertex a name or pattern means: `h0.nic3` and `nic*` are both `nic`."""
    return name.rpartition(".")[2].rstrip("0123456789*")


def place_vertices(declared: Declared, environment: Environment) -> Vertices:
    """All vertices that a file declares.

    Raises:
        InputError: a name given twice, a count out of range, too many vertices.
    """
    made = Vertices()
    counts = [_count(host.count, environment, 1) for host in declared.hosts]
    joined = sum(counts) > 1 or declared.gpus is not None
    _place_gpus(made, declared, environment)
    for host, count in zip(declared.hosts, counts, strict=True):
        _place_hosts(made, host, count, joined, environment)
    for switch in declared.switches:
        _place_switches(made, switch, environment, there=True)
    for switch in declared.fabric_switches:
        _place_switches(made, switch, environment, there=joined)
    for inner in (name for kind in made.kinds for name in kind.names):
        if inner in made.names:
            raise declared.item.error(f"'{inner}' is a vertex inside hosts and one outside; expected different names")
    if declared.host_lists is not None:
        made.hosts = _hosts_listed(declared.host_lists, made)
    return made


def _count(quantity: Quantity | None, environment: Environment, least: int) -> int:
    """A count, 1 where it is left out; refused before anything of that many is made."""
    if quantity is None:
        return 1
    count = quantity.whole(environment, least)
    if count > MAX_VERTICES:
        raise quantity.item.error(f"{quantity.found(count)}; expected at most {MAX_VERTICES}, the limit on vertices")
    return count


def _place_gpus(made: Vertices, declared: Declared, environment: Environment) -> None:
    if isinstance(declared.gpus, tuple):
        for item in declared.gpus:
            made.add(item, vertex_name(item), made.gpus)
    elif declared.gpus is not None:
        for index in range(_count(declared.gpus, environment, 1)):
            made.add(declared.gpus.item, f"gpu{index}", made.gpus)
    if made.gpus:
        made.hosts.append(tuple(made.gpus))


def _place_hosts(made: Vertices, host: Host, count: int, joined: bool, environment: Environment) -> None:
    gpus = [f"gpu{index}" for index in range(_count(host.gpus, environment, 1))]
    nics = _count(host.nics, environment, 0) if host.nics and joined else 0
    if host.nics and nics == 0:
        made.absent.add("nic")
    inner = Vertices(gpus=gpus, switches=[f"nic{index}" for index in range(nics)], absent=made.absent)
    inner.names = {*inner.gpus, *inner.switches}
    for switch in host.switches:
        _place_switches(inner, switch, environment, there=True)
    if count * len(inner.names) > MAX_VERTICES:
        raise host.item.error(
            f"{count} hosts make {count * len(inner.names)} vertices; expected at most {MAX_VERTICES}"
        )
    kind = HostKind(tuple(f"{host.prefix}{index}" for index in range(count)), (*inner.gpus, *inner.switches))
    for prefix in kind.prefixes:
        for name in inner.gpus:
            made.add(host.item, f"{prefix}.{name}", made.gpus)
        for name in inner.switches:
            made.add(host.item, f"{prefix}.{name}", made.switches)
        made.multicast += [f"{prefix}.{name}" for name in inner.multicast]
        made.reduce += [f"{prefix}.{name}" for name in inner.reduce]
        made.hosts.append(tuple(f"{prefix}.{name}" for name in inner.gpus))
    made.kinds.append(kind)
    made.kind_of.update(dict.fromkeys(kind.prefixes, kind))


def _place_switches(made: Vertices, switch: Switch, environment: Environment, *, there: bool) -> None:
    there = there and (switch.when is None or switch.when.holds(environment))
    count = _count(switch.count, environment, 0) if there else 0
    if count == 0:
        made.absent.add(stem(switch.name))
    names = [f"{switch.name}{index}" for index in range(count)] if switch.count else [switch.name] * count
    for name in names:
        made.add(switch.item, name, made.switches)
    for mark, marked in ((switch.multicast, made.multicast), (switch.reduce, made.reduce)):
        if mark is not None and mark.holds(environment):
            marked += names


# --- lists of GPUs -------------------------------------------------------------------------------


def rank_order(declared: Declared, vertices: Vertices) -> tuple[str, ...]:
    """The GPUs in rank order: as `ranks` says, else as declared.

    Raises:
        InputError: `ranks` does not name each GPU once.
    """
    if declared.ranks is None:
        return tuple(vertices.gpus)
    order = [gpu for item in declared.ranks.entries("a list of GPUs in rank order") for gpu in _gpus_of(item, vertices)]
    _check_each_once(declared.ranks, order, vertices.gpus)
    return tuple(order)


def _hosts_listed(item: Item, vertices: Vertices) -> list[tuple[str, ...]]:
    lists = item.entries("a list of GPUs for each host (a count of hosts goes to `host: {count: N}`)")
    hosts = [
        tuple(gpu for entry in one.entries("a list of the GPUs of one host") for gpu in _gpus_of(entry, vertices))
        for one in lists
    ]
    _check_each_once(item, [gpu for host in hosts for gpu in host], vertices.gpus)
    return hosts


def _gpus_of(item: Item, vertices: Vertices) -> tuple[str, ...]:
    pattern = item.text("a GPU, or a pattern such as gpu*")
    if vertices.is_inside(pattern):
        names = tuple(f"{p}.{name}" for kind in vertices.kinds for p in kind.prefixes for name in kind.match(pattern))
    else:
        names = vertices.match(pattern)
    if not names:
        raise item.error(vertices.unknown(pattern))
    switches = set(vertices.switches)
    wrong = next((name for name in names if name in switches), None)
    if wrong is not None:
        raise item.error(f"'{pattern}' means the switch {wrong}; expected GPUs alone")
    return names


def _check_each_once(item: Item, named: list[str], gpus: list[str]) -> None:
    seen: set[str] = set()
    for gpu in named:
        if gpu in seen:
            raise item.error(f"names {gpu} twice; expected each GPU once")
        seen.add(gpu)
    missing = [gpu for gpu in gpus if gpu not in seen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise item.error(f"leaves out {missing[0]}{more}; expected each GPU once")
