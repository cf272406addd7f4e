"""Tasks as workers have declared them, for processes without their code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tidemill.domain.json_schema import schema_problems

REFRESH = timedelta(hours=1)
"""How often a running worker writes the records of its tasks again, so that their ``seen_at`` is recent."""

KEPT_FOR = timedelta(days=30)
"""How long the record of a task is kept after the last worker has declared it."""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task: the JSON schema of its arguments, and its options as ``task_data`` describes them.

    ``deployed_at`` is the start of the deployment that declared it; the newest one decides. ``seen_at`` is the last write.
    """

    name: str
    schema: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None
    owner: str | None = None
    deployed_at: datetime | None = None
    seen_at: datetime | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The schema of each argument by name, in the order of the signature."""
        properties: Mapping[str, Any] = self.schema.get("properties", {})
        return properties

    @property
    def required(self) -> frozenset[str]:
        """The arguments without a default."""
        return frozenset(self.schema.get("required", ()))

    @property
    def secrets(self) -> frozenset[str]:
        """The arguments that are sealed in the store."""
        return frozenset(name for name, schema in self.arguments.items() if schema.get("writeOnly"))

    @property
    def takes_more(self) -> bool:
        """Whether the task takes arguments of any name."""
        return self.schema.get("additionalProperties", True) is not False

    def problems(self, args: str) -> list[str]:
        """Why a stored job with these arguments does not fit; empty if it does. Secret ones are sealed there."""
        open_ones = {name: {} if name in self.secrets else schema for name, schema in self.arguments.items()}
        return schema_problems({**self.schema, "properties": open_ones}, json.loads(args))


def is_recent(record: TaskRecord | None, wanted: TaskRecord, now: datetime) -> bool:
    """Whether a stored record says the same as this one and was written lately, or a newer deployment wrote it."""
    if record is None or record.seen_at is None:
        return False
    if wanted.deployed_at is not None and record.deployed_at is not None:
        if record.deployed_at > wanted.deployed_at:
            return True
        if record.deployed_at < wanted.deployed_at:
            return False
    return now - record.seen_at < REFRESH and _content(record) == _content(wanted)


def _content(record: TaskRecord) -> tuple[object, ...]:
    return record.schema, record.settings, record.description, record.owner
