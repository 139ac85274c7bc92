"""All-to-all after a failure: CPU seconds from the schedule before, and anew to the same tolerance, in one run."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from time import process_time

import pytest

from collc import verify
from collc.design.recipe import parse
from collc.design.wiring import topology_of
from collc.ir.collective import Problem, make_collective
from collc.ir.text import dumps
from collc.synth.mcf import Mcf
from collc.topology.degrade import degraded

# (ranks, gap asked for).
FABRICS = [(128, Fraction(1, 250)), (256, Fraction(1, 50)), (512, Fraction(1, 50))]


@pytest.mark.parametrize(("ranks", "within"), FABRICS)
def test_resolve(ranks: int, within: Fraction, tmp_path: Path) -> None:
    whole = topology_of(parse(f"genkautz(degree=4,n={ranks})"), Fraction(1), Fraction(0))
    link = f"{whole.links[7].src}->{whole.links[7].dst}"
    file = tmp_path / "before.json"
    alltoall = make_collective("alltoall", ranks)
    file.write_text(dumps(Mcf().run(Problem(whole, alltoall))))
    for fabric in (degraded(whole, [link], [], []), degraded(whole, [], [f"{link}=1/2"], [])):
        problem = Problem(fabric, alltoall)
        told = []
        for asked in (Mcf(warm=str(file), within=within), Mcf(method="descent", within=within)):
            start = process_time()
            flow = asked.run(problem)
            told.append(f"{process_time() - start:.1f} s to {float(flow.time / flow.bound.time - 1):.2g}")
            verify.check(flow)
        lost = "dropped" if len(fabric.links) < len(whole.links) else "at half"
        print(f"\n{ranks} ranks, a link {lost}: warm {told[0]}, anew by descent {told[1]}")
