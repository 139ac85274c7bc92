"""All-to-all at scale: CPU seconds and memory of the whole command, and the certified gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

# (recipe, CPU seconds allowed, gap allowed).
FABRICS = [
    ("genkautz(degree=4,n=64)", 5, 1e-9),
    ("genkautz(degree=4,n=128)", 10, 1e-9),
    ("genkautz(degree=4,n=180)", 30, 1e-9),
    ("genkautz(degree=4,n=256)", 40, 1e-9),
    ("genkautz(degree=4,n=512)", 90, 0.02),
    ("genkautz(degree=4,n=1000)", 300, 0.03),
    ("torus(dims=8x8x8)", 5, 0),
    ("torus(dims=32x32)", 5, 0),
    ("hypercube(dimensions=10)", 5, 0),
    ("cayley(a=64,k=5,b=16,generators=17x39x182x517)", 5, 0),
    ("torus(dims=64x64)", 60, 0),
    ("torus(dims=16x16x16)", 60, 0),
    ("cayley(a=256,k=113,b=16,generators=17x39x182x517)", 60, 0),
]
MOST_GIB = 4


def command(*words: str) -> tuple[str, float, float]:
    """Standard output, CPU seconds and GiB of memory of `collc WORDS`."""
    child = subprocess.Popen([sys.executable, "-m", "collc", *words], stdout=subprocess.PIPE, text=True)
    with child.stdout:
        out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = status
    assert status == 0
    return out, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


@pytest.mark.parametrize(("recipe", "seconds", "gap"), FABRICS, ids=[row[0] for row in FABRICS])
def test_alltoall(recipe: str, seconds: float, gap: float, tmp_path: Path) -> None:
    path = str(tmp_path / "design.yaml")
    command("topo", "generate", recipe, "-o", path)
    out, took, memory = command("synth", path, "-c", "alltoall", "-s", "mcf", "--json", "--no-cache")
    shown = json.loads(out)
    found = float(Fraction(shown["bound_exact"]) / Fraction(shown["algbw_exact"]) - 1)
    stages = ", ".join(f"{name} {shown['seconds'][name]:.1f}" for name in ("load", "synthesize", "verify"))
    print(
        f"\n{recipe}: {shown['algbw_exact']} GB/s, gap {found:.2g}, {shown['trees']} ways, {took:.1f} s of CPU, "
        f"{memory:.2f} GiB (seconds: {stages})"
    )
    assert found <= gap
    assert took <= seconds
    assert memory <= MOST_GIB
