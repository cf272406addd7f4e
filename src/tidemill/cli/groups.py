"""Command groups that list their verbs in order, with complete summaries."""

from __future__ import annotations

import click


class InOrder(click.Group):
    """A group that lists its verbs in the order they were added, and never truncates a summary."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command)) for name, command in self.commands.items()])


def summary(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    first = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split())
