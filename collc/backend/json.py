"""collc's own schedule file: the trees, with the bound and its witness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collc.ir.program import Compiled
from collc.ir.text import dumps


@dataclass(frozen=True)
class Json:
    """collc's own schedule file: trees on routes, exact weights, the bound and its witness."""

    level: ClassVar[str] = "flow"

    def supports(self, collective: str) -> str | None:
        """None: every collective has this form."""
        return None

    def emit(self, sweep: Sequence[Compiled]) -> dict[str, str]:
        """File name -> text."""
        return {f"{compiled.stem}.json": dumps(compiled.flow) for compiled in sweep}
