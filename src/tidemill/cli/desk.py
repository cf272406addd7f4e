"""The operator's desk: where a command finds the store, the jobs and the tasks it was asked about.

``--app module:attr`` brings an app's stores and tasks, ``--store URL`` a store alone. Nothing is opened before it is used, and
all of it is closed when the command ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

import click

from tidemill.cli.screen import clean
from tidemill.client.acting import acting, os_user
from tidemill.client.control import Control
from tidemill.client.core import Client
from tidemill.client.jobs import Jobs
from tidemill.client.limits import Limits
from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.payload import PayloadLimits
from tidemill.errors import BadSettings
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.tasks.registry import Registry

P = ParamSpec("P")


class Desk:
    """One command's view of an app or a store."""

    def __init__(self, app: str | None, url: str | None, *, as_json: bool) -> None:
        self.app, self.url, self.as_json = app, url, as_json
        self._app: Any = None
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """Stores and tasks; found with the first question."""
        if self._client is None:
            self._client = self._found()
        return self._client

    def _found(self) -> Client:
        if self.app:
            from tidemill.engine.locate import find_app

            self._app = find_app(self.app)
            client: Client = self._app._client
            return client
        stores = {"default": open_store(self.url or "")}
        return Client(stores, clock=SystemClock(), tenant=DEFAULT_TENANT, limits=PayloadLimits())

    @property
    def application(self) -> Any:
        """The app itself; only where one was named."""
        assert self.client is not None
        return self._app

    @property
    def opened(self) -> bool:
        """Whether the stores and tasks were found."""
        return self._client is not None

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.client)

    @property
    def control(self) -> Control:
        return Control(self.client)

    @property
    def limits(self) -> Limits:
        return Limits(self.client)

    @property
    def store(self) -> Store:
        return self.client.store(None)

    @property
    def registry(self) -> Registry:
        return self.client.registry

    def now(self) -> datetime:
        """The store's own time, so that ages are right whatever this machine's clock says."""
        return self.store.now()

    def need_app(self, what: str) -> None:
        """Refuse what only an app's declarations can answer."""
        if not self.app:
            raise BadSettings(f"{what} needs the tasks: give --app module:attr, or set TIDEMILL_APP")

    def __enter__(self) -> Self:
        if not self.app and not self.url:
            raise BadSettings(
                "Missing option '--store' or '--app': say which store is meant, or set TIDEMILL_STORE or TIDEMILL_APP"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()


def at_desk(command: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Give a command its desk, and the options every command has: ``--app``, ``--store`` and ``--json``."""

    @click.option(
        "--app",
        "app_name",
        metavar="MODULE:ATTR",
        envvar="TIDEMILL_APP",
        help="The app whose stores and tasks are meant; also TIDEMILL_APP.",
    )
    @click.option(
        "--store",
        "url",
        metavar="URL",
        envvar="TIDEMILL_STORE",
        help="sqlite:///jobs.db or postgresql://user@host/database, where no app is given; also TIDEMILL_STORE.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def called(
        app_name: str | None, url: str | None, as_json: bool, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        with Desk(app_name, url, as_json=as_json) as desk, acting(f"cli:{os_user()}"):
            command(desk, *args, **kwargs)

    return called


def ask_first(question: str) -> None:
    """Go on only if a person says yes; where nobody can be asked, say how to do it unasked."""
    try:
        agreed = click.confirm(clean(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise BadSettings("there is nobody here to ask; give --yes where you are sure") from None
    if not agreed:
        raise click.Abort


def tenant_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--tenant``: all of them unless one is named."""
    return click.option(
        "--tenant",
        metavar="NAME",
        default=ALL_TENANTS,
        show_default="all tenants",
        help="Only this tenant's.",
    )(command)


def own_tenant_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--tenant``, where a key is one tenant's: the app's own unless one is named."""
    return click.option("--tenant", metavar="NAME", show_default="the app's own", help="Whose it is.")(
        command
    )
