"""Stage 2, balance: every switch gets equal capacity in and out, as the packing theorem asks.

What a switch has too much of on one side is cut off its links as far as the trees can do without.
Links of equal bandwidth both ways never need it; rounding down under a fixed k may, where they differ.
"""

from __future__ import annotations

from dataclasses import replace

from collc.errors import UnsupportedError
from collc.kernels.oracle import Oracle
from collc.synth.forestcoll.scale import Instance


def balance(instance: Instance) -> Instance:
    """The same instance with capacities trimmed until every switch is in balance.

    Raises:
        UnsupportedError: no trim keeps the trees; names the switch and both sums.
    """
    capacities = list(instance.capacities)
    switches = range(instance.n_ranks, len(instance.names))
    oracle = None
    progress = True
    while progress and any(_surplus(instance, capacities, switch) for switch in switches):
        progress = False
        oracle = oracle or instance.oracle()
        for switch in switches:
            progress |= _trim(instance, oracle, capacities, switch)
    for switch in switches:
        if surplus := _surplus(instance, capacities, switch):
            entering = sum(capacities[arc] for arc in instance.entering[switch])
            raise UnsupportedError(
                f"forestcoll: switch '{instance.names[switch]}' takes in {entering} trees and sends out "
                f"{entering - surplus}, with none to spare; expected equal sums: try another trees_per_rank, "
                "or equal bandwidths both ways"
            )
    return replace(instance, capacities=tuple(capacities))


def _surplus(instance: Instance, capacities: list[int], switch: int) -> int:
    """Capacity in minus capacity out."""
    entering = sum(capacities[arc] for arc in instance.entering[switch])
    return entering - sum(capacities[arc] for arc in instance.leaving[switch])


def _trim(instance: Instance, oracle: Oracle, capacities: list[int], switch: int) -> bool:
    surplus = _surplus(instance, capacities, switch)
    arcs = instance.entering[switch] if surplus > 0 else instance.leaving[switch]
    left = abs(surplus)
    # Links to and from GPUs first: trimming one between two switches upsets the other.
    for arc in sorted(arcs, key=lambda arc: max(instance.tails[arc], instance.heads[arc]) >= instance.n_ranks):
        if left:
            left -= _cut_down(instance, oracle, capacities, arc, left)
    return left < abs(surplus)


def _cut_down(instance: Instance, oracle: Oracle, capacities: list[int], arc: int, most: int) -> int:
    """Take as much off a link as the trees can spare, up to `most`; how much that was."""
    full = capacities[arc]
    low, high = 0, min(most, full)
    while low < high:
        middle = (low + high + 1) // 2
        capacities[arc] = full - middle
        if oracle.violated(capacities, instance.trees):
            high = middle - 1
        else:
            low = middle
    capacities[arc] = full - low
    return low
