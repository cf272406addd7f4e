"""State that all requests of one API share."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from tidemill.client.core import Client, client_of
from tidemill.client.inspection import Inspection
from tidemill.domain.access import Identity
from tidemill.errors import StoreError
from tidemill.shards.settings import ALL_SHARDS
from tidemill.web.guard import Auth, Guard, Refusal, address_of
from tidemill.web.job_loader import JobLoader
from tidemill.web.list_throttle import ListThrottle
from tidemill.web.settings import ApiSettings
from tidemill.web.shutdown import Shutdown
from tidemill.web.threads import Threads

if TYPE_CHECKING:
    from tidemill.app import App


class Service:
    """The shared components of one API. They are closed with the app, or earlier.

    ``at`` returns the service of another store of the app, with its own client, caches and change hints. Threads,
    permissions and limits are shared.
    """

    def __init__(self, app: App, settings: ApiSettings, auth: Auth) -> None:
        self.settings = settings
        self.threads = Threads(settings.threads, settings.max_waiting)
        self.stopping = Shutdown()
        self.streams_of: Counter[Identity] = Counter()
        self.openapi: dict[str, Any] = {}
        self.at_start: list[Callable[[], object]] = []  #: calls before the server accepts the first request
        self._use(app)
        self.guard = Guard(settings, auth, app.clock, self.client.tenant, app.environment)
        self._root = self
        self._others: dict[str, Service] = {}
        self.client.at_close(self.close)

    def _use(self, app: App) -> None:
        """Create the components that belong to the store which this app addresses."""
        self.app = app
        self.client: Client = client_of(app)
        self.inspection = Inspection(self.client)
        self.changes = self.inspection.changes()
        self.job_loader = JobLoader(self.inspection, self.threads)
        self.list_throttle = ListThrottle(
            self.threads, self.settings.lists, self.settings.threads + self.settings.max_waiting
        )
        self.checked: tuple[float, str | None] | None = None  #: time and error code of the last store check

    @property
    def streams(self) -> int:
        """The number of open event streams, over all stores."""
        return self.streams_of.total()

    @property
    def store_name(self) -> str:
        """The name of the store that this service reads."""
        return self.client.store_name(None)

    @property
    def has_several_stores(self) -> bool:
        """Whether the app has a choice of stores."""
        return not self.client.placement.is_single

    @property
    def is_pinned(self) -> bool:
        """Whether a request has chosen this service's store."""
        return self.client.placement.fixed is not None

    def at(self, name: str) -> Service:
        """Return the service of this store, or of all shards, or raise ``BadSettings``."""
        root = self._root
        if name == ALL_SHARDS and root.client.placement.shards is not None:
            return root
        found = root._others.get(name)
        if found is None:
            found = copy(root)
            found._use(root.app.at_store(name))
            root._others[name] = found
        return found

    async def note_refusal(self, refusal: Refusal) -> None:
        """Record in the audit log that an identity lacks a permission, at most once a minute for each act."""
        identity = refusal.identity
        if not self.guard.is_noted(identity.who, refusal.act):
            return
        with contextlib.suppress(StoreError):
            await self.threads.run(self.app.access.note_refusal, identity, refusal.act, refusal.detail)

    async def note_failed_sign_in(self, request: Request, reason: str) -> None:
        """Record a failed sign-in, at most once a minute for each address."""
        address = address_of(request)
        if self.guard.is_noted(address, "sign-in"):
            with contextlib.suppress(StoreError):
                await self.threads.run(self.app.access.note_sign_in_refused, address, reason)

    def start(self) -> None:
        """Prepare for the first request. An application that mounts this one may not announce its start."""
        for act in self.at_start:
            act()

    def stop(self) -> None:
        """End every stream, so that the server can shut down gracefully. Safe to call from a signal handler."""
        self.stopping.set()

    def close(self) -> None:
        """Stop all threads. Closing twice is harmless."""
        self.stop()
        for service in (self, *self._others.values()):
            service.changes.close()
        self.threads.close()
