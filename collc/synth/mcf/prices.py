"""Prices in floating point -> whole prices, and the bound they prove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collc.ir.flow import Bound
from collc.synth._network import Network
from collc.synth.mcf.children import common_denominator

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Whole prices up to this lose less than one part in a billion.
_FINE = 2**34


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
