"""Translations of a fabric: renamings, one for each rank, that leave its links and the demand as they are.

With them every rank's flow is the image of rank 0's, and the linear program has one source: averaging
any optimal flow over the translations keeps its loads and makes it such an image.

They are guessed, from rank numbers read as mixed-radix digits or from the order of the links, and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from collc.synth._network import Network

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, numpy.dtype[Any]]

# Ways of writing the rank number in digits that are tried.
_MOST_RADICES = 64


@dataclass(frozen=True, eq=False)
class Translations:
    """One automorphism for each rank, which maps rank 0 onto it.

    Attributes:
        vertices: [ranks x vertices] image of each vertex.
        links: [ranks x links] image of each link.
    """

    vertices: Array
    links: Array


def find(network: Network) -> Translations | None:
    """Translations that map rank 0 onto every rank; None if none are found."""
    import numpy

    demand = network.demand
    if network.n_ranks < 2 or (demand.sum(axis=1) != demand.sum(axis=1)[0]).any():
        return None
    seen = set()
    for vertices in _guesses(network):
        key = vertices.tobytes()
        if key in seen or not numpy.array_equal(vertices[:, 0], numpy.arange(network.n_ranks)):
            continue
        seen.add(key)
        if not _is_group(network, vertices):
            continue
        if (links := _link_images(network, vertices)) is not None and _keeps_demand(demand, vertices):
            return Translations(vertices, links)
    return None


def _is_group(network: Network, vertices: Array) -> bool:
    """Whether following a renaming by that of a neighbour of rank 0 is again one of them.

    Then all of the group that these generate are among them, and as rank 0 is taken to its neighbours,
    theirs and so on, there are as many: they are that group.
    """
    steps = network.heads[network.tails == 0]
    return all((vertices[:, vertices[step]] == vertices[vertices[:, step]]).all() for step in steps.tolist())


def _keeps_demand(demand: Array, vertices: Array) -> bool:
    import numpy

    n = len(demand)
    apart = demand[~numpy.eye(n, dtype=bool)]
    if (apart == apart[0]).all():
        return True
    return all((demand[image[:n]][:, image[:n]] == demand).all() for image in vertices)


def _link_images(network: Network, vertices: Array) -> Array | None:
    """[ranks x links] the image of each link, if every image of a link is a link of equal bandwidth."""
    import numpy

    width = network.n_vertices
    keys = network.tails * width + network.heads
    order = numpy.argsort(keys)
    found = []
    for image in vertices:
        wanted = image[network.tails] * width + image[network.heads]
        places = numpy.minimum(numpy.searchsorted(keys[order], wanted), network.n_links - 1)
        links = order[places]
        if (keys[links] != wanted).any() or (network.bandwidths[links] != network.bandwidths).any():
            return None
        found.append(links)
    return numpy.stack(found)


def _guesses(network: Network) -> Iterator[Array]:
    if not network.topology.switches:
        if (labelled := _by_ports(network)) is not None:
            yield labelled
        for radices in _radices(network.n_ranks):
            # One image tells most wrong guesses.
            if _link_images(network, _shifts(radices, 1, 2)) is not None:
                yield _shifts(radices, 0, network.n_ranks)


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


def _shifts(radices: tuple[int, ...], first: int, last: int) -> Array:
    """[ranks first to last - 1, ranks] digit by digit sums."""
    import numpy

    every = numpy.arange(prod(radices))
    total = numpy.zeros((last - first, len(every)), dtype=numpy.int64)
    place = 1
    for radix in reversed(radices):
        digit = every // place % radix
        total += (digit[first:last, None] + digit[None, :]) % radix * place
        place *= radix
    return total


def _by_ports(network: Network) -> Array | None:
    """Images that keep each GPU's first link first, its second second, and so on.

    Cayley graphs list the links of all vertices by generator, and their translations keep those.
    """
    import numpy

    n = network.n_ranks
    degrees = numpy.bincount(network.tails, minlength=n)
    if (degrees != degrees[0]).any():
        return None
    heads = network.heads[numpy.argsort(network.tails, kind="stable")].reshape(n, -1)
    images = numpy.full((n, n), -1)
    images[:, 0] = numpy.arange(n)
    reached = [0]
    known = {0}
    for vertex in reached:
        for port, head in enumerate(heads[vertex].tolist()):
            if head not in known:
                known.add(head)
                reached.append(head)
                images[:, head] = heads[images[:, vertex], port]
    if len(known) < n or (numpy.sort(images, axis=1) != numpy.arange(n)).any():
        return None
    return images
