"""A job in the user's hand: its last known facts, and everything one can ask of it, in both colours.

A handle remembers what it saw; ``refresh`` looks again. Every method that asks the store has a twin that is awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from tidemill.client.acting import note
from tidemill.client.facts import Known
from tidemill.domain.bounds import check_text
from tidemill.domain.decide import Action, move
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import Execution, LogEntry
from tidemill.domain.job import Job as Facts
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import IllegalTransition, JobCancelled, JobFailed, JobNotFound, WaitTimeout
from tidemill.tasks.events import Subscription

R = TypeVar("R")

WAIT = 1800.0
"""Seconds ``result`` waits unless told otherwise."""

WORDS = {
    Action.CANCEL: "cancelled",
    Action.RETRY: "retried",
    Action.APPROVE: "approved",
    Action.REJECT: "rejected",
}
"""What the audit says a person did."""


class Job(Known[R]):
    """One request to run a task, wherever it is now."""

    # Looking and waiting ---------------------------------------------------------------------------------------------

    def refresh(self) -> Job[R]:
        """Look again; the same handle, with what is true now."""
        self._facts = self._client.get(self.id, tenant=self.tenant, store=self._store)
        return self

    async def arefresh(self) -> Job[R]:
        found: Job[R] = await self._client.in_thread(self.refresh)
        return found

    def result(self, timeout: float | timedelta | None = WAIT) -> R:
        """What the task returned, once it has; raises JobFailed, JobCancelled or WaitTimeout."""
        ended, end = self._ending()
        try:
            facts = ended.result(_seconds(timeout))
        except FutureTimeout:
            raise self._late(timeout) from None
        finally:
            end()
        return self._conclude(facts)

    async def aresult(self, timeout: float | timedelta | None = WAIT) -> R:  # noqa: ASYNC109  (as its twin)
        ended, end = self._ending()
        try:
            async with asyncio.timeout(_seconds(timeout)):
                facts = await asyncio.wrap_future(ended)
        except TimeoutError:
            raise self._late(timeout) from None
        finally:
            end()
        return self._conclude(facts)

    def __await__(self) -> Generator[Any, None, R]:
        return self.aresult().__await__()

    def _late(self, timeout: float | timedelta | None) -> WaitTimeout:
        return WaitTimeout(
            f"job {self.id} is still {self._facts.state} after {_seconds(timeout)} seconds", id=self.id
        )

    def _ending(self) -> tuple[Future[Facts | None], Callable[[], None]]:
        """A future of this job's end."""
        future: Future[Facts | None] = Future()
        if self.ended:
            future.set_result(self._facts)
            return future, lambda: None

        def heard(facts: Facts | None) -> None:
            if facts is not None:
                self._facts = facts
            if (facts is None or facts.state in ENDED) and not future.done():
                future.set_result(facts)

        return future, self._client.waiting(self._store).watch(self.id, heard)

    def _conclude(self, facts: Facts | None) -> R:
        if facts is None:
            raise JobNotFound(f"job {self.id} is gone: it was deleted or archived", id=self.id)
        self._facts = facts
        if facts.state is JobState.COMPLETED:
            value: R = self._decoded()
            return value
        why = facts.reason or facts.state
        if facts.state is JobState.CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled: {why}", id=self.id, reason=facts.reason)
        raise JobFailed(
            f"job {self.id} of task {self.task} {facts.state}: {why}",
            id=self.id,
            state=facts.state,
            error=facts.error,
        )

    def watch(self) -> Iterator[Job[R]]:
        """The job each time it has moved, until it has ended."""
        heard: queue.SimpleQueue[Facts | None] = queue.SimpleQueue()
        end = self._client.waiting(self._store).watch(self.id, heard.put)
        try:
            while True:
                facts = heard.get()
                if facts is None:
                    raise JobNotFound(f"job {self.id} is gone: it was deleted or archived", id=self.id)
                self._facts = facts
                yield self
                if facts.state in ENDED:
                    return
        finally:
            end()

    async def awatch(self) -> AsyncIterator[Job[R]]:
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[Facts | None] = asyncio.Queue()

        def hear(facts: Facts | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody reads any more
                loop.call_soon_threadsafe(heard.put_nowait, facts)

        end = self._client.waiting(self._store).watch(self.id, hear)
        try:
            while True:
                facts = await heard.get()
                if facts is None:
                    raise JobNotFound(f"job {self.id} is gone: it was deleted or archived", id=self.id)
                self._facts = facts
                yield self
                if facts.state in ENDED:
                    return
        finally:
            end()

    def on_progress(self, callback: Callable[[Job[R]], object]) -> Subscription:
        """Call back, in a thread of ours, each time the job has moved; ends with the job, or when it is closed.

        A callback that raises is logged, and called again the next time.
        """

        waiting = self._client.waiting(self._store)

        def heard(facts: Facts | None) -> None:
            try:
                if facts is not None:
                    callback(Job(self._client, facts, self._store))
            finally:
                if facts is None or facts.state in ENDED:
                    subscription.close()

        # Made before anything can be heard: a job that has ended is told of, and closes it, at once.
        subscription = Subscription(lambda: waiting.unwatch(self.id, heard))
        waiting.watch(self.id, heard)
        return subscription

    # What is written about it ----------------------------------------------------------------------------------------

    def executions(self) -> list[Execution]:
        """Every attempt at it, the newest first."""
        found = self._client.store(self._store).executions([self.id], tenant=self.tenant)
        return sorted(found, key=lambda execution: execution.number, reverse=True)

    async def aexecutions(self) -> list[Execution]:
        found: list[Execution] = await self._client.in_thread(self.executions)
        return found

    def logs(self) -> list[LogEntry]:
        """What it logged, in order."""
        lines: list[LogEntry] = []
        after = 0
        while page := self._client.store(self._store).logs(self.id, tenant=self.tenant, after=after):
            lines += [entry for _, entry in page]
            after = page[-1][0]
        return lines

    async def alogs(self) -> list[LogEntry]:
        found: list[LogEntry] = await self._client.in_thread(self.logs)
        return found

    def children(self) -> list[Job[Any]]:
        """The jobs that were enqueued from it, in the order they were."""
        where = JobFilter(self.tenant, parent_id=self.id)
        found: list[Job[Any]] = []
        after: str | None = None
        while True:
            page = self._client.store(self._store).jobs(where, sort=Sort.OLDEST, limit=1000, after=after)
            found += [Job(self._client, facts, self._store) for facts in page.items]
            if page.next is None:
                return found
            after = page.next

    async def achildren(self) -> list[Job[Any]]:
        found: list[Job[Any]] = await self._client.in_thread(self.children)
        return found

    def parent(self) -> Job[Any] | None:
        """The job it was enqueued from, if any."""
        if self.parent_id is None:
            return None
        return Job(
            self._client, self._client.get(self.parent_id, tenant=self.tenant, store=self._store), self._store
        )

    async def aparent(self) -> Job[Any] | None:
        found: Job[Any] | None = await self._client.in_thread(self.parent)
        return found

    # What one can do with it -----------------------------------------------------------------------------------------

    def cancel(self, reason: str | None = None) -> Job[R]:
        """End it if nobody holds it; ask its worker to stop it otherwise."""
        check_text("reason", reason)
        store, said = self._client.store(self._store), reason or "cancelled"
        self.refresh()
        if self._facts.state not in HELD:
            return self._act(Action.CANCEL, said)
        with store.transaction():
            asked = store.request_cancel([self.id], tenant=self.tenant, reason=said)
            if asked and self._facts.cancel_reason is None:  # the first to ask is the one who did it
                self._note("job.cancel_requested", {"status": self.status.value, "reason": said})
        if not asked:
            return self.cancel(reason)  # it has ended or gone back meanwhile
        store.notify(["cancel"])
        return self.refresh()

    async def acancel(self, reason: str | None = None) -> Job[R]:
        found: Job[R] = await self._client.in_thread(self.cancel, reason)
        return found

    def retry(self) -> Job[R]:
        """Give an ended job another chain of attempts."""
        return self._act(Action.RETRY, "retried by hand")

    async def aretry(self) -> Job[R]:
        found: Job[R] = await self._client.in_thread(self.retry)
        return found

    def approve(self, comment: str | None = None) -> Job[R]:
        """Complete a job that waits for a person."""
        check_text("comment", comment)
        return self._act(Action.APPROVE, comment or "approved")

    async def aapprove(self, comment: str | None = None) -> Job[R]:
        found: Job[R] = await self._client.in_thread(self.approve, comment)
        return found

    def reject(self, comment: str | None = None) -> Job[R]:
        """Fail a job that waits for a person."""
        check_text("comment", comment)
        return self._act(Action.REJECT, comment or "rejected")

    async def areject(self, comment: str | None = None) -> Job[R]:
        found: Job[R] = await self._client.in_thread(self.reject, comment)
        return found

    def delete(self) -> None:
        """Remove an ended job with all that was written about it."""
        self.refresh()
        store = self._client.store(self._store)
        with store.transaction():
            if not store.delete([self.id], tenant=self.tenant):
                raise IllegalTransition(
                    f"cannot delete job {self.id}: it is {self.status}; cancel it first", id=self.id
                )
            self._note("job.deleted", None)

    async def adelete(self) -> None:
        await self._client.in_thread(self.delete)

    def _act(self, action: Action, reason: str) -> Job[R]:
        """Do it to the job as it is now; who else acts meanwhile wins or loses, never both."""
        store = self._client.store(self._store)
        for _ in range(10):
            self.refresh()
            wanted = move(self._facts, action, reason)
            with store.transaction():
                # Only from the very state that was seen: the audit says what it was.
                done = store.move([replace(wanted, expect=frozenset({self._facts.state}))])
                if done:
                    self._note(f"job.{WORDS[action]}", {"status": wanted.state.value, "reason": reason})
            if done:
                store.notify(["ended", f"ready:{self.queue}"])
                return self.refresh()
        raise IllegalTransition(f"job {self.id} does not stand still; it is {self.status} now", id=self.id)

    def _note(self, action: str, after: Mapping[str, object] | None) -> None:
        """Write down what was done to it, in the transaction that does it."""
        before = {"task": self.task, "status": self.status.value}
        store, pin = self._client.store(self._store), self._client.pin
        note(store, action, f"job:{self.id}", self.tenant, before=before, after=after, now=pin)


def _seconds(timeout: float | timedelta | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
