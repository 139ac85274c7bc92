"""CPU time, time over the bound and stages of all-to-all plans, beside the bars and other ways to send.

CPU milliseconds of one thread, the best of some runs (others share the machine).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fast_cases import demand, h200

from collc.fast import Plan, baselines, plan

BARS_MS = {4: 1, 8: 3, 16: 10, 40: 60, 64: 150}
RUNS = {4: 60, 8: 40, 16: 15, 40: 6, 64: 4}


def cpu_ms(work: Callable[[], Plan], runs: int) -> tuple[float, Plan]:
    """The least CPU time of some runs [ms], and what came of it, arrays by stage and rank included."""
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        made = work()
        _ = made.peer, made.nbytes, made.start
        best = min(best, (time.process_time() - start) * 1000)
    return best, made


@pytest.mark.parametrize("hosts", BARS_MS)
@pytest.mark.parametrize("kind", ["uniform", "zipf-cell", "zipf-expert"])
@pytest.mark.parametrize("latency", [0, 5], ids=["no latency", "5 us"])
def test_planning(hosts, kind, latency, capsys):
    machine = h200(hosts, stage_latency=latency, inner_latency=2 if latency else 0)
    matrix = demand(kind, hosts)
    plan(matrix, machine)  # the machine's layout is made once
    fresh, made = cpu_ms(lambda: plan(matrix, machine), RUNS[hosts])
    noise = numpy.random.default_rng(1).uniform(0.95, 1.05, matrix.shape)
    changed = (matrix * noise).astype(numpy.int64) // 512 * 512
    again, updated = cpu_ms(lambda: made.update(changed), RUNS[hosts])
    limit, other = float(made.bound.time), float(baselines.bound(changed, machine).time)
    ways = {name: one.total / limit for name, one in baselines.comparisons(matrix, machine).items()}
    with capsys.disabled():
        told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ways.items())
        sys.stdout.write(
            f"\n{kind} {hosts}x8, {latency} us: {made.predicted.total / limit:.3f} of the bound, "
            f"{made.n_stages} stages, {fresh:.2f} ms (bar {BARS_MS[hosts]}); +-5 % update {again:.2f} ms, "
            f"{updated.predicted.total / other:.3f}; {told}"
        )
    assert fresh <= BARS_MS[hosts]
