"""Translations of a fabric: renamings, one for each rank, that leave its links and the demand as they are.

With them every rank's flow is the image of rank 0's, and the linear program has one source: averaging
any optimal flow over the translations keeps its loads and makes it such an image.

They are guessed, from the order of the links, from rank numbers read as mixed-radix digits, or from how the
fabric looks from each rank, and checked. Those that take rank 0 to its neighbours tell all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

from collc.symmetry import mixed
from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ways of writing the rank number in digits that are tried.
_MOST_RADICES = 64
# Renamings to one neighbour that are tried where looks leave a choice, and choices for some neighbours.
_MOST_ALIKE = 8
_MOST_CHOICES = 256
# Looks that are taken at most, and at least so many, if they see no more links than that.
_MOST_LOOKS, _LEAST_LOOKS, _MOST_SEEN = 256, 16, 2**21


@dataclass(frozen=True, eq=False)
class Translations:
    """One automorphism for each rank, which maps rank 0 onto it; together they are a group.

    Attributes:
        network: whose.
        vertices: [ranks x vertices] image of each vertex.
    """

    network: Network
    vertices: Array

    @cached_property
    def links(self) -> Array:
        """[ranks x links] image of each link."""
        found = _link_images(self.network, self.vertices)
        assert found is not None  # products of renamings that keep links
        return found

    @cached_property
    def classes(self) -> Array:
        """By link, the number of its class: links that translations take to each other, by their first."""
        import numpy

        network = self.network
        images = self.vertices
        place = _Places(network)
        found = numpy.full(network.n_links, network.n_links)
        for link in range(network.n_links):
            if found[link] == network.n_links:
                # The first of its class that has no number yet: nothing before it is taken to it.
                found[place.of(images[:, network.tails[link]], images[:, network.heads[link]])] = link
        return numpy.unique(found, return_inverse=True)[1].reshape(-1)


def find(network: Network) -> Translations | None:
    """Translations that map rank 0 onto every rank; None if none are found."""
    import numpy

    demand = network.demand
    if network.n_ranks < 2 or (demand.sum(axis=1) != demand.sum(axis=1)[0]).any() or network.topology.switches:
        return None
    every = numpy.arange(network.n_ranks, dtype=numpy.int32)
    for steps in _guesses(network, network.heads[network.tails == 0]):
        # What generates a group tells the rest of it.
        if _link_images(network, steps) is not None and _keeps_demand(demand, steps):
            found = _generated(steps, every)
            if found is not None and found[1].all():
                return Translations(network, found[0])
    return None


def _generated(steps: Array, some: Array) -> tuple[Array, Array] | None:
    """The group that renamings generate, by where each of it takes rank 0; None if two take it to the same.

    They do where for some renaming and step, the step after the renaming is not the one that leads as far.

    Returns:
        [ranks x some] where each of the group takes some vertices, and to which ranks one takes rank 0.
    """
    import numpy

    n = steps.shape[1]
    moves = steps.tolist()
    images = numpy.zeros((n, len(some)), dtype=numpy.int32)
    images[0] = some
    reached, is_reached = [0], numpy.zeros(n, dtype=bool)
    is_reached[0] = True
    for vertex in reached:
        for step, move in zip(steps, moves, strict=True):
            if not is_reached[move[vertex]]:
                is_reached[move[vertex]] = True
                reached.append(move[vertex])
                images[move[vertex]] = step[images[vertex]]
    rows = slice(None) if len(reached) == n else numpy.array(sorted(reached))
    if any((images[step[rows]] != step[images[rows]]).any() for step in steps):
        return None
    return images, is_reached


def _keeps_demand(demand: Array, vertices: Array) -> bool:
    n = len(demand)
    # Most often every rank sends as much to every other, and nothing to itself.
    if demand[0, -1] and ((demand == demand[0, -1]).sum(axis=1) == n - 1).all() and not demand.diagonal().any():
        return True
    return all((demand[image[:n]][:, image[:n]] == demand).all() for image in vertices)


class _Places:
    """Numbers of links by their ends."""

    def __init__(self, network: Network) -> None:
        import numpy

        self._network = network
        keys = network.tails * network.n_vertices + network.heads
        self._order = numpy.argsort(keys)
        self._keys = keys[self._order]

    def of(self, tails: Array, heads: Array) -> Array:
        """The number of each link; -1 where there is none."""
        import numpy

        wanted = tails.astype(numpy.int64) * self._network.n_vertices + heads
        at = numpy.minimum(numpy.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return numpy.where(self._keys[at] == wanted, self._order[at], -1)


def _link_images(network: Network, vertices: Array) -> Array | None:
    """[renamings x links] the image of each link, if every image of a link is a link of equal bandwidth."""
    import numpy

    place = _Places(network)
    found = numpy.empty((len(vertices), network.n_links), dtype=numpy.int32)
    for row, image in zip(found, vertices, strict=True):
        row[:] = place.of(image[network.tails], image[network.heads])
        if (row < 0).any() or (network.bandwidths[row] != network.bandwidths).any():
            return None
    return found


def _guesses(network: Network, neighbours: Array) -> Iterator[Array]:
    """[renamings x ranks] some that may take rank 0 to its neighbours, and so on to every rank."""
    if (labelled := _by_ports(network, neighbours)) is not None:
        yield labelled
    for radices in _radices(network.n_ranks):
        yield _shifts(radices, neighbours)
    yield from _by_looks(network, neighbours)


def _radices(n: int) -> list[tuple[int, ...]]:
    """Ways of writing n as an ordered product of factors above one, few factors first."""
    found: list[tuple[int, ...]] = []

    def extend(head: tuple[int, ...], rest: int) -> None:
        if len(found) >= 8 * _MOST_RADICES:
            return
        if rest == 1:
            found.append(head)
        for factor in range(2, rest + 1):
            if rest % factor == 0:
                extend((*head, factor), rest // factor)

    extend((), n)
    even = [(base,) * power for base in range(2, n) for power in range(2, n.bit_length() + 1) if base**power == n]
    return [*even, *sorted(found, key=lambda radices: (len(radices), radices))][:_MOST_RADICES]


def _shifts(radices: tuple[int, ...], by: Array) -> Array:
    """[by what x ranks] digit by digit sums."""
    import numpy

    every = numpy.arange(prod(radices), dtype=numpy.int32)
    total = numpy.zeros((len(by), len(every)), dtype=numpy.int32)
    place = 1
    for radix in reversed(radices):
        digit = every // place % radix
        total += (digit[by][:, None] + digit[None, :]) % radix * place
        place *= radix
    return total


def _by_ports(network: Network, neighbours: Array) -> Array | None:
    """Images that keep each GPU's first link first, its second second, and so on.

    Cayley graphs list the links of all vertices by generator, and their translations keep those.
    """
    import numpy

    n = network.n_ranks
    degrees = numpy.bincount(network.tails, minlength=n)
    if (degrees != degrees[0]).any():
        return None
    heads = network.heads[numpy.argsort(network.tails, kind="stable")].reshape(n, -1).T.astype(numpy.int32)
    images = numpy.full((n, len(neighbours)), -1, dtype=numpy.int32)
    images[0] = neighbours
    reached = [0]
    known = {0}
    for vertex in reached:
        for port, head in enumerate(heads[:, vertex].tolist()):
            if head not in known:
                known.add(head)
                reached.append(head)
                images[head] = heads[port][images[vertex]]
    if len(known) < n or (numpy.sort(images, axis=0) != numpy.arange(n)[:, None]).any():
        return None
    return numpy.ascontiguousarray(images.T)


def _by_looks(network: Network, neighbours: Array) -> Iterator[Array]:
    """Images that keep how the fabric looks from each vertex with some of them marked."""
    import numpy

    n = network.n_ranks
    left = iter(range(min(_MOST_LOOKS, max(_LEAST_LOOKS, _MOST_SEEN // network.n_links))))
    options = cache(lambda rank: list(islice(_alike(network, [0], [rank], left), _MOST_ALIKE)))
    some = numpy.arange(0, n, -(-n // 8), dtype=numpy.int32)
    choices: list[list[Array]] = [[]]
    for _ in range(_MOST_CHOICES):
        if not choices:
            return
        chosen = choices.pop()
        steps = numpy.array(chosen, dtype=numpy.int32).reshape(-1, n)
        if (found := _generated(steps, some)) is None:
            continue
        if found[1].all():
            yield steps
            continue
        # A neighbour that those chosen do not lead to; as ways lead everywhere, there is one.
        rank = next((rank for rank in neighbours.tolist() if not found[1][rank]), None)
        if rank is None:
            return
        choices += [[*chosen, move] for move in reversed(options(rank))]


def _alike(network: Network, before: list[int], after: list[int], left: Iterator[int]) -> Iterator[Array]:
    """Renamings that take some vertices to some others and may keep all links.

    Args:
        left: one for each look that may still be taken.
    """
    import numpy

    if next(left, None) is None:
        return
    here, there = _looks(network, before), _looks(network, after)
    in_order, to = numpy.argsort(here, kind="stable"), numpy.argsort(there, kind="stable")
    if (here[in_order] != there[to]).any():
        return
    looks, counts = numpy.unique(here, return_counts=True)
    if len(looks) == len(here):
        image = numpy.empty(len(here), dtype=numpy.int32)
        image[in_order] = to
        yield image
        return
    # One of the fewest that look the same goes to any of its like.
    look = looks[numpy.where(counts > 1, counts, len(here) + 1).argmin()]
    first = int(numpy.flatnonzero(here == look)[0])
    for vertex in numpy.flatnonzero(there == look).tolist():
        yield from _alike(network, [*before, first], [*after, vertex], left)


def _looks(network: Network, marked: list[int]) -> Array:
    """By vertex, a number for what it sees: the marked ones are unlike all others, others like their neighbours."""
    import numpy

    widths = mixed(network.bandwidths.astype(numpy.uint64))
    looks = numpy.zeros(network.n_vertices, dtype=numpy.uint64)
    looks[marked] = mixed(numpy.arange(1, len(marked) + 1, dtype=numpy.uint64))
    kinds = 0
    while (new := len(numpy.unique(looks))) > kinds:
        kinds = new
        told = numpy.zeros(network.n_vertices, dtype=numpy.uint64)
        numpy.add.at(told, network.heads, mixed(looks[network.tails] + widths))
        numpy.add.at(told, network.tails, mixed(looks[network.heads] - widths))
        looks = mixed(looks + mixed(told))
    return looks
