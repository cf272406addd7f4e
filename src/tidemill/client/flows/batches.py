"""Batches: jobs that are counted together, with callbacks at the end of the whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import UUID

from tidemill.archive.flow_reads import (
    ArchivedFlowReads,
    FlowReads,
    find_flow,
    list_flows,
    refuse_archived,
)
from tidemill.client._base import async_twin
from tidemill.client.access import note, who
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.enqueue.writes import wake
from tidemill.client.flows.api import read_id, read_statuses
from tidemill.client.flows.graph import read_timeline
from tidemill.client.jobs.handle import Job
from tidemill.client.watch import await_groups
from tidemill.domain.archived_flows import ArchivedFlow, read_flow_counts
from tidemill.domain.bounds import check_key, check_name, check_text
from tidemill.domain.callbacks import callback_rows
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.flow_timeline import ROWS, TimelineRow
from tidemill.domain.graph import (
    Edge,
    EdgeCondition,
    FlowFilter,
    FlowRow,
    FlowState,
    GroupCounts,
    GroupKind,
    NewGroup,
    NewJoin,
    group_joins,
    grown_joins,
    grown_shard,
    job_joins,
)
from tidemill.domain.job import JobRow, Move, NewJob
from tidemill.domain.references import INPUTS, StoredReference
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import (
    BatchEnded,
    FlowFailed,
    FlowNotFound,
    IllegalTransition,
    JobCancelled,
    UsageError,
    WaitTimeout,
)
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.large_values import store_job_value, stored_job
from tidemill.tasks.ambient import Audited, collecting, current_tenant, stop_collecting
from tidemill.tasks.codec import Encoded
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

CHUNK = 500
"""Members that are written in one transaction."""
WAIT: Duration = 300.0
_POLL = 0.25
_PAGE = 1_000
_BAD = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED})
_CALLBACKS = {
    "on_complete": EdgeCondition.END,
    "on_success": EdgeCondition.SUCCESS,
    "on_failure": EdgeCondition.FIRST_FAILURE,
}

Callback = BoundTask[Any, Any, Any]


@dataclass(frozen=True)
class BatchInfo:
    """A batch as its callbacks receive it: ``def report(batch: BatchInfo): …``."""

    id: UUID
    name: str
    status: str
    total: int
    pending: int
    failed: int
    description: str | None = None


class BatchRun:
    """A batch that was started."""

    def __init__(
        self, client: Client, row: FlowRow, store: str, archived: ArchivedFlow | None = None
    ) -> None:
        self._client, self._row, self._store = client, row, store
        self._archived = archived

    @property
    def id(self) -> UUID:
        """The id of the batch."""
        return self._row.id

    @property
    def name(self) -> str:
        """The name of the batch."""
        return self._row.name

    @property
    def tenant(self) -> str:
        """The tenant of the batch and of all its jobs."""
        return self._row.tenant

    @property
    def row(self) -> FlowRow:
        """The record of the batch as of the last look."""
        return self._row

    @property
    def description(self) -> str | None:
        """The description that was given."""
        text = self._row.rules.get("description")
        return None if text is None else str(text)

    @property
    def status(self) -> FlowState:
        """The status as of now."""
        return self.refresh()._row.state

    @property
    def ended(self) -> bool:
        """Whether all jobs had ended as of the last look."""
        return self._row.ended_at is not None

    @property
    def is_archived(self) -> bool:
        """Whether it is archived, or on its way to the archive, as of the last look."""
        return self._archived is not None

    @property
    def archived_at(self) -> datetime | None:
        """When it was archived, if it was, as of the last look."""
        return self._row.archived_at

    @property
    def _where(self) -> Store:
        return self._client.store(self._store)

    @property
    def _reads(self) -> FlowReads:
        if self._archived is None:
            return self._where
        return ArchivedFlowReads(self._client, self._store, self._archived)

    def refresh(self) -> Self:
        """Read the batch again."""
        found = find_flow(self._client, self._store, self.id, self.tenant)
        if found is None:
            raise FlowNotFound(f"batch {self.id} is gone: it was deleted", id=self.id)
        self._row, self._archived = found
        return self

    arefresh = async_twin(refresh)

    def counts(self) -> GroupCounts:
        """How many jobs the batch has, how many have not ended, and how many failed."""
        if self._archived is not None:
            return read_flow_counts(self._archived)
        (counts,) = self._where.group_counts([self.id])
        return counts

    acounts = async_twin(counts)

    @property
    def total(self) -> int:
        """The number of jobs."""
        return self.counts().total

    @property
    def pending(self) -> int:
        """The number of jobs that have not ended."""
        return self.counts().remaining

    @property
    def failed(self) -> int:
        """The number of jobs that failed."""
        return self.counts().bad

    @property
    def progress(self) -> float:
        """The share of jobs that have ended, from 0 to 1."""
        counts = self.counts()
        return 1.0 if not counts.total else 1 - counts.remaining / counts.total

    def jobs(self) -> Iterator[Job[Any]]:
        """Yield the jobs of the batch, in the order in which they were added."""
        for row in self._members():
            yield Job(self._client, row, self._store)

    def timeline(self, limit: int = ROWS) -> list[TimelineRow]:
        """Return the jobs that have begun, in the order in which their last executions began."""
        now = self._client.pin or self._where.now()
        return read_timeline(self._where, list(self._members()), self.tenant, now, limit)

    atimeline = async_twin(timeline)

    def _members(self) -> Iterator[JobRow]:
        after, reads = -1, self._reads
        while page := reads.group_jobs(self.id, tenant=self.tenant, after=after, limit=_PAGE):
            yield from page
            after = page[-1].details.position or 0
            if len(page) < _PAGE:
                return

    def result(self, timeout: Duration | None = WAIT) -> BatchInfo:
        """Wait until all jobs have ended; raises ``FlowFailed``, ``JobCancelled`` or ``WaitTimeout``."""
        seconds = None if timeout is None else read_duration("timeout", timeout).total_seconds()
        ends = None if seconds is None else time.monotonic() + seconds
        listener = self._where.listen()
        try:
            while not self.refresh().ended:
                left = _POLL if ends is None else min(_POLL, ends - time.monotonic())
                if left <= 0:
                    raise WaitTimeout(f"batch {self.name!r} has not ended within {seconds:g} s", id=self.id)
                await_groups(listener, left)
        finally:
            listener.close()
        if self._row.state is FlowState.CANCELLED:
            raise JobCancelled(
                f"batch {self.name!r} was cancelled: {self._row.cancel_reason}",
                id=self.id,
                reason=self._row.cancel_reason,
            )
        info = self.info()
        if self._row.state is FlowState.FAILED:
            raise FlowFailed(
                f"{info.failed:,} of {info.total:,} jobs of batch {self.name!r} failed",
                id=self.id,
                status="failed",
            )
        return info

    aresult = async_twin(result)

    def info(self) -> BatchInfo:
        """The batch as its callbacks receive it."""
        counts, row = self.counts(), self.refresh()._row
        return BatchInfo(
            row.id, row.name, row.state.value, counts.total, counts.remaining, counts.bad, self.description
        )

    def cancel(self, reason: str | None = None) -> Self:
        """Let no further job begin, and ask running ones to stop. The callbacks of the end still run."""
        check_text("reason", reason)
        refuse_archived("cancel", self.refresh()._row, self._archived)
        why, store = reason or "cancelled", self._where
        with store.transaction():
            changed = store.change_flow(
                self.id, tenant=self.tenant, cancel_reason=why, release=True, now=self._client.pin
            )
            if changed is None:
                raise IllegalTransition(f"cannot cancel batch {self.id}: it has ended", id=self.id)
            self._note("cancelled", {"status": self._row.state.value}, {"reason": why})
        store.notify(["cascade", "cancel", "ended"])
        return self.refresh()

    acancel = async_twin(cancel)

    def retry_failed(self, *, again: bool = False) -> Self:
        """Run the failed jobs again. Callbacks that have run do not run again, unless ``again``."""
        refuse_archived("retry", self.refresh()._row, self._archived)
        jobs = [job for job in self._members() if job.state in _BAD]
        if not jobs:
            raise IllegalTransition(f"cannot retry batch {self.id}: it has no failed job", id=self.id)
        moves = [_reopened(job, JobState.PENDING) for job in jobs]
        store = self._where
        for job in self._callbacks():
            is_skipped = job.state is JobState.CANCELLED
            if job.state in ENDED and (again or is_skipped):
                moves.append(_reopened(job, JobState.WAITING))
        with store.transaction():
            changed = store.reopen(self.id, moves, tenant=self.tenant, now=self._client.pin)
            self._note("retried", {"status": self._row.state.value}, {"jobs": len(changed)})
        store.notify({"change", *(f"ready:{job.queue}" for job in jobs)})
        return self.refresh()

    aretry_failed = async_twin(retry_failed)

    def _callbacks(self) -> list[JobRow]:
        found: list[JobRow] = []
        after: UUID | None = None
        while page := self._where.flow_jobs(self.id, tenant=self.tenant, after=after, limit=_PAGE):
            found += [job for job in page if job.details.group_id is None]
            after = page[-1].id
        return found

    def _note(self, action: str, before: dict[str, object] | None, after: dict[str, object]) -> None:
        note(
            self._where, f"batch.{action}", f"batch:{self.id}", self.tenant, before=before, after=after,
            now=self._client.pin,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<batch {self.name} {self.id} {self._row.state}>"


def _reopened(job: JobRow, state: JobState) -> Move:
    return Move(job.id, job.tenant, frozenset({job.state}), state, "retried manually", restart=True)


class Batch(BatchRun):
    """An open batch: jobs enqueued inside its block become its members.

    A block that raises leaves a batch with the jobs enqueued so far; with ``on_error="cancel"`` it is cancelled.
    """

    only = False
    declared: Declared | None = None  # it belongs to no running job

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        callbacks: dict[str, Callback | None],
        description: str | None = None,
        key: str | None = None,
        on_error: Literal["complete", "cancel"] = "complete",
        callback_url: str | None = None,
    ) -> None:
        check_name("batch", name)
        check_text("description", description)
        if key is not None:
            check_key("key", key)
        if on_error not in ("complete", "cancel"):
            raise UsageError(f"on_error={on_error!r}; expected complete or cancel")
        self._on_error = on_error
        self._lock = threading.Lock()
        self._waiting: list[NewJob] = []
        self._audit: list[Audited] = []
        self._position = 0
        self._open = False
        tenant = current_tenant() or client.tenant
        rules = {} if description is None else {"description": description}
        group = NewGroup(new_id(), tenant, GroupKind.BATCH, name, key, rules=rules, created_by=who(), held=1)
        place = client.place_of(tenant)
        store = client.store(place)
        jobs, edges, joins = _callback_rows(client, group, callbacks)
        if callback_url is not None:
            rows = callback_rows(group, callback_url, new_id())
            jobs, edges, joins = [*jobs, rows.job], [*edges, rows.edge], [*joins, *rows.joins]
        with store.transaction():
            started = store.start_flow(
                [group], jobs, edges, [*group_joins(group.id, 0, held=1), *joins], now=client.pin
            )
            if not started.created:
                raise UsageError(f"a batch {name!r} with the key {key!r} exists: {started.id}", id=started.id)
            note(
                store, "batch.started", f"batch:{group.id}", tenant, after={"name": name, "key": key},
                now=client.pin,
            )  # fmt: skip
        super().__init__(client, store.flow([group.id], tenant=tenant)[0], place)

    @property
    def is_open(self) -> bool:
        """Whether enqueued jobs become members."""
        return self._open

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None:
        """Take jobs as members; they are written in chunks."""
        with self._lock:
            if not self._open:
                raise BatchEnded(f"batch {self.name!r} is closed; enqueue inside its block", id=self.id)
            for job in jobs:
                if job.unique is not None:
                    raise UsageError(
                        f"task {job.task} is unique, and a job of a batch cannot be; use {job.task}.using(unique=None)"
                    )
                if job.tenant != self.tenant:
                    raise UsageError(
                        f"batch {self.name!r} belongs to tenant {self.tenant!r}, and the job does not"
                    )
                details = replace(
                    job.details,
                    flow_id=self.id,
                    node=job.task,
                    position=self._position,
                    group_id=self.id,
                    group_shard=grown_shard(self._position),
                )
                self._waiting.append(job._replace(details=details, tied=True))
                self._position += 1
            self._audit += audit
            full = len(self._waiting) >= CHUNK
        if full:
            self.flush()

    def flush(self) -> None:
        """Write the members that were enqueued so far; workers may begin with them."""
        with self._lock:
            jobs, self._waiting = self._waiting, []
            audit, self._audit = self._audit, []
        store, now = self._where, self._client.pin
        for at in range(0, len(jobs), CHUNK):
            page = jobs[at : at + CHUNK]
            first = page[0].details.position or 0
            with store.transaction():
                rows = [stored_job(store, job) for job in page]
                store.grow_group(
                    self.id, rows, grown_joins(self.id, first, len(page)), tenant=self.tenant, now=now
                )
                for job in page:
                    store_job_value(store, job, now=now)
                if audit:
                    store.record([entry for _, entry in audit], now=now)
                    audit = []
            self._client.enqueuer.publish(page)
            wake(store, page)

    def __enter__(self) -> Self:
        if self._open:
            raise UsageError(f"batch {self.name!r} is already open")
        self._open = True
        _, self._token = collecting(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_collecting(self._token)
        try:
            self.flush()
        finally:
            self._open = False
            self._close(cancel=error is not None and self._on_error == "cancel")

    def _close(self, *, cancel: bool) -> None:
        reason = "the block that filled it raised an error" if cancel else None
        store = self._where
        store.change_flow(
            self.id, tenant=self.tenant, cancel_reason=reason, release=True, now=self._client.pin
        )
        store.notify(["ended", "cascade", "ready:default"])

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def _callback_rows(
    client: Client, group: NewGroup, callbacks: dict[str, Callback | None]
) -> tuple[list[NewJob], list[Edge], list[NewJoin]]:
    """The waiting jobs of the callbacks, with their edges to the batch."""
    jobs: list[NewJob] = []
    edges: list[Edge] = []
    joins: list[NewJoin] = []
    for name, task in callbacks.items():
        if task is None:
            continue
        if not isinstance(task, BoundTask):
            raise UsageError(f"{name}={task!r} is not a task; declare it with @app.task")
        declared = task._declared
        if declared.arguments.names[:1] != ("batch",) or any(
            parameter.required for parameter in declared.arguments.signature.parameters[1:]
        ):
            raise UsageError(
                f"task {declared.name} cannot be {name}: it must take one argument, batch: BatchInfo"
            )
        template = client.template(declared, task._call, group.tenant)
        reference = StoredReference(group.id).data()
        job = template.job_of(Encoded(f'{{"batch":{{"$ref":["{reference["$ref"][0]}"]}}}}'))
        details = replace(
            job.details,
            options={**job.details.options, INPUTS: [str(group.id)]},
            flow_id=group.id,
            node=name,
        )
        jobs.append(job._replace(details=details, unique=None, waiting=f"waits for batch {group.name}"))
        edges.append(Edge(job.id, group.id, _CALLBACKS[name]))
        joins += job_joins(job.id, 1)
    return jobs, edges, joins


class Batches:
    """Find batches that were started."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, id: UUID | str) -> BatchRun:
        """Return the batch with this id; raises ``FlowNotFound``."""
        place = self._client.store_name(None)
        found = find_flow(self._client, place, read_id(id, "batch"), self._tenant)
        if found is None or found.row.kind is not GroupKind.BATCH:
            raise FlowNotFound(f"there is no batch {id}", id=id)
        return BatchRun(self._client, found.row, place, found.archived)

    aget = async_twin(get)

    def list(
        self,
        *,
        name: str | None = None,
        status: str | FlowState | Iterable[str | FlowState] | None = None,
        limit: int = 100,
        after: UUID | str | None = None,
        archived: bool = False,
    ) -> list[BatchRun]:
        """Return batches, the newest first; ``after`` is the id of the last one of the page before.

        ``archived`` includes those in the archive.
        """
        where = FlowFilter(
            self._tenant, kinds=frozenset({GroupKind.BATCH}), name=name, states=read_statuses(status)
        )
        last = None if after is None else read_id(after, "batch")
        place = self._client.store_name(None)
        found = list_flows(self._client, place, where, limit=limit, after=last, archived=archived)
        return [BatchRun(self._client, row, place, document) for row, document in found]

    alist = async_twin(list)  # noqa: A003  (the method above)

    @property
    def _tenant(self) -> str:
        return current_tenant() or self._client.tenant
