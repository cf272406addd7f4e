"""Job handle with synchronous and asynchronous methods.

A handle caches the last snapshot of its job; ``refresh`` reads a new one. Every method that accesses the store has an
asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tidemill.archive.contents import read_executions, read_logs, read_streams
from tidemill.client._base import async_twin
from tidemill.client.access import note, who
from tidemill.client.jobs.actions import (
    cancel_descendants,
    change_batch,
    check_change,
    delay_until,
    unchangeable,
)
from tidemill.client.jobs.known_job import KnownJob
from tidemill.client.jobs.streams import StreamSource, aread_stream, read_stream
from tidemill.client.jobs.why import Reason, explain
from tidemill.domain.bounds import check_text
from tidemill.domain.decide import Action, move
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import CHANGEABLE, Execution, JobRow, LogEntry, levels_from
from tidemill.domain.large_values import is_reference
from tidemill.domain.record import Record
from tidemill.domain.retention import ArchivedJob
from tidemill.domain.stages import Stage, stages
from tidemill.domain.states import ENDED, FAULTS, HELD, JobState
from tidemill.domain.steps import StepView, step_views
from tidemill.domain.streams import StreamItem, check_stream_name
from tidemill.errors import (
    BadArguments,
    IllegalTransition,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultNotKept,
    StoreUnavailable,
    TidemillError,
    WaitTimeout,
)
from tidemill.tasks.ambient import current_job
from tidemill.tasks.events import Subscription

R = TypeVar("R")

WAIT = 1800.0
"""Default timeout of ``result``, in seconds."""

SILENT = 5.0
"""Seconds that ``result`` waits before it checks whether a suitable worker is alive."""

_HOPELESS = frozenset({"no_workers", "no_worker_for_queue", "no_worker_for_task"})

_log = logging.getLogger("tidemill.client")

WORDS = {
    Action.CANCEL: "cancelled",
    Action.RETRY: "retried",
    Action.APPROVE: "approved",
    Action.REJECT: "rejected",
    Action.RUN_NOW: "run_now",
    Action.RESCHEDULE: "rescheduled",
    Action.RERUN: "rerun",
}
"""The audit's name for each action on a job."""

_STAGE_LINES = 500  # the last lines of a job in which its stages are looked for
_END = 2**62


class Job(KnownJob[R]):
    """Handle of one job, in any state."""

    # Reading and waiting ---------------------------------------------------------------------------------------------

    def refresh(self) -> Job[R]:
        """Read the job again and return this handle with the new snapshot."""
        try:
            self._row = self._client.get(self.id, tenant=self.tenant, store=self._store)
        except JobNotFound:
            if self.record is Record.NONE:
                raise self._unrecorded() from None
            raise
        return self

    arefresh = async_twin(refresh)

    def result(self, timeout: Duration | None = WAIT) -> R:
        """Wait for the job to end and return the task's result; raises JobFailed, JobCancelled or WaitTimeout.

        A job with ``record="none"`` leaves no result, so ``ResultNotKept`` is raised at once.
        """
        self._refuse_unrecorded()
        seconds = _seconds(timeout)
        ended, end = self._ending()
        try:
            try:
                row = ended.result(SILENT if seconds is None else min(seconds, SILENT))
            except FutureTimeout:
                if seconds is not None and seconds <= SILENT:
                    raise
                self._warn_of_waiting()
                row = ended.result(None if seconds is None else seconds - SILENT)
        except FutureTimeout:
            raise self._late(timeout) from None
        finally:
            end()
        return self._conclude(row)

    async def aresult(self, timeout: Duration | None = WAIT) -> R:  # noqa: ASYNC109  (as in its twin)
        self._refuse_unrecorded()
        seconds = _seconds(timeout)
        ended, end = self._ending()
        waiting = asyncio.wrap_future(ended)
        try:
            async with asyncio.timeout(seconds):
                done, _ = await asyncio.wait([waiting], timeout=SILENT)
                if not done:
                    await self._client.in_thread(self._warn_of_waiting)
                row = await waiting
        except TimeoutError:
            raise await self._client.in_thread(self._late, timeout) from None
        finally:
            waiting.cancel()
            end()
        if row is None:
            row = await self._client.in_thread(self._left)
        if is_reference(row.result):
            value: R = await self._client.in_thread(self._conclude, row)
            return value
        return self._conclude(row)

    def _refuse_unrecorded(self) -> None:
        if self.record is Record.NONE and (not self.ended or self.status is JobState.COMPLETED):
            raise ResultNotKept(
                f"job {self.id} of task {self.task} has record='none', so its result is not kept; "
                "use record='last' to wait for it, or subscribe to job.finished",
                id=self.id,
            )

    def __await__(self) -> Generator[Any, None, R]:
        return self.aresult().__await__()

    def _late(self, timeout: Duration | None) -> WaitTimeout:
        text = f"job {self.id} is still {self._row.state} after {_seconds(timeout):g} seconds"
        with contextlib.suppress(TidemillError):  # the store is unavailable, or the job was deleted
            text += ": " + " ".join(reason.text for reason in self.why())
        if hint := self._slot_hint():
            text += f" {hint}"
        return WaitTimeout(text, id=self.id)

    def _warn_of_waiting(self) -> None:
        """Log why the wait may never end: no worker is alive, or the waiting job holds the slot that this one needs."""
        try:
            reason = next((reason for reason in self.why() if reason.code in _HOPELESS), None)
        except TidemillError:
            return
        if reason is not None:
            _log.warning("still waiting for job %s of task %s: %s", self.id, self.task, reason.text)
        elif hint := self._slot_hint():
            _log.warning("job %s of task %s has not started yet. %s", self.id, self.task, hint)

    def _slot_hint(self) -> str | None:
        """Return advice for a running job that waits for this one while this one has no slot."""
        waiting = current_job()
        if waiting is None or self._row.state not in (JobState.PENDING, JobState.CLAIMED):
            return None
        return (
            f"Job {waiting.job_id} waits for it and keeps its own slot: if every slot waits like that, nothing runs. "
            "Enqueue the next step with ctx.then(…) instead of waiting, or give the worker more threads."
        )

    def why(self) -> list[Reason]:
        """Return why the job is not running, or how it ended; the most important reason first."""
        self.refresh()
        store = self._client.store(self._store, self.tenant)
        name = None if self._client.placement.is_single else self.store_name
        return explain(store, self._row, self._client.pin or store.now(), name)

    awhy = async_twin(why)

    def _ending(self) -> tuple[Future[JobRow | None], Callable[[], None]]:
        """Return a future of this job's final snapshot, and a function that stops watching the job."""
        future: Future[JobRow | None] = Future()
        if self.ended:
            future.set_result(self._row)
            return future, lambda: None

        def heard(row: JobRow | None) -> None:
            if row is not None:
                self._row = row
            if (row is None or row.state in ENDED) and not future.done():
                future.set_result(row)

        return future, self._client.waiting(self._store).watch(self.id, heard)

    def _left(self) -> JobRow:
        """Return the archived copy of a job that is no longer in the live tables."""
        try:
            return self._client.get(self.id, tenant=self.tenant, store=self._store)
        except JobNotFound:
            if self.record is Record.NONE:
                raise self._unrecorded() from None
            raise JobNotFound(f"job {self.id} is gone: it was deleted", id=self.id) from None

    def _unrecorded(self) -> JobNotFound:
        return JobNotFound(
            f"job {self.id} is gone: it completed, and record='none' of task {self.task} keeps nothing",
            id=self.id,
        )

    def _conclude(self, row: JobRow | None) -> R:
        if row is None:
            row = self._left()
        self._row = row
        if row.state is JobState.COMPLETED:
            value: R = self._decoded()
            return value
        why = row.reason or row.state
        if row.state is JobState.CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled: {why}", id=self.id, reason=row.reason)
        raise JobFailed(
            f"job {self.id} of task {self.task} {row.state}: {why}",
            id=self.id,
            status=row.state,
            error=row.error,
        )

    def watch(self) -> Iterator[Job[R]]:
        """Yield the job at each change until it has ended."""
        heard: queue.SimpleQueue[JobRow | None] = queue.SimpleQueue()
        end = self._client.waiting(self._store).watch(self.id, heard.put)
        try:
            while True:
                row = heard.get() or self._left()
                self._row = row
                yield self
                if row.state in ENDED:
                    return
        finally:
            end()

    async def awatch(self) -> AsyncIterator[Job[R]]:
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[JobRow | None] = asyncio.Queue()

        def hear(row: JobRow | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no reader left
                loop.call_soon_threadsafe(heard.put_nowait, row)

        end = self._client.waiting(self._store).watch(self.id, hear)
        try:
            while True:
                row = await heard.get() or await self._client.in_thread(self._left)
                self._row = row
                yield self
                if row.state in ENDED:
                    return
        finally:
            end()

    def stream(self, name: str, *, after: str | None = None) -> Iterator[StreamItem]:
        """Yield the items that the job writes with ``ctx.stream(name)``, in order, until the job ends.

        Earlier items come first, so a late reader misses nothing. ``after`` is the ``id`` of an item, and resumes after it. A job that
        runs again begins its stream again: ``item.execution`` rises and ``item.index`` is 1.
        """
        return read_stream(self._stream_source(name), after)

    async def astream(self, name: str, *, after: str | None = None) -> AsyncIterator[StreamItem]:
        """Yield the items of a stream like ``stream``, for ``async for``."""
        async with contextlib.aclosing(aread_stream(self._stream_source(name), after)) as items:
            async for item in items:
                yield item

    def _stream_source(self, name: str) -> StreamSource:
        check_stream_name(name)
        return StreamSource(self._client, self._store, self.id, self.tenant, name)

    def streams(self) -> dict[str, int]:
        """Return the names of the job's streams, each with its number of items."""
        found = self._client.store(self._store).stream_names(self.id, tenant=self.tenant)
        if not found and (kept := self._kept()) is not None:
            return dict(Counter(entry.name for entry in read_streams(kept)))
        return found

    astreams = async_twin(streams)

    def on_progress(self, callback: Callable[[Job[R]], object]) -> Subscription:
        """Call ``callback`` in a client thread at each change of the job.

        The subscription ends with the job, or when it is closed. An exception in the callback is logged, and later
        changes still call it.
        """

        waiting = self._client.waiting(self._store)

        def heard(row: JobRow | None) -> None:
            try:
                if row is not None:
                    callback(Job(self._client, row, self._store))
            finally:
                if row is None or row.state in ENDED:
                    subscription.close()

        # Create the subscription before watching: for a job that has already ended, the callback closes it
        # immediately.
        subscription = Subscription(lambda: waiting.unwatch(self.id, heard))
        waiting.watch(self.id, heard)
        return subscription

    # Executions, logs and related jobs -------------------------------------------------------------------------------

    def executions(self, *, failed: bool = False) -> list[Execution]:
        """Return the attempts at the job, newest first; with ``failed`` only those that failed, timed out or crashed."""
        found = self._client.store(self._store).executions([self.id], tenant=self.tenant)
        if not found and (kept := self._kept()) is not None:
            found = read_executions(kept)
        if failed:
            found = [execution for execution in found if execution.state in FAULTS]
        return sorted(found, key=lambda execution: execution.number, reverse=True)

    aexecutions = async_twin(executions)

    def steps(self) -> list[StepView]:
        """Return the recorded steps of a durable function, by name; none if the job is archived."""
        return step_views(self._client.store(self._store).checkpoints(self.id, tenant=self.tenant))

    asteps = async_twin(steps)

    def stages(self) -> list[Stage]:
        """Return the stages of the job with their states and times, the declared ones of its task in order."""
        options = self._client.registry.get(self.task).options if self.task in self._client.registry else None
        declared = () if options is None else options.stages
        if self.archived_at is not None:
            lines = self.logs()
        else:
            page = self._client.store(self._store).logs(
                self.id, tenant=self.tenant, before=_END, limit=_STAGE_LINES
            )
            lines = [entry for _, entry in page]
        recorded = [step.name for step in self.steps()] if lines and declared else []
        return stages(lines, self.executions(), declared, recorded)

    astages = async_twin(stages)

    def logs(self, *, level: str | None = None) -> list[LogEntry]:
        """Return the job's log lines in order; with ``level``, only lines of that level and above."""
        store, levels = self._client.store(self._store), levels_from(level)
        lines: list[LogEntry] = []
        after = 0
        while page := store.logs(self.id, tenant=self.tenant, after=after, levels=levels):
            lines += [entry for _, entry in page]
            after = page[-1][0]
        if not lines and (kept := self._kept()) is not None:
            return [entry for entry in read_logs(kept) if levels is None or entry.level in levels]
        return lines

    alogs = async_twin(logs)

    def _kept(self) -> ArchivedJob | None:
        """Return the archived copy, if any; a job that has not ended is never archived."""
        if not self.ended:
            return None
        return self._client.archived(self.id, tenant=self.tenant, store=self._store)

    def children(self) -> list[Job[Any]]:
        """Return the jobs that this job enqueued, in enqueue order; those in its own store come first."""
        where = JobFilter(self.tenant, parent_id=self.id)
        found: list[Job[Any]] = []
        here = self.store_name
        for name in self._client.placement.nearest(here):
            try:
                found += self._children_in(name, where)
            except StoreUnavailable as error:
                if name == here:
                    raise
                _log.warning("children of job %s in the store %r are not listed: %s", self.id, name, error)
        return found

    def _children_in(self, name: str, where: JobFilter) -> Iterator[Job[Any]]:
        after: str | None = None
        while True:
            page = self._client.store(name).jobs(where, sort=Sort.OLDEST, limit=1000, after=after)
            yield from (Job(self._client, row, name) for row in page.items)
            if page.next is None:
                return
            after = page.next

    achildren = async_twin(children)

    def parent(self) -> Job[Any] | None:
        """Return the job that enqueued this one, if any."""
        if self.parent_id is None:
            return None
        names = self._client.placement.nearest(self.store_name)
        row, name = self._client.find_in(names, self.parent_id, tenant=self.tenant)
        return Job(self._client, row, name)

    aparent = async_twin(parent)

    # Actions ---------------------------------------------------------------------------------------------------------

    def cancel(self, reason: str | None = None, *, children: bool = False) -> Job[R]:
        """Cancel the job, or ask its worker to stop it if a worker holds it.

        With ``children``, also cancel all of its descendants in the same store: the jobs that it enqueued, the jobs
        that those enqueued, and so on. In that case the job itself may already have ended.
        """
        check_text("reason", reason)
        store, reason = self._client.store(self._store), reason or "cancelled"
        self.refresh()
        self._refuse_archived("cancel")
        if children:
            done = self if self.ended else self.cancel(reason)
            cancel_descendants(self._client, store, self._row, reason)
            return done
        if self._row.state not in HELD:
            return self._act(Action.CANCEL, reason)
        with store.transaction():
            asked = store.request_cancel([self.id], tenant=self.tenant, reason=reason)
            if asked and self._row.cancel_reason is None:  # the audit names only the first requester
                self._note("job.cancel_requested", {"status": self.status.value, "reason": reason})
        if not asked:
            return self.cancel(reason)  # the job ended or was released after it was read
        store.notify(["cancel"])
        first = self._row.cancel_reason is None
        self.refresh()
        if first:
            self._client.publish_acts("job.cancel_requested", [self._row], reason=reason)
        return self

    acancel = async_twin(cancel)

    def retry(self) -> Job[R]:
        """Give an ended job another chain of attempts."""
        return self._act(Action.RETRY, "retried manually")

    aretry = async_twin(retry)

    def run_now(self) -> Job[R]:
        """Make a job that is scheduled, or that waits for its next attempt, pending immediately."""
        return self._act(Action.RUN_NOW, "run now")

    arun_now = async_twin(run_now)

    def reschedule(self, at: datetime | Duration) -> Job[R]:
        """Move a job that has not started to another time: an aware datetime, or a duration from now."""
        store = self._client.store(self._store)
        delay = delay_until(at, self._client.pin or store.now())
        return self._act(Action.RESCHEDULE, "rescheduled", delay)

    areschedule = async_twin(reschedule)

    def change(self, *, priority: int | None = None, queue: str | None = None) -> Job[R]:
        """Change the priority or the queue, or both, of a job that is waiting to run (pending or scheduled)."""
        check_change(queue, priority)
        store = self._client.store(self._store)
        for _ in range(10):
            self.refresh()
            self._refuse_archived("change")
            if self._row.state not in CHANGEABLE:
                raise unchangeable(self._row)
            before = {"task": self.task, "queue": self.queue, "priority": self.priority}
            after = {
                "queue": self.queue if queue is None else queue,
                "priority": self.priority if priority is None else priority,
            }
            with store.transaction():
                done = change_batch(store, [self._row], queue, priority)
                if done:
                    subject, pin = f"job:{self.id}", self._client.pin
                    note(store, "job.changed", subject, self.tenant, before=before, after=after, now=pin)
            if done:
                store.notify([f"ready:{after['queue']}", "scheduled", "change"])
                return self.refresh()
        raise IllegalTransition(f"job {self.id} changes state too often; it is {self.status} now", id=self.id)

    achange = async_twin(change)

    def rerun(self) -> Job[R]:
        """Run a job that waits for review again, with all its attempts."""
        return self._act(Action.RERUN, "rerun manually")

    arerun = async_twin(rerun)

    def approve(self, comment: str | None = None) -> Job[R]:
        """Complete a job that waits for review. Its output becomes the result and must match the task's return type."""
        check_text("comment", comment)
        self._check_output()
        return self._act(Action.APPROVE, comment or "approved")

    aapprove = async_twin(approve)

    def reject(self, comment: str | None = None) -> Job[R]:
        """Fail a job that waits for review."""
        check_text("comment", comment)
        return self._act(Action.REJECT, comment or "rejected")

    areject = async_twin(reject)

    def delete(self) -> None:
        """Delete an ended job with its executions and logs."""
        self.refresh()
        self._refuse_archived("delete")
        store = self._client.store(self._store)
        with store.transaction():
            if not store.delete([self.id], tenant=self.tenant):
                why = (
                    "its flow, or a job that needs it, has not ended"
                    if self.ended
                    else f"it is {self.status}"
                )
                raise IllegalTransition(f"cannot delete job {self.id}: {why}; cancel it first", id=self.id)
            self._note("job.deleted", None)
        self._client.publish_acts("job.deleted", [self._row])

    adelete = async_twin(delete)

    def _act(self, action: Action, reason: str, delay: timedelta = timedelta(0)) -> Job[R]:
        """Apply the action to the current state of the job, and retry if a concurrent change comes first."""
        store = self._client.store(self._store)
        for _ in range(10):
            self.refresh()
            self._refuse_archived(action.value.replace("_", " "))
            wanted = move(self._row, action, reason, delay, by=who())
            with store.transaction():
                # Move only from the state that was read, because the audit records it as the state before.
                done = store.move([replace(wanted, expect=frozenset({self._row.state}))])
                if done:
                    self._note(f"job.{WORDS[action]}", {"status": wanted.state.value, "reason": reason})
            if done:
                store.notify(["ended", "scheduled", "cascade", f"ready:{self.queue}"])
                acted = replace(self._row, state=wanted.state)
                self._client.publish_acts(f"job.{WORDS[action]}", [acted], reason=reason)
                return self.refresh()
        raise IllegalTransition(f"job {self.id} changes state too often; it is {self.status} now", id=self.id)

    def _check_output(self) -> None:
        """Reject an output that does not load as the task's result type; only older releases stored such outputs."""
        registry = self._client.registry
        found = self.refresh().row
        if found.state is not JobState.REVIEW_NEEDED or found.result is None or found.task not in registry:
            return
        try:
            registry.get(found.task).result.load(self._read(found.result), self.id)
        except BadArguments as error:
            raise BadArguments(
                f"job {self.id} cannot be approved: {error}; reject it, or run it again with rerun()",
                id=self.id,
            ) from None

    def _refuse_archived(self, verb: str) -> None:
        if self.archived_at is not None:
            raise IllegalTransition(
                f"cannot {verb} job {self.id}: it was archived {self.archived_at:%Y-%m-%d %H:%M} UTC; "
                "restore it first with app.archive.restore",
                id=self.id,
            )

    def _note(self, action: str, after: Mapping[str, object] | None) -> None:
        """Add an audit record, in the transaction of the action itself."""
        before = {"task": self.task, "status": self.status.value}
        store, pin = self._client.store(self._store), self._client.pin
        note(store, action, f"job:{self.id}", self.tenant, before=before, after=after, now=pin)


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else read_duration("timeout", timeout).total_seconds()
