"""`collc topo find`: the best direct-connect designs for so many GPUs and ports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from collc.cli.topo_design import alltoall_document, positive
from collc.errors import InputError

if TYPE_CHECKING:
    from collc.design.find import Design
    from collc.design.known import Known

_NODE_BANDWIDTH = Fraction(25, 2)  # GB/s through all ports, the paper's 100 Gbit/s
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


@click.command()
@click.option("--nodes", type=int, required=True, metavar="N", help="GPUs.")
@click.option("--degree", type=int, required=True, metavar="D", help="Ports of a GPU.")
@click.option(
    "--objective",
    type=click.Choice(["allgather", "alltoall"]),
    default="allgather",
    show_default=True,
    help="What is to be quick: allgather (with it reduce-scatter and allreduce), or all-to-all.",
)
@click.option("-n", "--size", default="1MiB", show_default=True, help="Message size that the designs are timed at.")
@click.option("--alpha", default="10", show_default=True, metavar="US", help="Time of a step without data [us].")
@click.option("--link-bandwidth", metavar="GBPS", help="Of a port, each way [GB/s].  [default: 12.5 / degree]")
@click.option("--duplex", is_flag=True, help="Only full-duplex cables: every link has a twin.")
@click.option("--published", is_flag=True, help="Only the paper's families and formulas (arXiv:2202.03356).")
@click.option("--search", "seconds", type=float, metavar="SECONDS", help="Also look for new designs, so long.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option("--catalogue", metavar="FILE", help="Draw on the designs of a file; --search adds what it finds to it.")
@_JSON
def find(nodes: int, degree: int, as_json: bool, **given: Any) -> None:
    """The best designs of N GPUs with D ports: fewest steps (T_L) against least time (T_B).

    T_B is in units of M/B: M the whole gathered message, B what a GPU sends through all its ports. With
    --objective alltoall designs are ranked by the exact time of their best all-to-all.
    """
    from collc.design.find import check_request

    start = perf_counter()
    check_request(nodes, degree, two_way=given["duplex"])
    wanted = Workload.of(degree, given)
    if given["objective"] == "alltoall":
        from collc.cli import topo_find_alltoall as told

        shown = told.document(nodes, degree, given["duplex"], _known(nodes, degree, given), wanted)
        lines = told.table
    else:
        shown, lines = _document(nodes, degree, given, wanted), _frontier
    shown["seconds"] = perf_counter() - start
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for line in lines(shown, wanted):
        click.echo(line)


def _known(nodes: int, degree: int, given: dict[str, Any]) -> tuple[Known, ...]:
    """The designs that come with collc, those of the user's file, and what a search adds."""
    from collc.design.known import shipped, shipped_alltoall

    is_alltoall = given["objective"] == "alltoall"
    if given["published"]:
        if is_alltoall:
            raise InputError("--published: the paper's designs are for allgather; expected --objective allgather")
        known: tuple[Known, ...] = ()
    else:
        known = (*(shipped_alltoall() if is_alltoall else ()), *shipped(), *_catalogue(given["catalogue"]))
    if given["seconds"] is not None:
        known = (*known, *_searched(nodes, degree, given, known))
    return known


def _document(nodes: int, degree: int, given: dict[str, Any], wanted: Workload) -> dict[str, Any]:
    from collc.design.find import find

    known = _known(nodes, degree, given)
    designs = find(nodes, degree, two_way=given["duplex"], published=given["published"], known=known)
    rows = [_row(design, wanted, given["published"]) for design in designs]
    return {
        "nodes": nodes,
        "degree": degree,
        "size_bytes": wanted.nbytes,
        "alpha_us": float(wanted.alpha),
        "link_bandwidth_GBps": float(wanted.port),
        "tl_moore": _moore(nodes, degree, given["duplex"]),
        "tb_optimal_exact": str(Fraction(nodes - 1, nodes)),
        "bound_allreduce_us": wanted.time(2 * _moore(nodes, degree, given["duplex"]), Fraction(2 * (nodes - 1), nodes)),
        "best": min(rows, key=lambda row: row["allreduce_us"])["recipe"],
        "designs": rows,
    }


class Workload:
    """What a design is to be timed at."""

    def __init__(self, nbytes: int, alpha: Fraction, port: Fraction, degree: int) -> None:
        self.nbytes, self.alpha, self.port, self.degree = nbytes, alpha, port, degree

    @staticmethod
    def of(degree: int, given: dict[str, Any]) -> Workload:
        """As the options say."""
        from collc.units import parse_bytes

        nbytes = parse_bytes(given["size"])
        if nbytes < 1:
            raise InputError(f"-n {given['size']}: a message of no bytes; expected 1 or more")
        port = given["link_bandwidth"]
        return Workload(
            nbytes,
            positive(given["alpha"], "--alpha", least=Fraction(0)),
            _NODE_BANDWIDTH / degree if port is None else positive(port, "--link-bandwidth"),
            degree,
        )

    def time(self, steps: int, time: Fraction) -> float:
        """So many steps and so much T_B, in us."""
        return float(steps * self.alpha + time * self.nbytes / (self.port * self.degree * 1000))


def _row(design: Design, wanted: Workload, published: bool) -> dict[str, Any]:
    """A design as data; the paper's tables count a reduce-scatter as much as an allgather."""
    from collc.design import bounds
    from collc.design.schedule import price

    graph = design.build()
    is_alike = published or graph.is_two_way
    back = design.price if is_alike else price(design.recipe, is_reversed=True)
    return {
        "name": design.name,
        "recipe": design.recipe,
        "tl_steps": design.steps,
        "tb_exact": str(design.time),
        "tb": float(design.time),
        "reduce_scatter_tl_steps": back[0],
        "reduce_scatter_tb_exact": str(back[1]),
        "allgather_us": wanted.time(*design.price),
        "allreduce_us": wanted.time(design.steps + back[0], design.time + back[1]),
        "tl_moore": bounds.moore_steps(design.n, design.degree, two_way=graph.is_two_way),
        "tb_optimal_exact": str(Fraction(design.n - 1, design.n)),
        "diameter": graph.diameter,
        "directed": not graph.is_two_way,
        "dead_ports": design.n_loops,
        "eager": design.is_eager,
        **alltoall_document(graph),
    }


def _frontier(shown: dict[str, Any], wanted: Workload) -> Iterator[str]:
    from collc.cli.topo_text import render, table
    from collc.units import format_bytes

    rate = f"{float(wanted.port):g} GB/s per port, {float(wanted.alpha):g} us per step"
    size = format_bytes(wanted.nbytes)
    yield f"{shown['nodes']} GPUs with {shown['degree']} ports; allreduce of {size} at {rate}"
    header = ("design", "T_L", "T_B", "exact", "us", "links", "alltoall / Moore", "")
    rows = [
        (
            row["name"],
            str(row["tl_steps"]),
            f"{row['tb']:.5f}",
            row["tb_exact"],
            f"{row['allreduce_us']:.1f}",
            "one-way" if row["directed"] else "two-way",
            _alltoall(row),
            _remarks(row, row["recipe"] == shown["best"]),
        )
        for row in shown["designs"]
    ]
    best = Fraction(shown["tb_optimal_exact"])
    limit = ("no design can beat", str(shown["tl_moore"]), f"{float(best):.5f}", str(best))
    rows.append((*limit, f"{shown['bound_allreduce_us']:.1f}", "", "1.000", ""))
    yield from render(table(header, rows))
    yield "recipes, for collc topo generate:"
    for row in shown["designs"]:
        tail = "" if row["eager"] else "   (its schedule: collc synth -s bfb -o recipe=...)"
        yield f"  {row['recipe']}{tail}"


def _alltoall(row: dict[str, Any]) -> str:
    told = f"{row['alltoall_bound_over_moore']:.3f}"
    return told if row["alltoall_time_exact"] else f"at least {told}"


def _remarks(row: dict[str, Any], is_best: bool) -> str:
    told = ["best here"] if is_best else []
    if (row["reduce_scatter_tl_steps"], row["reduce_scatter_tb_exact"]) != (row["tl_steps"], row["tb_exact"]):
        told.append(f"reduce-scatter {row['reduce_scatter_tl_steps']}, {row['reduce_scatter_tb_exact']}")
    if row["dead_ports"]:
        told.append(f"{row['dead_ports']} dead ports")
    return ", ".join(told)


def _moore(n: int, degree: int, two_way: bool) -> int:
    from collc.design.bounds import moore_steps

    return moore_steps(n, degree, two_way=two_way)


def _catalogue(file: str | None) -> tuple[Known, ...]:
    """The designs of a user's file; none where it is yet to be written. Their costs are not believed."""
    from pathlib import Path

    from collc.design.known import loads
    from collc.errors import Place

    if file is None or not Path(file).exists():
        return ()
    try:
        return loads(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", Place(file)) from None


def _searched(n: int, degree: int, given: dict[str, Any], known: Sequence[Known]) -> tuple[Known, ...]:
    """What a search of so many seconds finds; kept in the user's file, if there is one."""
    from collc.cli.topo import write
    from collc.design.known import dumps
    from collc.design.search import search
    from collc.design.search_alltoall import search_alltoall

    seconds = given["seconds"]
    if not 0 < seconds < 1e7:
        raise InputError(f"--search {seconds}; expected a positive number of seconds")
    is_alltoall = given["objective"] == "alltoall"
    tries = (search_alltoall if is_alltoall else search)(
        n, degree, two_way=given["duplex"], seed=given["seed"], known=known
    )
    found = []
    start = perf_counter()
    with click.progressbar(length=1000, label="searching", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        shown = 0
        for one in tries:
            found += [one] if one is not None else []
            spent = perf_counter() - start
            if (now := min(1000, int(1000 * spent / seconds))) > shown:
                bar.update(now - shown)
                shown = now
            if spent >= seconds:
                break
    best = _undominated(found)
    if given["catalogue"] is not None:
        write(dumps(_undominated([*_catalogue(given["catalogue"]), *best])), given["catalogue"])
    click.echo(
        f"search: {len(best)} designs that were not known, of {', '.join(str(o.n) for o in best)} GPUs"
        if best
        else "search: nothing better than what is known",
        err=True,
    )
    return best


def _undominated(found: Sequence[Known]) -> tuple[Known, ...]:
    """Of each order and degree those that no other beats: in allgather, or kept for all-to-all in that."""
    kept: list[Known] = []
    for one in sorted(found, key=lambda one: (one.n, one.degree, one.steps, one.time, one.recipe)):
        rivals = [other for other in kept if (other.n, other.degree) == (one.n, one.degree) and other.alltoall is None]
        if one.alltoall is None and all(one.time < other.time for other in rivals):
            kept.append(one)
    best: dict[tuple[int, int], Known] = {}
    for one in found:
        if one.alltoall is not None:
            rival = best.setdefault((one.n, one.degree), one)
            best[one.n, one.degree] = min(rival, one, key=lambda one: (one.alltoall, one.steps, one.recipe))
    return (*kept, *best.values())
