"""All-to-all split equally over all shortest ways."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from collc import cost
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.synth import _ways
from collc.synth._network import Network


@dataclass(frozen=True)
class EqualSplit:
    """Every pair's data in equal parts over all its ways of fewest links.

    Guarantee: none; a baseline for mcf.
    Supports: alltoall, alltoallv, scatter, gather on fabrics with not too many shortest ways.
    Source: equal-cost multi-path routing (RFC 2992), by ways instead of by hops.

    Attributes:
        most: ways of a pair at most.
    """

    in_auto: ClassVar[bool] = False
    most: int = 1000

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return _ways.refusal("equal_split", problem)

    def run(self, problem: Problem) -> FlowSchedule:
        """All shortest ways of every pair.

        Raises:
            InfeasibleError: a rank cannot be reached.
            UnsupportedError: a pair has too many shortest ways.
        """
        network = Network.of(problem)
        found = {}
        for (src, dst), paths in network.short_ways(extra=0, most=self.most).items():
            found[src, dst] = [(path, Fraction(1, len(paths))) for path in paths]
        return _ways.schedule(problem, found, cost.bound(problem))
