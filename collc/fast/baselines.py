"""What no schedule can beat, and what simpler ways of sending would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from collc.fast.model import Prediction

if TYPE_CHECKING:
    from collc.fast.machine import Machine

    Numbers = Any


@dataclass(frozen=True)
class Limit:
    """A time no schedule can beat, and why.

    Attributes:
        time: [us].
        what: whose bandwidth it is that binds: "host" (all its cards), "gpu" (its links of both
            kinds) or "gpu inside" (those inside its host).
        index: of the host, or the rank.
        direction: "sends" or "receives".
        nbytes: how much that is.
    """

    time: Fraction
    what: str
    index: int
    direction: str
    nbytes: int

    def __str__(self) -> str:
        name = f"host {self.index}" if self.what == "host" else f"rank {self.index}"
        where = {"host": "to other hosts", "gpu": "in all", "gpu inside": "inside its host"}[self.what]
        if self.direction == "receives":
            where = where.replace("to", "from")
        return f"{name} {self.direction} {self.nbytes} bytes {where}"


def bound(matrix: Numbers, machine: Machine) -> Limit:
    """The best of the bounds by cut: around a host, around a GPU, and around a GPU inside its host.

    Traffic within a host is taken to stay on links inside.
    """
    return max(_limits(matrix, machine), key=lambda limit: limit.time)


def _limits(matrix: Numbers, machine: Machine) -> Iterator[Limit]:
    outer = outer_bytes(matrix, machine)
    inner = inner_bytes(matrix, machine)
    for index, host in enumerate(machine.hosts):
        links = len(host.ranks) - 1 if host.is_mesh else 1
        for direction, out, within in zip(_DIRECTIONS, outer, inner, strict=True):
            leaving = sum(out[rank] for rank in host.ranks)
            yield Limit(leaving / (sum(host.nic, Fraction(0)) * 1000), "host", index, direction, leaving)
            for rank, nic in zip(host.ranks, host.nic, strict=True):
                inside = host.inner * links * 1000
                if inside:
                    yield Limit(within[rank] / inside, "gpu inside", rank, direction, within[rank])
                network = nic * 1000 if len(machine.hosts) > 1 else 0
                both = within[rank] + out[rank]
                if inside + network:
                    yield Limit(both / (inside + network), "gpu", rank, direction, both)


_DIRECTIONS = ("sends", "receives")


def outer_bytes(matrix: Numbers, machine: Machine) -> tuple[list[int], list[int]]:
    """Per rank the bytes it sends to, and receives from, other hosts."""
    away = _exactly(matrix).copy()
    away.ravel()[machine.layout.inside] = 0
    return away.sum(axis=1).tolist(), away.sum(axis=0).tolist()


def inner_bytes(matrix: Numbers, machine: Machine) -> tuple[list[int], list[int]]:
    """Per rank the bytes it sends to, and receives from, others of its host."""
    home = _inside(_exactly(matrix), machine)
    return home.sum(axis=1).tolist(), home.sum(axis=0).tolist()


def _inside(matrix: Numbers, machine: Machine) -> Numbers:
    """The matrix, but zero between hosts and on the diagonal."""
    import numpy as np

    home = np.zeros_like(matrix)
    places = machine.layout.inside
    home.ravel()[places] = matrix.ravel()[places]
    np.fill_diagonal(home, 0)
    return home


def _exactly(matrix: Numbers) -> Numbers:
    """The matrix, in numbers that can be added up without overflow."""
    most = int(matrix.max(initial=0)) * len(matrix)
    return matrix if most < 2**62 else matrix.astype(object)


# --- other ways to send --------------------------------------------------------------------------


def direct(matrix: Numbers, machine: Machine) -> Prediction:
    """Every rank sends to all at once and nothing gets in anything's way: an ideal."""
    import numpy as np

    nic = machine.layout.nic
    wire = max(float(np.max(np.array(load, dtype=float) / nic, initial=0)) for load in outer_bytes(matrix, machine))
    return _at_once(matrix, machine, wire)


def rail(matrix: Numbers, machine: Machine) -> Prediction:
    """Bytes leave by the card of the GPU that has their destination's number in its host (as with PXN)."""
    import numpy as np

    layout, nic = machine.layout, machine.layout.nic
    _, received = outer_bytes(matrix, machine)
    wire = float(np.max(np.array(received, dtype=float) / nic, initial=0))
    for index, host in enumerate(machine.hosts):
        away = layout.host != index
        leaving = matrix[list(host.ranks)].astype(float).sum(axis=0)
        by_rail = np.bincount(layout.local[away] % len(host.ranks), leaving[away], len(host.ranks))
        wire = max(wire, float((by_rail / nic[list(host.ranks)]).max()))
    return _at_once(matrix, machine, wire)


def spread_out(matrix: Numbers, machine: Machine) -> Prediction:
    """Rounds in step: in round d rank i sends to rank i + d, and each lasts as long as its slowest pair."""
    import numpy as np

    layout, nic = machine.layout, machine.layout.nic
    ranks = np.arange(len(matrix))
    total = 0.0
    for distance in range(1, len(matrix)):
        others = (ranks + distance) % len(matrix)
        same = layout.host[ranks] == layout.host[others]
        speed = np.where(
            same, np.minimum(layout.inner[ranks], layout.inner[others]), np.minimum(nic[ranks], nic[others])
        )
        total += float((matrix[ranks, others].astype(float) / speed).max())
    return Prediction(0.0, total, 0.0, float(machine.stage_latency) * max(len(matrix) - 1, 0))


def comparisons(matrix: Numbers, machine: Machine) -> Mapping[str, Prediction]:
    """The other ways, by name."""
    return {
        "direct": direct(matrix, machine),
        "rail": rail(matrix, machine),
        "spread-out": spread_out(matrix, machine),
    }


def _at_once(matrix: Numbers, machine: Machine, wire: float) -> Prediction:
    """Network and inside traffic start together."""
    import numpy as np

    layout = machine.layout
    load = _inside(matrix, machine).astype(float)
    times = np.maximum(load.sum(axis=1), load.sum(axis=0)) / layout.inner
    if layout.mesh.any():
        times = np.where(layout.mesh, load.max(axis=1) / layout.inner, times)
    inside = float(times.max())
    latency = max(float(machine.stage_latency) if wire else 0.0, float(machine.inner_latency) if inside else 0.0)
    return Prediction(0.0, wire, max(inside - wire, 0.0), latency)
