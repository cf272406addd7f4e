"""Context of a command: the app or store that it works on.

``--app module:attr`` specifies an app with its stores and tasks, ``--store URL`` a store alone. Both are opened on
first use and closed when the command ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self
from uuid import UUID

import click
from click.core import ParameterSource

from tidemill.cli.app_argument import APP, refuse_two
from tidemill.cli.completion import tenant_names
from tidemill.cli.screen import clean
from tidemill.cli.short_ids import by_short_id
from tidemill.cli.suggestions import suggesting
from tidemill.client.access import acting, os_user
from tidemill.client.archive import Archive
from tidemill.client.control import Control
from tidemill.client.core import Client, client_of
from tidemill.client.error_groups import ErrorGroups
from tidemill.client.jobs.api import Jobs, resolve
from tidemill.client.limits import Limits
from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS, MAX_PAGE
from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.payload import PayloadLimits
from tidemill.errors import BadSettings, JobNotFound
from tidemill.shards.absence import noting_missing
from tidemill.shards.settings import ALL_SHARDS
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.tasks.registry import Registry

P = ParamSpec("P")


def opened_app(where: str) -> Any:
    """Import the app at ``module:attribute``; warn if ``TIDEMILL_STORE`` names a store it does not use."""
    from tidemill.engine.app_lookup import find_app, unused_store

    path = find_app(where)
    if warning := unused_store(path, where):
        click.echo(f"tidemill: {warning}", err=True)
    return path


def chosen(app: str | None, url: str | None) -> tuple[str | None, str | None]:
    """Return the app and the store to use. Options override environment variables; passing both options is an error."""
    context = click.get_current_context()
    typed = {
        name: context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name in ("app_name", "url")
    }
    argument: str | None = context.meta.get(APP)
    if argument:
        refuse_two(argument, app if typed["app_name"] else None)
        app, typed["app_name"] = argument, True
    # ``doctor`` can check both.
    if app and url and typed["url"] and context.info_name != "doctor":
        if typed["app_name"]:
            raise BadSettings("give --app or --store, not both: an app names its own store")
        return None, url
    return app, url


class CommandContext:
    """The app or store that one command uses."""

    def __init__(
        self, app: str | None, url: str | None, *, as_json: bool, store_name: str | None = None
    ) -> None:
        self.app, self.url, self.as_json, self.store_name = app, url, as_json, store_name
        self._app: Any = None
        self._client: Client | None = None
        self._root: Client | None = None  # owns the stores

    @property
    def client(self) -> Client:
        """The client, created on first use."""
        if self._client is None:
            self._root = self._found()
            if self.store_name is None:
                self._client = self._root
            else:
                self._address(self.store_name)
        assert self._client is not None
        return self._client

    @property
    def app_client(self) -> Client:
        """The client of the whole app, whatever ``--store-name`` says; for API keys, which belong to no store."""
        assert self.client is not None
        assert self._root is not None
        return self._root

    def each_store(self, *, archives: bool = False) -> list[tuple[str | None, CommandContext]]:
        """Return this context for each store of the app, with its name; one without a name if there is no choice."""
        placement = self.client.placement
        if placement.is_single or self.store_name is not None:
            return [(self.store_name, self)]
        names = list(placement.nearest(placement.default))
        if archives:
            names += [name for name in self.client.stores if name not in names]
        return [(name, self._at(name)) for name in names]

    def _at(self, name: str) -> CommandContext:
        other = copy(self)
        other._address(name)
        return other

    def _address(self, name: str) -> None:
        self.store_name, self._app = name, self._app.at_store(name)
        self._client = client_of(self._app)

    def find(self, id: str) -> tuple[UUID, str]:
        """Return the id of the job with this id, or unique prefix or suffix of an id, and the name of its store."""
        client = self.app_client if self.store_name is None else self.client
        names = client.search_order()
        missing: JobNotFound | None = None
        for name in names:
            try:
                found = resolve(client.store(name), id, tenant=ALL_TENANTS)
                if len(names) == 1 or client.store(name).get([found], tenant=ALL_TENANTS):
                    return found, name
            except JobNotFound as error:
                missing = missing or error
        if missing is not None:
            copy = _archived(client, id)
            if copy is None:
                raise missing
            row, name = client.find(copy, tenant=ALL_TENANTS, store=None)
            return row.id, name
        # A full id that no live table has: the archive may have it.
        row, name = client.find(UUID(id), tenant=ALL_TENANTS, store=None)
        return row.id, name

    def move_to(self, name: str) -> None:
        """Continue with this store of the app, in which a job was found."""
        if name != self.client.store_name(None):
            self._client = self.app_client.at(name)

    @property
    def job_store(self) -> str | None:
        """The name of the store that this context addresses, if the app has several."""
        name = None if self.client.placement.is_single else self.client.store_name(None)
        return None if name == ALL_SHARDS else name

    def _found(self) -> Client:
        if self.app:
            self._app = opened_app(self.app)
            return client_of(self._app)
        stores = {"default": open_store(self.url or "")}
        return Client(stores, clock=SystemClock(), tenant=DEFAULT_TENANT, limits=PayloadLimits())

    @property
    def application(self) -> Any:
        """The app itself, if ``--app`` was given."""
        assert self.client is not None
        return self._app

    @property
    def opened(self) -> bool:
        """Whether the client was created."""
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
    def errors(self) -> ErrorGroups:
        return ErrorGroups(self.client, self.jobs)

    @property
    def store(self) -> Store:
        return self.client.store(None)

    @property
    def registry(self) -> Registry:
        return self.client.registry

    def now(self) -> datetime:
        """Return the store's time, so that ages are correct even if this machine's clock is wrong."""
        return self.store.now()

    def need_app(self, what: str) -> None:
        """Raise an error if the command needs the tasks of an app and has only a store."""
        if not self.app:
            raise BadSettings(f"{what} needs the tasks of an app; pass --app module:app, or set TIDEMILL_APP")

    def __enter__(self) -> Self:
        if not self.app and not self.url:
            raise BadSettings(
                "Missing option '--app' or '--store'; pass --app module:app, or set TIDEMILL_APP or TIDEMILL_STORE"
            )
        if self.store_name is not None and not self.app:
            raise BadSettings("--store-name chooses a store of an app; pass --app module:app, not --store")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._root is not None:
            self._root.close()


def _archived(client: Client, text: str) -> UUID | None:
    """Return the id of the only archived job whose id begins or ends like this, among the newest ``MAX_PAGE``."""
    page = Archive(client, Jobs(client)).search(limit=MAX_PAGE, tenant=ALL_TENANTS)
    job = by_short_id(text, page.items, lambda job: job.id, "archived jobs")
    return None if job is None else job.id


def with_context(command: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Pass a ``CommandContext`` to a command, and add the common options."""

    @click.option(
        "--app",
        "app_name",
        metavar="MODULE:ATTR",
        envvar="TIDEMILL_APP",
        help="App with the stores and tasks; also TIDEMILL_APP.",
    )
    @click.option(
        "--store",
        "url",
        metavar="URL",
        envvar="TIDEMILL_STORE",
        help="Store without an app, such as sqlite:///jobs.db; also TIDEMILL_STORE.",
    )
    @click.option(
        "--store-name",
        metavar="NAME",
        envvar="TIDEMILL_STORE_NAME",
        help="One of the app's stores, by its name; also TIDEMILL_STORE_NAME.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def called(
        app_name: str | None,
        url: str | None,
        store_name: str | None,
        as_json: bool,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        if click.get_current_context().invoked_subcommand is not None:
            return  # the subcommand of a group has options of its own
        app_name, url = chosen(app_name, url)
        opened = CommandContext(app_name, url, as_json=as_json, store_name=store_name)
        with (
            noting_missing() as missing,
            opened as context,
            suggesting(context),
            acting(f"cli:{os_user()}"),
        ):
            command(context, *args, **kwargs)
        if missing:
            names = ", ".join(sorted(missing))
            click.echo(f"tidemill: without an answer, and missing above: {names}", err=True)

    return called


def ask_first(question: str) -> None:
    """Ask for confirmation. Without a terminal, raise an error that mentions ``--yes``."""
    try:
        agreed = click.confirm(clean(question), err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise BadSettings("stdin is not a terminal; pass --yes to confirm") from None
    if not agreed:
        raise click.Abort


def tenant_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--tenant`` with a default of all tenants."""
    return click.option(
        "--tenant",
        metavar="NAME",
        default=ALL_TENANTS,
        show_default="all tenants",
        shell_complete=tenant_names,
        help="Tenant.",
    )(command)


def own_tenant_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--tenant`` with the app's own tenant as the default, for keys that are unique per tenant."""
    return click.option(
        "--tenant", metavar="NAME", show_default="the app's own", shell_complete=tenant_names, help="Tenant."
    )(command)
