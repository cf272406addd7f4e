"""Which tasks there are. A job's task is a key in here and nothing else: data never reaches an import."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tidemill.errors import DuplicateTask, TaskNotFound
from tidemill.tasks.task import Declared


class Registry:
    """Tasks by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Declared] = {}

    def add(self, task: Declared) -> None:
        """Take a task in; a name belongs to one target, and declaring that one again (a reload) replaces it."""
        known = self._tasks.get(task.name)
        if known is not None and _place(known) != _place(task):
            raise DuplicateTask(
                f"two tasks are named {task.name}: {_place(known)} and {_place(task)}; give one of them another name=",
                name=task.name,
            )
        self._tasks[task.name] = task

    def get(self, name: str) -> Declared:
        """The task of that name, or an error that names those that look alike."""
        found = self._tasks.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._tasks, n=3)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"there are {len(self._tasks)} tasks; is its module imported?"
            )
            raise TaskNotFound(f"no task is named {name!r}; {hint}", name=name)
        return found

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[Declared]:
        return iter([self._tasks[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._tasks)


def _place(task: Declared) -> str:
    return f"{task.target.__module__}.{getattr(task.target, '__qualname__', task.name)}"
