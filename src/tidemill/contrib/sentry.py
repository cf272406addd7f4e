"""Sentry: errors of jobs, traces through queues, and check-ins of schedules.

::

    sentry_sdk.init(dsn="https://…", integrations=[TidemillIntegration(monitor_schedules=True)])
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations import Integration
from sentry_sdk.scope import Scope, add_global_event_processor
from sentry_sdk.utils import event_from_exception

from tidemill.domain.job import JobRow
from tidemill.domain.schedules import ScheduleRow
from tidemill.errors import Signal
from tidemill.tasks.ambient import current_job
from tidemill.tasks.hooks import AllHooks, Hooks
from tidemill.tasks.middleware import HookStep

_TRACE_HEADERS = ("sentry-trace", "baggage")
_FRESH = 60.0  # seconds for which a schedule is cached


class TidemillIntegration(Integration):
    """Reports the last failure of every job that fails, with the job as its context.

    Attempts that are retried, and the signals ``Retry``, ``Snooze``, ``Cancel`` and ``Review``, are not reported. A job
    whose process was killed or crashed is reported as a message. ``ignore`` are exception types that are not reported.
    With ``monitor_schedules``, every fire of a schedule is a check-in of a monitor that has the key of the schedule.
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
        #: scopes of executions that have just raised an exception, by job and token
        self.scopes: dict[tuple[UUID, int], Scope] = {}
        self._schedules: dict[UUID, tuple[float, ScheduleRow | None]] = {}

    @staticmethod
    def setup_once() -> None:
        """Install the hooks of every app of this process."""
        add_global_event_processor(_without_duplicates)
        AllHooks.install(_install)

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
    hooks.failures.append(_report)
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
        with sentry_sdk.start_transaction(transaction) as span:
            for name, value in _measured(job).items():
                span.set_data(name, value)
            try:
                yield
            except BaseException as error:
                if isinstance(error, Signal):
                    checkin.end("ok")
                else:
                    span.set_status("internal_error")
                    checkin.end("error")
                    integration.scopes[job.id, job.token] = scope.fork()
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


def _report(job: JobRow, error: BaseException, final: bool) -> None:
    """Report the exception of a job that is not retried."""
    integration = _integration()
    if integration is None:
        return
    scope = integration.scopes.pop((job.id, job.token), None)
    if not final or isinstance(error, integration.ignore):
        return
    event, hint = event_from_exception(
        error,
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": "tidemill", "handled": False},
    )
    if scope is None:  # the result of the task could not be stored, which happens after its scope has ended
        event["contexts"] = {"job": _described(job)}
        sentry_sdk.capture_event(event, hint)
        return
    with sentry_sdk.scope.use_isolation_scope(scope):
        sentry_sdk.capture_event(event, hint)


def _without_duplicates(event: Any, hint: dict[str, Any]) -> Any:
    """Drop the event of a log record about an exception that ``_report`` reports itself."""
    record = hint.get("log_record")
    if getattr(record, "tidemill_raised", False) and _integration() is not None:
        return None
    return event


class _CheckIn:
    """The check-in of one fire of a schedule; nothing if the job has no schedule or the app wants no monitors."""

    def __init__(self, integration: TidemillIntegration, hooks: Hooks, job: JobRow) -> None:
        self._id: str | None = None
        schedule_id = job.details.schedule_id
        if not integration.monitor_schedules or schedule_id is None:
            return
        schedule = integration.schedule(hooks, schedule_id)
        if schedule is None:
            return
        self._slug, self._began = schedule.key, time.monotonic()
        self._id = capture_checkin(self._slug, status="in_progress", monitor_config=_monitor(schedule, job))

    def end(self, status: str) -> None:
        if self._id is not None:
            capture_checkin(self._slug, self._id, status=status, duration=time.monotonic() - self._began)


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
