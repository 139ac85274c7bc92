"""What trees cost through the command line: CPU seconds, height and memory of 16 to 1024 GPUs.

Each row is whole processes, with compiled kernels on disk and no cached result, on fabrics as they are and
with one link in each host widened, each by another factor: the optimum stays, and no two hosts are alike.
The published program's figures are CPU seconds of its search, splitting and packing, on the same kind of machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import pytest

from collc.ir.topology import Topology
from collc.topology import dumps_yaml, load

# CPU seconds and greatest height of the published Python program, where it was run to its end.
PUBLISHED = {"dgx-a100:hosts=2": "5.6, 11", "dgx-a100:hosts=4": "87, 19", "dgx-a100:hosts=8": "1051, 36",
             "mi250:hosts=2": "42, 19", "mi250:hosts=4": "748, 41"}  # fmt: skip
# Machine -> hosts at most, GPUs in a host, the link that is widened, bandwidth per host of the network [GB/s].
MACHINES = {
    "dgx-a100": (128, 8, ("gpu0", "nic0"), 200),
    "dgx-h100": (128, 8, ("gpu0", "nic0"), 400),
    "mi250": (64, 16, ("gpu0", "gpu1"), 256),
}


@dataclass(frozen=True)
class Run:
    """One process: its report, CPU seconds and most memory [MiB]."""

    report: dict[str, object]
    seconds: float
    memory: int


def run(*arguments: str) -> Run:
    process = subprocess.Popen(
        [sys.executable, "-m", "collc", "synth", *arguments, "-s", "forestcoll", "--no-cache", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return Run(json.loads(text), usage.ru_utime + usage.ru_stime, usage.ru_maxrss // 1024)


def unlike(topology: Topology, ends: tuple[str, str]) -> Topology:
    """Each host's link between these widened by another factor."""
    factor = {(f"h{host}.{a}", f"h{host}.{b}"): host + 2 for host in range(len(topology.hosts))
              for a, b in (ends, ends[::-1])}  # fmt: skip
    links = [replace(link, bandwidth=link.bandwidth * factor.get((link.src, link.dst), 1)) for link in topology.links]
    return replace(topology, links=tuple(links))


@pytest.mark.parametrize("machine", MACHINES)
def test_growth(machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    most, gpus, ends, nics = MACHINES[machine]
    rows = [f"| {machine}: GPUs | CPU s, height, MiB | no two hosts alike | published |", "|---|---|---|---|"]
    for hosts in (2, 4, 8, 16, 32, 64, 128):
        if hosts > most:
            break
        reference = f"{machine}:hosts={hosts}"
        path = tmp_path / f"{hosts}.yaml"
        path.write_text(dumps_yaml(unlike(load(reference), ends)))
        runs = [run(reference, "-c", "allgather"), run(str(path), "-c", "allgather")]
        cells = []
        for one in runs:
            assert one.report["algbw_exact"] == one.report["bound_exact"]
            if hosts >= 16:
                # All other hosts' shards come in over a host's network cards.
                assert Fraction(str(one.report["algbw_exact"])) == Fraction(nics * hosts, hosts - 1)
            cells.append(f"{one.seconds:.1f}, {one.report['max_height']}, {one.memory}")
        rows.append(f"| {hosts * gpus} | {' | '.join(cells)} | {PUBLISHED.get(reference, '')} |")
    with capsys.disabled():
        print("\n" + "\n".join(rows))


CASES = [
    ("dgx-a100:hosts=128", "h0.gpu0-h0.nic0"),
    ("mi250:hosts=64", "h0.gpu0-h0.gpu1"),
    ("fat-tree:hosts=128,oversubscription=2", "leaf0-spine0"),
    ("rail-optimized:hosts=128,hosts_per_unit=128,spines=0", "h0.gpu0-leaf0"),
]


@pytest.mark.parametrize(("reference", "dropped"), CASES)
def test_one_link_removed(reference: str, dropped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "degraded.yaml"
    command = [sys.executable, "-m", "collc", "topo", "degrade", reference, "--drop", dropped, "-o", str(path)]
    subprocess.run(command, check=True)
    before, after = run(reference, "-c", "allgather"), run(str(path), "-c", "allgather")
    assert after.report["algbw_exact"] == after.report["bound_exact"]
    with capsys.disabled():
        told = ", ".join(
            f"{one.seconds:.1f} s, {one.report['max_height']} hops, {one.memory} MiB" for one in (before, after)
        )
        print(f"\n{reference} without {dropped}: {told}", end="")


def test_allreduce_of_a_thousand(capsys: pytest.CaptureFixture[str]) -> None:
    one = run("dgx-a100:hosts=128", "-c", "allreduce")
    assert one.report["algbw_exact"] == one.report["bound_exact"]
    with capsys.disabled():
        print(f"\nallreduce on dgx-a100:hosts=128: {one.seconds:.1f} s, {one.memory} MiB", end="")
