"""Tests of the lock order: jobs by id, unique keys by tenant and key.

Each test locks the row that comes first in that order. A verb that follows the order waits for it, and holds no later row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tidemill.client.jobs.actions import cancel_batch
from tidemill.clock import SystemClock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import GroupKind, NewGroup, StepRecord, group_joins
from tidemill.domain.job import (
    Checkpoint,
    Claim,
    Details,
    Finish,
    JobRow,
    Move,
    NewJob,
    Progress,
    ProgressReport,
    Transition,
    UniqueHold,
)
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.duties.cascade import CascadeDuty
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance.kit import asks

PATIENCE = 30.0
WORKER = UUID(int=7)
LATER = Transition(JobState.SCHEDULED, ExecutionState.FAILED, "later", timedelta(hours=1))
FAILED = Transition(JobState.FAILED, ExecutionState.FAILED, "no")


@pytest.fixture
def store(migrated_postgres_url: str) -> Iterator[Store]:
    store = open_store(f"{migrated_postgres_url}?lock_timeout=30")
    yield store
    store.close()


@pytest.fixture
def raw(migrated_postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated_postgres_url) as connection:
        yield connection


def crossed(
    act: Callable[[], object],
    url: str,
    raw: psycopg.Connection[Any],
    lock: str,
    first: object,
    second: object,
    second_lock: str | None = None,
) -> bool:
    """Return whether the verb held the second row while it waited for the first. ``second_lock`` is for a row of another table."""
    waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    raw.execute(lock, (first,))
    with psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(1) as pool:
        done = pool.submit(act)
        try:
            until = time.monotonic() + PATIENCE
            while watcher.execute(waits).fetchone() != (1,):
                assert time.monotonic() < until, "nobody waits"
                time.sleep(0.01)
            try:
                watcher.execute(f"{second_lock or lock} nowait", (second,))
            except psycopg.errors.LockNotAvailable:
                return True
            return False
        finally:
            raw.rollback()
            done.result(PATIENCE)


def wants(store: Store, limit: int = 2) -> ClaimRequest:
    lanes = [lane._replace(quota=limit) for lane in store.lanes()]
    return asks(store, WORKER, lanes, limit)


def claimed(store: Store, **fields: Any) -> list[Claim]:
    """Return two held jobs, the one with the greater id first."""
    store.enqueue([NewJob(new_id(), "work", **fields) for _ in range(2)])
    return sorted(store.claim(wants(store)), key=lambda claim: claim.id, reverse=True)


HELD: dict[str, Callable[[Store, list[Claim]], object]] = {
    "start": lambda store, claims: store.start(claims),
    "report": lambda store, claims: store.report(
        [ProgressReport(c.id, c.token, c.worker, Progress(0.5)) for c in claims]
    ),
    "checkpoints": lambda store, claims: store.save_checkpoints(
        [Checkpoint(c.id, c.token, c.worker, "a", "b") for c in claims]
    ),
    "steps": lambda store, claims: store.record_steps(
        [StepRecord(c.id, c.token, c.worker, "step/a", "1") for c in claims]
    ),
    "cancel": lambda store, claims: store.request_cancel(
        [c.id for c in claims], tenant=ALL_TENANTS, reason="enough"
    ),
    "finish": lambda store, claims: store.finish([Finish(c, LATER) for c in claims]),
    "step": lambda store, claims: store.step([Finish(c, FAILED) for c in claims], wants(store)),
    "step of successes": lambda store, claims: store.step(
        [Finish(c, COMPLETED) for c in claims], wants(store)
    ),
}


@pytest.mark.parametrize("verb", HELD)
def test_held_jobs_are_locked_in_id_order(
    store: Store, raw: psycopg.Connection[Any], migrated_postgres_url: str, verb: str
) -> None:
    claims = claimed(store)
    store.enqueue([NewJob(new_id(), "next")])
    lock = "select from tidemill.running where id = %s for update"
    second, first = (claim.id for claim in claims)
    assert not crossed(lambda: HELD[verb](store, claims), migrated_postgres_url, raw, lock, first, second)


def _keyed(key: str, *, until_claimed: bool = False, window: timedelta | None = None) -> NewJob:
    return NewJob(new_id(), "work", unique=UniqueHold(key, until_claimed=until_claimed, window=window))


def _finish(store: Store) -> Callable[[], object]:
    store.enqueue([_keyed("b"), _keyed("a")])
    claims = sorted(store.claim(wants(store)), key=lambda claim: claim.unique_key or "", reverse=True)
    return lambda: store.finish([Finish(claim, COMPLETED) for claim in claims])


def _claim(store: Store) -> Callable[[], object]:
    store.enqueue([_keyed("b", until_claimed=True), _keyed("a", until_claimed=True)])
    return lambda: store.claim(wants(store))


def _step(store: Store) -> Callable[[], object]:
    store.enqueue([NewJob(new_id(), "work")])
    ended = [Finish(claim, COMPLETED) for claim in store.claim(wants(store))]
    store.enqueue([_keyed("b", until_claimed=True), _keyed("a", until_claimed=True)])
    return lambda: store.step(ended, wants(store))


def _move(store: Store) -> Callable[[], object]:
    jobs = [_keyed("b"), _keyed("a")]
    store.enqueue(jobs)
    pending = frozenset({JobState.PENDING})
    moves = [Move(job.id, ALL_TENANTS, pending, JobState.CANCELLED, "no") for job in jobs]
    return lambda: store.move(moves)


def _delete(store: Store) -> Callable[[], object]:
    jobs = [_keyed("b", window=timedelta(hours=1)), _keyed("a", window=timedelta(hours=1))]
    store.enqueue(jobs)
    store.finish([Finish(claim, COMPLETED) for claim in store.claim(wants(store))])
    return lambda: store.delete([job.id for job in jobs], tenant=ALL_TENANTS)


def _enqueue(store: Store) -> Callable[[], object]:
    store.enqueue([_keyed("b"), _keyed("a")])
    return lambda: store.enqueue([_keyed("b"), _keyed("a")])


KEYS = {
    "finish": _finish, "claim": _claim, "step": _step, "move": _move, "delete": _delete, "enqueue": _enqueue,
}  # fmt: skip


@pytest.mark.parametrize("verb", KEYS)
def test_unique_keys_are_locked_in_key_order(
    store: Store, raw: psycopg.Connection[Any], migrated_postgres_url: str, verb: str
) -> None:
    act = KEYS[verb](store)
    lock = "select from tidemill.uniques where key = %s for update"
    assert not crossed(act, migrated_postgres_url, raw, lock, "a", "b")


def test_keys_with_capitals_are_locked_in_byte_order(
    store: Store, raw: psycopg.Connection[Any], migrated_postgres_url: str
) -> None:
    """Databases sort text by their locale; locks are always taken in byte order."""
    store.enqueue([_keyed("a"), _keyed("B")])
    lock = "select from tidemill.uniques where key = %s for update"
    act = lambda: store.enqueue([_keyed("a"), _keyed("B")])  # noqa: E731
    assert not crossed(act, migrated_postgres_url, raw, lock, "B", "a")


def test_schedules_are_locked_in_id_order(
    store: Store, raw: psycopg.Connection[Any], migrated_postgres_url: str
) -> None:
    ids = sorted(new_id() for _ in range(2))
    schedules = [
        ScheduleRow(id, key, "work", {"format": 1, "kind": "manual"})
        for id, key in zip(ids, "ba", strict=True)
    ]
    assert store.put_schedules(schedules) == frozenset()
    stored = store.schedules(tenant=ALL_TENANTS)
    lock = "select from tidemill.schedules where id = %s for no key update"
    assert not crossed(lambda: store.put_schedules(stored), migrated_postgres_url, raw, lock, ids[0], ids[1])


def _flow_with_a_running_job(store: Store) -> tuple[UUID, UUID, list[JobRow]]:
    """Start a flow of two jobs, and claim one. Returns the flow, the held job and both jobs."""
    flow = new_id()
    jobs = [NewJob(new_id(), "work", details=Details(flow_id=flow, group_id=flow), tied=True) for _ in "ab"]
    group = NewGroup(flow, "default", GroupKind.FLOW, "import")
    store.start_flow([group], jobs, [], group_joins(flow, 2))
    (claim,) = store.claim(wants(store, 1))
    return flow, claim.id, store.get([job.id for job in jobs], tenant=ALL_TENANTS)


JOINED = "select from tidemill.joins where id = %s for update"


@pytest.mark.parametrize("by", ["duty", "person"])
def test_a_cancel_locks_held_jobs_before_the_counter_rows_of_a_flow(
    store: Store, raw: psycopg.Connection[Any], migrated_postgres_url: str, by: str
) -> None:
    flow, held, jobs = _flow_with_a_running_job(store)

    def cancel() -> None:
        if by == "duty":
            CascadeDuty(store, SystemClock())()
            return
        with store.transaction():
            cancel_batch(store, jobs, "enough")

    if by == "duty":
        assert store.change_flow(flow, tenant="default", cancel_reason="enough") is not None
    lock = "select from tidemill.running where id = %s for update"
    assert not crossed(cancel, migrated_postgres_url, raw, lock, held, flow, JOINED)
    assert {job.cancel_reason for job in store.get([held], tenant=ALL_TENANTS)} == {"enough"}
