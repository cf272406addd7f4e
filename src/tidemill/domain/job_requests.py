"""Job requests built from stored options of tasks, definitions and schedules.

Options are those of ``using`` as plain data: durations are seconds, policies are the output of ``policy_to_data``. ``TaskData`` is a
task's options in the same form, for workers that fire schedules of tasks they do not import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from tidemill.domain.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, DEFAULT_TIMEOUT, Details, NewJob
from tidemill.domain.limits import key_part
from tidemill.domain.retry import RetryPolicy, policy_from_data, policy_to_data
from tidemill.domain.unique import Unique

TaskData = Mapping[str, object]

OPTIONS = (
    "queue", "priority", "timeout", "retry", "tags", "metadata", "reference", "correlation_id", "expires", "audit",
    "jitter", "record",
)  # fmt: skip
"""Options that a schedule or a definition may set for its jobs."""

REFUSED = {
    "tier": "a job has no tier of its own; give it to an archive policy: App(retention=[ArchivePolicy(…, tier=…)])",
    "notifications": "a job has none of its own; give them to its definition, or a rule to the app: App(notifications=[NotificationRule(…)])",
}
"""Options that older releases stored without any effect, and what to use instead. Stored values still load."""


class TaskLike(Protocol):
    """The part of a task's options that this module reads."""

    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def retry(self) -> RetryPolicy: ...
    @property
    def timeout(self) -> timedelta | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def unique(self) -> Unique | None: ...
    @property
    def orphans(self) -> StrEnum: ...
    @property
    def counted(self) -> TaskData: ...


def task_data(task: TaskLike, defaults: TaskData | None = None) -> dict[str, object]:
    """A task's options as plain data. ``defaults`` are the default values of arguments, because limits may be keyed by them."""
    counted = dict(task.counted)
    keys = [limit.get("key") for limit in _mappings(counted.get("limits"))]
    left_out = {str(key): defaults[str(key)] for key in keys if defaults and key in defaults}
    return {
        **counted,
        **({"left_out": left_out} if left_out else {}),
        "queue": task.queue,
        "priority": task.priority,
        "max_attempts": task.retry.max_attempts,
        "timeout": seconds(task.timeout),
        "tags": list(task.tags),
        "orphans": task.orphans.value,
        "unique": None if task.unique is None else unique_to_data(task.unique),
    }


def options_to_data(given: Mapping[str, Any]) -> dict[str, object]:
    """Checked options as plain data. Custom retry policies cannot be stored and become None."""
    data: dict[str, object] = {}
    for name, value in given.items():
        match name, value:
            case (("timeout" | "expires" | "jitter"), timedelta()):
                data[name] = seconds(value)
            case "retry", _:
                data[name] = policy_to_data(value)
            case (("tags" | "reference"), tuple()):
                data[name] = list(value)
            case _:
                data[name] = value
    return data


def unique_to_data(rule: Unique) -> dict[str, object]:
    """A uniqueness rule as plain data."""
    return {"by": list(rule.by), "within": seconds(rule.within), "states": rule.states}


def seconds(value: timedelta | None) -> float | None:
    """A duration in seconds."""
    return None if value is None else value.total_seconds()


def request(
    id: UUID,
    task: str,
    *,
    tenant: str,
    task_data: TaskData,
    layers: Sequence[TaskData],
    args: str,
    run_at: datetime | None,
) -> NewJob:
    """The job described by a task's data and the option layers; a later layer wins, tags and metadata are merged."""
    options: dict[str, Any] = {}
    tags: list[str] = _texts(task_data.get("tags"))
    metadata: dict[str, object] = {}
    for layer in layers:
        options |= layer
        tags += _texts(layer.get("tags"))
        metadata |= _mapping(layer.get("metadata"))
    retry = options.get("retry")
    timeout = (
        options["timeout"]
        if "timeout" in options
        else task_data.get("timeout", DEFAULT_TIMEOUT.total_seconds())
    )
    expires = options.get("expires")
    attempts = (
        policy_from_data(retry).max_attempts
        if isinstance(retry, Mapping)
        else task_data.get("max_attempts", DEFAULT_MAX_ATTEMPTS)
    )
    stored = {name: options[name] for name in ("retry", "audit", "record") if options.get(name) is not None}
    if task_data.get("orphans") not in (None, "requeue"):
        stored["orphans"] = task_data["orphans"]
    reference = options.get("reference")
    names = limit_names(task, task_data, tenant, args) | set(_texts(options.get("limits")))
    return NewJob(
        id=id,
        task=task,
        args=args,
        tenant=tenant,
        queue=str(options.get("queue") or task_data.get("queue") or DEFAULT_QUEUE),
        priority=_whole(options.get("priority", task_data.get("priority", 0))),
        max_attempts=_whole(attempts),
        timeout=None if timeout is None else timedelta(seconds=float(str(timeout))),
        run_at=run_at,
        expires_at=None if expires is None or run_at is None else run_at + timedelta(seconds=float(expires)),
        unique=_hold(task, task_data.get("unique"), args),
        limits=tuple(sorted(names)),
        details=Details(
            correlation_id=options.get("correlation_id"),
            reference=(str(reference[0]), str(reference[1])) if reference else None,
            tags=tuple(dict.fromkeys(tags)),
            metadata=metadata,
            options=stored,
        ),
    )


def _hold(task: str, rule: object, args: str) -> Any:
    if not isinstance(rule, Mapping):
        return None
    by = tuple(_texts(rule.get("by")))
    within = rule.get("within")
    made = Unique(
        by, None if within is None else timedelta(seconds=float(within)), rule.get("states", "live")
    )
    return made.hold(task, {**dict.fromkeys(by), **json.loads(args)})


def limit_names(task: str, task_data: TaskData, tenant: str, args: str) -> set[str]:
    """The limits that a job with these arguments counts against, as far as plain data allows."""
    names = {f"task/{task}"} if task_data.get("max_concurrent") else set()
    if task_data.get("breaker"):
        names.add(f"breaker/{task_data['breaker']}")
    limits = _mappings(task_data.get("limits"))
    values = {**_mapping(task_data.get("left_out")), **json.loads(args)} if limits else {}
    for limit in limits:
        parts = [str(limit["name"])] + ([tenant] if limit.get("by_tenant") else [])
        if limit.get("key") is not None:
            parts.append(key_part(str(limit["key"]), values.get(str(limit["key"]))))
        names.add("/".join(parts))
    return names


def _texts(given: object) -> list[str]:
    return [str(value) for value in given] if isinstance(given, list | tuple) else []


def _mapping(given: object) -> Mapping[str, object]:
    return given if isinstance(given, Mapping) else {}


def _mappings(given: object) -> list[Mapping[str, object]]:
    return [value for value in given if isinstance(value, Mapping)] if isinstance(given, list | tuple) else []


def _whole(given: object) -> int:
    return int(str(given))
