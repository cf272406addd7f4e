"""Shell completion of names that the app declares."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from tidemill.configuration import value_of


def task_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the app's tasks."""
    return _matching([task.name for task in _declared(context)], incomplete)


def queue_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the queues that the app's tasks use."""
    return _matching({task.options.queue for task in _declared(context)}, incomplete)


def schedule_keys(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the keys of the schedules in the app's store."""
    # A store that does not answer must not print into the command line that the user is typing.
    with suppress(Exception):
        app = _app(context)
        if app is not None:
            return _matching([schedule.key for schedule in app.schedules.list()], incomplete)
    return []


def _matching(names: Any, incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _declared(context: click.Context) -> list[Any]:
    """Return the tasks of the app; none if it cannot be imported."""
    # An app that fails to import must not print a traceback into the command line that the user is typing.
    with suppress(Exception):
        app = _app(context)
        if app is not None:
            return list(app.registry)
    return []


def _app(context: click.Context) -> Any:
    """Return the app given before the cursor or by TIDEMILL_APP; None if neither names one."""
    where = context.params.get("app_name") or value_of("TIDEMILL_APP")
    if not where:
        return None
    from tidemill.engine.app_lookup import find_app

    return find_app(where)
