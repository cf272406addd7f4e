"""The write paths of everything but jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.faults.job_paths import _as_operator, claimed_jobs, nothing, some_jobs
from tests.faults.write_paths import LARGE, path

from tidemill.clock import SystemClock
from tidemill.domain.access import Key, Role
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.records import AuditEntry, Pause, PauseKind, Setting
from tidemill.domain.releases import Deployment, ReleaseRecord
from tidemill.domain.schedules import Advance, Fired
from tidemill.domain.triggers.every import Every
from tidemill.engine.duties import FireDuty, Sweep
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, SECOND, T0, WORKER, at, claim_all, register
from tidemill.testing.conformance.planned_fires import a_definition, a_schedule, define, plan_one

LEASE = timedelta(seconds=30)
THIRD = UUID("0197a000-0000-7000-8000-00000000000c")
DAILY = Every(timedelta(days=1), T0).to_data()
ENTRY = AuditEntry("ann", "job.cancelled", "job:1", "default", None, {"n": 1})

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
    "sweep",
    "sweep",
    lambda store: (register(store, WORKER, THIRD), None)[1],
    lambda store, _: Sweep(store)(),
)
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
