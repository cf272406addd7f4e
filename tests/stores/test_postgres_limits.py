"""Tests of limits under concurrent transactions on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import Rule, gate_of
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance.kit import WORKER, hire, patiently, together
from tidemill.testing.conformance.limited_claims import Undo

PATIENCE = 60.0
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = {name: Rule(name, max=most) for name, most in (("a", 1), ("b", 2), ("c", 3), ("key", 2))}
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@pytest.fixture
def stores(migrated_postgres_url: str) -> Iterator[tuple[Store, Store]]:
    """Open two stores on one database, as two processes would."""
    first, second = open_store(migrated_postgres_url), open_store(migrated_postgres_url)
    hire(first, WORKER)
    yield first, second
    first.close()
    second.close()


def behind(*names: str) -> Lane:
    return Lane("default", "default", 0, gate=gate_of(names), limits=names)


def asks(*lanes: Lane, limit: int = 100) -> ClaimRequest:
    return ClaimRequest(WORKER, lanes, limit, rules=RULES)


def fill(store: Store, *limits: tuple[str, ...]) -> None:
    store.enqueue([NewJob(new_id(), "t", limits=names) for names in limits])


def create_counters(store: Store, *names: str) -> None:
    """Create counters for names in advance; a session that creates a counter blocks others."""
    assert store.claim(asks(*[behind(name) for name in names])) == []


def wait_for_a_lock(url: str) -> None:
    """Wait until a session waits for a lock."""
    done = threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(int(PATIENCE / 0.01)):
            if connection.execute(WAITING).fetchone() != (0,):
                return
            done.wait(0.01)
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("now", [None, NOW])
def test_a_claim_skips_only_names_locked_by_another_transaction(
    stores: tuple[Store, Store], now: datetime | None
) -> None:
    first, second = stores
    create_counters(first, "b", "c")
    fill(first, ("c",), ("c",), ("b",), ())
    lanes = [behind("c"), behind("b"), Lane("default", "default", 0)]
    with first.transaction():
        assert len(first.claim(asks(behind("c"), limit=1), now=now)) == 1
        assert second.claim(asks(behind("c")), now=now) == []
        claims = second.claim(asks(*lanes), now=now)
    assert [claim.limits for claim in claims] == [("b",), None]
    assert [claim.limits for claim in second.claim(asks(*lanes), now=now)] == [("c",)]


@pytest.mark.parametrize("now", [None, NOW])
def test_unlimited_lanes_are_claimed_while_all_names_are_locked(
    stores: tuple[Store, Store], now: datetime | None
) -> None:
    first, second = stores
    create_counters(first, "a")
    fill(first, ("a",), ("a",), (), ())
    with first.transaction():
        first.claim(asks(behind("a")), now=now)
        claims = second.claim(asks(behind("a"), Lane("default", "default", 0)), now=now)
    assert [claim.limits for claim in claims] == [None, None]


def test_a_name_is_locked_until_the_transaction_rolls_back(stores: tuple[Store, Store]) -> None:
    first, second = stores
    create_counters(first, "a")
    fill(first, ("a",), ("a",))
    request = asks(behind("a"))
    for _ in range(2):
        with suppress(Undo), first.transaction():
            assert len(first.claim(request)) == 1
            assert second.claim(request) == []
            raise Undo
    assert len(second.claim(request)) == 1
    assert first.claim(request) == []


def test_two_stores_share_the_counters(stores: tuple[Store, Store]) -> None:
    first, second = stores
    fill(first, *[("b", "c")] * 5)
    request = asks(behind("b", "c"))
    claims = first.claim(request)
    assert len(claims) == 2
    assert second.claim(request) == []
    assert second.finish([Finish(claims[0], COMPLETED)]) == frozenset()
    assert len(second.claim(request)) == 1
    assert [use.used for use in first.uses(RULES, ["b", "c"])] == [2, 2]


def test_a_finish_waits_for_a_locked_counter_and_is_applied(
    stores: tuple[Store, Store], migrated_postgres_url: str
) -> None:
    first, second = stores
    fill(first, *[("c",)] * 5)
    (claim,) = first.claim(asks(behind("c"), limit=1))
    counting = threading.Event()

    def hold() -> int:
        with first.transaction():
            claims = first.claim(asks(behind("c")))
            counting.set()
            wait_for_a_lock(migrated_postgres_url)
        return len(claims)

    def end() -> int:
        assert counting.wait(PATIENCE)
        return len(patiently(second.finish, [Finish(claim, COMPLETED)]))

    assert together([hold, end]) == [2, 0]
    assert [use.used for use in first.uses(RULES, ["c"])] == [2]


def test_concurrent_creation_of_the_same_counters_is_serialized(
    stores: tuple[Store, Store], migrated_postgres_url: str
) -> None:
    first, second = stores
    fill(first, ("key/1", "c"), ("key/1", "c"), ("c", "key/2"))
    making = threading.Event()

    def make() -> int:
        with first.transaction():
            claims = first.claim(asks(behind("key/1", "c")))
            making.set()
            wait_for_a_lock(migrated_postgres_url)
        return len(claims)

    def make_too() -> int:
        assert making.wait(PATIENCE)
        return len(patiently(second.claim, asks(behind("c", "key/2"))))

    assert together([make, make_too]) == [2, 1]
    assert [use.used for use in first.uses(RULES, ["c", "key/1", "key/2"])] == [3, 2, 1]


def test_concurrent_steps_with_shared_names_never_deadlock(
    stores: tuple[Store, Store], migrated_postgres_url: str
) -> None:
    """Each thread uses another order; names are created, released and requested in one transaction."""
    names = ["a", "b", "c", *(f"key/{n}" for n in range(12))]
    rng = random.Random(11)
    kinds = list(dict.fromkeys(tuple(rng.sample(names, 1 + n % 3)) for n in range(30)))
    fill(stores[0], *[rng.choice(kinds) for _ in range(300)])

    def work(store: Store, seed: int) -> int:
        mine = random.Random(seed)
        batch: list[Finish] = []
        done = 0
        for _ in range(60):
            lanes = [behind(*kind) for kind in mine.sample(kinds, len(kinds))]
            # StoreBusy on a slow machine is not a deadlock.
            step = patiently(store.step, batch, asks(*lanes, limit=4))
            assert step.lost == frozenset()
            done += len(batch)
            batch = [Finish(claim, COMPLETED) for claim in step.claims]
        assert patiently(store.finish, batch) == frozenset()
        return done + len(batch)

    works: list[Callable[[], int]] = [partial(work, stores[n % 2], n) for n in range(6)]
    done = sum(together(works))
    rest = [behind(*kind) for kind in kinds]
    while claims := stores[0].claim(asks(*rest)):
        assert stores[0].finish([Finish(claim, COMPLETED) for claim in claims]) == frozenset()
        done += len(claims)
    assert done == 300
    assert stores[0].uses(RULES) == []
    for store in stores:
        # A session reports its statistics when it ends.
        store.close()
    with psycopg.connect(migrated_postgres_url, autocommit=True) as connection:
        ask = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.execute(ask).fetchone() == (0,)
