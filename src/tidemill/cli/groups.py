"""Command groups that list their verbs in order, with complete summaries."""

from __future__ import annotations

import click

from tidemill.cli.app_argument import accept_app
from tidemill.cli.suggestions import meant


class InOrder(click.Group):
    """A group that lists its verbs in the order they were added, and never truncates a summary."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        super().add_command(accept_app(cmd), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = args[0]
        if typed not in self.commands and not typed.startswith("-") and not ctx.resilient_parsing:
            question = meant(typed, self.commands)
            if question:
                ctx.fail(f"No such command {typed!r}. {question.capitalize()}")
            ctx.fail(f"No such command {typed!r}. {ctx.command_path} has {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in self.commands.items()])


def summary(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    first = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split())
