"""The tasks backend: Django's task standard on Tidemill."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from traceback import format_exception
from types import TracebackType
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from tidemill.app import App
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.jobs.handle import Job
from tidemill.contrib.django.project import PROJECT, open_transaction
from tidemill.contrib.django.standard import (
    BaseTaskBackend,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    signals,
)
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.context import Context
from tidemill.errors import Cancel, JobNotFound, PermanentError, Review, Snooze, TidemillError

_OPTIONS_OF_STANDARD = ("name", "queue", "priority", "aliases")

_STATUS = {
    JobState.CLAIMED: TaskResultStatus.READY,
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.REVIEW_NEEDED: TaskResultStatus.RUNNING,
    JobState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    JobState.FAILED: TaskResultStatus.FAILED,
    JobState.TIMED_OUT: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
    JobState.DEAD_LETTERED: TaskResultStatus.FAILED,
}
"""Django's status of each state; every other state is ``READY``."""

_NOT_TRIED = (ExecutionState.RELEASED, ExecutionState.SUSPENDED)

_TASKS: dict[str, Any] = {}
"""Django's tasks by import path. A stored name is looked up here and never imported."""


class Backend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Stores the tasks of Django's ``@task`` as jobs, in the caller's transaction.

    Every task is a Tidemill task under its own import path. ``OPTIONS`` are options of Tidemill tasks, such as
    ``{"retry": 3, "timeout": "10m"}``; without ``retry`` a task has one attempt, as the standard says.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        wrong = [name for name in _OPTIONS_OF_STANDARD if name in self.options]
        if wrong:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['OPTIONS'] has {wrong[0]!r}, which each task sets for itself"
            )
        try:
            # A task of an app that is thrown away validates the options.
            with App("memory://") as scratch:
                scratch.task(**self._task_options("options"))(_nothing)
        except TidemillError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error

    def _task_options(self, name: str) -> dict[str, Any]:
        return {"retry": None, **self.options, "name": name}

    # Declaration -------------------------------------------------------------------------------------------------------

    def validate_task(self, task: Any) -> None:
        """Check a task and make it known to the worker; Django calls this when a module declares a task."""
        super().validate_task(task)
        earlier = _TASKS.get(task.module_path)
        if earlier is None or earlier.func is not task.func:
            self._declare(task)
            _TASKS[task.module_path] = task

    def _declare(self, task: Any) -> None:
        target: Callable[..., Any]
        if inspect.iscoroutinefunction(task.func):

            async def acall(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
                earlier = [] if ctx.attempt == 1 else await asyncio.to_thread(_executions, ctx)
                call = _TaskCall(self, task, ctx, args, kwargs, earlier)
                with call:
                    call.returned = normalize_json(await task.func(*call.arguments, **kwargs))
                return call.returned

            target = acall
        else:

            def call_task(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
                earlier = [] if ctx.attempt == 1 else _executions(ctx)
                call = _TaskCall(self, task, ctx, args, kwargs, earlier)
                with call:
                    call.returned = normalize_json(task.func(*call.arguments, **kwargs))
                return call.returned

            target = call_task
        # Errors and the dashboard name the user's function.
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(target, name, getattr(task.func, name))
        PROJECT.app.task(**self._task_options(task.module_path))(target)

    # Enqueue -----------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job and return its result, without a value yet. Inside ``atomic()`` it commits with the transaction."""
        self.validate_task(task)
        arguments = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        job = self._bound(task).enqueue(**arguments)
        result = self._result(task, job, [], {})
        alias = open_transaction()
        send = partial(signals.task_enqueued.send, type(self), task_result=result)
        if alias is None:
            send()
        else:
            transaction.on_commit(send, using=alias)
        return result

    def _bound(self, task: Any) -> BoundTask[..., Any]:
        options: dict[str, Any] = {"queue": task.queue_name, "priority": task.priority}
        if task.run_after is not None:
            options["run_after"] = _aware(task.run_after)
        return PROJECT.synced().bound_task(task.module_path).using(**options)

    # Results -----------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> Any:
        """Return the result of a job; raise ``TaskResultDoesNotExist`` if there is none with this id."""
        try:
            job = PROJECT.synced().jobs.get(UUID(str(result_id)), tenant=ALL_TENANTS)
        except (ValueError, JobNotFound):
            raise TaskResultDoesNotExist(result_id) from None
        task = _TASKS.get(job.task)
        if task is None or set(job.args) != {"args", "kwargs"}:
            raise TaskResultDoesNotExist(result_id)
        used = task.using(queue_name=job.queue, priority=job.priority, backend=self.alias)
        return self._result(used, job, job.executions(), job.args)

    def _result(
        self, task: Any, job: Job[Any], executions: Sequence[Execution], args: Mapping[str, Any]
    ) -> Any:
        tries = _tries(executions)
        started = _started(tries)
        given = args or job.args
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=_STATUS.get(JobState(job.status), TaskResultStatus.READY),
            enqueued_at=_local(job.created_at),
            started_at=_local(started[0]) if started else None,
            last_attempted_at=_local(started[-1]) if started else None,
            finished_at=_local(job.finished_at),
            args=given["args"],
            kwargs=given["kwargs"],
            backend=self.alias,
            errors=[_error(run) for run in tries if run.error is not None],
            worker_ids=[str(run.worker) for run in tries],
        )
        if result.status == TaskResultStatus.SUCCESSFUL:
            object.__setattr__(result, "_return_value", job.value)
        return result


class _TaskCall:
    """Context manager of one execution that sends Django's signals."""

    def __init__(
        self,
        backend: Backend,
        task: Any,
        ctx: Context,
        args: list[Any],
        kwargs: dict[str, Any],
        earlier: Sequence[Execution],
    ) -> None:
        row = ctx.job
        self._sender = type(backend)
        self._is_last = ctx.attempt >= row.max_attempts
        self.returned: Any = None
        now = _local(timezone.now())
        tries = [run for run in _tries(earlier) if run.state is not ExecutionState.RUNNING]
        self.result = TaskResult(
            task=task.using(queue_name=row.queue, priority=row.priority, backend=backend.alias),
            id=str(row.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=_local(row.created_at),
            started_at=_local(_started(tries)[0]) if _started(tries) else now,
            last_attempted_at=now,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=backend.alias,
            errors=[_error(run) for run in tries if run.error is not None],
            worker_ids=[*(str(run.worker) for run in tries), str(row.worker or "")],
        )
        self.arguments = [TaskContext(task_result=self.result), *args] if task.takes_context else args

    def __enter__(self) -> None:
        signals.task_started.send(sender=self._sender, task_result=self.result)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            object.__setattr__(self.result, "_return_value", self.returned)
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif self._ends_with(error):
            text = "".join(format_exception(error))
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            self.result.errors.append(TaskError(exception_class_path=path, traceback=text))
            self._finish(TaskResultStatus.FAILED)

    def _ends_with(self, error: BaseException) -> bool:
        """Whether the job does not run again after this exception."""
        if isinstance(error, PermanentError | Cancel):
            return True
        return self._is_last and not isinstance(error, Snooze | Review)

    def _finish(self, status: Any) -> None:
        object.__setattr__(self.result, "finished_at", _local(timezone.now()))
        object.__setattr__(self.result, "status", status)
        signals.task_finished.send(self._sender, task_result=self.result)


def _nothing() -> None: ...


def _executions(ctx: Context) -> list[Execution]:
    return PROJECT.app.jobs.get(ctx.job_id, tenant=ALL_TENANTS).executions()


def _tries(executions: Sequence[Execution]) -> list[Execution]:
    """Return the executions that used an attempt, oldest first."""
    return [run for run in reversed(executions) if run.state not in _NOT_TRIED and run.worker is not None]


def _started(tries: Sequence[Execution]) -> list[datetime]:
    return [run.started_at for run in tries if run.started_at is not None]


def _error(run: Execution) -> Any:
    assert run.error is not None
    path = run.error.type if "." in run.error.type else f"builtins.{run.error.type}"
    return TaskError(exception_class_path=path, traceback=run.error.traceback or run.error.message)


def _aware(at: datetime) -> datetime:
    return at if timezone.is_aware(at) else timezone.make_aware(at)


def _local(at: datetime | None) -> datetime | None:
    """Return an instant as the project writes instants: aware, or naive without ``USE_TZ``."""
    if at is None or settings.USE_TZ or timezone.is_naive(at):
        return at
    naive: datetime = timezone.make_naive(at)
    return naive
