"""How long designs take: exact eager costs, the finder, and the search. CPU time on one core."""

from __future__ import annotations

from time import process_time

import pytest

from collc.design import eager
from collc.design.eager import best_time, eager_cost
from collc.design.find import find
from collc.design.graph import Graph
from collc.design.known import shipped
from collc.design.recipe import parse
from collc.design.search import search

# (recipe, seconds allowed): the first two are the targets of the plan; plain Python took 23 s and 90 s.
COSTS = [
    ("hypercube(dimensions=10)", 3.0),
    ("torus(dims=50x50)", 10.0),
    ("genkautz(degree=4,n=1024)", 8.0),
    ("torus(dims=8x8x8)", 5.0),
    ("genkautz(degree=4,n=4096)", 15.0),
    ("genkautz(degree=16,n=4096)", 30.0),
    ("distance_regular(graph=GH-3-3)", 5.0),
]


@pytest.mark.parametrize(("recipe", "limit"), COSTS, ids=[recipe for recipe, _ in COSTS])
@pytest.mark.parametrize("uses", ["all vertices", "symmetries"])
def test_exact_eager_cost(recipe, limit, uses):
    graph = parse(recipe)
    if uses == "all vertices":
        graph = Graph(graph.name, graph.recipe, graph.heads)
    elif not graph.symmetries:
        pytest.skip("has none that are stated")
    eager._KNOWN.clear()
    start = process_time()
    cost = eager_cost(graph)
    spent = process_time() - start
    print(f"\n{recipe}, {uses}: T_L {cost.steps}, T_B {cost.time}: {spent:.2f} s")
    assert spent < limit
    assert cost.time >= best_time(graph.n)


FINDS = [(64, 4, 15.0), (1024, 4, 15.0), (1000, 4, 15.0), (4093, 4, 60.0), (1024, 8, 60.0), (4096, 16, 120.0)]


@pytest.mark.parametrize(("n", "degree", "limit"), FINDS)
@pytest.mark.parametrize("published", [True, False], ids=["published", "all"])
def test_find(n, degree, limit, published):
    eager._KNOWN.clear()
    start = process_time()
    found = find(n, degree, published=published, known=() if published else shipped())
    spent = process_time() - start
    frontier = ", ".join(f"({one.steps}, {float(one.time):.5g})" for one in found)
    print(f"\nfind {n} {degree}: {frontier}: {spent:.2f} s")
    assert spent < limit


def test_search():
    start = process_time()
    tries = sum(1 for _, _ in zip(range(20_000), search(1024, 4), strict=False))
    print(f"\nsearch at 1024, degree 4: {tries / (process_time() - start):.0f} tries a second")
