"""Command line interface: ``tidemill <group> <verb>``, one module per group.

The CLI uses stores and contains no SQL. Each group's module is imported only when it is called, so that a command
neither pays for another's imports nor fails with them.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import sys
from typing import Any

import click

from tidemill.early_signals import end_on_sigterm
from tidemill.errors import TidemillError, UsageError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

_SUPERVISED = frozenset({"worker", "up", "demo"})
"""Commands that run until a signal stops them, and reload on SIGHUP."""

_SERVING = frozenset({"hand", "hub", "serve", "intake"})
"""The other commands that run until a signal stops them."""

SECTIONS = {
    "Run": {
        "init": "Create a project: plain, FastAPI or Django.",
        "demo": "Run sample tasks and schedules with the dashboard.",
        "up": "Run an app: schema, workers, schedules, dashboard, HTTP API.",
        "worker": "Run jobs: a supervisor with runner processes.",
        "hub": "Serve workers that do not reach the database.",
        "hand": "Run jobs through a hub, without the database.",
        "serve": "Serve the dashboard and the HTTP API.",
        "tick": "Run due jobs for a limited time, then exit.",
        "intake": "Turn messages of RabbitMQ queues into jobs, until stopped.",
        "mcp": "Serve tools for AI assistants over stdin and stdout.",
    },
    "Jobs": {
        "jobs": "List, enqueue, watch, cancel and retry jobs.",
        "flows": "List, watch, explain, signal, retry and cancel flows.",
        "batches": "List, cancel and retry batches.",
        "signals": "Send signals to jobs, and answer their questions.",
        "events": "Emit events, and list those of the last seven days.",
        "tasks": "List, pause and configure tasks.",
        "queues": "List, pause and resume queues.",
        "logs": "Search the log lines of jobs.",
    },
    "Plan": {
        "schedules": "List, add, pause, preview and trigger schedules.",
        "definitions": "Manage stored configurations of tasks.",
        "limits": "List, set and reset limits and rates.",
    },
    "Operate": {
        "top": "Show live counts, queues and workers.",
        "stats": "Show counts, queues, limits and workers, or one report.",
        "errors": "List, mute, resolve and retry errors by cause.",
        "alerts": "List and acknowledge alerts.",
        "notify": "Test channels, send and list notifications.",
        "subscriptions": "List and remove subscriptions to events.",
        "doctor": "Check the installation and suggest fixes.",
        "check": "Check code that uses another job system.",
        "workers": "List, drain, pause and scale workers.",
        "leases": "Inspect and release leases.",
    },
    "Admin": {
        "db": "Migrate and inspect the database schema.",
        "archive": "Archive ended jobs and search the archive.",
        "tenants": "List, pause and configure tenants.",
        "shards": "List shards and the tenants in them.",
        "config": "Show the settings of commands, and change stored ones.",
        "keys": "Create, list and revoke API keys, and rotate encryption keys.",
        "sessions": "List and end sign-ins to the dashboard.",
        "access": "Explain permissions.",
        "audit": "List the audit log and verify its chain.",
    },
}
"""Commands by section, in the order of the help. A command is the object of its name in ``tidemill.cli.<name>``."""

COMMANDS = {name: summary for section in SECTIONS.values() for name, summary in section.items()}


class Lazy(click.Group):
    """A group that imports a command when it is called, and omits commands without a module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        from tidemill.cli.app_argument import accept_app

        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return accept_app(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        there = self.list_commands(ctx)
        for section, summaries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(f"{name:<11}", summaries[name]) for name in summaries if name in there])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        there = self.list_commands(ctx)
        if args[0] not in there and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = [*difflib.get_close_matches(args[0], there, n=1), *self._groups_with(ctx, args[0])]
            if near:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near[:4]))}?")
        return super().resolve_command(ctx, args)

    def _groups_with(self, ctx: click.Context, verb: str) -> list[str]:
        """Return the commands of groups that have this verb, such as ``jobs retry``."""
        groups = []
        for name in self.list_commands(ctx):
            with contextlib.suppress(ImportError):  # a command that needs an extra
                command = self.get_command(ctx, name)
                if isinstance(command, click.Group) and verb in command.commands:
                    groups.append(f"{name} {verb}")
        return groups

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        # A call of the help alone reads no settings.
        if args and args[0] not in ("-h", "--help", "--version"):
            from tidemill.cli.config_map import ConfigMap

            extra.setdefault("default_map", ConfigMap(self))
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Print a Tidemill error as one message and exit with its code."""
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
    """Background jobs for Python."""


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 failure, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # a replaced stream may lack this method
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    command = sys.argv[1] if sys.argv[1:] else None
    if command in _SUPERVISED | _SERVING:
        # Before the imports of the command, which take longer than everything until here.
        end_on_sigterm(0, reloads=command in _SUPERVISED)
    commands(prog_name="tidemill")
