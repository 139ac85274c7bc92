"""A stand-in for srun, mpirun and torchrun: starts the tasks of a job on this machine, each with its variables.

Called by the name of the launcher it plays. Leaves with the largest exit status of the tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def srun(words: list[str]) -> tuple[list[str], list[dict[str, str]]]:
    """The command and each task's variables; the number of tasks is what sbatch has set."""
    n = int(os.environ["SLURM_NTASKS"])
    shared = {"SLURM_STEP_NUM_TASKS": str(n), "SLURM_STEP_TASKS_PER_NODE": str(n)}
    return words, [{**shared, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(n)]


def mpirun(words: list[str]) -> tuple[list[str], list[dict[str, str]]]:
    n, exported = 1, {}
    while words[0].startswith("-"):
        option, value, *words = words
        if option == "-np":
            n = int(value)
        else:
            assert option == "-x"
            name, _, text = value.partition("=")
            exported[name] = text
    shared = {**exported, "OMPI_COMM_WORLD_SIZE": str(n), "OMPI_COMM_WORLD_LOCAL_SIZE": str(n)}
    return words, [{**shared, "OMPI_COMM_WORLD_RANK": str(rank)} for rank in range(n)]


def torchrun(words: list[str]) -> tuple[list[str], list[dict[str, str]]]:
    n = 1
    while words[0].startswith("-"):
        option, value, *words = words
        n = int(value) if option == "--nproc-per-node" else n
    shared = {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n)}
    return [sys.executable, *words], [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n)]


def main() -> None:
    command, tasks = {"srun": srun, "mpirun": mpirun, "torchrun": torchrun}[Path(sys.argv[0]).name](sys.argv[1:])
    started = [subprocess.Popen(command, env={**os.environ, **task}) for task in tasks]
    sys.exit(max(task.wait() for task in started))


if __name__ == "__main__":
    main()
