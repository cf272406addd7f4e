"""The signal part of the store contract: signals to jobs, events, and what suspended jobs wait for.

Law 27. **A signal is accepted once per key**, also after it was taken, and **taken once**, with the record of the step that took
it. It is kept until then, in order of acceptance, and deleted with its job. An event is stored once per id.

Law 32. **A wake-up of a suspended job is a hint.** ``wake_receivers`` may be called by anyone at any time and may wake a job early,
so the job looks again. It moves only jobs that the execution of their waits suspended. A sender calls it after its commit, and so
does the worker that suspended the job: whichever commits last sees the other's rows. No lock of a running job is taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.signals import (
    EmittedEvent,
    NewSignal,
    Posted,
    SignalFence,
    StoredSignal,
    StoredWait,
    Taken,
)


class Receiver(NamedTuple):
    """A job that was woken, and the queue in which it is pending now."""

    id: UUID
    queue: str


class Delivered(NamedTuple):
    """The answer to a signal, and the jobs that it has woken."""

    answer: Posted
    woken: list[Receiver]


class UnreadSignals(NamedTuple):
    """The number of signals that no job has taken, and when the oldest of them was accepted."""

    unread: int
    oldest_at: datetime | None


class SignalStore(ABC):
    """Signals to jobs, and the names that suspended jobs wait for. A finish that suspends a job writes its waits."""

    @abstractmethod
    def post_signals(self, signals: Sequence[NewSignal], *, now: datetime | None = None) -> list[Posted]:
        """Store signals to live jobs of their tenants. Returns the answer to each, in order.

        A key that the job has accepted before is ``REPEATED``, also if the job has ended since. A job with ``MOST_UNREAD`` unread
        signals is ``FULL``; transactions at the same time may exceed that number.
        """

    @abstractmethod
    def deliver_signal(self, signal: NewSignal, *, now: datetime | None = None) -> Delivered:
        """Store a signal like ``post_signals`` and, if it is accepted, wake its job like ``wake_receivers``, in one transaction."""

    @abstractmethod
    def take_signal(
        self,
        fence: SignalFence,
        names: Collection[str],
        record: str,
        *,
        before: datetime | None = None,
        now: datetime | None = None,
    ) -> Taken:
        """Take the oldest unread signal with one of these names, accepted at or before an instant, for a held job.

        Its record (``signal_record``) becomes the checkpoint ``record`` in the same statement. If that checkpoint exists, nothing
        is taken, and its value is returned.
        """

    @abstractmethod
    def signals(self, job_id: UUID, *, tenant: str, after: int = 0, limit: int = 100) -> list[StoredSignal]:
        """The unread signals of a job after a position, in order."""

    @abstractmethod
    def waits(self, ids: Collection[UUID], *, tenant: str) -> list[StoredWait]:
        """The names that these jobs wait for while they are suspended, by job, signals before events, and by name."""

    @abstractmethod
    def questions(self, *, tenant: str, after: UUID | None = None, limit: int = 100) -> list[StoredWait]:
        """The waits for answers of people (``domain.signals.QUESTION``) of suspended jobs, by job."""

    @abstractmethod
    def wake_receivers(
        self,
        ids: Collection[UUID] | None = None,
        *,
        event_id: UUID | None = None,
        within: timedelta | None = None,
        limit: int = 500,
        now: datetime | None = None,
    ) -> list[Receiver]:
        """Change suspended jobs to ``pending`` if a signal or event that they wait for is there. Returns them.

        It considers the given jobs, or the jobs that wait for one event, or, without both, up to ``limit`` of the jobs whose
        signal or event is not older than ``within``.
        """

    @abstractmethod
    def unread_signals(self) -> UnreadSignals:
        """The number and age of all unread signals."""


class EventStore(ABC):
    """Events: messages to a name."""

    @abstractmethod
    def emit(self, events: Sequence[EmittedEvent], *, now: datetime | None = None) -> frozenset[UUID]:
        """Store events. Returns the ids of those that were new; an id that is stored is left as it is."""

    @abstractmethod
    def events(
        self,
        *,
        tenant: str,
        name: str | None = None,
        match: str | None = None,
        since: datetime | None = None,
        before: tuple[datetime, UUID] | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> list[EmittedEvent]:
        """Events by ``created_at`` and id: the oldest first, or the ``newest`` first from before a position on."""

    @abstractmethod
    def drop_events(self, older_than: timedelta, *, limit: int, now: datetime | None = None) -> int:
        """Delete events that are older than that, the oldest first. Returns the number."""
