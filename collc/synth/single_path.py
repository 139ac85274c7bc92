"""All-to-all with one way per pair, chosen together by an integer program."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import ClassVar

from collc import cost
from collc.ir.collective import Problem
from collc.ir.flow import FlowSchedule
from collc.solve import Row, integer_program
from collc.synth import _ways
from collc.synth._network import Network

# Pairs times ways that the solver is given at most.
_MOST_CHOICES = 20_000


@dataclass(frozen=True)
class SinglePath:
    """The one way per pair that together load the busiest link least, among ways of bounded length.

    Guarantee: none; a baseline for mcf. Within `seconds` the solver may stop short of the best choice.
    Supports: alltoall, alltoallv, scatter, gather on small fabrics.
    Source: arXiv:2309.13541, single-path integer program; solved by CP-SAT.

    Attributes:
        extra: links that a way may have beyond the fewest.
        seconds: deterministic time of the solver.
    """

    in_auto: ClassVar[bool] = False
    extra: int = 0
    seconds: int = 20

    def supports(self, problem: Problem) -> str | None:
        """None, or why it does not serve this problem."""
        return _ways.refusal("single_path", problem)

    def run(self, problem: Problem) -> FlowSchedule:
        """The best choice the solver found.

        Raises:
            InfeasibleError: a rank cannot be reached.
            UnsupportedError: there are too many ways to choose from.
            BudgetError: the solver found no choice in its time.
        """
        network = Network.of(problem)
        limit = cost.bound(problem)
        if limit is None:
            return _ways.schedule(problem, {}, None)
        choices = network.short_ways(extra=self.extra, most=_MOST_CHOICES // max(1, int((network.demand > 0).sum())))
        rows, busiest = _program(network, choices)
        n_choices = sum(map(len, choices.values()))
        domains = [(0, 1)] * n_choices + [(0, busiest)]
        values = integer_program(domains, rows, self.seconds, least=[(1, n_choices)])
        if values is None:
            raise RuntimeError("one way per pair can always be chosen")
        number = 0
        found = {}
        for pair, paths in choices.items():
            (chosen,) = [at for at in range(len(paths)) if values[number + at]]
            found[pair] = [(paths[chosen], Fraction(1))]
            number += len(paths)
        return _ways.schedule(problem, found, limit)


def _program(network: Network, choices: dict[tuple[int, int], list[tuple[str, ...]]]) -> tuple[list[Row], int]:
    """One way of each pair; no link busier than the last variable. Busy times are whole, in a common measure."""
    common = lcm(*network.bandwidths.tolist())
    busy = {
        (link.src, link.dst): common // int(width)
        for link, width in zip(network.topology.links, network.bandwidths, strict=True)
    }
    crossing: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    rows, number = [], 0
    for (src, dst), paths in choices.items():
        rows.append(Row(1, [(1, number + at) for at in range(len(paths))], 1))
        for path in paths:
            for hop in pairwise(path):
                crossing[hop].append((busy[hop] * int(network.demand[src, dst]), number))
            number += 1
    busiest = max(sum(amount for amount, _ in terms) for terms in crossing.values())
    rows += [Row(-busiest, [*terms, (-1, number)], 0) for terms in crossing.values()]
    return rows, busiest
