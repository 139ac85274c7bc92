"""A plan as a file: JSON for any reader, and a compact binary form of the same document.

The document holds what `Plan` describes, as lists of numbers: `messages` and `pieces` by column,
`partners` and `weights` by stage, `staging` by rank. The binary form is the magic number, the length
of a JSON header in four bytes (little endian), the header, and then a zlib stream of all columns one
after another; the header holds the document with each column replaced by its place, its type and its
shape.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from collc.errors import InputError, UnsupportedError
from collc.fast.machine import Host, Machine
from collc.fast.model import Prediction
from collc.fast.plan import Plan

if TYPE_CHECKING:
    Numbers = Any

VERSION = 1
KIND = "AllToAllPlan"
MAGIC = b"COLLCA2A"

# Path in the document of every array.
_COLUMNS = (
    ("demand",),
    ("ports",),
    ("partners",),
    ("weights",),
    ("staging", "handed_in"),
    ("staging", "passed_on"),
    *(("messages", name) for name in ("stage", "src", "dst", "bytes", "first_piece")),
    *(("pieces", name) for name in ("origin", "final", "offset", "bytes")),
)


def dumps(plan: Plan) -> str:
    """The plan as JSON, the same text for equal plans."""
    return json.dumps(_with_columns(_document(plan), lambda array: array.tolist()), separators=(",", ":")) + "\n"


def dump_bytes(plan: Plan) -> bytes:
    """The plan in the compact binary form.

    Raises:
        UnsupportedError: a number needs more than 64 bits; JSON takes any.
    """
    import numpy as np

    blocks: list[bytes] = []
    place = 0

    def store(array: Numbers) -> dict[str, Any]:
        nonlocal place
        most = int(array.max(initial=0))
        if most >= 2**64:
            raise UnsupportedError(f"a count of {most} bytes takes more than 64 bits; write the plan as JSON")
        small = array.astype(np.min_scalar_type(most)).astype(f"<u{np.min_scalar_type(most).itemsize}")
        blocks.append(small.tobytes())
        entry = {"at": place, "type": small.dtype.str, "shape": list(array.shape)}
        place += len(blocks[-1])
        return entry

    header = json.dumps(_with_columns(_document(plan), store), separators=(",", ":")).encode()
    return MAGIC + struct.pack("<I", len(header)) + header + zlib.compress(b"".join(blocks), 6)


def loads(raw: str | bytes) -> Plan:
    """The plan in a file of either form.

    Only the form is checked here; `collc verify` says whether a plan does what it should.

    Raises:
        InputError: it is no plan, or of a later version.
    """
    try:
        document = _binary(raw) if isinstance(raw, bytes) and raw.startswith(MAGIC) else json.loads(raw)
        if document["kind"] != KIND or document["collc"] != VERSION:
            raise InputError(f"a {document['kind']} of version {document['collc']}; expected {KIND} {VERSION}")
        return _plan(document)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, struct.error, zlib.error) as error:
        raise InputError(f"is no plan of collc: {type(error).__name__} {error}") from None


def _document(plan: Plan) -> dict[str, Any]:
    import numpy as np

    machine, limit = plan.machine, plan.bound
    handed_in, passed_on = plan.staging
    return {
        "collc": VERSION,
        "kind": KIND,
        "method": plan.method,
        "ranks": machine.n_ranks,
        "unit": plan.unit,
        "order": plan.order,
        "inside_stage": plan.inside_stage,
        "line_sum": plan.line_sum,
        "bound_us": str(limit.time),
        "bound_by": str(limit),
        "predicted_us": {**vars(plan.predicted), "total": plan.predicted.total},
        "machine": {
            "hosts": [
                {
                    "ranks": list(host.ranks),
                    "nic_GBps": [str(nic) for nic in host.nic],
                    "inner_GBps": str(host.inner),
                    "mesh": host.is_mesh,
                }
                for host in machine.hosts
            ],
            "stage_latency_us": str(machine.stage_latency),
            "inner_latency_us": str(machine.inner_latency),
            "rail_only": machine.is_rail_only,
        },
        "demand": plan.matrix,
        "ports": machine.layout.ports,
        "partners": np.array(plan.partners, dtype=np.int64).reshape(plan.n_stages, machine.layout.n_ports),
        "weights": np.array(plan.weights, dtype=object if sum(plan.weights) >= 2**63 else np.int64),
        "staging": {"handed_in": handed_in, "passed_on": passed_on},
        "messages": {
            "stage": plan.stage,
            "src": plan.src,
            "dst": plan.dst,
            "bytes": plan.count,
            "first_piece": plan.first,
        },
        "pieces": {"origin": plan.origin, "final": plan.final, "offset": plan.offset, "bytes": plan.length},
    }


def _with_columns(document: dict[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """The document with each of its columns converted."""
    for path in _COLUMNS:
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = convert(inner[path[-1]])
    return document


def _binary(raw: bytes) -> dict[str, Any]:
    import numpy as np

    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", raw[len(MAGIC) : start])
    document = json.loads(raw[start : start + length])
    body = zlib.decompress(raw[start + length :])

    def read(entry: Mapping[str, Any]) -> Numbers:
        count = int(np.prod(entry["shape"], dtype=np.int64))
        return np.frombuffer(body, entry["type"], count, entry["at"]).reshape(entry["shape"])

    return _with_columns(document, read)


def _plan(document: Mapping[str, Any]) -> Plan:
    messages, pieces, said = document["messages"], document["pieces"], document["machine"]
    machine = Machine(
        tuple(
            Host(
                tuple(host["ranks"]),
                tuple(Fraction(nic) for nic in host["nic_GBps"]),
                Fraction(host["inner_GBps"]),
                host["mesh"],
            )
            for host in said["hosts"]
        ),
        Fraction(said["stage_latency_us"]),
        Fraction(said["inner_latency_us"]),
        said["rail_only"],
    )
    parts = {key: value for key, value in document["predicted_us"].items() if key != "total"}
    return Plan(
        machine,
        _numbers(document["demand"]),
        document["method"],
        document["unit"],
        tuple(tuple(map(int, partner)) for partner in document["partners"]),
        tuple(map(int, document["weights"])),
        document["line_sum"],
        stage=_numbers(messages["stage"]),
        src=_numbers(messages["src"]),
        dst=_numbers(messages["dst"]),
        count=_numbers(messages["bytes"]),
        first=_numbers(messages["first_piece"]),
        origin=_numbers(pieces["origin"]),
        final=_numbers(pieces["final"]),
        offset=_numbers(pieces["offset"]),
        length=_numbers(pieces["bytes"]),
        predicted=Prediction(**parts),
        order=document["order"],
    )


def _numbers(values: Any) -> Numbers:
    """Whole numbers as an array, of Python's own where 64 bits are too few."""
    import numpy as np

    made = np.array(values, dtype=object)
    return made.astype(np.int64) if not made.size or made.max() < 2**62 else made
