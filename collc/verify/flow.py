"""Checks a flow schedule exactly: routes, trees, weights, load per link, and the bound's witness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from collc.ir.collective import Chunk, Collective
from collc.ir.flow import FlowSchedule, Forest, Orbit, Tree
from collc.ir.topology import Route
from collc.verify import forest
from collc.verify.findings import Finding
from collc.verify.links import add_up, route_faults, time_faults
from collc.verify.orbit import Renamed
from collc.verify.sharing import crossings
from collc.verify.witness import bound_faults


def examine(flow: FlowSchedule) -> Iterator[Finding]:
    """Everything that is wrong with a flow schedule, lazily."""
    problem = flow.problem
    if isinstance(flow.trees, Orbit):
        yield from _orbit_faults(flow, flow.trees)
        return
    yield from _tree_faults(flow.trees, problem.collective)
    yield from _weight_faults(flow)
    many = flow.trees if isinstance(flow.trees, Forest) else None
    if many is not None and not flow.in_network and (found := forest.hop_loads(many, problem.collective)):
        yield from route_faults(
            problem.topology, [many.route(index) for index in forest.route_suspects(many, problem.topology)]
        )
        hops: Mapping[tuple[str, str], int]
        hops, share = found
    else:
        loads, share = traffic(flow)
        yield from route_faults(problem.topology, loads)
        hops = crossings(flow) if flow.in_network else add_up(loads)
    yield from time_faults(problem.topology, hops, share, flow.time)
    if flow.bound is not None:
        yield from bound_faults(problem, flow.bound, flow.time)


def _orbit_faults(flow: FlowSchedule, trees: Orbit) -> Iterator[Finding]:
    """The same of trees that renamings make of a few ranks' trees."""
    problem = flow.problem
    renamed = Renamed(problem.topology, trees)
    faults = list(renamed.faults())
    yield from faults
    yield from _tree_faults(trees.base, problem.collective)
    yield from route_faults(
        problem.topology, [trees.base.route(index) for index in forest.route_suspects(trees.base, problem.topology)]
    )
    if faults:
        return
    yield from renamed.unserved()
    found = None if flow.in_network else renamed.hop_loads(problem.collective)
    if found is None:
        loads, share = traffic(flow)
        found = crossings(flow) if flow.in_network else add_up(loads), share
    yield from time_faults(problem.topology, *found, flow.time)
    if flow.bound is not None:
        yield from bound_faults(problem, flow.bound, flow.time, renamed)


def traffic(flow: FlowSchedule) -> tuple[Mapping[Route, int], Fraction]:
    """Load of each route in whole units, and the unit [share of the message]."""
    collective = flow.problem.collective
    if isinstance(flow.trees, Orbit):
        renamed = Renamed(flow.problem.topology, flow.trees)
        if any(renamed.faults()):
            return {}, Fraction(1)  # its trees cannot be made
        if told := renamed.route_loads(collective):
            return told
    if isinstance(flow.trees, Forest) and (found := forest.route_loads(flow.trees, collective)):
        return found
    # Whole numbers of one unit of a slot: adding Fractions one by one is ten times slower, and weights of chunks
    # that differ in length may have no common denominator to speak of.
    slots = [tree.weight * collective.chunks[tree.chunk].count for tree in flow.trees]
    unit = math.lcm(*(share.denominator for share in slots))
    loads: Counter[Route] = Counter()
    for tree, share in zip(flow.trees, slots, strict=True):
        load = share.numerator * (unit // share.denominator)
        for route in tree.reduce + tree.broadcast:
            loads[route] += load
    return loads, Fraction(1, unit * collective.size_chunks)


class _RankSets:
    """Ranks of a chunk's two sides as sets; chunks share their rules, so each set is built once."""

    def __init__(self) -> None:
        self._known: dict[Sequence[int], frozenset[int]] = {}

    def of(self, ranks: Sequence[int]) -> frozenset[int]:
        if ranks not in self._known:
            self._known[ranks] = frozenset(ranks)
        return self._known[ranks]


def _tree_faults(trees: Sequence[Tree], collective: Collective) -> Iterator[Finding]:
    ranks = _RankSets()
    for index in forest.suspects(trees, collective) if isinstance(trees, Forest) else range(len(trees)):
        tree = trees[index]
        yield from _faults_of_tree(index, tree, collective.chunks[tree.chunk], ranks)


def _faults_of_tree(index: int, tree: Tree, chunk: Chunk, ranks: _RankSets) -> Iterator[Finding]:
    """A tree gathers every contributor exactly once at its root and reaches every consumer from there."""
    where = f"tree {index} of chunk {tree.chunk}"
    yield from _reduce_faults(where, tree, ranks.of(chunk.precondition.ranks))
    yield from _broadcast_faults(where, tree, ranks.of(chunk.postcondition.ranks))


def _reduce_faults(where: str, tree: Tree, contributors: frozenset[int]) -> Iterator[Finding]:
    """An in-tree whose edges come after those that feed them; whatever is collected ends at the root."""
    holding = {tree.root} & contributors
    gone: set[int] = set()  # ranks that have passed on what they had
    for route in tree.reduce:
        if route.src in gone or route.src == tree.root:
            what = "is the root" if route.src == tree.root else "has sent before"
            yield _fault("tree-double", f"{where}: rank {route.src} sends to rank {route.dst}, but {what}", route.src)
        elif route.src not in contributors and route.src not in holding:
            yield _fault(
                "tree-order", f"{where}: rank {route.src} sends to rank {route.dst} before it holds anything", route.src
            )
        if route.dst in gone:
            yield _fault(
                "tree-order",
                f"{where}: rank {route.dst} receives from rank {route.src} after it sent on, so that part is lost",
                route.dst,
            )
        gone.add(route.src)
        holding.discard(route.src)
        holding.add(route.dst)
    missing = sorted((contributors - gone - {tree.root}) | (holding - {tree.root}))
    if missing:
        yield _fault(
            "tree-incomplete",
            f"{where}: what {_list(missing)} should pass on never reaches the root, rank {tree.root}",
            missing[0],
        )


def _broadcast_faults(where: str, tree: Tree, consumers: frozenset[int]) -> Iterator[Finding]:
    """An out-tree whose edges come after those that feed them."""
    reached = {tree.root}
    for route in tree.broadcast:
        if route.src not in reached:
            yield _fault(
                "tree-order", f"{where}: rank {route.src} sends to rank {route.dst} before it has it", route.src
            )
        if route.dst in reached:
            yield _fault("tree-double", f"{where}: rank {route.dst} is reached twice", route.dst)
        reached.add(route.dst)
    missing = sorted(consumers - reached)
    if missing:
        yield _fault("tree-incomplete", f"{where}: never reaches {_list(missing)}", missing[0])


def _weight_faults(flow: FlowSchedule) -> Iterator[Finding]:
    """The weights of a chunk's trees add to one; a chunk that need not move may have no tree."""
    collective = flow.problem.collective
    wrong = forest.unbalanced(flow.trees, collective) if isinstance(flow.trees, Forest) else None
    if wrong is None:
        total = [Fraction(0)] * len(collective.chunks)
        for tree in flow.trees:
            total[tree.chunk] += tree.weight
        wrong = {
            index: total[index]
            for index, chunk in enumerate(collective.chunks)
            if total[index] != 1 and (total[index] or _moves(chunk))
        }
    for index, weight in wrong.items():
        yield Finding("weights", "error", f"the weights of chunk {index}'s trees add to {weight}; expected 1")


def _moves(chunk: Chunk) -> bool:
    """Whether anything must leave the rank where it lies."""
    before, after = chunk.precondition.ranks, chunk.postcondition.ranks
    return not (len(before) == len(after) == 1 and before[0] == after[0])


def _fault(rule: str, message: str, rank: int) -> Finding:
    return Finding(rule, "error", message, rank=rank)


def _list(ranks: Sequence[int]) -> str:
    """Ranks for eyes, the first few."""
    shown = ", ".join(map(str, ranks[:8]))
    return ("rank " if len(ranks) == 1 else "ranks ") + (
        shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
    )
