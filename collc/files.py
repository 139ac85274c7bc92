"""Files written whole or not at all.

A runtime parses every regular file of its directory, so new files are first written into a
subdirectory, which no runtime looks into, and then renamed into place.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from collc.errors import InputError, Place


def check_writable(directory: str) -> None:
    """Refuse a directory that files cannot be written to, before any work is done for them.

    Raises:
        InputError: it is no directory, or cannot be created or written to.
    """
    if not directory:
        # Path("") is the working directory; an unset variable in a script must not fill it.
        raise InputError("a directory with an empty name; expected where the files shall be written")
    path = Path(directory)
    try:
        while not path.exists() and path != path.parent:
            path = path.parent
        if not path.is_dir():
            raise InputError("is not a directory", Place(str(path)))
        if not os.access(path, os.W_OK | os.X_OK):
            raise InputError("cannot be written to: permission denied", Place(str(path)))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be written to: {_reason(error)}", Place(directory)) from None


def write_all(directory: str, files: Mapping[str, str]) -> list[str]:
    """Write the files, replacing those of the same names; the paths.

    A file that already has this content is left alone. An interrupted call leaves the old files.

    Raises:
        InputError: the directory cannot be written to; nothing was written.
    """
    where = Path(directory)
    try:
        where.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=where, prefix=".collc-") as workplace:
            made = []
            for name, text in files.items():
                if _holds(where / name, text):
                    continue
                made.append(name)
                (Path(workplace) / name).write_text(text, encoding="utf-8", newline="\n")
            for name in made:
                (Path(workplace) / name).replace(where / name)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be written to: {_reason(error)}", Place(directory)) from None
    return [str(where / name) for name in files]


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
