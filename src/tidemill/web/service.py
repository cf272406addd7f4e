"""State that all requests of one API share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidemill.client.core import Client, client_of
from tidemill.client.inspection import Inspection
from tidemill.domain.access import Identity
from tidemill.web.guard import Auth, Guard
from tidemill.web.job_loader import JobLoader
from tidemill.web.list_throttle import ListThrottle
from tidemill.web.settings import ApiSettings
from tidemill.web.shutdown import Shutdown
from tidemill.web.threads import Threads

if TYPE_CHECKING:
    from tidemill.app import App


class Service:
    """The shared components of one API. They are closed with the app, or earlier."""

    def __init__(self, app: App, settings: ApiSettings, auth: Auth) -> None:
        self.app = app
        self.settings = settings
        self.client: Client = client_of(app)
        self.guard = Guard(settings, auth, app.clock, self.client.tenant)
        self.inspection = Inspection(self.client)
        self.threads = Threads(settings.threads, settings.max_waiting)
        self.stopping = Shutdown()
        self.changes = self.inspection.changes()
        self.job_loader = JobLoader(self.inspection, self.threads)
        self.list_throttle = ListThrottle(
            self.threads, settings.lists, settings.threads + settings.max_waiting
        )
        self.streams = 0
        self.streams_of: Counter[Identity] = Counter()
        self.checked: tuple[float, str | None] | None = None  #: time and error code of the last store check
        self.openapi: dict[str, Any] = {}
        self.client.at_close(self.close)

    def stop(self) -> None:
        """End every stream, so that the server can shut down gracefully. Safe to call from a signal handler."""
        self.stopping.set()

    def close(self) -> None:
        """Stop all threads. Closing twice is harmless."""
        self.stop()
        self.changes.close()
        self.threads.close()
