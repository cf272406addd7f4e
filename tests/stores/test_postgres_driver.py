"""Tests of the PostgreSQL driver: timeouts, retries, outages, forks and the pool."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.servers.postgres import TestPostgres

from tidemill import App, Secret
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import NewJob
from tidemill.errors import StoreBusy, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.tasks.secret_values import KEYS, new_key
from tidemill.testing.conformance.kit import asks

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE = 30.0
EVERY = JobFilter(ALL_TENANTS)

FORK = """
import os, sys, time
from tidemill.domain.job import NewJob
from tidemill.ids import new_id
from tidemill.stores.open import open_store

store = open_store(sys.argv[1])
driver = store._db

def backends():
    return {connection.info.backend_pid for connection in driver._pool._idle}

def chatter():  # until a message is delayed, which starts the sender thread
    while driver._coalescer._thread is None:
        store.notify(["jobs"])
    assert driver._coalescer._thread.is_alive()

store.enqueue([NewJob(new_id(), "t")])
(mine,) = backends()
chatter()
child = os.fork()
if child == 0:
    if sys.argv[2] == "use":
        store.enqueue([NewJob(new_id(), "t")])
        assert backends() and mine not in backends()
        chatter()
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
deadline = time.monotonic() + 30
while mine not in backends():  # the connection may be in use; one that the child closed never returns
    store.enqueue([NewJob(new_id(), "t")])
    assert time.monotonic() < deadline
store.close()
"""


@pytest.fixture(scope="module")
def url(postgres: TestPostgres) -> Iterator[str]:
    """Create a migrated database for this module."""
    name = f"driver_{new_id().hex[-12:]}"
    url = postgres.create_database(name)
    open_and_migrate(url)
    yield url
    postgres.drop_database(name)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(f"{url}?lock_timeout=0.2&statement_timeout=2")
    yield store
    store.close()


@pytest.fixture
def raw(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a second session; its transaction is rolled back."""
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


def open_and_migrate(url: str) -> None:
    store = open_store(url)
    store.migrate()
    store.close()


def put(store: Store, count: int = 1) -> list[Any]:
    return [answer.id for answer in store.enqueue([NewJob(new_id(), "t") for _ in range(count)])]


def take(store: Store, count: int) -> list[Any]:
    return store.claim(asks(store, new_id(), store.lanes(), count))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline


def one(connection: psycopg.Connection[Any], ask: str) -> Any:
    row = connection.execute(ask.encode()).fetchone()
    return None if row is None else row[0]


# ------------------------------------------------------------------------------------------- timeouts and retries


def test_every_connection_has_the_configured_timeouts_and_plan_mode(store: Store) -> None:
    store.check()
    with store._db._pool.connection() as connection:  # type: ignore[attr-defined]
        shown = {
            name: one(connection, f"show {name}")
            for name in ("statement_timeout", "lock_timeout", "plan_cache_mode", "enable_seqscan", "timezone")
        }
    assert shown == {
        "statement_timeout": "2s",
        "lock_timeout": "200ms",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "timezone": "UTC",
    }


def test_a_locked_table_raises_store_busy_after_the_lock_timeout(
    store: Store, raw: psycopg.Connection[Any]
) -> None:
    before = store.count(EVERY)
    raw.execute("lock table tidemill.ready in access exclusive mode")
    with within(PATIENCE), pytest.raises(StoreBusy, match=r"lock timeout.*nothing was changed, try again"):
        put(store)
    raw.rollback()
    assert store.count(EVERY) == before
    put(store)


def test_a_locked_row_raises_store_busy_and_rolls_back_the_batch(
    store: Store, raw: psycopg.Connection[Any]
) -> None:
    put(store, 2)
    first, second = take(store, 2)
    raw.execute("select from tidemill.running where id = %s for update", (second.id,))
    with pytest.raises(StoreBusy, match="lock timeout"):
        store.request_cancel([first.id, second.id], tenant=ALL_TENANTS, reason="stop")
    raw.rollback()
    assert {job.cancel_reason for job in store.get([first.id, second.id], tenant=ALL_TENANTS)} == {None}


def test_a_statement_beyond_its_timeout_is_cancelled(url: str, raw: psycopg.Connection[Any]) -> None:
    store = open_store(f"{url}?statement_timeout=0.2&lock_timeout=60")
    store.check()
    raw.execute("lock table tidemill.ready in access exclusive mode")
    with within(PATIENCE), pytest.raises(StoreBusy, match="statement timeout"):
        store.lanes()
    store.close()


def test_a_deadlock_is_retried(url: str, raw: psycopg.Connection[Any]) -> None:
    store = open_store(f"{url}?lock_timeout=30")
    put(store, 2)
    first, second = sorted(claim.id for claim in take(store, 2))
    # The other session never aborts, so the store's session does.
    raw.execute("set deadlock_timeout = '1h'")
    lock = "select from tidemill.running where id = %s for update"
    raw.execute(lock, (second,))
    with psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(2) as pool:
        cancelled = pool.submit(store.request_cancel, [first, second], tenant=ALL_TENANTS, reason="stop")
        waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        wait_until(lambda: bool(one(watcher, waits)))
        crossed = pool.submit(raw.execute, lock, (first,))
        # Returns when the store has released the row.
        crossed.result(timeout=PATIENCE)
        raw.commit()
        assert cancelled.result(timeout=PATIENCE) == {first, second}
        deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
        wait_until(lambda: bool(one(watcher, deadlocks)))
    store.close()


def test_a_deadlock_of_a_rotation_is_retried(
    url: str, raw: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key("k1"), new_key("k2")
    monkeypatch.setenv(KEYS, old)
    with closing(App(f"{url}?lock_timeout=30")) as app:

        @app.task
        def pay(card: Secret[str]) -> None: ...

        first, second = sorted(pay.enqueue(card=Secret(f"{number}")).id for number in range(2))
        monkeypatch.setenv(KEYS, f"{new},{old}")
        # The other session never aborts, so the rotation does.
        raw.execute("set deadlock_timeout = '1h'")
        lock = "select from tidemill.ready where id = %s for update"
        raw.execute(lock, (second,))
        with psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(2) as pool:
            rotated = pool.submit(app.secrets.rotate)
            waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            wait_until(lambda: bool(one(watcher, waits)))
            crossed = pool.submit(raw.execute, lock, (first,))
            crossed.result(timeout=PATIENCE)
            raw.commit()
            assert rotated.result(timeout=PATIENCE).resealed >= 2
            deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
            wait_until(lambda: bool(one(watcher, deadlocks)))
        app.testing().drain()
        assert {app.jobs.get(id).status for id in (first, second)} == {"completed"}


def test_a_transaction_with_a_failed_verb_raises_at_its_end(
    store: Store, raw: psycopg.Connection[Any]
) -> None:
    store.check()
    raw.execute("lock table tidemill.ready in access exclusive mode")
    token = str(new_id())

    def swallow() -> None:
        with store.transaction():
            store.acquire(token, new_id(), ttl=timedelta(days=1))
            with pytest.raises(StoreBusy, match="lock timeout"):
                put(store)

    with pytest.raises(StoreBusy, match="the whole transaction was rolled back"):
        swallow()
    raw.rollback()
    assert token not in {lease.name for lease in store.leases()}


def test_a_database_error_of_the_caller_is_not_translated(store: Store, raw: psycopg.Connection[Any]) -> None:
    token = str(new_id())

    def fail() -> None:
        with store.transaction():
            store.acquire(token, new_id(), ttl=timedelta(days=1))
            raw.execute("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        fail()
    assert token not in {lease.name for lease in store.leases()}


def test_a_text_too_long_for_an_index_is_a_usage_error(store: Store) -> None:
    name = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))
    with pytest.raises(UsageError, match=r"a value cannot be stored in .*index row.*nothing was changed"):
        store.acquire(name, new_id(), ttl=timedelta(days=1))


# --------------------------------------------------------------------------------------------- broken connections


def test_connections_ended_between_two_calls_are_replaced(store: Store, url: str) -> None:
    put(store)
    with psycopg.connect(url, autocommit=True) as raw:
        for _ in range(3):
            ended = raw.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            ).fetchall()
            assert ended
            put(store)


def test_a_connection_ended_during_a_call_fails_only_that_call(
    url: str, raw: psycopg.Connection[Any]
) -> None:
    store = open_store(f"{url}?lock_timeout=60&application_name=victim")
    store.check()
    raw.execute("lock table tidemill.ready in access exclusive mode")
    with psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(1) as pool:
        call = pool.submit(put, store)
        waits = "from pg_stat_activity where application_name = 'victim' and wait_event_type = 'Lock'"
        wait_until(lambda: bool(one(watcher, f"select count(*) {waits}")))
        watcher.execute(f"select pg_terminate_backend(pid) {waits}".encode())
        with pytest.raises(StoreUnavailable, match=r"^cannot reach postgresql://.*terminating connection"):
            call.result(timeout=PATIENCE)
    raw.rollback()
    put(store)
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("how", ["use", "close"])
def test_a_forked_child_uses_its_own_connections(url: str, how: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-W", "ignore", "-c", FORK, url, how]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ------------------------------------------------------------------------------------------------------- the pool


def test_an_exhausted_pool_raises_store_busy_with_a_remedy(url: str) -> None:
    store = open_store(f"{url}?pool=1&connect_timeout=1")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction():
            held.set()
            assert done.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(hold)
        assert held.wait(PATIENCE)
        with within(PATIENCE), pytest.raises(StoreBusy, match=r"all 1 connections .* raise \?pool="):
            store.lanes()
        done.set()
        holder.result(timeout=PATIENCE)
    store.lanes()
    store.close()


def test_a_pool_never_exceeds_its_size(url: str) -> None:
    store = open_store(f"{url}?pool=2&application_name=small")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.lanes(), range(64)))
    with psycopg.connect(url) as raw:
        assert one(raw, "select count(*) from pg_stat_activity where application_name = 'small'") <= 2
    store.close()


def test_a_rest_closes_all_but_one_of_the_connections_that_are_hardly_used(url: str) -> None:
    store = open_store(f"{url}?application_name=resting")
    together = threading.Barrier(4)

    def use() -> None:
        with store.transaction():
            store.lanes()
            together.wait(PATIENCE)

    counted = "select count(*) from pg_stat_activity where application_name = 'resting'"
    with psycopg.connect(url, autocommit=True) as raw, ThreadPoolExecutor(4) as pool:
        for _ in range(30):
            list(pool.map(lambda _: use(), range(4)))
        store.rest()
        assert one(raw, counted) == 4  # all of them are in regular use
        list(pool.map(lambda _: use(), range(4)))
        store.rest()
        eventually(lambda: one(raw, counted) == 1)
        store.rest()
        store.lanes()
        assert one(raw, counted) == 1
    store.close()
    store.rest()


def test_a_closed_store_is_unavailable_and_can_be_closed_again(url: str) -> None:
    store = open_store(url)
    store.check()
    store.close()
    store.close()
    for verb in (store.check, store.lanes, store.migrate, store.schema, store.listen):
        with pytest.raises(StoreUnavailable, match="this store is closed; open it again"):
            verb()
