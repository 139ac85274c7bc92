"""All-to-all in steps: CPU seconds of the whole command, and how near the steps come to the bound."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from bench_mcf import command

# (recipe, steps, CPU seconds allowed, gap allowed).
FABRICS = [
    ("torus(dims=4x4)", 4, 3, 0),
    ("torus(dims=8x8)", 8, 5, 0),
    ("torus(dims=4x4x8)", 8, 15, 0),
    ("genkautz(degree=4,n=16)", 3, 4, 0),
    ("genkautz(degree=4,n=32)", 4, 5, 0),
    ("genkautz(degree=4,n=64)", 4, 30, 0.01),
]


@pytest.mark.parametrize(("recipe", "steps", "seconds", "gap"), FABRICS, ids=[row[0] for row in FABRICS])
def test_alltoall_in_steps(recipe: str, steps: int, seconds: float, gap: float, tmp_path: Path) -> None:
    path = str(tmp_path / "design.yaml")
    command("topo", "generate", recipe, "-o", path)
    out, took, _ = command("synth", path, "-c", "alltoall", "-s", "tsmcf", "--json", "--no-cache")
    shown = json.loads(out)
    found = float(Fraction(shown["bound_exact"]) / Fraction(shown["algbw_exact"]) - 1)
    print(f"\n{recipe}: {shown['steps']} steps, {shown['algbw_exact']} GB/s, gap {found:.2g}, {took:.1f} s of CPU")
    assert shown["steps"] == steps
    assert found <= gap
    assert took <= seconds
