"""State that all requests of one API share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidemill.client.core import client_of
from tidemill.client.watch import Changes
from tidemill.domain.access import Identity
from tidemill.rest.guard import Guard
from tidemill.rest.job_loader import JobLoader
from tidemill.rest.list_throttle import ListThrottle
from tidemill.rest.settings import ApiSettings
from tidemill.rest.shutdown import Shutdown
from tidemill.rest.threads import Threads

if TYPE_CHECKING:
    from tidemill.app import App


class Service:
    """The shared components of one API. They are closed with the app, or earlier."""

    def __init__(self, app: App, settings: ApiSettings) -> None:
        self.app = app
        self.settings = settings
        self.threads = Threads(settings.threads, settings.max_waiting)
        self.stopping = Shutdown()
        self.changes = Changes(app.store)
        self.looking = JobLoader(self)
        self.asking = ListThrottle(self.threads, settings.lists, settings.threads + settings.max_waiting)
        self.streams = 0
        self.streams_of: Counter[Identity] = Counter()
        self.checked: tuple[float, str | None] | None = None  #: time and error code of the last store check
        self.guard: Guard
        self.openapi: dict[str, Any] = {}
        client_of(app).at_close(self.close)

    def stop(self) -> None:
        """End every stream, so that the server can shut down gracefully. Safe to call from a signal handler."""
        self.stopping.set()

    def close(self) -> None:
        """Stop all threads. Closing twice is harmless."""
        self.stop()
        self.changes.close()
        self.threads.close()
