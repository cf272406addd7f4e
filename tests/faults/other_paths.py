"""The write paths of everything but jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.faults.job_paths import _as_operator, claimed_jobs, nothing, some_jobs
from tests.faults.write_paths import LARGE, path

from tidemill.client.core import client_of
from tidemill.client.sessions import SessionApi
from tidemill.clock import SystemClock
from tidemill.domain.access import Key, Role
from tidemill.domain.alert_history import NewAlert, SeenAlert
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.depths import DepthSample
from tidemill.domain.failures import ErrorMark, MarkStatus
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Details, Finish, NewJob, UniqueHold
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.records import AuditEntry, Pause, PauseKind, Setting
from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.domain.rollups import compactions, expiries
from tidemill.domain.schedules import Advance, Definition, Fired
from tidemill.domain.sealed_values import SealChange
from tidemill.domain.sessions import StoredSession
from tidemill.domain.states import JobState
from tidemill.domain.streams import StreamEntry
from tidemill.domain.subscriptions import NewEvent, StoredSubscription
from tidemill.domain.task_records import TaskRecord
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.domain.transfers import LimitStart, TransferJob
from tidemill.domain.triggers.every import Every
from tidemill.domain.worker_reports import Scale, SlotCounts
from tidemill.engine.duties import FireDuty, Sweep
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.job_events import DelayedEvent
from tidemill.testing.conformance.kit import HOUR, SECOND, T0, WORKER, a_job, at, claim_all, register
from tidemill.testing.conformance.planned_fires import a_definition, a_schedule, define, plan_one
from tidemill.testing.conformance.stats import end

LEASE = timedelta(seconds=30)
THIRD = UUID("0197a000-0000-7000-8000-00000000000c")
DAILY = Every(timedelta(days=1), T0).to_data()
ENTRY = AuditEntry("ann", "job.cancelled", "job:1", "default", None, {"n": 1})


def _supervised(store: Store) -> None:
    """Register a worker that takes requests."""
    store.register(Worker(WORKER, "w", supervisor=THIRD, place=1), lease=LEASE, now=T0)


def _paused(store: Store) -> None:
    _supervised(store)
    store.pause_workers([WORKER])


# Workers and leases ------------------------------------------------------------------------------------------------------

path(
    "register",
    "register",
    nothing,
    lambda store, _: store.register(Worker(WORKER, "w"), lease=LEASE, now=T0),
)
path(
    "beat",
    "beat",
    lambda store: (register(store, WORKER, THIRD), None)[1],
    lambda store, _: store.beat([WORKER, THIRD], lease=LEASE, now=at(5)),
)
path(
    "declare a worker gone",
    "declare_gone",
    lambda store: (register(store, WORKER, lease=LEASE), None)[1],
    lambda store, _: store.declare_gone([(WORKER, 0)], now=at(60)),
)
path(
    "retire",
    "retire",
    lambda store: (register(store, WORKER), None)[1],
    lambda store, _: store.retire([WORKER], now=at(5)),
)
path(
    "drain", "drain", lambda store: (register(store, WORKER), None)[1], lambda store, _: store.drain([WORKER])
)
path(
    "pause a worker",
    "pause_workers",
    _supervised,
    lambda store, _: store.pause_workers([WORKER]),
)
path(
    "resume a worker",
    "resume_workers",
    _paused,
    lambda store, _: store.resume_workers([WORKER]),
)
path(
    "scale a supervisor",
    "scale",
    _supervised,
    lambda store, _: store.scale(THIRD, Scale(3, SlotCounts(1, 1, 1))),
)
path(
    "sample depths",
    "put_depths",
    lambda store: (store.put_depths([DepthSample("a", 1, 0, SECOND)], now=T0), None)[1],
    lambda store, _: store.put_depths([DepthSample("b", 1, 0, SECOND)], now=at(60)),
)
path(
    "compact depths",
    "compact_depths",
    lambda store: (store.put_depths([DepthSample("a", 1, 0, SECOND)], now=T0), None)[1],
    lambda store, _: store.compact_depths(compactions(T0 + 24 * HOUR)[0]),
)
path(
    "drop depths",
    "drop_depths",
    lambda store: (store.put_depths([DepthSample("a", 1, 0, SECOND)], now=T0), None)[1],
    lambda store, _: store.drop_depths(T0 + HOUR),
)
path(
    "sweep",
    "sweep",
    lambda store: (register(store, WORKER, THIRD), None)[1],
    lambda store, _: Sweep(store)(),
)
path(
    "fold ends",
    "fold_ends",
    lambda store: (end(store), end(store, due=T0 + HOUR), None)[2],
    lambda store, _: store.fold_ends(),
)
path(
    "compact rollups",
    "compact_rollups",
    lambda store: (end(store), store.fold_ends(), None)[2],
    lambda store, _: store.compact_rollups(compactions(T0 + 24 * HOUR)[0]),
)
path(
    "drop rollups",
    "drop_rollups",
    lambda store: (end(store), store.fold_ends(), None)[2],
    lambda store, _: store.drop_rollups(expiries(T0 + 500 * 24 * HOUR)[0]),
)
path(
    "merge failures",
    "merge_failures",
    lambda store: (
        store.delete([end(store, JobState.FAILED), end(store, JobState.FAILED)], tenant=ALL_TENANTS) and None
    ),
    lambda store, _: store.merge_failures(T0 + HOUR),
)
path(
    "drop failures",
    "drop_failures",
    lambda store: (end(store, JobState.FAILED), None)[1],
    lambda store, _: store.drop_failures(T0 + HOUR),
)
path(
    "mark an error",
    "put_error_marks",
    nothing,
    lambda store, _: store.put_error_marks([ErrorMark("a", "f", MarkStatus.MUTED)], now=T0),
)
path("note a deploy", "note_deploy", nothing, lambda store, _: store.note_deploy("app", "1", now=T0))
path(
    "put a blob",
    "put_blob",
    nothing,
    lambda store, _: store.put_blob(LARGE, ["a", "b"], now=T0),
)
path(
    "delete blobs",
    "delete_blobs",
    lambda store: (store.put_blob(LARGE, ["a", "b"], now=T0), None)[1],
    lambda store, _: store.delete_blobs([LARGE]),
)
path(
    "drop blobs",
    "drop_blobs",
    lambda store: (store.put_blob(LARGE, ["a", "b"], now=T0), None)[1],
    lambda store, _: store.drop_blobs([LARGE.job_id]),
)
path("acquire", "acquire", nothing, lambda store, _: store.acquire("duties", WORKER, ttl=LEASE, now=T0))
path(
    "renew",
    "renew",
    lambda store: (store.acquire("duties", WORKER, ttl=LEASE, now=T0), None)[1],
    lambda store, _: store.renew("duties", WORKER, 1, ttl=LEASE, metadata={"n": 1}, now=at(5)),
)
path(
    "release a lease",
    "release",
    lambda store: (store.acquire("duties", WORKER, ttl=LEASE, now=T0), None)[1],
    lambda store, _: store.release("duties", WORKER, 1),
)

path(
    "write a release",
    "put_release",
    nothing,
    lambda store, _: store.put_release(ReleaseRecord("shop", Deployment(T0, "2.0")), now=T0),
)

# Operators -----------------------------------------------------------------------------------------------------------------

path(
    "write settings",
    "put_settings",
    nothing,
    lambda store, _: store.put_settings([Setting("a", 1), Setting("b", {"x": 2})], now=T0),
)
path(
    "set",
    "put_settings record",
    nothing,
    lambda store, _: _as_operator(store, lambda app: app.control.set("worker_enabled", False)),
)
path(
    "unset",
    "drop_settings record",
    lambda store: store.put_settings([Setting("a", 1)], now=T0),
    lambda store, _: _as_operator(store, lambda app: app.control.unset("a")),
)
path(
    "pause",
    "pause record",
    nothing,
    lambda store, _: _as_operator(store, lambda app: app.control.pause("queue", "mail", reason="full")),
)
path(
    "resume",
    "resume record",
    lambda store: (store.pause([Pause(PauseKind.QUEUE, "mail")], now=T0), None)[1],
    lambda store, _: _as_operator(store, lambda app: app.control.resume("queue", "mail")),
)
path(
    "audit",
    "record",
    nothing,
    lambda store, _: store.record([ENTRY, ENTRY], now=T0),
    repeats="each call is recorded",
)
path(
    "create a key",
    "put_keys record",
    nothing,
    lambda store, _: _as_operator(store, lambda app: app.keys.create("ci", role="operator")),
    repeats="a key whose secret was lost is created again",
)
path(
    "write keys",
    "put_keys",
    nothing,
    lambda store, _: store.put_keys(
        [Key("ab12cd34", "ci", Role.VIEWER), Key("ab12cd35", "x", Role.ADMIN)], now=T0
    ),
)
path(
    "revoke a key",
    "revoke_keys record",
    lambda store: (store.put_keys([Key("ab12cd34", "ci", Role.VIEWER)], now=T0), None)[1],
    lambda store, _: _as_operator(store, lambda app: app.keys.revoke("ab12cd34")),
)
path(
    "begin sessions",
    "put_sessions",
    nothing,
    lambda store, _: store.put_sessions(
        [StoredSession("a", "ann", at(60), single_use="x"), StoredSession("b", "bo", at(60))], now=T0
    ),
)
path(
    "end a session",
    "end_sessions record",
    lambda store: (store.put_sessions([StoredSession("a", "ann", at(60))], now=T0), None)[1],
    lambda store, _: _as_operator(store, lambda app: SessionApi(client_of(app)).end(["a"])),
)

# Events and alerts -------------------------------------------------------------------------------------------------------


def _event(store: Store) -> int:
    """Subscribe and record an event; returns its number."""
    store.declare_subscriptions([StoredSubscription("billing", ("*",))])
    store.append_events([NewEvent("order.paid")], now=T0)
    return store.waiting_events("billing", now=T0)[0].seq


def _alert(store: Store) -> UUID:
    alert = NewAlert(new_id(), "orphans", "", "warning", "one", 1, 0)
    store.open_alerts([alert], now=T0)
    return alert.id


path(
    "record an event",
    "append_events",
    lambda store: store.put_settings([StoredSubscription("billing", ("*",)).setting()], now=T0),
    lambda store, _: (store.settings(), store.append_events([NewEvent("a"), NewEvent("b")], now=T0)),
    repeats="every event is a new one",
)
path("settle an event", "settle_events", _event, lambda store, seq: store.settle_events([seq]))
path(
    "delay an event",
    "delay_events",
    _event,
    lambda store, seq: store.delay_events([DelayedEvent(seq, timedelta(hours=1), "boom")], now=T0),
    repeats="every attempt counts",
)
path("drop a subscription", "drop_subscription", _event, lambda store, _: store.drop_subscription("billing"))
path(
    "open an alert",
    "open_alerts",
    lambda _: new_id(),
    lambda store, id: store.open_alerts([NewAlert(id, "orphans", "", "warning", "one", 1, 0)], now=T0),
)
path(
    "see an alert",
    "see_alerts",
    _alert,
    lambda store, id: store.see_alerts([SeenAlert(id, "critical", "two", 2)], now=at(1)),
)
path("recover an alert", "recover_alerts", _alert, lambda store, id: store.recover_alerts([id], now=at(1)))
path(
    "acknowledge an alert",
    "acknowledge_alerts",
    _alert,
    lambda store, id: store.acknowledge_alerts([id], by="ada", now=at(1)),
)
path(
    "drop old alerts",
    "drop_alerts",
    lambda store: (store.recover_alerts([_alert(store)], now=T0), None)[1],
    lambda store, _: store.drop_alerts(timedelta(seconds=1), now=at(9)),
)

# Definitions and schedules -----------------------------------------------------------------------------------------------


def _defined(store: Store) -> Any:
    definition = define(store)
    plan_one(store, definition_id=definition.id, trigger=DAILY)
    return definition.id


def _planned(store: Store) -> Any:
    return plan_one(store, trigger=DAILY)


def _fired(store: Store, row: Any) -> None:
    store.note_fires([Fired(row.id, at(n)) for n in range(3)], now=T0)


path(
    "write a definition",
    "put_definition",
    lambda _: a_definition(),
    lambda store, definition: store.put_definition(definition, by="ann", now=T0),
)
path(
    "disable a definition",
    "enable_definitions",
    _defined,
    lambda store, id: store.enable_definitions([id], tenant=ALL_TENANTS, enabled=False, now=at(5)),
)
path(
    "delete a definition",
    "drop_definitions",
    _defined,
    lambda store, id: store.drop_definitions([id], tenant=ALL_TENANTS, now=at(5)),
)
path(
    "write schedules",
    "put_schedules",
    lambda _: [a_schedule("a", trigger=DAILY), a_schedule("b", trigger=DAILY)],
    lambda store, schedules: store.put_schedules(schedules, now=T0),
)
path(
    "disable a schedule",
    "enable_schedules",
    _planned,
    lambda store, row: store.enable_schedules([row.id], tenant=ALL_TENANTS, enabled=False, now=at(5)),
)
path(
    "delete a schedule",
    "drop_schedules",
    _planned,
    lambda store, row: store.drop_schedules([row.id], tenant=ALL_TENANTS),
)
path("fire", "advance note_fires enqueue", _planned, lambda store, _: FireDuty(store, SystemClock())._fire())
path(
    "advance",
    "advance",
    _planned,
    lambda store, row: store.advance([Advance(row.id, row.revision, row.last_fire_at, T0, at(60))]),
)
path(
    "note fires",
    "note_fires",
    _planned,
    lambda store, row: store.note_fires([Fired(row.id, T0), Fired(row.id, at(60))], now=T0),
)
path(
    "purge fires",
    "purge_fires",
    lambda store: _fired(store, _planned(store)),
    lambda store, _: store.purge_fires(at(99), limit=100),
)

# Limits ------------------------------------------------------------------------------------------------------------------

path("write limits", "put_rules", nothing, lambda store, _: store.put_rules([Rule("a", max=1)], now=T0))
path(
    "drop limits",
    "drop_rules",
    lambda store: (store.put_rules([Rule("a", max=1)], now=T0), None)[1],
    lambda store, _: store.drop_rules(["a"]),
)
path(
    "change a breaker",
    "change_breaker",
    nothing,
    lambda store, _: store.change_breaker("b", None, "open", now=T0),
)
path(
    "add a limit to jobs of a task",
    "label",
    lambda store: some_jobs(store, task="mail"),
    lambda store, _: store.label("mail", "narrow", limit=100),
)


def _used(store: Store) -> None:
    claims = claimed_jobs(store, limits=("narrow",))
    store.finish([Finish(claim, COMPLETED) for claim in claims], now=T0)


path(
    "forget counts",
    "forget_uses",
    _used,
    lambda store, _: store.forget_uses(SECOND, limit=100, now=T0 + HOUR),
)


TWO_IN_TEN = {"slow": Rule("slow", LimitKind.RATE, 2, timedelta(seconds=10))}


def _started_late(store: Store) -> Any:
    store.put_rules([*TWO_IN_TEN.values()], now=T0)
    some_jobs(store, 2, limits=("slow",))
    return claim_all(store)


path(
    "restamp rate starts",
    "redate",
    _started_late,
    lambda store, claims: store.redate(claims, TWO_IN_TEN, now=at(5)),
    fenced=True,
)


# Streams and sealed values ----------------------------------------------------------------------------------------------

path(
    "write a stream",
    "write_streams",
    claimed_jobs,
    lambda store, claims: store.write_streams(
        [StreamEntry(claim.id, claim.token, claim.worker, "tokens", 1, '"a"') for claim in claims]
    ),
    fenced=True,
)


def _sealed(store: Store) -> list[SealChange]:
    old = '{"pin": {"$sealed": "k1:AAAA"}}'
    store.enqueue([NewJob(new_id(), "mail", args=old)], now=T0)
    (row,) = store.sealed_rows("jobs", None, 10)
    return [SealChange(row, "args", old, old.replace("k1", "k2"))]


path("seal values again", "reseal", _sealed, lambda store, changes: store.reseal(changes))


# Tasks and placements ---------------------------------------------------------------------------------------------------

RECORDS = [TaskRecord(name, {"properties": {}}, deployed_at=T0) for name in ("mail", "report")]

path(
    "declare tasks",
    "declare_tasks",
    nothing,
    lambda store, _: store.declare_tasks(RECORDS, now=T0),
)
path(
    "forget tasks",
    "forget_tasks",
    lambda store: store.declare_tasks(RECORDS, now=T0),
    lambda store, _: store.forget_tasks(at(1)),
)
PLACED = [TenantPlacement("acme", "eu"), TenantPlacement("blue", "us")]

path("place tenants", "place", nothing, lambda store, _: store.place(PLACED, now=T0))
path(
    "change placements",
    "replace",
    lambda store: store.place(PLACED, now=T0),
    lambda store, rows: store.replace([replace(row, shard="ap") for row in rows], now=at(1)),
)
path(
    "copy placements",
    "copy_placements",
    nothing,
    lambda store, _: store.copy_placements([replace(row, epoch=3, changed_at=T0) for row in PLACED]),
)


# Transfers ----------------------------------------------------------------------------------------------------------------

MOVING = "moving from shard eu"


def _leaving(store: Store) -> list[TransferJob]:
    limited = a_job(tenant="acme", unique=UniqueHold("once", window=HOUR), details=Details(tags=("a",)))
    store.enqueue([limited, a_job(tenant="acme", run_at=T0 + HOUR)], now=T0)
    return store.outgoing("acme", limit=10)


def _withdrawn(store: Store) -> list[TransferJob]:
    lot = _leaving(store)
    store.withdraw([item.job for item in lot], tenant="acme")
    return lot


def _forgettable(store: Store) -> list[UUID]:
    ids = [new_id(), new_id()]
    for number, id in enumerate(ids):
        store.put_definition(Definition(id, f"key-{number}", "mail", tenant="acme"), now=T0)
    return ids


path(
    "withdraw jobs that move to another store",
    "withdraw",
    _leaving,
    lambda store, lot: store.withdraw([item.job for item in lot], tenant="acme"),
)
path(
    "receive jobs of another store",
    "receive",
    _withdrawn,
    lambda store, lot: store.receive(lot, reason=MOVING, now=T0),
)
path(
    "forget definitions that moved to another store",
    "forget_definitions",
    _forgettable,
    lambda store, ids: store.forget_definitions(ids, tenant="acme"),
)
path(
    "receive counted starts of another store",
    "receive_starts",
    nothing,
    lambda store, _: store.receive_starts(
        [LimitStart("mail", T0, 2), LimitStart("bucket", T0, 1)],
        {
            "mail": Rule("mail", LimitKind.RATE, 5, HOUR),
            "bucket": Rule("bucket", LimitKind.RATE, 5, HOUR, burst=2),
        },
        now=T0,
    ),
)
