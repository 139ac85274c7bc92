"""The command line: read the words, call one function, show what it said.

Each command is a file of this folder and is imported only when it runs, so that every `--help`
starts at once. Errors a user can meet are caught here, once, around everything.
"""

from __future__ import annotations

import difflib
import errno
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from collc import __version__
from collc.errors import CollcError

# Name -> what `collc --help` says of it; the file of that name holds the command of that name.
COMMANDS = {
    "doctor": "Read the environment of a job and say what would keep schedules from being used.",
    "env": "Print the variables by which a launch script makes a runtime use a directory of files.",
    "explain": "Say which file a call would use, and why not the others.",
    "synth": "Make a schedule for a topology, check it, and write the files a runtime loads.",
    "topo": "List, show and bound topologies; a commented example; the JSON Schema.",
    "verify": "Check schedule files, whoever wrote them.",
}
INTERRUPTED = 130  # as a shell reports SIGINT
PIPE_CLOSED = 141  # as a shell reports SIGPIPE
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # standard output is a file on a full or broken disk


class Root(click.Group):
    """The group `collc`: commands imported when used, errors turned into one sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The command names, sorted; nothing is imported."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"collc.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command the first word names.

        Raises:
            click.UsageError: no such command; names the nearest.
        """
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ending = f"did you mean '{close[0]}'?" if close else f"expected one of {', '.join(COMMANDS)}"
            ctx.fail(f"no command '{args[0]}'; {ending}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in `collc --help`, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command line and leave with the contract's exit code."""
        try:
            code = super().main(args, prog_name or "collc", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            sys.exit(_complain(error.format_message(), 2, getattr(error, "ctx", None)))
        except CollcError as error:
            sys.exit(_complain(str(error), error.exit_code))
        except BrokenPipeError:
            _drop_output()
            sys.exit(PIPE_CLOSED)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _drop_output()
            sys.exit(_complain(f"cannot write the result: {error.strerror}", 2))
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an interrupt or a closed pipe is left to `main`, not to click."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would turn it into exit code 1, which here means "something is wrong with the file".
            raise _PipeClosed from error


class _PipeClosed(BrokenPipeError):
    """A closed pipe without the number by which click would catch it."""


def _drop_output() -> None:
    """Forget what is still buffered, or the interpreter complains of it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, code: int, ctx: click.Context | None = None) -> int:
    """One sentence to stderr; the exit code."""
    # A file's name may hold bytes that no encoding knows.
    click.echo(f"collc: {message}".encode("utf-8", "replace").decode(), err=True)
    if ctx is not None:
        click.echo(f"Try '{ctx.command_path} --help'.", err=True)
    return code


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="collc", message="%(prog)s %(version)s")
def collc() -> None:
    """Compile collective communication: a topology in, verified schedules for vendor libraries out."""


def main() -> NoReturn:
    """The console script `collc`."""
    # A run makes many small values that live to its end; looking through them ever again is a tenth of its time.
    gc.set_threshold(100_000, 20, 100)
    collc.main()
