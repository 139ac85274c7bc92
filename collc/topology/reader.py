"""From the items of a topology file to declarations: every key known, every value of its type.

What is declared here still has its formulas; `builder` computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from collc.topology import language as words
from collc.topology.values import (
    Lengths,
    Parameter,
    Quantity,
    as_lengths,
    as_quantity,
    quantity_of,
    read_parameters,
    required_quantity,
    text_of,
)
from collc.topology.yaml import Item, choose


@dataclass(frozen=True, slots=True)
class Switch:
    """Switches of one kind: `count` of them, or one with the plain name."""

    item: Item
    name: str
    count: Quantity | None = None
    when: Quantity | None = None
    multicast: Quantity | None = None
    reduce: Quantity | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """One kind of machine."""

    item: Item
    prefix: str
    count: Quantity | None
    gpus: Quantity
    nics: Quantity | None
    switches: tuple[Switch, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """Names or patterns of one end of links."""

    item: Item
    patterns: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ListedPair:
    """[i, j] or [i, j, cables]."""

    item: Item
    ends: tuple[Quantity, Quantity]
    count: Quantity | None


@dataclass(frozen=True, slots=True)
class Links:
    """One entry of `links`.

    Attributes:
        ends: both sides; the same selector twice where vertices are linked among themselves.
        both: whether each link has its twin the other way.
        rule: a word of `language.PAIRS` or, among the same vertices, of `SHAPES`.
        listed: pairs one by one, instead of a rule.
    """

    item: Item
    ends: tuple[Selector, Selector]
    both: bool
    among: bool
    rule: str | None
    listed: tuple[ListedPair, ...] | None
    dims: Lengths | None
    loops: tuple[tuple[str, Quantity], ...]
    when: Quantity | None
    bandwidth: Quantity
    latency: Quantity | None
    count: Quantity | None


@dataclass(frozen=True, slots=True)
class Declared:
    """A whole file, read but not computed."""

    item: Item
    name: str
    doc: str
    degraded_from: str
    parameters: tuple[Parameter, ...]
    gpus: Quantity | tuple[Item, ...] | None
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Links, ...]
    fabric_switches: tuple[Switch, ...]
    fabric_links: tuple[Links, ...]
    host_lists: Item | None
    ranks: Item | None
    ranks_per_device: Quantity | None

    def sources(self) -> tuple[tuple[str, str], ...]:
        """(place in the file, where its figures come from), in order."""
        return tuple(_sources(self.item))


def read(top: Item, overrides: Mapping[str, str], reference: str) -> Declared:
    """All declarations of a file, with the user's overrides put in.

    Raises:
        InputError: an unknown key, a wrong type, a parameter out of its range.
    """
    keys = top.fields(words.FILE, "a mapping with name, gpus and links (`collc topo new` prints an example)")
    if "gpus" not in keys and "host" not in keys:
        raise top.error("no key 'gpus' and no key 'host'; expected one of them")
    if "hosts" in keys and "host" in keys:
        raise keys["hosts"].error("stands beside 'host', which says it already; expected one of them")
    fabric = keys["fabric"].fields(words.FABRIC, "a mapping with switches and links") if "fabric" in keys else {}
    return Declared(
        item=top,
        name=text_of(keys, "name", "a name"),
        doc=text_of(keys, "doc", "a sentence"),
        degraded_from=text_of(keys, "degraded_from", "the name of a topology"),
        parameters=read_parameters(keys.get("parameters"), overrides, reference),
        gpus=_gpus(keys.get("gpus")),
        switches=_switches(keys.get("switches")),
        hosts=_hosts(keys.get("host")),
        links=_links(keys.get("links")),
        fabric_switches=_switches(fabric.get("switches")),
        fabric_links=_links(fabric.get("links")),
        host_lists=keys.get("hosts"),
        ranks=keys.get("ranks"),
        ranks_per_device=quantity_of(keys, "ranks_per_device", "a count of ranks"),
    )


def _sources(item: Item) -> Iterator[tuple[str, str]]:
    """Every `source` below an item; only mappings hold one, and they lie a few levels deep."""
    if item.kind == "list":
        for entry in item.entries("a list"):
            if entry.kind == "mapping":
                yield from _sources(entry)
    elif item.kind == "mapping":
        for key, value in item.mapping("a mapping").items():
            if key == "source" and item.key != "parameters":
                yield item.key, value.text("a sentence")
            elif key not in ("pairs", "for"):
                yield from _sources(value)


# --- vertices ------------------------------------------------------------------------------------


def vertex_name(item: Item) -> str:
    """A name that a file may give to a vertex.

    Raises:
        InputError: no text, empty, or with characters that patterns use.
    """
    name = item.text("a name (in quotes where it is a word such as true)")
    if not name or len(name) > 200 or any(not c.isprintable() or c in "*{}" for c in name):
        raise item.error(f"found the name {item.shown}; expected 1 to 200 printable characters without *, {{ and }}")
    return name


def _gpus(item: Item | None) -> Quantity | tuple[Item, ...] | None:
    if item is None:
        return None
    if item.kind != "list":
        return as_quantity(item, "a list of names, or a count of GPUs")
    entries = item.entries("a list of names")
    if not entries:
        raise item.error("found an empty list; expected at least one GPU")
    return tuple(entries)


def _switches(item: Item | None) -> tuple[Switch, ...]:
    return tuple(_switch(entry) for entry in item.entries("a list of switches")) if item else ()


def _switch(item: Item) -> Switch:
    if item.kind != "mapping":
        return Switch(item, vertex_name(item))
    keys = item.fields(words.SWITCH, "a name, or a mapping with name")
    if "name" not in keys:
        raise item.error("no key 'name'; expected one")
    return Switch(
        item,
        vertex_name(keys["name"]),
        quantity_of(keys, "count", "a count of switches"),
        quantity_of(keys, "when", "a condition"),
        _mark(keys, "multicast"),
        _mark(keys, "reduce"),
    )


def _mark(keys: Mapping[str, Item], key: str) -> Quantity | None:
    if key in keys and keys[key].kind == "truth value":
        number = int(keys[key].truth(key))
        return Quantity(keys[key], lambda environment: number, key)
    return quantity_of(keys, key, "true or false, or a condition")


def _hosts(item: Item | None) -> tuple[Host, ...]:
    if item is None:
        return ()
    if item.kind != "list":
        return (_host(item),)
    entries = item.entries("a list of hosts")
    if not entries:
        raise item.error("found an empty list; expected at least one kind of host")
    return tuple(_host(entry) for entry in entries)


def _host(item: Item) -> Host:
    keys = item.fields(words.HOST, "a mapping with gpus")
    return Host(
        item,
        vertex_name(keys["name"]) if "name" in keys else "h",
        quantity_of(keys, "count", "a count of hosts"),
        required_quantity(item, keys, "gpus", "a count of GPUs"),
        quantity_of(keys, "nics", "a count of NICs"),
        _switches(keys.get("switches")),
    )


# --- links ---------------------------------------------------------------------------------------


def _links(item: Item | None) -> tuple[Links, ...]:
    return tuple(_link(entry) for entry in item.entries("a list of links")) if item else ()


def _link(item: Item) -> Links:
    keys = item.fields(words.LINKS, "a mapping with between (or from and to) and bandwidth")
    ends, both, among = _ends(item, keys)
    listed = None
    if "pairs" in keys and keys["pairs"].kind == "list":
        listed = tuple(_pair(entry) for entry in keys["pairs"].entries("a list of pairs"))
    return Links(
        item=item,
        ends=ends,
        both=both,
        among=among,
        rule=_rule(item, keys, among, listed is not None),
        listed=listed,
        dims=as_lengths(keys["dims"]) if "dims" in keys else None,
        loops=_loops(keys.get("for")),
        when=quantity_of(keys, "when", "a condition"),
        bandwidth=required_quantity(item, keys, "bandwidth", "a bandwidth in GB/s, such as 25 or 25/3"),
        latency=quantity_of(keys, "latency", "a latency in us"),
        count=quantity_of(keys, "count", "a count of cables"),
    )


def _ends(item: Item, keys: Mapping[str, Item]) -> tuple[tuple[Selector, Selector], bool, bool]:
    """Both sides, whether links go both ways, and whether the sides are the same vertices."""
    given = [key for key in ("from", "to", "between", "among") if key in keys]
    if given == ["between"]:
        sides = keys["between"].entries("a list of two ends")
        if len(sides) != 2:
            raise keys["between"].error(f"found {len(sides)} ends; expected two")
        ends = (_selector(sides[0]), _selector(sides[1]))
        if sides[0].node.value == sides[1].node.value and len(ends[0].patterns) == 1 and "*" in sides[0].node.value:
            raise keys["between"].error(f"both ends are {sides[0].shown}; expected 'among' with a shape or pairs")
        return ends, True, False
    if given == ["among"]:
        selector = _selector(keys["among"])
        return (selector, selector), True, True
    if given == ["from", "to"]:
        return (_selector(keys["from"]), _selector(keys["to"])), False, False
    found = " and ".join(f"'{key}'" for key in given) or "no ends"
    raise item.error(f"found {found}; expected 'from' and 'to', or 'between', or 'among'")


def _selector(item: Item) -> Selector:
    patterns = tuple(item.entries("a list of vertices")) if item.kind == "list" else (item,)
    for pattern in patterns:
        pattern.text("a vertex, or a pattern such as gpu*")
    if not patterns:
        raise item.error("found an empty list; expected at least one vertex")
    return Selector(item, patterns)


def _rule(item: Item, keys: Mapping[str, Item], among: bool, is_listed: bool) -> str | None:
    pairs = choose(keys["pairs"], words.PAIRS) if "pairs" in keys and not is_listed else None
    shape = choose(keys["shape"], words.SHAPES) if "shape" in keys else None
    if among and (pairs or (shape is None) != is_listed):
        raise item.error("'among' needs either a 'shape' or a list of 'pairs'")
    if shape and not among:
        raise keys["shape"].error("found a shape; expected it only with 'among'")
    needs_dims = shape in ("mesh", "torus")
    if needs_dims != ("dims" in keys):
        found = f"found a {shape} without 'dims'; expected" if needs_dims else "found 'dims'; expected it only with"
        raise item.error(f"{found} {'the lengths of its axes' if needs_dims else 'a mesh or torus'}")
    return shape or pairs


def _pair(item: Item) -> ListedPair:
    numbers = item.entries("a pair [i, j] or [i, j, cables]")
    if len(numbers) not in (2, 3):
        raise item.error(f"found {len(numbers)} entries; expected [i, j] or [i, j, cables]")
    ends = (as_quantity(numbers[0], "a place in the list"), as_quantity(numbers[1], "a place in the list"))
    return ListedPair(item, ends, as_quantity(numbers[2], "a count of cables") if len(numbers) == 3 else None)


def _loops(item: Item | None) -> tuple[tuple[str, Quantity], ...]:
    loops = []
    for name, value in (item.mapping("a mapping of variables to counts") if item else {}).items():
        if not (name.isidentifier() and name.isascii()):
            raise value.error(f"found the variable '{name}'; expected letters, digits and '_'")
        loops.append((name, as_quantity(value, "a count")))
    return tuple(loops)
