"""Taking a flow without cycles apart into ways, the widest first.

Flat arrays: links into vertex v are into[first[v]:first[v + 1]]; left[link] is what a link still carries.
"""

from __future__ import annotations

from collc.kernels import LIMIT, Ints


def peel(
    source: int,
    wanted: Ints,
    left: Ints,
    tails: Ints,
    first: Ints,
    into: Ints,
    work: Ints,
    links: Ints,
    ends: Ints,
    units: Ints,
    sinks: Ints,
) -> int:
    """The number of ways; -1 where the flow does not bring what is wanted, -2 where there is no room for all.

    Args:
        wanted: by rank, units to be brought.
        work: five times as long as there are vertices.
        links: gets the links of all ways, from the source on.
        ends, units, sinks: get by way where its links end, what it carries, and to whom.
    """
    n = len(first) - 1
    for slot in range(5 * n):
        work[slot] = 0
    ways, filled, tick = 0, 0, 0
    for sink in range(len(wanted)):
        rest = wanted[sink]
        while rest > 0:
            tick += 1
            width = _widest(source, sink, tick, left, tails, first, into, work, n)
            if width == 0:
                return -1
            length = 0
            vertex = sink
            while vertex != source:
                length += 1
                vertex = tails[work[2 * n + vertex]]
            if ways == len(ends) or filled + length > len(links):
                return -2
            carried = min(rest, width)
            filled += length
            vertex = sink
            for back in range(1, length + 1):
                link = work[2 * n + vertex]
                links[filled - back] = link
                left[link] -= carried
                vertex = tails[link]
            ends[ways] = filled
            units[ways] = carried
            sinks[ways] = sink
            ways += 1
            rest -= carried
    return ways


def _widest(
    source: int, sink: int, tick: int, left: Ints, tails: Ints, first: Ints, into: Ints, work: Ints, n: int
) -> int:
    """Width of the widest way; the links it takes are in the third part of `work`.

    Looks back from the sink and settles a vertex once all before it are settled. The parts of `work`, by
    vertex: when it was seen, its width, its best link, its next link to look at, the stack.
    """
    work[source] = tick
    work[n + source] = LIMIT
    work[sink] = tick
    work[n + sink] = 0
    work[3 * n + sink] = first[sink]
    work[4 * n] = sink
    depth = 1
    while depth > 0:
        vertex = work[4 * n + depth - 1]
        at = work[3 * n + vertex]
        if at == first[vertex + 1]:
            depth -= 1
            continue
        link = into[at]
        tail = tails[link]
        if left[link] > 0 and work[tail] != tick:
            work[tail] = tick
            work[n + tail] = 0
            work[3 * n + tail] = first[tail]
            work[4 * n + depth] = tail
            depth += 1
            continue
        if left[link] > 0:
            width = min(left[link], work[n + tail])
            if width > work[n + vertex]:
                work[n + vertex] = width
                work[2 * n + vertex] = link
        work[3 * n + vertex] = at + 1
    return work[n + sink]
