"""collc's own schedule file: the trees or steps, with the bound and its witness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from collc.ir.program import Compiled
from collc.ir.text import dumps


@dataclass(frozen=True)
class Json:
    """collc's own schedule file: trees on routes with exact weights, or steps of sends; the bound, its witness."""

    level: ClassVar[str] = "any"

    def supports(self, collective: str) -> str | None:
        """None: every collective has this form."""
        return None

    def emit(self, sweep: Sequence[Compiled]) -> dict[str, str]:
        """File name -> text."""
        return {f"{compiled.stem}.json": dumps(compiled.made) for compiled in sweep}
