"""Stage 4, renew: the highest trees and some others are taken out and packed anew, as long as it pays.

What is taken out can be packed, since it was; so every round ends in a packing as good as the one
before. Rounds follow a fixed pattern, so that equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from collc import cost
from collc.synth.forestcoll.lower import lower, remaining
from collc.synth.forestcoll.pack import compiles_many, pack
from collc.synth.forestcoll.packing import Packed, Packing
from collc.synth.forestcoll.scale import Instance

# Costs of a level of depth, in links of scarcity one, that lead to different packings.
_DEPTH_COSTS = (2, 1, 4, 8)
# Oracle passes of a first attempt.
_EFFORT = 100
# Of the attempts, how many are worth lowering.
_LOWERED = 3
# Rounds in all, and in tree edges looked at: small fabrics get all rounds, large ones fewer.
_ROUNDS, _WORK = 40, 120_000
# Rounds without gain after which to stop.
_STALE = 12
# Of the highest trees, how many are taken out in a round.
_HIGHEST = 4


def pack_low(instance: Instance) -> Packing:
    """A packing with low trees: several attempts, the best one renewed, where there is time for that."""
    if instance.n_ranks * sum(1 for trees in instance.trees if trees) > _WORK:
        packing = pack(instance, _DEPTH_COSTS[0], group=instance.group)
        if packing is None:
            raise RuntimeError("a packing without a limit of effort gave up")
        return packing
    least = _least_height(instance)
    attempts = _attempts(instance, least)
    # A few trees more are worth a lower height; many would not fit a GPU.
    most = min(map(len, attempts)) * 3 // 2
    attempts.sort(key=lambda trees: _badness(instance, trees))
    candidates = [lower(instance, trees, most) for trees in attempts[:_LOWERED]]
    best = min(candidates, key=lambda trees: _badness(instance, trees))
    stale = 0
    for turn in range(min(_ROUNDS, 1 + _WORK // (instance.n_ranks * len(best)))):
        if _badness(instance, best)[0] <= least or stale == _STALE:
            break
        renewed = _renew(instance, best, turn, most)
        gain = renewed is not None and _badness(instance, renewed) < _badness(instance, best)
        stale = 0 if gain else stale + 1
        # An equal packing is another place to start from.
        if renewed is not None and _badness(instance, renewed) <= _badness(instance, best):
            best = renewed
    # Copies of the greatest height led on; now only the height counts, and how many trees there are.
    return Packing.of(min([*candidates, best], key=lambda trees: _badness(instance, tuple(trees))[::2]))


def _attempts(instance: Instance, least: int) -> list[tuple[Packed, ...]]:
    """Packings under different costs of depth; the efforts grow until one is found."""
    effort = _EFFORT
    attempts: list[tuple[Packed, ...]] = []
    groups = [instance.group] if instance.group.order > 1 else []
    while not attempts:
        for group, depth_cost in product([*groups, instance.no_group], _DEPTH_COSTS):
            # The first may well be the last.
            compiled = compiles_many(instance) if attempts else None
            if (trees := pack(instance, depth_cost, effort, group, compiled=compiled)) is None:
                continue
            attempts.append(tuple(trees))
            if _badness(instance, attempts[-1])[0] <= least:
                return attempts
        effort *= 4
    return attempts


def _badness(instance: Instance, trees: Sequence[Packed]) -> tuple[int, int, int]:
    """Greatest height, copies of that height, trees."""
    heights = [tree.height(instance) for tree in trees]
    top = max(heights)
    return top, sum(tree.copies for tree, height in zip(trees, heights, strict=True) if height == top), len(trees)


def _renew(instance: Instance, trees: Sequence[Packed], turn: int, most: int) -> tuple[Packed, ...] | None:
    heights = [tree.height(instance) for tree in trees]
    top = max(heights)
    highest = [index for index, height in enumerate(heights) if height == top]
    others = [index for index, height in enumerate(heights) if height < top]
    first = turn * _HIGHEST % len(highest)
    stride = 2 + turn % 3
    out = {*highest[first : first + _HIGHEST], *others[turn % stride :: stride]}
    kept = [tree for index, tree in enumerate(trees) if index not in out]
    left = list(instance.trees)
    for tree in kept:
        left[tree.root] -= tree.copies
    rest = replace(instance, capacities=tuple(remaining(instance, kept)), trees=tuple(left))
    depth_cost = _DEPTH_COSTS[turn % len(_DEPTH_COSTS)]
    repacked = pack(rest, depth_cost, effort=2 * len(out), compiled=compiles_many(instance))
    if repacked is None or len(kept) + len(repacked) > most:
        return None
    return lower(instance, (*kept, *repacked), most)


def _least_height(instance: Instance) -> int:
    ends = (instance.tails, instance.heads, instance.capacities)
    return cost.least_height(cost.Roots(instance.n_ranks, instance.names, *ends, instance.trees, instance.hosts)).hops
