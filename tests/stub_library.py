"""A stand-in for the libraries that load schedule files: finds and chooses them by the runtimes' rules.

Written from the rules alone, without any code of collc, so that it can stand against it. As a program it
is one task of a job: it says as JSON which file its call would use.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

SCANNED = ("nchunksperloop", "nchannels", "ngpus", "coll", "minBytes", "maxBytes", "inplace", "outofplace")
OLD_NEEDS = ("name", "ngpus", "nchunksperloop", "nchannels", "proto", "coll", "inplace")
KNOWN = {"reduce", "broadcast", "allreduce", "reducescatter", "allgather", "alltoall", "gather", "scatter", "alltoallv"}
BY_ALL_RANKS = {"allgather", "reducescatter", "reduce_scatter", "alltoall"}
HELD = 4  # files the first runtime holds


class Stopped(Exception):
    """The reading of a directory ended at a file."""


def attributes(path: Path) -> dict[str, str]:
    """The attributes of the first element, past comments; none where there is no element."""
    text = re.sub(r"\A(?:[ \r\n]|<!-- .*?-->)*", "", path.read_text(encoding="latin-1"), flags=re.DOTALL)
    match = re.match(r'<algo((?: +\w+="[^"]*")*) *>', text)
    return dict(re.findall(r'(\w+)="([^"]*)"', match[1])) if match else {}


def scanned(directory: str) -> list[tuple[Path, dict[str, str]]]:
    """Every file and link of a directory by path, up to the end or to the first that is no schedule."""
    found = []
    for path in sorted(Path(directory).iterdir(), key=os.fsencode):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            continue
        algo = attributes(path) if path.is_file() else {}
        if not set(SCANNED) <= set(algo) or algo["coll"] not in KNOWN:
            raise Stopped(path.name)
        found.append((path, algo))
    return found


def choose(
    environ: Mapping[str, str], coll: str, n_ranks: int, count: int, element_bytes: int = 4, *, inplace: bool = False
) -> str | None:
    """The file a call uses, by the environment; None where the library's own algorithm runs."""
    if environ.get("MSCCL_XML_FILES") and "MSCCL" in environ.get("NCCL_ALGO", ""):
        return choose_old(environ["MSCCL_XML_FILES"], coll, n_ranks, count, element_bytes, inplace)
    if not environ.get("MSCCL_ALGO_DIR"):
        return None
    try:
        files = scanned(environ["MSCCL_ALGO_DIR"])
    except Stopped:
        return None
    for path, algo in files:
        ranks = int(algo["ngpus"])
        amount = count * (ranks if algo["coll"] in BY_ALL_RANKS else 1)
        nbytes = amount * element_bytes
        above = int(algo["maxBytes"]) != 0 and nbytes > int(algo["maxBytes"])
        sized = (
            count > 0 and amount % int(algo["nchunksperloop"]) == 0 and nbytes >= int(algo["minBytes"]) and not above
        )
        if sized and ranks == n_ranks and algo["coll"] == coll and algo["inplace" if inplace else "outofplace"] != "0":
            return str(path)
    return None


def choose_old(listed: str, coll: str, n_ranks: int, count: int, element_bytes: int, inplace: bool) -> str | None:
    """The same by the first runtime: the first four of a list that it can take."""
    held = []
    for name in filter(None, listed.split(":")):
        algo = attributes(Path(name)) if Path(name).is_file() else {}
        low, high = int(algo.get("minBytes", 0)), int(algo.get("maxBytes", 1 << 27))
        if set(OLD_NEEDS) <= set(algo) and int(algo["ngpus"]) == n_ranks and low <= high and len(held) < HELD:
            held.append((name, algo, low, high))
    for name, algo, low, high in held:
        amount = count * (n_ranks if algo["coll"] in BY_ALL_RANKS else 1)
        fits = low <= amount * element_bytes < high and amount % int(algo["nchunksperloop"]) == 0
        if fits and algo["coll"] == coll and int(algo["inplace"]) == inplace:
            return name
    return None


def main() -> None:
    rank = next(os.environ[key] for key in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") if key in os.environ)
    size = next(os.environ[key] for key in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") if key in os.environ)
    coll, count = sys.argv[1], int(sys.argv[2])
    used = choose(os.environ, coll, int(size), count)
    text = {path: Path(path).read_text() for path in filter(None, [used])}
    out = Path(os.environ["STUB_OUT"]) / f"rank-{rank}.json"
    out.write_text(json.dumps({"selected": used, "bytes": sum(map(len, text.values()))}))


if __name__ == "__main__":
    main()
