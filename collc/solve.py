"""The only door to ortools: integer maximum flows and minimum cuts.

Knows graphs, not collectives. Vertices and arcs are numbers, capacities are whole numbers: an exact
answer from exact input, or an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from collc.errors import UnsupportedError

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
        self._n_arcs = len(tails)
        # ortools knows only vertices that it saw on an arc; the last arc, without capacity, names them all.
        ends = (numpy.array([*tails, n_vertices - 1]), numpy.array([*heads, 0]))
        self._solver.add_arcs_with_capacity(*ends, numpy.zeros(self._n_arcs + 1, dtype=numpy.int64))
        self._arcs = numpy.arange(self._n_arcs)

    def set_capacities(self, capacities: Sequence[int]) -> None:
        """Give every arc a capacity.

        Raises:
            TypeError: a capacity is no `int`; a float would make an exact claim a rounded one.
            UnsupportedError: the capacities add up to more than the solver counts.
        """
        import numpy

        if not all(type(capacity) is int for capacity in capacities):
            raise TypeError("capacities must be of type int")
        total = sum(capacities)
        if total >= CAPACITY_LIMIT:
            raise UnsupportedError(
                f"capacities add up to {total}; expected less than 2^62, as far as the solver counts"
            )
        self._solver.set_arcs_capacity(self._arcs, numpy.array(capacities, dtype=numpy.int64))

    def set_capacity(self, arc: int, capacity: int) -> None:
        """Give one arc a capacity; the caller keeps the sum below `CAPACITY_LIMIT`."""
        if type(capacity) is not int:
            raise TypeError("capacities must be of type int")
        self._solver.set_arc_capacity(arc, capacity)

    def max_flow(self, source: int, sink: int) -> int:
        """The largest flow from source to sink."""
        status = self._solver.solve(source, sink)
        if status != self._solver.OPTIMAL:
            raise RuntimeError(f"maximum flow from {source} to {sink}: solver status {status}")
        return int(self._solver.optimal_flow())

    def source_side(self) -> list[bool]:
        """For each vertex, whether it is on the source's side of a minimum cut of the last flow."""
        side = [False] * self._n_vertices
        for vertex in self._solver.get_source_side_min_cut():
            side[vertex] = True
        return side

    def sink_side(self) -> list[bool]:
        """For each vertex, whether it is on the sink's side of the minimum cut nearest to the sink."""
        side = [False] * self._n_vertices
        for vertex in self._solver.get_sink_side_min_cut():
            side[vertex] = True
        return side
