"""Demands by rule instead of by file, to ask what would be: `zipf:1.2,seed=1`, `uniform:`, `expert-skew:`.

The same text gives the same matrix everywhere: random numbers come from a counter and the splitmix64
finalizer (Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014), not
from a library. Entries are whole multiples of 1/2048 of the mean; a rank sends nothing to itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collc.errors import InputError, nearest
from collc.units import parse_bytes, parse_number

if TYPE_CHECKING:
    Floats = Any

# An average entry in units; cells range over 1 to 1024 times the least.
_MEAN, _WIDEST = 2048, 1024


def is_pattern(text: str) -> bool:
    """Whether a demand is given by rule, and not by the name of a file."""
    name, colon, _ = text.partition(":")
    return name in PATTERNS or (bool(colon) and name.replace("-", "").isalpha() and not Path(text).exists())


def make_demand(text: str, n_ranks: int) -> list[list[int]]:
    """The matrix [n x n, bytes] of a rule, `NAME:[EXPONENT][,seed=N][,mean=SIZE]`.

    Raises:
        InputError: no such rule, or a word that it does not take.
    """
    import numpy

    name, _, rest = text.partition(":")
    if name not in PATTERNS:
        raise InputError(f"demand '{name}:'" + nearest(name, PATTERNS))
    draw, default = PATTERNS[name]
    exponent, seed, mean = default, 1, 2**20
    for word in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = word.partition("=")
        if not equals and default is not None:
            exponent = _exponent(word, text)
        elif key == "seed" and value.isascii() and value.isdigit() and len(value) < 10:
            seed = int(value)
        elif key == "mean" and value:
            mean = parse_bytes(value)
        else:
            takes = "seed=N and mean=SIZE" if default is None else "an exponent, seed=N and mean=SIZE"
            raise InputError(f"demand '{text}': '{word}'; expected {takes}")
    if mean % _MEAN or not mean:
        raise InputError(f"demand '{text}': a mean of {mean} bytes; expected a multiple of {_MEAN}")
    cells = numpy.floor(draw(n_ranks, seed, exponent)).astype(numpy.int64) * (mean // _MEAN)
    numpy.fill_diagonal(cells, 0)
    rows: list[list[int]] = cells.tolist()
    return rows


def _exponent(word: str, text: str) -> float:
    try:
        value = float(parse_number(word))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 8:
        raise InputError(f"demand '{text}': exponent '{word}'; expected a number from 0 to 8")
    return value


def _uniform(n: int, seed: int, _: float | None) -> Floats:
    """Every amount up to twice the mean is as likely."""
    return 2 * _MEAN * _random(seed, 1, n * n).reshape(n, n)


def _zipf(n: int, seed: int, exponent: float | None) -> Floats:
    """Amounts with a density that falls as a power, over a range of 1 to 1024."""
    import numpy

    fall = 1 - (exponent or 0.0)
    draws = _random(seed, 1, n * n).reshape(n, n)
    # The inverse of the distribution function.
    if abs(fall) < 1e-9:
        cells = numpy.exp(draws * math.log(_WIDEST))
    else:
        cells = ((_WIDEST**fall - 1) * draws + 1) ** (1 / fall)
    return cells * round(_MEAN / _mean(fall))


def _mean(fall: float) -> float:
    """Of a density that falls as x ** (fall - 1) from 1 to the widest."""

    def area(power: float) -> float:
        return math.log(_WIDEST) if abs(power) < 1e-9 else (_WIDEST**power - 1) / power

    return area(fall + 1) / area(fall)


def _expert_skew(n: int, seed: int, exponent: float | None) -> Floats:
    """Destinations of unequal popularity, as experts are: the k-th gets a part that falls as a power of k."""
    import numpy

    rank = numpy.empty(n)
    rank[numpy.argsort(_random(seed, 2, n), kind="stable")] = numpy.arange(1, n + 1)
    popular = rank ** -(exponent or 0.0)
    return (n - 1) * _MEAN * (popular / popular.sum())[None, :] * (0.5 + _random(seed, 1, n * n).reshape(n, n))


def _balanced(n: int, _seed: int, _: float | None) -> Floats:
    """The mean everywhere."""
    import numpy

    return numpy.full((n, n), float(_MEAN))


# Name -> what draws the cells, and its exponent where none is given (None: it takes none).
PATTERNS: Mapping[str, tuple[Callable[[int, int, float | None], Floats], float | None]] = {
    "balanced": (_balanced, None),
    "expert-skew": (_expert_skew, 0.5),
    "uniform": (_uniform, None),
    "zipf": (_zipf, 0.8),
}


def _random(seed: int, stream: int, count: int) -> Floats:
    """Numbers in [0, 1), by their place alone."""
    import numpy

    with numpy.errstate(over="ignore"):
        key = _mixed(numpy.array([seed * 1000003 + stream], dtype=numpy.uint64))
        return (_mixed(numpy.arange(count, dtype=numpy.uint64) ^ key) >> numpy.uint64(11)) * 2.0**-53


def _mixed(words: Any) -> Any:
    """The finalizer of splitmix64."""
    import numpy

    words = words + numpy.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return words ^ (words >> numpy.uint64(31))
