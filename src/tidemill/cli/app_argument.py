"""The app argument of a command: ``APP``, ``--app`` or ``TIDEMILL_APP``."""

from __future__ import annotations

import functools
from collections.abc import Callable

import click
from click.core import ParameterSource


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
    if app and typed and app != typed:
        raise click.UsageError(f"two apps were given, {app!r} and --app {typed!r}; give one")
    chosen = app or named
    if not chosen:
        raise click.UsageError(
            f"Missing argument 'APP'; write {context.command_path} module:app, or set TIDEMILL_APP"
        )
    return chosen
