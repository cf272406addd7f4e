"""The command line: ``tidemill <group> <verb>``, one file per group. It talks to stores and knows no SQL.

A group's file is imported when it is asked for, so that one command never pays for, or fails with, another.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from typing import Any

import click

from tidemill.errors import TidemillError, UsageError

INTERRUPTED = 130
"""What a shell expects of a program that was stopped by Ctrl-C."""

COMMANDS = {
    "demo": "Show it at work: sample tasks, schedules, a worker and the dashboard.",
    "up": "Everything an app needs: schema, workers, schedules and the HTTP API.",
    "worker": "Run jobs: a supervisor and its runners.",
    "serve": "The dashboard and the HTTP API, in this process.",
    "tick": "Process what is due, then return.",
    "jobs": "Find jobs, enqueue them, follow them, decide about them.",
    "tasks": "What can be run, pausing it, and changing how it is run.",
    "schedules": "When jobs are made: list, add, pause, preview, trigger.",
    "definitions": "Tenants' own configurations of tasks.",
    "queues": "What waits where, and pausing it.",
    "tenants": "Pausing tenants.",
    "limits": "How much may run or begin at once: list it, set it.",
    "config": "The workers' configuration: list it, set it.",
    "workers": "Who works here.",
    "leases": "Who does the duties.",
    "keys": "Who may come in: make keys, list them, revoke them.",
    "archive": "Move ended jobs out of the live tables, and find them again.",
    "audit": "Who did what: list it, and prove that nothing of it was changed.",
    "stats": "How the store is doing, in one look or by one question.",
    "alerts": "What is beyond its threshold.",
    "top": "How the store is doing, live.",
    "doctor": "Look for what is wrong, and say what to do.",
    "db": "The schema of a store: bring it up to date, or look at it.",
}
"""Commands in the order of the help. Each is the object of that name in the module ``tidemill.cli.<name>``."""


class Lazy(click.Group):
    """A group whose commands are imported when they are called; one whose file is not there is not there either."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        found: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Our errors are a sentence and an exit code; Ctrl-C is neither."""
        try:
            return super().invoke(ctx)
        except TidemillError as error:
            from tidemill.cli.screen import clean

            click.echo(f"tidemill: {clean(error, lines=True)}", err=True)
            ctx.exit(2 if isinstance(error, UsageError) else 1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemill", prog_name="tidemill")
def commands() -> None:
    """Background jobs for Python that are simple to start, fast, and cannot be lost."""


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 asked wrongly."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            AttributeError, ValueError
        ):  # a stream that was put in the place of a real one
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    commands(prog_name="tidemill")
