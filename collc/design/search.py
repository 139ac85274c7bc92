"""A search for better designs: random generators of semidirect products, priced at one vertex.

Cayley graphs look alike from every vertex, so a try takes a fraction of a millisecond. Orders n, n/d,
n/d^2, ... are searched: good small designs make good line graphs. Seeded, and anytime: the caller
stops it when it likes.

Source: own; `known.toml` holds what it found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from collc.design.cayley import Group, cyclic, linear
from collc.design.eager import eager_cost
from collc.design.known import Known
from collc.errors import InputError

if TYPE_CHECKING:
    from collc.design.graph import Matrix, Row

_LEAST_ORDER = 6
_GROUPS_KEPT = 200
_MOST_PORTS = 8


def search(
    n: int, degree: int, *, two_way: bool = False, seed: int = 0, known: Sequence[Known] = ()
) -> Iterator[Known | None]:
    """Tries without end; each yields a design that none found or known of its order beats, or None.

    Args:
        known: what a find must beat.

    Raises:
        InputError: the degree is too large for it.
    """
    chance = random.Random(f"{n},{degree},{two_way},{seed}")
    tried = orders(n, degree, two_way)
    found = {order: groups(order, chance) for order in tried}
    best = {
        order: [(one.steps, one.time) for one in known if (one.n, one.degree) == (order, degree)] for order in tried
    }
    tried = [order for order in tried if found[order]]
    while tried:
        order = chance.choice(tried)
        group = chance.choice(found[order])
        chosen = draw(group, degree, two_way, chance)
        price = _price(group, chosen) if chosen else None
        if price is None or any(steps <= price[0] and time <= price[1] for steps, time in best[order]):
            yield None
            continue
        graph = group.graph(chosen)
        cost = eager_cost(graph)
        if (cost.steps, cost.time) != price:
            raise RuntimeError(f"{graph.recipe}: priced {price} at one vertex, {(cost.steps, cost.time)} by the graph")
        best[order].append(price)
        yield Known(graph.recipe, order, degree, *price)


def orders(n: int, degree: int, two_way: bool) -> list[int]:
    """The orders whose designs can lead to n: itself, and by line graphs.

    Raises:
        InputError: the degree is too large for a search.
    """
    if degree > _MOST_PORTS:
        raise InputError(f"--search: degree {degree}; Cayley graphs are tried up to degree {_MOST_PORTS}")
    found = [n]
    while (
        not two_way and degree > 1 and found[-1] % degree == 0 and found[-1] // degree >= max(_LEAST_ORDER, degree + 1)
    ):
        found.append(found[-1] // degree)
    return found


def groups(order: int, chance: random.Random) -> list[Group]:
    """Semidirect products Z_a x| Z_b of an order, and some Z_p^m x| Z_b."""
    found = []
    for b in range(1, order + 1):
        if order % b == 0:
            a = order // b
            found += [(a, k, b) for k in range(1, max(2, a)) if _has_order(k, b, a)]
    chance.shuffle(found)
    kept = [cyclic(*one) for one in found[:_GROUPS_KEPT]]
    for p in (2, 3, 5):
        m = 2
        while order % p**m == 0:
            kept += _linear_groups(p, m, order // p**m, chance)
            m += 1
    return kept


def _has_order(k: int, b: int, a: int) -> bool:
    return pow(k, b, a) == 1 % a


def _linear_groups(p: int, m: int, b: int, chance: random.Random) -> Iterator[Group]:
    for _ in range(40):
        matrix = [chance.randrange(p) for _ in range(m * m)]
        try:
            yield linear(p, m, b, matrix)
        except InputError:
            continue  # the matrix has another order


def draw(group: Group, degree: int, two_way: bool, chance: random.Random) -> list[int]:
    """Different elements, closed under inverses if asked for; empty where the draw did not work out."""
    chosen: list[int] = []
    for _ in range(4 * degree):
        element = chance.randrange(1, group.order)
        inverse = int(group.inverses[element])
        fresh = [element] if not two_way or inverse == element else [element, inverse]
        if not set(fresh) & set(chosen) and len(chosen) + len(fresh) <= degree:
            chosen += fresh
        if len(chosen) == degree:
            return chosen
    return []


def _price(group: Group, generators: Sequence[int]) -> tuple[int, Fraction] | None:
    """(T_L, T_B) seen from the identity; None where the generators do not reach everything.

    Source v reaches the identity as v^-1 is reached from it, so distances from the identity suffice:
    of a vertex g, port s leads nearer where g * s^-1 is nearer.
    """
    import numpy

    n, d = group.order, len(generators)
    ahead = [group.product(group.elements, s) for s in generators]
    far = numpy.full(n, -1, dtype=numpy.int64)
    far[0] = 0
    front = numpy.zeros(1, dtype=numpy.int64)
    step = 0
    while front.size:
        step += 1
        near = numpy.concatenate([image[front] for image in ahead])
        far[near[far[near] < 0]] = step
        front = numpy.flatnonzero(far == step)
    if far.min() < 0:
        return None
    nearer = numpy.zeros(n, dtype=numpy.int64)
    for port, image in enumerate(ahead):
        back = numpy.empty_like(image)
        back[image] = group.elements
        nearer |= (far[back] < far).astype(numpy.int64) << port
    steps = int(far.max())
    return steps, Fraction(d, n) * sum(_loads(far, nearer, steps, d))


def _loads(far: Row, nearer: Row, n_steps: int, degree: int) -> list[Fraction]:
    import numpy

    counts = numpy.bincount((far << degree) + nearer, minlength=(n_steps + 1) << degree)
    within: Matrix = counts.reshape(n_steps + 1, 1 << degree)
    for port in range(degree):
        halves = within.reshape(-1, 1 << (degree - port - 1), 2, 1 << port)
        halves[:, :, 1] += halves[:, :, 0]
    whole = lcm(*range(1, degree + 1))
    share: Any = whole // numpy.maximum(numpy.bitwise_count(numpy.arange(1 << degree)).astype(numpy.int64), 1)
    share[0] = 0
    return [Fraction(int(load), whole) for load in (within * share).max(axis=1)[1:]]
