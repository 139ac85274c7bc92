"""Families that multiply and shift: Kautz, generalized Kautz, de Bruijn, and random regular graphs."""

from __future__ import annotations

import random as _random
from itertools import pairwise, product
from typing import Literal

from collc.design.graph import Graph, check_scale, is_symmetry
from collc.errors import BudgetError, InputError


def genkautz(degree: int, n: int, repair: Literal["no", "cycle", "halves"] = "no") -> Graph:
    """Generalized Kautz graph: x leads to -degree * x - a (mod n), a = 1 to degree.

    Loops are dead ports; none exactly where degree + 1 divides n, else g * floor(degree / g) of
    them, g = gcd(degree + 1, n). `repair` joins the vertices that have them by a cycle, or by
    swapping halves.
    Exists: always. T_L: the Moore bound or one more. T_B: computed.
    Source: Imase and Itoh, A design for directed graphs with minimum diameter, IEEE ToC 32(8), 1983;
    arXiv:2202.03356, Pi(degree, n); the repair is ours.
    """
    check_scale("genkautz", n, degree)
    rows = [[(-degree * x - a) % n for a in range(1, degree + 1)] for x in range(n)]
    tail = "" if repair == "no" else f",repair={repair}"
    name = f"Pi({degree},{n})" + ("" if repair == "no" else f" repaired by {repair}")
    if repair != "no":
        _rewire(rows, 1 if repair == "cycle" else None)
    return Graph(name, f"genkautz(degree={degree},n={n}{tail})", tuple(map(tuple, rows)))


def _rewire(rows: list[list[int]], shift: int | None) -> None:
    """Lead every dead port to another vertex that has one: the next, or the one half-way round."""
    dead = [(x, port) for x, row in enumerate(rows) for port, head in enumerate(row) if head == x]
    owners = sorted({x for x, _ in dead})
    if len(owners) < 2:
        raise InputError(f"genkautz: dead ports at {len(owners)} vertices; expected two vertices or more to repair")
    following = {x: owners[(index + (shift or len(owners) // 2)) % len(owners)] for index, x in enumerate(owners)}
    for x, port in dead:
        rows[x][port] = following[x]


def kautz(degree: int, diameter: int) -> Graph:
    """Kautz graph: words without equal neighbours, shifted by one letter.

    Exists: always, n = degree^diameter + degree^(diameter - 1). T_L: diameter. T_B: computed, above the optimum.
    Source: Kautz, Bounds on directed (d,k) graphs, 1968.
    """
    n = degree**diameter + degree ** (diameter - 1) if 1 <= diameter <= 24 else 0
    check_scale("kautz", n, degree)
    letters = range(degree + 1)
    words = [word for word in product(letters, repeat=diameter) if all(a != b for a, b in pairwise(word))]
    index = {word: number for number, word in enumerate(words)}
    heads = tuple(tuple(index[(*word[1:], a)] for a in letters if a != word[-1]) for word in words)
    return Graph(f"Kautz({degree},{diameter})", f"kautz(degree={degree},diameter={diameter})", heads)


def debruijn(degree: int, diameter: int) -> Graph:
    """De Bruijn graph: words, shifted by one letter; degree loops, which are dead ports.

    Exists: always, n = degree^diameter. T_L: diameter. T_B: computed.
    Source: de Bruijn, A combinatorial problem, 1946.
    """
    n = degree**diameter if 1 <= diameter <= 24 else 0
    check_scale("debruijn", n, degree)
    heads = tuple(tuple((degree * x + a) % n for a in range(degree)) for x in range(n))
    return Graph(f"GDB({degree},{n})", f"debruijn(degree={degree},diameter={diameter})", heads)


def dbjmod(degree: int, diameter: int, cycle: tuple[int, ...] = ()) -> Graph:
    """Modified de Bruijn graph: loops and 2-cycles are dropped; the vertices left short form one cycle.

    Which order the cycle takes is an option; by default the first in which no new 2-cycle or
    parallel link arises and the eager broadcast is quickest, of those tried.
    Exists: where such a cycle does. T_L: diameter + 1, T_B: (n - 1)/n, by a schedule that is not eager
    (eager: T_L = diameter, T_B above the optimum).
    Source: arXiv:2202.03356, DBJMod(degree, diameter).
    """
    if diameter < 2:
        raise InputError(f"dbjmod: diameter {diameter}; expected 2 or more")
    plain = debruijn(degree, diameter)
    arcs = {(x, head) for x, row in enumerate(plain.heads) for head in row}
    kept = {(x, y) for x, y in arcs if x != y and (y, x) not in arcs}
    rows = [[y for y in plain.heads[x] if (x, y) in kept] for x in range(plain.n)]
    short = [x for x, row in enumerate(rows) for _ in range(degree - len(row))]
    if cycle and sorted(cycle) != short:
        raise InputError(f"dbjmod: cycle {cycle}; expected an order of {short}, the vertices left short")
    order = cycle or _cycle(short, kept)
    for x, y in zip(order, (*order[1:], order[0]), strict=True):
        rows[x].append(y)
    recipe = f"dbjmod(degree={degree},diameter={diameter},cycle={'x'.join(map(str, order))})"
    heads = tuple(map(tuple, rows))
    following = tuple(
        sum((x // degree**place + 1) % degree * degree**place for place in range(diameter)) for x in range(plain.n)
    )
    moves = (following,) if is_symmetry(heads, following) else ()
    return Graph(f"DBJMod({degree},{diameter})", recipe, heads, moves)


# The orders whose BW-optimal schedules are known (reference values; the last by own search, alike in all letters).
_CYCLES = {
    (0, 2, 5, 7): (0, 2, 5, 7),
    (0, 5, 10, 15): (0, 10, 5, 15),
    (0, 1, 2, 3, 4, 5, 6, 7, 8): (0, 8, 2, 5, 1, 3, 6, 4, 7),
    tuple(range(16)): (0, 7, 11, 3, 5, 8, 12, 4, 10, 13, 1, 9, 15, 2, 6, 14),
}


def _cycle(short: list[int], kept: set[tuple[int, int]]) -> tuple[int, ...]:
    if tuple(short) in _CYCLES:
        return _CYCLES[tuple(short)]
    order, choices = [short[0]], [short[:0:-1]]
    for _ in range(10**5):
        if not choices[-1]:
            order.pop()
            choices.pop()
            if not order:
                break
            continue
        x, y = order[-1], choices[-1].pop()
        if y in order or {(x, y), (y, x)} & kept or len(short) == 2:
            continue
        closes = {(y, short[0]), (short[0], y)} & kept
        if len(order) + 1 == len(short) and not closes:
            return (*order, y)
        order.append(y)
        choices.append([other for other in reversed(short) if other not in order])
    raise InputError(f"dbjmod: no cycle through {short} without a 2-cycle was found; give cycle=")


def random(n: int, degree: int, seed: int = 0, links: Literal["two-way", "one-way"] = "two-way") -> Graph:
    """Random regular graph without loops or parallel links; the same for the same seed.

    Exists: degree < n; two-way: n * degree even. T_L, T_B: computed.
    Source: pairing model; singular pairs are swapped away (McKay and Wormald, J. Algorithms 11, 1990).
    """
    check_scale("random", n, degree)
    if degree >= n or (links == "two-way" and n * degree % 2):
        raise InputError(
            f"random: degree {degree} on {n} vertices; expected less than n, and an even product if two-way"
        )
    chance = _random.Random(f"{n},{degree},{seed},{links}")
    for _ in range(200):
        rows = _rows(n, degree, links == "two-way", chance)
        tail = "" if links == "two-way" else ",links=one-way"
        if rows and _is_connected(rows):
            recipe = f"random(n={n},degree={degree},seed={seed}{tail})"
            return Graph(f"Random({n},{degree})", recipe, tuple(tuple(sorted(row)) for row in rows))
    raise BudgetError(f"random: no connected graph of degree {degree} on {n} vertices in 200 tries; take another seed")


def _rows(n: int, degree: int, is_two_way: bool, chance: _random.Random) -> list[set[int]] | None:
    """Where each vertex leads; of a dense graph, what a sparse one leaves out."""
    is_dense = 2 * degree > n - 1
    wanted = n - 1 - degree if is_dense else degree
    rows = _pairing(n, wanted, chance) if is_two_way else _matching(n, wanted, chance)
    if rows is None or not is_dense:
        return rows
    return [set(range(n)) - row - {x} for x, row in enumerate(rows)]


def _pairing(n: int, degree: int, chance: _random.Random) -> list[set[int]] | None:
    """Points paired at random; a pair that is a loop or a double swaps ends with another."""
    points = [x for x in range(n) for _ in range(degree)]
    chance.shuffle(points)
    pairs = list(zip(points[::2], points[1::2], strict=True))
    rows: list[set[int]] = [set() for _ in range(n)]
    waiting: list[tuple[int, int]] = []
    done: list[tuple[int, int]] = []
    for a, b in pairs:
        if a == b or b in rows[a]:
            waiting.append((a, b))
            continue
        rows[a].add(b)
        rows[b].add(a)
        done.append((a, b))
    tries = 0
    while waiting and done and tries < 200 * n:
        tries += 1
        a, b = waiting[-1]
        where = chance.randrange(len(done))
        c, d = done[where] if chance.random() < 0.5 else done[where][::-1]
        if a in (c, d) or b in (c, d) or c in rows[a] or d in rows[b]:
            continue
        rows[c].discard(d)
        rows[d].discard(c)
        for x, y in ((a, c), (b, d)):
            rows[x].add(y)
            rows[y].add(x)
        done[where] = (a, c)
        done.append((b, d))
        waiting.pop()
    return None if waiting else rows


def _matching(n: int, degree: int, chance: _random.Random) -> list[set[int]] | None:
    """One permutation after another, each mended by swaps until it adds neither loop nor parallel link."""
    rows: list[set[int]] = [set() for _ in range(n)]
    for _ in range(degree):
        image = list(range(n))
        chance.shuffle(image)
        for _ in range(200 * n):
            bad = [x for x in range(n) if image[x] == x or image[x] in rows[x]]
            if not bad:
                break
            for x in bad:
                y = chance.randrange(n)
                image[x], image[y] = image[y], image[x]
        else:
            return None
        for x in range(n):
            rows[x].add(image[x])
    return rows


def _is_connected(rows: list[set[int]]) -> bool:
    """Whether everything is reached from vertex 0; in a regular graph all is then reached from all."""
    seen, waiting = {0}, [0]
    while waiting:
        new = rows[waiting.pop()] - seen
        seen |= new
        waiting += new
    return len(seen) == len(rows)
