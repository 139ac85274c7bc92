"""`collc topo`: list, show and bound topologies; a commented example; the JSON Schema."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collc.ir.flow import Bound
    from collc.topology import Loaded

_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_OUTPUT = click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")


# Commands of the group with a file of their own, imported when used: name -> module of collc.cli.
_ELSEWHERE = {"degrade": "topo_degrade", "find": "topo_find", "generate": "topo_design"}


class _Topo(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *_ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(f"collc.cli.{_ELSEWHERE[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Topo)
def topo() -> None:
    """List, show and bound topologies; make and find designs; a commented example; the JSON Schema.

    TOPOLOGY is a YAML file, - for standard input, or a shipped name, with parameters after a
    colon: dgx-a100:hosts=4.
    """


@topo.command("list")
@_JSON
def list_shipped(as_json: bool) -> None:
    """The topologies that come with collc."""
    from collc.cli.topo_text import table
    from collc.topology import open_topology, shipped

    found = [(name, open_topology(name)) for name in shipped()]
    if as_json:
        shown = [
            {"name": name, "ranks": loaded.topology.n_ranks, "doc": loaded.doc, "parameters": _parameters(loaded)}
            for name, loaded in found
        ]
        click.echo(json.dumps(shown, indent=2))
        return
    rows = [
        (name, str(loaded.topology.n_ranks), " ".join(p.name for p in loaded.parameters), loaded.doc)
        for name, loaded in found
    ]
    _print(table(("name", "ranks", "parameters", ""), rows))


@topo.command()
@click.argument("topology")
@_JSON
@click.option("--yaml", "as_yaml", is_flag=True, help="The plain form: every vertex and link written out.")
def show(topology: str, as_json: bool, as_yaml: bool) -> None:
    """Hosts, switches, links, parameters and sources of TOPOLOGY."""
    from collc.cli.topo_text import summary
    from collc.topology import dumps_yaml, open_topology

    loaded = open_topology(topology)
    _warn(loaded.warnings)
    if as_yaml:
        click.echo(dumps_yaml(loaded.topology), nl=False)
    elif as_json:
        click.echo(json.dumps(_document(loaded), indent=2))
    else:
        from collc.cli.topo_design import design_lines

        _print((*summary(loaded), *design_lines(loaded)))


@topo.command()
@click.argument("topology")
@click.option("-c", "--collective", default="allgather", show_default=True, help="As in collc synth.")
@click.option("--root", type=int, help="Root rank of broadcast, reduce, gather, scatter.")
@_JSON
def bound(topology: str, collective: str, root: int | None, as_json: bool) -> None:
    """The bandwidth no schedule can beat on TOPOLOGY, exactly, and what causes it."""
    from collc import cost
    from collc.cli.topo_text import exactly, plural, proof, side_by_side
    from collc.ir.collective import Problem, make_collective
    from collc.ir.flow import Prices
    from collc.report import witness
    from collc.topology import open_topology

    start = perf_counter()
    loaded = open_topology(topology)
    _warn(loaded.warnings)
    fabric = loaded.topology
    problem = Problem(fabric, make_collective(collective, fabric.n_ranks, root=root))
    found = cost.tree_bound(problem)
    limits = cost.alltoall_limits(problem) if found else ()
    if as_json:
        shown = {
            "topology": topology,
            "ranks": fabric.n_ranks,
            "collective": collective,
            **_rate(found),
            "witness": witness(problem, found) if found else None,
            **cost.limits_document(limits),
            "seconds": perf_counter() - start,
        }
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(f"{collective} on {topology}, {plural(fabric.n_ranks, 'rank')}")
    if found is None:
        click.echo("  nothing moves between ranks: there is no limit")
        return
    kind = "schedule of trees" if isinstance(found.witness, Prices) and found.witness.rooted else "schedule"
    click.echo(f"  bound    {exactly(found.algbw)} GB/s algbw: no {kind} is faster for large messages")
    for line in (*proof(fabric, found), *side_by_side(limits)):
        click.echo(f"  {line}")


@topo.command()
@_OUTPUT
def new(output: str | None) -> None:
    """A commented topology file to start from."""
    from collc.topology import example

    write(example(), output)


@topo.command()
@_OUTPUT
def schema(output: str | None) -> None:
    """The JSON Schema of topology files, for editors."""
    from collc.topology import schema as json_schema

    write(json.dumps(json_schema(), indent=2) + "\n", output)


def _rate(found: Bound | None) -> dict[str, Any]:
    if found is None:
        return {"bound_algbw_GBps": None, "bound_exact": None}
    return {"bound_algbw_GBps": float(found.algbw), "bound_exact": str(found.algbw)}


def _document(loaded: Loaded) -> dict[str, Any]:
    from collc.cli.topo_design import design_document

    fabric = loaded.topology
    switches = [
        {"name": name, "multicast": name in fabric.multicast, "reduce": name in fabric.reduce}
        for name in fabric.switches
    ]
    links = [
        {
            "src": link.src,
            "dst": link.dst,
            "bandwidth_GBps": float(link.bandwidth),
            "bandwidth_exact": str(link.bandwidth),
            "latency_us": float(link.latency),
        }
        for link in fabric.links
    ]
    return {
        "name": fabric.name,
        "doc": loaded.doc,
        "ranks": fabric.n_ranks,
        "gpus": list(fabric.gpus),
        "hosts": [list(host) for host in fabric.hosts],
        "ranks_per_device": fabric.ranks_per_device,
        "switches": switches,
        "links": links,
        "parameters": _parameters(loaded),
        "sources": [{"key": key, "source": source} for key, source in loaded.sources],
        "warnings": list(loaded.warnings),
        "design": design_document(loaded),
    }


def _parameters(loaded: Loaded) -> list[dict[str, Any]]:
    from collc.cli.topo_text import value_text

    return [
        {"name": p.name, "value": value_text(p.value), "default": value_text(p.default), "doc": p.doc}
        for p in loaded.parameters
    ]


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        click.echo(f"collc: warning: {warning}", err=True)


def _print(blocks: Sequence[Any]) -> None:
    from collc.cli.topo_text import render

    for text in render(blocks):
        click.echo(text)


def write(text: str, output: str | None) -> None:
    """A text to standard output, or to a file, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    if output is None or output == "-":
        click.echo(text, nl=False)
        return
    from pathlib import Path

    from collc.files import write_all

    path = Path(output)
    write_all(str(path.parent), {path.name: text})
