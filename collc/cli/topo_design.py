"""`collc topo generate`: a direct-connect design as a topology, and what `collc topo show` says of one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from collc.errors import InputError

if TYPE_CHECKING:
    from collc.design.graph import Graph

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_OUTPUT = click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")


# --- generate --------------------------------------------------------------------------------------


@click.command()
@click.argument("family", required=False)
@click.argument("values", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--bandwidth", default="25/8", show_default=True, metavar="GBPS", help="Of a port, each way [GB/s].")
@click.option("--latency", default="0.5", show_default=True, metavar="US", help="Of a cable [us].")
@click.option("--host-bandwidth", metavar="GBPS", help="Cables end at NICs; what a GPU and its NIC exchange [GB/s].")
@click.option(
    "--forwarding",
    type=click.Choice(["nic", "host"]),
    help="With --host-bandwidth: who passes on what is for others, paying for the host or not.  [default: nic]",
)
@click.option("--wiring", is_flag=True, help="Which port is cabled to which, instead of YAML.")
@click.option("--list", "list_families", is_flag=True, help="The families and their parameters.")
@_JSON
@_OUTPUT
def generate(family: str | None, values: tuple[str, ...], list_families: bool, as_json: bool, **given: Any) -> None:
    """A direct-connect design as a topology file.

    FAMILY is one of --list with its parameters (torus dims=4x4), or a whole recipe as `collc topo
    find` prints them: line(bipartite(degree=4)).
    """
    if list_families:
        click.echo(_families(as_json), nl=False)
        return
    if family is None:
        raise click.UsageError("Missing argument 'FAMILY'; --list shows them.")
    graph = _graph(family, values)
    if given["wiring"]:
        text = _wiring(graph, as_json)
    elif as_json:
        text = json.dumps(_described(graph), indent=2) + "\n"
    else:
        text = _yaml(graph, given)
    from collc.cli.topo import write

    write(text, given["output"])


def _graph(family: str, values: Sequence[str]) -> Graph:
    from collc.cli.request import key_values
    from collc.design.families import build
    from collc.design.recipe import parse

    if "(" in family:
        if values:
            raise InputError(f"a recipe holds all its parameters; expected none after it, found {' '.join(values)}")
        return parse(family)
    return build(family, key_values(values, family, str))


def _yaml(graph: Graph, given: dict[str, Any]) -> str:
    """The topology file; refused where some GPU could not reach another."""
    from collc.design.wiring import topology_of
    from collc.topology import dumps_yaml

    host = given["host_bandwidth"]
    if host is None and given["forwarding"]:
        raise InputError("--forwarding tells who forwards between cables and hosts; give --host-bandwidth too")
    graph.distances_to(0)  # refuses what falls apart: if one is reached from all of a regular graph, all are
    topology = topology_of(
        graph,
        positive(given["bandwidth"], "--bandwidth"),
        positive(given["latency"], "--latency", least=Fraction(0)),
        None if host is None else positive(host, "--host-bandwidth"),
        given["forwarding"] or "nic",
    )
    name, rest = dumps_yaml(topology).split("\n", 1)
    doc = f"{graph.name}, {graph.n} GPUs of {graph.degree} ports"
    if graph.n_loops:
        doc += f", {graph.n_loops} of all of them dead"
    return f"{name}\ndoc: {json.dumps(doc)}\nsource: {json.dumps(RECIPE + graph.recipe)}\n{rest}"


# How a topology file says by which recipe it was built.
RECIPE = "collc topo generate "


def _wiring(graph: Graph, as_json: bool) -> str:
    from collc.design.wiring import cables

    if as_json:
        keys = ("gpu", "port", "to_gpu", "to_port", "both_ways")
        return json.dumps([dict(zip(keys, cable, strict=True)) for cable in cables(graph)], indent=2) + "\n"
    lines = [f"g{a}:{p} {'<->' if both else '->'} g{b}:{q}\n" for a, p, b, q, both in cables(graph)]
    return "".join(lines)


def _families(as_json: bool) -> str:
    from collc.design.families import FAMILIES, describe

    told = [describe(name) for name in FAMILIES]
    if as_json:
        return json.dumps(told, indent=2) + "\n"
    lines = []
    for one in told:
        words = [key if default is None else f"[{key}={default}]" for key, default in one["parameters"].items()]
        lines += [f"{' '.join([one['name'], *words])}", f"    {one['summary']}"]
        lines += [f"    Exists: {one['exists']}. {one['costs']}", f"    Source: {one['source']}"]
    lines += ["line(X) line(X,n) degree(X,n) power(X,n) product(X,Y,...) duplex(X) reverse(X)", "    Of recipes X, Y."]
    return "\n".join(lines) + "\n"


# --- show ------------------------------------------------------------------------------------------


def design_lines(loaded: Any) -> list[str]:
    """What `collc topo show` adds for ranks joined by equal cables alone; nothing for other fabrics."""
    graph = _graph_of(loaded)
    if graph is None:
        return []
    told = _described(graph)
    share = f"{told['tb']:.5f} M/B (optimum {told['tb_optimal_exact']})"
    steps = f"T_L {told['tl_steps']} steps (Moore bound {told['tl_moore']})"
    lines = [
        "",
        f"direct-connect, {graph.degree} ports each, {'two-way' if graph.is_two_way else 'one-way'}"
        + (f", {graph.n_loops} dead ports in all" if graph.n_loops else ""),
        f"  breadth-first allgather: {steps}, T_B {told['tb_exact']} = {share}",
    ]
    if not graph.is_two_way:
        back = f"T_L {told['reduce_scatter_tl_steps']}, T_B {told['reduce_scatter_tb_exact']}"
        lines.append(f"  breadth-first reduce-scatter: {back} M/B")
    counts = ", ".join(f"{step}: {count:.6g}" for step, count in list(told["distances"].items())[:12])
    more = "" if len(told["distances"]) <= 12 else ", ..."
    alltoall = f"{told['alltoall_bound_exact']} M/B at best"
    if told["alltoall_time_exact"] is None:
        alltoall = f"at least {told['alltoall_bound_exact']} M/B by distances"
    lines += [
        f"  diameter {told['diameter']}; GPUs by distance {counts}{more}",
        f"  bisection at most {told['bisection_links']} links of {graph.n * graph.degree}",
        f"  all-to-all {alltoall} ({told['alltoall_bound_over_moore']:.3f} of the Moore bound)",
    ]
    return lines


def design_document(loaded: Any) -> dict[str, Any] | None:
    """The same as data."""
    graph = _graph_of(loaded)
    return None if graph is None else _described(graph)


def _described(graph: Graph) -> dict[str, Any]:
    from collc.design import bounds
    from collc.design.eager import eager_cost

    cost, back = eager_cost(graph), eager_cost(graph.transpose)
    return {
        "name": graph.name,
        "recipe": graph.recipe,
        "nodes": graph.n,
        "degree": graph.degree,
        "dead_ports": graph.n_loops,
        "directed": not graph.is_two_way,
        "tl_steps": cost.steps,
        "tb_exact": str(cost.time),
        "tb": float(cost.time),
        "loads_exact": [str(load) for load in cost.loads],
        "reduce_scatter_tl_steps": back.steps,
        "reduce_scatter_tb_exact": str(back.time),
        "tl_moore": bounds.moore_steps(graph.n, graph.degree, two_way=graph.is_two_way),
        "tb_optimal_exact": str(Fraction(graph.n - 1, graph.n)),
        "diameter": graph.diameter,
        "distances": {str(step): _count(count) for step, count in bounds.distance_counts(graph).items()},
        "bisection_links": bounds.bisection(graph),
        **alltoall_document(graph),
    }


def alltoall_document(graph: Graph) -> dict[str, Any]:
    """The time of the best all-to-all [M/B] where symmetries tell it, and what bounds it: that, or distances."""
    from collc.design.alltoall import alltoall_optimum
    from collc.design.bounds import alltoall_limit, alltoall_time

    time = alltoall_optimum(graph)
    least = alltoall_time(graph) if time is None else time
    return {
        "alltoall_time_exact": None if time is None else str(time),
        "alltoall_bound_exact": str(least),
        "alltoall_bound_over_moore": float(least / alltoall_limit(graph.n, graph.degree)),
    }


def _count(count: Fraction) -> int | float:
    return int(count) if count.denominator == 1 else float(count)


def _graph_of(loaded: Any) -> Graph | None:
    """The graph of a topology; built by its recipe where it tells one, for the symmetries."""
    from collc.design.graph import MOST_VERTICES
    from collc.design.recipe import parse
    from collc.design.wiring import with_symmetries
    from collc.errors import CollcError, UnsupportedError
    from collc.synth.bfb.fabric import as_fabric, as_graph

    topology = loaded.topology
    if topology.switches or not 1 < topology.n_ranks <= MOST_VERTICES:
        return None
    fabric = as_fabric(topology)
    links = {(lane.tail, lane.head): lane.capacity for lane in fabric.lanes.lanes}
    told = [text.removeprefix(RECIPE) for _, text in loaded.sources if text.startswith(RECIPE)]
    for recipe in told[:1]:
        try:
            built = parse(recipe)
        except CollcError:
            break  # somebody edited the recipe; the links still say what the graph is
        if built.n == topology.n_ranks and dict(built.arcs) == links:
            return built
    try:
        graph, _ = as_graph(fabric)
    except UnsupportedError:
        return None
    return with_symmetries(graph.renamed(topology.name, ""))


def positive(text: str, option: str, least: Fraction | None = None) -> Fraction:
    """A number above zero, or from `least` on.

    Raises:
        InputError: it is none.
    """
    from collc.units import parse_number

    try:
        value = parse_number(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}; expected a number") from None
    if value < least if least is not None else value <= 0:
        raise InputError(f"{option} {text}; expected {'zero or more' if least is not None else 'a positive number'}")
    return value
