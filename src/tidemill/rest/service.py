"""What all requests of one API share: the app, the settings, the threads, the streams and the word to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill.client.changes import Changes
from tidemill.rest.asking import Asking
from tidemill.rest.guard import Guard
from tidemill.rest.looking import Looking
from tidemill.rest.settings import ApiSettings
from tidemill.rest.stopping import Stopping
from tidemill.rest.threads import Threads

if TYPE_CHECKING:
    from tidemill.app import App


class Service:
    """The parts behind the doors. Closed with the app, or earlier."""

    def __init__(self, app: App, settings: ApiSettings) -> None:
        self.app = app
        self.settings = settings
        self.threads = Threads(settings.threads, settings.max_waiting)
        self.stopping = Stopping()
        self.changes = Changes(app.store)
        self.looking = Looking(self)
        self.asking = Asking(self.threads, settings.lists, settings.threads + settings.max_waiting)
        self.streams = 0
        self.checked: tuple[float, str | None] | None = (
            None  #: when the store was last looked at, and what was wrong
        )
        self.guard: Guard
        self.openapi: dict[str, Any] = {}
        app._client.at_close(self.close)

    def stop(self) -> None:
        """End every stream, so that a server can stop in good order; may be called from a signal's handler."""
        self.stopping.set()

    def close(self) -> None:
        """Let go of every thread; closing twice is harmless."""
        self.stop()
        self.changes.close()
        self.threads.close()
