"""A job as the doctor looks at it, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from collc.launch.environment import Count, Environment
from collc.launch.files import File
from collc.runtimes.launch import Launch

# Rule id -> what it means; the ids never change. Those of single variables stand in the runtimes' data.
RULES = {
    "nothing-named": "no variable says where the files are",
    "foreign-variable": "a variable is set that another runtime reads, and this one does not",
    "relative-path": "a path is relative: each process looks from its own working directory",
    "path-missing": "a path leads nowhere",
    "stray-file": "a file of the directory cannot be read, and keeps the others from being used",
    "no-files": "there is no file to use",
    "rank-count": "no file is for the number of ranks of the job",
    "broken-file": "a file for this number of ranks cannot be read whole",
    "too-many-files": "there are more files than the runtime holds",
    "max-channels": "a file needs more channels than NCCL_MAX_NCHANNELS allows",
    "min-channels": "NCCL_MIN_NCHANNELS is above what the runtime takes, and is ignored",
    "protocol-off": "NCCL_PROTO switches off the protocol of a file",
    "algo-names-msccl": "NCCL_ALGO names MSCCL to a runtime that knows no such algorithm",
    "one-visible-gpu": "each task sees one GPU only",
    "process-model": "a process drives several GPUs",
    "graph-file": "a graph file is injected that is for another number of GPUs",
    "config-file": "a configuration file sets a variable that changes what runs",
    "config-line": "a line of a configuration file does not do what it seems to",
}
SHARED_DIRECTORY = "MSCCL_ALGO_DIR"  # of the executor and RCCL both


@dataclass(frozen=True)
class Problem:
    """Something that will defeat a schedule.

    Attributes:
        rule: an id of `RULES`, or of a setting of the runtime.
        variable, source: which variable it is about, and where that is set.
    """

    rule: str
    message: str
    variable: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Job:
    """What the checks look at.

    Attributes:
        paths: where the runtime's variable leads, as far as it can be read.
        files: what the runtime knows of the files there; none where it reads other files than MSCCL XML.
        ranks: of the job, and how that is known.
    """

    told: Launch
    environment: Environment
    paths: tuple[str, ...]
    files: tuple[File, ...]
    ranks: Count | None

    def problem(self, rule: str, variable: str, message: str) -> Problem:
        """A problem with a variable, and where that is set."""
        return Problem(rule, message, variable, self.environment.source(variable))

    def is_for(self, file: File) -> bool:
        """Whether a file is for the number of ranks of the job, as far as that is known."""
        return self.ranks is None or file.n_ranks == self.ranks.number
