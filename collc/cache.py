"""Results kept by content, so that a launch script pays for a synthesis once.

An entry is one file, named by the hash of everything the result depends on, written to a temporary
name and renamed: ranks that start at the same moment never see half of one. It carries the hash of
its own payload; a damaged entry is as good as none. JSON only, nothing that runs when read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collc import __version__

# Entries larger than this are not worth keeping: reading one back would take longer than a hit may.
_LARGEST_BYTES = 64 * 2**20


def directory() -> Path:
    """Where entries are kept: COLLC_CACHE_DIR, else collc under the XDG cache directory."""
    if chosen := os.environ.get("COLLC_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "collc"


def key(code: str, **content: Any) -> str:
    """The name of the entry for this content and this collc.

    Args:
        code: the `fingerprint` of collc.
        content: JSON data; everything else the result depends on.
    """
    text = json.dumps({"collc": [__version__, code], **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(package: Path = Path(__file__).parent) -> str:
    """The hash of the code and tables below a folder, collc's own by default.

    A version stands for many states of a checkout, and another state's result need not be this one's.
    """
    found = hashlib.sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".toml")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def read(name: str) -> dict[str, Any] | None:
    """The entry's payload; None where there is none, or it cannot be read or is damaged."""
    try:
        head, _, body = (directory() / f"{name}.json").read_bytes().partition(b"\n")
        if head.decode("ascii") != hashlib.sha256(body).hexdigest():
            return None
        payload = json.loads(body)
    except (OSError, ValueError, RuntimeError):
        return None
    return payload if isinstance(payload, dict) else None


def write(name: str, payload: Mapping[str, Any]) -> bool:
    """Keep a payload; whether that worked. A cache that cannot be written is no reason to fail."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    if len(body) > _LARGEST_BYTES:
        return False
    try:
        where = directory()
        where.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=where, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            Path(temporary).replace(where / f"{name}.json")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError):
        return False
    return True
