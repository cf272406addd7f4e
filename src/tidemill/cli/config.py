"""``tidemill config``: settings in the store, visible to all its processes."""

from __future__ import annotations

import json

import click

from tidemill.cli.completion import known_settings, setting_keys
from tidemill.cli.config_show import show
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import json_or_text
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.cli.suggestions import refuse_similar_setting
from tidemill.client.control import KNOWN_SETTINGS, shown_value
from tidemill.client.documents import setting_document


@click.group(cls=InOrder)
def config() -> None:
    """Show the settings of commands; list and change stored settings."""


@config.command("list")
@with_context
def list_settings(context: CommandContext) -> None:
    """List settings; secret values are masked."""
    settings = context.control.settings()
    if context.as_json:
        print_json([setting_document(setting, shown_value(setting)) for setting in settings])
        return
    now = context.now()
    columns = (
        Column("key", flexible=True), Column("value", flexible=True), Column("changed", optional=True),
        Column("by", flexible=True, optional=True), Column("description", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            setting.key,
            _written(shown_value(setting)),
            age(setting.updated_at, now),
            setting.updated_by,
            setting.description,
        ]
        for setting in settings
    ]
    names = ", ".join(KNOWN_SETTINGS)
    print_table(columns, rows, empty=f"no settings; there is {names}, and whatever you set")


config.add_command(show)


@config.command("set")
@click.argument("key", shell_complete=setting_keys)
@click.argument("value")
@click.option("--description", metavar="TEXT", help="Description; keeps the old one if not given.")
@click.option("--new", is_flag=True, help="Allow a new key with a similar name.")
@with_context
def set_setting(context: CommandContext, key: str, value: str, description: str | None, new: bool) -> None:
    """Set a setting to JSON or to text."""
    if not new:
        refuse_similar_setting(key, [*known_settings(), *(kept.key for kept in context.control.settings())])
    made = context.control.set(key, json_or_text(value), description=description)
    if context.as_json:
        print_json(setting_document(made, shown_value(made)))
        return
    print_lines([(f"{key} is {_written(shown_value(made))}", "")])


@config.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=setting_keys)
@with_context
def unset(context: CommandContext, keys: tuple[str, ...]) -> None:
    """Remove settings: their defaults apply again."""
    removed = {key: context.control.unset(key) for key in dict.fromkeys(keys)}
    if context.as_json:
        print_json([key for key, was in removed.items() if was])
        return
    for key, was in removed.items():
        print_lines([(f"{key} {'is removed' if was else 'was not set'}", "")])


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
