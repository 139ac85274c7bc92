"""How long a synthesizer may still take: solvers outside Python do not hear the alarm that ends the rest."""

from __future__ import annotations

import signal


def time_left() -> float | None:
    """Seconds to the deadline that the command line set for this process; None without one."""
    left = signal.getitimer(signal.ITIMER_REAL)[0] if hasattr(signal, "getitimer") else 0.0
    return left or None
