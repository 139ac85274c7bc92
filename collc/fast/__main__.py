"""`python -m collc.fast`: try a plan file out, or turn it into the other form.

mpiexec -n RANKS python -m collc.fast run PLAN      moves test data as the plan says, and checks it
python -m collc.fast pack PLAN OUT                  JSON to binary, binary to JSON
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collc.errors import CollcError, InputError, VerificationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collc.fast.plan import Plan


def main(words: Sequence[str]) -> int:
    """Run one command; the exit code."""
    try:
        match words:
            case ["run", path]:
                _run(path)
            case ["pack", path, out]:
                _pack(path, out)
            case _:
                raise InputError(f"arguments {' '.join(words)!r}; expected: run PLAN, or pack PLAN OUT")
    except CollcError as error:
        sys.stderr.write(f"collc.fast: {error}\n")
        return error.exit_code
    return 0


def _read(path: str) -> tuple[bytes, Plan]:
    from collc.fast.file import loads

    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return raw, loads(raw)


def _pack(path: str, out: str) -> None:
    from collc.fast.file import MAGIC, dump_bytes, dumps

    raw, plan = _read(path)
    Path(out).write_bytes(dumps(plan).encode() if raw.startswith(MAGIC) else dump_bytes(plan))


def _run(path: str) -> None:
    """One rank's part: send a pattern, and compare what arrives.

    Raises:
        VerificationError: a byte is not what its origin sent.
    """
    import numpy as np
    from mpi4py import MPI

    from collc.fast.execute import MpiTransport, execute

    _, plan = _read(path)
    transport = MpiTransport(MPI.COMM_WORLD)
    n, rank = plan.machine.n_ranks, transport.rank
    if MPI.COMM_WORLD.Get_size() != n:
        raise InputError(f"{path}: a plan for {n} ranks; started on {MPI.COMM_WORLD.Get_size()}")
    sent = [_pattern(rank, other, int(plan.matrix[rank, other])) for other in range(n)]
    wanted = np.concatenate([_pattern(other, rank, int(plan.matrix[other, rank])) for other in range(n)])
    # A value that the pattern at its place never has, so that a byte left out shows.
    came = wanted ^ 255
    execute(plan, transport, np.concatenate(sent), came)
    wrong = np.flatnonzero(came != wanted)
    # All ranks learn of a fault in any, so that none is left waiting.
    total, n_wrong = MPI.COMM_WORLD.allreduce(len(wanted)), MPI.COMM_WORLD.allreduce(len(wrong))
    if n_wrong:
        here = f", here the first at {wrong[0]} of {len(wanted)}" if len(wrong) else ""
        raise VerificationError(f"rank {rank}: {n_wrong} bytes arrived wrong{here}")
    if rank == 0:
        sys.stdout.write(f"{n} ranks, {plan.n_stages} stages: all {total} bytes arrived\n")


def _pattern(origin: int, final: int, count: int) -> NDArray[Any]:
    """Bytes that tell from where they are, for whom, and which they are."""
    import numpy as np

    place = np.arange(count, dtype=np.int64)
    return ((origin * 131 + final * 31 + place * 7 + place // 251) & 255).astype(np.uint8)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
