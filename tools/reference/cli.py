"""``docs/reference/cli.md``: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from tools.reference.internals import commands
from tools.reference.markdown import code, prose, table

HEAD = """# Commands

Every command of `tidemill`, with its arguments and options.
[Command line](../cli.md) explains them with examples and output.

Every command has `--help`.
"""

COMMON = {
    "--app": ("`--app MODULE:ATTR`", "App with the stores and tasks; also `TIDEMILL_APP`."),
    "--store": ("`--store URL`", "Store without an app, such as `sqlite:///jobs.db`; also `TIDEMILL_STORE`."),
    "--json": ("`--json`", "Print JSON."),
}
"""Options of almost every command, described once."""


def page() -> str:
    """The text of the page."""
    root = click.Context(commands, info_name="tidemill")
    parts = [HEAD, "## Common options\n"]
    parts.append(table(("option", "meaning"), COMMON.values()) + "\n")
    for context, command in walk(commands, root):
        parts += _command(context, command)
    return "\n".join(parts)


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """The commands below a group, in the order of the help."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(found, click.Context(found, info_name=name, parent=context))
    elif not command.hidden:
        yield context, command


def _command(context: click.Context, command: click.Command) -> Iterator[str]:
    yield f"## {context.command_path.removeprefix('tidemill ')}\n"
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield f"```text\n{' '.join(usage.split())}\n```\n"
    yield prose(re.sub(r"(?m)^\s*\x08$", "", inspect.cleandoc(command.help or ""))) + "\n"
    rows = []
    common = [name for name in COMMON if any(name in option.opts for option in command.params)]
    for option in command.params:
        record = option.get_help_record(context)
        # An argument has no help of its own: the usage line shows it.
        if record and record[1] and option.opts[0] not in COMMON:
            rows.append((code(record[0]), record[1]))
    if rows:
        yield table(("option", "meaning"), rows) + "\n"
    if common:
        yield f"Common options: {', '.join(code(name) for name in common)}.\n"
