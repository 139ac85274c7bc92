"""A matrix and a machine in, a plan out: `plan`, and `Plan.update` for a matrix that changed a little."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from collc.fast import baselines
from collc.fast.model import Prediction, heaviest
from collc.fast.stages import Staged, best_staged, refit
from collc.fast.traffic import SAFE, Traffic

if TYPE_CHECKING:
    from collc.fast.machine import Machine

    # 64-bit whole numbers, or Python's where those would overflow.
    Numbers = Any

Method = Literal["auto", "staged", "direct"]

# Direct sends of more than this per GPU congest the receivers' cards, which no bandwidth model shows:
# in the authors' measurements (FAST, arXiv:2505.09764; raw results of its artifact, MI300X on 100G
# RoCE) direct sending wins up to 8 MB per GPU and falls behind at 16 MB.
_DIRECT_LIMIT_BYTES = 8 * 2**20


@dataclass(frozen=True, eq=False)
class Plan:
    """Who sends what to whom, stage by stage.

    Message m goes in stage `stage[m]` from rank `src[m]` to rank `dst[m]` of another host, and is
    made of pieces `first[m]` to `first[m + 1] - 1`, in this order. Piece p is `length[p]` bytes of
    the block that rank `origin[p]` has for rank `final[p]`, from byte `offset[p]` of the block on.
    Where the origin is not the sender, it hands the piece over one phase before; where the final
    rank is not the receiver, the receiver passes it on one phase after. Blocks within a host go
    straight, beside the heaviest stage.

    Attributes:
        machine: what it was made for.
        matrix: [ranks x ranks] bytes.
        method: "staged", or "direct": everything at once, from origin to final rank.
        unit: every number of bytes is a multiple of this.
        partners: per stage and port, the port it sends to (itself: idle).
        weights: per stage, what a GPU on the fastest kind of lane may send [bytes].
        line_sum: what each port sends in all, idle time included [bytes].
        predicted: the time it takes.
        order: how the stages are sorted by weight.
    """

    machine: Machine
    matrix: Numbers
    method: str
    unit: int
    partners: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    line_sum: int
    stage: Numbers
    src: Numbers
    dst: Numbers
    count: Numbers
    first: Numbers
    origin: Numbers
    final: Numbers
    offset: Numbers
    length: Numbers
    predicted: Prediction
    order: str

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.weights)

    @property
    def inside_stage(self) -> int:
        """The stage that blocks within hosts go beside; 0 where there is none."""
        return heaviest(self.weights)

    @cached_property
    def peer(self) -> Numbers:
        """[stages x ranks] the rank each sends its message to, a permutation; itself where it is idle."""
        import numpy as np

        ports = self.machine.layout.ports
        peers = np.empty((self.n_stages, self.machine.n_ranks), dtype=np.int64)
        partners = np.array(self.partners, dtype=np.int64).reshape(self.n_stages, len(ports))
        peers[:, ports.ravel()] = ports[partners].reshape(self.n_stages, -1)
        return peers

    @cached_property
    def nbytes(self) -> Numbers:
        """[stages x ranks] bytes of each rank's message."""
        import numpy as np

        counts = np.zeros((self.n_stages, self.machine.n_ranks), dtype=self.count.dtype)
        counts[self.stage, self.src] = self.count
        return counts

    @cached_property
    def start(self) -> Numbers:
        """[stages x ranks] where each rank's message begins in all that it sends through the network [bytes]."""
        import numpy as np

        return np.cumsum(self.nbytes, axis=0) - self.nbytes

    @cached_property
    def staging(self) -> tuple[Numbers, Numbers]:
        """Per rank the bytes it must set aside: for pieces handed in, and for pieces to be passed on.

        Each is two halves that take turns, stage by stage.
        """
        return (
            self._halves(self.src, self.origin != self.src[self.message]),
            self._halves(self.dst, self.final != self.dst[self.message]),
        )

    @cached_property
    def bound(self) -> baselines.Limit:
        """What no schedule can beat."""
        return baselines.bound(self.matrix, self.machine)

    @cached_property
    def message(self) -> Numbers:
        """Per piece, its message."""
        import numpy as np

        return np.repeat(np.arange(len(self.stage)), np.diff(self.first))

    def _halves(self, holder: Numbers, is_held: Numbers) -> Numbers:
        import numpy as np

        sizes = np.zeros(self.machine.n_ranks, dtype=self.length.dtype)
        if self.method == "staged" and len(self.stage):
            held = np.add.reduceat(np.where(is_held, self.length, 0), self.first[:-1])
            np.maximum.at(sizes, holder, held)
        return sizes * 2

    def update(self, matrix: Any, *, tolerance: float = 0.03) -> Plan:
        """The plan for another matrix, made from the matchings of this one where they still serve.

        Args:
            tolerance: how much longer than planning afresh promises, as a part, stages may get
                before it is planned afresh.

        Raises:
            InputError: as `plan`.
        """
        if self.method != "staged" or not self.n_stages:
            return plan(matrix, self.machine)
        traffic = Traffic.of(matrix, self.machine)
        served = self.nbytes[:, self.machine.layout.ports].max(axis=2)
        staged = refit(traffic, self.partners, served, self.line_sum, self.order, tolerance)
        return _staged_or_direct(traffic, "auto") if staged is None else _finish(traffic, staged)


def plan(matrix: Any, machine: Machine, *, method: Method = "auto", quantum: int | None = None) -> Plan:
    """The plan for a demand.

    Pure and thread-safe; equal arguments give equal plans.

    Args:
        matrix: [ranks x ranks] bytes from row's rank to column's: a NumPy array of integers, or
            rows of whole numbers of any size. The diagonal is a rank's own, copied in place.
        method: "staged" or "direct"; "auto" takes what is predicted faster, and sends direct only
            what is too little to congest a receiver.
        quantum: bytes that loads of stages are rounded up to; the best found where not given.

    Raises:
        InputError: not a square matrix of the machine's ranks, or not whole numbers of bytes.
    """
    return _staged_or_direct(Traffic.of(matrix, machine), method, quantum)


# --- choosing ------------------------------------------------------------------------------------


def _staged_or_direct(traffic: Traffic, method: Method, quantum: int | None = None) -> Plan:
    if method == "direct":
        return _sent_direct(traffic, baselines.direct(traffic.matrix, traffic.machine))
    staged = best_staged(traffic, quantum)
    sent, received = baselines.outer_bytes(traffic.matrix, traffic.machine)
    if method == "auto" and max(*sent, *received) <= _DIRECT_LIMIT_BYTES:
        straight = baselines.direct(traffic.matrix, traffic.machine)
        if straight.total < staged.predicted.total:
            return _sent_direct(traffic, straight)
    return _finish(traffic, staged)


def _finish(traffic: Traffic, staged: Staged) -> Plan:
    layout, unit = traffic.machine.layout, traffic.unit
    messages, stages = staged.messages, staged.stages
    count = messages.count
    if int(count.max(initial=0)) * unit * max(1, len(stages.weights)) >= SAFE:
        count = count.astype(object)
    return Plan(
        traffic.machine,
        traffic.matrix,
        "staged",
        unit,
        stages.partners,
        tuple(weight * unit for weight in stages.weights),
        stages.line_sum * unit,
        stage=messages.stage,
        src=layout.src[messages.lane],
        dst=layout.dst[messages.lane],
        count=count * unit,
        first=messages.first,
        origin=layout.cell_src[messages.cell],
        final=layout.cell_dst[messages.cell],
        offset=messages.offset * unit,
        length=messages.length * unit,
        predicted=staged.predicted,
        order=staged.order,
    )


def _sent_direct(traffic: Traffic, predicted: Prediction) -> Plan:
    import numpy as np

    layout = traffic.machine.layout
    counts = traffic.matrix.ravel()[layout.cell]
    some = np.flatnonzero(counts)
    counts, src, dst = counts[some], layout.cell_src[some], layout.cell_dst[some]
    return Plan(
        traffic.machine,
        traffic.matrix,
        "direct",
        traffic.unit,
        (),
        (),
        0,
        stage=np.zeros(len(some), dtype=np.int64),
        src=src,
        dst=dst,
        count=counts,
        first=np.arange(len(some) + 1),
        origin=src,
        final=dst,
        offset=np.zeros_like(counts),
        length=counts,
        predicted=predicted,
        order="none",
    )
