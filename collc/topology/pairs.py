"""Which vertex of one side of a `links` entry meets which of the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from collc.topology.expression import Environment
from collc.topology.reader import Links, ListedPair
from collc.topology.values import Lengths

Pair = tuple[int, int, int]  # place on the one side, on the other side, cables


def index_pairs(links: Links, environment: Environment, n: int, m: int) -> Iterator[Pair]:
    """The pairs of an entry between `n` and `m` vertices (`n` twice where they are the same).

    Raises:
        InputError: no rule given where one is needed, or one that does not fit the counts.
    """
    if links.listed is not None:
        return _listed(links.listed, environment, n, m, links.among)
    places = _shape(links, environment, n) if links.among else _ruled(links, n, m)
    return ((i, j, 1) for i, j in places)


def _ruled(links: Links, n: int, m: int) -> Iterator[tuple[int, int]]:
    least, most = min(n, m), max(n, m)
    match links.rule:
        case None if least > 1:
            raise links.item.error(f"{n} and {m} vertices meet; expected 'pairs' to say how: all, same, wrap or block")
        case None | "all":
            return ((i, j) for i in range(n) for j in range(m))
        case "same" if n != m:
            raise links.item.error(f"pairs: same, for {n} and {m} vertices; expected as many on both sides, or wrap")
        case "block" if most % least:
            raise links.item.error(f"pairs: block, for {n} and {m} vertices; expected {least} equal shares of {most}")
        case "block":
            return ((place * n // most, place * m // most) for place in range(most))
    return ((place % n, place % m) for place in range(most))


def _listed(pairs: Sequence[ListedPair], environment: Environment, n: int, m: int, among: bool) -> Iterator[Pair]:
    seen = set()
    for pair in pairs:
        i, j = (end.whole(environment, 0) for end in pair.ends)
        for end, place, count in zip(pair.ends, (i, j), (n, m), strict=True):
            if place >= count:
                raise end.item.error(f"found place {place}; expected 0 to {count - 1}, for {count} vertices")
        key = (min(i, j), max(i, j)) if among else (i, j)
        if key in seen:
            raise pair.item.error(
                f"the pair [{i}, {j}] is given twice; expected it once, with a third entry for cables"
            )
        seen.add(key)
        yield i, j, pair.count.whole(environment, 1) if pair.count else 1


def _shape(links: Links, environment: Environment, n: int) -> Iterator[tuple[int, int]]:
    match links.rule:
        case "full":
            return ((i, j) for i in range(n) for j in range(i + 1, n))
        case "line":
            return _grid((n,), wraps=False)
        case "ring":
            return _grid((n,), wraps=True)
        case "hypercube" if n & (n - 1):
            raise links.item.error(f"a hypercube of {n} vertices; expected a power of two")
        case "hypercube":
            return _grid((2,) * (n.bit_length() - 1), wraps=False)
    return _grid(_lengths(links.dims, environment, n), wraps=links.rule == "torus")


def _lengths(dims: Lengths | None, environment: Environment, n: int) -> tuple[int, ...]:
    assert dims is not None  # `reader` lets no mesh or torus pass without
    lengths = dims.values(environment)
    if math.prod(lengths) != n:
        shown = " x ".join(map(str, lengths))
        raise dims.item.error(f"dims {shown} make {math.prod(lengths)} places; expected {n}, one for each vertex")
    return lengths


def _grid(lengths: Sequence[int], *, wraps: bool) -> Iterator[tuple[int, int]]:
    """Neighbours on a grid, each pair once; the last axis runs fastest.

    An axis of two has one link, not two: its ends are next to each other already.
    """
    strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
    for vertex in range(math.prod(lengths)):
        for length, stride in zip(lengths, strides, strict=True):
            place = vertex // stride % length
            if place + 1 < length:
                yield vertex, vertex + stride
            elif wraps and length > 2:
                yield vertex, vertex - place * stride
