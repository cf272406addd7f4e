"""Records of tasks in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.task_records import TaskRecord
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import dump_mapping, load_mapping
from tidemill.stores.tasks import TaskStore


class SqlTasks(SqlPart, TaskStore):
    """declare_tasks, declared_tasks, forget_tasks."""

    def declare_tasks(self, tasks: Sequence[TaskRecord], *, now: datetime | None = None) -> None:
        if not tasks:
            return
        columns: dict[str, list[Any]] = {
            "name": [task.name for task in tasks],
            "description": [task.description for task in tasks],
            "owner": [task.owner for task in tasks],
            "schema": [dump_mapping(task.schema) for task in tasks],
            "settings": [dump_mapping(task.settings) for task in tasks],
            "deployed_at": [task.deployed_at for task in tasks],
        }
        self._db.run("declare_tasks", {"now": now}, columns)

    def declared_tasks(self, names: Collection[str] | None = None) -> list[TaskRecord]:
        rows = self._db.run("declared_tasks", {"names": None if names is None else list(names)})
        return [
            TaskRecord(
                name,
                load_mapping(schema) or {},
                load_mapping(settings) or {},
                description,
                owner,
                deployed_at,
                seen_at,
            )
            for name, description, owner, schema, settings, deployed_at, seen_at in rows
        ]

    def forget_tasks(self, seen_before: datetime) -> int:
        return len(self._db.run("forget_tasks", {"seen_before": seen_before}))
