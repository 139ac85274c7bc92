"""Checks an all-to-all plan: permutations, one message per card, every byte once, staging, the bound.

It reads the file by its own reader and shares no code with the planner. A plan is judged by what its
messages and pieces say; blocks within a host go straight and are not listed, so nothing can be wrong
with them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from collc.errors import InputError, Place
from collc.ir.collective import Collective
from collc.verify.findings import Finding
from collc.verify.report import FileReport, Request
from collc.verify.rules import collected

if TYPE_CHECKING:
    Numbers = Any

MAGIC = b"COLLCA2A"
KIND = "AllToAllPlan"

_PARTS = ("balance", "wire", "exposed", "latency")

# What a binary plan may unfold to [bytes].
_MOST_BYTES = 2**31


@dataclass(frozen=True)
class _Host:
    ranks: tuple[int, ...]
    cards: tuple[Fraction, ...]  # GB/s
    inner: Fraction  # GB/s, a GPU's links inside together


@dataclass(frozen=True, eq=False)
class _Plan:
    """A plan as its file says it; arrays by column."""

    is_staged: bool
    line_sum: int
    staging: Mapping[str, Sequence[int]]  # per rank
    bound: Fraction
    predicted: Mapping[str, float]
    hosts: tuple[_Host, ...]
    n_ranks: int
    demand: Numbers
    host: Numbers  # per rank
    port: Numbers  # per rank
    place: Numbers  # per rank, in its port
    partners: Numbers
    weights: Numbers
    stage: Numbers
    src: Numbers
    dst: Numbers
    nbytes: Numbers
    first: Numbers
    origin: Numbers
    final: Numbers
    offset: Numbers
    length: Numbers
    message: Numbers  # per piece


def examine(raw: bytes, path: str, request: Request) -> FileReport:
    """The report on a plan in either form.

    Raises:
        InputError: it is not even JSON, or not what the magic number promises.
    """
    try:
        document = _unpacked(raw) if raw.startswith(MAGIC) else json.loads(raw)
    except (ValueError, KeyError, TypeError, RecursionError, struct.error, zlib.error) as error:
        raise InputError(f"is no all-to-all plan that can be read: {error}", Place(path)) from None
    report = FileReport(path, "collc-alltoall", source=raw, collective="alltoallv")
    try:
        plan = _read(document)
    except (_BadFormError, KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError) as error:
        what = str(error) if isinstance(error, _BadFormError) else f"{type(error).__name__} {error}"
        return replace(report, findings=(Finding("exchange-form", "error", f"the plan cannot be understood: {what}"),))
    found = [*faults(plan), *_request_faults(plan, request)]
    return replace(report, ranks=plan.n_ranks, findings=collected(found))


def faults(plan: _Plan) -> Iterator[Finding]:
    """Everything that is wrong with a plan, lazily."""
    if plan.is_staged:
        yield from _stage_faults(plan)
        yield from _card_faults(plan)
        yield from _staging_faults(plan)
    yield from _piece_faults(plan)
    yield from _delivery_faults(plan)
    yield from _time_faults(plan)


def _fault(rule: str, message: str, rank: int | None = None) -> Finding:
    return Finding(rule, "error", message, rank=None if rank is None else int(rank))


# --- stages --------------------------------------------------------------------------------------


def _stage_faults(plan: _Plan) -> Iterator[Finding]:
    """Permutations, their number, and their weights."""
    n = int(plan.port.max()) + 1
    for index, partner in enumerate(plan.partners.tolist()):
        if sorted(partner) != list(range(n)):
            yield _fault("exchange-permutation", f"stage {index} sends ports to {partner}; expected each of {n} once")
    most = n * n - 2 * n + 2
    if len(plan.weights) > most:
        yield _fault("exchange-stages", f"{len(plan.weights)} stages for {n} ports; expected at most {most}")
    total, stated = sum(plan.weights.tolist()), plan.line_sum
    if total != stated:
        yield _fault("exchange-weights", f"the weights add to {total} bytes; the plan states a line sum of {stated}")
    for name, card in (("sends", plan.src), ("receives", plan.dst)):
        moved: dict[int, int] = {}
        for rank, nbytes in zip(card.tolist(), plan.nbytes.tolist(), strict=True):
            moved[rank] = moved.get(rank, 0) + nbytes
        for rank, nbytes in moved.items():
            if nbytes > total:
                yield _fault("exchange-weights", f"rank {rank} {name} {nbytes} bytes; all stages take {total}", rank)


def _card_faults(plan: _Plan) -> Iterator[Finding]:
    """In a stage a rank sends one message and receives one, to and from its opposite, within the weight."""
    seen: set[tuple[str, int, int]] = set()
    columns = (plan.stage, plan.src, plan.dst, plan.nbytes)
    for stage, src, dst, nbytes in zip(*(column.tolist() for column in columns), strict=True):
        for end, rank in (("sends", src), ("receives", dst)):
            if (end, stage, rank) in seen:
                yield _fault("exchange-card", f"rank {rank} {end} two messages in stage {stage}", rank)
            seen.add((end, stage, rank))
        partner = plan.partners[stage][plan.port[src]]
        if partner != plan.port[dst] or plan.place[src] != plan.place[dst] or plan.host[src] == plan.host[dst]:
            yield _fault(
                "exchange-card",
                f"rank {src} sends to rank {dst} in stage {stage}, where its port has port {partner}",
                src,
            )
        if nbytes > plan.weights[stage]:
            yield _fault(
                "exchange-overweight",
                f"rank {src} sends {nbytes} bytes in stage {stage} of weight {plan.weights[stage]}",
                src,
            )


def _staging_faults(plan: _Plan) -> Iterator[Finding]:
    """Each half of a buffer holds what a stage leaves there."""
    ends = {
        "handed_in": (plan.src, plan.origin != plan.src[plan.message]),
        "passed_on": (plan.dst, plan.final != plan.dst[plan.message]),
    }
    for name, (holder, is_held) in ends.items():
        held: dict[int, int] = {}
        for message, length in zip(plan.message[is_held].tolist(), plan.length[is_held].tolist(), strict=True):
            held[message] = held.get(message, 0) + length
        room = plan.staging[name]
        for message, nbytes in held.items():
            rank, stage = int(holder[message]), int(plan.stage[message])
            if nbytes * 2 > room[rank]:
                yield _fault(
                    "exchange-staging",
                    f"rank {rank} has {room[rank]} bytes in two halves for what is {name.replace('_', ' ')}; "
                    f"stage {stage} needs {nbytes} in one",
                    rank,
                )


# --- bytes ---------------------------------------------------------------------------------------


def _piece_faults(plan: _Plan) -> Iterator[Finding]:
    """Messages are their pieces, hand-overs stay inside hosts, pieces inside their blocks."""
    lengths = [0] * len(plan.nbytes)
    for message, length in zip(plan.message.tolist(), plan.length.tolist(), strict=True):
        lengths[message] += length
    for message, (stated, found) in enumerate(zip(plan.nbytes.tolist(), lengths, strict=True)):
        if stated != found:
            yield _fault("exchange-message", f"message {message} has {stated} bytes; its pieces have {found}")
    for name, rank, holder in (
        ("handed over", plan.origin, plan.src[plan.message]),
        ("passed on", plan.final, plan.dst[plan.message]),
    ):
        for piece in _where(plan.host[rank] != plan.host[holder]):
            yield _fault(
                "exchange-host", f"piece {piece} is {name} between ranks {rank[piece]} and {holder[piece]} of two hosts"
            )
    block = plan.demand[plan.origin, plan.final]
    for piece in _where((plan.length < 1) | (plan.offset + plan.length > block)):
        yield _fault(
            "exchange-block",
            f"piece {piece} is {plan.length[piece]} bytes from {plan.offset[piece]} on of a block of {block[piece]}",
        )


def _delivery_faults(plan: _Plan) -> Iterator[Finding]:
    """The pieces of every block between hosts lie side by side and fill it."""
    done: dict[tuple[int, int], list[tuple[int, int]]] = {}
    columns = (plan.origin, plan.final, plan.offset, plan.length)
    for origin, final, offset, length in zip(*(column.tolist() for column in columns), strict=True):
        done.setdefault((origin, final), []).append((offset, length))
    for origin, final in zip(*(axis.tolist() for axis in plan.demand.nonzero()), strict=True):
        if plan.host[origin] != plan.host[final]:
            done.setdefault((origin, final), [])
    for (origin, final), pieces in sorted(done.items()):
        reached = 0
        what = f"the block from rank {origin} to rank {final}"
        for offset, length in sorted(pieces):
            if offset != reached:
                how = "twice" if offset < reached else "not at all"
                yield _fault("exchange-delivery", f"byte {min(offset, reached)} of {what} is delivered {how}", final)
            reached = max(reached, offset + length)
        if reached != plan.demand[origin, final]:
            yield _fault(
                "exchange-delivery", f"{what} has {plan.demand[origin, final]} bytes; {reached} are delivered", final
            )


# --- claims --------------------------------------------------------------------------------------


def _time_faults(plan: _Plan) -> Iterator[Finding]:
    """The bound, and the predicted time against it and against its own parts."""
    said = plan.predicted
    parts = sum(said[name] for name in _PARTS)
    # Written so that no number passes that is none.
    if not abs(parts - said["total"]) <= 1e-6 * max(1.0, said["total"]):
        yield _fault("exchange-time", f"the parts add to {parts} us; the plan states {said['total']} us")
    stated, proven = plan.bound, _bound(plan)
    if stated != proven:
        yield _fault("exchange-bound", f"the stated bound is {stated} us; the demand proves {proven} us")
    # The prediction is in floats.
    if not said["total"] >= float(proven) * (1 - 1e-9):
        yield _fault("exchange-bound", f"the stated time is {said['total']} us; none is below {float(proven)} us")


def _bound(plan: _Plan) -> Fraction:
    """What must leave or enter a host or a GPU, over the bandwidth that it has for that [us]."""
    demand = plan.demand.astype(object)
    best = Fraction(0)
    for way in (demand, demand.T):
        for host in plan.hosts:
            leaving = 0
            for rank, card in zip(host.ranks, host.cards, strict=True):
                inside = sum(way[rank, other] for other in host.ranks if other != rank)
                outside = sum(way[rank].tolist()) - inside - way[rank, rank]
                leaving += outside
                for load, speed in ((inside, host.inner), (inside + outside, host.inner + card)):
                    best = max(best, _time(load, speed))
            best = max(best, _time(leaving, sum(host.cards, Fraction(0))))
    return best


def _time(load: int, speed: Fraction) -> Fraction:
    """[us] of a load [bytes] at a speed [GB/s]; nothing where there is no such way."""
    return load / (speed * 1000) if load and speed else Fraction(0)


def _request_faults(plan: _Plan, request: Request) -> Iterator[Finding]:
    """Where it is not what was asked for."""
    if request.collective not in (None, "alltoall", "alltoallv"):
        yield _fault("collective-differs", f"computes alltoallv; asked for {request.collective}")
    if request.topology is not None and request.topology.n_ranks != plan.n_ranks:
        yield _fault("topology-ranks", f"is for {plan.n_ranks} ranks; the topology has {request.topology.n_ranks}")
    if request.demand is not None and not _moves_as(plan, request.demand):
        yield _fault("demand-differs", "moves other amounts between ranks than the demand asks for")


def _moves_as(plan: _Plan, demand: Collective) -> bool:
    """Whether all blocks are in proportion to the demand's."""
    if demand.n_ranks != plan.n_ranks:
        return False
    asked = [[0] * plan.n_ranks for _ in range(plan.n_ranks)]
    for chunk in demand.chunks:
        asked[chunk.precondition.ranks[0]][chunk.postcondition.ranks[0]] += chunk.count
    here, there = plan.demand.astype(object), sum(map(sum, asked))
    total = sum(here.ravel().tolist())
    return all(
        held * there == wanted * total
        for line, wants in zip(here.tolist(), asked, strict=True)
        for held, wanted in zip(line, wants, strict=True)
    )


# --- reading -------------------------------------------------------------------------------------


class _BadFormError(Exception):
    """A field of the document is not what it should be."""


def _unpacked(raw: bytes) -> Any:
    """The document in a binary plan, its columns read back in."""
    import numpy as np

    start = len(MAGIC) + 4
    (length,) = struct.unpack("<I", raw[len(MAGIC) : start])
    document = json.loads(raw[start : start + length])
    unpacker = zlib.decompressobj()
    body = unpacker.decompress(raw[start + length :], _MOST_BYTES)

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if set(value) == {"at", "type", "shape"}:
            if value["type"] not in ("|u1", "<u1", "<u2", "<u4", "<u8"):
                raise ValueError(f"a column of type {value['type']}")
            count = int(np.prod(value["shape"], dtype=np.int64))
            return np.frombuffer(body, value["type"], count, value["at"]).reshape(value["shape"]).tolist()
        return {key: filled(one) for key, one in value.items()}

    return filled(document)


def _read(document: Any) -> _Plan:
    import numpy as np

    if not isinstance(document, dict) or document.get("kind") != KIND or document.get("collc") != 1:
        raise _BadFormError("it is of another kind or version")
    if document["method"] not in ("staged", "direct"):
        raise _BadFormError(f"method {document['method']!r}; expected staged or direct")
    n = document["ranks"]
    hosts = tuple(_host(one, len(document["machine"]["hosts"]) > 1) for one in document["machine"]["hosts"])
    messages, pieces = document["messages"], document["pieces"]
    host = _groups([one.ranks for one in hosts], n, "hosts")
    port = _groups(document["ports"], n, "ports")
    place = np.zeros(n, dtype=np.int64)
    for group in document["ports"]:
        place[group] = range(len(group))
    n_ports, n_stages = len(document["ports"]), len(document["weights"])
    stage = _column(messages["stage"], "messages.stage", max(n_stages, 1))
    first = _column(messages["first_piece"], "messages.first_piece", len(pieces["origin"]) + 1)
    if len(first) != len(stage) + 1 or (len(first) and (first[0] != 0 or first[-1] != len(pieces["origin"]))):
        raise _BadFormError("messages.first_piece does not cover the pieces")
    if (np.diff(first) < 0).any():
        raise _BadFormError("messages.first_piece falls")
    partners = _column([one for line in document["partners"] for one in line], "partners", n_ports)
    plan = _Plan(
        document["method"] == "staged",
        _column([document["line_sum"]], "line_sum")[0],
        {name: _column(document["staging"][name], f"staging.{name}").tolist() for name in ("handed_in", "passed_on")},
        Fraction(document["bound_us"]),
        {name: float(document["predicted_us"][name]) for name in (*_PARTS, "total")},
        hosts,
        n,
        _column([one for line in document["demand"] for one in line], "demand").reshape(n, n),
        host,
        port,
        place,
        partners.reshape(n_stages, n_ports),
        _column(document["weights"], "weights"),
        stage,
        _column(messages["src"], "messages.src", n),
        _column(messages["dst"], "messages.dst", n),
        _column(messages["bytes"], "messages.bytes"),
        first,
        _column(pieces["origin"], "pieces.origin", n),
        _column(pieces["final"], "pieces.final", n),
        _column(pieces["offset"], "pieces.offset"),
        _column(pieces["bytes"], "pieces.bytes"),
        np.repeat(np.arange(len(stage)), np.diff(first)),
    )
    _check_lengths(plan)
    return plan


def _check_lengths(plan: _Plan) -> None:
    if len({len(one) for one in (plan.stage, plan.src, plan.dst, plan.nbytes)}) > 1:
        raise _BadFormError("the columns of messages have different lengths")
    if len({len(one) for one in (plan.origin, plan.final, plan.offset, plan.length)}) > 1:
        raise _BadFormError("the columns of pieces have different lengths")
    for name, room in plan.staging.items():
        if len(room) != plan.n_ranks:
            raise _BadFormError(f"staging.{name} has {len(room)} entries; expected a number for each rank")


def _host(said: Mapping[str, Any], has_network: bool) -> _Host:
    cards = tuple(Fraction(card) if has_network else Fraction(0) for card in said["nic_GBps"])
    if len(cards) != len(said["ranks"]):
        raise _BadFormError(f"{len(cards)} cards for {len(said['ranks'])} ranks of a host")
    links = len(cards) - 1 if said["mesh"] else 1
    return _Host(tuple(said["ranks"]), cards, Fraction(said["inner_GBps"]) * links)


def _groups(groups: Sequence[Sequence[int]], n: int, name: str) -> Numbers:
    """Rank -> its group."""
    import numpy as np

    if sorted(rank for group in groups for rank in group) != list(range(n)):
        raise _BadFormError(f"{name} do not hold each of {n} ranks once")
    found = np.zeros(n, dtype=np.int64)
    for index, group in enumerate(groups):
        found[list(group)] = index
    return found


def _column(values: Any, name: str, end: int | None = None) -> Numbers:
    """Whole numbers from zero up to an end; of Python's own where 64 bits are too few."""
    import numpy as np

    if not isinstance(values, list) or not all(type(one) is int for one in values):
        raise _BadFormError(f"{name} is no list of whole numbers")
    if values and (min(values) < 0 or (end is not None and max(values) >= end)):
        raise _BadFormError(
            f"{name} holds {min(values)} to {max(values)}; expected 0 to {'more' if end is None else end - 1}"
        )
    return np.array(values, dtype=np.int64 if not values or max(values) < 2**62 else object)


def _where(mask: Numbers) -> list[int]:
    import numpy as np

    places: list[int] = np.flatnonzero(mask).tolist()
    return places
