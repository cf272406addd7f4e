"""Exceptions of Celery's API."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any


class CeleryError(Exception):
    """Base class of Celery's exceptions."""


class TaskPredicate(CeleryError):
    """Base class of exceptions that end a task without being its failure."""


class CeleryRetry(TaskPredicate):
    """Raised by ``self.retry``: the task runs again later."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: float | datetime | None = None,
        is_eager: bool = False,
        **_: Any,
    ) -> None:
        super().__init__(message, exc, when)
        self.message, self.exc, self.when, self.is_eager = message, exc, when, is_eager
        #: the arguments of the next attempt, if they change
        self.args_again: tuple[Any, ...] | None = None
        self.kwargs_again: dict[str, Any] | None = None

    def humanize(self) -> str:
        """Return when the task runs again, in words."""
        return f"in {self.when}s" if isinstance(self.when, int | float) else f"at {self.when}"

    def __str__(self) -> str:
        if self.message:
            return self.message
        reason = f": {self.exc!r}" if self.exc is not None else ""
        return f"Retry {self.humanize()}{reason}"


class Ignore(TaskPredicate):
    """Raise it to end a task without a result."""


class Reject(TaskPredicate):
    """Raise it to drop a task, or to put it back into its queue with ``requeue=True``."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        super().__init__(reason, requeue)
        self.reason, self.requeue = reason, requeue


class ImproperlyConfigured(CeleryError):
    """The configuration is invalid."""


class TaskError(CeleryError):
    """Base class of errors of tasks."""


class MaxRetriesExceededError(TaskError):
    """A task was retried as often as it may be."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.task_args, self.task_kwargs = kwargs.pop("task_args", ()), kwargs.pop("task_kwargs", {})
        super().__init__(*args, **kwargs)


class TaskRevokedError(TaskError):
    """The task was revoked before it ended."""


class ChordError(Exception):
    """A call of the header of a chord has failed, so its body does not run."""


class NotRegistered(KeyError, TaskError):
    """There is no task with this name."""


class CeleryTimeoutError(TaskError, builtins.TimeoutError):
    """The result did not arrive in time."""


class TimeLimitExceeded(Exception):
    """The task was killed at its hard time limit."""


class SoftTimeLimitExceeded(Exception):
    """Raised inside a task at its soft time limit."""


# Programs log and compare Celery's names.
CeleryRetry.__name__ = CeleryRetry.__qualname__ = "Retry"
CeleryTimeoutError.__name__ = CeleryTimeoutError.__qualname__ = "TimeoutError"
Retry = CeleryRetry
TimeoutError = CeleryTimeoutError  # noqa: A001  (Celery's name)
