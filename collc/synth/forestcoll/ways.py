"""From packed trees to routes between GPUs, and both halves of an all-reduce laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from collc.ir.topology import Route
from collc.synth import _overlay
from collc.synth.forestcoll.scale import Instance


@dataclass(frozen=True)
class Way:
    """A share of what a root sends or receives, and the routes it takes, in the order of travel."""

    root: int
    share: Fraction
    routes: tuple[Route, ...]

    def reversed(self) -> Way:
        """The same routes walked from the leaves to the root."""
        return Way(self.root, self.share, tuple(route.reversed() for route in reversed(self.routes)))


def routes_of(instance: Instance, paths: Sequence[Sequence[int]], n_gpus: int) -> tuple[Route, ...]:
    """The routes between GPUs of a packed tree.

    Args:
        paths: the links of each hop between vertices that the instance takes for GPUs.
        n_gpus: how many of these really are; the others are switches, which routes pass through.
    """
    way_to: dict[int, tuple[int, ...]] = {}
    routes = []
    for path in paths:
        start = instance.tails[path[0]]
        way = (*way_to.get(start, (start,)), *(instance.heads[arc] for arc in path))
        if way[-1] < n_gpus:
            routes.append(Route(way[0], way[-1], tuple(instance.names[vertex] for vertex in way)))
        else:
            way_to[way[-1]] = way
    return tuple(routes)


def overlay(ups: Sequence[Way], downs: Sequence[Way]) -> list[tuple[Way, Way]]:
    """Ways of one root that travel together, cut to their common share."""
    up_parts, down_parts = ([(way.root, way.share) for way in ways] for ways in (ups, downs))
    return [
        (replace(ups[up], share=share), replace(downs[down], share=share))
        for up, down, share in _overlay.overlay(up_parts, down_parts)
    ]
