"""What is true of the memory store alone; what all stores have in common is in the conformance suite."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from tidemill.clock import ManualClock
from tidemill.domain.access import Key, Role
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import (
    NO_DETAILS,
    Checkpoint,
    Claim,
    Details,
    Finish,
    LogEntry,
    Move,
    NewJob,
    Transition,
    UniqueHold,
)
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.ledger import AuditEntry, Pause, PauseKind, Setting
from tidemill.domain.limits import Rule
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import ExecutionState, JobState
from tidemill.domain.timetable import Definition, Fired, Schedule
from tidemill.errors import IllegalTransition, JobExists, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.stores.memory.state import State

SECOND = timedelta(seconds=1)
EVERY = JobFilter(ALL_TENANTS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[MemoryStore]:
    store = MemoryStore(clock)
    yield store
    store.close()


def memory(store: MemoryStore) -> State:
    return copy.deepcopy(store._state)


def put(store: MemoryStore, count: int = 1, details: Details = NO_DETAILS) -> list[UUID]:
    return [
        answer.id for answer in store.enqueue([NewJob(new_id(), "t", details=details) for _ in range(count)])
    ]


def take(store: MemoryStore, limit: int = 100) -> list[Claim]:
    return store.claim(ClaimRequest(new_id(), store.lanes(), limit))


def touch_everything(store: MemoryStore) -> None:
    """Change every table there is."""
    ended, held, *_ = take(store, 2)
    store.enqueue([NewJob(new_id(), "t", unique=UniqueHold("k")), NewJob(new_id(), "t", delay=SECOND)])
    store.log([LogEntry(held.id, held.token, held.created_at, "a line")])
    store.save_checkpoints([Checkpoint(held.id, held.token, "at", "1")])
    store.finish([Finish(ended, COMPLETED, result="1")])
    store.request_cancel([held.id], tenant=held.tenant, reason="enough")
    store.register(Worker(new_id(), "w"), lease=SECOND)
    store.acquire("duty", new_id(), ttl=SECOND)
    store.put_settings([Setting("size", 1)])
    store.pause([Pause(PauseKind.QUEUE, "slow")])
    store.record([AuditEntry("ann", "paused", "queue/slow", "default")])
    store.put_keys([Key("ab12cd34", "ci", Role.VIEWER)])
    store.put_archive(store.archivable(ArchivePolicy("now", max_age=timedelta(0))))
    store.enqueue([NewJob(new_id(), "t", waiting="its turn", expires_at=store._clock.now())])
    schedule = Schedule(new_id(), "nightly", "t", {"every": 60})
    store.put_definition(Definition(new_id(), "report", "t"))
    store.put_schedules([schedule])
    store.note_fires([Fired(schedule.id, store._clock.now())])
    store.put_rules([Rule("l", max=1)])
    store.change_breaker("b", None, "{}")


def test_a_transaction_that_raises_leaves_no_trace(store: MemoryStore) -> None:
    put(store, 3)
    before = memory(store)

    def story() -> None:
        with store.transaction():
            touch_everything(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        story()
    assert memory(store) == before
    assert len(take(store)) == 3


def test_a_transaction_that_ends_keeps_everything(store: MemoryStore) -> None:
    put(store, 3)
    empty = State()
    with store.transaction():
        touch_everything(store)
    after = memory(store)
    names = set(State.__dataclass_fields__)
    assert {name for name in names if getattr(after, name) == getattr(empty, name)} == set()


def test_an_inner_transaction_belongs_to_the_outer_one(store: MemoryStore) -> None:
    def story() -> None:
        with store.transaction():
            with store.transaction():
                put(store)
            assert store.count(EVERY) == {JobState.PENDING: 1}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        story()
    assert store.count(EVERY) == {}
    with store.transaction():
        put(store)
    assert store.count(EVERY) == {JobState.PENDING: 1}


def test_other_threads_see_a_transaction_only_when_it_is_over(store: MemoryStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        with store.transaction():
            seen = pool.submit(store.count, EVERY)
            put(store, 2)
        assert seen.result(timeout=10) == {JobState.PENDING: 2}


def test_a_verb_that_raises_has_changed_nothing(store: MemoryStore) -> None:
    first, second, third, fourth = put(store, 4)
    claims = take(store, 2)
    endless = Transition(JobState.SCHEDULED, ExecutionState.FAILED, delay=timedelta.max)
    cancel = Move(third, "default", frozenset({JobState.PENDING}), JobState.CANCELLED)
    before = memory(store)

    with pytest.raises(JobExists) as known:
        store.enqueue([NewJob(new_id(), "t"), NewJob(second, "t")])
    with pytest.raises(OverflowError):
        store.enqueue(
            [NewJob(new_id(), "t"), NewJob(new_id(), "t", unique=UniqueHold("k", window=timedelta.max))]
        )
    with pytest.raises(TypeError):
        store.enqueue(
            [NewJob(new_id(), "t"), NewJob(new_id(), "t", details=Details(metadata={"a": object()}))]
        )
    with pytest.raises(OverflowError):
        store.finish([Finish(claims[0], COMPLETED), Finish(claims[1], endless)])
    with pytest.raises(UsageError):
        store.finish([Finish(claims[0], COMPLETED), Finish(claims[0], COMPLETED)])
    with pytest.raises(IllegalTransition):
        store.finish([Finish(claims[0], Transition(JobState.CLAIMED, ExecutionState.RELEASED))])
    with pytest.raises(IllegalTransition):
        store.move([cancel, Move(fourth, "default", frozenset({JobState.PENDING}), JobState.COMPLETED)])
    with pytest.raises(UsageError):
        store.move([cancel, cancel])
    with pytest.raises(TypeError):
        store.record(
            [AuditEntry("ann", "a", "s", "default"), AuditEntry("ann", "b", "s", "default", {"x": object()})]
        )

    assert known.value.facts["ids"] == (second,)
    assert first in before.held
    assert memory(store) == before


def test_a_move_to_a_worker_is_refused_since_only_a_claim_gives_a_job_away(store: MemoryStore) -> None:
    [id] = put(store)
    with pytest.raises(IllegalTransition):
        store.move([Move(id, "default", frozenset({JobState.PENDING}), JobState.RUNNING)])


def spoil(words: object) -> None:
    """What a careless caller does with a mapping it was given."""
    cast("dict[str, Any]", words)["size"] = 99


def test_values_handed_in_or_out_cannot_change_the_store(store: MemoryStore) -> None:
    mine: dict[str, Any] = {"size": 1}
    [id] = put(store, details=Details(metadata=mine, options={"deep": mine}))
    [plain] = put(store)
    claim = take(store, 1)[0]
    me = new_id()
    lease = store.acquire("duty", me, ttl=SECOND)
    assert lease is not None
    store.renew("duty", me, lease.term, ttl=SECOND, metadata=mine)
    store.log([LogEntry(id, claim.token, claim.created_at, "a line", details=mine)])
    store.put_settings([Setting("k", mine)])
    [record] = store.record([AuditEntry("ann", "a", "s", "default", mine, mine)])
    before = memory(store)
    spoil(mine)
    spoil(record.entry.before)

    for job in [*store.get([id, plain], tenant=ALL_TENANTS), *store.jobs(EVERY).items]:
        spoil(job.details.metadata)
        spoil(job.details.options)
        spoil(job.details.options.get("deep", {}))
    spoil(store.logs(id, tenant=ALL_TENANTS)[0][1].details)
    spoil(store.settings()[0].value)
    spoil(store.leases()[0].metadata)
    spoil(store.audit(tenant=ALL_TENANTS)[0].entry.after)

    assert memory(store) == before
    assert Details() == NO_DETAILS
    assert [job.details.metadata for job in store.get([id, plain], tenant=ALL_TENANTS)] == [{"size": 1}, {}]
    assert store.logs(id, tenant=ALL_TENANTS)[0][1].details == {"size": 1}
    assert store.settings()[0].value == {"size": 1}
    assert store.leases()[0].metadata == {"size": 1}
    assert store.audit(tenant=ALL_TENANTS)[0].entry.after == {"size": 1}


def test_a_listener_in_another_thread_wakes(store: MemoryStore) -> None:
    waiting = threading.Event()
    ear = store.listen()

    def listen() -> frozenset[str]:
        waiting.set()
        return ear.wait(30)

    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(listen)
        assert waiting.wait(10)
        store.notify(["jobs:default"])
        assert heard.result(timeout=10) == {"jobs:default"}


def test_a_listener_gathers_what_it_did_not_wait_for(store: MemoryStore) -> None:
    ear, other = store.listen(), store.listen()
    store.notify(["a", "b"])
    store.notify(["b", "c"])
    assert ear.wait(0) == {"a", "b", "c"}
    assert ear.wait(0) == frozenset()
    ear.close()
    ear.close()
    store.notify(["d"])
    assert ear.wait(30) == frozenset()
    assert other.wait(0) == {"a", "b", "c", "d"}


def test_closing_the_store_wakes_its_listeners_and_ends_every_verb(store: MemoryStore) -> None:
    ear = store.listen()
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(ear.wait, 30)
        store.close()
        assert heard.result(timeout=10) == frozenset()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.check()
    with pytest.raises(StoreUnavailable):
        store.enqueue([NewJob(new_id(), "t")])
    with pytest.raises(StoreUnavailable):
        store.notify(["a"])
    with pytest.raises(StoreUnavailable), store.transaction():
        pass


@pytest.mark.long
def test_twenty_thousand_jobs_drain_one_by_one_each_exactly_once(store: MemoryStore) -> None:
    ids = set(put(store, 20_000))
    lanes, worker = store.lanes(), new_id()
    done: list[UUID] = []
    claims = store.claim(ClaimRequest(worker, lanes, 1))
    while claims:
        done += [claim.id for claim in claims]
        lost, claims = store.step(
            [Finish(claim, COMPLETED) for claim in claims], ClaimRequest(worker, lanes, 1)
        )
        assert not lost
    assert len(done) == len(ids)
    assert set(done) == ids
    assert store.count(EVERY) == {JobState.COMPLETED: 20_000}
    assert store.lanes() == []


def test_threads_that_claim_together_never_share_a_job(store: MemoryStore) -> None:
    ids = put(store, 2_000)
    lanes = store.lanes()

    def drain(_: int) -> list[UUID]:
        mine: list[UUID] = []
        while claims := store.claim(ClaimRequest(new_id(), lanes, 7)):
            mine += [claim.id for claim in claims]
        return mine

    with ThreadPoolExecutor(4) as pool:
        taken = [id for some in pool.map(drain, range(4)) for id in some]
    assert sorted(taken) == sorted(ids)
