"""The part of the store contract for the records of tasks.

Law 40. **The newest deployment describes a task**: a record is written over that of an earlier or the same ``deployed_at``, and
never over that of a later one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.task_records import TaskRecord


class TaskStore(ABC):
    """Tasks as workers have declared them."""

    @abstractmethod
    def declare_tasks(self, tasks: Sequence[TaskRecord], *, now: datetime | None = None) -> None:
        """Write records, seen now, each with a ``deployed_at`` (law 40)."""

    @abstractmethod
    def declared_tasks(self, names: Collection[str] | None = None) -> list[TaskRecord]:
        """The records with these names, or all, by name."""

    @abstractmethod
    def forget_tasks(self, seen_before: datetime) -> int:
        """Delete the records that were last seen before this instant. Returns the number."""
