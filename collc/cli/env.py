"""`collc env`: the variables by which a launch script makes a runtime use a directory of files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from collc.errors import UnsupportedError
from collc.runtimes import launch

if TYPE_CHECKING:
    from collc.launch.export import Export


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE]...")
@click.option("--runtime", type=click.Choice(launch.names()), required=True, help="Whose variables.")
@click.option("-d", "--dir", "--directory", "directory", metavar="DIR", required=True, help="Where the files are.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("export", "mpirun", "json", "python")),
    help="Lines for a shell, options for mpirun, data, or a program.  [default: export; mscclpp: python]",
)
@click.option("--runtime-version", metavar="V", help="Of the runtime, where it matters: mscclpp before 0.9.")
@click.option("--ranks-per-host", type=click.IntRange(0), default=0, help="For mscclpp plans.  [default: any]")
@click.option("--plugin", metavar="PATH", help="For tuner: the plugin's library.")
def env(
    names: tuple[str, ...],
    runtime: str,
    directory: str,
    form: str | None,
    runtime_version: str | None,
    ranks_per_host: int,
    plugin: str | None,
) -> None:
    """Print what makes a runtime use the files of DIR, or those FILEs of it.

    In a launch script: eval "$(collc env --runtime executor -d DIR)". Only that runtime's variables,
    only absolute paths.
    """
    from collc.launch.export import export

    made = export(runtime, directory, names, version=runtime_version, ranks_per_host=ranks_per_host, plugin=plugin)
    for warning in made.warnings:
        click.echo(f"collc: warning: {warning}".encode("utf-8", "replace").decode(), err=True)
    click.echo(_text(made, form or ("python" if made.python else "export")), nl=False)


def _text(made: Export, form: str) -> str:
    from collc.launch.export import as_export, as_mpirun

    match form:
        case "json":
            document = {"runtime": made.runtime, "variables": dict(made.variables), "python": made.python or None}
            return json.dumps(document, indent=2) + "\n"
        case "python" if made.python:
            return made.python
        case "python":
            raise UnsupportedError(f"{made.runtime}: variables do; expected --format export, mpirun or json")
        case "mpirun":
            return as_mpirun(made)
    return as_export(made)
