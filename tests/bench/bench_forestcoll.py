"""CPU seconds of forestcoll over 16 to 1024 GPUs, with and without symmetry, beside the published program.

One thread, kernels compiled before the clock starts; the published program's figures are CPU seconds
of its search, splitting and packing together, measured on the same kind of machine (facts of the
project's reference file).
"""

from __future__ import annotations

import sys
import time

import pytest

from collc import cost, verify
from collc.ir.collective import Problem, make_collective
from collc.symmetry import Group, trivial_group
from collc.synth.forestcoll import ForestColl
from collc.topology import load

# CPU seconds of the published Python program, where it was run to its end.
PUBLISHED = {"dgx-a100:hosts=2": 9.0, "dgx-a100:hosts=4": 87.0, "dgx-a100:hosts=8": 1051.0, "mi250:hosts=2": 69.0,
             "mi250:hosts=4": 748.0}  # fmt: skip
FABRICS = [f"{machine}:hosts={hosts}" for machine, most in (("dgx-a100", 128), ("dgx-h100", 128), ("mi250", 64))
           for hosts in (2, 4, 8, 16, 32, 64, 128) if hosts <= most]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def warm():
    topology = load("mi250:hosts=2")
    ForestColl().run(Problem(topology, make_collective("allgather", topology.n_ranks)))


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetry", "none"])
@pytest.mark.parametrize("reference", FABRICS)
def test_growth(reference, symmetric, monkeypatch, capsys):
    if not symmetric:

        def none(graph: object) -> Group:
            return trivial_group(graph.n_vertices, len(graph.tails))  # type: ignore[attr-defined]

        monkeypatch.setattr(sys.modules["collc.synth.forestcoll.scale"], "find_group", none)
    topology = load(reference)
    asked = Problem(topology, make_collective("allgather", topology.n_ranks))
    start = time.process_time()
    flow = ForestColl().run(asked)
    spent = time.process_time() - start
    verify.check(flow)
    assert flow.is_optimal
    factor = f"{PUBLISHED[reference] / spent:6.0f} x published" if reference in PUBLISHED else ""
    with capsys.disabled():
        print(
            f"\n{reference:18} {topology.n_ranks:5} GPUs  {'symmetry' if symmetric else 'none':8} {spent:7.2f} s "
            f"{len(flow.trees):6} trees, height {cost.max_height(flow.trees):3} {factor}",
            end="",
        )
