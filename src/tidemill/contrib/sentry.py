"""Sentry: errors of jobs, traces through queues, and check-ins of schedules.

::

    sentry_sdk.init(dsn="https://…", integrations=[TidemillIntegration(monitor_schedules=True)])
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations import Integration
from sentry_sdk.scope import Scope, add_global_event_processor
from sentry_sdk.utils import event_from_exception

from tidemill.domain.job import JobRow
from tidemill.domain.schedules import ScheduleRow
from tidemill.errors import Cancel, Review, Signal
from tidemill.tasks.ambient import current_job
from tidemill.tasks.hooks import AllHooks, Hooks
from tidemill.tasks.middleware import HookStep

_TRACE_HEADERS = ("sentry-trace", "baggage")
_FRESH = 60.0  # seconds for which a schedule is cached
_MOST_RAISED = 1_000


class TidemillIntegration(Integration):
    """Reports the last failure of every job that fails, with the job as its context.

    Attempts that are retried, and the signals ``Retry``, ``Snooze``, ``Cancel`` and ``Review``, are not reported. A job
    whose process was killed or crashed is reported as a message. ``ignore`` are exception types that are not reported.
    With ``monitor_schedules``, every fire of a schedule is one check-in of a monitor that has the key of the schedule: it
    begins with the first execution of the job and ends with the job. Further attempts and retries by a person belong to it.
    """

    identifier = "tidemill"

    def __init__(
        self,
        *,
        monitor_schedules: bool = False,
        ignore: Sequence[type[BaseException]] = (),
        propagate_traces: bool = True,
    ) -> None:
        self.monitor_schedules = monitor_schedules
        self.ignore = tuple(ignore)
        self.propagate_traces = propagate_traces
        #: executions that have just raised an exception, by job and token
        self._raised: dict[tuple[UUID, int], _Raised] = {}
        self._schedules: dict[UUID, tuple[float, ScheduleRow | None]] = {}

    @staticmethod
    def setup_once() -> None:
        """Install the hooks of every app of this process."""
        add_global_event_processor(_without_duplicates)
        AllHooks.install(_install)

    def note_raised(self, job: JobRow, raised: _Raised) -> None:
        """Remember an execution until its worker has decided whether the job is retried."""
        self._raised[job.id, job.token] = raised
        while (
            len(self._raised) > _MOST_RAISED
        ):  # not every execution that raises fails, such as one of older code
            self._raised.pop(next(iter(self._raised)), None)

    def take_raised(self, job: JobRow) -> _Raised | None:
        """Return and forget an execution that raised an exception."""
        return self._raised.pop((job.id, job.token), None)

    def schedule(self, hooks: Hooks, id: UUID) -> ScheduleRow | None:
        """Return a schedule as it was at most a minute ago; None if it is gone or the store does not answer."""
        read_at, row = self._schedules.get(id, (float("-inf"), None))
        if time.monotonic() - read_at > _FRESH and hooks.find_schedule is not None:
            ambient = current_job()
            row = hooks.find_schedule(id, None if ambient is None else ambient.store_name)
            self._schedules[id] = time.monotonic(), row
        return row


def _integration() -> TidemillIntegration | None:
    integration = sentry_sdk.get_client().get_integration(TidemillIntegration)
    return integration if isinstance(integration, TidemillIntegration) else None


def _install(hooks: Hooks) -> None:
    def execute(job: JobRow) -> Any:
        return _execution(hooks, job)

    hooks.add_managers(execute, _enqueue)
    hooks.failures.append(partial(_report, hooks))
    hooks.flushes.append(lambda seconds: sentry_sdk.flush(timeout=seconds))


@contextmanager
def _enqueue(step: HookStep) -> Iterator[None]:
    """Open a span around an enqueue; its jobs carry the trace in their headers."""
    integration = _integration()
    if integration is None:
        yield
        return
    first = step.jobs[0]
    with sentry_sdk.start_span(op="queue.publish", name=step.task) as span:
        span.set_data("messaging.system", "tidemill")
        span.set_data("messaging.destination.name", first.queue)
        if len(step.jobs) == 1:
            span.set_data("messaging.message.id", str(first.id))
            span.set_data("messaging.message.body.size", len(first.args))
        if integration.propagate_traces:
            for name, value in zip(
                _TRACE_HEADERS, (sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()), strict=True
            ):
                if value:
                    step.headers[name] = value
        yield


@contextmanager
def _execution(hooks: Hooks, job: JobRow) -> Iterator[None]:
    """Run an execution in a scope and a transaction of its own."""
    integration = _integration()
    if integration is None:
        yield
        return
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_transaction_name(job.task, source="task")
        scope.set_tag("tidemill.task", job.task)
        scope.set_tag("tidemill.queue", job.queue)
        scope.set_context("job", _described(job))
        headers: Mapping[str, str] = job.details.headers if integration.propagate_traces else {}
        carried = {name: headers[name] for name in _TRACE_HEADERS if name in headers}
        transaction = sentry_sdk.continue_trace(
            carried, op="queue.process", name=job.task, source="task", origin="auto.queue.tidemill"
        )
        checkin = _CheckIn(integration, hooks, job)
        checkin.begin()
        with sentry_sdk.start_transaction(transaction) as span:
            for name, value in _measured(job).items():
                span.set_data(name, value)
            try:
                yield
            except BaseException as error:
                if type(error) in (Cancel, Review):
                    checkin.end("ok")
                elif not isinstance(error, Signal) or isinstance(error, Cancel):
                    span.set_status("internal_error")
                    integration.note_raised(job, _Raised(scope.fork(), checkin))
                raise
            span.set_status("ok")
            checkin.end("ok")


def _described(job: JobRow) -> dict[str, object]:
    return {
        "id": str(job.id),
        "task": job.task,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "queue": job.queue,
        "tenant": job.tenant,
        "correlation_id": job.details.correlation_id or str(job.id),
    }


def _measured(job: JobRow) -> dict[str, object]:
    measured: dict[str, object] = {
        "messaging.system": "tidemill",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "messaging.message.retry.count": max(job.attempt - 1, 0),
        "messaging.message.body.size": len(job.args),
    }
    if job.started_at is not None:
        latency = max((job.started_at - job.run_at).total_seconds(), 0.0)
        measured["messaging.message.receive.latency"] = latency * 1000
    return measured


def _report(hooks: Hooks, job: JobRow, error: BaseException, final: bool) -> None:
    """Report the exception of a job that is not retried, and end its check-in."""
    integration = _integration()
    if integration is None:
        return
    raised = integration.take_raised(job)
    if not final:
        return
    checkin = _CheckIn(integration, hooks, job) if raised is None else raised.checkin
    checkin.end("error")
    if isinstance(error, (*integration.ignore, Cancel, asyncio.CancelledError)):
        return  # the record of a timeout in the log is the event: its exception says nothing more
    event, hint = event_from_exception(
        error,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "tidemill", "handled": False},
    )
    if raised is None:  # the result of the task could not be stored, which happens after its scope has ended
        event["contexts"] = {"job": _described(job)}
        sentry_sdk.capture_event(event, hint)
        return
    with sentry_sdk.scope.use_isolation_scope(raised.scope):
        sentry_sdk.capture_event(event, hint)


def _without_duplicates(event: Any, hint: dict[str, Any]) -> Any:
    """Drop the event of a log record about an exception that ``_report`` reports itself."""
    record = hint.get("log_record")
    if getattr(record, "tidemill_raised", False) and _integration() is not None:
        return None
    return event


class _Raised(NamedTuple):
    """The scope and the check-in of an execution that raised an exception."""

    scope: Scope
    checkin: _CheckIn


class _CheckIn:
    """The check-in of one fire of a schedule; nothing if the job has no schedule or the app wants no monitors.

    Its id is that of the job, so that all executions of a fire belong to one check-in.
    """

    def __init__(self, integration: TidemillIntegration, hooks: Hooks, job: JobRow) -> None:
        self._job, self._schedule = job, None
        self._began: float | None = None
        if integration.monitor_schedules and job.details.schedule_id is not None:
            self._schedule = integration.schedule(hooks, job.details.schedule_id)

    def begin(self) -> None:
        """Send that the fire is in progress, with its first execution."""
        if self._job.token == 1:
            self._began = time.monotonic()
            self._send("in_progress", None)

    def end(self, status: str) -> None:
        """Send how the fire ended. Sentry computes the duration of a fire with several executions."""
        self._send(status, None if self._began is None else time.monotonic() - self._began)

    def _send(self, status: str, duration: float | None) -> None:
        if self._schedule is not None:
            monitor = _monitor(self._schedule, self._job)
            capture_checkin(self._schedule.key, self._job.id.hex, status, duration, monitor)


def _monitor(schedule: ScheduleRow, job: JobRow) -> Any:
    """The configuration of a monitor: the cron expression or the interval of the schedule, and its time zone."""
    config: dict[str, Any] = {"timezone": schedule.timezone}
    if job.timeout is not None:
        config["max_runtime"] = max(1, round(job.timeout.total_seconds() / 60))
    trigger = schedule.trigger
    expression = trigger.get("expression")
    if isinstance(expression, str) and len(expression.split()) == 5:
        config["schedule"] = {"type": "crontab", "value": expression}
        return config
    seconds = trigger.get("seconds")
    if isinstance(seconds, int | float) and seconds >= 60 and seconds % 60 == 0:
        config["schedule"] = {"type": "interval", "value": int(seconds // 60), "unit": "minute"}
        return config
    # Sentry has no words for other triggers; the monitor exists and is configured by hand.
    return None
