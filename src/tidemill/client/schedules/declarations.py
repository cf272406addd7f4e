"""Schedules and limits declared in code, and their reconciliation with the store.

An app only changes its own rows: each row records the app that declared it. If several deployments of the app run, the
newest live one decides; the store keeps a record of it (``domain.releases``). After the first process of a deployment
has reconciled, the others find nothing to change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.client.access import named, note
from tidemill.client.core import Client
from tidemill.client.schedules.api import REMOVED, TOPICS, Schedules
from tidemill.client.schedules.schedule import dated, same_rules, schedule_changes
from tidemill.delivery.heartbeats import subscribe_heartbeats
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.releases import (
    CONFIRM,
    Deployment,
    ReleaseDecision,
    ReleaseRecord,
    ReleaseVerdict,
    judge,
)
from tidemill.domain.schedules import ScheduleRow, Source
from tidemill.errors import ScheduleExists
from tidemill.ids import new_id

_log = logging.getLogger("tidemill.schedules")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Result of a reconciliation: the keys of added, updated, disabled and conflicting schedules.

    ``conflicts`` lists keys that another owner holds. ``refused`` lists the schedules that were left unchanged because
    a ``newer`` deployment of the app wrote them.
    """

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    unchanged: int = 0
    refused: tuple[str, ...] = ()
    newer: str | None = None

    @staticmethod
    def combined(parts: Sequence[Reconciled]) -> Reconciled:
        """Add up the results of several stores."""
        names = ("added", "updated", "disabled", "conflicts", "refused")
        keys = {name: tuple(key for part in parts for key in getattr(part, name)) for name in names}
        newer = next((part.newer for part in parts if part.newer is not None), None)
        return Reconciled(**keys, unchanged=sum(part.unchanged for part in parts), newer=newer)


@dataclass(slots=True)
class _Plan:
    """The pending changes of a reconciliation."""

    added: list[ScheduleRow] = field(default_factory=list)
    updated: list[ScheduleRow] = field(default_factory=list)
    gone: list[ScheduleRow] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    unchanged: int = 0

    @property
    def changes(self) -> list[ScheduleRow]:
        """Every schedule that would change."""
        return [*self.added, *self.updated, *self.gone]


class _Overtaken(Exception):
    """Another process changed the release record since it was read."""


class Declarations:
    """The schedules and limits that one app's code declares."""

    def __init__(self, client: Client, schedules: Schedules) -> None:
        self._client, self._schedules = client, schedules
        self._all: dict[tuple[str, str, str], ScheduleRow] = {}  # by store, tenant and key
        self._stale = True
        self._recorded = False  # whether the store keeps a release record for this app
        self._deployed: str | None = None  # the release whose start is recorded
        self._warned = self._warned_of_limits = False

    def at(self, client: Client, schedules: Schedules) -> Declarations:
        """Return the same declarations for a client of another store."""
        other = Declarations(client, schedules)
        other._all = self._all
        return other

    @property
    def _declared(self) -> dict[tuple[str, str], ScheduleRow]:
        """The schedules of the store that the client addresses, by tenant and key."""
        here = self._client.store_name(None)
        return {
            (tenant, key): schedule for (store, tenant, key), schedule in self._all.items() if store == here
        }

    def add(
        self, task: Any, trigger: Any, key: str, *, store: str | None = None, **options: Any
    ) -> ScheduleRow:
        """Declare a schedule: check it now, and store it when a worker starts."""
        schedule = replace(self._schedules.value(task, trigger, key, **options), source=Source.CODE)
        place = self._client.placement.place(self._client.registry.get(schedule.task), store, schedule.tenant)
        known = self._all.get((place, schedule.tenant, schedule.key))
        if known is not None and not same_rules(known, schedule):
            raise ScheduleExists(
                f"two schedules of tenant {schedule.tenant} are declared as {schedule.key!r}; give one of them another key=",
                key=schedule.key,
                tenant=schedule.tenant,
            )
        self._all[place, schedule.tenant, schedule.key] = schedule
        self._stale = True
        return schedule

    def declare_limits(self, app: str | None, deployment: Callable[[], Deployment]) -> None:
        """Store the limits that the code declares. While a newer deployment is alive, its limits stay unchanged."""
        change, record = True, None
        if app is not None and self._client.declares_limits:
            record = self._client.store(None).release_of(app)
            change = (
                record is None or judge(deployment(), record, self._now()).verdict is ReleaseVerdict.WRITE
            )
        left = self._client.declare_limits(change=change)
        if left and record is not None and not self._warned_of_limits:
            self._warned_of_limits = True
            _log.warning(
                "limits %s keep the values of %s, which is newer and alive; this code (%s) declares others",
                ", ".join(left),
                record.deployment,
                deployment(),
            )

    def restart(self) -> None:
        """Treat every declaration as not stored yet, after the client has changed its store."""
        self._stale, self._recorded, self._warned, self._warned_of_limits = True, False, False, False
        self._deployed = None

    @contextmanager
    def override(self) -> Iterator[None]:
        """Treat every declaration as new inside a block in which the client has another store and clock.

        Nothing is stored there yet, and the schedules fire from the new clock's current time onwards.
        """
        kept = self._all, self._stale, self._recorded, self._warned, self._warned_of_limits
        now = self._client.clock.now()
        self._all = {place: replace(dated(schedule, now), id=new_id()) for place, schedule in kept[0].items()}
        self.restart()
        try:
            yield
        finally:
            self._all, self._stale, self._recorded, self._warned, self._warned_of_limits = kept

    def reconcile_changes(self, app: Callable[[], str | None], deployment: Callable[[], Deployment]) -> None:
        """Reconcile if a schedule was declared since the last reconciliation."""
        if self._stale and self._declared:
            self.reconcile(app(), deployment())

    def reconcile(self, app: str | None, deployment: Deployment, *, force: bool = False) -> Reconciled:
        """Add new schedules, update changed ones, and disable those that this app's code no longer declares.

        Nothing is written while a newer deployment of the app is alive, unless ``force`` is set. Without an app name
        the owner of a row is unknown: nothing is disabled, and deployments are not compared.
        """
        self._stale = False
        self._note_deploy(app, deployment)
        if not self._declared and app is None:
            return Reconciled()
        while True:
            try:
                return self._reconcile(app, deployment, force=force)
            except _Overtaken:
                continue  # each retry means that another process has stored its write, so the loop ends

    def _note_deploy(self, app: str | None, deployment: Deployment) -> None:
        """Record the first start of this release, if the app has a name and a release."""
        if app is not None and deployment.release is not None and self._deployed != deployment.release:
            self._client.store(None).note_deploy(app, deployment.release, now=self._client.pin)
            self._deployed = deployment.release

    def confirm(self, app: str | None, deployment: Deployment) -> None:
        """Keep this deployment alive in the release record, or take over from one that is gone.

        Workers call this periodically.
        """
        if app is None or not self._recorded:
            return
        store, now = self._client.store(None), self._now()
        record = store.release_of(app)
        judgement = judge(deployment, record, now)
        if judgement.ours and record is not None:
            self._keep(record, now)
        elif judgement.verdict is ReleaseVerdict.WRITE:
            self.reconcile(app, deployment)

    def _reconcile(self, app: str | None, deployment: Deployment, *, force: bool) -> Reconciled:
        store = self._client.store(None)
        record = None if app is None else store.release_of(app)
        rows = {(row.tenant, row.key): row for row in store.schedules(tenant=ALL_TENANTS)}
        plan = self._plan(rows, app)
        if app is None or not (self._declares or any(_is_of(row, app) for row in rows.values())):
            return self._carry_out(plan, rows, None)
        self._recorded = True
        now = self._now()
        judgement = ReleaseDecision(ReleaseVerdict.WRITE) if force else judge(deployment, record, now)
        if judgement.verdict is not ReleaseVerdict.WRITE:
            assert record is not None
            return self._refuse(plan, judgement.verdict, deployment, record)
        if record is not None and judgement.ours and not plan.changes:
            self._keep(record, now)
            return self._carry_out(plan, rows, None)
        ours = ReleaseRecord(
            app,
            deployment,
            revision=0 if record is None else record.revision,
            forced_at=now if force else None if record is None else record.forced_at,
        )
        return self._carry_out(plan, rows, ours)

    @property
    def _declares(self) -> bool:
        return bool(self._declared) or self._client.declares_limits

    def _now(self) -> datetime:
        return self._client.pin or self._client.store(None).now()

    def _keep(self, record: ReleaseRecord, now: datetime) -> None:
        """Confirm this deployment's record, unless it was confirmed recently; any process may do it."""
        if record.seen_at is None or now - record.seen_at >= CONFIRM:
            self._client.store(None).put_release(record, now=self._client.pin)

    def _plan(self, rows: Mapping[tuple[str, str], ScheduleRow], app: str | None) -> _Plan:
        """Compare the stored rows with the declarations and return the changes that are needed."""
        plan = _Plan()
        for place, schedule in self._declared.items():
            wanted = replace(schedule, options={**schedule.options, "app": app})
            row = rows.get(place)
            if row is None:
                plan.added.append(wanted)
            elif row.source is not Source.CODE or row.options.get("app") != app:
                plan.conflicts.append(schedule.key)
                owner = (
                    f"a schedule of app {row.options.get('app')!r}"
                    if row.source is Source.CODE
                    else "a schedule that was added at run time"
                )
                _log.error(
                    "schedule %s of tenant %s is not stored: its key belongs to %s; choose another key",
                    schedule.key,
                    schedule.tenant,
                    owner,
                )
            elif same_rules(row, wanted) and (row.enabled or row.note != REMOVED):
                plan.unchanged += 1
            else:
                plan.updated.append(_over(row, wanted))
        plan.gone += self._gone(rows.values(), app)
        return plan

    def _carry_out(
        self, plan: _Plan, rows: Mapping[tuple[str, str], ScheduleRow], record: ReleaseRecord | None
    ) -> Reconciled:
        lost: frozenset[UUID] = frozenset()
        if plan.changes or record is not None:
            lost = self._write(plan, rows, record)
        done = Reconciled(
            tuple(schedule.key for schedule in plan.added if schedule.id not in lost),
            tuple(schedule.key for schedule in plan.updated if schedule.id not in lost),
            tuple(row.key for row in plan.gone),
            tuple(plan.conflicts),
            plan.unchanged,
        )
        self._report(done)
        return done

    def _refuse(
        self, plan: _Plan, verdict: ReleaseVerdict, deployment: Deployment, record: ReleaseRecord
    ) -> Reconciled:
        """Change nothing, and log one warning per process if the code differs from the store."""
        keys = tuple(schedule.key for schedule in plan.changes)
        newer = str(record.deployment)
        if keys and not self._warned:
            self._warned = True
            why = f"{newer} of the app is newer and alive"
            if verdict is ReleaseVerdict.FORCED:
                why = f"they were synchronised by force with {newer} after this deployment had started"
            _log.warning(
                "schedules %s are not synchronized with this code (%s): %s; to synchronize anyway, run:"
                " tidemill schedules sync --force",
                ", ".join(keys),
                deployment,
                why,
            )
        return Reconciled(
            conflicts=tuple(plan.conflicts), unchanged=plan.unchanged, refused=keys, newer=newer
        )

    def _write(
        self, plan: _Plan, rows: Mapping[tuple[str, str], ScheduleRow], record: ReleaseRecord | None
    ) -> frozenset[UUID]:
        """Write all changes with their audit records; return the ids that another process changed first."""
        store, pin = self._client.store(None), self._client.pin
        with store.transaction():
            if record is not None and not store.put_release(record, now=pin):
                raise _Overtaken
            lost = store.put_schedules([*plan.added, *plan.updated], now=pin)
            for written in (*plan.added, *plan.updated):
                subscribe_heartbeats(store, written, pin)
            stopped = store.enable_schedules(
                [row.id for row in plan.gone], tenant=ALL_TENANTS, enabled=False, note=REMOVED, now=pin
            )
            for schedule in (*plan.added, *plan.updated):
                if schedule.id not in lost:
                    row = rows.get((schedule.tenant, schedule.key))
                    self._note("added" if row is None else "updated", row, schedule)
            for row in plan.gone:
                if row.id in stopped:
                    self._note("paused", row, replace(row, enabled=False, note=REMOVED))
        return lost

    def _note(self, verb: str, before: ScheduleRow | None, after: ScheduleRow) -> None:
        """Add an audit record. The author is the app, unless a person started the synchronisation."""
        was, now = schedule_changes(before, after)
        place = f"schedule:{after.key}", after.tenant
        store, pin = self._client.store(None), self._client.pin
        note(store, f"schedule.{verb}", *place, before=was, after=now, by=named() or "app", now=pin)

    def _gone(self, rows: Any, app: str | None) -> list[ScheduleRow]:
        declared = self._declared
        return [
            row
            for row in rows
            if app is not None and row.enabled and _is_of(row, app) and (row.tenant, row.key) not in declared
        ]

    def _report(self, done: Reconciled) -> None:
        for what, keys in (("added", done.added), ("updated", done.updated)):
            if keys:
                _log.info("schedules %s from the code: %s", what, ", ".join(keys))
        if done.disabled:
            _log.warning("schedules removed from the code are disabled: %s", ", ".join(done.disabled))
        if done.added or done.updated or done.disabled:
            self._schedules._tell(TOPICS)


def _is_of(row: ScheduleRow, app: str) -> bool:
    return row.source is Source.CODE and row.options.get("app") == app


def _over(row: ScheduleRow, wanted: ScheduleRow) -> ScheduleRow:
    """Put the declared rules into a stored row; a row that a person paused stays paused."""
    back = row.note == REMOVED
    return replace(
        wanted,
        id=row.id,
        revision=row.revision,
        enabled=row.enabled or back,
        note=None if back else row.note,
    )
