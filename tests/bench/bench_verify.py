"""What reading and judging a file costs: CPU time of whole commands, and growth from 8 to 256 ranks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest
from handmade import allpairs_allreduce, block, copy, i, o, program, recv, send, to_xml

from collc import runtimes
from collc.ir.collective import make_collective
from collc.verify.msccl import examine

RANKS = (8, 16, 32, 64, 128, 256)
WIDE = runtimes.load("executor").with_limits(
    {"threadblocks_per_channel": 512, "waited_threadblock": 512, "steps": 1024, "elements": 1 << 16}
)


def traded_alltoall(n: int, k: int):
    """Each pair trades blocks of `k` chunks one by one, all sent before any is received."""

    def blocks(rank):
        peers = [peer for peer in range(n) if peer != rank]
        return [
            block(None, None, copy(i(rank * k), o(rank * k), k)),
            *(
                block(
                    peer,
                    peer,
                    *(send(i(peer * k + at)) for at in range(k)),
                    *(recv(o(peer * k + at)) for at in range(k)),
                    channel=(rank + peer) % 9,
                )
                for peer in peers
            ),
        ]

    return program(make_collective("alltoall", n, k), blocks)


def cpu_seconds(*words: str, cache: Path) -> float:
    """User and system time of a command, start-up included."""
    env = {**os.environ, "COLLC_CACHE_DIR": str(cache)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed packages run, compiled once
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "collc", *words], check=True, capture_output=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("topology", "backend", "options", "hit_limit", "verify_limit"),
    [
        ("mi250:hosts=2", "rccl", (), 0.4, 0.5),
        ("dgx-a100:hosts=2", "executor", (), 0.4, 0.5),
        ("mi250:hosts=1", "rccl", ("--instances", "4"), 0.5, 0.5),
    ],
)
def test_a_cache_hit_and_a_check_are_quick(tmp_path, topology, backend, options, hit_limit, verify_limit):
    words = ("synth", topology, "-c", "allreduce", "-b", backend, "-d", str(tmp_path / "out"), *options)
    cpu_seconds(*words, cache=tmp_path)
    hit = min(cpu_seconds(*words, cache=tmp_path) for _ in range(5))
    check = min(cpu_seconds("verify", str(tmp_path / "out"), "--runtime", backend, cache=tmp_path) for _ in range(5))
    size = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    print(
        f"\n{topology} {backend} {' '.join(options)}: {size / 1e6:.2f} MB, cache hit {hit:.2f} s, verify {check:.2f} s"
    )
    assert hit < hit_limit
    assert check < verify_limit


@pytest.mark.parametrize("name", ["all-pairs allreduce", "traded alltoall"])
def test_cost_is_near_linear_in_steps(name):
    rates = {}
    for n in RANKS:
        made = allpairs_allreduce(n, 1, 8) if name == "all-pairs allreduce" else traded_alltoall(n, 2)
        text = to_xml(made, proto="LL", minBytes=2**22, maxBytes=2**24).encode()
        steps = sum(len(block.instructions) for gpu in made.gpus for block in gpu.threadblocks)
        start = process_time()
        report = examine(text, WIDE)
        spent = process_time() - start
        rates[n] = spent / steps
        each, megabytes = rates[n] * 1e6, len(text) / 1e6
        print(f"\n{name}, {n} ranks: {steps} steps, {megabytes:.1f} MB: {spent:.2f} s, {each:.0f} us a step")
        assert {finding.rule for finding in report.findings} <= {"min-bytes"}
    assert rates[256] < 3 * rates[16]


def test_fifty_megabytes_in_seconds(tmp_path):
    file = tmp_path / "traded.xml"
    file.write_text(to_xml(traded_alltoall(256, 3), proto="LL"))
    spent = cpu_seconds("verify", str(file), "--runtime", "executor", cache=tmp_path)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\n{file.stat().st_size / 1e6:.0f} MB, 256 ranks: {spent:.1f} s, {memory:.0f} MB at most")
    assert spent < 20
    assert memory < 1024
