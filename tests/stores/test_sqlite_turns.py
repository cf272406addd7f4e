"""Tests of values, write turns, transactions and forks of the SQLite store."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.stores.sqlite_kit import EVERY, claim, driver_of, in_child, open_file, pragma, put, writer_of

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Details, Finish, NewJob
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import JobState
from tidemill.errors import JobExists, StoreBusy, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.sql.store import SqlStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    store = open_file(path, synchronous="normal")
    yield store
    store.close()


# Values ------------------------------------------------------------------------------------------------------------------


def test_a_stored_or_repeated_id_is_refused(store: SqlStore) -> None:
    (job,) = put(store)
    for jobs in ([job], [NewJob(new_id(), "work")] * 2):
        with pytest.raises(JobExists):
            store.enqueue(jobs)
    assert store.count(EVERY) == {JobState.PENDING: 1}


def test_an_id_that_is_pending_and_scheduled_in_one_batch_is_refused(store: SqlStore) -> None:
    id = new_id()
    with pytest.raises(JobExists):
        store.enqueue([NewJob(id, "work"), NewJob(id, "work", delay=timedelta(hours=1))])
    assert store.count(EVERY) == {}


def test_a_job_finished_twice_in_one_batch_is_refused(store: SqlStore) -> None:
    put(store)
    (held,) = claim(store)
    with pytest.raises(UsageError, match="twice"):
        store.finish([Finish(held, COMPLETED)] * 2)
    assert store.count(EVERY) == {JobState.RUNNING: 1}


def test_values_that_cannot_be_stored_are_refused(store: SqlStore) -> None:
    for job in (NewJob(new_id(), "work", "\ud800"), NewJob(new_id(), "work", timeout=timedelta.max)):
        with pytest.raises(UsageError, match="cannot be stored"):
            store.enqueue([job])
    assert store.count(EVERY) == {}


def test_an_out_of_range_timestamp_does_not_break_reads(store: SqlStore) -> None:
    store.enqueue([NewJob(new_id(), "work", delay=timedelta(days=10_000_000))])
    (job,) = store.jobs(EVERY).items
    assert job.run_at == datetime.max.replace(tzinfo=UTC)


def test_sequence_numbers_are_not_reused_after_everything_was_claimed(path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        store = open_file(path)
        put(store, 3)
        seen += [held.seq or 0 for held in claim(store)]
        store.close()
    assert seen == sorted(set(seen))


def test_audit_rows_cannot_be_updated_or_deleted(store: SqlStore) -> None:
    store.record([AuditEntry("ada", "job.cancel", "job", "default")])
    writer = writer_of(store)
    for sql in (
        "update tidemill_audit set who = 'bob'",
        "delete from tidemill_audit",
        "insert or replace into tidemill_audit select number, at, tenant, 'bob', action, subject, before, after, hash from tidemill_audit",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            writer.execute(sql)


def test_a_detail_may_be_any_text(store: SqlStore) -> None:
    text = "🦊 \x01 \" ' \\ %s :now \u2028"
    details = Details(
        correlation_id=text, reference=(text, text), tags=(text,), metadata={text: [text, 1, None, True]}
    )
    job = NewJob(new_id(), "work", details=details)
    store.enqueue([job])
    assert store.get([job.id], tenant=ALL_TENANTS)[0].details == details
    assert store.count(JobFilter(ALL_TENANTS, tag=text)) == {JobState.PENDING: 1}


# Turns and transactions --------------------------------------------------------------------------------------------------


def test_a_writer_that_waits_too_long_raises_store_busy(path: Path) -> None:
    first, second = open_file(path), open_file(path, busy_timeout="0.05")
    second.check()
    with first.transaction():
        put(first)
        with pytest.raises(StoreBusy, match="nothing was changed, try again"):
            put(second)
        assert second.count(EVERY) == {}
    put(second)
    assert second.count(EVERY) == {JobState.PENDING: 2}
    first.close()
    second.close()


def test_threads_of_one_store_write_in_turn(path: Path) -> None:
    store = open_file(path, busy_timeout="0.05")
    begun, done, seen = threading.Event(), threading.Event(), list[BaseException]()

    def other() -> None:
        begun.wait()
        try:
            put(store)
        except StoreBusy as busy:
            seen.append(busy)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with store.transaction():
        put(store)
        begun.set()
        done.wait()
    thread.join()
    assert len(seen) == 1
    assert store.count(EVERY) == {JobState.PENDING: 1}
    store.close()


def test_readers_see_committed_data_during_a_write(path: Path) -> None:
    store, other = open_file(path), open_file(path)
    put(store)
    with store.transaction():
        put(store)
        assert other.count(EVERY) == {JobState.PENDING: 1}
    assert other.count(EVERY) == {JobState.PENDING: 2}
    store.close()
    other.close()


def test_a_failed_verb_is_rolled_back_within_its_transaction(store: SqlStore) -> None:
    put(store, 2)
    held = claim(store)
    with store.transaction():
        with pytest.raises(UsageError):
            store.finish([Finish(held[0], COMPLETED), Finish(held[1], COMPLETED), Finish(held[1], COMPLETED)])
        put(store)
    assert store.count(EVERY) == {JobState.RUNNING: 2, JobState.PENDING: 1}


def test_a_full_disk_in_a_transaction_keeps_the_earlier_changes(store: SqlStore) -> None:
    put(store, 3)
    writer = writer_of(store)
    with store.transaction():
        put(store, 2)
        writer.execute(f"pragma max_page_count = {pragma(writer, 'page_count')}")
        with pytest.raises(StoreUnavailable, match="is full"):
            put(store, 5000)
    writer.execute("pragma max_page_count = 1000000")
    assert store.count(EVERY) == {JobState.PENDING: 5}


def test_a_transaction_rolled_back_by_sqlite_raises_at_its_end(store: SqlStore) -> None:
    def work() -> None:
        with store.transaction():
            put(store)
            writer_of(store).execute("rollback")  # as SQLite itself does when the disk fails
            with pytest.raises(StoreUnavailable, match="has rolled back this transaction"):
                put(store)

    with pytest.raises(StoreUnavailable, match="has rolled back this transaction"):
        work()
    assert store.count(EVERY) == {}
    put(store)


# Forks -------------------------------------------------------------------------------------------------------------------


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@forks
def test_a_store_works_in_a_forked_child_and_its_parent(store: SqlStore) -> None:
    put(store, 3)

    def act() -> None:
        put(store, 4)
        claim(store, 2)
        store.close()

    assert in_child(act) == ""
    put(store, 5)
    assert store.count(EVERY) == {JobState.PENDING: 10, JobState.RUNNING: 2}
    assert pragma(writer_of(store), "integrity_check") == "ok"


@forks
def test_a_store_works_in_a_child_forked_without_hooks(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 3)
    driver = driver_of(store)
    monkeypatch.setattr("tidemill.stores.sql.sqlite.forks._watched", set())

    def act() -> None:
        driver.after_fork_in_child()
        put(store, 4)
        store.close()

    assert in_child(act) == ""
    put(store, 5)
    assert store.count(EVERY) == {JobState.PENDING: 12}


@forks
def test_a_child_forked_in_a_transaction_gets_an_error(store: SqlStore) -> None:
    with store.transaction():
        put(store, 3)
        message = in_child(lambda: put(store))
    assert message.startswith("StoreUnavailable: this process was forked in the middle of a transaction")
    assert store.count(EVERY) == {JobState.PENDING: 3}
