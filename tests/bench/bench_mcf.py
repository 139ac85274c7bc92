"""All-to-all at scale: seconds and the certified gap. CPU time on one core, the problem's table not counted."""

from __future__ import annotations

import resource
from fractions import Fraction
from time import process_time

import pytest

from collc import verify
from collc.design.recipe import parse
from collc.design.wiring import topology_of
from collc.ir.collective import Problem, make_collective
from collc.synth.mcf import Mcf

# (recipe, seconds allowed, gap allowed).
FABRICS = [
    ("genkautz(degree=4,n=64)", 5, 1e-9),
    ("genkautz(degree=4,n=128)", 10, 1e-9),
    ("genkautz(degree=4,n=180)", 30, 1e-9),
    ("genkautz(degree=4,n=256)", 20, 0.02),
    ("genkautz(degree=4,n=512)", 90, 0.02),
    ("genkautz(degree=4,n=1000)", 300, 0.03),
    ("torus(dims=8x8x8)", 5, 0),
    ("torus(dims=32x32)", 5, 0),
    ("hypercube(dimensions=10)", 5, 0),
]


@pytest.mark.parametrize(("recipe", "seconds", "gap"), FABRICS, ids=[row[0] for row in FABRICS])
def test_alltoall(recipe, seconds, gap):
    topology = topology_of(parse(recipe), Fraction(1), Fraction(0))
    problem = Problem(topology, make_collective("alltoall", topology.n_ranks))
    start = process_time()
    flow = Mcf().run(problem)
    made = process_time() - start
    verify.check(flow)
    checked = process_time() - start - made
    found = float(flow.time / flow.bound.time - 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\n{recipe}: F {1 / float(flow.time * topology.n_ranks):.7g}, gap {found:.2g}, {len(flow.trees)} ways, "
        f"{made:.1f} s, checked in {checked:.1f} s, {memory:.2f} GiB so far"
    )
    assert found <= gap
    assert made <= seconds
