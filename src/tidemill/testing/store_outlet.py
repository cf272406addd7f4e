"""An outlet that writes a tested job's output to the store immediately."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock, ManualClock
from tidemill.domain.job import NO_DETAILS, Checkpoint, Claim, Details, LogEntry, Progress, ProgressReport
from tidemill.domain.large_values import SpilledText
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.record import Record
from tidemill.domain.signals import SignalFence
from tidemill.domain.streams import StreamEntry, topic_of
from tidemill.engine.completion import Connections, Unwritten
from tidemill.engine.job_ends import GroupEnds, JobEnd, group_ends, job_ends, stop_group
from tidemill.engine.lifespan import Lifetime
from tidemill.engine.signal_links import signal_url
from tidemill.engine.signal_waits import found_event
from tidemill.engine.suspension import records_of
from tidemill.errors import Cancel
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value, store_value
from tidemill.tasks.task import Declared
from tidemill.testing.kill_points import AFTER_STEP, FINISH, IN_STEP, KillPoints, WorkerKilled


class StoreOutlet:
    """The output of a job, written immediately by the fenced verbs of the store."""

    start_by: float | None = None  #: rates are not enforced here

    def __init__(
        self,
        store: Store,
        claim: Claim,
        clock: Clock,
        declared: Declared,
        connections: Connections | None,
        life: Lifetime,
        store_name: str | None = None,
        details: Details = NO_DETAILS,
        kill_points: KillPoints | None = None,
    ) -> None:
        self.life = life
        self._details = details
        self._kill_points = KillPoints() if kill_points is None else kill_points
        self.killed: WorkerKilled | None = None  #: set once the worker of this job has died
        self._store, self._claim, self._clock, self.declared = store, claim, clock, declared
        self.connections, self.store_name = connections, store_name
        self.completes = False  #: a user's transaction may have completed the job
        self._began = clock.monotonic()
        self._lost = threading.Event()

    def report(self, progress: Progress) -> None:
        report = ProgressReport(self._claim.id, self._claim.token, self._claim.worker, progress)
        self._note(self._store.report([report], now=self._clock.now()))
        self._store.notify(["progress"])

    def log(self, entry: LogEntry) -> None:
        self._note(self._store.log([entry]))

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None:
        claim = self._claim
        entries = [StreamEntry(claim.id, claim.token, claim.worker, name, n, data) for n, data in items]
        self._note(self._store.write_streams(entries))
        self._store.notify([topic_of(claim.id)])

    def checkpoint(self, name: str) -> str | None:
        return self._store.checkpoints(self._claim.id, tenant=self._claim.tenant).get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        entry = Checkpoint(self._claim.id, self._claim.token, self._claim.worker, name, value)
        self._note(self._store.save_checkpoints([entry], now=self._clock.now()))

    def step_records(self) -> Mapping[str, str]:
        return self._store.checkpoints(self._claim.id, tenant=self._claim.tenant)

    def record_steps(self, records: Mapping[str, str]) -> None:
        self._reach(IN_STEP, records)
        self._note(self._store.record_steps(records_of(self._claim, records), now=self._clock.now()))
        if self._lost.is_set():
            raise Cancel("the job is no longer held")
        self._claim = self._claim._replace(attempt=1, crashes=0)
        self._reach(AFTER_STEP, records)

    def _reach(self, kind: str, records: Mapping[str, str] | None = None) -> None:
        """Die at this point if it is armed. A worker that has died writes nothing more."""
        if self.killed is not None:
            raise self.killed
        try:
            if records is None:
                self._kill_points.reach(self._claim.id, kind)
            else:
                self._kill_points.reach_steps(self._claim.id, kind, records)
        except WorkerKilled as killed:
            self.killed = killed
            raise

    def finishing(self) -> None:
        """Die before the finish is written, if that point is armed."""
        with suppress(WorkerKilled):
            self._reach(FINISH)

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        self.record_steps(records)

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        return job_ends(self._store, ids, self._claim.tenant)

    def group_ends(self, id: UUID) -> GroupEnds:
        return group_ends(self._store, id, self._claim.tenant)

    def stop_group(self, id: UUID, reason: str) -> None:
        stop_group(self._store, id, reason, self._claim.tenant, self._clock.now())

    def store_now(self) -> datetime:
        return self._clock.now()

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        claim = self._claim
        fence = SignalFence(claim.id, claim.token, claim.worker)
        taken = self._store.take_signal(fence, names, record, before=before, now=self._clock.now())
        if taken.lost:
            self._lost.set()
            raise Cancel("the job is no longer held")
        if taken.record is not None:
            self._claim = claim._replace(attempt=1, crashes=0)
        return taken.record

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        return found_event(self._store, self._claim, name, match, since)

    def signal_url(self, name: str, ttl: timedelta) -> str:
        return signal_url(self.life.site_url, self._claim, name, ttl, self.now())

    def pause(self, seconds: float) -> None:
        if isinstance(self._clock, ManualClock):
            self._clock.advance(seconds)
        else:
            time.sleep(seconds)

    async def apause(self, seconds: float) -> None:
        if isinstance(self._clock, ManualClock):
            self._clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)

    def is_timed_out(self) -> bool:
        return False  # the test runner judges the time after the execution

    def renew_start(self) -> None:
        """No effect: rates are not enforced here."""

    def is_cancelled(self) -> bool:
        """Whether cancellation was requested, or the job was lost."""
        return self._lost.is_set() or self.cancel_reason() is not None

    def cancel_reason(self) -> str | None:
        """The reason of a cancel request for this execution."""
        found = self._store.get([self._claim.id], tenant=self._claim.tenant)
        return next((job.cancel_reason for job in found if job.token == self._claim.token), None)

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def claim(self) -> Claim:
        return self._claim

    def completing(self) -> float:
        self.completes = True
        return self._clock.monotonic() - self._began

    @property
    def record(self) -> Record:
        return self.declared.record(self._details)

    @property
    def is_private(self) -> bool:
        return False  # every tested job runs in this process

    def spill(self, value: SpilledText) -> str:
        return store_value(self._store, value, in_table=self.completes, now=self._clock.now())

    def fetch(self, text: str) -> str:
        return read_value(self._store, text)

    def read_results(self) -> Mapping[UUID, NodeResult]:
        return NO_RESULTS

    @property
    def flow_store(self) -> Store:
        return self._store

    def flush(self) -> None:
        """No effect: everything is written immediately."""

    def unwritten(self) -> Unwritten:
        return Unwritten()

    def _note(self, lost: frozenset[UUID]) -> None:
        if lost:
            self._lost.set()
