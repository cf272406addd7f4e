"""Settings that operators change at run time for all workers, read from the store.

It only reads them, and it ignores unknown keys, which belong to other components.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tidemill.domain.bounds import LONGEST, MOST_ATTEMPTS
from tidemill.domain.decide import Policy
from tidemill.domain.job import Claim
from tidemill.domain.records import Setting
from tidemill.domain.retry import Fixed

ENABLED = "worker_enabled"
AGEING = "priority_ageing"
SHARE_GROUPS = "share_groups"
TASK, TENANT = "task/", "tenant/"


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """The settings that workers follow.

    ``worker_enabled`` false: no worker claims. ``priority_ageing``: seconds after which a waiting job rises by one
    priority. ``task/NAME``: ``{"max_attempts": …, "timeout": seconds, "retry_delay": seconds}``, null for no timeout.
    ``tenant/NAME``: ``{"weight": …}``, 1 by default. ``share_groups`` false: every tenant has its own share, even if its name has a
    prefix in common with others.
    """

    enabled: bool = True
    ageing: float | None = None
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    share_groups: bool = True

    @classmethod
    def read(cls, settings: Iterable[Setting]) -> RuntimeSettings:
        """Read the settings. Invalid values are ignored."""
        enabled, ageing, share_groups = True, None, True
        tasks: dict[str, Mapping[str, Any]] = {}
        weights: dict[str, float] = {}
        for setting in settings:
            key, value = setting.key, setting.value
            if key == ENABLED:
                enabled = value is not False
            elif key == AGEING:
                ageing = _positive(value)
            elif key == SHARE_GROUPS:
                share_groups = value is not False
            elif key.startswith(TASK) and isinstance(value, Mapping):
                tasks[key.removeprefix(TASK)] = value
            elif key.startswith(TENANT) and isinstance(value, Mapping):
                weight = _positive(value.get("weight"))
                if weight is not None:
                    weights[key.removeprefix(TENANT)] = weight
        return cls(enabled, ageing, tasks, weights, share_groups)

    def policy(self, policy: Policy, task: str, name: str) -> Policy:
        """The policy of a job with the settings of its task. ``name`` is the task's current name."""
        settings = self.tasks.get(task) or self.tasks.get(name)
        wait = None if settings is None else _positive(settings.get("retry_delay"))
        if wait is None:
            return policy
        return replace(policy, retry=Fixed(wait=timedelta(seconds=min(wait, LONGEST.total_seconds()))))

    def applied(self, claim: Claim, name: str | None = None) -> Claim:
        """The claim with the settings of its task. ``name`` is the task's current name if the job has an older one."""
        settings = self.tasks.get(claim.task) or self.tasks.get(name or claim.task)
        if settings is None:
            return claim
        attempts = settings.get("max_attempts")
        if isinstance(attempts, int) and attempts >= 1:
            claim = claim._replace(max_attempts=max(min(attempts, MOST_ATTEMPTS), claim.attempt))
        if "timeout" in settings and settings["timeout"] is None:
            return claim._replace(timeout=None)
        timeout = _positive(settings.get("timeout"))
        if timeout is None:
            return claim
        return claim._replace(timeout=timedelta(seconds=min(timeout, LONGEST.total_seconds())))


def _positive(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None
