"""Settings and pauses in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.stores.settings import RuntimeState, SettingsStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import dump
from tidemill.stores.sql.limits import read_rule


class SqlSettings(SqlPart, SettingsStore):
    """orders, settings, put_settings, drop_settings, pauses, pause, resume."""

    def orders(self) -> RuntimeState:
        state = RuntimeState([], [], [])
        for what, name, kind, value, note, most, per, burst, pinned, at, by in self._db.run("orders"):
            if what == "pause":
                state.pauses.append(_pause((kind, name, note, by, at)))
            elif what == "setting":
                state.settings.append(Setting(name, json.loads(value), note, at, by))
            else:
                state.rules.append(read_rule((name, kind, most, per, burst, value, pinned, at, by)))
        self.learn_subscriptions(state.settings)
        return state

    def settings(self) -> list[Setting]:
        settings = [
            Setting(key, json.loads(value), description, updated_at, updated_by)
            for key, value, description, updated_at, updated_by in self._db.run("settings")
        ]
        self.learn_subscriptions(settings)
        return settings

    def put_settings(self, settings: Sequence[Setting], *, now: datetime | None = None) -> None:
        if not settings:
            return
        columns: dict[str, list[Any]] = {
            "key": [setting.key for setting in settings],
            "value": [dump(setting.value) for setting in settings],
            "description": [setting.description for setting in settings],
            "updated_by": [setting.updated_by for setting in settings],
        }
        self._db.run("put_settings", {"now": now}, columns)

    def drop_settings(self, keys: Collection[str]) -> frozenset[str]:
        return (
            frozenset(row[0] for row in self._db.run("drop_settings", {"keys": list(keys)}))
            if keys
            else frozenset()
        )

    def pauses(self) -> list[Pause]:
        return [_pause(row) for row in self._db.run("pauses")]

    def pause(self, pauses: Sequence[Pause], *, now: datetime | None = None) -> list[Pause]:
        if not pauses:
            return []
        columns: dict[str, list[Any]] = {
            "kind": [pause.kind for pause in pauses],
            "name": [pause.name for pause in pauses],
            "reason": [pause.reason for pause in pauses],
            "paused_by": [pause.paused_by for pause in pauses],
        }
        return [_pause(row) for row in self._db.run("pause", {"now": now}, columns)]

    def resume(self, targets: Collection[tuple[PauseKind, str]]) -> list[Pause]:
        if not targets:
            return []
        columns: dict[str, list[Any]] = {
            "kind": [kind for kind, _ in targets],
            "name": [name for _, name in targets],
        }
        return [_pause(row) for row in self._db.run("resume", None, columns)]


def _pause(row: Row) -> Pause:
    kind, name, reason, paused_by, paused_at = row
    return Pause(PauseKind(kind), name, reason, paused_by, paused_at)
