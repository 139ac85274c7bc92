"""The only door to ortools and HiGHS: flows, cuts, integer programs, and linear programs.

Knows graphs and models, not collectives. Vertices, arcs and variables are numbers. Flows and integer
programs take whole numbers and answer exactly; flow capacities beyond 64 bits are left to networkx and
Python's own integers. Linear programs are solved in floating point: whoever asks must check the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from collc.errors import BudgetError, InfeasibleError, UnsupportedError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# ortools adds capacities up in 64-bit integers; half of that range leaves room for its excess counts.
CAPACITY_LIMIT = 2**62


class FlowNetwork:
    """A directed graph that answers many maximum-flow questions under changing capacities.

    Args:
        n_vertices: vertices are 0 .. n_vertices - 1.
        tails, heads: the ends of each arc.
    """

    def __init__(self, n_vertices: int, tails: Sequence[int], heads: Sequence[int]) -> None:
        import numpy
        from ortools.graph.python import max_flow

        self._solver = max_flow.SimpleMaxFlow()
        self._n_vertices = n_vertices
        self._ends = tuple(zip(tails, heads, strict=True))
        # ortools knows only vertices that it saw on an arc; the last arc, without capacity, names them all.
        ends = (numpy.array([*tails, n_vertices - 1]), numpy.array([*heads, 0]))
        self._solver.add_arcs_with_capacity(*ends, numpy.zeros(len(tails) + 1, dtype=numpy.int64))
        self._arcs = numpy.arange(len(tails))
        # Set while capacities are too large for ortools.
        self._large: list[int] | None = None
        self._side: Iterable[int] | None = None

    def set_capacities(self, capacities: Sequence[int]) -> None:
        """Give every arc a capacity.

        Raises:
            TypeError: a capacity is no `int`; a float would make an exact claim a rounded one.
        """
        import numpy

        if not all(type(capacity) is int for capacity in capacities):
            raise TypeError("capacities must be of type int")
        self._large = list(capacities) if sum(capacities) >= CAPACITY_LIMIT else None
        if self._large is None:
            self._solver.set_arcs_capacity(self._arcs, numpy.array(capacities, dtype=numpy.int64))

    def max_flow(self, source: int, sink: int) -> int:
        """The largest flow from source to sink."""
        if self._large is not None:
            return self._large_flow(self._large, source, sink)
        self._side = None
        status = self._solver.solve(source, sink)
        if status != self._solver.OPTIMAL:
            raise RuntimeError(f"maximum flow from {source} to {sink}: solver status {status}")
        return int(self._solver.optimal_flow())

    def flow(self, arc: int) -> int:
        """What an arc carries in the last flow.

        Raises:
            UnsupportedError: the capacities were too large for the solver that keeps flows by arc.
        """
        if self._large is not None:
            raise UnsupportedError(f"capacities add up to more than {CAPACITY_LIMIT}; flows by arc are kept below that")
        return int(self._solver.flow(arc))

    def source_side(self) -> list[bool]:
        """For each vertex, whether it is on the source's side of a minimum cut of the last flow."""
        within = self._solver.get_source_side_min_cut() if self._side is None else self._side
        side = [False] * self._n_vertices
        for vertex in within:
            side[vertex] = True
        return side

    def _large_flow(self, capacities: Sequence[int], source: int, sink: int) -> int:
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(range(self._n_vertices))
        for (tail, head), capacity in zip(self._ends, capacities, strict=True):
            before = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
            graph.add_edge(tail, head, capacity=before + capacity)
        flow, (self._side, _) = networkx.minimum_cut(graph, source, sink)
        return int(flow)


class Row(NamedTuple):
    """A constraint: low <= sum of coefficient x variable <= high.

    Attributes:
        terms: (coefficient, variable).
    """

    low: int
    terms: Sequence[tuple[int, int]]
    high: int


def integer_program(
    domains: Sequence[tuple[int, int]],
    rows: Iterable[Row],
    seconds: float,
    least: Sequence[tuple[int, int]] = (),
) -> list[int] | None:
    """Values of integer variables that satisfy all rows; None if it is proven that there are none.

    Args:
        domains: least and greatest value of each variable.
        seconds: deterministic time of the solver, so that equal input gives equal output.
        least: terms whose sum is to be least, as far as the time allows.

    Raises:
        BudgetError: the time ran out before either was known.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    variables = [model.new_int_var(low, high, "") for low, high in domains]
    for row in rows:
        model.add_linear_constraint(sum(factor * variables[index] for factor, index in row.terms), row.low, row.high)
    if least:
        model.minimize(sum(factor * variables[index] for factor, index in least))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = seconds
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [int(solver.value(variable)) for variable in variables]
    if status == cp_model.INFEASIBLE:
        return None
    raise BudgetError(f"the solver found neither a solution nor a proof that there is none within {seconds} s")


def cheapest_flow(
    n_vertices: int, tails: Array, heads: Array, capacities: Array, costs: Array, supplies: Array
) -> Array | None:
    """What each arc carries in a flow of least total cost, in whole numbers; None if there is no such flow.

    Args:
        supplies: by vertex, what it gives (or, if negative, takes); they add up to zero.
    """
    import numpy
    from ortools.graph.python import min_cost_flow

    solver = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tails, heads, capacities, costs)
    solver.set_nodes_supplies(numpy.arange(n_vertices), supplies)
    status = solver.solve()
    if status == solver.INFEASIBLE:
        return None
    if status != solver.OPTIMAL:
        raise RuntimeError(f"cheapest flow: solver status {status}")
    flows: Array = solver.flows(arcs)
    return flows


def disjoint_flow(tails: Array, heads: Array, source: int, sink: int) -> Array:
    """Which arcs carry the most ways from source to sink that share none, of the least total length."""
    import numpy
    from ortools.graph.python import min_cost_flow

    solver = min_cost_flow.SimpleMinCostFlow()
    ones = numpy.ones(len(tails), dtype=numpy.int64)
    arcs = solver.add_arcs_with_capacity_and_unit_cost(tails, heads, ones, ones)
    solver.set_node_supply(source, len(tails))
    solver.set_node_supply(sink, -len(tails))
    status = solver.solve_max_flow_with_min_cost()
    if status != solver.OPTIMAL:
        raise RuntimeError(f"disjoint ways from {source} to {sink}: solver status {status}")
    flows: Array = solver.flows(arcs)
    return flows > 0


@dataclass(frozen=True)
class LinearProgram:
    """Least cost over x within bounds, with rows low <= A x <= high; all in floating point.

    Attributes:
        costs, lows, highs: by variable.
        row_lows, row_highs: by row.
        rows, columns, values: the entries of A.
    """

    costs: Array
    lows: Array
    highs: Array
    row_lows: Array
    row_highs: Array
    rows: Array
    columns: Array
    values: Array


class LinearAnswer(NamedTuple):
    """Values of the variables and prices of the rows, as near to optimal as the method came."""

    values: Array
    prices: Array


Method = Literal["simplex", "ipm", "pdlp"]


def linear_program(
    program: LinearProgram, method: Method, *, accuracy: float = 1e-9, seconds: float | None = None
) -> LinearAnswer:
    """An optimal solution: at a corner by simplex, inside by the interior points (no crossover) or PDLP.

    Args:
        accuracy: relative gap at which the two others stop.
        seconds: of wall time, where there is a limit.

    Raises:
        InfeasibleError: there is no solution.
        BudgetError: the method came to no answer, or not in time.
    """
    import highspy
    import numpy

    order = numpy.lexsort((program.rows, program.columns))
    n_columns, n_rows = len(program.costs), len(program.row_lows)
    starts = numpy.searchsorted(program.columns[order], numpy.arange(n_columns))
    # The class with the public name prints a banner on standard output before it can be told not to.
    solver = highspy._Highs()  # type: ignore[attr-defined]
    for key, value in (
        ("output_flag", False),
        ("solver", method),
        ("threads", 1),
        ("random_seed", 0),
        ("run_crossover", "off"),
        ("ipm_optimality_tolerance", accuracy),
        ("pdlp_optimality_tolerance", accuracy),
        ("time_limit", float("inf") if seconds is None else seconds),
    ):
        solver.setOptionValue(key, value)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n_columns, n_rows
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.costs, program.lows, program.highs
    lp.row_lower_, lp.row_upper_ = program.row_lows, program.row_highs
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = numpy.append(starts, len(order)).astype(numpy.int32)
    lp.a_matrix_.index_ = program.rows[order].astype(numpy.int32)
    lp.a_matrix_.value_ = program.values[order].astype(numpy.float64)
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        raise InfeasibleError("the linear program has no solution")
    found = solver.getSolution()
    if status == highspy.HighsModelStatus.kTimeLimit or not (found.value_valid and found.dual_valid):
        raise BudgetError(f"{method} came to no answer: {solver.modelStatusToString(status)}")
    return LinearAnswer(numpy.array(found.col_value), numpy.array(found.row_dual))


class Simplex:
    """A linear program to which rows are added: the most of an objective over x >= 0, in floating point.

    It answers with a basis too, from which whoever asks can compute the exact solution.

    Args:
        objective: by variable.
        unit: right-hand sides are divided by it, so that they come near one.
    """

    def __init__(self, objective: Sequence[int], unit: int = 1) -> None:
        from ortools.linear_solver import pywraplp

        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._unit = unit
        self._variables = [self._solver.NumVar(0, self._solver.infinity(), "") for _ in objective]
        self._rows: list[Any] = []
        self.set_objective(objective)

    def set_objective(self, objective: Sequence[int]) -> None:
        """Ask for the most of something else."""
        for variable, factor in zip(self._variables, objective, strict=True):
            self._solver.Objective().SetCoefficient(variable, factor)
        self._solver.Objective().SetMaximization()

    def add_row(self, terms: Iterable[tuple[int, int]], high: int, *, equal: bool = False) -> None:
        """Require the sum of coefficient x variable to be at most `high`, or equal to it.

        Args:
            terms: (coefficient, variable).
        """
        most = high / self._unit
        row = self._solver.Constraint(most if equal else -self._solver.infinity(), most, "")
        for factor, index in terms:
            row.SetCoefficient(self._variables[index], factor)
        self._rows.append(row)

    def solve(self) -> list[float] | None:
        """The values of the variables at an optimal corner; None where the solver comes to none."""
        if self._solver.Solve() != self._solver.OPTIMAL:
            return None
        return [variable.solution_value() * self._unit for variable in self._variables]

    def basis(self) -> tuple[list[int], list[int]]:
        """The variables that the last corner determines, and the rows that hold there with equality."""
        variables = [i for i, one in enumerate(self._variables) if one.basis_status() == self._solver.BASIC]
        return variables, [i for i, one in enumerate(self._rows) if one.basis_status() != self._solver.BASIC]
