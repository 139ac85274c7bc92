"""Kernel: can every sink draw what it needs from the supplies, each by itself?

A maximum flow per sink (Dinic), searched from the sink backwards, so that it stays near it. Once a
sink has passed, it supplies without limit: a cut that is too narrow for another sink must have this
one outside, or it would have failed itself. So later flows are short.

Source: Dinic, Soviet Math. Doklady 11, 1970.
"""

from __future__ import annotations

from typing import NamedTuple

from collc.kernels import Ints


class Network(NamedTuple):
    """A directed graph with supplies, and room to work in.

    Attributes:
        tails, heads: by arc.
        slot: by arc, where its capacity stands in `capacity`.
        start, arcs: by vertex, arcs that end or start there: arcs[start[v]] .. arcs[start[v + 1] - 1].
        supply: by vertex, what it offers.
        passed: by vertex, whether its supply is without limit.
        found: rows of vertices, each the inside of a cut that is too narrow.
        flow, used, level, cursor, queue, path, touched, noted: room to work in.
    """

    tails: Ints
    heads: Ints
    slot: Ints
    start: Ints
    arcs: Ints
    capacity: Ints
    supply: Ints
    passed: Ints
    found: Ints
    flow: Ints
    used: Ints
    level: Ints
    cursor: Ints
    queue: Ints
    path: Ints
    touched: Ints
    noted: Ints


def violated(net: Network, order: Ints, twin: Ints, needed: int, most: int) -> int:
    """How many rows of `found` were filled: for a sink that draws too little, the cut around it.

    Sinks inside a cut found before are not tried.

    Args:
        order: sinks.
        twin: by vertex, the next of those that pass with it, in a ring.
        needed: what each sink must draw.
        most: cuts after which to stop.
    """
    n_vertices = len(net.level)
    count = 0
    for sink in order:
        skip = net.passed[sink] != 0
        for row in range(count):
            skip = skip or net.found[row * n_vertices + sink] != 0
        if skip:
            continue
        drawn = _draw(net, sink, needed)
        if drawn >= needed:
            net.passed[sink] = 1
            other = twin[sink]
            while other != sink:
                net.passed[other] = 1
                other = twin[other]
        else:
            for vertex in range(n_vertices):
                net.found[count * n_vertices + vertex] = 1 if net.level[vertex] >= 0 else 0
                net.level[vertex] = -1
            count += 1
        if count == most:
            break
    return count


def _draw(net: Network, sink: int, needed: int) -> int:
    """The largest flow into a sink, up to what is needed; leaves no flow behind.

    Where it is less, `level` tells what is on the sink's side of the narrowest cut.
    """
    drawn = min(needed, net.supply[sink])
    net.used[sink] = drawn
    n_touched = 0
    n_seen = 0
    while drawn < needed:
        for at in range(n_seen):
            net.level[net.queue[at]] = -1
        n_seen, target = _search(net, sink)
        if target < 0:
            break
        pushed, n_touched = _augment(net, sink, needed - drawn, target, n_touched)
        drawn += pushed
    for at in range(n_touched):
        arc = net.touched[at]
        net.flow[arc] = 0
        net.noted[arc] = 0
        net.used[net.tails[arc]] = 0
        net.used[net.heads[arc]] = 0
    net.used[sink] = 0
    if drawn >= needed:
        for at in range(n_seen):
            net.level[net.queue[at]] = -1
    return drawn


def _search(net: Network, sink: int) -> tuple[int, int]:
    """Levels from the sink; how many vertices were seen, and the level of the nearest supply (or -1)."""
    level, cursor, queue, start, arcs = net.level, net.cursor, net.queue, net.start, net.arcs
    tails, heads, slot, capacity, flow = net.tails, net.heads, net.slot, net.capacity, net.flow
    level[sink] = 0
    cursor[sink] = start[sink]
    queue[0] = sink
    n_seen = 1
    at = 0
    target = -1
    while at < n_seen:
        vertex = queue[at]
        at += 1
        depth = level[vertex] + 1
        if target >= 0 and depth > target:
            break
        for place in range(start[vertex], start[vertex + 1]):
            arc = arcs[place]
            if heads[arc] == vertex:
                other = tails[arc]
                room = capacity[slot[arc]] - flow[arc]
            else:
                other = heads[arc]
                room = flow[arc]
            if room > 0 and level[other] < 0:
                level[other] = depth
                cursor[other] = start[other]
                queue[n_seen] = other
                n_seen += 1
                if net.passed[other] != 0 or net.supply[other] > net.used[other]:
                    target = depth
    return n_seen, target


def _augment(net: Network, sink: int, needed: int, target: int, n_touched: int) -> tuple[int, int]:
    """Flow along shortest ways from supplies until none is left; how much, and the arcs touched so far."""
    pushed = 0
    vertex = sink
    depth = 0
    while pushed < needed:
        if depth == target:
            amount = _room(net, vertex, depth, needed - pushed)
            if amount > 0:
                n_touched = _push(net, vertex, depth, amount, n_touched)
                pushed += amount
                # Start again at the sink; cursors remember what is exhausted.
                vertex = sink
                depth = 0
                continue
        vertex, depth = _step(net, vertex, depth, target)
        if depth < 0:
            break
    return pushed, n_touched


def _room(net: Network, supplier: int, depth: int, amount: int) -> int:
    """What the path walked so far and the supply at its end can add, up to an amount."""
    if net.passed[supplier] == 0:
        amount = min(amount, net.supply[supplier] - net.used[supplier])
    at = supplier
    for place in range(depth - 1, -1, -1):
        arc = net.path[place]
        if net.tails[arc] == at:
            amount = min(amount, net.capacity[net.slot[arc]] - net.flow[arc])
            at = net.heads[arc]
        else:
            amount = min(amount, net.flow[arc])
            at = net.tails[arc]
    return amount


def _push(net: Network, supplier: int, depth: int, amount: int, n_touched: int) -> int:
    """Send an amount down the path; the arcs touched so far."""
    net.used[supplier] += amount
    at = supplier
    for place in range(depth - 1, -1, -1):
        arc = net.path[place]
        if net.tails[arc] == at:
            if net.noted[arc] == 0:
                net.noted[arc] = 1
                net.touched[n_touched] = arc
                n_touched += 1
            net.flow[arc] += amount
            at = net.heads[arc]
        else:
            net.flow[arc] -= amount
            at = net.tails[arc]
    return n_touched


def _step(net: Network, vertex: int, depth: int, target: int) -> tuple[int, int]:
    """One arc on where one leads to the next level, else one back; depth -1 at the end."""
    if depth < target:
        while net.cursor[vertex] < net.start[vertex + 1]:
            arc = net.arcs[net.cursor[vertex]]
            if net.heads[arc] == vertex:
                other = net.tails[arc]
                room = net.capacity[net.slot[arc]] - net.flow[arc]
            else:
                other = net.heads[arc]
                room = net.flow[arc]
            if room > 0 and net.level[other] == depth + 1:
                net.path[depth] = arc
                return other, depth + 1
            net.cursor[vertex] += 1
    if depth == 0:
        return vertex, -1
    arc = net.path[depth - 1]
    before = net.heads[arc] if net.tails[arc] == vertex else net.tails[arc]
    net.cursor[before] += 1
    return before, depth - 1
