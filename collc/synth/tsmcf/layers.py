"""A network drawn once for each step: what a source's data may do, as one flow without circles.

    rank v before step t --- link, through switches ---> rank w before step t + 1
    rank v before step t ----------- stays ------------> rank v before step t + 1

A rank sends in a step what it held before; a switch passes on within the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collc.errors import InfeasibleError
from collc.synth._network import Network
from collc.synth._symmetry import Translations

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Flow variables up to which the linear program is solved.
MOST_FLOWS = 60_000
# Up to so many, whole numbers are looked for by an integer program; of one source there is no other way.
MOST_WHOLE = 12_000


def hops(network: Network) -> Array:
    """[ranks x vertices] the least number of steps from each rank; to a switch, that of the step that uses it."""
    import numpy

    found: Array = network.fares((network.tails < network.n_ranks).astype(numpy.int64))
    return found


def least_steps(network: Network, found: Array) -> tuple[int, int, int]:
    """The most steps that any pair needs, and which pair that is.

    Args:
        found: what `hops` says.

    Raises:
        InfeasibleError: a rank cannot be reached.
    """
    import numpy

    needed = numpy.where(network.demand > 0, found[:, : network.n_ranks], 0)
    src, dst = (int(at) for at in numpy.unravel_index(needed.argmax(), needed.shape))
    if needed[src, dst] > network.n_vertices:
        raise InfeasibleError(f"rank {dst} cannot be reached from rank {src}")
    return int(needed[src, dst]), src, dst


@dataclass(frozen=True, eq=False)
class Layers:
    """The arcs that some source's data may take in some step.

    Vertices are ranks before each step and after the last, then switches in each step. Flow variables
    are pairs of a source and an arc; those that no data can reach are left out.

    Attributes:
        network: the fabric and the demand.
        n_steps: steps.
        sources: whose data; rank 0 alone where translations tell the rest.
        translations: renamings that take rank 0 to every rank.
        row: by variable, the place of its source in `sources`.
        arc: by variable; `step * n_links + link`, then `n_steps * n_links + step * n_ranks + rank` for what stays.
    """

    network: Network
    n_steps: int
    sources: Array
    translations: Translations | None
    row: Array
    arc: Array

    @staticmethod
    def of(network: Network, n_steps: int, translations: Translations | None, found: Array) -> Layers:
        """The arcs of so many steps.

        Args:
            found: what `hops` says.
        """
        import numpy

        n = network.n_ranks
        sources = numpy.flatnonzero(network.demand.sum(axis=1)) if translations is None else numpy.array([0])
        step = numpy.arange(n_steps)[:, None]
        rows, arcs = [], []
        for row, source in enumerate(sources.tolist()):
            # Data is at a rank from the step on that its distance says, and passes a switch one step before.
            there = found[source] - (numpy.arange(network.n_vertices) >= n)
            moves = (there[network.tails] <= step) & (network.heads != source)
            stays = there[:n] <= step
            used = numpy.flatnonzero(numpy.concatenate([moves.ravel(), stays.ravel()]))
            rows.append(numpy.full(len(used), row))
            arcs.append(used)
        return Layers(network, n_steps, sources, translations, numpy.concatenate(rows), numpy.concatenate(arcs))

    @property
    def n_vertices(self) -> int:
        """Ranks before each step and after the last, and switches in each step."""
        n, n_switches = self.network.n_ranks, self.network.n_vertices - self.network.n_ranks
        return (self.n_steps + 1) * n + self.n_steps * n_switches

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """Tails and heads by arc."""
        import numpy

        network, n = self.network, self.network.n_ranks
        n_switches = network.n_vertices - n
        step = numpy.arange(self.n_steps)[:, None]
        in_step = (self.n_steps + 1) * n + step * n_switches - n
        rank = numpy.arange(n)
        tails = numpy.where(network.tails < n, step * n, in_step) + network.tails
        heads = numpy.where(network.heads < n, (step + 1) * n, in_step) + network.heads
        stay = step * n + rank
        return (
            numpy.concatenate([tails.ravel(), stay.ravel()]),
            numpy.concatenate([heads.ravel(), (stay + n).ravel()]),
        )

    @cached_property
    def moves(self) -> Array:
        """By variable, whether its arc is a link."""
        return self.arc < self.n_steps * self.network.n_links

    @cached_property
    def needs(self) -> Array:
        """[sources x vertices] slots that come to stay, negative where a source's set out."""
        import numpy

        n, demand = self.network.n_ranks, self.network.demand[self.sources]
        found: Array = numpy.zeros((len(self.sources), self.n_vertices), dtype=numpy.int64)
        found[:, self.n_steps * n : (self.n_steps + 1) * n] = demand
        found[numpy.arange(len(self.sources)), self.sources] -= demand.sum(axis=1)
        return found

    @cached_property
    def groups(self) -> tuple[Array, Array]:
        """By link, the group of links loaded alike, and how many times a source's flow on it counts for that load."""
        import numpy

        n_links = self.network.n_links
        if self.translations is None:
            return numpy.arange(n_links), numpy.ones(n_links, dtype=numpy.int64)
        group = self.translations.classes
        # A link that several translations leave in place is loaded by all of them.
        return group, self.network.n_ranks // numpy.bincount(group)[group]
