"""Inner loops over flat whole-number arrays: one source, interpreted for small inputs, compiled for large.

A kernel is a module of plain functions that use only what numba understands. Small problems call them
as they are, on lists of Python's own integers, and pay for no compiler; large ones call the same
source compiled, on 64-bit arrays. Both give the same answer, step by step.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, MutableSequence
from functools import cache
from types import FunctionType
from typing import Any

# What a kernel reads and writes: a list where interpreted, a numpy array of 64 bits where compiled.
Ints = MutableSequence[int]

# Sums in a compiled kernel stay below this.
LIMIT = 2**61


@cache
def load(name: str, compiled: bool) -> Any:
    """A kernel's functions, as attributes.

    Args:
        name: of the module in this folder.
        compiled: by numba, kept on disk for the next run where the disk can be written.
    """
    full = f"{__name__}.{name}"
    if not compiled:
        return importlib.import_module(full)
    import numba

    spec = importlib.util.find_spec(full)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(full)
    # A second instance of the module, so that its functions find each other compiled.
    spec.name = f"{full}_compiled"
    spec.loader.name = spec.name  # type: ignore[attr-defined]
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for key, value in list(vars(module).items()):
        if isinstance(value, FunctionType) and value.__module__ == spec.name:
            setattr(module, key, _compile(numba, value, kept=not key.startswith("_")))
    return module


def _compile(numba: Any, function: FunctionType, kept: bool) -> Any:
    """Functions others call are kept on disk, with those they call inside, which Python never calls."""
    if not kept:
        return numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    try:
        return numba.njit(function, cache=True, no_cfunc_wrapper=True)
    except RuntimeError:  # no folder can be written: compile anew in each process
        return numba.njit(function, no_cfunc_wrapper=True)


def ints(values: Iterable[int], compiled: bool) -> Ints:
    """An array of a kernel's kind."""
    if not compiled:
        return list(values)
    import numpy

    array: Ints = numpy.array(values if isinstance(values, list | tuple) else list(values), dtype=numpy.int64)  # type: ignore[assignment]
    return array


def filled(length: int, value: int, compiled: bool) -> Ints:
    """An array of a kernel's kind that holds one value."""
    if not compiled:
        return [value] * length
    import numpy

    array: Ints = numpy.full(length, value, dtype=numpy.int64)  # type: ignore[assignment]
    return array
