"""`collc topo find --objective alltoall`: designs by the exact time of their best all-to-all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collc.cli.topo_find import Workload
    from collc.design.find_alltoall import AllToAll
    from collc.design.known import Known

# Designs shown: of those whose optimum is known, and of those beside.
_EXACT = 8
_BESIDE = 2
# GPUs up to which a design without symmetries is solved by `-s mcf`, in seconds.
_MOST_SOLVED = 64


def document(nodes: int, degree: int, two_way: bool, known: Sequence[Known], wanted: Workload) -> dict[str, Any]:
    """The answer of the command, but for the seconds it took."""
    from collc.design import bounds
    from collc.design.find_alltoall import find_alltoall

    found = _chosen(find_alltoall(nodes, degree, two_way=two_way, known=known))
    rows = [_row(one, wanted) for one in found]
    moore = bounds.alltoall_limit(nodes, degree)
    timed = [row for row in rows if row["alltoall_us"] is not None] or rows
    return {
        "nodes": nodes,
        "degree": degree,
        "objective": "alltoall",
        "size_bytes": wanted.nbytes,
        "alpha_us": float(wanted.alpha),
        "link_bandwidth_GBps": float(wanted.port),
        "moore_time_exact": str(moore),
        "moore_rate_exact": str(Fraction(degree, nodes) / moore),
        "moore_algbw_GBps": float(wanted.port * degree / moore),
        "moore_diameter": bounds.moore_steps(nodes, degree, two_way=two_way),
        "bound_alltoall_us": wanted.time(bounds.moore_steps(nodes, degree, two_way=two_way), moore),
        "best": min(timed, key=lambda row: row["alltoall_us"] or 0)["recipe"],
        "designs": rows,
    }


def _chosen(found: Sequence[AllToAll]) -> list[AllToAll]:
    """The best few whose optimum is known, one of equal ones; and a few others, the generalized Kautz among them."""
    first: dict[tuple[Fraction, int], AllToAll] = {}
    for one in found:
        if one.time is not None:
            first.setdefault((one.time, one.graph.diameter), one)
    beside = [one for one in found if one.time is None]
    kautz = [one for one in beside if one.graph.recipe.startswith("genkautz") and "repair" not in one.graph.recipe]
    chosen = [*beside[: _BESIDE - len(kautz)], *kautz]
    return [*list(first.values())[:_EXACT], *[one for one in beside if one in chosen]]


def _row(one: AllToAll, wanted: Workload) -> dict[str, Any]:
    from collc.design import bounds
    from collc.design.eager import best_time, eager_cost

    graph = one.graph
    time, least = one.time, one.least
    if time is None and graph.n <= _MOST_SOLVED:
        time, least = _solved(one)
    cost = eager_cost(graph)
    limit = bounds.alltoall_limit(graph.n, graph.degree)
    mean = sum((step * count for step, count in bounds.distance_counts(graph).items()), Fraction(0)) / (graph.n - 1)
    return {
        "name": graph.name,
        "recipe": graph.recipe,
        "alltoall_time_exact": None if time is None else str(time),
        "alltoall_bound_exact": str(least),
        "alltoall_is_exact": time == least,
        "alltoall_over_moore": None if time is None else float(time / limit),
        "alltoall_bound_over_moore": float(least / limit),
        "rate_exact": None if time is None else str(Fraction(graph.degree, graph.n) / time),
        "algbw_GBps": None if time is None else float(wanted.port * graph.degree / time),
        "bound_algbw_GBps": float(wanted.port * graph.degree / least),
        "alltoall_us": None if time is None else wanted.time(graph.diameter, time),
        "diameter": graph.diameter,
        "mean_distance": float(mean),
        "directed": not graph.is_two_way,
        "dead_ports": graph.n_loops,
        "tl_steps": cost.steps,
        "tb_exact": str(cost.time),
        "tl_moore": bounds.moore_steps(graph.n, graph.degree, two_way=graph.is_two_way),
        "tb_optimal_exact": str(best_time(graph.n)),
    }


def _solved(one: AllToAll) -> tuple[Fraction, Fraction]:
    """(T that `-s mcf` reaches, T that it proves no schedule beats) [M/B]."""
    from collc.choose import synthesize
    from collc.design.wiring import topology_of
    from collc.ir.collective import Problem, make_collective
    from collc.request import Clock

    graph = one.graph
    topology = topology_of(graph, Fraction(1), Fraction(0))
    made = synthesize(Problem(topology, make_collective("alltoall", graph.n)), "mcf", {}, Clock()).made
    return made.time * graph.degree, made.bound.time * graph.degree if made.bound else one.least


def table(shown: dict[str, Any], wanted: Workload) -> Iterator[str]:
    """The answer for eyes."""
    from collc.cli.topo_text import render
    from collc.cli.topo_text import table as made
    from collc.units import format_bytes

    rate = f"{float(wanted.port):g} GB/s per port, {float(wanted.alpha):g} us per step"
    yield f"{shown['nodes']} GPUs with {shown['degree']} ports; all-to-all of {format_bytes(wanted.nbytes)} at {rate}"
    header = ("design", "diameter", "mean", "F", "time / Moore", "GB/s", "us", "links", "")
    rows = [
        (
            row["name"],
            str(row["diameter"]),
            f"{row['mean_distance']:.3f}",
            _rate(row),
            _over_moore(row),
            _or(row["algbw_GBps"], ".3f", f"at most {row['bound_algbw_GBps']:.3f}"),
            _or(row["alltoall_us"], ".1f", ""),
            "one-way" if row["directed"] else "two-way",
            _remarks(row, shown["best"]),
        )
        for row in shown["designs"]
    ]
    limit = (
        shown["moore_rate_exact"],
        "1.000",
        f"{shown['moore_algbw_GBps']:.3f}",
        f"{shown['bound_alltoall_us']:.1f}",
    )
    rows.append(("no design can beat", str(shown["moore_diameter"]), "", *limit, "", ""))
    yield from render(made(header, rows))
    yield "recipes, for collc topo generate:"
    yield from (f"  {row['recipe']}" for row in shown["designs"])


def _rate(row: dict[str, Any]) -> str:
    """The rate of a pair, exactly where that is short."""
    if row["rate_exact"] is None:
        return ""
    return row["rate_exact"] if row["alltoall_is_exact"] else f"{float(Fraction(row['rate_exact'])):.6g}"


def _over_moore(row: dict[str, Any]) -> str:
    low = f"{row['alltoall_bound_over_moore']:.3f}"
    if row["alltoall_over_moore"] is None:
        return f"at least {low}"
    high = f"{row['alltoall_over_moore']:.3f}"
    return high if high == low else f"{low} to {high}"


def _or(value: float | None, form: str, otherwise: str) -> str:
    return otherwise if value is None else format(value, form)


def _remarks(row: dict[str, Any], best: str) -> str:
    told = ["best here"] if row["recipe"] == best else []
    if row["dead_ports"]:
        told.append(f"{row['dead_ports']} dead ports")
    return ", ".join(told)
