"""All-to-all plans: the stages of `collc.fast`, for a loop of grouped sends and receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collc.errors import UnsupportedError
from collc.fast.file import dumps
from collc.fast.problem import plan_problem, slot_bytes
from collc.ir.program import Compiled

_SERVED = ("alltoall", "alltoallv", "gather", "scatter")


@dataclass(frozen=True)
class Plan:
    """The stages of an all-to-all(v) on a two-tier machine: messages, pieces, staging, predicted time.

    A plan holds the stages that -s fast predicts, whichever synthesizer the report is about.
    """

    level: ClassVar[str] = "flow"

    def supports(self, collective: str) -> str | None:
        """None, or that plans are for chunks from one rank to one."""
        if collective in _SERVED:
            return None
        return f"a plan is for {', '.join(_SERVED)}; found {collective}"

    def emit(self, sweep: Sequence[Compiled]) -> dict[str, str]:
        """File name -> text.

        Raises:
            UnsupportedError: no size, a range of sizes, slots of broken bytes, or a fabric without two tiers.
        """
        texts = {}
        for compiled in sweep:
            problem = compiled.made.problem
            if problem.nbytes is None or compiled.max_bytes is not None:
                raise UnsupportedError("a plan moves one number of bytes; give it with -n, or a demand")
            if slot_bytes(problem) is None:
                raise UnsupportedError(
                    f"{problem.nbytes} bytes in {problem.collective.size_chunks} blocks are not whole bytes each; "
                    "expected a multiple"
                )
            texts[f"{compiled.stem}.plan.json"] = dumps(plan_problem(problem))
        return texts
