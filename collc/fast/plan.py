"""A matrix and a machine in, a plan out: `plan`, and `Plan.update` for a matrix that changed a little."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from collc.errors import InputError
from collc.fast import baselines
from collc.fast.cut import Messages, cut, pair_loads
from collc.fast.matching import Stages, decompose
from collc.fast.model import Prediction, heaviest, predict
from collc.fast.spread import Queues, spread

if TYPE_CHECKING:
    from collc.fast.machine import Machine

    # 64-bit whole numbers, or Python's where those would overflow.
    Numbers = Any

Method = Literal["auto", "staged", "direct"]

# Sums below this can be added to each other once more in 64 bits.
_SAFE = 2**62

# Pieces are whole units: what divides every entry, so that elements stay whole, but no more than
# this, so that large equal blocks can still be shared [bytes].
_LARGEST_UNIT = 512

# Direct sends of more than this per GPU congest the receivers' cards, which no bandwidth model shows:
# in the authors' measurements (FAST, arXiv:2505.09764; raw results of its artifact, MI300X on 100G
# RoCE) direct sending wins up to 8 MB per GPU and falls behind at 16 MB.
_DIRECT_LIMIT_BYTES = 8 * 2**20

# A stage of middling weight to begin with needs little handed over before it, and hides that of the
# heavy stages that follow; the lightest come last, where nothing hides the second hops. The others are
# the published orders. Any order has the same wire time, so one with less than 1/300 beside it will do.
_ORDERS = ("warm-up", "descending", "ascending")
_GOOD_ENOUGH = 1 / 300

# Loads are rounded up to 1/d of an average entry of the busiest line. A finer grain than 1/256 is as
# good as none; a coarser one than 1/2 makes no stage fewer.
_FINEST, _COARSEST = 256, 2


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
        traffic = _Traffic.of(matrix, self.machine)
        stages = _refit(self, traffic, tolerance)
        if stages is None:
            return _staged_or_direct(traffic, "auto")
        return _finish(traffic, *_staged(traffic, _last_split(traffic, _in_order(stages, self.order))), self.order)


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
    return _staged_or_direct(_Traffic.of(matrix, machine), method, quantum)


@dataclass(frozen=True, eq=False)
class _Traffic:
    """A demand on a machine, spread over lanes."""

    machine: Machine
    matrix: Numbers
    unit: int
    inside: Numbers  # counts of the cells within hosts [units]
    queues: Queues
    loads: list[list[int]]  # [ports x ports] units of the fastest lane

    @staticmethod
    def of(matrix: Any, machine: Machine) -> _Traffic:
        import numpy as np

        layout = machine.layout
        demand = _checked(matrix, machine.n_ranks)
        unit = gcd(int(np.gcd.reduce(demand, axis=None)), _LARGEST_UNIT)
        units = (demand if unit == 1 else demand // unit).ravel()
        most = int(units.max(initial=0)) * units.size
        if units.dtype != object and most * (layout.n_ports + int(layout.fast.max(initial=1))) >= _SAFE:
            units = units.astype(object)
        queues = spread(units[layout.cell], layout)
        return _Traffic(machine, demand, unit, units[layout.inside], queues, pair_loads(queues, layout))


def _checked(matrix: Any, n: int) -> Numbers:
    """The matrix as an array of whole numbers."""
    import numpy as np

    if not isinstance(matrix, np.ndarray):
        matrix = np.array(matrix, dtype=object)
    if matrix.shape != (n, n):
        shape = " x ".join(map(str, matrix.shape))
        raise InputError(f"demand: a matrix of {shape}; expected {n} x {n}, a row and a column for each rank")
    if matrix.dtype == object:
        if not all(isinstance(count, int) for count in matrix.flat):
            raise InputError("demand: an entry is no whole number; expected bytes")
        if matrix.size and matrix.max() < _SAFE:
            matrix = matrix.astype(np.int64)
    elif matrix.dtype.kind not in "iu":
        raise InputError(f"demand: a matrix of {matrix.dtype}; expected whole numbers of bytes")
    if matrix.size and matrix.min() < 0:
        raise InputError("demand: holds a negative entry; expected bytes")
    if matrix.dtype == np.uint64 and matrix.size and matrix.max() >= _SAFE:
        return matrix.astype(object)
    return matrix if matrix.dtype == object else matrix.astype(np.int64)


# --- choosing ------------------------------------------------------------------------------------

_Found = tuple[Messages, Stages, Prediction]


def _staged_or_direct(traffic: _Traffic, method: Method, quantum: int | None = None) -> Plan:
    straight = baselines.direct(traffic.matrix, traffic.machine)
    if method == "direct":
        return _sent_direct(traffic, straight)
    stages = _stages(traffic, quantum)
    found = {}
    for order in _ORDERS:
        found[order] = _staged(traffic, _last_split(traffic, _in_order(stages, order)))
        predicted = found[order][2]
        if predicted.balance + predicted.exposed < _GOOD_ENOUGH * predicted.total:
            break
        if not stages.weights:
            break
    best = min(found, key=lambda name: found[name][2].total)
    if method == "auto" and straight.total < found[best][2].total:
        sent, received = baselines.outer_bytes(traffic.matrix, traffic.machine)
        if max(*sent, *received) <= _DIRECT_LIMIT_BYTES:
            return _sent_direct(traffic, straight)
    return _finish(traffic, *found[best], best)


def _stages(traffic: _Traffic, quantum: int | None) -> Stages:
    """Few stages that waste little: the best of some grains, by wire time and latency."""
    n, latency = len(traffic.loads), float(traffic.machine.stage_latency)
    if quantum is not None:
        return decompose(traffic.loads, max(1, quantum // traffic.unit))
    line_sum = max(sum(line) for lines in (traffic.loads, zip(*traffic.loads, strict=True)) for line in lines)
    if not latency or not line_sum:
        return decompose(traffic.loads)
    # A grain of 1/d wastes about half of that, and halving d saves about a stage in five.
    per_unit = traffic.unit / float(traffic.machine.layout.rate)
    ideal = line_sum * per_unit / (n * latency)
    grain = min(max(1 << max(0, int(ideal).bit_length() - 1), _COARSEST), _FINEST)
    grains = [grain] if n > _MANY_PORTS else sorted({max(grain // 2, _COARSEST), grain, min(grain * 2, _FINEST)})
    found = [decompose(traffic.loads, -(-line_sum // (one * n)) if one < _FINEST else 1) for one in grains]
    return min(found, key=lambda stages: sum(stages.busy) * per_unit + len(stages.weights) * latency)


# With more ports than this one grain is tried, not three: the others cost more than they gain.
_MANY_PORTS = 16


def _in_order(stages: Stages, order: str) -> Stages:
    """The same stages, sorted by weight."""
    ranked = sorted(range(len(stages.weights)), key=lambda one: -stages.weights[one])
    if order == "ascending":
        ranked.reverse()
    if order == "warm-up" and ranked:
        ranked.insert(0, ranked.pop(len(ranked) // 2))
    return Stages(
        tuple(stages.partners[one] for one in ranked), tuple(stages.weights[one] for one in ranked), stages.line_sum, ()
    )


def _last_split(traffic: _Traffic, stages: Stages) -> Stages:
    """The same stages, the last cut in two where that hides enough of its second hops.

    What ends a queue needs no second hop, so all hops can go beside the end of the last stage.
    """
    layout, n = traffic.machine.layout, len(traffic.loads)
    width = layout.ports.shape[1]
    last = stages.weights[-1] if stages.weights else 0
    if last < width or width == 1 or len(stages.weights) >= n * n - 2 * n + 2:
        return stages
    links = (width - 1) if layout.mesh.any() else 1
    hops = last * traffic.unit * (width - 1) / width / (float(layout.inner.min()) * links)
    whole = stages.line_sum * traffic.unit / float(layout.rate)
    if hops < max(float(traffic.machine.stage_latency), _GOOD_ENOUGH * whole):
        return stages
    end = last // width
    return Stages((*stages.partners, stages.partners[-1]), (*stages.weights[:-1], last - end, end), stages.line_sum, ())


def _staged(traffic: _Traffic, stages: Stages) -> _Found:
    """The messages of stages in their order, and the time they take."""
    import numpy as np

    weights = np.array(stages.weights, dtype=traffic.queues.end.dtype)
    messages = cut(traffic.queues, traffic.machine.layout, stages.partners, weights)
    predicted = predict(messages, stages.weights, traffic.inside, traffic.unit, traffic.machine)
    return messages, stages, predicted


def _finish(traffic: _Traffic, messages: Messages, stages: Stages, predicted: Prediction, order: str) -> Plan:
    layout, unit, count = traffic.machine.layout, traffic.unit, messages.count
    if int(count.max(initial=0)) * unit * max(1, len(stages.weights)) >= _SAFE:
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
        predicted=predicted,
        order=order,
    )


def _sent_direct(traffic: _Traffic, predicted: Prediction) -> Plan:
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


# --- updating ------------------------------------------------------------------------------------


def _refit(old: Plan, traffic: _Traffic, tolerance: float) -> Stages | None:
    """The old matchings with weights for new loads, and further ones for what they leave.

    A stage that carried some part of a pair's load carries the same part of the new one. None where
    all that would take longer than planning afresh promises, or where numbers outgrow floats.
    """
    import numpy as np

    loads = np.array(traffic.loads, dtype=traffic.queues.load.dtype)
    if loads.dtype == object or old.nbytes.dtype == object:
        return None
    n, ports = len(loads), np.arange(len(loads))
    partners = np.array(old.partners, dtype=np.int64)
    served = old.nbytes[:, traffic.machine.layout.ports].max(axis=2)  # [stages x ports], bytes
    before = np.zeros((n, n))
    np.add.at(before, (ports, partners), served)
    growth = np.divide(loads, before, out=np.zeros((n, n)), where=before > 0)
    weights = np.ceil((served * growth[ports, partners]).max(axis=1)).astype(np.int64)
    given = np.zeros((n, n), dtype=np.int64)
    np.add.at(given, (ports, partners), weights[:, None])
    rest = decompose(np.maximum(loads - given, 0).tolist())
    line_sum, line_before = (max(int(one.sum(axis=0).max()), int(one.sum(axis=1).max())) for one in (loads, before))
    promised = sum(old.weights) / line_before * line_sum
    total = int(weights.sum()) + rest.line_sum
    kept = np.flatnonzero(weights)
    if total > promised * (1 + tolerance) or len(kept) + len(rest.weights) > n * n - 2 * n + 2:
        return None
    return Stages(
        tuple(old.partners[one] for one in kept) + rest.partners,
        tuple(weights[kept].tolist()) + rest.weights,
        total,
        (),
    )
