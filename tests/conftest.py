"""What every test may ask for: golden files, small fabrics, the shared reference folder."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from collc.ir.topology import Link, Topology

SHARED = Path(__file__).parents[2] / "shared"
GOLDEN = Path(__file__).parent / "golden"

# How long drawing an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("collc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("collc")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files from what the tests made")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/NAME, or rewrite that file under --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        if not path.exists():
            pytest.fail(f"no golden file {name}; `make golden` writes it")
        assert path.read_bytes().decode() == text, f"golden file {name} differs; see what changed, then `make golden`"

    return compare


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts and published files beside the checkout; tests that read it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("no shared folder beside the checkout")
    return SHARED


def both_ways(a: str, b: str, bandwidth: Fraction | int = 1) -> tuple[Link, Link]:
    """A cable: a link each way."""
    return Link(a, b, Fraction(bandwidth)), Link(b, a, Fraction(bandwidth))


def ring_fabric(n: int, bandwidth: Fraction | int = 1) -> Topology:
    """n GPUs in a circle, a cable between neighbours."""
    gpus = tuple(f"g{rank}" for rank in range(n))
    links = {(link.src, link.dst): link for i in range(n) for link in both_ways(gpus[i], gpus[(i + 1) % n], bandwidth)}
    return Topology("ring", gpus, (), tuple(links.values()))


def star_fabric(n: int, bandwidth: Fraction | int = 1) -> Topology:
    """n GPUs round one switch."""
    gpus = tuple(f"g{rank}" for rank in range(n))
    links = tuple(link for gpu in gpus for link in both_ways(gpu, "s", bandwidth))
    return Topology("star", gpus, ("s",), links)


@pytest.fixture
def ring4() -> Topology:
    return ring_fabric(4)


@pytest.fixture
def star4() -> Topology:
    return star_fabric(4)
