"""Log lines, checkpoints, audit log, settings and pauses in memory.

No audit record is ever changed or deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, page_size
from tidemill.domain.job import Checkpoint, LogEntry
from tidemill.domain.records import (
    GENESIS,
    AuditEntry,
    AuditRecord,
    Pause,
    PauseKind,
    Setting,
    audit_hash,
)
from tidemill.stores.access import AuditStore
from tidemill.stores.base import RecordStore
from tidemill.stores.memory.copies import json_copy, kept_line
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.settings import RuntimeState, SettingsStore


class MemoryRecords(MemoryPart, RecordStore, AuditStore):
    """Logs and checkpoints of jobs, and the audit log."""

    def log(self, entries: Sequence[LogEntry]) -> frozenset[UUID]:
        with self._open() as state:
            lines = [kept_line(entry) for entry in entries]
            lost = set()
            for line in lines:
                if state.find_held(line.job_id, line.number, line.worker) is None:
                    lost.add(line.job_id)
                    continue
                state.last_position += 1
                state.logs.setdefault(line.job_id, []).append(
                    (state.last_position, replace(line, worker=None))
                )
            return frozenset(lost)

    def save_checkpoints(
        self, entries: Sequence[Checkpoint], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            lost = set()
            for entry in entries:
                if state.find_held(entry.job_id, entry.number, entry.worker) is None:
                    lost.add(entry.job_id)
                else:
                    state.checkpoints.setdefault(entry.job_id, {})[entry.name] = entry.value
            return frozenset(lost)

    def checkpoints(self, id: UUID, *, tenant: str) -> dict[str, str]:
        with self._open() as state:
            ours = state.find(id, tenant) is not None
            return dict(sorted(state.checkpoints.get(id, {}).items())) if ours else {}

    def record(self, entries: Sequence[AuditEntry], *, now: datetime | None = None) -> list[AuditRecord]:
        with self._open() as state:
            moment = self._at(now)
            previous = state.audit[-1].hash if state.audit else GENESIS
            added = []
            for number, entry in enumerate(map(_kept_entry, entries), start=len(state.audit) + 1):
                previous = audit_hash(previous, number, moment, entry)
                added.append(AuditRecord(number, moment, entry, previous))
            state.audit += added
            return [_shown(record) for record in added]

    def audit(
        self,
        *,
        tenant: str,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 1000,
    ) -> list[AuditRecord]:
        size = page_size(limit)
        with self._open() as state:
            # Numbers have no gaps: record n is at index n - 1.
            later = state.audit[max(after, 0) : None if before is None else max(before - 1, 0)]
            records = [
                record
                for record in (reversed(later) if newest else later)
                if tenant in (ALL_TENANTS, record.entry.tenant)
                and who in (None, record.entry.who)
                and action in (None, record.entry.action)
                and subject in (None, record.entry.subject)
            ]
            return [_shown(record) for record in records[:size]]

    def audit_gaps(self) -> list[str]:
        with self._open():
            return []


class MemorySettings(MemoryPart, SettingsStore):
    """Worker configuration and pauses."""

    def orders(self) -> RuntimeState:
        with self._open() as state:
            return RuntimeState(
                self.pauses(), self.settings(), [state.limits[name] for name in sorted(state.limits)]
            )

    def settings(self) -> list[Setting]:
        with self._open() as state:
            ordered = sorted(state.settings.values(), key=lambda setting: setting.key)
            settings = [replace(setting, value=json_copy(setting.value)) for setting in ordered]
            self.learn_subscriptions(settings)
            return settings

    def put_settings(self, settings: Sequence[Setting], *, now: datetime | None = None) -> None:
        with self._open() as state:
            moment = self._at(now)
            written = [
                replace(setting, value=json_copy(setting.value), updated_at=moment) for setting in settings
            ]
            for setting in written:
                old = state.settings.get(setting.key)
                if setting.description is None and old is not None:
                    state.settings[setting.key] = replace(setting, description=old.description)
                else:
                    state.settings[setting.key] = setting
            self.learn_subscriptions(state.settings.values())

    def drop_settings(self, keys: Collection[str]) -> frozenset[str]:
        with self._open() as state:
            dropped = frozenset(key for key in set(keys) if state.settings.pop(key, None) is not None)
            self.learn_subscriptions(state.settings.values())
            return dropped

    def pauses(self) -> list[Pause]:
        with self._open() as state:
            return sorted(state.pauses.values(), key=_pause_order)

    def pause(self, pauses: Sequence[Pause], *, now: datetime | None = None) -> list[Pause]:
        with self._open() as state:
            moment = self._at(now)
            added = []
            for pause in pauses:
                target = (pause.kind, pause.name)
                if target not in state.pauses:
                    state.pauses[target] = replace(pause, paused_at=moment)
                    added.append(state.pauses[target])
            return added

    def resume(self, targets: Collection[tuple[PauseKind, str]]) -> list[Pause]:
        with self._open() as state:
            stood = [
                pause for target in set(targets) if (pause := state.pauses.pop(target, None)) is not None
            ]
            return sorted(stood, key=_pause_order)


def _kept_entry(entry: AuditEntry) -> AuditEntry:
    return replace(entry, before=json_copy(entry.before), after=json_copy(entry.after))


def _shown(record: AuditRecord) -> AuditRecord:
    return record._replace(entry=_kept_entry(record.entry))


def _pause_order(pause: Pause) -> tuple[str, str]:
    return pause.kind.value, pause.name
