"""Flask integration: extension, application context around jobs, and commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import click
from flask import Flask, current_app, has_app_context
from flask.cli import ScriptInfo, pass_script_info

from tidemill.app import App
from tidemill.app_settings import AppKeywords
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.schedules.schedule import ScheduleKeywords
from tidemill.decorators import TaskDeclarer
from tidemill.domain.job import JobRow
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSettings, UsageError
from tidemill.stores.base import Store
from tidemill.task_group import TaskGroup
from tidemill.tasks.options import TaskKeywords

__all__ = ["Tidemill", "load_app"]

KEY = "tidemill"
"""The key of the app in ``flask_app.extensions``."""


class Tidemill(TaskDeclarer):
    """The extension: ``jobs = Tidemill(flask_app)``, or ``jobs = Tidemill()`` and ``jobs.init_app(flask_app)``.

    Tasks of ``@jobs.task`` belong to every Flask application that the extension is initialised with. ``TIDEMILL_STORE``
    in the configuration names the store, and other keys with this prefix are further settings of the app; ``settings``
    are their defaults. Jobs run inside the application context.
    """

    def __init__(
        self,
        flask_app: Flask | None = None,
        store: str | Store | None = None,
        **settings: Unpack[AppKeywords],
    ) -> None:
        self._store, self._settings = store, settings
        self._group = TaskGroup()
        self._group.choose_by(_current)
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask) -> App:
        """Give a Flask application an app with the tasks of this extension."""
        if KEY in flask_app.extensions:
            raise UsageError(f"Flask application {flask_app.name!r} has a Tidemill app already")
        config = flask_app.config.get_namespace("TIDEMILL_")
        unknown = sorted(config.keys() - AppKeywords.__annotations__.keys() - {"store", "tenant"})
        if unknown:
            raise BadSettings(
                f"unknown setting TIDEMILL_{unknown[0].upper()} in the configuration of {flask_app.name!r}",
                setting=unknown[0],
            )
        settings: Any = {"name": flask_app.import_name, **self._settings, **config}
        app = App(settings.pop("store", None) or self._store, **settings)
        app.around(execute=_ApplicationContext(flask_app))
        app.include(self._group)
        flask_app.extensions[KEY] = app
        flask_app.cli.add_command(_command)
        return app

    @property
    def app(self) -> App:
        """The app of the current Flask application."""
        app = _current()
        if app is None:
            raise UsageError(
                "there is no application context with a Tidemill app; use: with flask_app.app_context()"
            )
        return app

    def include(self, *sources: Any) -> None:
        """Add task groups, tasks or modules, as ``App.include`` does, to the application of the current context."""
        self.app.include(*sources)

    def _declare(self, target: Any, options: TaskKeywords) -> BoundTask[Any, Any]:
        return self._group._declare(target, options)

    def schedule(
        self,
        task: BoundTask[Any, Any, Any] | str,
        trigger: Trigger | str,
        key: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> None:
        """Declare a schedule: ``jobs.schedule(cleanup, Daily("02:00"))``."""
        self._group.schedule(task, trigger, key, **options)


class _ApplicationContext:
    """Enters the context of a Flask application around every execution."""

    def __init__(self, flask_app: Flask) -> None:
        self._flask_app = flask_app

    def __call__(self, _: JobRow) -> Any:
        return self._entered()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._flask_app.app_context():
            yield


def _current() -> App | None:
    app: App | None = current_app.extensions.get(KEY) if has_app_context() else None
    return app


def load_app() -> App:
    """Return the app of the Flask application that ``FLASK_APP`` names, for the processes of a worker."""
    flask_app = ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
    app = flask_app.extensions.get(KEY)
    if app is None:
        raise UsageError(
            f"Flask application {flask_app.name!r} has no Tidemill app; call Tidemill().init_app(…)"
        )
    return app  # type: ignore[no-any-return]


@click.command(
    KEY,
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    },
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@pass_script_info
def _command(info: ScriptInfo, words: tuple[str, ...]) -> None:
    """Run a tidemill command with the app of this application, such as "flask tidemill worker"."""
    from tidemill.cli import commands

    if info.app_import_path:
        os.environ["FLASK_APP"] = str(info.app_import_path)
    elif not os.environ.get("FLASK_APP"):
        # Flask looks for these files itself, in this order.
        os.environ["FLASK_APP"] = next((name for name in ("wsgi.py", "app.py") if Path(name).is_file()), "")
    os.environ["TIDEMILL_APP"] = "tidemill.contrib.flask:load_app"
    sys.exit(commands.main(args=list(words), prog_name="flask tidemill", standalone_mode=True))
