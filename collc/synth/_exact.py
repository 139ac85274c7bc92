"""What linear programs answer in floating point -> exact numbers: shares, and prices with the bound they prove."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from collc.ir.flow import Bound
from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Numbers that are multiples of 1/q, to this accuracy, are tried as exactly that.
_SHARP = 1e-11
_MOST_PARTS = 10**9
_MOST_PARTS_OF_ONE = 20_000
# Whole prices up to this lose less than one part in a billion.
_FINE = 2**34


def common_denominator(values: Array) -> int | None:
    """The least q up to a limit such that all values are multiples of 1/q, or nearly; None without one."""
    import numpy

    scale = 1
    rest = values
    while True:
        rest = rest[numpy.abs(rest - numpy.rint(rest * scale) / scale) > _SHARP]
        if not len(rest):
            return scale
        first = float(rest[0])
        near = Fraction(first).limit_denominator(_MOST_PARTS_OF_ONE)
        scale = lcm(scale, near.denominator)
        if scale > _MOST_PARTS or abs(first - near) > _SHARP:
            return None


def certify(network: Network, prices: Array, *, alike: bool = False) -> Bound | None:
    """The best bound of whole prices near these; None where all are zero.

    Args:
        alike: whether renamings that keep fabric, demand and prices take rank 0 to every rank.
    """
    import numpy

    top = prices.max(initial=0.0)
    if not top > 0:
        return None
    shares = prices / top
    tried = [numpy.rint(shares * _FINE).astype(numpy.int64)]
    if scale := common_denominator(shares):
        tried.append(numpy.rint(shares * scale).astype(numpy.int64))
    # Where both prove the same, the shorter numbers are kept.
    return max((network.price_bound(whole, alike=alike) for whole in reversed(tried)), key=lambda bound: bound.time)
