"""Schedules that are not eager: with a step more than the diameter, BW-optimal where eager ones are not.

A shard's chunk may arrive later than it could, if that keeps ports busy. Found by integer programming:
for every chunk and vertex one port and step of arrival, after its sender has it; a step's ports carry
at most the step's budget, and the budgets add up to what every port must carry at least.

Source: arXiv:2202.03356 has such schedules for modified de Bruijn graphs; the program is ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from collc.design.expand import on_links
from collc.design.graph import Graph, Permutation
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
    if graph.symmetries:
        # A plan that is alike from all vertices of a class is sought first: there is less to choose.
        plan = _solved(_Program(graph, n_steps, chunks, graph.symmetries))
        if plan is not None:
            return plan
    return _solved(_Program(graph, n_steps, chunks, ()))


def _solved(program: _Program) -> Plan | None:
    if len(program.domains) > _MOST_VARIABLES:
        raise UnsupportedError(
            f"{program.graph.name}: {len(program.domains)} arrivals to choose from; expected {_MOST_VARIABLES} at most"
        )
    values = integer_program(program.domains, program.rows, _SECONDS)
    return None if values is None else program.plan(values)


class _Program:
    """Variables: which chunk crosses which port in which step; then the steps' budgets.

    What the given symmetries map onto each other is one variable.
    """

    def __init__(self, graph: Graph, n_steps: int, n_chunks: int, symmetries: Sequence[Permutation]) -> None:
        self.graph, self.n_steps, self.n_chunks = graph, n_steps, n_chunks
        self._first = _orbits(graph, symmetries)
        self._shared: dict[tuple[int, int, int], int] = {}
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
                            lane = u * graph.degree + port
                            variable = self._crossing(source, lane, chunk, step)
                            self.arrivals[source, chunk, v].append((step, lane, variable))
                            self.crossing[lane, step].append(variable)

    def _crossing(self, source: int, lane: int, chunk: int, step: int) -> int:
        key = self._first[source * len(self._first) // self.graph.n + lane], chunk, step
        if key not in self._shared:
            self._shared[key] = self._variable(0, 1)
        return self._shared[key]

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

        # What the symmetries map onto each other is asked for once.
        self.rows = list({(row.low, tuple(row.terms), row.high): row for row in self.rows}.values())

    def plan(self, values: list[int]) -> Plan:
        moves = [
            Move(step, source, chunk, 1, lane)
            for (source, chunk, _), arrivals in self.arrivals.items()
            for step, lane, variable in arrivals
            if values[variable]
        ]
        return Plan(lanes_of(self.graph), self.n_chunks, tuple(sorted(moves)))


def _orbits(graph: Graph, symmetries: Sequence[Permutation]) -> list[int]:
    """By (source, port), numbered source by source, the first that some symmetries map onto it."""
    n_lanes = graph.n * graph.degree
    moves = [(image, on_links(graph, image)) for image in symmetries]
    first = [-1] * (graph.n * n_lanes)
    for start in range(len(first)):
        if first[start] >= 0:
            continue
        first[start] = start
        waiting = [start]
        while waiting:
            source, lane = divmod(waiting.pop(), n_lanes)
            for image, link in moves:
                other = image[source] * n_lanes + link[lane]
                if first[other] < 0:
                    first[other] = start
                    waiting.append(other)
    return first
