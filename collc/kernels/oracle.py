"""The feasibility test under bounds and packings: does every rank get what all roots send?

It does if and only if every vertex set S with a GPU in it has enough ways in: capacity entering S +
what starts in S >= all that is sent. (Max-flow/min-cut for rates, Edmonds' branching theorem for trees;
with switches that have equal capacity in and out it holds on the switch graph, since such switches
can be split off.)

Source: Edmonds, Combinatorial Algorithms 1973; Bang-Jensen, Frank & Jackson, SIAM J. Discrete Math.
8(2), 1995, for splitting off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from collc.kernels import LIMIT, Ints, filled, ints, load

# Cuts of one pass at most, and where no more are asked for: many at a time are much alike, and all have to be kept.
_ROOM, _MOST = 64, 4


class Oracle:
    """Tests on one graph under changing capacities.

    Vertices 0 .. n_ranks - 1 are GPUs. A tree that is being grown is one more vertex, a source with
    arcs to all it has reached.

    Args:
        slot: by arc, where its capacity stands; its own place by default.
        orbits: ranks that a symmetry makes alike; one test serves all of them.
        compiled: whether the numbers are large enough in number, and small enough in size, for that.
    """

    def __init__(
        self,
        n_ranks: int,
        n_vertices: int,
        tails: Sequence[int],
        heads: Sequence[int],
        *,
        slot: Sequence[int] | None = None,
        orbits: Iterable[Sequence[int]] = (),
        compiled: bool = False,
    ) -> None:
        self._n_ranks, self._n_vertices, self._compiled = n_ranks, n_vertices, compiled
        slot = range(len(tails)) if slot is None else slot
        self._n_slots = max(slot, default=-1) + 1
        ranks = range(n_ranks)
        tails, heads = [*tails, *[n_vertices] * n_ranks], [*heads, *ranks]
        slots = [*slot, *(self._n_slots + rank for rank in ranks)]
        touching: list[list[int]] = [[] for _ in range(n_vertices + 1)]
        for arc, (tail, head) in enumerate(zip(tails, heads, strict=True)):
            touching[head].append(arc)
            touching[tail].append(arc)
        starts = [0]
        for arcs in touching:
            starts.append(starts[-1] + len(arcs))
        twin = list(range(n_vertices + 1))
        for orbit in orbits:
            for rank, following in zip(orbit, [*orbit[1:], orbit[0]], strict=True):
                twin[rank] = following
        self._orbit_first = sorted({*ranks} - {rank for orbit in orbits for rank in orbit[1:]})
        self._twin = self._ints(twin)
        self._kernel: Any = load("supply", compiled)
        room = {
            "found": _ROOM * (n_vertices + 1),
            "flow": len(tails),
            "used": n_vertices + 1,
            "cursor": n_vertices + 1,
            "queue": n_vertices + 1,
            "path": n_vertices + 1,
            "touched": len(tails),
            "noted": len(tails),
            "supply": n_vertices + 1,
            "passed": n_vertices + 1,
            "capacity": self._n_slots + n_ranks,
        }
        self._net = self._kernel.Network(
            tails=self._ints(tails),
            heads=self._ints(heads),
            slot=self._ints(slots),
            start=self._ints(starts),
            arcs=self._ints([arc for arcs in touching for arc in arcs]),
            level=filled(n_vertices + 1, -1, compiled),
            **{name: filled(length, 0, compiled) for name, length in room.items()},
        )

    def _ints(self, values: Iterable[int]) -> Ints:
        return ints(values, self._compiled)

    def begin(
        self, capacities: Ints | Sequence[int], supply: Sequence[int], reached: Sequence[int] = (), copies: int = 0
    ) -> int:
        """Set what links carry and what ranks send; what each rank must get of it.

        Args:
            capacities: by slot.
            supply: by rank.
            reached, copies: the ranks of a partial tree and how many copies of it are wanted.
        """
        self._net.passed[:] = filled(self._n_vertices + 1, 0, self._compiled)
        return self.go_on(capacities, supply, reached, copies)

    def go_on(
        self, capacities: Ints | Sequence[int], supply: Sequence[int], reached: Sequence[int] = (), copies: int = 0
    ) -> int:
        """The same, where all ranks that passed would pass again."""
        net, n, slots = self._net, self._n_ranks, self._n_slots
        net.capacity[:slots] = capacities[:slots] if self._compiled else list(capacities)
        net.capacity[slots:] = self._ints([0] * n)
        for rank in reached:
            net.capacity[slots + rank] = LIMIT
        net.supply[:n] = self._ints(supply)
        net.supply[self._n_vertices] = copies
        return sum(supply) + copies

    def next_violated(self, needed: int, most: int = _MOST) -> list[bytes]:
        """Vertex sets with too few ways in, so many at most, and at most one for each GPU.

        A set is a byte for each vertex, 1 inside.

        Ranks that passed are not asked again before the next `begin`.
        """
        count = self._kernel.violated(self._net, self._ints(self._orbit_first), self._twin, needed, min(most, _ROOM))
        width = self._n_vertices + 1
        rows = [self._net.found[row * width : row * width + self._n_vertices] for row in range(count)]
        return [bytes(row) if isinstance(row, list) else row.astype("uint8").tobytes() for row in rows]

    def violated(
        self, capacities: Ints | Sequence[int], supply: Sequence[int], reached: Sequence[int] = (), copies: int = 0
    ) -> list[bytes]:
        """Vertex sets with too few ways in; none if the packing exists."""
        found = self.next_violated(self.begin(capacities, supply, reached, copies))
        if found:
            # Sinks that failed come first: a later test is likely to fail there too.
            self._orbit_first.sort(key=lambda rank: not any(inside[rank] for inside in found))
        return found
