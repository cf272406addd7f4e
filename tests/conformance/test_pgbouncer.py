"""Conformance tests of the PostgreSQL store behind PgBouncer in transaction mode.

The store cannot listen there, so it polls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.conformance.conftest import SharedPostgres

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.errors import BadSettings, StoreBusy, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance import StoreConformance

PATIENCE = 30.0


class Pooled:
    """One store behind the pooler for many tests; it is opened again if a test has closed it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened = open_store(url)

    def open(self) -> Store:
        try:
            self._opened.check()
        except StoreUnavailable:
            self._opened = open_store(self._url)
        return self._opened

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(scope="module")
def pooled(shared_postgres: SharedPostgres, pgbouncer_url: str) -> Iterator[Pooled]:
    pooled = Pooled(pgbouncer_url)
    yield pooled
    pooled.close()


@pytest.fixture
def store(shared_postgres: SharedPostgres, pooled: Pooled) -> Store:
    shared_postgres.fresh()
    return pooled.open()


@pytest.mark.long
class TestPgBouncer(StoreConformance):
    # These need LISTEN, which a pooled connection does not support; the tests below cover the behaviour instead.
    test_a_wake_up_is_received = None  # type: ignore[assignment]
    test_a_waiting_thread_is_woken_by_another = None  # type: ignore[assignment]
    test_every_listener_receives_every_topic = None  # type: ignore[assignment]
    test_rapid_notifications_are_all_received = None  # type: ignore[assignment]
    test_closing_a_listener_does_not_affect_others = None  # type: ignore[assignment]
    test_an_enqueue_wakes_the_workers_of_its_queues = None  # type: ignore[assignment]

    # These need a session of our own.
    test_a_lock_is_exclusive = None  # type: ignore[assignment]
    test_a_released_lock_is_free_at_once = None  # type: ignore[assignment]
    test_releasing_twice_does_not_affect_the_next_holder = None  # type: ignore[assignment]
    test_closing_the_store_releases_its_locks = None  # type: ignore[assignment]
    test_locks_with_different_names_are_independent = None  # type: ignore[assignment]
    test_a_lock_is_not_a_lease = None  # type: ignore[assignment]
    test_a_lock_is_not_part_of_a_transaction = None  # type: ignore[assignment]
    test_one_of_many_concurrent_calls_gets_the_lock = None  # type: ignore[assignment]

    def test_a_lock_is_refused_with_an_alternative(self, store: Store) -> None:
        with pytest.raises(BadSettings, match=r"through a pooler .* use coordination 'lease'"):
            store.hold("duties")

    def test_a_listener_waits_without_receiving(self, store: Store) -> None:
        listener = store.listen()
        store.notify(["jobs"])
        begun = time.monotonic()
        assert listener.wait(0.05) == frozenset()
        assert time.monotonic() - begun >= 0.05
        listener.close()
        assert listener.wait(600.0) == frozenset()

    def test_a_direct_listener_receives_pooled_notifications(
        self, store: Store, shared_postgres: SharedPostgres
    ) -> None:
        direct = shared_postgres.another()
        listener = direct.listen()
        store.notify(["jobs"])
        received: frozenset[str] = frozenset()
        deadline = time.monotonic() + PATIENCE
        while not received and time.monotonic() < deadline:
            received = listener.wait(1.0)
        assert received == {"jobs"}
        direct.close()

    def test_a_direct_listener_is_woken_by_a_pooled_enqueue(
        self, store: Store, shared_postgres: SharedPostgres
    ) -> None:
        direct = shared_postgres.another()
        listener = direct.listen()
        for queue in ("first", "second"):  # the second one follows within the gap between two wake-ups
            store.enqueue_and_wake([NewJob(new_id(), "t", queue=queue)])
        received: frozenset[str] = frozenset()
        deadline = time.monotonic() + PATIENCE
        while not received >= {"ready:first", "ready:second"} and time.monotonic() < deadline:
            received |= listener.wait(1.0)
        direct.close()
        assert received >= {"ready:first", "ready:second"}

    def test_a_pooler_is_detected_and_nothing_is_prepared(self, store: Store) -> None:
        for _ in range(5):
            store.lanes()
        driver = store._db  # type: ignore[attr-defined]
        assert driver._pooled
        with driver._pool.connection() as connection:
            assert connection.prepare_threshold is None
            mine = "select count(*) from pg_prepared_statements where name like '_pg3%'"
            assert connection.execute(mine).fetchone() == (0,)

    def test_timeouts_apply_within_each_transaction(self, pgbouncer_url: str, postgres_url: str) -> None:
        store = open_store(f"{pgbouncer_url}?lock_timeout=0.2")
        store.check()
        with psycopg.connect(postgres_url) as raw:
            raw.execute("lock table tidemill.ready in access exclusive mode")
            with pytest.raises(StoreBusy, match="lock timeout"):
                store.enqueue([NewJob(new_id(), "t")])
            with pytest.raises(StoreBusy, match="lock timeout"), store.transaction():
                store.lanes()
            raw.rollback()
        store.enqueue([NewJob(new_id(), "t")])
        store.close()

    def test_migrating_through_the_pooler_works(self, pgbouncer_url: str) -> None:
        store = open_store(f"{pgbouncer_url}?schema=behind", migrate=True)
        [answer] = store.enqueue([NewJob(new_id(), "t")])
        assert len(store.get([answer.id], tenant=ALL_TENANTS)) == 1
        store.close()

    def test_the_url_can_declare_a_pooler(self, store: Store, pgbouncer_url: str) -> None:
        store_by_url = open_store(f"{pgbouncer_url}?pgbouncer=1")
        store_by_url.enqueue([NewJob(new_id(), "t")])
        assert store_by_url.lanes() == store.lanes() != []
        store_by_url.close()
