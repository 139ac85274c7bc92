"""What a tree puts on links where switches add and copy.

Routes of one tree that leave the same rank run as one stream as long as they have the same way before
them to a switch that copies; those that arrive at the same rank do so from a switch that adds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from collc.ir.flow import Tree
from collc.ir.topology import Topology

Path = Sequence[str]


def shared_hops(topology: Topology, tree: Tree) -> Iterator[tuple[str, str]]:
    """The links a tree crosses, each as often as it does."""
    away = _by_start(route.path for route in tree.broadcast)
    for paths in away.values():
        crossed: list[tuple[str, str]] = []
        _streams(paths, 0, topology.multicast, crossed)
        yield from crossed
    # Sums are copies that run backwards.
    back = _by_start(route.path[::-1] for route in tree.reduce)
    for paths in back.values():
        crossed = []
        _streams(paths, 0, topology.reduce, crossed)
        yield from ((head, tail) for tail, head in crossed)


def _by_start(paths: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path[0], []).append(path)
    return found


def _streams(paths: Sequence[Path], place: int, branching: Collection[str], crossed: list[tuple[str, str]]) -> int:
    """Streams that enter the vertex at `place`, up to which all paths are one; notes those beyond it."""
    here = paths[0][place]
    onward: dict[str, list[Path]] = {}
    for path in paths:
        if len(path) > place + 1:
            onward.setdefault(path[place + 1], []).append(path)
    streams = len(paths) - sum(map(len, onward.values()))
    for head, group in onward.items():
        inside = _streams(group, place + 1, branching, crossed)
        crossed.extend([(here, head)] * inside)
        streams += inside
    return 1 if here in branching else streams
