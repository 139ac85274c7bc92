"""The demand matrix of an all-to-all-v: how many bytes each rank sends to each other."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from pathlib import Path

from collc.errors import InputError, Place
from collc.ir.collective import Collective, alltoallv

MAX_BYTES = 256 * 2**20


def read_demand(path: str) -> list[list[int]]:
    """The matrix [n x n, bytes] in a CSV file (commas or blanks, # for comments) or a NumPy .npy file.

    Raises:
        InputError: it cannot be read, is not square, or holds something that is no whole number of bytes.
    """
    try:
        if Path(path).stat().st_size > MAX_BYTES:
            raise InputError(f"has more than {MAX_BYTES} bytes; no demand matrix is that large", Place(path))
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", Place(path)) from None
    rows = _read_npy(path) if content.startswith(b"\x93NUMPY") else _read_csv(content, path)
    for index, row in enumerate(rows):
        if len(row) != len(rows):
            raise InputError(
                f"row {index} has {len(row)} entries; expected {len(rows)}, as there are rows", Place(path)
            )
    return rows


def from_demand(demand: Sequence[Sequence[int]]) -> tuple[Collective, int]:
    """The collective of a demand [bytes], in slots of the largest size that divides every entry; that size.

    Raises:
        InputError: not square, a negative entry, or nothing to send.
    """
    unit = gcd(*(count for row in demand for count in row)) or 1
    return alltoallv([[count // unit for count in row] for row in demand]), unit


def _read_csv(content: bytes, path: str) -> list[list[int]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is neither text nor a .npy file; expected a CSV of bytes", Place(path)) from None
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            rows.append([_entry(word, path, number) for word in words])
    if not rows:
        raise InputError("is empty; expected a row of bytes for each rank", Place(path))
    return rows


def _entry(word: str, path: str, line: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 19):
        raise InputError(f"'{word}'; expected a whole number of bytes, below 10^18", Place(path, line))
    return int(word)


def _read_npy(path: str) -> list[list[int]]:
    import numpy

    try:
        # Pickled objects would run code when read.
        matrix = numpy.load(path, allow_pickle=False)
    except Exception as error:  # its header goes through Python's own parser, which fails in many ways
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"is no .npy file that can be read: {reason}", Place(path)) from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "iu":
        raise InputError(f"holds {matrix.ndim}-dimensional {matrix.dtype}; expected a matrix of integers", Place(path))
    if matrix.size and matrix.min() < 0:
        raise InputError("holds a negative entry; expected bytes", Place(path))
    rows: list[list[int]] = matrix.tolist()
    return rows
