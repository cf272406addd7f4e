"""Retry hooks of a task: ``should_retry`` and ``retry_delay``.

Hooks are options of a task or methods of its class, and are user code. If one fails, the retry policy decides and the
job's log contains the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tidemill.domain.durations import read_optional
from tidemill.domain.job import Claim, ErrorInfo, Execution, JobRow
from tidemill.domain.outcome import TimedOut
from tidemill.domain.states import ExecutionState
from tidemill.engine import sanitize
from tidemill.errors import UsageError
from tidemill.tasks.task import Declared, Task

_log = logging.getLogger("tidemill.engine")

HOOKS = ("should_retry", "retry_delay")

Complain = Callable[[str], None]
"""Writes a warning to the job's log."""


class RetryWish(NamedTuple):
    """Answers of the hooks. None leaves the decision to the retry policy."""

    retryable: bool | None = None
    after: timedelta | None = None


NO_WISH = RetryWish()


def has_hooks(declared: Declared) -> bool:
    """Whether the task declares a retry hook."""
    options, target = declared.options, declared.target
    if options.should_retry is not None or options.retry_delay is not None:
        return True
    return declared.is_class and any(
        getattr(target, name, None) not in (None, getattr(Task, name)) for name in HOOKS
    )


def ask(declared: Declared, task: object | None, execution: Execution, complain: Complain) -> RetryWish:
    """Call the hooks for an execution. ``task`` is the instance that ran it, if the task is a class."""
    retryable = _ask(declared, task, "should_retry", execution, bool, complain)
    if retryable is False:
        return RetryWish(retryable)
    return RetryWish(retryable, _ask(declared, task, "retry_delay", execution, timedelta, complain))


def execution_of(
    claim: Claim, job: JobRow, state: ExecutionState, at: datetime, error: ErrorInfo | None = None
) -> Execution:
    """Return the execution in the form passed to the hooks."""
    return Execution(
        job_id=job.id,
        number=claim.token,
        attempt=claim.attempt,
        state=state,
        worker=claim.worker or job.worker,
        claimed_at=job.claimed_at,
        started_at=job.started_at,
        finished_at=at,
        error=error,
    )


def timed_out(
    declared: Declared,
    claim: Claim,
    limit: timedelta,
    job: Callable[[], JobRow],
    at: datetime,
    complain: Complain,
) -> TimedOut:
    """Return the outcome of an execution that was stopped at its timeout, with the hooks' answers.

    For a class task the hooks run on a new instance: a thread that does not end may still be using the one that ran.
    """
    if not has_hooks(declared):
        return TimedOut(limit)
    execution = execution_of(claim, job(), ExecutionState.TIMED_OUT, at)
    task: object | None = None
    if declared.is_class:
        try:
            task = declared.target()
        except Exception as error:  # noqa: BLE001  (the constructor is user code)
            _complain(declared, "the constructor", error, complain)
            return TimedOut(limit)
    wish = ask(declared, task, execution, complain)
    return TimedOut(limit, wish.retryable, wish.after)


def _ask(
    declared: Declared,
    task: object | None,
    name: str,
    execution: Execution,
    kind: type[Any],
    complain: Complain,
) -> Any:
    hook = getattr(declared.options, name) or getattr(task, name, None)
    if hook is None:
        return None
    try:
        answer = hook(execution)
        if kind is timedelta:
            return read_optional(f"{name} of task {declared.name}", answer, error=UsageError)
        if answer is None or isinstance(answer, kind):
            return answer
        raise UsageError(f"{name} of task {declared.name} returned {answer!r}, not a {kind.__name__}")
    except Exception as error:  # noqa: BLE001  (a failing hook is ignored)
        _complain(declared, name, error, complain)
        return None


def _complain(declared: Declared, name: str, error: Exception, complain: Complain) -> None:
    _log.warning("%s of task %s failed; its policy decides", name, declared.name, exc_info=error)
    complain(f"{name} failed, the policy decides: {sanitize.type_of(error)}: {sanitize.text_of(error)}")
