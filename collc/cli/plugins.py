"""`collc synth --list`: every synthesizer and backend, what it takes and what it promises."""

from __future__ import annotations

import json
from typing import Any

from collc import registry, runtimes


def _described() -> dict[str, list[dict[str, Any]]]:
    synthesizers = [registry.describe("synth", name) for name in registry.names("synth")]
    backends = []
    for name in registry.names("backend"):
        entry = registry.describe("backend", name)
        # The msccl backend goes by the names of the runtimes it writes for.
        names = runtimes.names() if name == "msccl" else (name,)
        backends += [{**entry, "name": one, "options": []} for one in names]
    return {"synthesizers": synthesizers, "backends": sorted(backends, key=lambda entry: str(entry["name"]))}


def as_json() -> str:
    """The list as one JSON document."""
    return json.dumps(_described(), indent=2) + "\n"


def as_text() -> str:
    """The list for eyes."""
    lines = []
    for kind, entries in _described().items():
        lines.append(f"{kind}:")
        width = max(len(entry["name"]) for entry in entries)
        for entry in entries:
            lines.append(f"  {entry['name']:<{width}}  {entry['summary']}")
            lines += [f"{'':14}{key}: {entry[key]}" for key in ("supports", "guarantee", "source") if key in entry]
            lines += [
                f"{'':14}-o {option['name']}={option['type']}  (default {option['default']})"
                for option in entry["options"]
            ]
    return "\n".join(lines) + "\n"
