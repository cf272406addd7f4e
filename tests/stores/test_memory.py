"""Tests that are specific to the memory store."""

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
from tidemill.domain.alert_history import NewAlert
from tidemill.domain.archived_flows import FlowParts, archived_flow
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.depths import DepthSample
from tidemill.domain.failures import ErrorMark, MarkStatus
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.graph import (
    Edge,
    EdgeCondition,
    FlowRow,
    FlowState,
    GroupKind,
    NewGroup,
    NewJoin,
    job_joins,
)
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
from tidemill.domain.large_values import ARGUMENTS, BlobKey
from tidemill.domain.limits import Rule
from tidemill.domain.records import AuditEntry, Pause, PauseKind, Setting
from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.schedules import Definition, Fired, ScheduleRow
from tidemill.domain.sessions import StoredSession
from tidemill.domain.signals import EmittedEvent, NewSignal
from tidemill.domain.states import ExecutionState, JobState
from tidemill.domain.streams import StreamEntry
from tidemill.domain.subscriptions import NewEvent, StoredSubscription
from tidemill.domain.task_records import TaskRecord
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.domain.triggers.reactive import On
from tidemill.domain.worker_reports import Scale, SlotCounts
from tidemill.errors import IllegalTransition, JobExists, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.stores.memory.state import State
from tidemill.testing.conformance.archive_files import a_manifest
from tidemill.testing.conformance.kit import asks

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
    return store.claim(asks(store, new_id(), store.lanes(), limit))


def touch_everything(store: MemoryStore) -> None:
    """Change every table."""
    ended, held, *_ = take(store, 2)
    store.enqueue([NewJob(new_id(), "t", unique=UniqueHold("k")), NewJob(new_id(), "t", delay=SECOND)])
    store.log([LogEntry(held.id, held.token, held.created_at, "a line", worker=held.worker)])
    store.save_checkpoints([Checkpoint(held.id, held.token, held.worker, "at", "1")])
    store.write_streams([StreamEntry(held.id, held.token, held.worker, "lines", 1, "1")])
    store.finish([Finish(ended, COMPLETED, result="1", started_ago=1.0)])
    store.fold_ends()
    store.request_cancel([held.id], tenant=held.tenant, reason="enough")
    worker, supervisor = new_id(), new_id()
    store.register(Worker(worker, "w", supervisor=supervisor), lease=SECOND)
    store.pause_workers([worker])
    store.scale(supervisor, Scale(2, SlotCounts(1, 1, 1)))
    store.put_depths([DepthSample("default", 1, 0, SECOND)])
    store.acquire("duty", new_id(), ttl=SECOND)
    store.put_settings([Setting("size", 1)])
    store.pause([Pause(PauseKind.QUEUE, "slow")])
    store.record([AuditEntry("ann", "paused", "queue/slow", "default")])
    store.put_keys([Key("ab12cd34", "ci", Role.VIEWER)])
    store.put_archive(store.archivable(Selection(Selector()), policy="now", tier="archive"))
    store.add_archive_file(a_manifest([ended.id]))
    store.enqueue([NewJob(new_id(), "t", waiting="its turn", expires_at=store._clock.now())])
    schedule = ScheduleRow(new_id(), "nightly", "t", {"every": 60})
    store.put_definition(Definition(new_id(), "report", "t"))
    reaction = ScheduleRow(new_id(), "paid", "t", On("paid").to_data())
    store.put_schedules([schedule, reaction])
    store.note_fires([Fired(schedule.id, store._clock.now())])
    store.put_rules([Rule("l", max=1)])
    store.change_breaker("b", None, "{}")
    store.put_release(ReleaseRecord("shop", Deployment(store._clock.now())))
    store.put_blob(BlobKey(held.id, ARGUMENTS), ["large"])
    store.post_signals([NewSignal(held.id, "default", "go", key="once")])
    store.emit([EmittedEvent(new_id(), "default", "paid")])
    store._state.waits[held.id] = (1, ())
    store.put_sessions([StoredSession("s", "ann", store._clock.now() + SECOND)])
    store.declare_subscriptions([StoredSubscription("s", ("*",))])
    store.append_events([NewEvent("order.paid")])
    store.open_alerts([NewAlert(new_id(), "orphans", "", "warning", "one", 1, 0)])
    store.declare_tasks([TaskRecord("t", {}, deployed_at=store._clock.now())])
    store.note_deploy("shop", "1.0")
    store.put_error_marks([ErrorMark("default", "f", MarkStatus.MUTED)])
    store.place([TenantPlacement("default", "eu")])
    fail_job(store)
    start_broken_flow(store)
    archive_flow(store)


def fail_job(store: MemoryStore) -> None:
    """Fail a pending job."""
    claim, *_ = take(store, 1)
    store.finish([Finish(claim, Transition(JobState.FAILED, ExecutionState.FAILED, "no"))])


def start_broken_flow(store: MemoryStore) -> None:
    """Start a flow whose second node needs the failure of a job that completed."""
    first, second, flow = new_id(), new_id(), new_id()
    edge = Edge(second, first, EdgeCondition.FAILURE)
    store.start_flow(
        [NewGroup(flow, "default", GroupKind.FLOW, "f")],
        [NewJob(first, "t"), NewJob(second, "t", waiting="first")],
        [edge],
        [NewJoin(flow, 0, 2, 0, 2), *job_joins(second, 1)],
    )
    store.move([Move(first, "default", frozenset({JobState.PENDING}), JobState.COMPLETED)])


def archive_flow(store: MemoryStore) -> None:
    """Archive the document of a flow that ended."""
    now = store._clock.now()
    row = FlowRow(new_id(), "default", GroupKind.FLOW, "f", None, FlowState.COMPLETED, now, ended_at=now)
    store.put_archived_flow(archived_flow(row, FlowParts(), tier="archive", policy="now"))


def test_a_transaction_that_raises_is_rolled_back(store: MemoryStore) -> None:
    put(store, 3)
    before = memory(store)

    def change_and_raise() -> None:
        with store.transaction():
            touch_everything(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_raise()
    assert memory(store) == before
    assert len(take(store)) == 3


def test_a_transaction_that_returns_is_kept(store: MemoryStore) -> None:
    put(store, 3)
    empty = State()
    with store.transaction():
        touch_everything(store)
    after = memory(store)
    names = set(State.__dataclass_fields__)
    assert {name for name in names if getattr(after, name) == getattr(empty, name)} == set()


def test_a_nested_transaction_joins_the_outer_one(store: MemoryStore) -> None:
    def change_and_raise() -> None:
        with store.transaction():
            with store.transaction():
                put(store)
            assert store.count(EVERY) == {JobState.PENDING: 1}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change_and_raise()
    assert store.count(EVERY) == {}
    with store.transaction():
        put(store)
    assert store.count(EVERY) == {JobState.PENDING: 1}


def test_other_threads_see_a_transaction_only_after_it_ends(store: MemoryStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        with store.transaction():
            seen = pool.submit(store.count, EVERY)
            put(store, 2)
        assert seen.result(timeout=10) == {JobState.PENDING: 2}


def test_a_verb_that_raises_changes_nothing(store: MemoryStore) -> None:
    first, second, third, fourth = put(store, 4)
    claims = take(store, 2)
    endless = Transition(JobState.SCHEDULED, ExecutionState.FAILED, delay=timedelta.max)
    cancel = Move(third, "default", frozenset({JobState.PENDING}), JobState.CANCELLED)
    before = memory(store)

    with pytest.raises(JobExists) as raised:
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
        store.move([cancel, Move(fourth, "default", frozenset({JobState.PENDING}), JobState.TIMED_OUT)])
    with pytest.raises(UsageError):
        store.move([cancel, cancel])
    with pytest.raises(TypeError):
        store.record(
            [AuditEntry("ann", "a", "s", "default"), AuditEntry("ann", "b", "s", "default", {"x": object()})]
        )

    assert raised.value.details["ids"] == (second,)
    assert first in before.held
    assert memory(store) == before


def test_a_move_to_a_held_state_is_refused(store: MemoryStore) -> None:
    [id] = put(store)
    with pytest.raises(IllegalTransition):
        store.move([Move(id, "default", frozenset({JobState.PENDING}), JobState.RUNNING)])


def mutate(words: object) -> None:
    """Modify a mapping, as a careless caller might."""
    cast("dict[str, Any]", words)["size"] = 99


def test_mutating_passed_or_returned_values_does_not_change_the_store(store: MemoryStore) -> None:
    mine: dict[str, Any] = {"size": 1}
    [id] = put(store, details=Details(metadata=mine, options={"deep": mine}))
    [plain] = put(store)
    claim = take(store, 1)[0]
    me = new_id()
    lease = store.acquire("duty", me, ttl=SECOND)
    assert lease is not None
    store.renew("duty", me, lease.term, ttl=SECOND, metadata=mine)
    store.log([LogEntry(id, claim.token, claim.created_at, "a line", details=mine, worker=claim.worker)])
    store.put_settings([Setting("k", mine)])
    [record] = store.record([AuditEntry("ann", "a", "s", "default", mine, mine)])
    before = memory(store)
    mutate(mine)
    mutate(record.entry.before)

    for job in [*store.get([id, plain], tenant=ALL_TENANTS), *store.jobs(EVERY).items]:
        mutate(job.details.metadata)
        mutate(job.details.options)
        mutate(job.details.options.get("deep", {}))
    mutate(store.logs(id, tenant=ALL_TENANTS)[0][1].details)
    mutate(store.settings()[0].value)
    mutate(store.leases()[0].metadata)
    mutate(store.audit(tenant=ALL_TENANTS)[0].entry.after)

    assert memory(store) == before
    assert Details() == NO_DETAILS
    assert [job.details.metadata for job in store.get([id, plain], tenant=ALL_TENANTS)] == [{"size": 1}, {}]
    assert store.logs(id, tenant=ALL_TENANTS)[0][1].details == {"size": 1}
    assert store.settings()[0].value == {"size": 1}
    assert store.leases()[0].metadata == {"size": 1}
    assert store.audit(tenant=ALL_TENANTS)[0].entry.after == {"size": 1}


def test_a_listener_in_another_thread_wakes(store: MemoryStore) -> None:
    waiting = threading.Event()
    listener = store.listen()

    def listen() -> frozenset[str]:
        waiting.set()
        return listener.wait(30)

    with ThreadPoolExecutor(1) as pool:
        topics = pool.submit(listen)
        assert waiting.wait(10)
        store.notify(["jobs:default"])
        assert topics.result(timeout=10) == {"jobs:default"}


def test_a_listener_collects_topics_between_waits(store: MemoryStore) -> None:
    listener, other = store.listen(), store.listen()
    store.notify(["a", "b"])
    store.notify(["b", "c"])
    assert listener.wait(0) == {"a", "b", "c"}
    assert listener.wait(0) == frozenset()
    listener.close()
    listener.close()
    store.notify(["d"])
    assert listener.wait(30) == frozenset()
    assert other.wait(0) == {"a", "b", "c", "d"}


def test_close_wakes_listeners_and_disables_every_verb(store: MemoryStore) -> None:
    listener = store.listen()
    with ThreadPoolExecutor(1) as pool:
        topics = pool.submit(listener.wait, 30)
        store.close()
        assert topics.result(timeout=10) == frozenset()
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
def test_twenty_thousand_jobs_are_each_claimed_exactly_once(store: MemoryStore) -> None:
    ids = set(put(store, 20_000))
    lanes, worker = store.lanes(), new_id()
    done: list[UUID] = []
    claims = store.claim(asks(store, worker, lanes, 1))
    while claims:
        done += [claim.id for claim in claims]
        lost, claims = store.step(
            [Finish(claim, COMPLETED) for claim in claims], asks(store, worker, lanes, 1)
        )
        assert not lost
    assert len(done) == len(ids)
    assert set(done) == ids
    assert store.count(EVERY) == {JobState.COMPLETED: 20_000}
    assert store.lanes() == []


def test_concurrent_claims_never_share_a_job(store: MemoryStore) -> None:
    ids = put(store, 2_000)
    lanes = store.lanes()

    def drain(_: int) -> list[UUID]:
        mine: list[UUID] = []
        while claims := store.claim(asks(store, new_id(), lanes, 7)):
            mine += [claim.id for claim in claims]
        return mine

    with ThreadPoolExecutor(4) as pool:
        taken = [id for some in pool.map(drain, range(4)) for id in some]
    assert sorted(taken) == sorted(ids)
