"""From the words of `collc synth` to a problem, and on to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from collc.errors import InputError, Place, UnsupportedError
from collc.ir.collective import NAMES, Collective, Problem, make_collective
from collc.ir.demand import from_demand, read_demand
from collc.ir.demand_pattern import is_pattern, make_demand
from collc.ir.text import dumps
from collc.ir.topology import Topology
from collc.ir.variants import side_by_side, whole_shares, with_shares
from collc.request import Clock, Target
from collc.topology import open_topology
from collc.topology.reach import check_reach
from collc.units import parse_bytes, parse_number
from collc.workers import check_engine


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    Attributes:
        problem: at the asked size; in a sweep at the largest.
        sizes: the sweep (least, most) [bytes], where there is one.
        warnings: what reading the topology brought up.
        clock: seconds spent so far.
        degraded_from: the healthy topology that the file names, if it names one.
    """

    problem: Problem
    sizes: tuple[int, int] | None
    warnings: tuple[str, ...]
    clock: Clock
    degraded_from: str = ""


def open_problem(topology: str, given: dict[str, Any]) -> Asked:
    """The problem that the arguments describe.

    Raises:
        InputError: an argument is wrong.
        InfeasibleError: a GPU cannot reach another.
    """
    if given["engine"] is not None:
        check_engine(given["engine"])
        if given["jobs"] > 1:
            raise InputError(
                "--jobs counts processes of this machine, and --engine does without them; give one of the two"
            )
    clock = Clock()
    loaded = clock.run("load", lambda: open_topology(topology, in_parts=bool(given["ranks"])))
    fabric = loaded.topology
    groups = [parse_ranks(text) for text in given["ranks"]] or [list(range(fabric.n_ranks))]
    if given["relay"] and not given["ranks"]:
        raise InputError("--relay lets GPUs outside the group forward; name the group with --ranks")
    if given["ranks"]:
        whole, relay = fabric, given["relay"]
        fabric = whole.restricted([rank for group in groups for rank in group], relay=relay)
        for group in groups:
            check_reach(whole.restricted(group, relay=relay), Place(topology))
    sizes = parse_sizes(given["size"])
    problem = _problem(fabric, [len(group) for group in groups], given)
    if problem.nbytes is not None and sizes is not None:
        raise InputError("-n: the demand matrix already says how many bytes move; give one of them")
    if problem.nbytes is None and sizes is not None:
        problem = replace(problem, nbytes=sizes[1])
    sweep = sizes if sizes is not None and ":" in given["size"] else None
    return Asked(problem, sweep, loaded.warnings, clock, loaded.degraded_from)


def _problem(fabric: Topology, groups: Sequence[int], given: dict[str, Any]) -> Problem:
    """The problem of groups of so many ranks, which follow each other in the fabric."""
    name, demand = given["collective"], given["demand"]
    if given["shares"] is not None:
        return Problem(fabric, _with_shares(name, groups, given))
    if demand is None:
        parts = [make_collective(name, n_ranks, root=given["root"]) for n_ranks in groups]
        return Problem(fabric, side_by_side(parts) if len(parts) > 1 else parts[0])
    if len(groups) > 1:
        raise InputError("--demand is for one group; give --ranks once")
    if name != "alltoallv":
        raise InputError(
            f"--demand is for alltoallv, not for {name}" if name in NAMES else f"collective '{name}' is unknown"
        )
    if given["root"] is not None:
        raise InputError("alltoallv has no root")
    rows = make_demand(demand, fabric.n_ranks) if is_pattern(demand) else read_demand(demand)
    collective, unit = from_demand(rows)
    return Problem(fabric, collective, nbytes=unit * collective.size_chunks)


def _with_shares(name: str, groups: Sequence[int], given: dict[str, Any]) -> Collective:
    if given["root"] is not None or given["demand"] is not None:
        raise InputError("--shares go with neither --root nor --demand")
    shares = read_shares(given["shares"])
    if len(shares) != sum(groups):
        raise InputError(f"--shares: {len(shares)} shares for {sum(groups)} ranks")
    counts = whole_shares(shares)
    starts = [0, *accumulate(groups)]
    parts = [with_shares(name, counts[start:end]) for start, end in pairwise(starts)]
    return side_by_side(parts) if len(parts) > 1 else parts[0]


def read_shares(text: str) -> list[Fraction]:
    """Shares written as `3,1,0,2.5`, or in a file of that name (commas or blanks, # for comments).

    >>> read_shares("1,0,1/2")
    [Fraction(1, 1), Fraction(0, 1), Fraction(1, 2)]

    Raises:
        InputError: a word is no number, or the file cannot be read.
    """
    try:
        return [parse_number(word) for word in text.split(",")]
    except ValueError as error:
        if not Path(text).exists():
            raise InputError(f"--shares: {error}; expected numbers such as 3,1,0,2, or a file of them") from None
    return [_share(word, Place(text)) for word in _words(text)]


def _words(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", Place(path)) from None
    return [word for line in lines for word in line.partition("#")[0].replace(",", " ").split()]


def _share(word: str, place: Place) -> Fraction:
    try:
        return parse_number(word)
    except ValueError as error:
        raise InputError(f"{error}; expected a share for each rank", place) from None


def healthy(asked: Asked, given: dict[str, Any]) -> dict[str, Any] | None:
    """What the fabric allowed before it was degraded; None where its file does not say what it was."""
    if not asked.degraded_from or given["ranks"] or given["demand"] or given["shares"]:
        return None
    from collc import cost

    fabric = open_topology(asked.degraded_from).topology
    problem = _problem(fabric, [fabric.n_ranks], given)
    best, now = cost.bound(problem), cost.bound(asked.problem)
    if best is None or now is None:
        return None
    return {
        "topology": asked.degraded_from,
        "bound_algbw_GBps": float(best.algbw),
        "bound_exact": str(best.algbw),
        "kept": float(now.algbw / best.algbw),
    }


def content(asked: Asked, given: dict[str, Any]) -> dict[str, Any]:
    """Everything the result depends on, as JSON data."""
    kept = ("synthesizer", "options", "backend", "inplace", "protocol", "chunks", "instances", "max_channels", "limits")
    wanted = given["directory"] is not None
    before = [_digest(option.removeprefix("warm=")) for option in given["options"] if option.startswith("warm=")]
    arguments = {key: given[key] for key in kept}
    return {"problem": dumps(asked.problem), "sizes": asked.sizes, "files": wanted, "before": before, **arguments}


def _digest(path: str) -> str | None:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None  # whoever reads it will say so


def compile_asked(asked: Asked, topology: str, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The report, without what reading the topology brought up, and the files.

    Raises:
        CollcError: as `compile_request`.
    """
    from collc.pipeline import compile_request
    from collc.report import report
    from collc.request import Request

    target = target_of(given)
    options = key_values(given["options"], "-o", str)
    wanted = given["backend"] is not None or given["directory"] is not None
    if wanted and given["relay"] and target.load().level == "program":
        raise UnsupportedError(
            f"{target.backend} files run on the ranks of the group alone, so no other GPU can forward for them; "
            "leave out --relay, or take -b json"
        )
    request = Request(
        asked.problem,
        given["synthesizer"],
        options,
        asked.sizes,
        target if wanted else None,
        given["jobs"],
        given["engine"],
    )
    outcome = compile_request(request, asked.clock)
    return report(request, outcome, topology), {file.name: file.text for file in outcome.files}


def target_of(given: dict[str, Any]) -> Target:
    """The files that the arguments ask for.

    Raises:
        InputError: an argument is wrong.
    """
    return Target(
        given["backend"] or "executor",
        given["protocol"],
        _chunks(given["chunks"]),
        given["instances"],
        given["inplace"],
        limits(given),
    )


def limits(given: dict[str, Any]) -> dict[str, int]:
    """The runtime's limits that the command line sets."""
    chosen = key_values(given["limits"], "--limit", int)
    if given["max_channels"] is not None:
        chosen["channels"] = given["max_channels"]
    return chosen


def parse_ranks(text: str) -> list[int]:
    """Ranks written as `0,1,4-7`.

    >>> parse_ranks("0,1,4-7")
    [0, 1, 4, 5, 6, 7]

    Raises:
        InputError: not of that form.
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_count(first) and (_is_count(last) or not dash)):
            raise InputError(f"--ranks '{part.strip()}'; expected ranks and ranges such as 0,1,4-7")
        if dash and int(last) < int(first):
            raise InputError(f"--ranks '{part.strip()}'; expected the smaller rank first")
        ranks += range(int(first), int(last or first) + 1)
    return ranks


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 7


def parse_sizes(text: str | None) -> tuple[int, int] | None:
    """A size, or a range LO:HI, as (least, most) [bytes].

    >>> parse_sizes("1KiB:1MiB"), parse_sizes("64")
    ((1024, 1048576), (64, 64))

    Raises:
        InputError: not of that form, zero, or the larger first.
    """
    if text is None:
        return None
    low_text, colon, high_text = text.partition(":")
    low = parse_bytes(low_text)
    high = parse_bytes(high_text) if colon else low
    if low < 1:
        raise InputError(f"-n {text}: a message of no bytes; expected 1 or more")
    if high < low:
        raise InputError(f"-n {text}: expected the smaller size first")
    return low, high


def _chunks(text: str) -> Any:
    if text in ("pow2", "exact"):
        return text
    if not _is_count(text) or int(text) < 1:
        raise InputError(f"--chunks '{text}'; expected pow2, exact or a number")
    return int(text)


def key_values(pairs: Iterable[str], option: str, convert: Callable[[str], Any]) -> dict[str, Any]:
    """KEY=VALUE words as a dictionary.

    Raises:
        InputError: a word is not of that form, a key is given twice, or a value is not of its type.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not key or not value:
            raise InputError(f"{option} '{pair}'; expected KEY=VALUE")
        if key in values:
            raise InputError(f"{option} {key}: given twice")
        try:
            values[key] = convert(value)
        except ValueError:
            raise InputError(f"{option} {pair}: '{value}' is not a whole number") from None
    return values
