"""Every reader of files that strangers wrote, as one function from bytes to nothing.

Each may refuse its input by an error a user can meet; any other exception is a fault, and so is a
program that is called right and does not compute what it should. The hypothesis tests and the
coverage-guided fuzzer run the same functions from the same seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the fuzzer runs outside of pytest

from handmade import all_programs, to_xml
from interpreter import run

from collc import runtimes
from collc.conditions import read_conditions
from collc.errors import CollcError
from collc.ir.text import dumps
from collc.runtimes import plans, tuners
from collc.topology import load_text
from collc.verify import msccl
from collc.verify.examples import examples
from collc.verify.formats import examine_bytes
from collc.verify.report import Request

_SMALL = 64  # ranks times threadblocks up to which a program is also run


@dataclass(frozen=True)
class Reader:
    """How a kind of file is read, and right files to start from."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def check_xml(raw: bytes) -> None:
    """By the rules of each runtime; what is called right must run right."""
    for name in runtimes.names():
        report = msccl.examine(raw, runtimes.load(name))
        if report.file is None or any(finding.severity == "error" for finding in report.findings):
            continue
        for program in report.file.programs:
            if sum(len(gpu.threadblocks) for gpu in program.gpus) <= _SMALL:
                assert run(program, len(raw), report.fifo_depth_needed).is_right


def _check(*names: str | None) -> Callable[[bytes], None]:
    def check(raw: bytes) -> None:
        for name in names:
            with _Refusals():
                examine_bytes(raw, "file", Request(runtime=name))

    return check


def _check_text(read: Callable[[str, str], object]) -> Callable[[bytes], None]:
    def check(raw: bytes) -> None:
        with _Refusals():
            read(raw.decode("utf-8", "replace"), "file")

    return check


class _Refusals:
    """Lets errors a user can meet pass."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, CollcError)


def _examples(ending: str) -> Iterator[bytes]:
    for example in examples().values():
        for name, text in {**example.good, **example.bad}.items():
            if name.endswith(ending):
                yield text.encode()


def _topologies() -> Iterator[bytes]:
    for path in sorted((Path(__file__).parents[2] / "topologies").glob("*.yaml")):
        yield path.read_bytes()


_CONDITIONS = b"""
name: swap
ranks: 2
chunks:
  - {precondition: {0: 0}, postcondition: {1: 0}}
  - {precondition: {1: 0}, postcondition: {0: 0}, count: 2}
"""

READERS: Mapping[str, Reader] = {
    "xml": Reader(check_xml, (*(to_xml(made).encode() for made in all_programs().values()), *_examples(".xml"))),
    "own": Reader(_check(None), (*(dumps(made).encode() for made in all_programs().values()), *_examples(".json"))),
    "plan": Reader(_check(*plans.names()), tuple(_examples(".json"))),
    "table": Reader(_check(*tuners.names()), (*_examples(".csv"), *_examples(".conf"))),
    "conditions": Reader(_check_text(read_conditions), (_CONDITIONS, *_examples(".yaml"))),
    "topology": Reader(_check_text(load_text), tuple(_topologies())),
}
