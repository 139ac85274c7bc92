"""The feasibility test under every stage: can the remaining trees be packed into what capacity is left?

They can if and only if every vertex set S with a GPU in it has enough ways in:
capacity entering S + trees rooted in S >= trees left. (Edmonds' branching theorem; with switches that
have equal capacity in and out it holds on the switch graph, since such switches can be split off.)

Source: Edmonds, Combinatorial Algorithms 1973; Bang-Jensen, Frank & Jackson, SIAM J. Discrete Math.
8(2), 1995, for splitting off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collc.solve import FlowNetwork


class Oracle:
    """Max-flow tests on one graph under changing capacities.

    Vertices 0 .. n_ranks - 1 are GPUs. A super-source supplies each root with its trees; a tree that
    is being grown is one more source with arcs to all it has reached.
    """

    def __init__(self, n_ranks: int, n_vertices: int, tails: Sequence[int], heads: Sequence[int]) -> None:
        self._n_ranks, self._n_vertices = n_ranks, n_vertices
        self._source, partial = n_vertices, n_vertices + 1
        ranks = list(range(n_ranks))
        self._network = FlowNetwork(
            n_vertices + 2,
            [*tails, *[self._source] * n_ranks, self._source, *[partial] * n_ranks],
            [*heads, *ranks, partial, *ranks],
        )
        # Sinks that failed last come first: a later test is likely to fail there too.
        self._order = ranks

    def violated(
        self, capacities: Sequence[int], trees: Sequence[int], reached: Iterable[int] = (), copies: int = 0
    ) -> list[list[bool]]:
        """Vertex sets with too few ways in, at most one for each GPU; none if the packing exists.

        Args:
            capacities: left on each link.
            trees: left to root at each rank.
            reached, copies: the ranks of a partial tree and how many copies of it are wanted.
        """
        open_ranks = [0] * self._n_ranks
        for rank in reached:
            open_ranks[rank] = copies
        self._network.set_capacities([*capacities, *trees, copies, *open_ranks])
        needed = sum(trees) + copies
        found: dict[tuple[bool, ...], None] = {}
        failed = []
        for sink in self._order:
            if any(inside[sink] for inside in found):
                continue
            if self._network.max_flow(self._source, sink) < needed:
                failed.append(sink)
                side = self._network.source_side()[: self._n_vertices]
                found[tuple(not there for there in side)] = None
        if failed:
            self._order = failed + [sink for sink in self._order if sink not in failed]
        return [list(inside) for inside in found]
