"""`collc topo degrade`: the topology file of a fabric after failures."""

from __future__ import annotations

import click

from collc.errors import InputError


@click.command()
@click.argument("topology")
@click.option("--drop", multiple=True, metavar="LINK", help="A link that is gone: a->b, or a-b for both directions.")
@click.option("--scale", multiple=True, metavar="LINK=F", help="A link with F times its bandwidth.")
@click.option("--drop-gpu", "drop_gpus", multiple=True, metavar="GPU", help="A GPU that is gone, by name or rank.")
@click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.")
def degrade(
    topology: str, drop: tuple[str, ...], scale: tuple[str, ...], drop_gpus: tuple[str, ...], output: str | None
) -> None:
    """TOPOLOGY with failed or slower links, or without some GPUs, as a topology file.

    The file says what it was made from, and `collc synth` compares with that.
    """
    if not (drop or scale or drop_gpus):
        raise InputError("nothing is degraded; expected --drop LINK, --scale LINK=F or --drop-gpu GPU")
    from dataclasses import replace

    from collc.cli.topo import write
    from collc.errors import Place
    from collc.topology import dumps_yaml, open_topology
    from collc.topology.degrade import degraded
    from collc.topology.reach import check_reach

    loaded = open_topology(topology)
    for warning in loaded.warnings:
        click.echo(f"collc: warning: {warning}", err=True)
    fabric = degraded(loaded.topology, drop, scale, drop_gpus)
    check_reach(fabric, Place(topology))
    write(dumps_yaml(replace(fabric, name=f"{fabric.name}-degraded"), degraded_from=topology), output)
