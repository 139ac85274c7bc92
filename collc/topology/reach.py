"""Whether every GPU reaches every other, and which links are missing where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collc.errors import InfeasibleError, Place
from collc.ir.topology import Topology


def check_reach(topology: Topology, place: Place) -> None:
    """Refuse a fabric on which some GPU cannot reach another.

    Raises:
        InfeasibleError: names the GPUs and the cut that no link crosses.
    """
    backward: dict[str, list[str]] = {vertex: [] for vertex in topology.successors}
    for link in topology.links:
        backward[link.dst].append(link.src)
    reached = _reachable(topology.successors, topology.gpus[0])
    reaching = _reachable(backward, topology.gpus[0])
    first = topology.gpus[0]
    lost = [gpu for gpu in topology.gpus if gpu not in reached]
    mute = [gpu for gpu in topology.gpus if gpu not in reaching]
    if lost and len(lost) == topology.n_ranks - 1:
        # Then the fault is more likely at the first GPU.
        raise InfeasibleError(f"GPU {first} cannot reach any other GPU: {_cut(reached, 'leaves')}", place)
    if lost:
        outside = [vertex for vertex in topology.successors if vertex not in reached]
        raise InfeasibleError(f"{_shown(lost)} cannot be reached from {first}: {_cut(outside, 'enters')}", place)
    if mute:
        outside = [vertex for vertex in topology.successors if vertex not in reaching]
        raise InfeasibleError(f"{_shown(mute)} cannot reach {first}: {_cut(outside, 'leaves')}", place)


def _reachable(heads: Mapping[str, Sequence[str]], start: str) -> dict[str, None]:
    found = {start: None}
    queue = [start]
    for vertex in queue:
        for head in heads[vertex]:
            if head not in found:
                found[head] = None
                queue.append(head)
    return found


def _shown(names: Sequence[str]) -> str:
    word = "GPU" if len(names) == 1 else f"{len(names)} GPUs,"
    return f"{word} {_few(names)}{',' if len(names) > 1 else ''}"


def _few(names: Sequence[str]) -> str:
    if len(names) <= 6:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ... {names[-1]}"


def _cut(vertices: Sequence[str] | Mapping[str, None], verb: str) -> str:
    names = list(vertices)
    if len(names) == 1:
        return f"no link {verb} it"
    return f"no link {verb} the {len(names)} vertices {_few(names)}"
