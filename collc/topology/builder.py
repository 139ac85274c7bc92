"""From declarations to a `Topology`."""

from __future__ import annotations

from collections.abc import Iterator

from collc.ir.topology import Link, Topology
from collc.topology.expression import Value
from collc.topology.links import Cables
from collc.topology.reader import Declared
from collc.topology.vertices import place_vertices, rank_order


def build(declared: Declared, name: str) -> tuple[Topology, tuple[str, ...]]:
    """The topology and what the user should know about it, a sentence each.

    Raises:
        InputError: a name that is not there, a value out of range, too many vertices or links.
    """
    environment: dict[str, Value] = {parameter.name: parameter.value for parameter in declared.parameters}
    vertices = place_vertices(declared, environment)
    gpus = rank_order(declared, vertices)
    cables = Cables(vertices)
    for links in declared.links:
        cables.lay(links, environment)
    # One host has nothing to be joined with; a file without hosts means its fabric as it stands.
    if len(vertices.hosts) > 1 or not declared.hosts:
        for links in declared.fabric_links:
            cables.lay(links, environment)
    rank_of = {gpu: rank for rank, gpu in enumerate(gpus)}
    per_device = declared.ranks_per_device
    topology = Topology(
        name,
        gpus,
        tuple(vertices.switches),
        tuple(Link(src, dst, *figures) for (src, dst), figures in cables.links.items()),
        tuple(tuple(sorted(rank_of[gpu] for gpu in host)) for host in vertices.hosts),
        tuple(vertices.multicast),
        tuple(vertices.reduce),
        per_device.whole(environment, 1) if per_device else 1,
    )
    return topology, (*cables.warnings(), *_idle(topology))


def _idle(topology: Topology) -> Iterator[str]:
    linked = {end for link in topology.links for end in (link.src, link.dst)}
    idle = [switch for switch in topology.switches if switch not in linked]
    if idle:
        shown = ", ".join(idle[:3]) + (", ..." if len(idle) > 3 else "")
        yield f"{len(idle)} of {len(topology.switches)} switches have no links: {shown}"
