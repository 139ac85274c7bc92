"""How long designs take: exact eager costs, the finder, and the search. CPU time on one core."""

from __future__ import annotations

from time import process_time

import pytest

from collc.design import eager
from collc.design.alltoall import alltoall_optimum
from collc.design.eager import best_time, eager_cost
from collc.design.find import find
from collc.design.find_alltoall import find_alltoall
from collc.design.graph import Graph
from collc.design.known import shipped, shipped_alltoall
from collc.design.recipe import parse
from collc.design.search import search
from collc.design.search_alltoall import search_alltoall

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


OPTIMA = [
    ("hypercube(dimensions=10)", 1.0),
    ("torus(dims=16x16x16)", 2.0),
    ("cayley(a=64,k=59,b=16,generators=421x531x234x1012)", 1.0),
    ("line(cayley(a=32,k=11,b=8,generators=18x63x165x30))", 4.0),
]


@pytest.mark.parametrize(("recipe", "limit"), OPTIMA)
def test_exact_alltoall(recipe, limit):
    graph = parse(recipe)
    assert graph.is_transitive or len(graph.representatives) <= graph.degree
    start = process_time()
    time = alltoall_optimum(graph)
    spent = process_time() - start
    print(f"\n{recipe}: all-to-all in {time} M/B: {spent:.3f} s")
    assert spent < limit


@pytest.mark.parametrize(("n", "degree", "limit"), [(64, 4, 10.0), (1024, 4, 20.0), (128, 6, 20.0), (1024, 6, 60.0)])
def test_find_alltoall(n, degree, limit):
    start = process_time()
    found = find_alltoall(n, degree, known=(*shipped_alltoall(), *shipped()))
    spent = process_time() - start
    print(
        f"\nfind for all-to-all {n} {degree}: {float(found[0].over_moore):.4f} {found[0].graph.recipe}: {spent:.2f} s"
    )
    assert spent < limit


def test_search_alltoall():
    start = process_time()
    tries = sum(1 for _, _ in zip(range(20_000), search_alltoall(1024, 4), strict=False))
    print(f"\nsearch for all-to-all at 1024, degree 4: {tries / (process_time() - start):.0f} tries a second")


def test_search():
    start = process_time()
    tries = sum(1 for _, _ in zip(range(20_000), search(1024, 4), strict=False))
    print(f"\nsearch at 1024, degree 4: {tries / (process_time() - start):.0f} tries a second")
