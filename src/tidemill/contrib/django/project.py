"""The app of a Django project, configured from ``settings.TIDEMILL``."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from tidemill.app import App
from tidemill.app_settings import AppKeywords
from tidemill.client.core import client_of
from tidemill.contrib.django.connection_care import ConnectionCare
from tidemill.contrib.django.databases import store_url
from tidemill.contrib.django.tenants import JobScope, load_scopes
from tidemill.errors import TidemillError

_OWN = ("database", "store", "tenant", "tenants")
_SETTINGS = (*_OWN, *(name for name in AppKeywords.__annotations__ if name != "migrate"))


class ProjectApp:
    """The one app of this process. Its store follows the database of the project, which test runners change."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._app: App | None = None
        self._url: str | None = None
        self._pinned = False

    @property
    def app(self) -> App:
        """The app, which may not have its store yet."""
        with self._lock:
            if self._app is None:
                self._app = App("memory://")
                self._app.around(execute=ConnectionCare)
                if (path := getattr(settings, "TIDEMILL", {}).get("tenants")) is not None:
                    scopes = load_scopes(path)
                    client_of(self._app).tenant_source = scopes.current
                    self._app.around(execute=partial(JobScope, scopes))
            return self._app

    def synced(self) -> App:
        """Return the app with the store of the database as it is configured now."""
        with self._lock:
            app, given = self.app, project_settings()
            if self._pinned:
                return app
            url = str(given.get("store") or store_url(alias_of(given)))
            if url != self._url:
                client = client_of(app)
                client.end_services()
                rest: Any = {
                    name: value
                    for name, value in given.items()
                    if name not in ("database", "store", "tenants")
                }
                rest.setdefault("name", settings.SETTINGS_MODULE)
                try:
                    app.configure(url, **rest)
                except TidemillError as error:
                    raise ImproperlyConfigured(f"TIDEMILL: {error}") from error
                client.open_transaction = open_transaction if "store" not in given else None
                self._url = url
            return app

    def release(self) -> None:
        """Close the connections of the store; the next use opens them again."""
        with self._lock:
            if self._url is not None and not self._pinned:
                client = client_of(self.app)
                client.end_services()
                self.app.configure("memory://")
                self._url = None

    def reopen(self) -> None:
        """Open the store again after a command has closed the app."""
        with self._lock:
            self._url = None
            self.synced()

    def pin(self, *, pinned: bool) -> None:
        """Keep the current store, which a test has chosen, whatever the database is."""
        self._pinned = pinned


PROJECT = ProjectApp()


def project_settings() -> dict[str, Any]:
    """Return ``settings.TIDEMILL``; raise an error for an unknown name."""
    given = dict(getattr(settings, "TIDEMILL", {}))
    for name in given:
        if name not in _SETTINGS:
            raise ImproperlyConfigured(
                f"unknown setting TIDEMILL[{name!r}]; expected one of {', '.join(_SETTINGS)}"
            )
    if "store" in given and "database" in given:
        raise ImproperlyConfigured("TIDEMILL has both 'database' and 'store'; give one")
    return given


def alias_of(given: dict[str, Any]) -> str:
    """Return the alias of the database with the jobs."""
    return str(given.get("database", "default"))


def open_transaction() -> str | None:
    """Return the alias of the database with the jobs if ``atomic()`` is open on it in this thread."""
    alias = alias_of(project_settings())
    return alias if connections[alias].in_atomic_block else None


def loaded_app() -> App:
    """Return the app of the project; load the project first, in a program that has not called ``django.setup()``."""
    if not apps.ready:
        if apps.loading:
            # A module of the project imports the app while Django loads it. The store is not needed yet.
            return PROJECT.app
        django.setup()
    return PROJECT.synced()
