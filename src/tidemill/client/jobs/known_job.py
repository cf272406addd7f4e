"""The last known state of a job, as properties of its handle."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from tidemill.client.enqueue.writes import snapshot
from tidemill.domain.estimate import eta_of, fraction_done, percent_done
from tidemill.domain.job import ErrorInfo, JobRow, NewJob
from tidemill.domain.large_values import is_reference
from tidemill.domain.record import Record, stored_record
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.trace_context import trace_id
from tidemill.stores.large_values import read_value

if TYPE_CHECKING:
    from tidemill.client.core import Client

R = TypeVar("R")


class KnownJob(Generic[R]):
    """One job as it was last read from the store."""

    def __init__(self, client: Client, seen: JobRow | NewJob, store: str | None = None) -> None:
        self._client = client
        self._seen = seen
        # Captured now: the store that calls address may be another one when the handle is used. An app with shards looks
        # for the tenant's shard at each call instead, because a tenant may move.
        if store is None or client.placement.shards is not None:
            store = client.placement.addressed(store)
        self._store = store

    @property
    def _row(self) -> JobRow:
        """The last snapshot; for a newly enqueued job, a snapshot built from the request."""
        if isinstance(self._seen, NewJob):
            self._seen = snapshot(self._seen, self._client.clock.now())
        return self._seen

    @_row.setter
    def _row(self, row: JobRow) -> None:
        self._seen = row

    @property
    def row(self) -> JobRow:
        """The complete job row as the store returned it."""
        return self._row

    @property
    def id(self) -> UUID:
        return self._seen.id

    @property
    def task(self) -> str:
        return self._row.task

    @property
    def status(self) -> JobState:
        return self._row.state

    @property
    def tenant(self) -> str:
        return self._row.tenant

    @property
    def store_name(self) -> str:
        """The name of the app's store that the job is in; of a tenant that moves, the new one."""
        return self._client.store_name(self._store, self.tenant)

    @property
    def queue(self) -> str:
        return self._row.queue

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON data; large ones are read from their place."""
        found: dict[str, Any] = json.loads(self._read(self._row.args))
        return found

    @property
    def record(self) -> Record:
        """How much of the job is kept after its end, as far as this process knows: full, last or none."""
        row, registry = self._row, self._client.registry
        if row.task in registry:
            return registry.get(row.task).record(row.details)
        return stored_record(Record.FULL, row.details.options)

    def _read(self, text: str) -> str:
        """Return the payload itself, or the large value that it refers to."""
        return read_value(self._client.store(self._store, self.tenant), text) if is_reference(text) else text

    @property
    def run_at(self) -> datetime:
        return self._row.run_at

    @property
    def created_at(self) -> datetime:
        return self._row.created_at

    @property
    def started_at(self) -> datetime | None:
        return self._row.started_at

    @property
    def finished_at(self) -> datetime | None:
        return self._row.finished_at

    @property
    def duration(self) -> timedelta | None:
        """From the start of the last execution to the end of the job; None before the end, and if no execution ran."""
        return self._row.duration

    @property
    def attempt(self) -> int:
        return self._row.attempt

    @property
    def max_attempts(self) -> int:
        return self._row.max_attempts

    @property
    def progress(self) -> float:
        """Progress as a fraction from 0 to 1."""
        return fraction_done(self._row)

    @property
    def progress_percent(self) -> int:
        """Progress in percent, 0 to 100."""
        return percent_done(fraction_done(self._row))

    @property
    def updated_at(self) -> datetime | None:
        """The time of the last progress report; None if the job never reported progress."""
        return None if self._row.progress is None else self._row.progress.at

    @property
    def message(self) -> str | None:
        return None if self._row.progress is None else self._row.progress.message

    @property
    def step(self) -> int | None:
        return None if self._row.progress is None else self._row.progress.step

    @property
    def total(self) -> int | None:
        return None if self._row.progress is None else self._row.progress.total

    @property
    def stage(self) -> str | None:
        return None if self._row.progress is None else self._row.progress.stage

    @property
    def eta(self) -> datetime | None:
        """The estimated end time if progress continues at the same rate."""
        return eta_of(self._row, self._client.clock.now())

    @property
    def value(self) -> R | None:
        """The return value of the task; None until the job is completed."""
        if self._row.state is not JobState.COMPLETED:
            return None
        found: R | None = self._decoded()
        return found

    @property
    def error(self) -> ErrorInfo | None:
        return self._row.error

    @property
    def reason(self) -> str | None:
        """Why the job is in its current state, as a text."""
        return self._row.reason

    @property
    def correlation_id(self) -> str:
        """The id that related jobs share; defaults to the job's own id."""
        return self._row.details.correlation_id or str(self._row.id)

    @property
    def trace_id(self) -> str | None:
        """The id of the trace that the job was enqueued in, read from its ``traceparent`` header."""
        return trace_id(self._row.details.headers)

    @property
    def parent_id(self) -> UUID | None:
        return self._row.details.parent_id

    @property
    def definition_id(self) -> UUID | None:
        """The definition that the job was created from, if any."""
        return self._row.details.definition_id

    @property
    def definition_version(self) -> int | None:
        """The version of the definition that the job was created from."""
        return self._row.details.definition_version

    @property
    def schedule_id(self) -> UUID | None:
        """The schedule that created the job, if any."""
        return self._row.details.schedule_id

    @property
    def fire_at(self) -> datetime | None:
        """The fire time of the schedule that the job was created for."""
        return self._row.details.fire_at

    @property
    def metadata(self) -> dict[str, object]:
        return dict(self._row.details.metadata)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for the code that runs the job, set by ``using(headers=…)`` and by hooks."""
        return dict(self._row.details.headers)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._row.details.tags

    @property
    def reference(self) -> tuple[str, str] | None:
        return self._row.details.reference

    @property
    def archived_at(self) -> datetime | None:
        """When the job was archived; None for a live job. An archived job is read-only."""
        return self._row.archived_at

    @property
    def tier(self) -> str | None:
        """The archive tier of an archived job; None for a live job."""
        return self._row.tier

    @property
    def ended(self) -> bool:
        """Whether the job is in a final state, which only an explicit action can change."""
        return self._row.state in ENDED

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _decoded(self) -> Any:
        result = None if self._row.result is None else self._read(self._row.result)
        if self._row.task in self._client.registry:
            return self._client.registry.get(self._row.task).result.load(result, self.id)
        return None if result is None else json.loads(result)
