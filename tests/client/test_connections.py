"""Tests of enqueueing in the user's transaction, on every kind of connection."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.connections_kit import (
    ON_POSTGRES,
    ON_SQLITE,
    Answer,
    Errand,
    User,
    job,
    orders,
    prepare,
)
from tests.servers.postgres import TestPostgres

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Details, Enqueued, JobRow, NewJob, UniqueHold
from tidemill.domain.states import JobState
from tidemill.errors import JobExists, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEWER = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="sqlite3 has no attribute autocommit before Python 3.12"
)
CASES = [pytest.param("postgres", user, id=f"postgres, {name}") for name, user in ON_POSTGRES.items()] + [
    pytest.param("sqlite", user, id=f"sqlite, {name}", marks=[NEWER] if "always" in name else [])
    for name, user in ON_SQLITE.items()
]
FULL = Details(
    correlation_id="order-7", parent_id=new_id(), reference=("user", "42"), tags=("a", "ü"), metadata={"n": 1, "t": "ü"},
    headers={"h": "x"}, options={"o": [1, None]}, definition_id=new_id(), definition_version=3, schedule_id=new_id(),
    fire_at=datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC),
)  # fmt: skip


@pytest.fixture(scope="module")
def postgres_store(postgres: TestPostgres) -> Iterator[Store]:
    name = f"connections_{new_id().hex[-12:]}"
    store = open_store(postgres.create_database(name), migrate=True)
    prepare(store.url)
    yield store
    store.close()
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('connections') / 'jobs.db'}")
    store.check()
    prepare(store.url)
    yield store
    store.close()


@pytest.fixture(scope="module")
def store(request: pytest.FixtureRequest) -> Store:
    """One database per dialect for all tests. Each test reads only its own jobs."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> str:
    """The URL of another database of the same dialect, with the user's table and without Tidemill's tables."""
    if store.url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / 'other.db'}"
    else:
        url = request.getfixturevalue("fresh_postgres_url")
    prepare(url)
    return url


class Scene:
    """One kind of user, and the store in the same database."""

    def __init__(self, user: User, store: Store) -> None:
        self.user, self.store, self.url = user, store, store.url
        self._orders = orders(self.url)

    def perform(self, *steps: Any, commit: bool = True, url: str | None = None) -> list[Answer]:
        return self.user(Errand(url or self.url, self.store, steps, commit))

    def stored(self, *jobs: NewJob) -> list[JobRow]:
        return self.store.get([each.id for each in jobs], tenant=ALL_TENANTS)

    @property
    def new_orders(self) -> int:
        return orders(self.url) - self._orders


@pytest.fixture
def scene(user: User, store: Store) -> Scene:
    return Scene(user, store)


every_kind = pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])


@every_kind
def test_a_commit_keeps_the_job_and_the_users_row(scene: Scene) -> None:
    one, two = job(args='["ü", "%s", ":x"]'), job(priority=7, queue="other", tenant="acme")
    assert scene.perform([one, two]) == [[Enqueued(one.id, True), Enqueued(two.id, True)]]
    assert {each.id for each in scene.stored(one, two)} == {one.id, two.id}
    assert scene.new_orders == 1


@every_kind
def test_a_rollback_removes_the_job_and_the_users_row(scene: Scene) -> None:
    one = job(details=FULL, unique=UniqueHold(f"k-{new_id()}"))
    assert scene.perform([one], commit=False) == [[Enqueued(one.id, True)]]
    assert scene.stored(one) == []
    assert scene.new_orders == 0
    assert scene.store.enqueue([one]) == [Enqueued(one.id, True)]  # its key is free again


@every_kind
def test_the_job_is_invisible_before_the_commit(scene: Scene) -> None:
    one, seen = job(), []
    scene.perform([one], lambda: seen.append(scene.stored(one)))
    assert seen == [[]]
    assert len(scene.stored(one)) == 1


@every_kind
def test_a_job_equals_one_that_the_store_itself_enqueues(scene: Scene) -> None:
    shape: dict[str, Any] = {
        "args": '{"a":"ä"}', "tenant": "acme", "queue": "q", "priority": -3, "max_attempts": 9, "limits": ("gpu", "x"),
        "timeout": timedelta(days=2, microseconds=5), "expires_at": NOW + timedelta(days=9999), "details": FULL,
    }  # fmt: skip
    later, plain = {"run_at": NOW + timedelta(days=8888)}, {"timeout": None}
    theirs = [job("work", **shape), job("work", **shape, **later), job("work", **plain)]
    ours = [each._replace(id=new_id()) for each in theirs]
    scene.perform(theirs)
    scene.store.enqueue(ours)
    for one, other in zip(scene.stored(*theirs), scene.stored(*ours), strict=True):
        same = replace(other, id=one.id, created_at=one.created_at)
        assert one == (same if one.state == JobState.SCHEDULED else replace(same, run_at=one.run_at))
        assert one.created_at.tzinfo is not None
        assert abs(one.created_at - other.created_at) < timedelta(minutes=1)


@every_kind
def test_a_delay_schedules_the_job_relative_to_now(scene: Scene) -> None:
    delayed, past = job(delay=timedelta(hours=1)), job(delay=timedelta(seconds=-5))
    scene.perform([delayed, past])
    first, second = scene.stored(delayed, past)
    assert (first.state, second.state) == (JobState.SCHEDULED, JobState.PENDING)
    assert first.run_at - first.created_at == timedelta(hours=1)
    assert second.run_at == second.created_at


@every_kind
def test_a_held_key_returns_the_id_of_its_holder(scene: Scene) -> None:
    key = f"key-{new_id()}"
    holder = job(tenant="acme", unique=UniqueHold(key))
    scene.store.enqueue([holder])
    again, free = holder._replace(id=new_id()), job()
    elsewhere = holder._replace(id=new_id(), tenant="other")
    assert scene.perform([again, free, elsewhere]) == [
        [Enqueued(holder.id, False), Enqueued(free.id, True), Enqueued(elsewhere.id, True)]
    ]
    assert {each.id for each in scene.stored(again, free, elsewhere)} == {free.id, elsewhere.id}


@every_kind
def test_within_a_transaction_the_first_job_with_a_key_holds_it(scene: Scene) -> None:
    hold = UniqueHold(f"key-{new_id()}", window=timedelta(hours=1))
    first, second, third = (job(unique=hold) for _ in range(3))
    answers = scene.perform([first, second], [third])
    assert answers == [[Enqueued(first.id, True), Enqueued(first.id, False)], [Enqueued(first.id, False)]]


@every_kind
def test_a_duplicate_job_id_fails_its_batch_and_leaves_the_transaction_usable(
    scene: Scene,
) -> None:
    old, new, other = job(), job(unique=UniqueHold(f"key-{new_id()}")), job()
    scene.store.enqueue([old])
    first, twice, last = scene.perform([new, old], [new, new], [other])
    assert isinstance(first, JobExists)
    assert isinstance(twice, JobExists)
    assert last == [Enqueued(other.id, True)]
    assert [each.id for each in scene.stored(new, other)] == [other.id]
    assert scene.new_orders == 1


@every_kind
def test_an_empty_batch_stores_nothing(scene: Scene) -> None:
    assert scene.perform([]) == [[]]


@every_kind
def test_a_connection_to_another_database_is_refused_and_stays_usable(scene: Scene, elsewhere: str) -> None:
    for tables in (False, True):
        if tables:
            other = open_store(elsewhere)
            other.migrate()
            other.close()
        (answer,) = scene.perform([job()], url=elsewhere)
        assert isinstance(answer, UsageError)
        assert "another database than the store" in str(answer)
    assert orders(elsewhere) == 2
