"""The words of a topology file: one table per mapping, read by the loader and by `schema`."""

from __future__ import annotations

from typing import Any

PAIRS = ("all", "same", "wrap", "block")
SHAPES = ("full", "hypercube", "line", "mesh", "ring", "torus")

_TEXT = {"type": "string"}
_LIST = {"type": "array"}
_NAME = {"type": ["string", "number"]}  # 0 is a name too, as it is written
_NAMES = {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}
_VALUE = {"type": ["number", "string"]}
_POSITIVE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _TEXT]}
_AT_LEAST_ZERO = {"anyOf": [{"type": "number", "minimum": 0}, _TEXT]}
_AT_LEAST_ONE = {"anyOf": [{"type": "integer", "minimum": 1}, _TEXT]}
_MARK = {"type": ["boolean", "number", "string"]}


def _ref(name: str, *others: dict[str, Any]) -> dict[str, Any]:
    reference = {"$ref": f"#/$defs/{name}"}
    return {"anyOf": [reference, *others]} if others else reference


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


# key -> (its schema, what it means); the order is the order people write them in.
Keys = dict[str, tuple[dict[str, Any], str]]

FILE: Keys = {
    "name": (_TEXT, "name of the topology; the file's own name where it is left out"),
    "doc": (_TEXT, "a sentence about it, shown by `collc topo list`"),
    "source": (_TEXT, "where the figures come from"),
    "degraded_from": (_TEXT, "the healthy topology, as a user names it; `collc synth` compares with it"),
    "parameters": (
        {"type": "object", "additionalProperties": _ref("parameter", _VALUE, _LIST)},
        "named values that a user may set as in NAME:hosts=4; each a default or {default, doc, min, max}",
    ),
    "gpus": (
        {"anyOf": [{"type": "array", "items": _NAME, "minItems": 1}, _AT_LEAST_ONE]},
        "names of GPUs outside hosts, in rank order; or how many, which names them gpu0, gpu1, ...",
    ),
    "switches": (_listed(_ref("switch", _NAME)), "switches outside hosts: they forward and never hold data"),
    "host": (
        _ref("host", {"type": "array", "items": _ref("host"), "minItems": 1}),
        "one machine, repeated `count` times; a list of these where machines differ",
    ),
    "links": (_listed(_ref("links")), "links; names inside a host (gpu0, nic*) mean those of every host"),
    "fabric": (_ref("fabric"), "what joins hosts; it is there only when there is more than one host"),
    "hosts": (
        _listed({"type": "array", "items": _NAME, "minItems": 1}),
        "which GPUs of `gpus` share a host, a list for each host; without it they all share one",
    ),
    "ranks": (_listed(_NAME), "all GPUs in rank order; by default host after host"),
    "ranks_per_device": (_AT_LEAST_ONE, "ranks that share one physical device (2 on an MI250); 1 by default"),
}
HOST: Keys = {
    "name": (_TEXT, "prefix of its vertices; 'h' by default, giving h0.gpu0"),
    "count": (_AT_LEAST_ONE, "how many such hosts; 1 by default"),
    "gpus": (_AT_LEAST_ONE, "GPUs in each, named gpu0, gpu1, ..."),
    "nics": (_AT_LEAST_ZERO, "NICs in each, named nic0, nic1, ...; there only when there is more than one host"),
    "switches": (_listed(_ref("switch", _NAME)), "switches in each"),
    "source": (_TEXT, "where the figures come from"),
}
FABRIC: Keys = {
    "switches": (_listed(_ref("switch", _NAME)), "its switches"),
    "links": (_listed(_ref("links")), "its links"),
    "source": (_TEXT, "where the figures come from"),
}
SWITCH: Keys = {
    "name": (_NAME, "its name"),
    "count": (_AT_LEAST_ZERO, "how many; they are then named NAME0, NAME1, ..."),
    "multicast": (_MARK, "whether it can copy one incoming stream to several ports; false by default"),
    "reduce": (_MARK, "whether it can add incoming streams; false by default"),
    "when": (_VALUE, "it is there only when this is true (not zero)"),
    "source": (_TEXT, "where the figures come from"),
}
LINKS: Keys = {
    "from": (_NAMES, "where one-way links begin: a name, a pattern such as gpu*, or a list of these"),
    "to": (_NAMES, "where one-way links end"),
    "between": ({"type": "array", "items": _NAMES, "minItems": 2, "maxItems": 2}, "two ends, linked both ways"),
    "among": (_NAMES, "vertices linked with each other, both ways, in a `shape` or by listed `pairs`"),
    "pairs": (
        {
            "anyOf": [
                {"enum": list(PAIRS)},
                _listed({"type": "array", "items": _VALUE, "minItems": 2, "maxItems": 3}),
            ]
        },
        "which of the one side meets which of the other: all; same (i-th with i-th); wrap (i-th with i mod m, "
        "as rails do); block (neighbours share one); or a list of [i, j] or [i, j, cables]",
    ),
    "shape": ({"enum": list(SHAPES)}, "full, line, ring, hypercube, or mesh and torus with `dims`"),
    "dims": (
        {"anyOf": [_listed(_VALUE), _TEXT]},
        "lengths of the axes of a mesh or torus, the last one running fastest",
    ),
    "for": (
        {"type": "object", "additionalProperties": _AT_LEAST_ZERO},
        "repeats the entry for each value 0, 1, ... of its variables; names take them as in gpu{i+1}",
    ),
    "when": (_VALUE, "the entry counts only when this is true (not zero)"),
    "bandwidth": (_POSITIVE, "GB/s (10^9 bytes per second) in each direction, of one cable"),
    "latency": (_AT_LEAST_ZERO, "us; 0 where it is left out, which the report says"),
    "count": (_AT_LEAST_ONE, "cables side by side, each of that bandwidth; 1 by default"),
    "source": (_TEXT, "where the figures come from"),
}
PARAMETER: Keys = {
    "default": ({"type": ["number", "string", "array"]}, "its value where the user sets none; a list for dims"),
    "doc": (_TEXT, "what it means, with its unit"),
    "min": (_VALUE, "the least value it may take"),
    "max": (_VALUE, "the largest value it may take"),
    "source": (_TEXT, "where the default comes from"),
}
_REQUIRED = {"host": ["gpus"], "switch": ["name"], "parameter": ["default"], "links": ["bandwidth"]}
_ENDS = [{"required": ["from", "to"]}, {"required": ["between"]}, {"required": ["among"]}]


def _mapping(name: str, keys: Keys) -> dict[str, Any]:
    properties = {key: {**schema, "description": doc} for key, (schema, doc) in keys.items()}
    made: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    if name in _REQUIRED:
        made["required"] = _REQUIRED[name]
    return {**made, "oneOf": _ENDS} if name == "links" else made


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a topology file.

    Numbers may everywhere be texts as well: `25/3`, or arithmetic over the parameters.
    """
    parts = {"host": HOST, "fabric": FABRIC, "switch": SWITCH, "links": LINKS, "parameter": PARAMETER}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "collc topology",
        "description": "GPUs, switches and links of a cluster, as `collc` reads them from YAML.",
        **_mapping("file", FILE),
        "anyOf": [{"required": ["gpus"]}, {"required": ["host"]}],
        "$defs": {name: _mapping(name, keys) for name, keys in parts.items()},
    }


def example() -> str:
    """A commented topology file to start from."""
    return _EXAMPLE


_EXAMPLE = """\
# A topology for collc. Bandwidths are GB/s (10^9 bytes per second) in each direction, latencies us.
name: my-cluster
doc: Hosts of 8 GPUs behind a switch, 4 NICs each, two rails of leaf switches below one spine.
source: where the figures come from

# Values that can be set on the command line, as in my-cluster.yaml:hosts=4,nic=50
parameters:
  hosts: {default: 4, doc: machines, min: 1}
  nic: {default: 25, doc: bandwidth of a NIC in GB/s}

# One machine, repeated. Its vertices are h0.gpu0 ... h0.gpu7, h0.nic0 ..., h0.nvswitch, h1.gpu0 ...
# Ranks run through host 0, then host 1, and so on.
host:
  count: hosts
  gpus: 8
  nics: 4              # there only when there is more than one host
  switches:
    - {name: nvswitch, multicast: true, reduce: true}

# Inside every host. `between` makes links in both directions, {from: a, to: b} in one.
links:
  - {between: [gpu*, nvswitch], bandwidth: 300, latency: 0.7}
  - {between: [gpu*, nic*], pairs: block, bandwidth: nic, latency: 0.7}  # GPUs 0 and 1 share NIC 0, ...

# What joins hosts; there only when there is more than one.
fabric:
  switches:
    - {name: leaf, count: 2}  # leaf0, leaf1
    - spine
  links:
    - {between: [nic*, leaf*], pairs: wrap, bandwidth: nic, latency: 1.3}  # NIC b of every host: leaf b mod 2
    - {between: [leaf*, spine], bandwidth: nic * hosts, latency: 1.3, count: 2}  # two cables each

# Every vertex and link can also be written out:
#   gpus: [g0, g1, g2]
#   switches: [s0]
#   links:
#     - {between: [[g0, g1], s0], bandwidth: 25, latency: 0.7}
#     - {between: [g1, g2], bandwidth: 25/3, count: 2}  # two cables; parallel links add up
#     - {from: g2, to: s0, bandwidth: 10}
# Regular shapes take a line:
#   gpus: 16
#   links:
#     - {among: gpu*, shape: torus, dims: [4, 4], bandwidth: 50, latency: 0.5}
# or a loop, for everything else:
#     - {from: "gpu{i}", to: "gpu{(i + 1) % 16}", for: {i: 16}, bandwidth: 50}
"""
