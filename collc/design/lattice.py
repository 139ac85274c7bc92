"""Families made of rings and complete graphs: rings, tori, hypercubes, circulants and their kin.

All are Cayley graphs; each states symmetries that map vertex 0 onto every other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import gcd, isqrt, prod
from typing import Literal

from collc.design.graph import Graph, Permutation, check_scale
from collc.errors import InputError


def uniring(n: int, parallel: int = 1) -> Graph:
    """One-way ring; each link is `parallel` cables.

    Exists: n >= 2. T_L: n - 1. T_B: (n - 1)/n.
    Source: arXiv:2202.03356, UniRing(parallel, n).
    """
    check_scale("uniring", n, parallel)
    heads = tuple(((i + 1) % n,) * parallel for i in range(n))
    return Graph(f"UniRing({parallel},{n})", f"uniring(n={n},parallel={parallel})", heads, (_rotation(n),))


def biring(n: int, degree: int = 2) -> Graph:
    """Ring of two-way cables; degree / 2 cables join neighbours.

    Exists: n >= 3, even degree. T_L: floor(n/2). T_B: (n - 1)/n.
    Source: arXiv:2202.03356, BiRing(degree, n).
    """
    check_scale("biring", n, degree)
    if n < 3 or degree % 2:
        raise InputError(f"biring: n={n}, degree={degree}; expected 3 vertices or more and an even degree")
    heads = tuple(((i + 1) % n,) * (degree // 2) + ((i - 1) % n,) * (degree // 2) for i in range(n))
    return Graph(f"BiRing({degree},{n})", f"biring(n={n},degree={degree})", heads, (_rotation(n),))


def complete(n: int, parallel: int = 1) -> Graph:
    """All pairs joined, by `parallel` cables each.

    Exists: n >= 2. T_L: 1. T_B: (n - 1)/n.
    Source: arXiv:2202.03356, K_n.
    """
    check_scale("complete", n, parallel * (n - 1))
    heads = tuple(tuple((i + offset) % n for offset in range(1, n)) * parallel for i in range(n))
    name = f"K{n}" if parallel == 1 else f"{parallel}*K{n}"
    return Graph(name, f"complete(n={n},parallel={parallel})", heads, (_rotation(n),))


def bipartite(degree: int) -> Graph:
    """Complete bipartite graph K_{d,d}.

    Exists: any degree. T_L: 2 (1 for degree 1). T_B: (2d - 1)/2d.
    Source: arXiv:2202.03356, K_{d,d}.
    """
    check_scale("bipartite", 2 * degree, degree)
    n = 2 * degree
    heads = tuple(tuple((i + offset) % n for offset in range(1, n, 2)) for i in range(n))
    return Graph(f"K{degree},{degree}", f"bipartite(degree={degree})", heads, (_rotation(n),))


def hamming(dimensions: int, side: int) -> Graph:
    """Product of complete graphs: words that differ in one letter are joined.

    Exists: side >= 2. T_L: dimensions. T_B: (n - 1)/n.
    Source: arXiv:2202.03356, H(dimensions, side).
    """
    return _grid(
        f"H({dimensions},{side})",
        f"hamming(dimensions={dimensions},side={side})",
        (side,) * dimensions,
        lambda length: tuple(range(1, length)),
    )


def hypercube(dimensions: int) -> Graph:
    """Binary words that differ in one bit are joined.

    Exists: dimensions >= 1. T_L: dimensions. T_B: (n - 1)/n.
    Source: arXiv:2202.03356.
    """
    return _grid(f"Q{dimensions}", f"hypercube(dimensions={dimensions})", (2,) * dimensions, lambda length: (1,))


def torus(dims: tuple[int, ...], two: Literal["single", "double"] = "single") -> Graph:
    """Ring in every dimension. A dimension of length 2 is one two-way link, or two with two=double.

    Exists: lengths of 2 or more. T_L: sum of floor(length/2). T_B: (n - 1)/n; more where two=double.
    Source: arXiv:2202.03356.
    """
    tail = "" if two == "single" else ",two=double"

    def offsets(length: int) -> tuple[int, ...]:
        return (1,) if length == 2 and two == "single" else (1, length - 1)

    return _grid(f"Torus({_x(dims)})", f"torus(dims={_x(dims)}{tail})", dims, offsets)


def twisted(dims: tuple[int, ...], twists: tuple[int, ...]) -> Graph:
    """Torus whose wrap-around links shift the place in later dimensions.

    Twists in order: what a wrap in the first dimension shifts the second by, the third, ..., then what a
    wrap in the second shifts the third by, ...

    Exists: lengths of 2 or more, and enough twist that no two links of a vertex lead to the same place.
    T_L: computed. T_B: (n - 1)/n in all cases tried.
    Source: twisted tori as in TPU v4 (arXiv:2304.01433); values computed.
    """
    name = f"TwistedTorus({_x(dims)},tw={_x(twists)})"
    pairs = [(i, j) for i in range(len(dims)) for j in range(i + 1, len(dims))]
    if len(dims) < 2 or min(dims) < 2 or len(dims) > 24 or len(twists) != len(pairs):
        raise InputError(f"{name}: expected 2 to 24 lengths of 2 or more and a twist for each two of them")
    check_scale(name, prod(dims), 2 * len(dims))
    import numpy

    shifts = dict(zip(pairs, twists, strict=True))
    axes = range(len(dims))

    def moved(axis: int, step: int) -> list[int]:
        place = list(numpy.indices(dims).reshape(len(dims), -1))
        place[axis] = place[axis] + step
        for i in axes:
            wraps, place[i] = numpy.divmod(place[i], dims[i])
            for j in range(i + 1, len(dims)):
                place[j] = place[j] + wraps * shifts[i, j]
        found: list[int] = numpy.ravel_multi_index(place, dims).tolist()
        return found

    heads = tuple(zip(*(moved(axis, step) for axis in axes for step in (1, -1)), strict=True))
    if len({0, *heads[0]}) <= 2 * len(dims):
        raise InputError(f"{name}: two links of a vertex lead to the same place; expected longer sides or other twists")
    moves = tuple(tuple(moved(axis, 1)) for axis in axes)
    return Graph(name, f"twisted(dims={_x(dims)},twists={_x(twists)})", heads, moves)


def circulant(
    n: int, offsets: tuple[int, ...] = (), degree: int = 4, links: Literal["two-way", "one-way"] = "two-way"
) -> Graph:
    """Vertex i is joined to i + offset for every offset, and to i - offset unless links=one-way.

    Without offsets, degree 4: the pair {k, k+1}, k = ceil((sqrt(2n - 1) - 1)/2), of smallest diameter.
    Exists: offsets that together with n have no common factor. T_L, T_B: computed; of degree 4
    two-way and degree 2 one-way always (n - 1)/n in the cases tried, of higher degree not always.
    Source: arXiv:2202.03356; smallest pair: Beivide et al., Optimal distance networks of low degree.
    """
    offsets = offsets or default_offsets(n, degree, links)
    known = sorted({offset % n for offset in offsets})
    if len(known) != len(offsets) or known[0] == 0:
        raise InputError(f"circulant: offsets {_x(offsets)} of {n}; expected different numbers, none a multiple of {n}")
    if gcd(n, *known) != 1:
        raise InputError(f"circulant: offsets {_x(offsets)} and {n} have a common factor; it would fall apart")
    steps: list[int] = []
    for offset in known:
        steps += [offset] if links == "one-way" or 2 * offset == n else [offset, n - offset]
    if len(set(steps)) != len(steps):
        raise InputError(f"circulant: offsets {_x(offsets)} hold one and its negative; expected one of them")
    check_scale("circulant", n, len(steps))
    heads = tuple(tuple((i + step) % n for step in steps) for i in range(n))
    word = "C" if links == "two-way" else "DiC"
    tail = "" if links == "two-way" else ",links=one-way"
    name = f"{word}({n},{{{','.join(map(str, known))}}})"
    return Graph(name, f"circulant(n={n},offsets={_x(known)}{tail})", heads, (_rotation(n),))


def default_offsets(n: int, degree: int, links: str = "two-way") -> tuple[int, ...]:
    """Offsets of a circulant that spreads well: the smallest-diameter pair at degree 4, else powers of a root.

    Raises:
        InputError: there is no circulant of that degree.
    """
    if degree >= n or degree < 1:
        raise InputError(f"circulant: degree {degree} on {n} vertices; expected 1 to {n - 1}")
    if links == "one-way":
        return _spread(n, degree, n - 1)
    if degree == 4 and n > 5:
        return _smallest_pair(n)
    if degree % 2 and n % 2:
        raise InputError(f"circulant: odd degree {degree} on {n} vertices has no two-way links; take even numbers")
    half = (n - 1) // 2
    return (*_spread(n, degree // 2, half), *((n // 2,) if degree % 2 else ()))


def _smallest_pair(n: int) -> tuple[int, int]:
    """{k, k+1} with the least k for which (2k + 1)^2 >= 2n - 1.

    >>> _smallest_pair(16), _smallest_pair(1024)
    ((3, 4), (23, 24))
    """
    k = isqrt(2 * n - 2) // 2
    while (2 * k + 1) ** 2 < 2 * n - 1:
        k += 1
    return k, k + 1


def _spread(n: int, count: int, most: int) -> tuple[int, ...]:
    """1 and the powers of the count-th root of n (twice as dense where links go both ways), all different."""
    found = [1]
    root = max(2.0, n ** (1 / max(count, 1)))
    for power in range(1, count):
        wanted = max(found[-1] + 1, round(root**power))
        found.append(min(wanted, most - (count - 1 - power)))
    return tuple(found[:count])


def diring(degree: int) -> Graph:
    """Directed circulant on degree + 2 vertices with offsets 1 to degree: all but one are one link away.

    Exists: any degree. T_L: 2. T_B: (n - 1)/n.
    Source: arXiv:2202.03356, directed circulant base graph.
    """
    offsets = tuple(range(1, degree + 1))
    return circulant(degree + 2, offsets, links="one-way").renamed(f"DiCirculant({degree})", f"diring(degree={degree})")


def _grid(name: str, recipe: str, dims: Sequence[int], offsets: Callable[[int], tuple[int, ...]]) -> Graph:
    """Circulants of the given offsets along every dimension."""
    if not dims or min(dims) < 2 or len(dims) > 24:
        raise InputError(f"{name}: expected 1 to 24 dimensions of length 2 or more")
    steps = [offsets(length) for length in dims]
    check_scale(name, prod(dims), sum(map(len, steps)))
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    spots = list(product(*map(range, dims)))

    def moved(spot: tuple[int, ...], axis: int, step: int) -> int:
        here = sum(place * stride for place, stride in zip(spot, strides, strict=True))
        return here + ((spot[axis] + step) % dims[axis] - spot[axis]) * strides[axis]

    axes = range(len(dims))
    heads = tuple(tuple(moved(spot, axis, step) for axis in axes for step in steps[axis]) for spot in spots)
    return Graph(name, recipe, heads, tuple(tuple(moved(spot, axis, 1) for spot in spots) for axis in axes))


def _rotation(n: int) -> Permutation:
    return tuple((i + 1) % n for i in range(n))


def _x(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))
