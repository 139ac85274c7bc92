"""The order in which planning looks at things: arrays of numbers that depend on the machine alone.

Words: a *tile* is the traffic from one host to another, a *row* the part of a tile that one rank
sends, a *cell* the part of a row for one rank. A *port* is a group of `width` GPUs of one host: in
each stage a port sends to one other port, GPU by GPU. A *lane* is all that one GPU of a port sends to
its opposite in another port. Where hosts are alike, a host is one port and a row has one lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from collc.fast.machine import Host, Machine

    Numbers = NDArray[numpy.int64]
    Floats = NDArray[numpy.float64]


@dataclass(frozen=True, eq=False)
class Layout:
    """Cells in the order tile, row, destination; lanes in the order tile, row, destination port.

    A row's destinations rotate: GPU i of a host begins with GPU i + 1 of the other and ends with
    GPU i, so that no destination is everybody's first, and what needs no second hop comes last.

    Attributes:
        cell: per cell its place in the flat matrix.
        cell_src, cell_dst: per cell, the ranks it is from and for.
        cells: per row, the number of its first cell; one more entry at the end.
        lanes: per row, the number of its first lane; one more entry at the end.
        row_tile: per row, its tile.
        tile_rows: per tile, the number of its first row; one more entry at the end.
        src, dst: per lane the ranks it joins.
        share, before: per lane, its share of its tile and that of the tile's lanes before it.
        whole: per lane, what the shares of its tile add to.
        slow, fast: per lane, its bandwidth is slow / fast of the fastest lane's.
        is_even: whether all lanes are as fast and have equal shares.
        rate: of the fastest lane [bytes/us].
        ports: [ports x width] ranks.
        pair_lanes: [ports * ports x width] lanes from port to port; 0 within a host.
        is_outer: [ports * ports] whether the ports are of different hosts.
        inside: places in the flat matrix of the cells within hosts, a rank's own included.
        local: per rank its number in its host; `host` its host.
        nic: per rank, its share of the network [bytes/us].
        inner: per rank, bandwidth inside [bytes/us]; per link in a mesh.
        mesh: per rank, whether its host is a mesh.
    """

    cell: Numbers
    cell_src: Numbers
    cell_dst: Numbers
    cells: Numbers
    lanes: Numbers
    row_tile: Numbers
    tile_rows: Numbers
    src: Numbers
    dst: Numbers
    share: Numbers
    before: Numbers
    whole: Numbers
    slow: Numbers
    fast: Numbers
    is_even: bool
    rate: Fraction
    ports: Numbers
    pair_lanes: Numbers
    is_outer: NDArray[numpy.bool_]
    inside: Numbers
    host: Numbers
    local: Numbers
    nic: NDArray[numpy.float64]
    inner: NDArray[numpy.float64]
    mesh: NDArray[numpy.bool_]

    @property
    def n_ranks(self) -> int:
        """Number of GPUs."""
        return len(self.host)

    @property
    def n_ports(self) -> int:
        """Number of ports."""
        return len(self.ports)


class _Lane(NamedTuple):
    row: int
    src: int
    dst: int
    pair: int
    place: int
    speed: Fraction


def make_layout(machine: Machine) -> Layout:
    """The layout of a machine."""
    import numpy as np

    n, width = machine.n_ranks, machine.width
    tiles = [(a, b) for a in machine.hosts for b in machine.hosts if a is not b]
    rows = [(tile, number) for tile in tiles for number in range(len(tile[0].ranks))]
    tile_rows = _firsts([len(a.ranks) for a, _ in tiles])
    ports = [one.ranks[first : first + width] for one in machine.hosts for first in range(0, len(one.ranks), width)]
    found = list(_lanes(machine, rows, ports))
    lanes = _firsts(np.bincount([lane.row for lane in found], minlength=len(rows)) if rows else [])
    pair_lanes = np.zeros((len(ports) ** 2, width), dtype=np.int64)
    for index, lane in enumerate(found):
        pair_lanes[lane.pair, lane.place] = index
    is_outer = np.zeros(len(ports) ** 2, dtype=bool)
    is_outer[[lane.pair for lane in found]] = True
    fastest = max((lane.speed for lane in found), default=Fraction(1))
    ratios = [(lane.speed / fastest).as_integer_ratio() for lane in found]
    slow, fast = np.array(ratios, dtype=np.int64).reshape(-1, 2).T
    share, before, whole = _shares(found, lanes[tile_rows])
    host, local, nic, inner, mesh = _by_rank(machine)
    cell = _concatenated([a.ranks[k] * n + np.roll(b.ranks, -(k % len(b.ranks)) - 1) for (a, b), k in rows])
    return Layout(
        cell=cell,
        cell_src=cell // n,
        cell_dst=cell % n,
        cells=_firsts([len(b.ranks) for (_, b), _ in rows]),
        lanes=lanes,
        row_tile=np.repeat(np.arange(len(tiles)), np.diff(tile_rows)),
        tile_rows=tile_rows,
        src=np.array([lane.src for lane in found], dtype=np.int64),
        dst=np.array([lane.dst for lane in found], dtype=np.int64),
        share=share,
        before=before,
        whole=whole,
        slow=slow,
        fast=fast,
        is_even=bool((slow == fast).all()) and bool((share == 1).all()),
        rate=fastest * 1000,
        ports=np.array(ports, dtype=np.int64),
        pair_lanes=pair_lanes,
        is_outer=is_outer,
        inside=_concatenated([a * n + np.array(one.ranks) for one in machine.hosts for a in one.ranks]),
        host=host,
        local=local,
        nic=nic,
        inner=inner,
        mesh=mesh,
    )


def _lanes(
    machine: Machine, rows: list[tuple[tuple[Host, Host], int]], ports: list[tuple[int, ...]]
) -> Iterator[_Lane]:
    width = machine.width
    port_of = {rank: index for index, port in enumerate(ports) for rank in port}
    speed = {rank: nic for one in machine.hosts for rank, nic in zip(one.ranks, one.nic, strict=True)}
    for row, ((a, b), number) in enumerate(rows):
        src = a.ranks[number]
        # A card that reaches only its own rail has a lane to the GPU of the same number alone.
        opposite = b.ranks[number : number + 1] if machine.is_rail_only else b.ranks[number % width :: width]
        for dst in opposite:
            pair = port_of[src] * len(ports) + port_of[dst]
            yield _Lane(row, src, dst, pair, number % width, min(speed[src], speed[dst]))


def _shares(found: list[_Lane], tile_lanes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Whole numbers in proportion to the lanes' speeds, tile by tile."""
    import numpy as np

    share, before, whole = np.zeros((3, len(found)), dtype=np.int64)
    for first, end in pairwise(tile_lanes.tolist()):
        speeds = [lane.speed for lane in found[first:end]]
        # The slowest counts as one where the others are multiples of it.
        unit = lcm(*((one / speeds[0]).denominator for one in speeds))
        share[first:end] = [int(one / speeds[0] * unit) for one in speeds]
        before[first:end] = np.cumsum(share[first:end]) - share[first:end]
        whole[first:end] = share[first:end].sum()
    return share, before, whole


def _by_rank(machine: Machine) -> tuple[Numbers, Numbers, Floats, Floats, NDArray[numpy.bool_]]:
    import numpy as np

    host, local = np.zeros((2, machine.n_ranks), dtype=np.int64)
    nic, inner = np.zeros((2, machine.n_ranks))
    mesh = np.zeros(machine.n_ranks, dtype=bool)
    for index, one in enumerate(machine.hosts):
        ranks = list(one.ranks)
        host[ranks], local[ranks] = index, range(len(ranks))
        nic[ranks] = [float(speed * 1000) for speed in one.nic]
        inner[ranks], mesh[ranks] = float(one.inner * 1000), one.is_mesh
    return host, local, nic, inner, mesh


def _firsts(counts: Numbers | list[int]) -> Numbers:
    import numpy as np

    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _concatenated(parts: list[Numbers]) -> Numbers:
    import numpy as np

    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
