"""Flow -> steps: trees get their chunks and every hop its logical step."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import lcm

from collc.errors import UnsupportedError
from collc.ir.flow import FlowSchedule, Tree
from collc.ir.schedule import Schedule, Send
from collc.ir.topology import Route


@dataclass(frozen=True)
class LowerFlow:
    """Gives each tree chunks that lie side by side, and each of its hops a step.

    A hop's step comes after those that feed it, and no two sends of one step use the same pair of
    ranks and channel; among the hops that are ready, trees that still have far to go are first.

    Attributes:
        instances: copies of every tree, each with its own part of the data and its own channels.
        chunks: chunks per rank block and instance, where more are wanted than the trees need.
    """

    instances: int = 1
    chunks: int = 1

    def run(self, flow: FlowSchedule) -> Schedule:
        """The schedule that moves every tree's share along its hops.

        Raises:
            UnsupportedError: fewer than one instance or chunk, or switches that add or copy.
        """
        if flow.in_network:
            raise UnsupportedError("steps lead from GPU to GPU; they cannot say that switches add or copy")
        if self.instances < 1 or self.chunks < 1:
            raise UnsupportedError(f"instances {self.instances}, chunks {self.chunks}; expected 1 or more of each")
        table = flow.problem.collective.chunks
        cut = lcm(flow.chunks_per_slot, self.chunks)
        factor = cut * self.instances
        first = [0, *accumulate(chunk.count * factor for chunk in table)]
        pieces = _pieces(flow, cut, self.instances, first)
        sends = _Stepper(flow.trees, pieces).run()
        problem = replace(flow.problem, collective=flow.problem.collective.refined(factor))
        return Schedule(problem, sends, flow.time, flow.notes)


# (tree, first chunk, number of chunks, channel)
_Piece = tuple[int, int, int, int]


def _pieces(flow: FlowSchedule, cut: int, instances: int, first: list[int]) -> list[_Piece]:
    """One entry per tree and instance; the chunks of one table row are dealt out in tree order."""
    table = flow.problem.collective.chunks
    used: dict[int, int] = defaultdict(int)
    pieces = []
    for index, tree in enumerate(flow.trees):
        count = int(tree.weight * table[tree.chunk].count * cut)
        for instance in range(instances):
            start = first[tree.chunk] + instance * table[tree.chunk].count * cut + used[tree.chunk]
            pieces.append((index, start, count, instance))
        used[tree.chunk] += count
    return pieces


class _Stepper:
    """List scheduling: the earliest step at which the data is there and the connection is free."""

    def __init__(self, trees: Sequence[Tree], pieces: list[_Piece]) -> None:
        self.hops = [
            [(route, True) for route in tree.reduce] + [(route, False) for route in tree.broadcast] for tree in trees
        ]
        self.feeds = [_feeds(tree) for tree in trees]
        self.remaining = [_remaining(feeds) for feeds in self.feeds]
        self.pieces = pieces
        self.busy: dict[tuple[int, int, int], set[int]] = defaultdict(set)

    def run(self) -> tuple[Send, ...]:
        ready: list[tuple[int, int, int, int]] = []  # step, -hops still to go, piece, hop
        waits: dict[tuple[int, int], int] = {}
        for number, (tree, *_) in enumerate(self.pieces):
            for hop, fed_by in enumerate(_fed_by(self.feeds[tree])):
                waits[number, hop] = fed_by
                if not fed_by:
                    heapq.heappush(ready, (0, -self.remaining[tree][hop], number, hop))
        earliest: dict[tuple[int, int], int] = defaultdict(int)
        sends = []
        while ready:
            wanted, _, number, hop = heapq.heappop(ready)
            tree, start, count, channel = self.pieces[number]
            route, is_reduce = self.hops[tree][hop]
            step = self._free_step(route, channel, wanted)
            sends.append(Send(step, start, route, is_reduce, count, channel))
            for fed in self.feeds[tree][hop]:
                waits[number, fed] -= 1
                earliest[number, fed] = max(earliest[number, fed], step + 1)
                if not waits[number, fed]:
                    heapq.heappush(ready, (earliest[number, fed], -self.remaining[tree][fed], number, fed))
        return tuple(sorted(sends, key=lambda send: (send.step, send.chunk, send.route.src, send.route.dst)))

    def _free_step(self, route: Route, channel: int, wanted: int) -> int:
        busy = self.busy[route.src, route.dst, channel]
        while wanted in busy:
            wanted += 1
        busy.add(wanted)
        return wanted


def _feeds(tree: Tree) -> list[list[int]]:
    """For each hop the hops that can only start when it is done: what it brings, they take on."""
    hops = [*tree.reduce, *tree.broadcast]
    split = len(tree.reduce)
    leaving: dict[int, list[int]] = defaultdict(list)
    for hop, route in enumerate(hops):
        leaving[route.src].append(hop)
    feeds = []
    for hop, route in enumerate(hops):
        # A reduction feeds what its receiver sends on in either phase; a copy only further copies.
        feeds.append([after for after in leaving[route.dst] if after > hop and (hop < split or after >= split)])
    return feeds


def _fed_by(feeds: list[list[int]]) -> list[int]:
    counts = [0] * len(feeds)
    for fed in feeds:
        for hop in fed:
            counts[hop] += 1
    return counts


def _remaining(feeds: list[list[int]]) -> list[int]:
    """Hops on the longest way from each hop to a leaf."""
    longest = [0] * len(feeds)
    for hop in range(len(feeds) - 1, -1, -1):
        longest[hop] = max((longest[fed] + 1 for fed in feeds[hop]), default=0)
    return longest
