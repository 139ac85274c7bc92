"""Read and print quantities exactly: bytes, GB/s (10^9 bytes per second), microseconds.

Inside collc every quantity is an `int` or a `Fraction`; floats appear only where a report is
printed.
"""

from __future__ import annotations

import re
from fractions import Fraction

from collc.errors import InputError

# nccl-tests reads K, M, G as powers of two (its parsesize); KiB says so openly, and KB is the same
# unit to its users.
_BYTE_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(
    r"([-+]?)(?:(\d{1,200})/(\d{1,200})|(\d{0,200})(?:\.(\d{0,200}))?(?:[eE]([-+]?\d{1,3}))?)",
    re.ASCII,
)


def parse_bytes(text: str) -> int:
    """A byte count with an optional binary suffix, as nccl-tests reads it.

    >>> parse_bytes("1MiB"), parse_bytes("64KB"), parse_bytes("1G"), parse_bytes("0.5M")
    (1048576, 65536, 1073741824, 524288)

    Raises:
        InputError: not a size, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"size '{text}': expected bytes with an optional suffix, such as 64KB or 1MiB")
    nbytes = Fraction(match[1]) * _BYTE_SUFFIXES[match[2].upper()]
    if nbytes.denominator != 1:
        raise InputError(f"size '{text}': is not a whole number of bytes")
    return int(nbytes)


def parse_number(text: str) -> Fraction:
    """A decimal or a fraction `p/q`, taken exactly.

    >>> parse_number("3.14"), parse_number("25/3"), parse_number("1e3")
    (Fraction(157, 50), Fraction(25, 3), Fraction(1000, 1))

    Raises:
        ValueError: the text is no such number (the caller knows the place).
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None or not any(match[i] for i in (2, 4, 5)):
        raise ValueError(f"'{text}' is not a number")
    if match[2]:
        if int(match[3]) == 0:
            raise ValueError(f"'{text}' divides by zero")
        value = Fraction(int(match[2]), int(match[3]))
    else:
        digits = (match[4] or "") + (match[5] or "")
        value = Fraction(int(digits)) * Fraction(10) ** (int(match[6] or 0) - len(match[5] or ""))
    return -value if match[1] == "-" else value


def format_bytes(nbytes: int) -> str:
    """Bytes with the largest binary suffix that keeps them whole.

    >>> format_bytes(1048576), format_bytes(1000)
    ('1MiB', '1000B')
    """
    for power, suffix in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes and nbytes % (1 << power) == 0:
            return f"{nbytes >> power}{suffix}"
    return f"{nbytes}B"


def format_rate(bandwidth: Fraction) -> str:
    """A bandwidth in GB/s for eyes: at most four significant decimals, exact where it is whole.

    >>> format_rate(Fraction(2400, 7)), format_rate(Fraction(25))
    ('342.857', '25')
    """
    return f"{float(bandwidth):.6g}"
