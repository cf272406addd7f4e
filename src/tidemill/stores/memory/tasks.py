"""Records of tasks in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.domain.task_records import TaskRecord
from tidemill.stores.memory.copies import json_copy
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.tasks import TaskStore


class MemoryTasks(MemoryPart, TaskStore):
    """declare_tasks, declared_tasks, forget_tasks."""

    def declare_tasks(self, tasks: Sequence[TaskRecord], *, now: datetime | None = None) -> None:
        with self._open() as state:
            moment = self._at(now)
            for task in tasks:
                stored = state.tasks.get(task.name)
                assert task.deployed_at is not None
                if stored is None or stored.deployed_at is None or stored.deployed_at <= task.deployed_at:
                    state.tasks[task.name] = replace(_copied(task), seen_at=moment)

    def declared_tasks(self, names: Collection[str] | None = None) -> list[TaskRecord]:
        with self._open() as state:
            chosen = [task for task in state.tasks.values() if names is None or task.name in names]
            return [_copied(task) for task in sorted(chosen, key=lambda task: task.name)]

    def forget_tasks(self, seen_before: datetime) -> int:
        with self._open() as state:
            old = [
                task.name
                for task in state.tasks.values()
                if task.seen_at is not None and task.seen_at < seen_before
            ]
            for name in old:
                del state.tasks[name]
            return len(old)


def _copied(task: TaskRecord) -> TaskRecord:
    return replace(task, schema=json_copy(task.schema), settings=json_copy(task.settings))
