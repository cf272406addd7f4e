"""A claimed job in a runner: its claim, its phase, and the outlet of its context."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import Policy
from tidemill.domain.job import Checkpoint, Claim, Details, JobRow, LogEntry, Progress, job_of
from tidemill.domain.large_values import SpilledText
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.outcome import STOPPING, Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from tidemill.domain.record import Record
from tidemill.domain.signals import SignalFence
from tidemill.domain.streams import StreamEntry
from tidemill.engine.completion import Connections, Unwritten, check_held
from tidemill.engine.context import StartRefused
from tidemill.engine.job_ends import GroupEnds, JobEnd, group_ends, job_ends, stop_group
from tidemill.engine.lifespan import Lifetime
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.engine.runner.plain_task import PlainTask
from tidemill.engine.runner.retry_hooks import timed_out
from tidemill.engine.runner.step_writer import StepWriter
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.engine.signal_links import signal_url
from tidemill.engine.signal_waits import found_event
from tidemill.engine.suspension import LEASE_LOST, records_of
from tidemill.errors import Cancel
from tidemill.stores.base import Store
from tidemill.stores.large_values import is_private, read_value, store_value
from tidemill.tasks.task import Declared

_GLANCE = 0.1  # seconds between two looks for a request to stop, in a pause of a thread


class Phase(Enum):
    """How far the result of a held job is.

    ::

        OPEN ──▶ DECIDED ──▶ SUPERSEDED
          └────▶ LOST

    Every change is made under the lock of the exchange, so that a job is either decided or lost, never both. Reading
    needs no lock.
    """

    OPEN = "open"
    """The result is not decided; the handler may be waiting or running, or it has just ended."""

    DECIDED = "decided"
    """The result is decided. Whatever the handler does later is ignored."""

    LOST = "lost"
    """This worker no longer holds the job, and nothing is written for it."""

    SUPERSEDED = "superseded"
    """The store issued the same token to this worker again, so a result that is still unwritten is dropped."""


# Module globals: the hot path compares phases, and a member of an Enum class is slow to look up before Python 3.12.
OPEN, DECIDED, LOST, SUPERSEDED = Phase


class StartRenewal(Protocol):
    """Records late starts of jobs under a rate limit again."""

    def renew(self, held: HeldJob) -> str | None: ...


class RunnerServices(Protocol):
    """The services of the runner that a held job uses."""

    store: Store
    store_name: str | None
    clock: Clock
    life: Lifetime

    @property
    def config(self) -> RuntimeSettings: ...

    @property
    def permits(self) -> StartRenewal: ...

    def report(self, held: HeldJob, progress: Progress) -> None: ...

    def log(self, held: HeldJob, entry: LogEntry) -> None: ...

    def write_stream(self, held: HeldJob, entries: Sequence[StreamEntry]) -> None: ...

    @property
    def step_writer(self) -> StepWriter: ...

    @property
    def connections(self) -> Connections | None: ...

    def flush(self, held: HeldJob) -> None: ...

    def unwritten(self, held: HeldJob) -> Unwritten: ...


class HeldJob:
    """One claim and its state in this runner. It is also the ``Outlet`` of its own context, so one object serves a job."""

    __slots__ = (
        "began",
        "cancel_reason",
        "claim",
        "completes",
        "declared",
        "details",
        "handle",
        "kind",
        "over",
        "phase",
        "plain",
        "refused",
        "releasing",
        "renewals",
        "results",
        "services",
        "start_by",
        "stopped_at",
        "timed_out",
    )

    def __init__(
        self, claim: Claim, declared: Declared, details: Details, services: RunnerServices, kind: str
    ) -> None:
        self.claim = claim
        self.declared = declared
        self.details = details
        self.services = services
        self.kind = kind
        self.plain: PlainTask | None = None  #: set if its coroutine may take the short way
        self.began: float | None = None  #: monotonic time at which it began
        self.handle: Any = None  #: the handle with which the executor stops it
        self.cancel_reason: str | None = claim.cancel_reason
        self.phase = OPEN
        # The flags below are no phases: each is set by another thread, without a lock, in any phase.
        self.timed_out = False  #: the watchdog has asked it to stop at its timeout
        self.releasing = False  #: the stopping worker has asked it to stop
        self.stopped_at: float | None = None  #: when it was first asked to stop
        self.refused = False  #: the store has refused a checkpoint of the handler
        self.over = False  #: the handler has ended and its slot is free
        self.results = NO_RESULTS  #: results of other nodes that were read with its details
        self.renewals = 0  #: how often its start was recorded again
        #: under a rate limit: the monotonic time by which it has to start
        self.start_by: float | None = None
        self.completes = False  #: a transaction of the user may have completed it, or may still do so

    @property
    def id(self) -> UUID:
        return self.claim.id

    @property
    def lost(self) -> bool:
        """Whether this worker no longer holds the job, as far as it knows."""
        return self.phase is LOST or self.refused

    @property
    def is_open(self) -> bool:
        """Whether the job is held and its result is not decided."""
        return self.phase is OPEN

    @property
    def record(self) -> Record:
        """How much of the job is kept."""
        return self.declared.record(self.details)

    def policy(self) -> Policy:
        """The policy of the job: of its task, its own options, and what operators have set."""
        policy = self.declared.policy(self.details)
        return self.services.config.policy(policy, self.claim.task, self.declared.name)

    def job(self) -> JobRow:
        """The job as its context shows it."""
        return job_of(self.claim, self.details, self.services.clock.now())

    def is_overdue(self, at: float) -> bool:
        """Whether it has run past its timeout."""
        timeout = self.claim.timeout
        return timeout is not None and self.began is not None and at - self.began >= timeout.total_seconds()

    def outcome(self, ended: ExecutionEnd | None) -> Outcome:
        """The outcome of a handler, given the requests to stop it. ``ended`` is None if it was stopped from outside."""
        if ended is not None and isinstance(ended.outcome, Succeeded):
            return ended.outcome
        if ended is not None and isinstance(ended.outcome, TimedOut):
            return ended.outcome
        if self.timed_out and self.claim.timeout is not None:
            failed = ended.outcome if ended is not None and isinstance(ended.outcome, Failed) else None
            if failed is None:
                return TimedOut(self.claim.timeout)
            return TimedOut(self.claim.timeout, failed.retryable, failed.retry_after)
        if ended is None or isinstance(ended.outcome, Cancelled):
            if self.releasing and self.cancel_reason is None:
                return Released(STOPPING)
            if ended is None or self.cancel_reason is not None:
                return Cancelled(self.cancel_reason)
        return ended.outcome

    def timed_out_after(self, limit: timedelta) -> TimedOut:
        """The outcome of being stopped at this timeout, with the answers of the task's retry hooks."""
        return timed_out(self.declared, self.claim, limit, self.job, self.now(), self._warn)

    def _warn(self, text: str) -> None:
        claim = self.claim
        self.log(LogEntry(claim.id, claim.token, self.now(), text, "warning", worker=claim.worker))

    # Outlet ------------------------------------------------------------------------------------------------------------

    def report(self, progress: Progress) -> None:
        if self.phase is OPEN:
            self.services.report(self, progress)

    def log(self, entry: LogEntry) -> None:
        if self.phase is OPEN:
            self.services.log(self, entry)

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None:
        claim = self.claim
        if self.phase is OPEN:
            self.services.write_stream(
                self, [StreamEntry(claim.id, claim.token, claim.worker, name, n, data) for n, data in items]
            )

    def checkpoint(self, name: str) -> str | None:
        return self.services.store.checkpoints(self.claim.id, tenant=self.claim.tenant).get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        claim = self.claim
        if self.lost or self.phase is SUPERSEDED:
            return
        if self.services.store.save_checkpoints(
            [Checkpoint(claim.id, claim.token, claim.worker, name, value)]
        ):
            self.refused = True

    def step_records(self) -> Mapping[str, str]:
        return self.services.store.checkpoints(self.claim.id, tenant=self.claim.tenant)

    def record_steps(self, records: Mapping[str, str]) -> None:
        held = self.may_record() and self.services.step_writer.write(
            records_of(self.claim, records), self.may_record
        )
        self._recorded(held)

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        writer = self.services.step_writer
        held = self.may_record() and await writer.awrite(records_of(self.claim, records), self.may_record)
        self._recorded(held)

    def may_record(self) -> bool:
        """Whether a record of a step may still be written."""
        return self.phase is OPEN and not self.refused

    def _recorded(self, held: bool) -> None:
        if not held:
            self.refused = True
            raise Cancel(LEASE_LOST)
        if self.claim.attempt > 1 or self.claim.crashes:
            # The store counts attempts and crashes from the last record, too.
            self.claim = self.claim._replace(attempt=1, crashes=0)

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        return job_ends(self.services.store, ids, self.claim.tenant)

    def group_ends(self, id: UUID) -> GroupEnds:
        return group_ends(self.services.store, id, self.claim.tenant)

    def stop_group(self, id: UUID, reason: str) -> None:
        stop_group(self.services.store, id, reason, self.claim.tenant)

    def store_now(self) -> datetime:
        return self.services.store.now()

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        claim = self.claim
        taken = self.services.store.take_signal(
            SignalFence(claim.id, claim.token, claim.worker), names, record, before=before
        )
        if taken.lost or taken.record is not None:
            self._recorded(not taken.lost)
        return taken.record

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        return found_event(self.services.store, self.claim, name, match, since)

    def signal_url(self, name: str, ttl: timedelta) -> str:
        return signal_url(self.life.site_url, self.claim, name, ttl, self.now())

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.is_cancelled():
            time.sleep(min(left, _GLANCE))

    async def apause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def is_timed_out(self) -> bool:
        return self.timed_out

    def renew_start(self) -> None:
        refusal = self.services.permits.renew(self)
        if refusal is not None:
            raise StartRefused(refusal)

    def is_cancelled(self) -> bool:
        return self.lost or self.releasing or self.timed_out or self.cancel_reason is not None

    def now(self) -> datetime:
        return self.services.clock.now()

    @property
    def connections(self) -> Connections | None:
        return self.services.connections

    @property
    def store_name(self) -> str | None:
        return self.services.store_name

    @property
    def life(self) -> Lifetime:
        return self.services.life

    def completing(self) -> float:
        if self.lost:
            check_held(self.claim.id, held=False)
        self.completes = True
        now = self.services.clock.monotonic()
        return now - (now if self.began is None else self.began)

    @property
    def is_private(self) -> bool:
        return is_private(self.services.store)

    def spill(self, value: SpilledText) -> str:
        return store_value(self.services.store, value, in_table=self.completes)

    def fetch(self, text: str) -> str:
        return read_value(self.services.store, text)

    def read_results(self) -> Mapping[UUID, NodeResult]:
        return self.results

    @property
    def flow_store(self) -> Store:
        return self.services.store

    def flush(self) -> None:
        self.services.flush(self)

    def unwritten(self) -> Unwritten:
        return self.services.unwritten(self)
