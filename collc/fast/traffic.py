"""What a matrix asks of a machine: bytes in whole units, spread over the lanes between hosts."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from collc.errors import InputError
from collc.fast.cut import pair_loads
from collc.fast.spread import Queues, spread

if TYPE_CHECKING:
    from collc.fast.machine import Machine

    # 64-bit whole numbers, or Python's where those would overflow.
    Numbers = Any

# Sums below this can be added to each other once more in 64 bits.
SAFE = 2**62

# Pieces are whole units: what divides every entry, so that elements stay whole, but no more than
# this, so that large equal blocks can still be shared [bytes].
_LARGEST_UNIT = 512


@dataclass(frozen=True, eq=False)
class Traffic:
    """A demand on a machine, spread over lanes.

    Attributes:
        machine: whose layout numbers everything.
        matrix: [ranks x ranks] bytes.
        unit: bytes of a unit; pieces are whole units.
        inside: counts of the cells within hosts [units].
        queues: what the lanes carry.
        loads: [ports x ports] what each port has for each other [units of the fastest lane].
    """

    machine: Machine
    matrix: Numbers
    unit: int
    inside: Numbers
    queues: Queues
    loads: list[list[int]]

    @staticmethod
    def of(matrix: Any, machine: Machine) -> Traffic:
        """What a matrix asks of a machine.

        Raises:
            InputError: not a square matrix of the machine's ranks, or not whole numbers of bytes.
        """
        import numpy as np

        layout = machine.layout
        demand = _checked(matrix, machine.n_ranks)
        unit = gcd(int(np.gcd.reduce(demand, axis=None)), _LARGEST_UNIT)
        units = (demand if unit == 1 else demand // unit).ravel()
        most = int(units.max(initial=0)) * units.size
        if units.dtype != object and most * (layout.n_ports + int(layout.fast.max(initial=1))) >= SAFE:
            units = units.astype(object)
        queues = spread(units[layout.cell], layout)
        return Traffic(machine, demand, unit, units[layout.inside], queues, pair_loads(queues, layout))


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
        if matrix.size and matrix.max() < SAFE:
            matrix = matrix.astype(np.int64)
    elif matrix.dtype.kind not in "iu":
        raise InputError(f"demand: a matrix of {matrix.dtype}; expected whole numbers of bytes")
    if matrix.size and matrix.min() < 0:
        raise InputError("demand: holds a negative entry; expected bytes")
    if matrix.dtype == np.uint64 and matrix.size and matrix.max() >= SAFE:
        return matrix.astype(object)
    return matrix if matrix.dtype == object else matrix.astype(np.int64)
