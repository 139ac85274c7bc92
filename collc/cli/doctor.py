"""`collc doctor`: what in the environment of a job keeps schedules from being used."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from collc.runtimes import launch

if TYPE_CHECKING:
    from collc.launch.doctor import Diagnosis


@click.command()
@click.option("--runtime", type=click.Choice(launch.names()), help="By whose rules.  [default: by the variables set]")
@click.option("--runtime-version", metavar="V", help="Of the runtime: only the known issues of that one.")
@click.option("--ranks", type=click.IntRange(1), help="Of the job.  [default: as the launcher says]")
@click.option("--user-config", metavar="FILE", help="Read instead of ~/.nccl.conf.")
@click.option("--system-config", metavar="FILE", help="Read instead of /etc/nccl.conf.")
@click.option("--strict", is_flag=True, help="Leave with 1 where anything is wrong.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, strict: bool, **given: Any) -> None:
    """Say what in this environment would keep a schedule from being used.

    Reads the variables, NCCL's configuration files and the files they name; starts nothing. Run it in
    the launch script, or as a task of the job, which sees more.
    """
    from collc.launch.doctor import diagnose
    from collc.launch.environment import read_environment

    environment = read_environment(os.environ, user_config=given["user_config"], system_config=given["system_config"])
    found = diagnose(environment, runtime=given["runtime"], version=given["runtime_version"], ranks=given["ranks"])
    if as_json:
        click.echo(json.dumps(_document(found), indent=2))
    else:
        _show(found)
    if strict and found.problems:
        ctx.exit(1)


def _document(found: Diagnosis) -> dict[str, Any]:
    return {
        "runtime": found.runtime,
        "runtime_guessed": found.guessed,
        "ranks": found.ranks,
        "warnings": [asdict(problem) for problem in found.problems],
        "known_issues": [
            {"name": issue.name, "versions": issue.versions, "message": issue.what} for issue in found.issues
        ],
        "ok": not found.problems,
    }


def _show(found: Diagnosis) -> None:
    from collc.cli.show import printable

    n = len(found.problems)
    verdict = f"{n} warning{'s' * (n > 1)}" if n else "nothing wrong"
    runtime = f"{found.runtime}{' (guessed; see --runtime)' * found.guessed}" if found.runtime else "no runtime"
    ranks = f", {found.ranks} ranks" if found.ranks is not None else ""
    click.echo(f"{runtime}{ranks}: {verdict}")
    for problem in found.problems:
        where = f" ({problem.source})" if problem.source not in (None, "the environment") else ""
        click.echo(f"  warning [{problem.rule}] {printable(problem.message + where)}")
    for issue in found.issues:
        click.echo(f"  known issue [{issue.name}] {issue.versions}: {issue.what}")
