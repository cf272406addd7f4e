"""Schedules declared in code, and bringing the stored rows in line with them.

An app only ever touches its own rows: each remembers the app that declared it. Whoever of several processes comes first
wins; the others find nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from tidemill.client.acting import named, note
from tidemill.client.core import Client
from tidemill.client.ruled import schedule_changes
from tidemill.client.rules import same_rules
from tidemill.client.schedules import REMOVED, TOPICS, Schedules
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.timetable import Schedule as Facts
from tidemill.domain.timetable import Source
from tidemill.errors import ScheduleExists

_log = logging.getLogger("tidemill.schedules")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The keys of schedules that were added, updated and disabled, and of those whose key is not ours to take."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    unchanged: int = 0


class Declarations:
    """What one app's code says about schedules."""

    def __init__(self, client: Client, schedules: Schedules) -> None:
        self._client, self._schedules = client, schedules
        self._declared: dict[tuple[str, str], Facts] = {}
        self._stale = True

    def add(self, task: Any, trigger: Any, key: str, **said: Any) -> Facts:
        """Take a schedule in; checked now, written when a worker starts."""
        facts = replace(self._schedules.value(task, trigger, key, **said), source=Source.CODE)
        known = self._declared.get((facts.tenant, facts.key))
        if known is not None and not same_rules(known, facts):
            raise ScheduleExists(
                f"two schedules of tenant {facts.tenant} are declared as {facts.key!r}; give one of them another key=",
                key=facts.key,
                tenant=facts.tenant,
            )
        self._declared[facts.tenant, facts.key] = facts
        self._stale = True
        return facts

    def reconcile_changes(self, app: str | None) -> None:
        """Reconcile if something was declared since the last time."""
        if self._stale and self._declared:
            self.reconcile(app)

    def reconcile(self, app: str | None) -> Reconciled:
        """Add what is new, update what is changed, and disable what is gone from this app's code.

        Without a name for the app nothing is disabled, for nobody could tell whose rows they are.
        """
        self._stale = False
        if not self._declared and app is None:
            return Reconciled()
        rows = {(row.tenant, row.key): row for row in self._client.store(None).schedules(tenant=ALL_TENANTS)}
        added, updated, conflicts, unchanged = [], [], [], 0
        for place, facts in self._declared.items():
            wanted = replace(facts, options={**facts.options, "app": app})
            row = rows.get(place)
            if row is None:
                added.append(wanted)
            elif row.source is not Source.CODE or row.options.get("app") != app:
                conflicts.append(facts.key)
                owner = row.options.get("app") if row.source is Source.CODE else "somebody, at run time"
                _log.error(
                    "schedule %s of tenant %s is not brought into the store: the key is held by one of %s",
                    facts.key,
                    facts.tenant,
                    owner,
                )
            elif same_rules(row, wanted) and (row.enabled or row.note != REMOVED):
                unchanged += 1
            else:
                updated.append(_over(row, wanted))
        gone = self._gone(rows.values(), app)
        lost: frozenset[UUID] = frozenset()
        if added or updated or gone:
            lost = self._write(added, updated, gone, rows)
        done = Reconciled(
            tuple(facts.key for facts in added if facts.id not in lost),
            tuple(facts.key for facts in updated if facts.id not in lost),
            tuple(row.key for row in gone),
            tuple(conflicts),
            unchanged,
        )
        self._report(done)
        return done

    def _write(
        self,
        added: Sequence[Facts],
        updated: Sequence[Facts],
        gone: Sequence[Facts],
        rows: Mapping[tuple[str, str], Facts],
    ) -> frozenset[UUID]:
        """Write all of it with what the audit says of it; the ids of those that somebody else was faster with."""
        store, pin = self._client.store(None), self._client.pin
        with store.transaction():
            lost = store.put_schedules([*added, *updated], now=pin)
            stopped = store.enable_schedules(
                [row.id for row in gone], tenant=ALL_TENANTS, enabled=False, note=REMOVED, now=pin
            )
            for facts in (*added, *updated):
                if facts.id not in lost:
                    row = rows.get((facts.tenant, facts.key))
                    self._note("added" if row is None else "updated", row, facts)
            for row in gone:
                if row.id in stopped:
                    self._note("paused", row, replace(row, enabled=False, note=REMOVED))
        return lost

    def _note(self, verb: str, before: Facts | None, after: Facts) -> None:
        """Write down what changed: it is the app's doing, unless somebody has it brought in line by hand."""
        was, now = schedule_changes(before, after)
        place = f"schedule:{after.key}", after.tenant
        store, pin = self._client.store(None), self._client.pin
        note(store, f"schedule.{verb}", *place, before=was, after=now, by=named() or "app", now=pin)

    def _gone(self, rows: Any, app: str | None) -> list[Facts]:
        return [
            row
            for row in rows
            if app is not None
            and row.source is Source.CODE
            and row.enabled
            and row.options.get("app") == app
            and (row.tenant, row.key) not in self._declared
        ]

    def _report(self, done: Reconciled) -> None:
        for what, keys in (("added", done.added), ("updated", done.updated)):
            if keys:
                _log.info("schedules %s as the code says: %s", what, ", ".join(keys))
        if done.disabled:
            _log.warning("schedules removed from the code are disabled: %s", ", ".join(done.disabled))
        if done.added or done.updated or done.disabled:
            self._schedules._tell(TOPICS)


def _over(row: Facts, wanted: Facts) -> Facts:
    """The wanted rules in the place of a stored row; one that was paused by hand stays paused."""
    back = row.note == REMOVED
    return replace(
        wanted,
        id=row.id,
        revision=row.revision,
        enabled=row.enabled or back,
        note=None if back else row.note,
    )
