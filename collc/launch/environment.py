"""The environment of a job as the library will see it: variables, NCCL's configuration files, the scheduler.

NCCL and RCCL read a user's and a system's configuration file at start-up and set each variable in them
that is not set yet: the environment wins over the user's file, and that over the system's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collc.errors import InputError, Place

USER_CONFIG = "~/.nccl.conf"
SYSTEM_CONFIG = "/etc/nccl.conf"
USER_CONFIG_VARIABLE = "NCCL_CONF_FILE"  # names another user's file; NCCL 2.23 and later
_MAX_CONFIG = 1 << 20
_MAX_LENGTH = 1023  # NCCL's buffers, for names and values
_TASKS = re.compile(r"(\d{1,7})(?:\(x\d{1,7}\))?(?:,.*)?", re.ASCII)
# In the order in which they are believed: the innermost launcher first.
_RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE")
_LOCAL_TASKS = ("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE")  # of a whole job, which may start other steps
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Variable:
    """A variable that is set, and where: "the environment", or a file and line."""

    value: str
    source: str = "the environment"

    @property
    def is_forgettable(self) -> bool:
        """Whether a configuration file sets it, so that no launch script shows it."""
        return self.source != "the environment"


@dataclass(frozen=True)
class OddLine:
    """A line of a configuration file that sets nothing the library looks up."""

    source: str
    why: str


@dataclass(frozen=True)
class Count:
    """A number the scheduler tells, and the variable it is in."""

    number: int
    variable: str


@dataclass(frozen=True)
class Environment:
    """What the library will see."""

    variables: Mapping[str, Variable]
    odd_lines: tuple[OddLine, ...] = ()

    def value(self, name: str) -> str | None:
        """The value of a variable; None where it is not set."""
        found = self.variables.get(name)
        return None if found is None else found.value

    def source(self, name: str) -> str | None:
        """Where a variable is set."""
        found = self.variables.get(name)
        return None if found is None else found.source

    def ranks(self) -> Count | None:
        """How many processes the launcher starts, where it says so."""
        if self.value("WORLD_SIZE") is None and self._starts_launchers():
            return None
        return self._first(_RANKS)

    def local_ranks(self) -> Count | None:
        """How many of them run on this host."""
        if self.value("LOCAL_WORLD_SIZE") is None and self._starts_launchers():
            return None
        return self._first(_LOCAL_RANKS) or self._first(_LOCAL_TASKS)

    def is_in_a_task(self) -> bool:
        """Whether this is one of the started processes, not the script that starts them."""
        return self._first(_LOCAL_RANKS) is not None

    def visible_gpus(self) -> Count | None:
        """How many GPUs a process may see, where that is restricted."""
        for name in _VISIBLE:
            value = self.value(name)
            if value is not None:
                return Count(len([part for part in value.split(",") if part.strip()]), name)
        # Slurm will show each task its own GPUs only.
        of_a_task = self._first(("SLURM_GPUS_PER_TASK",))
        return of_a_task if of_a_task is not None and of_a_task.number == 1 else None

    def _starts_launchers(self) -> bool:
        """Whether Slurm starts one task on each host with several GPUs: torchrun, say, which starts the rest."""
        tasks, hosts = self._first(("SLURM_NTASKS",)), self._first(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"))
        gpus = self._first(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"))
        if tasks is None or hosts is None or gpus is None or self.value("OMPI_COMM_WORLD_SIZE") is not None:
            return False
        return tasks.number == hosts.number and gpus.number > 1

    def _first(self, names: tuple[str, ...]) -> Count | None:
        for name in names:
            match = _TASKS.fullmatch((self.value(name) or "").strip())
            if match is not None:
                return Count(int(match[1]), name)
        return None


def read_environment(
    environ: Mapping[str, str], *, user_config: str | None = None, system_config: str | None = None
) -> Environment:
    """The environment with what the configuration files add to it.

    Args:
        user_config, system_config: other files than NCCL's own; these must exist.

    Raises:
        InputError: a file cannot be read.
    """
    variables = {name: Variable(value) for name, value in environ.items()}
    odd: list[OddLine] = []
    named = environ.get(USER_CONFIG_VARIABLE) or USER_CONFIG
    for path, must_exist in (
        (user_config or named, user_config is not None),
        (system_config or SYSTEM_CONFIG, system_config is not None),
    ):
        for number, line in enumerate(_lines(path, must_exist=must_exist), 1):
            source = f"{path}:{number}"
            name, equals, value = line.partition("=")
            if line.strip() and not line.startswith("#"):
                odd += [OddLine(source, why) for why in _odd(name, equals, value)]
            if equals:
                variables.setdefault(name[:_MAX_LENGTH], Variable(value[:_MAX_LENGTH], source))
    return Environment(variables, tuple(odd))


def _lines(path: str, *, must_exist: bool) -> list[str]:
    file = Path(path)
    try:
        file = file.expanduser()
        if not must_exist and not file.is_file():
            return []
        with file.open("rb") as stream:
            return stream.read(_MAX_CONFIG).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InputError(f"cannot be read: {reason}", Place(path)) from None


def _odd(name: str, equals: str, value: str) -> list[str]:
    """Why a line does not set what its author meant: the library takes it to the letter."""
    if not equals:
        return ["has no '='; it is skipped"]
    words = name.split()
    if words and words[0] == "export":
        return [f"sets the variable '{name}', which nobody reads; expected no 'export'"]
    if name != name.strip():
        return [f"sets the variable '{name}' with a space in its name, which nobody reads; expected no space at '='"]
    if value.endswith("\r"):
        return [f"gives {name} a carriage return at its end; expected lines that end in a line feed"]
    if value[:1] in ("'", '"'):
        return [f"gives {name} quotes as part of its value; expected none"]
    return [f"gives {name} a value with spaces round it; expected none"] if value != value.strip() else []
