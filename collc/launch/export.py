"""The variables by which a launch script makes a runtime use a directory of files.

Only the variables of that runtime, only absolute paths, and quoted so that a shell reads them back to
the letter.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collc import runtimes
from collc.errors import InputError, Place, UnsupportedError
from collc.launch.files import listed, read_all
from collc.runtimes import launch
from collc.runtimes.launch import Launch
from collc.verify import formats

_PLAN_DIRECTORY = "MSCCLPP_EXECUTION_PLAN_DIR"
_PLAN_DIRECTORY_GONE = "0.9"


@dataclass(frozen=True)
class Export:
    """What a launch script, or a program, needs.

    Attributes:
        variables: in the order they are printed.
        python: a program's lines, where no variable will do.
        warnings: what is wrong with the files.
    """

    runtime: str
    variables: Mapping[str, str]
    python: str = ""
    warnings: tuple[str, ...] = ()


def export(
    runtime: str,
    directory: str,
    names: Sequence[str] = (),
    *,
    version: str | None = None,
    ranks_per_host: int = 0,
    plugin: str | None = None,
) -> Export:
    """What makes a runtime use the files of a directory.

    Args:
        names: of those files; all of them by default.
        version: of the runtime, where it matters.
        ranks_per_host: for MSCCL++ plans; 0 for any.
        plugin: the tuner plugin, a path or a name.

    Raises:
        InputError: no such runtime, directory or file, or none that the runtime reads.
    """
    told = launch.load(runtime)
    paths = _chosen(directory, names)
    if told.holds == "program":
        return _plans(told, directory, paths, version, ranks_per_host)
    if told.holds == "file":
        return _tuner(told, directory, paths, plugin)
    return _schedules(told, directory, paths)


def _chosen(directory: str, names: Sequence[str]) -> list[str]:
    """Absolute paths of the files asked for."""
    if not directory:
        raise InputError("a directory with an empty name; expected where the files are")
    found = listed(str(Path(directory).absolute()))
    known = {Path(path).name: path for path in found}
    for name in names:
        if name not in known:
            raise InputError(f"has no file '{name}'", Place(directory))
    return [known[name] for name in names] if names else found


def _schedules(told: Launch, directory: str, paths: Sequence[str]) -> Export:
    runtime = runtimes.load(told.name)
    files = read_all(paths, runtime, None)
    good = [file.path for file in files if file.refused is None]
    effect = "keeps the others from being used" if told.holds == "directory" else "is left out"
    warnings = tuple(f"{f.name} cannot be read, and {effect}: {f.refused}" for f in files if f.refused is not None)
    if not good:
        first = f"; {warnings[0]}" if warnings else ""
        raise InputError(f"holds no file that {told.name} reads{first}", Place(directory))
    path = str(Path(directory).absolute())
    if told.holds == "list":
        if len(good) > runtime.max_files:
            raise InputError(
                f"holds {len(good)} files, and {told.name} uses at most {runtime.max_files} in a job; "
                "name those that it shall use after the options",
                Place(directory),
            )
        colon = next((file for file in good if ":" in file), None)
        if colon is not None:
            raise InputError(f"a path with ':', at which {told.name} splits its list", Place(colon))
        path = ":".join(good)
    return Export(told.name, {name: text.replace("{path}", path) for name, text in told.exports.items()}, "", warnings)


def _tuner(told: Launch, directory: str, paths: Sequence[str], plugin: str | None) -> Export:
    tables = [path for path in paths if formats.detect(formats.read(path)) == "tuner"]
    if len(tables) != 1:
        raise InputError(
            f"holds {len(tables)} tuner tables; expected one, or its name after the options", Place(directory)
        )
    variables = {name: text.replace("{path}", tables[0]) for name, text in told.exports.items()}
    if plugin is not None:
        variables["NCCL_TUNER_PLUGIN"] = str(Path(plugin).absolute()) if "/" in plugin else plugin
    return Export(told.name, variables)


# --- MSCCL++ -------------------------------------------------------------------------------------


def _plans(told: Launch, directory: str, paths: Sequence[str], version: str | None, ranks_per_host: int) -> Export:
    kinds = {path: formats.detect(formats.read(path)) for path in paths}
    plans = [path for path, kind in kinds.items() if kind == "mscclpp"]
    warnings = tuple(f"{Path(path).name} is no MSCCL++ plan, and is left out" for path in paths if path not in plans)
    if not plans:
        raise InputError("holds no MSCCL++ plan", Place(directory))
    if version is not None and launch.is_older(version, _PLAN_DIRECTORY_GONE):
        return Export(told.name, {_PLAN_DIRECTORY: str(Path(directory).absolute())}, "", warnings)
    return Export(told.name, {}, _snippet(plans, ranks_per_host), warnings)


def _snippet(plans: Sequence[str], ranks_per_host: int) -> str:
    """Lines that register the plans, each for its own number of ranks."""
    entries = []
    for path in plans:
        n_ranks = len(json.loads(Path(path).read_bytes())["gpus"])
        entries.append(f"    ({path!r}, {n_ranks}),")
    return "\n".join(
        (
            "import os",
            "",
            "import mscclpp",
            "from mscclpp import Algorithm, ExecutionPlan",
            "",
            'rank = int(os.environ["RANK"])',
            "builder = mscclpp.ext.AlgorithmCollectionBuilder()",
            "for path, n_ranks in (",
            *entries,
            "):",
            "    builder.add_algorithm_builder(",
            "        Algorithm(",
            "            id=os.path.basename(path),",
            "            execution_plan=ExecutionPlan(path, rank),",
            f"            constraint=Algorithm.Constraint(world_size=n_ranks, n_ranks_per_node={ranks_per_host}),",
            "        )",
            "    )",
            "",
        )
    )


# --- forms ---------------------------------------------------------------------------------------


def as_export(made: Export) -> str:
    """Lines for a shell to evaluate.

    Raises:
        UnsupportedError: no variable will do.
    """
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in _variables(made).items())


def as_mpirun(made: Export) -> str:
    """Options for mpirun on one line.

    Raises:
        UnsupportedError: no variable will do.
    """
    return " ".join(f"-x {shlex.quote(f'{name}={value}')}" for name, value in _variables(made).items()) + "\n"


def _variables(made: Export) -> Mapping[str, str]:
    if not made.variables:
        raise UnsupportedError(f"{made.runtime}: a program loads the plans, no variable does; expected --format python")
    return made.variables
