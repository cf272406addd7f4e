"""The app argument of a command: ``APP``, ``--app`` or ``TIDEMILL_APP``."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click
from click.core import ParameterSource

APP = "tidemill.cli.app"
"""Key in ``Context.meta`` of the app that a command took as an argument."""


def accept_app(command: click.Command) -> click.Command:
    """Let a command that has ``--app`` and no arguments of its own take the app as an argument, too."""
    has_option = any(param.name == "app_name" for param in command.params)
    has_argument = any(isinstance(param, click.Argument) for param in command.params)
    if has_option and not has_argument and not isinstance(command, click.Group):
        argument = click.Argument(
            ["app"], required=False, metavar="[APP]", expose_value=False, callback=_remember
        )
        command.params.insert(0, argument)
    return command


def _remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
    context.meta[APP] = value


def app_named(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the app (``module:attribute``) to a command, from any of the three sources."""

    @click.argument("app", required=False, metavar="[APP]")
    @click.option(
        "--app",
        "named",
        envvar="TIDEMILL_APP",
        metavar="MODULE:ATTR",
        help="The same as APP; also TIDEMILL_APP.",
    )
    @functools.wraps(command)
    def called(app: str | None, named: str | None, **rest: object) -> None:
        command(app=_chosen(app, named), **rest)

    return called


def _chosen(app: str | None, named: str | None) -> str:
    context = click.get_current_context()
    typed = named if context.get_parameter_source("named") is ParameterSource.COMMANDLINE else None
    refuse_two(app, typed)
    chosen = app or named
    if not chosen:
        raise click.UsageError(
            f"Missing argument 'APP'; write {context.command_path} module:app, or set TIDEMILL_APP"
        )
    return chosen


def refuse_two(app: str | None, typed: str | None) -> None:
    """Raise an error if the argument and the option name different apps."""
    if app and typed and app != typed:
        raise click.UsageError(f"two apps were given, {app!r} and --app {typed!r}; give one")
