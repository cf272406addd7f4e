"""OpenTelemetry traces and metrics of jobs, by the conventions for messaging.

``TidemillInstrumentor().instrument()`` instruments every app of the process, ``instrument(app)`` one app.
``opentelemetry-instrument tidemill worker shop:app`` does the former in every process of a worker.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.trace_context import TRACEPARENT
from tidemill.errors import Signal
from tidemill.tasks.hooks import AllHooks, Hooks
from tidemill.tasks.middleware import HookStep

if TYPE_CHECKING:
    from tidemill.app import App

SYSTEM = "tidemill"
_NAME = "tidemill"
_SOON = timedelta(seconds=1)  # a job that is due this much after its creation was delayed on purpose
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
_PROPAGATOR = TraceContextTextMapPropagator()


class _Instruments:
    """The tracer and the metrics of one instrumentation."""

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self.tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self.tracers, self.meters = tracer_provider, meter_provider
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs enqueued.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Executions of jobs begun."
        )
        self.duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Run time of executions.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    def enqueue(self, step: HookStep) -> AbstractContextManager[Any]:
        return _Producer(self, step)

    def execute(self, job: JobRow) -> AbstractContextManager[Any]:
        return _Consumer(self, job)

    def install(self, hooks: Hooks) -> None:
        """Add the context managers to the hooks of an app, once."""
        if self.execute not in hooks.execute_managers:
            hooks.add_managers(self.execute, self.enqueue)
            hooks.flushes.append(self.flush)

    def remove(self, hooks: Hooks) -> None:
        """Remove the context managers from the hooks of an app."""
        hooks.remove(self.execute, self.enqueue, self.flush)

    def flush(self, seconds: float) -> None:
        """Export what the providers have collected. Providers of the API alone have nothing to export."""
        for provider in (
            self.tracers or trace.get_tracer_provider(),
            self.meters or metrics.get_meter_provider(),
        ):
            force = getattr(provider, "force_flush", None)
            if force is not None:
                force(int(seconds * 1000))


class _Producer:
    """The span around one enqueue. Its jobs carry its context in their headers."""

    def __init__(self, instruments: _Instruments, step: HookStep) -> None:
        self._instruments, self._step = instruments, step

    def __enter__(self) -> None:
        step, jobs = self._step, self._step.jobs
        first = jobs[0]
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.type": "send",
            "messaging.operation.name": "enqueue",
            "messaging.destination.name": first.queue,
            "tidemill.task": step.task,
            "tidemill.tenant": step.tenant,
        }
        if len(jobs) == 1:
            attributes |= _ids_of(first)
        else:
            attributes["messaging.batch.message_count"] = len(jobs)
        self._span = self._instruments.tracer.start_span(
            f"send {first.queue}", _surrounding(first), SpanKind.PRODUCER, attributes
        )
        inside = trace.set_span_in_context(self._span)
        self._token = otel_context.attach(inside)
        if len(jobs) == 1:
            _PROPAGATOR.inject(step.headers, inside)
        else:
            step.jobs = [self._created(job, inside) for job in jobs]

    def _created(self, job: NewJob, inside: Context) -> NewJob:
        """Return a job of a batch with the context of a span of its own."""
        span = self._instruments.tracer.start_span(
            f"create {job.queue}",
            inside,
            SpanKind.PRODUCER,
            {
                "messaging.system": SYSTEM,
                "messaging.operation.type": "create",
                "messaging.operation.name": "create",
                "messaging.destination.name": job.queue,
                "tidemill.task": job.task,
                **_ids_of(job),
            },
        )
        headers = dict(job.details.headers)
        _PROPAGATOR.inject(headers, trace.set_span_in_context(span))
        span.end()
        return job._replace(details=replace(job.details, headers=headers))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        otel_context.detach(self._token)
        measured = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "enqueue",
            "messaging.destination.name": self._step.jobs[0].queue if self._step.jobs else "",
            "tidemill.task": self._step.task,
        }
        if error is not None:
            _fail(self._span, error)
            measured["error.type"] = type(error).__qualname__
        self._span.end()
        self._instruments.sent.add(len(self._step.jobs), measured)


class _Consumer:
    """The span around one execution.

    It is linked to the span that enqueued the job. It is also its child if this is the first attempt at a job that was
    due at once; a later run belongs to a trace of its own, because the first one may have ended long ago.
    """

    def __init__(self, instruments: _Instruments, job: JobRow) -> None:
        self._instruments, self._job = instruments, job

    def __enter__(self) -> None:
        job = self._job
        creator = _PROPAGATOR.extract(dict(job.details.headers), Context())
        linked = trace.get_current_span(creator).get_span_context()
        at_once = (
            job.attempt == 1
            and not job.crashes
            and job.run_at - job.created_at < _SOON
            and job.details.schedule_id is None
        )
        self._span = self._instruments.tracer.start_span(
            f"process {job.queue}",
            creator if at_once else Context(),
            SpanKind.CONSUMER,
            {
                "messaging.system": SYSTEM,
                "messaging.operation.type": "process",
                "messaging.operation.name": "run",
                "messaging.destination.name": job.queue,
                "tidemill.task": job.task,
                "tidemill.tenant": job.tenant,
                "tidemill.attempt": job.attempt,
                "messaging.message.id": str(job.id),
                "messaging.message.conversation_id": job.details.correlation_id or str(job.id),
            },
            [Link(linked)] if linked.is_valid else (),
        )
        self._token = otel_context.attach(trace.set_span_in_context(self._span))
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        took = time.perf_counter() - self._began
        measured: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": "run",
            "messaging.destination.name": self._job.queue,
            "tidemill.task": self._job.task,
        }
        self._instruments.consumed.add(1, measured)
        if isinstance(error, Signal):
            self._span.set_attribute("tidemill.signal", type(error).__name__)
        elif error is not None:
            _fail(self._span, error)
            measured["error.type"] = type(error).__qualname__
        self._instruments.duration.record(took, measured)  # inside the span, so that it can be an exemplar
        otel_context.detach(self._token)
        self._span.end()


def _ids_of(job: NewJob) -> dict[str, str]:
    return {
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": job.details.correlation_id or str(job.id),
    }


def _surrounding(job: NewJob) -> Context | None:
    """The context of the new span: that of a request that brought a trace of its own, unless a span is open here."""
    if trace.get_current_span().get_span_context().is_valid or TRACEPARENT not in job.details.headers:
        return None
    return _PROPAGATOR.extract(dict(job.details.headers))


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__qualname__}: {error}"))
    span.set_attribute("error.type", type(error).__qualname__)


class TidemillInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments apps with OpenTelemetry.

    ``tracer_provider`` and ``meter_provider`` replace the global providers.
    """

    _everywhere: _Instruments | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no requirements: the package that is instrumented contains this module."""
        return ()

    def instrument(self, app: App | None = None, **settings: Any) -> None:
        """Instrument this app, or every app of the process."""
        if app is None:
            super().instrument(**settings)
        else:
            _Instruments(settings.get("tracer_provider"), settings.get("meter_provider")).install(app.hooks)

    def _instrument(self, **settings: Any) -> None:
        made = _Instruments(settings.get("tracer_provider"), settings.get("meter_provider"))
        TidemillInstrumentor._everywhere = made
        AllHooks.install(made.install)

    def _uninstrument(self, **_settings: Any) -> None:
        made = TidemillInstrumentor._everywhere
        if made is not None:
            AllHooks.uninstall(made.install, made.remove)
            TidemillInstrumentor._everywhere = None
