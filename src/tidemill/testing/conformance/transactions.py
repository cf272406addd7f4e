"""Laws of ``transaction()`` and of the store as a whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest

from tidemill.domain.access import Key, Role
from tidemill.domain.alert_history import NewAlert, SeenAlert
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.depths import DepthSample
from tidemill.domain.failures import ErrorMark, FailurePart, MarkStatus
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Change, Claim, Finish, Move, Progress, ProgressReport, UniqueHold
from tidemill.domain.lanes import Lane
from tidemill.domain.large_values import BlobKey
from tidemill.domain.records import AuditEntry, Pause, PauseKind, Setting, first_break
from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.domain.retention import ArchivePolicy, Selection, Selector
from tidemill.domain.rollups import compactions
from tidemill.domain.sessions import StoredSession
from tidemill.domain.states import JobState
from tidemill.domain.streams import StreamEntry
from tidemill.domain.subscriptions import NewEvent, StoredSubscription
from tidemill.domain.worker_reports import Scale, SlotCounts
from tidemill.errors import JobExists, StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.job_events import DelayedEvent
from tidemill.testing.conformance.kit import (
    CANCELLABLE,
    CRASHED,
    HOUR,
    SECOND,
    T0,
    WORKER,
    a_job,
    a_line,
    asks,
    at,
    bring,
    claim_all,
    claim_one,
    due,
    finish_all,
    get_one,
    ids_of,
    patiently,
    put,
    put_one,
    register,
    snapshot,
    together,
    wants,
)

S = JobState
ENTRY = AuditEntry("ada", "job.cancel", "job", "default")


class _Stop(Exception):
    """Raised to leave a block."""


def _undo(store: Store, work: Callable[[], object]) -> None:
    """Run a function in a transaction that is then rolled back."""

    def work_and_stop() -> None:
        work()
        raise _Stop

    with pytest.raises(_Stop), store.transaction():
        work_and_stop()


class TransactionLaws:
    """All verbs of a block commit together, or not at all."""

    def test_verbs_of_a_transaction_commit_together(self, store: Store) -> None:
        job = bring(store, S.PENDING)
        with store.transaction():
            store.record([ENTRY], now=T0)
            assert store.move([Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0) == {
                job.id
            }
            id = put_one(store)
        assert get_one(store, job.id).state is S.CANCELLED
        assert get_one(store, id).state is S.PENDING
        assert len(store.audit(tenant=ALL_TENANTS)) == 1

    def test_a_transaction_that_raises_is_rolled_back(self, store: Store) -> None:
        job = bring(store, S.PENDING)
        cancel = Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)
        before = snapshot(store, job.id)

        def work() -> None:
            store.record([ENTRY], now=T0)
            assert store.move([cancel], now=T0) == {job.id}

        _undo(store, work)
        assert snapshot(store, job.id) == before
        assert store.audit(tenant=ALL_TENANTS) == []

    def test_a_transaction_sees_its_own_writes(self, store: Store) -> None:
        with store.transaction():
            id = put_one(store)
            claim = claim_one(store, id)
            finish_all(store, [claim])
            assert get_one(store, id).state is S.COMPLETED
        assert get_one(store, id).state is S.COMPLETED

    def test_the_exception_of_a_transaction_propagates(self, store: Store) -> None:
        stop = _Stop("why")
        with pytest.raises(_Stop) as raised, store.transaction():
            raise stop
        assert raised.value is stop

    def test_every_part_of_the_store_is_rolled_back(self, store: Store) -> None:
        register(store, WORKER, lease=HOUR)
        done = bring(store, S.COMPLETED)
        gone = bring(store, S.FAILED)
        review = bring(store, S.REVIEW_NEEDED)
        late = bring(store, S.SCHEDULED)
        put(store, a_job(queue="a"), a_job(queue="a"), a_job(queue="a"))
        mine, fails = claim_all(store, queues=["a"], limit=2)
        store.log([a_line(mine, "before")])
        everything = [done.id, gone.id, review.id, late.id, mine.id, fails.id]

        def picture() -> object:
            jobs = store.jobs(JobFilter(ALL_TENANTS)).items
            seen = [snapshot(store, id) for id in everything]
            faces = (store.workers(), store.leases(), store.settings(), store.pauses())
            rest = (store.audit(tenant=ALL_TENANTS), store.search_archive(JobFilter(ALL_TENANTS)).items)
            return jobs, seen, faces, rest, store.lanes()

        before = picture()
        late_now = T0 + 2 * HOUR

        def work() -> None:
            new = put_one(store, unique=UniqueHold("k"))
            assert store.promote(10, now=late_now).moved == 1
            store.claim(wants(store, limit=1), now=T0)
            store.report([ProgressReport(mine.id, 1, mine.worker, Progress(0.5))], now=T0)
            store.log([a_line(mine, "inside")])
            store.request_cancel([mine.id], tenant="default", reason="x")
            store.step([Finish(mine, COMPLETED), Finish(fails, CRASHED)], wants(store, limit=1), now=T0)
            assert store.move([Move(review.id, "default", frozenset({review.state}), S.FAILED)], now=T0)
            store.put_archive(due(store, ArchivePolicy("p", max_age=SECOND), late_now), now=late_now)
            assert store.delete([gone.id], tenant="default") == {gone.id}
            store.forget(store.archived([done.id], tenant="default"))
            store.record([ENTRY], now=T0)
            store.register(Worker(new, "w"), lease=HOUR, now=T0)
            store.beat([WORKER], lease=HOUR, now=at(1))
            store.drain([WORKER])
            store.acquire("duty", WORKER, ttl=HOUR, now=T0)
            store.put_settings([Setting("a", 1)], now=T0)
            store.pause([Pause(PauseKind.ALL, "")], now=T0)
            assert picture() != before

        _undo(store, work)
        assert picture() == before
        assert store.enqueue([a_job(unique=UniqueHold("k"))], now=T0)[0].created

    def test_the_store_works_after_a_rollback(self, store: Store) -> None:
        _undo(store, lambda: (put_one(store), store.record([ENTRY], now=T0)))
        id = put_one(store)
        store.record([ENTRY], now=T0)
        assert ids_of(claim_all(store)) == [id]
        assert first_break(store.audit(tenant=ALL_TENANTS)) is None

    def test_a_nested_transaction_joins_the_outer_one(self, store: Store) -> None:
        inner = a_job()

        def work() -> None:
            with store.transaction():
                put(store, inner)
            assert get_one(store, inner.id).state is S.PENDING

        _undo(store, work)
        assert store.get([inner.id], tenant=ALL_TENANTS) == []
        with store.transaction(), store.transaction():
            id = put_one(store)
        assert get_one(store, id).state is S.PENDING

    def test_an_error_of_a_verb_rolls_the_transaction_back(self, store: Store) -> None:
        taken = put_one(store)
        fresh = a_job()

        def work() -> None:
            put(store, fresh)
            store.enqueue([a_job(id=taken)], now=T0)

        with pytest.raises(JobExists), store.transaction():
            work()
        assert store.get([fresh.id], tenant=ALL_TENANTS) == []

    def test_transactions_of_different_threads_do_not_mix(self, store: Store) -> None:
        def block(*, fail: bool) -> UUID:
            with store.transaction():
                (id,) = put(store, a_job())
                store.record([ENTRY], now=T0)
                if fail:
                    raise _Stop
                return id

        def work() -> list[UUID]:
            kept = []
            for n in range(10):
                with suppress(_Stop):
                    kept.append(patiently(block, fail=n % 2 == 0))
            return kept

        kept = {id for ids in together([work] * 4) for id in ids}
        assert len(kept) == 20
        assert set(ids_of(store.jobs(JobFilter(ALL_TENANTS)).items)) == kept
        records = store.audit(tenant=ALL_TENANTS)
        assert len(records) == 20
        assert first_break(records) is None


CLAIM = Claim(
    *(WORKER, "work", "default", "default", 0, 1, 4, 0, 1, T0, T0, None, None, "{}", None, None, False, None),
    worker=WORKER,
)
"""A claim of no particular job."""


def _append_event(store: Store) -> int:
    store.declare_subscriptions([StoredSubscription("a", ("*",))])
    return store.append_events([NewEvent("x")], now=T0)


VERBS: dict[str, Callable[[Store], object]] = {
    "enqueue": lambda store: store.enqueue([a_job()], now=T0),
    "promote": lambda store: store.promote(1, now=T0),
    "lanes": lambda store: store.lanes(),
    "claim": lambda store: store.claim(asks(store, WORKER, [Lane("default", "default", 0)], 1), now=T0),
    "start": lambda store: store.start([CLAIM], now=T0),
    "report": lambda store: store.report([ProgressReport(CLAIM.id, CLAIM.token, WORKER, Progress())], now=T0),
    "finish": lambda store: store.finish([Finish(CLAIM, COMPLETED)], now=T0),
    "step": lambda store: store.step([Finish(CLAIM, COMPLETED)], asks(store, WORKER, [], 0), now=T0),
    "move": lambda store: store.move([Move(CLAIM.id, "default", CANCELLABLE, S.CANCELLED)], now=T0),
    "change": lambda store: store.change([Change(CLAIM.id, "default", frozenset({S.PENDING}), "fast", 9)]),
    "request_cancel": lambda store: store.request_cancel([CLAIM.id], tenant="default", reason="x"),
    "delete": lambda store: store.delete([CLAIM.id], tenant="default"),
    "get": lambda store: store.get([CLAIM.id], tenant="default"),
    "jobs": lambda store: store.jobs(JobFilter("default")),
    "count": lambda store: store.count(JobFilter("default")),
    "held": lambda store: store.held(WORKER),
    "executions": lambda store: store.executions([CLAIM.id], tenant="default"),
    "logs": lambda store: store.logs(CLAIM.id, tenant="default"),
    "log": lambda store: store.log([a_line(CLAIM, "x")]),
    "write_streams": lambda store: store.write_streams(
        [StreamEntry(CLAIM.id, CLAIM.token, WORKER, "tokens", 1, "1")]
    ),
    "stream": lambda store: store.stream(CLAIM.id, "tokens", tenant="default"),
    "stream_names": lambda store: store.stream_names(CLAIM.id, tenant="default"),
    "record": lambda store: store.record([ENTRY], now=T0),
    "audit_gaps": lambda store: store.audit_gaps(),
    "audit": lambda store: store.audit(tenant="default"),
    "register": lambda store: register(store, WORKER),
    "beat": lambda store: store.beat([WORKER], lease=HOUR, now=T0),
    "heartbeats": lambda store: store.heartbeats(now=T0),
    "declare_gone": lambda store: store.declare_gone([(WORKER, 0)], now=T0),
    "retire": lambda store: store.retire([WORKER], now=T0),
    "drain": lambda store: store.drain([WORKER]),
    "workers": lambda store: store.workers(),
    "pause_workers": lambda store: store.pause_workers([WORKER]),
    "resume_workers": lambda store: store.resume_workers([WORKER]),
    "scale": lambda store: store.scale(WORKER, Scale(1, SlotCounts(1, 1, 1))),
    "measure_depths": lambda store: store.measure_depths(now=T0),
    "put_depths": lambda store: store.put_depths([DepthSample("a", 1, 0, SECOND)], now=T0),
    "depth_series": lambda store: store.depth_series(HOUR, HOUR, now=T0),
    "compact_depths": lambda store: store.compact_depths(compactions(T0)[0]),
    "drop_depths": lambda store: store.drop_depths(T0),
    "orphans": lambda store: store.orphans(1),
    "overdue": lambda store: store.overdue(1, now=T0),
    "sweep": lambda store: store.sweep(HOUR, now=T0),
    "acquire": lambda store: store.acquire("duty", WORKER, ttl=HOUR, now=T0),
    "renew": lambda store: store.renew("duty", WORKER, 1, ttl=HOUR, now=T0),
    "release": lambda store: store.release("duty", WORKER, 1),
    "leases": lambda store: store.leases(),
    "hold": lambda store: store.hold("duty"),
    "orders": lambda store: store.orders(),
    "settings": lambda store: store.settings(),
    "put_settings": lambda store: store.put_settings([Setting("a", 1)], now=T0),
    "drop_settings": lambda store: store.drop_settings(["a"]),
    "pauses": lambda store: store.pauses(),
    "pause": lambda store: store.pause([Pause(PauseKind.ALL, "")], now=T0),
    "resume": lambda store: store.resume([(PauseKind.ALL, "")]),
    "keys": lambda store: store.keys(),
    "put_keys": lambda store: store.put_keys([Key("a", "ci", Role.VIEWER)], now=T0),
    "revoke_keys": lambda store: store.revoke_keys(["a"], now=T0),
    "sessions": lambda store: store.sessions(),
    "put_sessions": lambda store: store.put_sessions([StoredSession("a", "ann", at(9))], now=T0),
    "end_sessions": lambda store: store.end_sessions(["a"], now=T0),
    "archivable": lambda store: due(store, ArchivePolicy("p"), T0),
    "archived": lambda store: store.archived([CLAIM.id], tenant="default"),
    "search_archive": lambda store: store.search_archive(JobFilter("default")),
    "archived_due": lambda store: store.archived_due(Selection(Selector(), "archive")),
    "ended_beyond": lambda store: store.ended_beyond(Selection(Selector()), 0),
    "put_blob": lambda store: store.put_blob(BlobKey(CLAIM.id, 0), ["a"], now=T0),
    "blob_parts": lambda store: store.blob_parts(BlobKey(CLAIM.id, 0)),
    "orphan_blobs": lambda store: store.orphan_blobs(HOUR, 1, now=T0),
    "delete_blobs": lambda store: store.delete_blobs([BlobKey(CLAIM.id, 0)]),
    "release_blobs": lambda store: store.release_blobs([CLAIM.id]),
    "drop_blobs": lambda store: store.drop_blobs([CLAIM.id]),
    "release_of": lambda store: store.release_of("a"),
    "put_release": lambda store: store.put_release(ReleaseRecord("a", Deployment(T0)), now=T0),
    "note_deploy": lambda store: store.note_deploy("a", "1", now=T0),
    "deploys": lambda store: store.deploys(),
    "failure_groups": lambda store: store.failure_groups(HOUR, tenant="default", now=T0),
    "failure_series": lambda store: store.failure_series(
        HOUR, 2, tenant="default", fingerprints=["a"], now=T0
    ),
    "failure_counts": lambda store: store.failure_counts(
        "a", FailurePart.TASK, HOUR, tenant="default", now=T0
    ),
    "error_marks": lambda store: store.error_marks(tenant="default"),
    "put_error_marks": lambda store: store.put_error_marks([ErrorMark("a", "b", MarkStatus.MUTED)], now=T0),
    "merge_failures": lambda store: store.merge_failures(T0),
    "drop_failures": lambda store: store.drop_failures(T0),
    "append_events": _append_event,
    "waiting_events": lambda store: store.waiting_events("a", now=T0),
    "settle_events": lambda store: store.settle_events([1]),
    "delay_events": lambda store: store.delay_events([DelayedEvent(1, HOUR, "x")], now=T0),
    "event_backlogs": lambda store: store.event_backlogs(),
    "drop_subscription": lambda store: store.drop_subscription("a"),
    "open_alerts": lambda store: store.open_alerts(
        [NewAlert(CLAIM.id, "a", "", "warning", "x", 1, 0)], now=T0
    ),
    "see_alerts": lambda store: store.see_alerts([SeenAlert(CLAIM.id, "warning", "x", 1)], now=T0),
    "recover_alerts": lambda store: store.recover_alerts([CLAIM.id], now=T0),
    "acknowledge_alerts": lambda store: store.acknowledge_alerts([CLAIM.id], by="ada", now=T0),
    "stored_alerts": lambda store: store.stored_alerts(),
    "drop_alerts": lambda store: store.drop_alerts(HOUR, now=T0),
    "check": lambda store: store.check(),
}


class WholeStoreLaws:
    """A store reports its schema, and raises once it is closed."""

    def test_a_migrated_store_has_no_pending_migrations(self, store: Store) -> None:
        store.check()
        status = store.schema()
        assert status.version == status.wanted
        assert status.pending == ()
        assert 0 < status.serves <= status.version
        assert store.migrate() == []
        assert store.schema() == status
        assert store.url

    @pytest.mark.parametrize("name", sorted(VERBS))
    def test_a_closed_store_is_unavailable(self, store: Store, name: str) -> None:
        put_one(store)
        store.close()
        with pytest.raises(StoreUnavailable):
            VERBS[name](store)

    def test_closing_twice_is_harmless(self, store: Store) -> None:
        store.close()
        store.close()
