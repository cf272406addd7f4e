"""A hub with the duties of its store, as the command runs it."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from random import Random

from tidemill.archive.duty import RetentionThread
from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.domain.releases import CONFIRM
from tidemill.engine.app_lookup import Application
from tidemill.engine.duties import rest_duty
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.engine.embedded_worker import EmbeddedWorker
from tidemill.engine.hub.server import Hub
from tidemill.engine.runner.main import confirm, prepare
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.tasks.registry import Registry

AGAIN = timedelta(seconds=5)
"""How often the limits and schedules of the app are declared until that succeeds."""


class HubService:
    """A hub, and the duties that hands cannot perform: they need the database.

    With an app it also declares the limits and schedules of the app, archives its jobs and sends its notifications, as a worker does.
    """

    def __init__(
        self, hub: Hub, store: Store, clock: Clock, app: Application | None = None, *, duties: bool = True
    ) -> None:
        self.hub = hub
        self._store, self._clock, self._app, self._performs = store, clock, app, duties
        self._declared = False
        self._parts = ExitStack()

    def start(self) -> None:
        """Begin to serve, and to perform the duties."""
        with ExitStack() as undo:
            self.hub.start()
            undo.callback(self.hub.close)
            if self._performs:
                self._start_duties(undo)
            self._parts = undo.pop_all()

    def _start_duties(self, undo: ExitStack) -> None:
        duties = [self._worker().duties(self.hub.listener), self._own_duties()]
        for part in duties:
            part.start()
            undo.callback(part.close)
        if self._app is None:
            return
        retention, background = self._app.retention_duty(), self._app.background_thread()
        if retention is not None:
            archiver = RetentionThread(retention)
            archiver.start()
            undo.callback(archiver.close)
        if background is not None:
            self.hub.listener.subscribe(background.heard)
            background.start()
            undo.callback(background.close)

    def _worker(self) -> EmbeddedWorker:
        """A worker that is never started: it only knows the duties of a worker of this app."""
        if self._app is None:
            return EmbeddedWorker(self._store, Registry(), self._clock, WorkerSettings())
        return EmbeddedWorker(
            self._store,
            self._app.registry,
            self._clock,
            WorkerSettings(),
            events=self._app.events,
            hooks=self._app.hooks,
            retention=self._app.retention_duty(),
        )

    def _own_duties(self) -> Duties:
        """The duties of this process alone."""
        duties = [rest_duty(self._store)]
        if self._app is not None:
            duties += [Duty("declare", AGAIN, self._declare), Duty("release", CONFIRM, self._confirm)]
        return Duties(
            self._store,
            self._clock,
            new_id(),
            duties,
            coordination=Coordination.EVERYONE,
            random=Random(),  # noqa: S311  (spreads load, keeps no secret)
            listener=None,
        )

    def _declare(self) -> Done:
        if self._app is not None and not self._declared:
            self._declared = prepare(self._app)
        return Done()

    def _confirm(self) -> Done:
        if self._app is not None and self._declared:
            confirm(self._app)
        return Done()

    def close(self) -> None:
        """Stop the duties, answer what waits, and disconnect."""
        self._parts.close()
