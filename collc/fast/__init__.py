"""All-to-all-v on two-tier machines, in a call: `plan(matrix, machine) -> Plan`.

The scheduler of FAST (arXiv:2505.09764), made from its description. Traffic from host to host is
spread evenly over the source's network cards (`spread`), cut into stages in which every card sends
to one other and receives from one other (`matching`, `cut`), and passed on inside the destination
host while the next stage is on the wire (`model`). Nothing here reads files or the command line, and
importing it loads nothing heavy.

Beyond the published scheduler: bytes that must be handed over inside the source host go last in a
queue, so that this too hides behind the wire; time a line idles anyway makes entries equal, so that
fewer stages do; and matchings are mended from stage to stage instead of found anew.
"""

from __future__ import annotations

from collc.fast.machine import Host, Machine, machine_of
from collc.fast.plan import Plan, plan

__all__ = ["Host", "Machine", "Plan", "machine_of", "plan"]
