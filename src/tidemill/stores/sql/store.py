"""The SQL store: one implementation for all dialects."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime

from tidemill.errors import StoreCorrupt
from tidemill.stores.base import Listener, SchemaStatus, Store
from tidemill.stores.lock_server import LockServer
from tidemill.stores.server import BusStatus, ServerStatus
from tidemill.stores.sql.archive import SqlArchive
from tidemill.stores.sql.archive_control import SqlArchiveControl
from tidemill.stores.sql.archive_files import SqlArchiveFiles
from tidemill.stores.sql.blobs import SqlBlobs
from tidemill.stores.sql.cluster import SqlLeases, SqlWorkers
from tidemill.stores.sql.depths import SqlDepths
from tidemill.stores.sql.driver import Driver
from tidemill.stores.sql.failures import SqlFailures
from tidemill.stores.sql.flow_archive import SqlFlowArchive
from tidemill.stores.sql.flows import SqlFlows
from tidemill.stores.sql.job_events import SqlAlerts
from tidemill.stores.sql.job_queries import SqlQueries
from tidemill.stores.sql.keys import SqlKeys
from tidemill.stores.sql.lifecycle import SqlLifecycle
from tidemill.stores.sql.limits import SqlLimits
from tidemill.stores.sql.occurrences import SqlOccurrences
from tidemill.stores.sql.placements import SqlPlacements
from tidemill.stores.sql.records import SqlRecords
from tidemill.stores.sql.rollups import SqlRollups
from tidemill.stores.sql.schedules import SqlDefinitions, SqlReleases, SqlSchedules
from tidemill.stores.sql.seals import SqlSeals
from tidemill.stores.sql.sessions import SqlSessions
from tidemill.stores.sql.settings import SqlSettings
from tidemill.stores.sql.signals import SqlSignals
from tidemill.stores.sql.stats import SqlStats
from tidemill.stores.sql.steps import SqlSteps
from tidemill.stores.sql.streams import SqlStreams
from tidemill.stores.sql.tasks import SqlTasks
from tidemill.stores.sql.transfers import SqlTransfers
from tidemill.stores.step_pipeline import StepPipeline


class SqlStore(
    SqlLifecycle,
    SqlFlows,
    SqlFlowArchive,
    SqlQueries,
    SqlRecords,
    SqlWorkers,
    SqlLeases,
    SqlSettings,
    SqlArchive,
    SqlArchiveFiles,
    SqlArchiveControl,
    SqlDefinitions,
    SqlSchedules,
    SqlLimits,
    SqlStats,
    SqlRollups,
    SqlDepths,
    SqlFailures,
    SqlKeys,
    SqlSeals,
    SqlSessions,
    SqlReleases,
    SqlTasks,
    SqlBlobs,
    SqlSteps,
    SqlStreams,
    SqlSignals,
    SqlAlerts,
    SqlOccurrences,
    SqlPlacements,
    SqlTransfers,
    Store,
):
    """A store in a relational database."""

    _installation: tuple[str, str] | None = None

    def __init__(self, driver: Driver) -> None:
        self._db = driver
        self.url = driver.url

    @property
    def cooperative(self) -> bool:
        return self._db.cooperative

    def steps_ahead(self) -> StepPipeline | None:
        return None

    def schema(self) -> SchemaStatus:
        return self._db.schema()

    def migrate(self) -> list[str]:
        return self._db.migrate()

    def check(self) -> None:
        self._db.check()

    def transaction(self) -> AbstractContextManager[None]:
        return self._db.transaction()

    def notify(self, topics: Iterable[str]) -> None:
        self._db.notify(topics)

    def notify_later(self, topics: Iterable[str]) -> None:
        """Wake listeners a moment later, for a transaction whose commit this store does not see."""
        self._db.notify_later(topics)

    def listen(self) -> Listener:
        return self._db.listen()

    def installation(self) -> str:
        """The id that these tables got when they were created; only copies share it."""
        return self.whereabouts()[0]

    def whereabouts(self, *, again: bool = False) -> tuple[str, str]:
        """The installation id, and its database or file; cached, unless ``again`` is set."""
        if self._installation is None or again:
            rows = self._db.run("installation")
            if not rows:
                raise StoreCorrupt(
                    f"{self.url} has lost its installation id (meta, key 'installation'); restore it from a backup"
                )
            self._installation = (rows[0][0], rows[0][1])
        return self._installation

    def now(self) -> datetime:
        return self._time(None)

    def server(self) -> ServerStatus | None:
        return self._db.server()

    def locks(self) -> LockServer | None:
        return self._db.locks()

    def bus(self) -> BusStatus | None:
        return self._db.bus()

    def rest(self) -> None:
        self._db.rest()

    def close(self) -> None:
        self._db.close()
