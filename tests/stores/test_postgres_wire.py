"""Tests of statements sent directly through libpq, and of interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.pq import Format
from tests.servers.postgres import TestPostgres

from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.errors import JobExists, StoreBusy, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.values import single

PATIENCE = 30.0
EVERY = JobFilter(ALL_TENANTS)
WAITING = "from pg_stat_activity where application_name = 'interrupted' and wait_event_type = 'Lock'"

VALUES: list[tuple[str, Any]] = [
    ("uuid", new_id()),
    ("uuid", UUID(int=0)),
    ("text", "żółć 🐟"),
    ("text", ""),
    ("int2", -32768),
    ("int4", 2**31 - 1),
    ("int8", -(2**63)),
    ("float8", 0.1),
    ("bool", True),
    ("bool", False),
    ("timestamptz", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamptz", datetime(2031, 7, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    ("interval", timedelta(days=400, microseconds=1)),
    ("interval", -timedelta(seconds=1)),
    ("texts", ["a", None, "ö"]),
    ("texts", []),
    ("uuids", [new_id(), new_id()]),
    ("int2s", [1, -1]),
    ("int4s", [1, None]),
    ("int8s", [2**40]),
]


@pytest.fixture(scope="module")
def url(postgres: TestPostgres) -> Iterator[str]:
    """Create a migrated database for this module."""
    name = f"wire_{new_id().hex[-12:]}"
    url = postgres.create_database(name)
    store = open_store(url)
    store.migrate()
    store.close()
    yield url
    postgres.drop_database(name)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(f"{url}?pool=1&lock_timeout=60&statement_timeout=60&application_name=interrupted")
    store.check()
    yield store
    store.close()


def put(store: Store) -> None:
    store.enqueue([NewJob(new_id(), "t")])


def prepared(store: Store) -> list[tuple[str, str]]:
    with store._db._pool.connection() as connection:  # type: ignore[attr-defined]
        statements: list[tuple[str, str]] = connection.execute(
            "select name, statement from pg_prepared_statements order by name"
        ).fetchall()
    return statements


def backend(store: Store) -> int:
    with store._db._pool.connection() as connection:  # type: ignore[attr-defined]
        return int(connection.info.backend_pid)


# ------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_single_value_is_received_unchanged(url: str, kind: str, value: Any) -> None:
    oid, pack = single(kind)
    with psycopg.connect(url, options="-c timezone=UTC") as connection:
        result = connection.pgconn.exec_params(
            b"select $1", [pack(value)], [oid], [Format.BINARY], Format.BINARY
        )
        reader = psycopg.adapt.Transformer(connection)
        reader.set_pgresult(result)
        assert reader.load_rows(0, result.ntuples, tuple) == [(value,)]


def test_a_statement_is_prepared_once_per_connection_despite_rollbacks(
    store: Store,
) -> None:
    for _ in range(3):
        store.leases()
    before = prepared(store)
    assert len([text for _, text in before if "tidemill.leases" in text]) == 1

    def undone() -> None:
        with store.transaction():
            store.leases()
            raise LookupError

    with pytest.raises(LookupError):
        undone()
    store.leases()
    assert prepared(store) == before


def test_a_batch_larger_than_every_buffer_is_stored(store: Store) -> None:
    large = [NewJob(new_id(), "large", args=f'"{"x" * 250_000}"') for _ in range(100)]
    store.enqueue(large)
    stored = store.get([job.id for job in large], tenant=ALL_TENANTS)
    assert {job.id: job.args for job in stored} == {job.id: job.args for job in large}


@pytest.mark.parametrize(
    "job",
    [
        NewJob(new_id(), "t", args='"\0"'),
        NewJob(new_id(), "t", args='"\ud800"'),
        NewJob(new_id(), "t", timeout=timedelta.max),
    ],
    ids=["nul", "surrogate", "span"],
)
def test_a_value_the_server_cannot_store_is_refused_on_the_same_connection(store: Store, job: NewJob) -> None:
    before = backend(store)
    with pytest.raises(UsageError, match="cannot be stored"):
        store.enqueue([job])
    with pytest.raises(UsageError, match="cannot be stored"), store.transaction():
        store.enqueue([job])
    assert backend(store) == before


def test_a_filter_the_server_cannot_represent_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        store.request_cancel([new_id()], tenant=ALL_TENANTS, reason="\ud800")
    with pytest.raises(UsageError, match="cannot be stored"):
        store.logs(new_id(), tenant=ALL_TENANTS, after=2**70)


def test_an_existing_job_is_named_and_the_transaction_continues(store: Store) -> None:
    job, other = NewJob(new_id(), "t"), NewJob(new_id(), "t")
    store.enqueue([job])
    with store.transaction():
        with pytest.raises(JobExists) as refused:
            store.enqueue([job])
        store.enqueue([other])
    assert refused.value.details["ids"] == {job.id}
    assert [row.id for row in store.get([other.id], tenant=ALL_TENANTS)] == [other.id]


# ------------------------------------------------------------------------------------------------- interrupts


@pytest.fixture
def interrupted_while_waiting(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Lock a table, and press Ctrl-C as soon as a statement of the store waits for it."""
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as watcher:
        holder.execute("lock table tidemill.ready in access exclusive mode")

        def press() -> None:
            deadline = time.monotonic() + PATIENCE
            while not watcher.execute(f"select 1 {WAITING}".encode()).fetchall():
                if time.monotonic() > deadline:
                    return
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        finger = threading.Thread(target=press)
        finger.start()
        yield holder
        finger.join()


def free(url: str) -> bool:
    """Return whether the store soon has no waiting statement."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(url, autocommit=True) as watcher:
        while watcher.execute(f"select 1 {WAITING}".encode()).fetchall():
            if time.monotonic() > deadline:
                return False
    return True


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
def test_ctrl_c_cancels_a_statement_on_client_and_server(
    url: str, store: Store, interrupted_while_waiting: psycopg.Connection[Any]
) -> None:
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        put(store)
    assert time.monotonic() - begun < PATIENCE
    assert free(url)
    interrupted_while_waiting.rollback()
    put(store)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signal.pthread_kill")
def test_ctrl_c_in_a_transaction_rolls_it_back(
    url: str, store: Store, interrupted_while_waiting: psycopg.Connection[Any]
) -> None:
    token = str(new_id())

    def both() -> None:
        with store.transaction():
            store.acquire(token, new_id(), ttl=timedelta(days=1))
            put(store)

    with pytest.raises(KeyboardInterrupt):
        both()
    assert free(url)
    interrupted_while_waiting.rollback()
    assert token not in {lease.name for lease in store.leases()}


# ------------------------------------------------------------------------------------ rows arrive before the commit


@pytest.fixture
def at_commit(url: str) -> Iterator[Callable[[str], None]]:
    """Run SQL at the commit of a transaction that made a job pending, after its rows were sent."""
    with psycopg.connect(url, autocommit=True) as admin:

        def then(act: str) -> None:
            admin.execute(
                f"create function at_commit() returns trigger language plpgsql as $$ begin {act}; return null; end $$"
            )
            admin.execute(
                "create constraint trigger at_commit after insert on tidemill.ready deferrable initially deferred"
                " for each row execute function at_commit()"
            )

        yield then
        admin.execute("drop function at_commit() cascade")


ENDS = {
    "the connection ends": ("perform pg_terminate_backend(pg_backend_pid())", StoreUnavailable),
    "the commit fails": ("raise exception 'no' using errcode = 'serialization_failure'", StoreBusy),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_failed_commit_is_not_reported_as_success(
    store: Store, at_commit: Callable[[str], None], end: str, jobs: int
) -> None:
    act, error = ENDS[end]
    before = store.count(EVERY)
    at_commit(act)
    with pytest.raises(error):
        store.enqueue([NewJob(new_id(), "t") for _ in range(jobs)])
    assert store.count(EVERY) == before


def test_a_claim_with_a_failed_commit_returns_nothing(store: Store, url: str) -> None:
    worker = store.register(Worker(new_id(), "w"), lease=timedelta(hours=1))
    put(store)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "create function at_commit() returns trigger language plpgsql as"
            " $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$"
        )
        admin.execute(
            "create constraint trigger at_commit after insert on tidemill.running deferrable initially deferred"
            " for each row execute function at_commit()"
        )
        try:
            with pytest.raises(StoreUnavailable):
                store.claim(ClaimRequest(worker.id, store.lanes(), 10))
        finally:
            admin.execute("drop function at_commit() cascade")
    assert store.held(worker.id) == []
    assert len(store.claim(ClaimRequest(worker.id, store.lanes(), 1))) == 1


def test_a_failing_iterator_of_jobs_keeps_the_connection(url: str) -> None:
    """The rows that were already sent are rolled back on the same session."""
    with closing(open_store(f"{url}?pool=1")) as store:
        session = backend(store)

        def made() -> Iterator[NewJob]:
            for _ in range(500):
                yield NewJob(new_id(), "made")
            raise LookupError("no more")

        for _ in range(3):
            with pytest.raises(LookupError):
                store.enqueue(made())
        assert store.count(JobFilter(ALL_TENANTS, tasks=frozenset({"made"}))) == {}
        assert backend(store) == session
        jobs = [NewJob(new_id(), "made") for _ in range(500)]
        store.enqueue(iter(jobs))
        with pytest.raises(JobExists):
            store.enqueue(iter([*(NewJob(new_id(), "made") for _ in range(500)), jobs[0]]))
        assert sum(store.count(JobFilter(ALL_TENANTS, tasks=frozenset({"made"}))).values()) == 500
        assert backend(store) == session


def test_an_invalid_job_of_an_iterator_rolls_back_the_enqueue(url: str) -> None:
    with closing(open_store(f"{url}?pool=1")) as store:
        session = backend(store)
        # Exceeds the size limit of an index row.
        too_long = "".join(new_id().hex for _ in range(500))
        jobs = [NewJob(new_id(), "wrong", queue=too_long) for _ in range(1000)]
        with pytest.raises(UsageError, match="nothing was changed"):
            store.enqueue(iter(jobs))
        assert store.count(JobFilter(ALL_TENANTS, tasks=frozenset({"wrong"}))) == {}
        assert backend(store) == session
