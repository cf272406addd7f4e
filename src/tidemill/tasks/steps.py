"""Options of one step of a durable function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidemill.domain.durations import Duration, read_optional
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.steps import step_name
from tidemill.errors import UsageError
from tidemill.tasks.options import read_retry


class _Marker(Enum):
    RESULT = "the result of the step"


RESULT: Final = _Marker.RESULT
"""In ``undo(…)``: the result of the step, or None if it is not known whether the step happened."""


class UndoTask(Protocol):
    """A task that can be enqueued: ``@app.task``, or its ``using(…)``."""

    def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Undo:
    """A task that compensates a step, and its arguments."""

    task: UndoTask
    arguments: Mapping[str, Any]


def undo(task: UndoTask, /, **arguments: Any) -> Undo:
    """The compensation of a step: a job of this task, which runs if the job of the step ends without success.

    ``RESULT`` as an argument stands for the result of the step. The compensations of a job run one after another, that of
    the last step first.
    """
    if not callable(getattr(task, "enqueue", None)):
        raise UsageError(f"{task!r} is not a task; declare it with @app.task and give that to undo(…)")
    return Undo(task, arguments)


@dataclass(frozen=True, slots=True)
class Step:
    """A step with options: ``ctx.step(Step("charge", retry=Exponential(max_attempts=5)), charge_card, order)``."""

    name: str
    key: object = None  #: distinguishes the steps of a loop: ``charge[42]``
    retry: RetryPolicy | None = None  #: tries of the step itself, before its error is raised
    timeout: timedelta | None = None  #: for one try; then ``TimeoutError`` is raised
    lazy: bool = False  #: the record is written with the next one, so the step may be repeated after a crash
    compensate: Undo | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            key: object = None,
            retry: RetryPolicy | str | int | None = None,
            timeout: Duration | None = None,
            lazy: bool = False,
            compensate: Undo | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        step_name(self.name, self.key)
        if self.retry is not None:
            object.__setattr__(self, "retry", read_retry(self.retry))
        timeout = read_optional("timeout", self.timeout, option="timeout")
        if timeout is not None and timeout <= timedelta(0):
            raise UsageError(f"step {self.name}: timeout is {timeout}; give a duration longer than zero")
        object.__setattr__(self, "timeout", timeout)
        if self.compensate is not None and not isinstance(self.compensate, Undo):
            raise UsageError(f"step {self.name}: compensate is {self.compensate!r}; give undo(task, …)")
        if self.lazy and self.compensate is not None:
            raise UsageError(
                f"step {self.name}: a lazy step may be repeated, so it cannot have a compensation"
            )

    @property
    def full_name(self) -> str:
        """The name with its key."""
        return step_name(self.name, self.key)
