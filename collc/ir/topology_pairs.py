"""Which vertex of one side of a `links` entry meets which of the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from collc.ir.expression import Environment
from collc.ir.topology_read import Links, evaluate
from collc.ir.yaml import Item

Pair = tuple[int, int, int]  # index on the one side, on the other side, cables


def index_pairs(links: Links, environment: Environment, n: int, m: int) -> Iterator[Pair]:
    """The pairs of an entry between `n` and `m` vertices (the same ones, for `among`).

    Raises:
        InputError: no rule given where one is needed, or one that does not fit the counts.
    """
    if links.shape is not None:
        return ((i, j, 1) for i, j in _shape(links, environment, n))
    if links.pairs is None:
        if n != 1 and m != 1:
            raise links.item.error(
                f"{n} and {m} vertices meet; expected 'pairs' to say which: all, same, wrap or block"
            )
        return ((i, j, 1) for i in range(n) for j in range(m))
    if isinstance(links.pairs, str):
        return _ruled(links, n, m)
    return _listed(links, environment, n, m)


def _ruled(links: Links, n: int, m: int) -> Iterator[Pair]:
    longest = max(n, m)
    match links.pairs:
        case "all":
            return ((i, j, 1) for i in range(n) for j in range(m))
        case "same" if n != m:
            raise links.item.error(
                f"pairs: same joins {n} and {m} vertices; expected as many on both sides (wrap or block take fewer)"
            )
        case "block" if longest % min(n, m):
            raise links.item.error(f"pairs: block shares {min(n, m)} vertices among {longest}; expected equal shares")
        case "block":
            return ((x * n // longest, x * m // longest, 1) for x in range(longest))
    return ((x % n, x % m, 1) for x in range(longest))


def _listed(links: Links, environment: Environment, n: int, m: int) -> Iterator[Pair]:
    seen = set()
    assert links.pairs is not None and not isinstance(links.pairs, str)
    for item, numbers in links.pairs:
        i, j = (number.whole(environment, 0) for number in numbers[:2])
        for place, count in ((i, n), (j, m)):
            if place >= count:
                raise item.error(f"found place {place}; expected 0 to {count - 1}, for {count} vertices")
        key = (min(i, j), max(i, j)) if links.among else (i, j)
        if key in seen:
            raise item.error(f"the pair [{i}, {j}] is given twice; expected it once, with a third entry for cables")
        seen.add(key)
        yield i, j, numbers[2].whole(environment, 1) if len(numbers) == 3 else 1


def _shape(links: Links, environment: Environment, n: int) -> Iterator[tuple[int, int]]:
    match links.shape:
        case "full":
            return ((i, j) for i in range(n) for j in range(i + 1, n))
        case "line":
            return _grid((n,), wraps=False)
        case "ring":
            return _grid((n,), wraps=True)
        case "hypercube":
            if n & (n - 1):
                raise links.item.error(f"a hypercube of {n} vertices; expected a power of two")
            return _grid((2,) * (n.bit_length() - 1), wraps=False)
    return _grid(_lengths(links, environment, n), wraps=links.shape == "torus")


def _lengths(links: Links, environment: Environment, n: int) -> tuple[int, ...]:
    assert links.dims is not None
    item, given = links.dims
    if isinstance(given, tuple):
        lengths = tuple(length.whole(environment, 1) for length in given)
    else:
        lengths = _as_lengths(item, evaluate(item, given, environment))
    if math.prod(lengths) != n:
        shown = " x ".join(map(str, lengths))
        raise item.error(f"dims {shown} make {math.prod(lengths)} places; expected {n}, one for each vertex")
    return lengths


def _as_lengths(item: Item, value: object) -> tuple[int, ...]:
    lengths = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(length, int) and length > 0 for length in lengths):
        raise item.error(f"found {value}; expected whole numbers, 1 or more")
    return lengths


def _grid(lengths: Sequence[int], *, wraps: bool) -> Iterator[tuple[int, int]]:
    """Neighbours on a grid, each pair once; the last axis runs fastest.

    An axis of two has one link, not two: its two ends are next to each other already.
    """
    strides = [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
    for vertex in range(math.prod(lengths)):
        for length, stride in zip(lengths, strides, strict=True):
            place = vertex // stride % length
            if place + 1 < length:
                yield vertex, vertex + stride
            elif wraps and length > 2:
                yield vertex, vertex - place * stride
