"""``tidemill config show``: the settings of a command, and where each of them comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import click
from click.core import ParameterSource

from tidemill.cli.config_map import SHARED, found_value, option_name, variable_of
from tidemill.cli.screen import Column, print_json, print_lines, print_table
from tidemill.configuration import PREFIX, ConfigValue, default_store, project_settings, store_url, variable
from tidemill.domain.masks import HIDDEN

VARIABLES = ("SESSION_SECRET", "ENCRYPTION_KEYS", "KEY", "NODE", "RELEASE")
"""Further variables that the library reads."""

_SECRET = re.compile(r"secret|password|token|(^|[-_])keys?($|[-_])", re.IGNORECASE)
_PASSWORD = re.compile(r"//([^/@:]*):[^/@]*@")


class ShownSetting(NamedTuple):
    """One setting with its value for the screen, its source, and its variable."""

    name: str
    value: object
    source: str
    variable: str


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [OPTIONS]...]")
@click.pass_context
def show(context: click.Context, as_json: bool, command: tuple[str, ...]) -> None:
    """Show the settings of a command and their sources.

    Without COMMAND, those of worker. A setting comes from an option, from its environment variable, from the file that the
    variable with _FILE names, from [tool.tidemill] in pyproject.toml, from DATABASE_URL (the store), or is a default. Secrets are
    masked.
    """
    words = list(command)
    if "--json" in words:
        words.remove("--json")
        as_json = True
    settings = list(_of_command(context, words or ["worker"]))
    if "store" not in (setting.name for setting in settings):
        settings.append(_store())
    settings += _of_library()
    if as_json:
        print_json([setting._asdict() for setting in settings])
        return
    _, file = project_settings()
    print_lines([(f"pyproject.toml: {file or 'none'}", "dim")])
    columns = (
        Column("setting"),
        Column("value", flexible=True),
        Column("source", flexible=True),
        Column("variable", optional=True),
    )
    print_table(
        columns, [["" if cell is None else cell for cell in setting] for setting in settings], empty=""
    )


def _of_command(context: click.Context, words: list[str]) -> Iterator[ShownSetting]:
    """Yield the options of a command as it would run with these words."""
    root = context.find_root()
    at, path = root, list[str]()
    command: click.Command = root.command
    while isinstance(command, click.Group):
        if not words:
            raise click.UsageError(f"{' '.join(path) or 'tidemill'} is a group; name one of its commands")
        name = words.pop(0)
        inner = command.get_command(at, name)
        if inner is None:
            raise click.UsageError(f"No such command {' '.join([*path, name])!r}.")
        path.append(name)
        at = click.Context(command, info_name=name, parent=at) if isinstance(inner, click.Group) else at
        command = inner
    made = command.make_context(path[-1], words, parent=at, resilient_parsing=True)
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield _shown(made, param, tuple(path))


def _shown(made: click.Context, param: click.Option, path: tuple[str, ...]) -> ShownSetting:
    name = option_name(param)
    assert param.name is not None
    value, source = made.params.get(param.name), "default"
    if made.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
        source = f"option --{name}"
    elif (setting := found_value(path, param)) is not None:
        value, source = setting
    return ShownSetting(name, _masked(name, value), source, variable_of(path, name))


def _store() -> ShownSetting:
    """The store of an app that names none, for a command without the option."""
    setting = store_url() or ConfigValue(default_store(), "default")
    return ShownSetting("store", _masked("store", setting.value), setting.source, f"{PREFIX}STORE")


def _of_library() -> Iterator[ShownSetting]:
    for name in VARIABLES:
        setting = variable(PREFIX + name)
        key = name.lower().replace("_", "-")
        if setting is None:
            yield ShownSetting(key, None, "default", PREFIX + name)
        else:
            yield ShownSetting(key, _masked(key, setting.value), setting.source, PREFIX + name)


def _masked(name: str, value: object) -> object:
    """The value for the screen, without secrets."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET.search(name) and name not in SHARED:
        return HIDDEN
    if isinstance(value, list | tuple):
        return [_masked(name, part) for part in value]
    return _PASSWORD.sub(rf"//\1:{HIDDEN}@", str(value))
