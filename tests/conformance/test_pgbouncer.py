"""The PostgreSQL store obeys the contract behind PgBouncer in transaction mode too; there it hears no wake-ups, and polls."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.conformance.conftest import Shared

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.errors import BadSettings, StoreBusy, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance import StoreConformance

PATIENCE = 30.0


class Pooled:
    """One store behind the pooler for many tests; it is opened again when a test has closed it."""

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
def pooled(shared_postgres: Shared, pgbouncer_url: str) -> Iterator[Pooled]:
    pooled = Pooled(pgbouncer_url)
    yield pooled
    pooled.close()


@pytest.fixture
def store(shared_postgres: Shared, pooled: Pooled) -> Store:
    shared_postgres.fresh()
    return pooled.open()


@pytest.mark.long
class TestPgBouncer(StoreConformance):
    # These need LISTEN, which a connection that is not ours cannot do; what holds instead is told below.
    test_a_wake_up_is_heard = None  # type: ignore[assignment]
    test_a_thread_that_waits_is_woken_by_another = None  # type: ignore[assignment]
    test_every_listener_hears_every_topic = None  # type: ignore[assignment]
    test_calls_in_quick_succession_are_all_heard_though_merged = None  # type: ignore[assignment]
    test_a_listener_closed_and_others_still_hear = None  # type: ignore[assignment]

    # And these need a session that is ours.
    test_a_hold_excludes_everybody_else = None  # type: ignore[assignment]
    test_a_released_hold_is_free_at_once = None  # type: ignore[assignment]
    test_releasing_twice_takes_nothing_from_the_next_holder = None  # type: ignore[assignment]
    test_closing_the_store_lets_go_of_its_holds = None  # type: ignore[assignment]
    test_holds_are_told_apart_by_their_names = None  # type: ignore[assignment]
    test_a_hold_is_no_lease = None  # type: ignore[assignment]
    test_a_hold_is_no_part_of_a_transaction = None  # type: ignore[assignment]
    test_of_many_who_reach_for_a_hold_exactly_one_gets_it = None  # type: ignore[assignment]

    def test_a_hold_is_refused_with_what_to_do_instead(self, store: Store) -> None:
        with pytest.raises(BadSettings, match=r"through a pooler .* use coordination 'lease'"):
            store.hold("duties")

    def test_a_listener_is_deaf_but_patient(self, store: Store) -> None:
        listener = store.listen()
        store.notify(["jobs"])
        begun = time.monotonic()
        assert listener.wait(0.05) == frozenset()
        assert time.monotonic() - begun >= 0.05
        listener.close()
        assert listener.wait(600.0) == frozenset()

    def test_who_listens_without_a_pooler_hears_those_behind_it(
        self, store: Store, shared_postgres: Shared
    ) -> None:
        direct = shared_postgres.another()
        listener = direct.listen()
        store.notify(["jobs"])
        heard: frozenset[str] = frozenset()
        deadline = time.monotonic() + PATIENCE
        while not heard and time.monotonic() < deadline:
            heard = listener.wait(1.0)
        assert heard == {"jobs"}
        direct.close()

    def test_the_pooler_is_noticed_and_no_statement_is_prepared(self, store: Store) -> None:
        for _ in range(5):
            store.lanes()
        driver = store._db  # type: ignore[attr-defined]
        assert driver._pooled
        with driver._pool.connection() as connection:
            assert connection.prepare_threshold is None
            mine = "select count(*) from pg_prepared_statements where name like '_pg3%'"
            assert connection.execute(mine).fetchone() == (0,)

    def test_time_outs_hold_within_each_transaction(self, pgbouncer_url: str, postgres_url: str) -> None:
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

    def test_saying_so_in_the_url_is_enough(self, store: Store, pgbouncer_url: str) -> None:
        told = open_store(f"{pgbouncer_url}?pgbouncer=1")
        told.enqueue([NewJob(new_id(), "t")])
        assert told.lanes() == store.lanes() != []
        told.close()
