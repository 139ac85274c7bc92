"""A call of a collective, as a runtime sees it when it looks for a file."""

from __future__ import annotations

from dataclasses import dataclass

from collc.errors import InputError, nearest
from collc.ir.collective import NAMES
from collc.units import format_bytes

# Element type -> bytes, by NCCL's names and the ones people type.
DTYPES = {
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
ALIASES = {"half": "float16", "float": "float32", "double": "float64", "bf16": "bfloat16", "fp8": "fp8_e4m3"}
OPS = ("sum", "prod", "max", "min", "avg", "premulsum")
REDUCING = ("allreduce", "reduce", "reduce_scatter")
# Their message is all ranks' blocks as nccl-tests counts it; the runtimes count one rank's.
ONE_BLOCK = ("gather", "scatter")
# Every rank has a block of its own of the message.
BLOCKS = ("allgather", "reduce_scatter", "alltoall", *ONE_BLOCK)


@dataclass(frozen=True)
class Call:
    """One call of a collective.

    Attributes:
        nbytes: message size as nccl-tests counts it [bytes].
        dtype, op: element type and reduction, by the names of `DTYPES` and `OPS`.
        root: of the collectives that have one; None where it is not known.
        gpus_per_process: how many GPUs a process drives.
        single_process: whether the user has allowed several of them in a process.
        max_channels: NCCL_MAX_NCHANNELS, where it is set.

    Raises:
        InputError: there is no such call.
    """

    collective: str
    n_ranks: int
    nbytes: int
    dtype: str = "float32"
    op: str = "sum"
    inplace: bool = False
    root: int | None = None
    gpus_per_process: int = 1
    single_process: bool = False
    max_channels: int | None = None

    def __post_init__(self) -> None:
        for word, what, known in (
            (self.collective, "collective", NAMES),
            (self.dtype, "dtype", DTYPES),
            (self.op, "op", OPS),
        ):
            if word not in known:
                raise InputError(f"{what} '{word}'" + nearest(word, known))
        if self.n_ranks < 1:
            raise InputError(f"--ranks {self.n_ranks}; expected 1 or more")
        if self.root is not None and not 0 <= self.root < self.n_ranks:
            raise InputError(f"--root {self.root}; expected 0 to {self.n_ranks - 1}")
        grain = DTYPES[self.dtype] * (self.n_ranks if self.collective in BLOCKS else 1)
        if self.nbytes % grain:
            each = f" for each of {self.n_ranks} ranks" if self.collective in BLOCKS else ""
            near = format_bytes(self.nbytes - self.nbytes % grain)
            raise InputError(f"{self.nbytes} bytes are no whole number of {self.dtype}{each}; {near} are")

    @property
    def counted(self) -> int:
        """The message size as the runtimes count it [bytes]."""
        return self.nbytes // self.n_ranks if self.collective in ONE_BLOCK else self.nbytes

    @property
    def elements(self) -> int:
        """The elements of that size."""
        return self.counted // DTYPES[self.dtype]

    @property
    def count(self) -> int:
        """The count of the call: the elements of one rank's block, or of the buffer."""
        blocks = self.n_ranks if self.collective in BLOCKS else 1
        return self.nbytes // DTYPES[self.dtype] // blocks

    @property
    def type_family(self) -> str:
        """The element type, both kinds of fp8 being one."""
        return "fp8" if self.dtype.startswith("fp8") else self.dtype


def dtype_named(word: str) -> str:
    """The element type people mean by a word.

    Raises:
        InputError: no such type; names the nearest.
    """
    name = ALIASES.get(word.lower(), word.lower())
    if name not in DTYPES:
        raise InputError(f"dtype '{word}'" + nearest(word, (*DTYPES, *ALIASES)))
    return name
