"""Shell completion of names that the app declares."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import click


def task_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the app's tasks."""
    return _matching([task.name for task in _declared(context)], incomplete)


def queue_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the queues that the app's tasks use."""
    return _matching({task.options.queue for task in _declared(context)}, incomplete)


def _matching(names: Any, incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _declared(context: click.Context) -> list[Any]:
    """Return the tasks of the app given before the cursor or by TIDEMILL_APP; none if it cannot be imported."""
    where = context.params.get("app_name") or os.environ.get("TIDEMILL_APP")
    # An app that fails to import must not print a traceback into the command line that the user is typing.
    with suppress(Exception):
        if where:
            from tidemill.engine.app_lookup import find_app

            app: Any = find_app(where)
            return list(app.registry)
    return []
