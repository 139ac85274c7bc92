"""Random fabrics for hypothesis: connected, with switches in balance, GPUs as uneven as they come."""

from __future__ import annotations

from fractions import Fraction

from fabrics import Pair, fabric
from hypothesis import strategies as st

from collc.ir.topology import Topology

BANDWIDTHS = st.sampled_from([Fraction(1), Fraction(2), Fraction(3), Fraction(7, 3), Fraction(25, 2)])


@st.composite
def fabrics(draw: st.DrawFn, max_ranks: int = 5, max_switches: int = 3, symmetric: bool = False) -> Topology:
    """Directed fabrics. Links come as closed walks, which enter and leave every switch equally."""
    n = draw(st.integers(2, max_ranks))
    gpus = [f"g{rank}" for rank in range(n)]
    switches = [f"s{index}" for index in range(draw(st.integers(0, max_switches)))]
    links: list[Pair] = []

    def walk(stops: list[str], bandwidth: Fraction) -> None:
        for src, dst in zip(stops, stops[1:] + stops[:1], strict=True):
            if src != dst:
                links.append((src, dst, bandwidth))
                links.extend([(dst, src, bandwidth)] if symmetric else [])

    # One walk through all GPUs makes every rank reach every other.
    walk(draw(st.permutations(gpus)), draw(BANDWIDTHS))
    for _ in range(draw(st.integers(0, 4))):
        walk(draw(st.lists(st.sampled_from(gpus + switches), min_size=2, max_size=6)), draw(BANDWIDTHS))
    for _ in range(draw(st.integers(0, 4))):
        src, dst = draw(st.permutations(gpus))[:2]
        links.append((src, dst, draw(BANDWIDTHS)))
        links.extend([(dst, src, links[-1][2])] if symmetric else [])
    return fabric("random", n, links, switches)
