"""Schedules that are not eager: with a step more than the diameter, BW-optimal where eager ones are not.

A shard's chunk may arrive later than it could, if that keeps ports busy. Found by integer programming:
for every chunk and vertex one port and step of arrival, after its sender has it; a step's ports carry
at most the step's budget, and the budgets add up to what every port must carry at least.

Source: arXiv:2202.03356 has such schedules for modified de Bruijn graphs; the program is ours.
"""

from __future__ import annotations

from collections import defaultdict

from collc.design.graph import Graph
from collc.design.plan import Move, Plan, lanes_of
from collc.errors import UnsupportedError
from collc.solve import Row, integer_program

_MOST_VARIABLES = 60_000
_SECONDS = 60.0


def patient_plan(graph: Graph, n_steps: int, n_chunks: int | None = None) -> Plan | None:
    """A BW-optimal allgather of so many steps; None where there is none with these chunks (proven).

    Args:
        n_chunks: chunks of a shard; None takes the fewest that let every port carry equally much.

    Raises:
        UnsupportedError: the program would be too large, or the chunks cannot be dealt out evenly.
        BudgetError: the solver's time ran out.
    """
    n, d = graph.n, graph.degree
    chunks = n_chunks or next(count for count in range(1, d + 1) if count * (n - 1) % d == 0)
    if chunks * (n - 1) % d:
        raise UnsupportedError(f"{chunks} chunks of {n - 1} shards do not divide among {d} ports")
    program = _Program(graph, n_steps, chunks)
    if len(program.domains) > _MOST_VARIABLES:
        raise UnsupportedError(
            f"{graph.name}: {len(program.domains)} arrivals to choose from; {_MOST_VARIABLES} at most can be searched"
        )
    values = integer_program(program.domains, program.rows, _SECONDS)
    return None if values is None else program.plan(values)


class _Program:
    """Variables: which chunk crosses which port in which step; then the steps' budgets."""

    def __init__(self, graph: Graph, n_steps: int, n_chunks: int) -> None:
        self.graph, self.n_steps, self.n_chunks = graph, n_steps, n_chunks
        self.domains: list[tuple[int, int]] = []
        self.rows: list[Row] = []
        # (source, chunk, vertex) -> its possible arrivals as (step, lane, variable)
        self.arrivals: dict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.crossing: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._declare()
        self._arrive_once_and_in_order()
        self._keep_budgets()

    def _declare(self) -> None:
        graph = self.graph
        far = graph.distances
        for source in range(graph.n):
            for chunk in range(self.n_chunks):
                for u, row in enumerate(graph.heads):
                    for port, v in enumerate(row):
                        if v in (u, source):
                            continue
                        for step in range(int(far[u, source]), self.n_steps):
                            variable = self._variable(0, 1)
                            lane = u * graph.degree + port
                            self.arrivals[source, chunk, v].append((step, lane, variable))
                            self.crossing[lane, step].append(variable)

    def _variable(self, least: int, most: int) -> int:
        self.domains.append((least, most))
        return len(self.domains) - 1

    def _arrive_once_and_in_order(self) -> None:
        for (source, chunk, _), arrivals in self.arrivals.items():
            self.rows.append(Row(1, [(1, variable) for *_, variable in arrivals], 1))
            for step, lane, variable in arrivals:
                tail = lane // self.graph.degree
                if tail != source:
                    before = [(-1, other) for at, _, other in self.arrivals[source, chunk, tail] if at < step]
                    self.rows.append(Row(-self.n_chunks, [(1, variable), *before], 0))

    def _keep_budgets(self) -> None:
        whole = self.n_chunks * (self.graph.n - 1) // self.graph.degree
        budgets = [self._variable(1, whole) for _ in range(self.n_steps)]
        self.rows.append(Row(whole, [(1, budget) for budget in budgets], whole))
        for (_, step), variables in self.crossing.items():
            self.rows.append(Row(-whole, [*((1, variable) for variable in variables), (-1, budgets[step])], 0))

    def plan(self, values: list[int]) -> Plan:
        moves = [
            Move(step, source, chunk, 1, lane)
            for (source, chunk, _), arrivals in self.arrivals.items()
            for step, lane, variable in arrivals
            if values[variable]
        ]
        return Plan(lanes_of(self.graph), self.n_chunks, tuple(sorted(moves)))
