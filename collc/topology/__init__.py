"""Topologies as people name them: a file, standard input, or a shipped machine, with overrides."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import collc
from collc.errors import InputError, Place, nearest
from collc.ir.topology import Topology
from collc.topology.builder import build
from collc.topology.dump import dumps_yaml
from collc.topology.language import example, schema
from collc.topology.reach import check_reach
from collc.topology.reader import read
from collc.topology.values import Parameter
from collc.topology.yaml import compose

__all__ = [
    "Loaded",
    "Parameter",
    "dumps_yaml",
    "example",
    "load",
    "load_text",
    "open_topology",
    "parameters",
    "schema",
    "shipped",
]

MAX_BYTES = 8 * 2**20
_OVERRIDES = re.compile(r"[^=:/\\]*=[^:]*")


@dataclass(frozen=True)
class Loaded:
    """A topology with what its file says about it.

    Attributes:
        topology: the fabric.
        doc: a sentence about it.
        parameters: with the values of this loading.
        sources: (key in the file, where its figures come from).
        warnings: what the user should know, a sentence each.
        degraded_from: the healthy topology, as a user names it; empty where this one is.
    """

    topology: Topology
    doc: str
    parameters: tuple[Parameter, ...]
    sources: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    degraded_from: str = ""


def load(reference: str) -> Topology:
    """The topology a user names; `open_topology` also tells the warnings.

    Raises:
        InputError: no such file or shipped topology, or something in it is wrong.
        InfeasibleError: a GPU cannot reach another.
    """
    return open_topology(reference).topology


def open_topology(reference: str, *, in_parts: bool = False) -> Loaded:
    """A topology by path, `-` for standard input, or shipped name, with overrides after a colon.

    Args:
        in_parts: some GPUs may not reach others; whoever takes a part of them checks that part.

    Raises:
        InputError: no such file or shipped topology, or something in it is wrong.
        InfeasibleError: a GPU cannot reach another.
    """
    name, overrides = _split(reference)
    text, file, stem = _fetch(name)
    return _loaded(text, file, stem, overrides, reference, in_parts=in_parts)


def load_text(text: str, file: str) -> Topology:
    """The topology that a text describes; `file` names it in messages.

    Raises:
        InputError: something in it is wrong.
        InfeasibleError: a GPU cannot reach another.
    """
    return _loaded(text, file, Path(file).stem, {}, file).topology


def _loaded(
    text: str, file: str, stem: str, overrides: Mapping[str, str], reference: str, *, in_parts: bool = False
) -> Loaded:
    declared = read(compose(text, file), overrides, reference)
    try:
        topology, warnings = build(declared, declared.name or stem)
    except InputError as error:
        raise error if error.place else InputError(error.message, Place(file)) from None
    if not in_parts:
        check_reach(topology, Place(file))
    return Loaded(topology, declared.doc, declared.parameters, declared.sources(), warnings, declared.degraded_from)


def shipped() -> tuple[str, ...]:
    """Names of the topologies that come with collc."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def parameters(name: str) -> tuple[Parameter, ...]:
    """What can be set on a topology, with defaults.

    Raises:
        InputError: as `load`, but for what only building it would show.
    """
    name, overrides = _split(name)
    text, file, _ = _fetch(name)
    return read(compose(text, file), overrides, name).parameters


def _folder() -> Path:
    package = Path(collc.__file__).parent
    installed = package / "_topologies"  # as the wheel carries them
    return installed if installed.is_dir() else package.parent / "topologies"


def _split(reference: str) -> tuple[str, dict[str, str]]:
    name, colon, tail = reference.rpartition(":")
    if not colon or not name or reference in shipped() or Path(reference).is_file():
        return reference, {}
    if not _OVERRIDES.fullmatch(tail):
        if _is_path(name) and ("/" in tail or "." in tail):
            return reference, {}
        raise InputError(f"'{tail}' after the colon; expected KEY=VALUE, such as hosts=4", Place(reference))
    overrides: dict[str, str] = {}
    for part in tail.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise InputError(f"override '{part}'; expected KEY=VALUE, such as hosts=4", Place(reference))
        if key.strip() in overrides:
            raise InputError(f"parameter '{key.strip()}' is set twice; expected it once", Place(reference))
        overrides[key.strip()] = value.strip()
    return name, overrides


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml", ".json"))


def _fetch(name: str) -> tuple[str, str, str]:
    """Text, name for messages, and name of the topology if the file gives none."""
    if name == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; expected a topology file there", Place("-"))
        return _decode(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"), "<stdin>", "stdin"
    if name in shipped():
        path = _folder() / f"{name}.yaml"
        return _decode(path.read_bytes(), f"{name}.yaml"), f"{name}.yaml", name
    if not name or "\0" in name:
        raise InputError("no topology is named; expected a file or the name of a shipped topology")
    return _decode(_read(name), name), name, Path(name).stem


def _read(name: str) -> bytes:
    try:
        if Path(name).is_dir():
            raise InputError("is a directory; expected a topology file", Place(name))
        with Path(name).open("rb") as stream:
            # One byte more than allowed, so that a device without end is noticed as well.
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        ending = nearest(Path(name).stem[:100], shipped())
        if _is_path(name) and "did you mean" not in ending:
            raise InputError("no such file", Place(name)) from None
        raise InputError(f"no such file, and no shipped topology of that name{ending}", Place(name)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", Place(name)) from None


def _decode(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        raise InputError(f"is larger than {MAX_BYTES >> 20} MiB, the limit for a topology file", Place(file))
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise InputError("holds a zero byte; expected a text file (UTF-8)", Place(file, line))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        found = f"byte 0x{content[error.start]:02x}"
        raise InputError(f"{found} is not UTF-8; expected a text file", Place(file, line)) from None
