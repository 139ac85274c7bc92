"""From the items of a topology file to declarations: every key known, every value of its type.

What is declared here still has its formulas; `topology_build` computes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from collc.errors import InputError, Place, nearest
from collc.ir import topology_schema as words
from collc.ir.expression import Environment, Formula, Value, parse, whole_or_fraction
from collc.ir.yaml import Item, choose
from collc.units import parse_number

_NO_VALUES: Environment = {}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of the file, maybe computed from parameters."""

    item: Item
    formula: Formula
    unit: str

    def value(self, environment: Environment) -> int | Fraction:
        """The number.

        Raises:
            InputError: it cannot be computed, or is a list.
        """
        value = evaluate(self.item, self.formula, environment)
        if isinstance(value, tuple):
            raise self.item.error(f"found the list {list(value)}; expected {self.unit}")
        return value

    def positive(self, environment: Environment, *, zero: bool = False) -> Fraction:
        """The number, above zero (or zero as well)."""
        value = self.value(environment)
        if value < 0 or (value == 0 and not zero):
            least = "zero or more" if zero else "more than zero"
            raise self.item.error(f"{self._found(value)}; expected {self.unit}, {least}")
        return Fraction(value)

    def whole(self, environment: Environment, least: int) -> int:
        """The number, whole and at least `least`."""
        value = self.value(environment)
        if not isinstance(value, int) or value < least:
            raise self.item.error(f"{self._found(value)}; expected {self.unit}: a whole number, {least} or more")
        return value

    def _found(self, value: int | Fraction) -> str:
        written = self.item.node.value
        return f"found {value}" if str(value) == written else f"found '{written}', which is {value}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named value of a topology file.

    Attributes:
        value: in this loading.
        default: where the user sets none.
        doc, source: as the file says.
    """

    name: str
    value: Value
    default: Value
    doc: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Switch:
    """Switches of one kind; `count` of them, or one named plainly."""

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
class Links:
    """One entry of `links`.

    Attributes:
        ends: both sides; the same selector twice for `among`.
        both: whether each link has its twin the other way.
        pairs: a word of `topology_schema.PAIRS`, or listed pairs, each with its item.
        shape: a word of `topology_schema.SHAPES`.
    """

    item: Item
    ends: tuple[Selector, Selector]
    both: bool
    among: bool
    pairs: str | tuple[tuple[Item, tuple[Quantity, ...]], ...] | None
    shape: str | None
    dims: tuple[Item, tuple[Quantity, ...] | Formula] | None
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
    parameters: tuple[Parameter, ...]
    gpus: Quantity | tuple[Item, ...] | None
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Links, ...]
    fabric_switches: tuple[Switch, ...]
    fabric_links: tuple[Links, ...]
    host_lists: tuple[tuple[Item, ...], ...] | None
    ranks: tuple[Item, ...] | None
    ranks_per_device: Quantity | None
    sources: tuple[tuple[str, str], ...]


def evaluate(item: Item, formula: Formula, environment: Environment) -> Value:
    """What a formula computes; errors get the item's place."""
    try:
        return formula(environment)
    except ValueError as error:
        raise item.error(f"'{item.node.value}': {error}") from None


def read(top: Item, overrides: Mapping[str, str], reference: str) -> Declared:
    """All declarations of a file, with the user's overrides put in.

    Raises:
        InputError: an unknown key, a wrong type, a value out of its range.
    """
    keys = top.fields(words.FILE, "a mapping with name, gpus and links (`collc topo new` prints an example)")
    if "gpus" not in keys and "host" not in keys:
        raise top.error("no key 'gpus' and no key 'host'; expected one of them")
    if "hosts" in keys and "host" in keys:
        raise keys["hosts"].error("stands beside 'host', which says it already; expected one of them")
    fabric = keys["fabric"].fields(words.FABRIC, "a mapping with switches and links") if "fabric" in keys else {}
    sources: list[tuple[str, str]] = []
    links = _links(keys.get("links"), sources)
    fabric_links = _links(fabric.get("links"), sources)
    declared = Declared(
        item=top,
        name=_text(keys, "name", "a name"),
        doc=_text(keys, "doc", "a sentence"),
        parameters=read_parameters(keys.get("parameters"), overrides, reference),
        gpus=_gpus(keys.get("gpus")),
        switches=_switches(keys.get("switches"), sources),
        hosts=_hosts(keys.get("host"), sources),
        links=links,
        fabric_switches=_switches(fabric.get("switches"), sources),
        fabric_links=fabric_links,
        host_lists=_host_lists(keys.get("hosts")),
        ranks=tuple(keys["ranks"].entries("a list of GPUs in rank order")) if "ranks" in keys else None,
        ranks_per_device=_quantity(keys, "ranks_per_device", "a count of ranks"),
        sources=(),
    )
    found = [_source("", keys), _source("fabric", fabric), *sources]
    found += [(f"parameters.{p.name}", p.source) for p in declared.parameters]
    object.__setattr__(declared, "sources", tuple((key, text) for key, text in found if text))
    return declared


# --- parameters ----------------------------------------------------------------------------------


def read_parameters(item: Item | None, overrides: Mapping[str, str], reference: str) -> tuple[Parameter, ...]:
    """The parameters with their values; a default may use the parameters above it.

    Raises:
        InputError: an override that names no parameter or is out of range.
    """
    declared = item.mapping("a mapping of names to default values") if item else {}
    for key in overrides:
        if key not in declared:
            ending = nearest(key, declared) if declared else "; it has none"
            raise InputError(f"no parameter '{key}'{ending}", Place(reference))
    environment: dict[str, Value] = {}
    found = []
    for name, entry in declared.items():
        parameter = _parameter(name, entry, environment, overrides.get(name), reference)
        environment[name] = parameter.value
        found.append(parameter)
    return tuple(found)


def _parameter(name: str, item: Item, environment: Environment, given: str | None, reference: str) -> Parameter:
    if not (name.isidentifier() and name.isascii()) or name in ("and", "or", "not", "len", "max", "min", "product"):
        raise item.error(f"found the name '{name}'; expected letters, digits and '_', and no word of arithmetic")
    keys = {"default": item}
    if item.kind == "mapping":
        keys = item.fields(words.PARAMETER, "a default, or a mapping with default and doc")
        if "default" not in keys:
            raise item.error("no key 'default'; expected one")
    default = _default(keys["default"], environment)
    value = default if given is None else _override(name, given, default, reference)
    for key, sign, side in (("min", -1, "at least"), ("max", 1, "at most")):
        if key in keys:
            bound = _must(keys, key, "a number").value(environment)
            wrong = [entry for entry in (value if isinstance(value, tuple) else (value,)) if (entry - bound) * sign > 0]
            if wrong:
                place = Place(reference) if given is not None else keys["default"].place
                raise InputError(f"parameter {name} is {wrong[0]}; expected {side} {bound}", place)
    return Parameter(name, value, default, _text(keys, "doc", "a sentence"), _text(keys, "source", "a sentence"))


def _default(item: Item, environment: Environment) -> Value:
    if item.kind == "list":
        entries = item.entries("a list")
        if not entries:
            raise item.error("found an empty list; expected at least one whole number")
        quantities = [_as_quantity(entry, "a length") for entry in entries]
        return tuple(quantity.whole(environment, 1) for quantity in quantities)
    return evaluate(item, _as_quantity(item, "a number").formula, environment)


def _override(name: str, text: str, default: Value, reference: str) -> Value:
    is_list = isinstance(default, tuple)
    parts = text.split("x") if is_list else [text]
    try:
        values = [whole_or_fraction(parse_number(part)) for part in parts]
    except ValueError:
        expected = "lengths such as " + "x".join(map(str, default)) if isinstance(default, tuple) else "a number"
        raise InputError(f"parameter {name} is '{text}'; expected {expected}", Place(reference)) from None
    if not isinstance(default, tuple):
        return values[0]
    lengths = tuple(value for value in values if isinstance(value, int) and value > 0)
    if len(lengths) != len(default) or len(values) != len(default):
        expected = f"{len(default)} whole numbers, such as " + "x".join(map(str, default))
        raise InputError(f"parameter {name} is '{text}'; expected {expected}", Place(reference))
    return lengths


# --- vertices ------------------------------------------------------------------------------------


def _gpus(item: Item | None) -> Quantity | tuple[Item, ...] | None:
    if item is None:
        return None
    if item.kind == "list":
        return tuple(item.entries("a list of names"))
    return _as_quantity(item, "a list of names, or a count of GPUs")


def _switches(item: Item | None, sources: list[tuple[str, str]]) -> tuple[Switch, ...]:
    return tuple(_switch(entry, sources) for entry in item.entries("a list of switches")) if item else ()


def _switch(item: Item, sources: list[tuple[str, str]]) -> Switch:
    if item.kind != "mapping":
        return Switch(item, vertex_name(item))
    keys = item.fields(words.SWITCH, "a name, or a mapping with name")
    if "name" not in keys:
        raise item.error("no key 'name'; expected one")
    sources.append(_source(item.key, keys))
    name = vertex_name(keys["name"])
    count = _quantity(keys, "count", "a count of switches")
    return Switch(
        item, name, count, _quantity(keys, "when", "a condition"), _mark(keys, "multicast"), _mark(keys, "reduce")
    )


def _mark(keys: Mapping[str, Item], key: str) -> Quantity | None:
    if key in keys and keys[key].kind == "truth value":
        number = int(keys[key].truth(key))
        return Quantity(keys[key], lambda environment: number, key)
    return _quantity(keys, key, "true or false, or a condition")


def vertex_name(item: Item) -> str:
    """A name that a file may give to a vertex.

    Raises:
        InputError: no text, empty, or with characters that patterns use.
    """
    name = item.text("a name")
    if not name or len(name) > 200 or any(not c.isprintable() or c in "*{}" for c in name):
        raise item.error(f"found the name {item.shown}; expected 1 to 200 printable characters without *, {{ and }}")
    return name


def _hosts(item: Item | None, sources: list[tuple[str, str]]) -> tuple[Host, ...]:
    if item is None:
        return ()
    if item.kind == "list":
        entries = item.entries("a list of hosts")
        if not entries:
            raise item.error("found an empty list; expected at least one kind of host")
    else:
        entries = [item]
    return tuple(_host(entry, sources) for entry in entries)


def _host(item: Item, sources: list[tuple[str, str]]) -> Host:
    keys = item.fields(words.HOST, "a mapping with gpus")
    sources.append(_source(item.key, keys))
    return Host(
        item,
        vertex_name(keys["name"]) if "name" in keys else "h",
        _quantity(keys, "count", "a count of hosts"),
        _must(keys, "gpus", "a count of GPUs", item),
        _quantity(keys, "nics", "a count of NICs"),
        _switches(keys.get("switches"), sources),
    )


def _host_lists(item: Item | None) -> tuple[tuple[Item, ...], ...] | None:
    if item is None:
        return None
    expected = "a list of GPUs for each host (how many hosts repeat is `host: {count: N}`)"
    return tuple(tuple(entry.entries("a list of the GPUs of one host")) for entry in item.entries(expected))


# --- links ---------------------------------------------------------------------------------------


def _links(item: Item | None, sources: list[tuple[str, str]]) -> tuple[Links, ...]:
    return tuple(_link(entry, sources) for entry in item.entries("a list of links")) if item else ()


def _link(item: Item, sources: list[tuple[str, str]]) -> Links:
    keys = item.fields(words.LINKS, "a mapping with between (or from and to) and bandwidth")
    if "source" in keys:
        sources.append(_source(item.key, keys))
    ends, both, among = _ends(item, keys)
    pairs, shape, dims = _pairing(item, keys, among)
    return Links(
        item,
        ends,
        both,
        among,
        pairs,
        shape,
        dims,
        _loops(keys.get("for")),
        _quantity(keys, "when", "a condition"),
        _must(keys, "bandwidth", "a bandwidth in GB/s, such as 25 or 25/3", item),
        _quantity(keys, "latency", "a latency in us"),
        _quantity(keys, "count", "a count of cables"),
    )


def _ends(item: Item, keys: Mapping[str, Item]) -> tuple[tuple[Selector, Selector], bool, bool]:
    given = [key for key in ("from", "to", "between", "among") if key in keys]
    if given == ["between"]:
        sides = keys["between"].entries("a list of two ends")
        if len(sides) != 2:
            raise keys["between"].error(f"found {len(sides)} ends; expected two")
        return (_selector(sides[0]), _selector(sides[1])), True, False
    if given == ["among"]:
        selector = _selector(keys["among"])
        return (selector, selector), True, True
    if given == ["from", "to"]:
        return (_selector(keys["from"]), _selector(keys["to"])), False, False
    found = " and ".join(given) or "no ends"
    raise item.error(f"found {found}; expected 'from' and 'to', or 'between', or 'among'")


def _selector(item: Item) -> Selector:
    if item.kind != "list":
        item.text("a vertex, a pattern such as gpu*, or a list of these")
        return Selector(item, (item,))
    patterns = tuple(item.entries("a list of vertices"))
    for pattern in patterns:
        pattern.text("a vertex, or a pattern such as gpu*")
    if not patterns:
        raise item.error("found an empty list; expected at least one vertex")
    return Selector(item, patterns)


def _pairing(
    item: Item, keys: Mapping[str, Item], among: bool
) -> tuple[
    str | tuple[tuple[Item, tuple[Quantity, ...]], ...] | None,
    str | None,
    tuple[Item, tuple[Quantity, ...] | Formula] | None,
]:
    pairs: str | tuple[tuple[Item, tuple[Quantity, ...]], ...] | None = None
    if "pairs" in keys and keys["pairs"].kind == "list":
        pairs = tuple((entry, _pair(entry)) for entry in keys["pairs"].entries("a list of pairs"))
    elif "pairs" in keys:
        pairs = choose(keys["pairs"], words.PAIRS)
    shape = choose(keys["shape"], words.SHAPES) if "shape" in keys else None
    if among and (isinstance(pairs, str) or (pairs is None) == (shape is None)):
        raise item.error("'among' needs either a 'shape' or a list of 'pairs', and not both")
    if shape and not among:
        raise keys["shape"].error("found a shape; expected it only with 'among'")
    needs_dims = shape in ("mesh", "torus")
    if needs_dims != ("dims" in keys):
        raise item.error(
            f"a {shape} needs 'dims'" if needs_dims else "found 'dims'; expected it only with mesh or torus"
        )
    return pairs, shape, _dims(keys["dims"]) if needs_dims else None


def _pair(item: Item) -> tuple[Quantity, ...]:
    numbers = item.entries("a pair [i, j] or [i, j, cables]")
    if len(numbers) not in (2, 3):
        raise item.error(f"found {len(numbers)} entries; expected [i, j] or [i, j, cables]")
    return tuple(_as_quantity(number, "a place in the list, or cables") for number in numbers)


def _dims(item: Item) -> tuple[Item, tuple[Quantity, ...] | Formula]:
    if item.kind == "list":
        return item, tuple(_as_quantity(entry, "a length") for entry in item.entries("a list of lengths"))
    return item, _as_quantity(item, "a list of lengths").formula


def _loops(item: Item | None) -> tuple[tuple[str, Quantity], ...]:
    loops = []
    for name, value in (item.mapping("a mapping of variables to counts") if item else {}).items():
        if not (name.isidentifier() and name.isascii()):
            raise value.error(f"found the variable '{name}'; expected letters, digits and '_'")
        loops.append((name, _as_quantity(value, "a count")))
    return tuple(loops)


# --- scalars -------------------------------------------------------------------------------------


def _as_quantity(item: Item, unit: str) -> Quantity:
    if item.kind == "number":
        number = whole_or_fraction(item.number(unit))
        return Quantity(item, lambda environment: number, unit)
    text = item.text(unit)
    try:
        return Quantity(item, parse(text), unit)
    except ValueError as error:
        raise item.error(f"found {item.shown}, which {error}; expected {unit}") from None


def _quantity(keys: Mapping[str, Item], key: str, unit: str) -> Quantity | None:
    return _as_quantity(keys[key], unit) if key in keys else None


def _must(keys: Mapping[str, Item], key: str, unit: str, owner: Item | None = None) -> Quantity:
    if key not in keys and owner is not None:
        raise owner.error(f"no key '{key}'; expected {unit}")
    return _as_quantity(keys[key], unit)


def _text(keys: Mapping[str, Item], key: str, what: str) -> str:
    return keys[key].text(what) if key in keys else ""


def _source(where: str, keys: Mapping[str, Item]) -> tuple[str, str]:
    return where, _text(keys, "source", "a sentence")
