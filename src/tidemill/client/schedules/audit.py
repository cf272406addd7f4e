"""Audit entries of changes to schedules and definitions, without secret values."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidemill.client.access.identity import Facts as Words
from tidemill.client.access.identity import difference
from tidemill.client.schedules.handle import OWN
from tidemill.domain.schedules import Definition, ScheduleRow

_HIDDEN = ("args", "notifications", "options.metadata", "settings.metadata")


def schedule_changes(
    before: ScheduleRow | None, after: ScheduleRow | None
) -> tuple[Words | None, Words | None]:
    """Return the values that differ between two states of a schedule, before and after."""
    return difference(_schedule(before), _schedule(after), _HIDDEN)


def definition_changes(
    before: Definition | None, after: Definition | None
) -> tuple[Words | None, Words | None]:
    """Return the values that differ between two states of a definition, before and after."""
    return difference(_definition(before), _definition(after), _HIDDEN)


def _schedule(facts: ScheduleRow | None) -> Words | None:
    if facts is None:
        return None
    said = {name: value for name, value in facts.options.items() if name not in OWN}
    return {
        "id": str(facts.id),
        "task": facts.task,
        "definition_id": None if facts.definition_id is None else str(facts.definition_id),
        "trigger": dict(facts.trigger),
        "timezone": facts.timezone,
        "calendar": facts.calendar,
        "exclude": facts.exclude,
        "misfire": facts.misfire,
        "overlap": facts.overlap,
        "scope": facts.scope.value,
        "source": facts.source.value,
        "app": facts.options.get("app"),
        "enabled": facts.enabled,
        "note": facts.note,
        "args": json.loads(facts.args) or None,
        **_prefixed("options", said),
    }


def _definition(facts: Definition | None) -> Words | None:
    if facts is None:
        return None
    return {
        "id": str(facts.id),
        "task": facts.task,
        "name": facts.name or None,
        "owner": facts.owner,
        "version": facts.version,
        "enabled": facts.enabled,
        "args": json.loads(facts.args) or None,
        "notifications": dict(facts.notifications) or None,
        **_prefixed("settings", facts.settings),
    }


def _prefixed(name: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{name}.{key}": value for key, value in values.items()}
