"""The writes on a user's connection: new jobs, completion of the running job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from tidemill.client.access.identity import enqueued_entries
from tidemill.client.own_connection.sansio import ConnectionWrite, Replay, StoreCall, Talk
from tidemill.domain.job import Enqueued, Finish, LogEntry, NewJob, ProgressReport


class PendingOutput(Protocol):
    """Log lines and progress of the running job that the worker has not written yet."""

    def flush(self) -> None:
        """Write them now, outside the user's transaction."""

    def unwritten(self) -> tuple[Sequence[LogEntry], Sequence[ProgressReport]]:
        """Return a copy of them."""


class EnqueueWrite(ConnectionWrite[list[Enqueued]]):
    """Enqueues new jobs, with an audit entry if ``by`` is given."""

    tables = ("tidemill_item_enqueue", "tidemill_holders")

    def __init__(self, jobs: Sequence[NewJob], by: str | None) -> None:
        super().__init__(jobs)
        self._by = by

    def act(self, rehearsal: Replay, now: datetime | None) -> list[Enqueued]:
        written = rehearsal.enqueue(self.jobs, now=now)
        if self._by is not None:
            rehearsal.record(enqueued_entries(self.jobs, written, self._by), now=now)
        return written

    def topics(self, answer: list[Enqueued]) -> frozenset[str]:
        return frozenset(
            f"ready:{job.queue}" for job, enqueued in zip(self.jobs, answer, strict=True) if enqueued.created
        )


class CompletionWrite(ConnectionWrite[bool]):
    """Completes a held job, with its log lines and follow-up jobs; the result is False if the job is no longer held."""

    tables = (
        *EnqueueWrite.tables,
        "tidemill_item_finish",
        "tidemill_held",
        "tidemill_keyed",
        "tidemill_lost",
    )

    def __init__(self, finish: Finish, words: PendingOutput) -> None:
        super().__init__(finish.then)
        self._finish, self._words = finish, words
        self._unwritten: tuple[Sequence[LogEntry], Sequence[ProgressReport]] = (), ()

    @property
    def in_rounds(self) -> bool:
        return True

    def before(self, dialect: str) -> Talk[None]:
        # A completed job accepts no further log lines. SQLite allows one writer at a time, which may be the user's
        # transaction, so on SQLite that transaction writes the lines. If it rolls back, the worker still has them.
        if dialect == "sqlite":
            self._unwritten = yield StoreCall(self._words.unwritten)
        else:
            yield StoreCall(self._words.flush)

    def act(self, rehearsal: Replay, now: datetime | None) -> bool:
        entries, reports = self._unwritten
        rehearsal.log(entries)
        rehearsal.report(reports, now=now)
        return not rehearsal.finish([self._finish], now=now)

    def topics(self, answer: bool) -> frozenset[str]:
        if not answer:
            return frozenset()
        later = {"scheduled" if job.run_at or job.delay else f"ready:{job.queue}" for job in self.jobs}
        return frozenset({"ended", *later})
