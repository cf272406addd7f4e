"""Run-time settings of one task, selected from all settings. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.client.control import TASK_SETTING
from tidemill.domain.limits import Rule
from tidemill.domain.records import Setting


def setting_of(task: str, settings: Iterable[Setting]) -> Mapping[str, Any]:
    """Return the ``max_attempts`` and ``timeout`` that are set for a task, without its limit."""
    found = next((each.value for each in settings if each.key == TASK_SETTING + task), None)
    return found if isinstance(found, Mapping) else {}


def limit_of(task: str, rules: Iterable[Rule]) -> Rule | None:
    """Return the limit that was set for a task at run time, ignoring the limit in the code."""
    return next((rule for rule in rules if rule.name == f"task/{task}" and rule.pinned), None)
