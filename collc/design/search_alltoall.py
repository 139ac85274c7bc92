"""A search for designs on which all-to-all is quick: Cayley graphs, by the exact optimum of one vertex.

Most draws fall to the sum of distances, which no schedule beats; what is left is solved exactly, which
takes milliseconds. Half of the draws change one generator of the best design so far.

Source: own; `alltoall.toml` holds what it found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from collc.cost.one_source import OneSource, best_mixture
from collc.design.cayley import Group
from collc.design.eager import eager_cost
from collc.design.known import Known
from collc.design.search import draw, groups, orders

if TYPE_CHECKING:
    from collc.design.graph import Matrix


def search_alltoall(
    n: int, degree: int, *, two_way: bool = False, seed: int = 0, known: Sequence[Known] = ()
) -> Iterator[Known | None]:
    """Tries without end; each yields a design that beats all found or known of its order, or None.

    Args:
        known: what a find must beat.

    Raises:
        InputError: the degree is too large for it.
    """
    chance = random.Random(f"all-to-all,{n},{degree},{two_way},{seed}")
    found = {order: some for order in orders(n, degree, two_way) if (some := groups(order, chance))}
    best: dict[int, Fraction] = {}
    for one in known:
        if one.degree == degree and one.alltoall is not None:
            best[one.n] = min(one.alltoall, best.get(one.n, one.alltoall))
    champions: dict[int, tuple[Group, list[int]]] = {}
    while found:
        order = chance.choice(list(found))
        if order in champions and chance.random() < 0.5:
            group, chosen = champions[order][0], _changed(*champions[order], two_way, chance)
        else:
            group = chance.choice(found[order])
            chosen = draw(group, degree, two_way, chance)
        time = _time(group, chosen, best.get(order)) if chosen else None
        if time is None:
            yield None
            continue
        best[order], champions[order] = time, (group, chosen)
        graph = group.graph(chosen)
        cost = eager_cost(graph)
        yield Known(graph.recipe, order, degree, cost.steps, cost.time, alltoall=time)


def _changed(group: Group, generators: Sequence[int], two_way: bool, chance: random.Random) -> list[int]:
    """All but one generator (with its inverse, where links are to go both ways), and another."""
    gone = chance.choice(generators)
    kept = [s for s in generators if s != gone and not (two_way and s == group.inverses[gone])]
    fresh = draw(group, len(generators) - len(kept), two_way, chance)
    return [*kept, *fresh] if fresh and not set(fresh) & set(kept) else []


def _time(group: Group, generators: Sequence[int], limit: Fraction | None) -> Fraction | None:
    """T of the best all-to-all [M/B]; None where it does not beat the limit, or not all is reached."""
    import numpy

    n, degree = group.order, len(generators)
    ahead = numpy.stack([group.product(group.elements, s) for s in generators])
    unit = Fraction(degree, n)
    total = _distance_sum(ahead)
    if total is None or (limit is not None and Fraction(total, n) >= limit):
        return None
    demand = numpy.ones(n, dtype=numpy.int64)
    demand[0] = 0
    classes = numpy.repeat(numpy.arange(degree), n)
    source = OneSource(numpy.tile(group.elements, degree), ahead.ravel(), classes, demand)
    found = best_mixture([1] * degree, source.cheapest, None if limit is None else limit / unit)
    return None if found is None or found.time * unit == limit else found.time * unit


def _distance_sum(ahead: Matrix) -> int | None:
    """Of all vertices from the first; None where one is not reached."""
    import numpy

    n = ahead.shape[1]
    seen = numpy.zeros(n, dtype=bool)
    seen[0] = True
    front, step, total = numpy.zeros(1, dtype=numpy.int64), 0, 0
    while front.size:
        step += 1
        reached = numpy.zeros(n, dtype=bool)
        reached[ahead[:, front].ravel()] = True
        reached &= ~seen
        seen |= reached
        front = numpy.flatnonzero(reached)
        total += step * front.size
    return total if seen.all() else None
