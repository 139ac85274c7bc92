"""What the best rates of an all-reduce cost: CPU time of the exact linear program, up to 256 GPUs."""

from __future__ import annotations

from fractions import Fraction
from time import process_time

import fabrics
import pytest

from collc import cost
from collc.cost.allreduce import MOST_RANKS

# Fabric, best [GB/s], CPU seconds on one core of 2026 with room to spare.
CASES = [
    (fabrics.hetero3(), 48, 1),
    (fabrics.mi250(2), Fraction(2656, 15), 1),
    (fabrics.without_cable(fabrics.a100(4), "g0", "nvs0"), 25, 1),
    (fabrics.without_cable(fabrics.a100(8), "g0", "nvs0"), 25, 2),
    (fabrics.h100(16), Fraction(640, 3), 3),
    (fabrics.mi250(16), Fraction(2048, 15), 15),
    (fabrics.a100(32), Fraction(3200, 31), 15),
]


@pytest.mark.parametrize(("topology", "best", "limit"), CASES, ids=[topology.name for topology, _, _ in CASES])
def test_the_best_rates_take_seconds(topology, best, limit):
    assert topology.n_ranks <= MOST_RANKS
    start = process_time()
    rates = cost.allreduce_rates(topology)
    seconds = process_time() - start
    assert rates is not None
    assert rates.total == best
    print(f"\n{topology.name}: {topology.n_ranks} GPUs, {float(best):.5g} GB/s, {seconds:.2f} s of CPU", end="")
    assert seconds < limit
