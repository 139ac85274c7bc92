"""A collective of the user's own, from a YAML file: which chunk is where before, and where it must be after.

    name: halo                     # for messages; "custom" where it is left out
    ranks: 4
    chunks:
      - precondition: {0: 0}       # rank: slot of its input buffer
        postcondition: {1: 0, 3: 0}
      - precondition: {all: 1}     # every rank contributes: the chunk is their sum
        postcondition: {0-2: 1}    # ranks 0, 1 and 2: slot 1 of their output buffers

A file in `nchunksperloop` chunks is held against it, each slot of the table being equally many of them.
Input slots that no precondition names hold nothing, and output slots that no postcondition names are free.
"""

from __future__ import annotations

from typing import Any

from collc.errors import InputError, Place
from collc.ir.collective import Chunk, Collective, Places
from collc.topology.yaml import Item, compose

MAX_RANKS = 1024
MAX_CHUNKS = 1 << 20
MAX_SLOTS = 1 << 20

Keys = dict[str, tuple[dict[str, Any], str]]

FILE: Keys = {
    "name": ({"type": "string"}, "what messages call it; 'custom' where it is left out"),
    "ranks": ({"type": "integer", "minimum": 1, "maximum": MAX_RANKS}, "ranks in the communicator"),
    "chunks": (
        {"type": "array", "items": {"$ref": "#/$defs/chunk"}, "minItems": 1},
        "pieces of data, each with where it is before and where it must be after",
    ),
    "input_chunks": ({"type": "integer", "minimum": 1}, "slots of a rank's input buffer; the least by default"),
    "output_chunks": ({"type": "integer", "minimum": 1}, "slots of a rank's output buffer; the least by default"),
    "shift": (
        {"type": "integer"},
        "in place, slot x of the input is slot x + shift of the output; 0 by default: one buffer",
    ),
}
_PLACES: dict[str, Any] = {
    "type": "object",
    "propertyNames": {"pattern": "^([0-9]+(-[0-9]+)?|all)$"},
    "additionalProperties": {"type": "integer", "minimum": 0},
    "minProperties": 1,
}
CHUNK: Keys = {
    "precondition": (_PLACES, "rank, range of ranks or all: slot of the input buffer; several ranks: their sum"),
    "postcondition": (_PLACES, "rank, range of ranks or all: slot of the output buffer"),
    "count": ({"type": "integer", "minimum": 1}, "slots it fills, there and after; 1 by default"),
}


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a conditions file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "collc conditions",
        "description": "A collective of the user's own, as `collc verify --conditions` reads it from YAML.",
        **_mapping(FILE, ["ranks", "chunks"]),
        "$defs": {"chunk": _mapping(CHUNK, ["precondition", "postcondition"])},
    }


def _mapping(keys: Keys, required: list[str]) -> dict[str, Any]:
    properties = {key: {**one, "description": doc} for key, (one, doc) in keys.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def read_conditions(text: str, file: str) -> Collective:
    """The collective that a YAML text describes.

    Args:
        file: its name, for messages.

    Raises:
        InputError: not YAML, or not of this form; names the line, the column and the key.
    """
    if not text.strip():
        raise InputError("is empty; expected ranks and chunks", Place(file))
    top = compose(text, file)
    keys = _fields(top, FILE, ["ranks", "chunks"], "conditions: ranks and chunks")
    name = keys["name"].text("a name") if "name" in keys else "custom"
    n_ranks = _whole(keys["ranks"], "a number of ranks", 1, MAX_RANKS)
    entries = keys["chunks"].entries("a list of chunks")
    if not 0 < len(entries) <= MAX_CHUNKS:
        raise keys["chunks"].error(f"has {len(entries)} chunks; expected 1 to {MAX_CHUNKS}")
    chunks = tuple(_chunk(item, n_ranks) for item in entries)
    _check_slots_once(entries, chunks)
    sides = []
    for key, places in (
        ("input_chunks", [(chunk.precondition, chunk.count) for chunk in chunks]),
        ("output_chunks", [(chunk.postcondition, chunk.count) for chunk in chunks]),
    ):
        least = max(max(where.values()) + count for where, count in places)
        sides.append(_whole(keys[key], f"{least} or more slots", least, MAX_SLOTS) if key in keys else least)
    shift = _whole(keys["shift"], "a number of slots", -MAX_SLOTS, MAX_SLOTS) if "shift" in keys else 0
    return Collective(name, n_ranks, 1, sides[0], sides[1], chunks, (shift,) * n_ranks)


def _fields(item: Item, keys: dict[str, Any], required: list[str], what: str) -> dict[str, Item]:
    found = item.fields(keys, what)
    missing = next((key for key in required if key not in found), None)
    if missing:
        raise item.error(f"key '{missing}' is missing")
    return found


def _whole(item: Item, what: str, least: int, most: int) -> int:
    value = item.number(what)
    if value.denominator != 1 or not least <= value <= most:
        raise item.error(f"found {item.shown}; expected {what}, from {least} to {most}")
    return int(value)


def _chunk(item: Item, n_ranks: int) -> Chunk:
    keys = _fields(item, CHUNK, ["precondition", "postcondition"], "a chunk: precondition and postcondition")
    count = _whole(keys["count"], "a number of slots", 1, MAX_SLOTS) if "count" in keys else 1
    return Chunk(_places(keys["precondition"], n_ranks), _places(keys["postcondition"], n_ranks), count)


def _places(item: Item, n_ranks: int) -> Places:
    """Rank -> slot."""
    slots: dict[int, int] = {}
    for word, value in item.mapping("ranks with their slots, such as {0: 0}").items():
        slot = _whole(value, "a slot", 0, MAX_SLOTS - 1)
        for rank in _ranks(word, value, n_ranks):
            if rank in slots:
                raise value.error(f"rank {rank} is named twice; expected one slot for each rank")
            slots[rank] = slot
    if not slots:
        raise item.error("names no rank; expected at least one")
    ranks = sorted(slots)
    return Places(tuple(ranks), tuple(slots[rank] for rank in ranks))


def _ranks(word: str, item: Item, n_ranks: int) -> range:
    """The ranks that a key names: `3`, `0-3` or `all`."""
    if word == "all":
        return range(n_ranks)
    first, dash, last = word.partition("-")
    if (
        not all(part.isascii() and part.isdigit() and len(part) < 7 for part in (first, last or first))
        or word[-1] == "-"
    ):
        raise item.error(f"'{word[:40]}' names no rank; expected a number, a range such as 0-3, or all")
    ranks = range(int(first), int(last or first) + 1) if dash else range(int(first), int(first) + 1)
    if not ranks or ranks[-1] >= n_ranks:
        raise item.error(f"'{word}': expected ranks from 0 to {n_ranks - 1}, the smaller first")
    return ranks


def _check_slots_once(entries: list[Item], chunks: tuple[Chunk, ...]) -> None:
    """No output slot is asked to hold two chunks, and the whole is small enough to be checked."""
    holder: dict[tuple[int, int], int] = {}
    for index, chunk in enumerate(chunks):
        if len(holder) + len(chunk.postcondition) * chunk.count > MAX_SLOTS:
            raise entries[index].error(f"more than {MAX_SLOTS} output slots in all; that many are not checked")
        for rank, start in chunk.postcondition.items():
            for slot in range(start, start + chunk.count):
                if (rank, slot) in holder:
                    first = holder[rank, slot]
                    raise entries[index].error(f"rank {rank} slot {slot} is asked to hold chunk {first} as well")
                holder[rank, slot] = index
