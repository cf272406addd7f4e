"""Sans-I/O protocol between the store's methods and a user's connection.

A protocol (``Talk``) is a generator. It yields statements for the user's connection (``UserStatement``) and store calls that may
block (``StoreCall``), and receives their results. One implementation therefore serves synchronous and asynchronous
connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from tidemill.client.access import enqueued_entries
from tidemill.domain.flow_plan import FlowPlan
from tidemill.domain.graph import Started, StepRecord
from tidemill.domain.job import Enqueued, Finish, LogEntry, NewJob, ProgressReport
from tidemill.domain.large_values import SpilledText
from tidemill.domain.records import AuditEntry
from tidemill.domain.signals import NewSignal, Posted
from tidemill.domain.streams import StreamEntry
from tidemill.domain.subscriptions import StoredSubscription
from tidemill.errors import UsageError
from tidemill.stores.large_values import store_job_value, store_value
from tidemill.stores.sql.blobs import SqlBlobs
from tidemill.stores.sql.driver import Driver, Items, QueryCall, Row, Takes
from tidemill.stores.sql.flows import SqlFlows
from tidemill.stores.sql.lifecycle import SqlLifecycle
from tidemill.stores.sql.records import SqlRecords
from tidemill.stores.sql.signals import write_signals
from tidemill.stores.sql.steps import SqlSteps
from tidemill.stores.sql.store import SqlStore
from tidemill.stores.sql.streams import SqlStreams

T = TypeVar("T")


class UserStatement(NamedTuple):
    """One statement for the user's connection, in that connection's parameter style."""

    sql: str
    values: Any = ()
    many: bool = False  #: whether ``values`` is a list of rows
    gives: bool = True  #: whether the statement may return rows


class StoreCall(NamedTuple):
    """A call to the store, outside the user's transaction."""

    call: Callable[[], Any]


Talk = Generator[UserStatement | StoreCall, Any, T]


class Adapter(Protocol):
    """The interface that all adapters of users' connections share."""

    @property
    def dialect(self) -> str:
        """``postgres`` or ``sqlite``."""
        ...

    @property
    def style(self) -> str:
        """The parameter style: packed, named or numbered (PostgreSQL); marks or percents (SQLite)."""
        ...

    @property
    def key(self) -> object:
        """The physical connection, as the cache key for the database that it leads to."""
        ...

    def ready(self) -> None:
        """Raise, unless a transaction is open or opens with the first write."""
        ...


class SyncAdapter(Adapter, Protocol):
    """A synchronous adapter."""

    def execute(self, line: UserStatement) -> list[Row]: ...


class AsyncAdapter(Adapter, Protocol):
    """An asynchronous adapter."""

    def execute(self, line: UserStatement) -> Awaitable[list[Row]]: ...


def drive(talk: Talk[T], host: SyncAdapter) -> T:
    """Run a protocol on a synchronous connection."""
    try:
        step = next(talk)
        while True:
            try:
                answer = step.call() if isinstance(step, StoreCall) else host.execute(step)
            except BaseException as error:  # noqa: BLE001  (the generator handles or re-raises it)
                step = talk.throw(error)
            else:
                step = talk.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


async def adrive(talk: Talk[T], host: AsyncAdapter) -> T:
    """Run a protocol on an asynchronous connection; store calls run in a thread and do not block the event loop."""
    try:
        step = next(talk)
        while True:
            try:
                if isinstance(step, StoreCall):
                    answer = await asyncio.to_thread(step.call)
                else:
                    answer = await host.execute(step)
            except BaseException as error:  # noqa: BLE001  (the generator handles or re-raises it)
                step = talk.throw(error)
            else:
                step = talk.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


# The store's own methods -------------------------------------------------------------------------------------------------

Run = Callable[[QueryCall], Talk[list[Row]]]


class _NextStatement(Exception):
    def __init__(self, call: QueryCall) -> None:
        super().__init__(call.name)
        self.call = call


class _RecordedAnswers:
    """A stand-in for a driver that returns recorded results, and raises ``_NextStatement`` at the first one that is missing."""

    def __init__(self, answers: Sequence[list[Row]]) -> None:
        self._answers = iter(answers)

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        for answer in self._answers:
            return answer
        raise _NextStatement(QueryCall(name, takes or {}, items or {}, tuple(flags)))

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()  # the user's own transaction surrounds everything


class Replay(SqlLifecycle, SqlFlows, SqlRecords, SqlBlobs, SqlSteps, SqlStreams):
    """The SQL store's own methods, as far as they need only ``run`` and ``transaction`` of a driver."""

    def __init__(
        self, answers: Sequence[list[Row]], subscriptions: tuple[StoredSubscription, ...] = ()
    ) -> None:
        self.subscriptions = subscriptions
        self._db = self.driver = cast(Driver, _RecordedAnswers(answers))
        self.notified: set[str] = set()  #: topics to notify when the user's transaction commits

    def notify(self, topics: Iterable[str]) -> None:
        self.notified.update(topics)


class ConnectionWrite(Generic[T]):
    """A write on the user's connection, expressed in the store's own methods."""

    tables: tuple[str, ...] = ()  #: temporary tables that these methods use on SQLite

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs  #: the jobs to insert

    @property
    def in_rounds(self) -> bool:
        """Whether a batch may be given up after its first statement, so that it needs a savepoint."""
        return len(self.jobs) > 1 and any(job.unique is not None for job in self.jobs)

    def before(self, dialect: str) -> Talk[None]:
        """Run steps that must happen before the write, outside the user's transaction."""
        yield from ()

    def act(self, rehearsal: Replay, now: datetime | None) -> T:
        """Call the store's methods; called again after each result, and must make the same calls each time."""
        raise NotImplementedError

    def topics(self, answer: T) -> frozenset[str]:
        """Return the topics to notify when the user's transaction commits."""
        raise NotImplementedError


Acted = tuple[T, set[str]]
"""The result of a write, and the topics that the store's methods notified."""


def rehearsed(
    work: ConnectionWrite[T],
    now: datetime | None,
    run: Run,
    subscriptions: tuple[StoredSubscription, ...] = (),
) -> Talk[Acted[T]]:
    """Run the store's methods through ``run`` by replaying them with the results so far, once for each new result."""
    answers: list[list[Row]] = []
    while True:
        rehearsal = Replay(answers, subscriptions)
        try:
            return work.act(rehearsal, now), rehearsal.notified
        except _NextStatement as asks:
            call = asks.call
        answers.append((yield from run(call)))


class UnwrittenOutput(Protocol):
    """A copy of the output of the running job that the worker has not written yet."""

    @property
    def lines(self) -> Sequence[LogEntry]: ...

    @property
    def reports(self) -> Sequence[ProgressReport]: ...

    @property
    def items(self) -> Sequence[StreamEntry]: ...


class PendingOutput(Protocol):
    """Log lines, progress and stream items of the running job that the worker has not written yet."""

    def flush(self) -> None:
        """Write them now, outside the user's transaction."""

    def unwritten(self) -> UnwrittenOutput:
        """Return a copy of them."""


_COUNT_TABLES = ("tidemill_due", "tidemill_reopened")
"""Temporary tables of the statements that count ends."""


class EnqueueWrite(ConnectionWrite[list[Enqueued]]):
    """Enqueues new jobs, with an audit entry if ``by`` is given."""

    tables = ("tidemill_item_enqueue", "tidemill_holders")

    def __init__(self, jobs: Sequence[NewJob], by: str | None) -> None:
        super().__init__(jobs)
        self._by = by

    def act(self, rehearsal: Replay, now: datetime | None) -> list[Enqueued]:
        written = rehearsal.enqueue(self.jobs, now=now)
        for job, enqueued in zip(self.jobs, written, strict=True):
            if enqueued.created:
                store_job_value(rehearsal, job, now=now)
        if self._by is not None:
            rehearsal.record(enqueued_entries(self.jobs, written, self._by), now=now)
        return written

    def topics(self, answer: list[Enqueued]) -> frozenset[str]:
        return frozenset(
            f"ready:{job.queue}" for job, enqueued in zip(self.jobs, answer, strict=True) if enqueued.created
        )


class StartWrite(ConnectionWrite[Started]):
    """Starts a flow."""

    tables = (*EnqueueWrite.tables, *_COUNT_TABLES)

    def __init__(self, made: FlowPlan, entries: Sequence[AuditEntry]) -> None:
        super().__init__(made.jobs)
        self._made, self._entries = made, entries

    @property
    def in_rounds(self) -> bool:
        return True

    def act(self, rehearsal: Replay, now: datetime | None) -> Started:
        made = self._made
        started = rehearsal.start_flow(made.groups, made.jobs, made.edges, made.joins, now=now)
        if started.created:
            for job in made.jobs:
                store_job_value(rehearsal, job, now=now)
            rehearsal.record(self._entries, now=now)
        return started

    def topics(self, answer: Started) -> frozenset[str]:
        return frozenset(f"ready:{job.queue}" for job in self.jobs if answer.created and job.waiting is None)


class CompletionWrite(ConnectionWrite[bool]):
    """Completes a held job, with its log lines and follow-up jobs; the result is False if the job is no longer held."""

    tables = (
        *EnqueueWrite.tables,
        *_COUNT_TABLES,
        "tidemill_item_finish",
        "tidemill_gone",
        "tidemill_held",
        "tidemill_keyed",
        "tidemill_lost",
    )

    def __init__(self, finish: Finish, words: PendingOutput) -> None:
        super().__init__(finish.then)
        self._finish, self._words = finish, words
        self._unwritten: UnwrittenOutput | None = None

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
        if self._unwritten is not None:
            rehearsal.log(self._unwritten.lines)
            rehearsal.report(self._unwritten.reports, now=now)
            rehearsal.write_streams(self._unwritten.items)
        lost = rehearsal.finish([self._finish], now=now)
        value = self._finish.result
        if not lost and isinstance(value, SpilledText):
            store_value(rehearsal, value, now=now)
        return not lost

    def topics(self, answer: bool) -> frozenset[str]:
        if not answer:
            return frozenset()
        later = {"scheduled" if job.run_at or job.delay else f"ready:{job.queue}" for job in self.jobs}
        return frozenset({"ended", *later})


class SignalWrite(ConnectionWrite[list[Posted]]):
    """Posts a signal to a job. The leader wakes the job after the commit."""

    tables = ("tidemill_item_signal",)

    def __init__(self, signal: NewSignal) -> None:
        super().__init__(())
        self._signal = signal

    def act(self, rehearsal: Replay, now: datetime | None) -> list[Posted]:
        return write_signals(rehearsal.driver, [self._signal], now)

    def topics(self, answer: list[Posted]) -> frozenset[str]:
        return frozenset({"signals"} if Posted.ACCEPTED in answer else ())


class StepWrite(ConnectionWrite[bool]):
    """Records a step of a held job; the result is False if the job is no longer held."""

    tables = ("tidemill_lost",)

    def __init__(self, records: Sequence[StepRecord]) -> None:
        super().__init__(())
        self._records = records

    def act(self, rehearsal: Replay, now: datetime | None) -> bool:
        return not rehearsal.record_steps(self._records, now=now)

    def topics(self, answer: bool) -> frozenset[str]:
        return frozenset()


Identity = tuple[str, str]

_KNOWN: WeakKeyDictionary[object, dict[str, Identity]] = WeakKeyDictionary()
"""Cached identities of physical connections, by schema. A connection never changes its database."""


def remembered(key: object, schema: str) -> Identity | None:
    """Return the cached identity of this connection."""
    try:
        return _KNOWN.get(key, {}).get(schema)
    except TypeError:  # the object does not support weak references
        return None


def remember(key: object, schema: str, identity: Identity) -> None:
    """Cache an identity for the lifetime of the connection, if it supports weak references."""
    with suppress(TypeError):
        _KNOWN.setdefault(key, {})[schema] = identity


def same_file(one: str, other: str) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return one == other or Path(one).samefile(other)
    except OSError:
        return False


def elsewhere(store: SqlStore, place: str) -> UsageError:
    """Return the error for a connection to another database."""
    where = f" (it is to {place})" if place else ""
    return UsageError(
        f"the connection is to another database than the store {store.url}{where}; enqueue without connection=, or give a"
        " connection to the store's own database"
    )
