"""Load of links under a flow that counts on switches that copy and add.

A piece of a tree's data crosses a hop once for all routes that are still one stream there: they leave
the same rank and agree up to the next switch that copies, since only there one stream becomes several.
Sums are the same thing seen from the rank that receives them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from collc.ir.flow import FlowSchedule, Tree
from collc.ir.topology import Topology

Hop = tuple[str, str]


def crossings(flow: FlowSchedule) -> Mapping[Hop, int]:
    """Load of each link, in the units of `flow.traffic`."""
    topology, table = flow.problem.topology, flow.problem.collective.chunks
    slots = [tree.weight * table[tree.chunk].count for tree in flow.trees]
    unit = math.lcm(*(share.denominator for share in slots))
    loads: Counter[Hop] = Counter()
    for tree, share in zip(flow.trees, slots, strict=True):
        load = int(share * unit)
        for hop in _crossed(topology, tree):
            loads[hop] += load
    return loads


def _crossed(topology: Topology, tree: Tree) -> Iterator[Hop]:
    yield from _streams((route.path for route in tree.broadcast), topology.multicast)
    yield from ((b, a) for a, b in _streams((route.path[::-1] for route in tree.reduce), topology.reduce))


def _streams(paths: Iterable[Sequence[str]], branching: Collection[str]) -> Iterator[Hop]:
    """The hops of paths, one for each stream: all paths that agree up to where it may split."""
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for path in paths:
        end = len(path)
        # From the far end, so that the next place where the stream may split is known.
        for place in range(len(path) - 1, 0, -1):
            if path[place] in branching:
                end = place + 1
            stream = place, tuple(path[:end])
            if stream not in seen:
                seen.add(stream)
                yield path[place - 1], path[place]
