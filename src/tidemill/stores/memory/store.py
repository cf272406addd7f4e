"""The memory store, composed of its parts.

It is the reference for the other stores, so it must stay simple enough that its correctness is obvious.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from tidemill.clock import Clock
from tidemill.stores.base import Listener, SchemaStatus, Store
from tidemill.stores.memory.archive import MemoryArchive
from tidemill.stores.memory.archive_control import MemoryArchiveControl
from tidemill.stores.memory.archive_files import MemoryArchiveFiles
from tidemill.stores.memory.blobs import MemoryBlobs
from tidemill.stores.memory.cluster import MemoryLeases, MemoryWorkers
from tidemill.stores.memory.depths import MemoryDepths
from tidemill.stores.memory.failures import MemoryFailures
from tidemill.stores.memory.flow_archive import MemoryFlowArchive
from tidemill.stores.memory.flows import MemoryFlows
from tidemill.stores.memory.job_events import MemoryAlerts
from tidemill.stores.memory.job_queries import MemoryQueries
from tidemill.stores.memory.keys import MemoryKeys
from tidemill.stores.memory.lifecycle import MemoryLifecycle
from tidemill.stores.memory.limits import MemoryLimits
from tidemill.stores.memory.occurrences import MemoryOccurrences
from tidemill.stores.memory.placements import MemoryPlacements
from tidemill.stores.memory.records import MemoryRecords, MemorySettings
from tidemill.stores.memory.rollups import MemoryRollups
from tidemill.stores.memory.schedules import MemoryDefinitions, MemoryReleases, MemorySchedules
from tidemill.stores.memory.seals import MemorySeals
from tidemill.stores.memory.sessions import MemorySessions
from tidemill.stores.memory.signals import MemorySignals
from tidemill.stores.memory.stats import MemoryStats
from tidemill.stores.memory.steps import MemorySteps
from tidemill.stores.memory.streams import MemoryStreams
from tidemill.stores.memory.tasks import MemoryTasks
from tidemill.stores.memory.transfers import MemoryTransfers
from tidemill.stores.server import ServerStatus
from tidemill.stores.step_pipeline import StepPipeline

_VERSION = 1


class MemoryStore(
    MemoryLifecycle,
    MemoryFlows,
    MemoryFlowArchive,
    MemoryQueries,
    MemoryRecords,
    MemoryWorkers,
    MemoryLeases,
    MemorySettings,
    MemoryArchive,
    MemoryArchiveFiles,
    MemoryArchiveControl,
    MemoryDefinitions,
    MemorySchedules,
    MemoryLimits,
    MemoryStats,
    MemoryRollups,
    MemoryDepths,
    MemoryFailures,
    MemoryKeys,
    MemorySeals,
    MemorySessions,
    MemoryReleases,
    MemoryTasks,
    MemoryBlobs,
    MemorySteps,
    MemoryStreams,
    MemorySignals,
    MemoryAlerts,
    MemoryOccurrences,
    MemoryPlacements,
    MemoryTransfers,
    Store,
):
    """A store that exists only within its process.

    >>> store = MemoryStore()
    >>> store.lanes()
    []
    >>> store.close()
    """

    def __init__(self, clock: Clock | None = None, url: str = "memory://") -> None:
        super().__init__(clock)
        self.url = url

    def steps_ahead(self) -> StepPipeline | None:
        return None

    def schema(self) -> SchemaStatus:
        with self._open():
            return SchemaStatus(_VERSION, _VERSION, (), _VERSION)

    def migrate(self) -> list[str]:
        with self._open():
            return []

    def check(self) -> None:
        with self._open():
            pass

    def now(self) -> datetime:
        with self._open():
            return self._at(None)

    def notify(self, topics: Iterable[str]) -> None:
        self._refuse_closed()  # without the lock, so that a caller never waits for another thread's transaction
        self._bell.ring(topics)

    def listen(self) -> Listener:
        with self._open():
            return self._bell.listen()

    def rest(self) -> None:
        pass

    def server(self) -> ServerStatus | None:
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._locks.drop_all()
            self._bell.close()
