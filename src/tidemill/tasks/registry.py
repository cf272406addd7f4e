"""Registry of an app's tasks.

A job's task name is only ever looked up here. Job data never causes an import.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tidemill.errors import DuplicateTask, TaskNotFound, WrongEnvironment
from tidemill.tasks.task import Declared

BUILT_IN: dict[str, Declared] = {}
"""Tasks of Tidemill itself by name. Workers run them; lists of an app's tasks omit them."""


class Registry:
    """Tasks by name. An alias refers to its task: jobs stored under the alias belong to that task."""

    def __init__(self) -> None:
        self._tasks: dict[str, Declared] = {}
        self._loads: dict[str, object] = {}  # spec of each task's module at its declaration
        self._aliases: dict[str, str] = {}
        self._former: dict[str, set[str]] = {}  # tasks by the name that they had without their module
        self._own: dict[str, Declared] = {}  # tasks of Tidemill with settings of this app
        #: environment of the app; tasks of other environments are not enqueued and not run
        self.environment: str | None = None

    def empty_copy(self) -> Registry:
        """Return a registry for a part of these tasks, in the same environment and with the same former names."""
        part = Registry()
        part.environment, part._former, part._own = self.environment, self._former, dict(self._own)
        return part

    def add_own(self, task: Declared) -> None:
        """Add a task of Tidemill itself: workers run it, and lists of the app's tasks omit it."""
        self._own[task.name] = task

    @property
    def own(self) -> list[Declared]:
        """Tasks of Tidemill itself with settings of this app."""
        return list(self._own.values())

    def add(self, task: Declared) -> None:
        """Add a task. A name belongs to one target; declaring the same target again replaces it, as on a reload."""
        load = _load_of(task)
        for name in (task.name, *task.options.aliases):
            known = self._tasks.get(self._aliases.get(name, name))
            if known is not None and _place(known) != _place(task):
                raise DuplicateTask(
                    f"two tasks are named {name}: {_place(known)} and {_place(task)}; give one of them another name=",
                    name=name,
                )
            if known is not None and self._loads[known.name] is load and (lines := _two_lines(known, task)):
                raise DuplicateTask(
                    f"two tasks are named {name}: lines {lines[0]} and {lines[1]} of {task.target.__module__}; "
                    "give one of them another name=",
                    name=name,
                )
        self._tasks[task.name] = task
        self._loads[task.name] = load
        self._aliases |= {alias: task.name for alias in task.options.aliases if alias != task.name}
        if task.former_name is not None:
            self._former.setdefault(task.former_name, set()).add(task.name)

    def name_of(self, name: str) -> str:
        """Return the current name for an alias or a former name, or the name itself if it is neither."""
        if name in self._tasks or name in self._aliases:
            return self._aliases.get(name, name)
        former = self._former.get(name, ())
        return next(iter(former)) if len(former) == 1 else name

    def names_of(self, task: Declared) -> tuple[str, ...]:
        """Return the names under which jobs of a task may be stored: its own first, then aliases and a former name."""
        former = task.former_name
        is_ours = former is not None and former not in self._aliases and self.name_of(former) == task.name
        return tuple(
            dict.fromkeys((task.name, *task.options.aliases, *([former] if former and is_ours else [])))
        )

    def get(self, name: str) -> Declared:
        """Return the task of this name. The error for an unknown name suggests similar ones."""
        found = self._tasks.get(self.name_of(name)) or self._own.get(name) or BUILT_IN.get(name)
        if found is None:
            near = difflib.get_close_matches(name, self._tasks, n=3)
            number = len(self._tasks)
            known = "1 task" if number == 1 else f"{number} tasks"
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"the app has {known}; import the module that declares this one"
            )
            raise TaskNotFound(f"no task is named {name!r}; {hint}", name=name)
        return found

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._tasks)

    def served_names(self) -> list[str]:
        """Return all names under which jobs may be stored, including aliases and built-in tasks, sorted.

        Tasks of other environments are left out, so that a worker does not claim their jobs.
        """
        names = {
            name for task in self._tasks.values() if self.is_served(task) for name in self.names_of(task)
        }
        return sorted({*names, *self._own, *BUILT_IN})

    def is_served(self, task: Declared) -> bool:
        """Whether workers of this app run the task: it is not declared for another environment."""
        return self.environment is None or task.options.runs_in(self.environment)

    def check_environment(self, task: Declared) -> None:
        """Refuse a task that is declared for another environment."""
        if not self.is_served(task):
            raise WrongEnvironment(
                f"task {task.name} is for the environment {task.options.environment}, and this app is for {self.environment}; "
                f"enqueue it there, or declare the task without environment=",
                task=task.name,
                environment=self.environment,
            )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.name_of(name) in self._tasks

    def __iter__(self) -> Iterator[Declared]:
        return iter([self._tasks[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._tasks)


def _place(task: Declared) -> str:
    return f"{task.target.__module__}.{getattr(task.target, '__qualname__', task.name)}"


def _load_of(task: Declared) -> object:
    """Return an object that differs between two imports of the task's module: a reload creates a new spec."""
    return getattr(sys.modules.get(task.target.__module__), "__spec__", None)


def _two_lines(task: Declared, other: Declared) -> tuple[int, int] | None:
    """Return the lines of two different functions in one file; None for the same function or interactive input."""
    first, second = _code(task), _code(other)
    if first is None or second is None or first.co_filename != second.co_filename:
        return None
    if first.co_filename.startswith("<") or first.co_firstlineno == second.co_firstlineno:
        return None
    return first.co_firstlineno, second.co_firstlineno


def _code(task: Declared) -> CodeType | None:
    """Return the code of a function, or of a class's first own method."""
    target: Any = task.target
    if task.is_class:
        own = vars(target).values()
        target = next((value for value in own if isinstance(value, FunctionType)), None)
    return getattr(inspect.unwrap(target), "__code__", None) if target is not None else None
