"""Flask integration: extension, application context around jobs, commands and dashboard."""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click
from flask import Flask, Response, current_app, has_app_context, request
from flask.cli import ScriptInfo, pass_script_info

from tidemill.app import App
from tidemill.app_settings import AppKeywords
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.schedules.schedule import ScheduleKeywords
from tidemill.decorators import TaskDeclarer
from tidemill.domain.access import Identity
from tidemill.domain.job import JobRow
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSettings, UsageError
from tidemill.stores.base import Store
from tidemill.task_group import TaskGroup
from tidemill.tasks.options import TaskKeywords

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from tidemill.web.settings import ApiSettings

__all__ = ["Tidemill", "load_app"]

KEY = "tidemill"
"""The key of the app in ``flask_app.extensions``."""

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


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

    def mount(
        self,
        flask_app: Flask,
        path: str = "/jobs",
        *,
        auth: Callable[[], Identity | None] | None = None,
        settings: ApiSettings | None = None,
    ) -> None:
        """Serve the dashboard and the HTTP API inside a Flask application: pages at ``/jobs``, the API at ``/jobs/api``.

        ``auth`` identifies the user of the current request (``tidemill.Identity``, or None if unknown), for a site with
        its own sign-in. Without it, users sign in with an API key. Needs the extra ``server``.
        """
        app: App | None = flask_app.extensions.get(KEY)
        if app is None:
            raise UsageError(
                f"Flask application {flask_app.name!r} has no Tidemill app; call init_app before mount"
            )
        if not path.startswith("/") or path.endswith("/"):
            raise BadSettings(f"path is {path!r}; begin it with a slash, and end it without", setting="path")
        dashboard = _Dashboard(flask_app, app, path, auth, settings)
        for rule in (f"{path}/", f"{path}/<path:rest>"):
            flask_app.add_url_rule(
                rule, "tidemill", dashboard, methods=_METHODS, provide_automatic_options=False
            )

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


class _Dashboard:
    """The view of the dashboard. Its site is created by the first request, in the process that serves it."""

    def __init__(
        self,
        flask_app: Flask,
        app: App,
        path: str,
        auth: Callable[[], Identity | None] | None,
        settings: ApiSettings | None,
    ) -> None:
        from tidemill.loop_thread import LoopThread

        self._flask_app, self._app, self._path, self._auth = flask_app, app, path, auth
        self._settings = settings
        self._thread, self._lock = LoopThread(), threading.Lock()
        self._site: Starlette | None = None

    def __call__(self, rest: str = "") -> Response:
        from tidemill.web.bridge import SAFE_METHODS, ask, is_same_site, request_scope

        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.method not in SAFE_METHODS and not is_same_site(headers, request.host):
            return Response("this request was sent from another site", 403)
        scope = request_scope(
            method=request.method,
            scheme=request.scheme,
            path=request.root_path + request.path,
            root_path=request.root_path + self._path,
            query=request.query_string.decode("latin-1"),
            headers=headers,
            client=request.remote_addr,
            host=request.host,
            identity=None if self._auth is None else self._auth(),
        )
        answer = ask(self._thread, self._made(), scope, request.get_data())
        if answer.is_stream:
            # A stream would occupy a thread of the server for as long as the page is open. 204 ends it permanently.
            answer.leave()
            return Response(status=204)
        response = Response(answer.parts(), answer.status)
        response.headers.clear()
        response.headers.extend(answer.headers)
        return response

    def _made(self) -> Starlette:
        from tidemill.dashboard import create_site
        from tidemill.web.bridge import bridged_identity
        from tidemill.web.settings import ApiSettings

        with self._lock:
            if self._site is None:
                settings = self._settings or ApiSettings()
                if (key := self._flask_app.secret_key) and settings.session_secret is None:
                    # Every process of a server must accept the forms of the others.
                    secret = hmac.new(_bytes(key), b"tidemill dashboard", hashlib.sha256).hexdigest()
                    settings = replace(settings, session_secret=secret)
                auth = None if self._auth is None else bridged_identity
                self._site = create_site(self._app, auth=auth, settings=settings)
            return self._site


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


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
