"""What operators set for all workers at run time, read from the store's settings. It only reads; unknown keys are somebody else's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidemill.domain.bounds import LONGEST, MOST_ATTEMPTS
from tidemill.domain.job import Claim
from tidemill.domain.ledger import Setting

ENABLED = "worker_enabled"
AGEING = "priority_ageing"
TASK, TENANT = "task/", "tenant/"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings that workers follow.

    ``worker_enabled`` false: no worker claims. ``priority_ageing``: seconds after which what waits rises by one priority.
    ``task/NAME``: ``{"max_attempts": …, "timeout": seconds}``, null for no timeout. ``tenant/NAME``: ``{"weight": …}``, 1 unless given.
    """

    enabled: bool = True
    ageing: float | None = None
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, settings: Iterable[Setting]) -> Config:
        """What these say; a value that makes no sense is as if it were not there."""
        enabled, ageing = True, None
        tasks: dict[str, Mapping[str, Any]] = {}
        weights: dict[str, float] = {}
        for setting in settings:
            key, value = setting.key, setting.value
            if key == ENABLED:
                enabled = value is not False
            elif key == AGEING:
                ageing = _positive(value)
            elif key.startswith(TASK) and isinstance(value, Mapping):
                tasks[key.removeprefix(TASK)] = value
            elif key.startswith(TENANT) and isinstance(value, Mapping):
                weight = _positive(value.get("weight"))
                if weight is not None:
                    weights[key.removeprefix(TENANT)] = weight
        return cls(enabled, ageing, tasks, weights)

    def applied(self, claim: Claim) -> Claim:
        """The claim with what was set for its task."""
        said = self.tasks.get(claim.task)
        if said is None:
            return claim
        attempts = said.get("max_attempts")
        if isinstance(attempts, int) and attempts >= 1:
            claim = claim._replace(max_attempts=max(min(attempts, MOST_ATTEMPTS), claim.attempt))
        if "timeout" in said and said["timeout"] is None:
            return claim._replace(timeout=None)
        timeout = _positive(said.get("timeout"))
        if timeout is None:
            return claim
        return claim._replace(timeout=timedelta(seconds=min(timeout, LONGEST.total_seconds())))


def _positive(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None
