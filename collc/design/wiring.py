"""A design as a fabric: a topology with its links' bandwidths, and which port is cabled to which."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from collc.design.graph import Graph, Permutation, is_symmetry
from collc.ir.topology import Link, Topology


def topology_of(
    graph: Graph,
    bandwidth: Fraction,
    latency: Fraction,
    host_bandwidth: Fraction | None = None,
    forwarding: Literal["nic", "host"] = "nic",
) -> Topology:
    """GPUs g0, g1, ... joined as the graph's vertices are; dead ports are left out.

    Every GPU's links come in the order of its ports: by that the symmetries of a Cayley graph show again.

    Args:
        bandwidth: of every port [GB/s each way].
        latency: of every cable [us].
        host_bandwidth: what a GPU and its NIC exchange [GB/s each way]. None: the cables end at the GPUs.
        forwarding: whether NICs pass on what is for others, or only GPUs do, so that it crosses the host twice;
            a NIC is then drawn as two vertices, one for what comes in and one for what goes out.
    """
    gpus = tuple(f"g{vertex}" for vertex in range(graph.n))
    into = outof = gpus
    links: list[Link] = []
    switches: tuple[str, ...] = ()
    if host_bandwidth is not None:
        sides = ("nic", "nic") if forwarding == "nic" else ("in", "out")
        into, outof = (tuple(f"{side}{vertex}" for vertex in range(graph.n)) for side in sides)
        switches = tuple(dict.fromkeys([*into, *outof]))
        for gpu, arrival, departure in zip(gpus, into, outof, strict=True):
            links += [Link(gpu, departure, host_bandwidth), Link(arrival, gpu, host_bandwidth)]
    for (tail, head), count in graph.arcs.items():
        links.append(Link(outof[tail], into[head], bandwidth * count, latency))
    return Topology(slug(graph.recipe), gpus, switches, tuple(links))


def slug(recipe: str) -> str:
    """A recipe as a plain name.

    >>> slug("line(circulant(n=16,offsets=3x4))")
    'line-circulant-16-3x4'
    """
    words = re.sub(r"[a-z]+=", "", recipe)
    return re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")[:60].rstrip("-")


def cables(graph: Graph) -> Iterator[tuple[int, int, int, int, bool]]:
    """(vertex, port, vertex, port, whether both ways): every cable once, ports counted from zero.

    Where every link has a twin, a cable joins the two; else a cable goes from a port out to a port in.
    """
    if graph.is_two_way:
        yield from _both_ways(graph)
        return
    taken: dict[int, int] = defaultdict(int)
    for tail, row in enumerate(graph.heads):
        for port, head in enumerate(row):
            if head != tail:
                yield tail, port, head, taken[head], False
                taken[head] += 1


def _both_ways(graph: Graph) -> Iterator[tuple[int, int, int, int, bool]]:
    ports: dict[tuple[int, int], list[int]] = defaultdict(list)
    for tail, row in enumerate(graph.heads):
        for port, head in enumerate(row):
            ports[tail, head].append(port)
    for (tail, head), mine in ports.items():
        if tail < head:
            for port, other in zip(mine, ports[head, tail], strict=True):
                yield tail, port, head, other, True


def with_symmetries(graph: Graph) -> Graph:
    """The graph with those symmetries that are found by turning one digit of the vertices' numbers.

    Finds what makes rings, circulants, tori and hypercubes alike from every vertex, as people number them.
    """
    found = tuple(image for image in _turns(graph.n) if is_symmetry(graph.heads, image))
    return replace(graph, symmetries=graph.symmetries + found)


def _turns(n: int) -> Iterator[Permutation]:
    divisors = [value for value in range(1, n + 1) if n % value == 0]
    for place in divisors:
        for radix in divisors:
            if radix > 1 and n % (place * radix) == 0:
                yield tuple(x + ((x // place + 1) % radix - x // place % radix) * place for x in range(n))
