"""What was set for one task over what its code says, found among all that is set. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.client.control import TASK_SETTING
from tidemill.domain.ledger import Setting
from tidemill.domain.limits import Rule


def setting_of(task: str, settings: Iterable[Setting]) -> Mapping[str, Any]:
    """What is set for a task beside its limit: ``max_attempts`` and ``timeout``, those of them that are."""
    found = next((each.value for each in settings if each.key == TASK_SETTING + task), None)
    return found if isinstance(found, Mapping) else {}


def limit_of(task: str, rules: Iterable[Rule]) -> Rule | None:
    """The limit that a person set for a task; what the code says is not meant."""
    return next((rule for rule in rules if rule.name == f"task/{task}" and rule.pinned), None)
