"""Limits on PostgreSQL: what another transaction counts just now is left out, nobody waits in a circle, all stores count together."""

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
from tidemill.testing.conformance.kit import patiently, together
from tidemill.testing.conformance.limited import Undo

PATIENCE = 60.0
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = {name: Rule(name, max=most) for name, most in (("a", 1), ("b", 2), ("c", 3), ("key", 2))}
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@pytest.fixture
def stores(fresh_postgres_url: str) -> Iterator[tuple[Store, Store]]:
    """Two stores on one database, as in two processes."""
    first, second = open_store(fresh_postgres_url, migrate=True), open_store(fresh_postgres_url)
    yield first, second
    first.close()
    second.close()


def behind(*names: str) -> Lane:
    return Lane("default", "default", 0, gate=gate_of(names), limits=names)


def asks(*lanes: Lane, limit: int = 100) -> ClaimRequest:
    return ClaimRequest(new_id(), lanes, limit, rules=RULES)


def fill(store: Store, *limits: tuple[str, ...]) -> None:
    store.enqueue([NewJob(new_id(), "t", limits=names) for names in limits])


def make_known(store: Store, *names: str) -> None:
    """Have names counted before, as all are but the first time; whoever makes one keeps others waiting for it."""
    assert store.claim(asks(*[behind(name) for name in names])) == []


def some_wait(url: str) -> None:
    """Until somebody waits for a lock."""
    done = threading.Event()
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(int(PATIENCE / 0.01)):
            if connection.execute(WAITING).fetchone() != (0,):
                return
            done.wait(0.01)
    raise AssertionError("nobody waits")


@pytest.mark.parametrize("now", [None, NOW])
def test_names_that_are_being_counted_are_left_out_and_nothing_else(
    stores: tuple[Store, Store], now: datetime | None
) -> None:
    first, second = stores
    make_known(first, "b", "c")
    fill(first, ("c",), ("c",), ("b",), ())
    lanes = [behind("c"), behind("b"), Lane("default", "default", 0)]
    with first.transaction():
        assert len(first.claim(asks(behind("c"), limit=1), now=now)) == 1
        assert second.claim(asks(behind("c")), now=now) == []
        found = second.claim(asks(*lanes), now=now)
    assert [claim.limits for claim in found] == [("b",), None]
    assert [claim.limits for claim in second.claim(asks(*lanes), now=now)] == [("c",)]


@pytest.mark.parametrize("now", [None, NOW])
def test_lanes_without_limits_are_claimed_though_all_names_are_being_counted(
    stores: tuple[Store, Store], now: datetime | None
) -> None:
    first, second = stores
    make_known(first, "a")
    fill(first, ("a",), ("a",), (), ())
    with first.transaction():
        first.claim(asks(behind("a")), now=now)
        found = second.claim(asks(behind("a"), Lane("default", "default", 0)), now=now)
    assert [claim.limits for claim in found] == [None, None]


def test_a_name_is_busy_until_the_transaction_that_counts_it_is_undone(stores: tuple[Store, Store]) -> None:
    first, second = stores
    make_known(first, "a")
    fill(first, ("a",), ("a",))
    request = asks(behind("a"))
    for _ in range(2):
        with suppress(Undo), first.transaction():
            assert len(first.claim(request)) == 1
            assert second.claim(request) == []
            raise Undo
    assert len(second.claim(request)) == 1
    assert first.claim(request) == []


def test_what_one_store_counts_the_other_knows(stores: tuple[Store, Store]) -> None:
    first, second = stores
    fill(first, *[("b", "c")] * 5)
    request = asks(behind("b", "c"))
    claims = first.claim(request)
    assert len(claims) == 2
    assert second.claim(request) == []
    assert second.finish([Finish(claims[0], COMPLETED)]) == frozenset()
    assert len(second.claim(request)) == 1
    assert [use.used for use in first.uses(RULES, ["b", "c"])] == [2, 2]


def test_an_end_waits_for_whoever_counts_its_names_and_is_not_lost(
    stores: tuple[Store, Store], fresh_postgres_url: str
) -> None:
    first, second = stores
    fill(first, *[("c",)] * 5)
    (claim,) = first.claim(asks(behind("c"), limit=1))
    counting = threading.Event()

    def hold() -> int:
        with first.transaction():
            claims = first.claim(asks(behind("c")))
            counting.set()
            some_wait(fresh_postgres_url)
        return len(claims)

    def end() -> int:
        assert counting.wait(PATIENCE)
        return len(patiently(second.finish, [Finish(claim, COMPLETED)]))

    assert together([hold, end]) == [2, 0]
    assert [use.used for use in first.uses(RULES, ["c"])] == [2]


def test_two_that_make_the_same_new_names_wait_for_each_other(
    stores: tuple[Store, Store], fresh_postgres_url: str
) -> None:
    first, second = stores
    fill(first, ("key/1", "c"), ("key/1", "c"), ("c", "key/2"))
    making = threading.Event()

    def make() -> int:
        with first.transaction():
            claims = first.claim(asks(behind("key/1", "c")))
            making.set()
            some_wait(fresh_postgres_url)
        return len(claims)

    def make_too() -> int:
        assert making.wait(PATIENCE)
        return len(patiently(second.claim, asks(behind("c", "key/2"))))

    assert together([make, make_too]) == [2, 1]
    assert [use.used for use in first.uses(RULES, ["c", "key/1", "key/2"])] == [3, 2, 1]


def test_threads_that_step_through_each_others_names_never_wait_in_a_circle(
    stores: tuple[Store, Store], fresh_postgres_url: str
) -> None:
    """Each in another order, with names that are new, that are given back and that are wanted in one transaction."""
    names = ["a", "b", "c", *(f"key/{n}" for n in range(12))]
    dice = random.Random(11)
    kinds = list(dict.fromkeys(tuple(dice.sample(names, 1 + n % 3)) for n in range(30)))
    fill(stores[0], *[dice.choice(kinds) for _ in range(300)])

    def work(store: Store, seed: int) -> int:
        mine = random.Random(seed)
        batch: list[Finish] = []
        done = 0
        for _ in range(60):
            lanes = [behind(*kind) for kind in mine.sample(kinds, len(kinds))]
            step = patiently(store.step, batch, asks(*lanes, limit=4))  # a slow machine is no circle
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
        store.close()  # their sessions have told what they know when they are gone
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        ask = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.execute(ask).fetchone() == (0,)
