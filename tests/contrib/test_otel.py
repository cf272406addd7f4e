"""Spans and metrics of OpenTelemetry, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span

from tidemill import App, Every, Fixed, ManualClock, PermanentError, Snooze
from tidemill.contrib.otel import TidemillInstrumentor


class World:
    """An instrumented app and its exported spans."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.clock = ManualClock()
        self.app = App("memory://", clock=self.clock)
        TidemillInstrumentor().instrument(self.app, tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self, kind: SpanKind | None = None) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if kind in (None, span.kind)]

    def consumers(self) -> list[ReadableSpan]:
        return self.spans(SpanKind.CONSUMER)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.app:
        yield made
    made.meters.shutdown()
    made.tracers.shutdown()


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_the_first_attempt_is_a_child_of_its_enqueue_and_linked_to_it(
    world: World, in_coroutine: bool
) -> None:
    seen: list[int] = []

    def work() -> None:
        seen.append(get_current_span().get_span_context().span_id)

    async def awork() -> None:
        work()

    task = world.app.task(name="work", queue="mail")(awork if in_coroutine else work)
    job = task.enqueue()
    world.app.testing().drain()
    (producer,), (consumer,) = world.spans(SpanKind.PRODUCER), world.consumers()
    assert (producer.name, consumer.name) == ("send mail", "process mail")
    assert consumer.parent is not None
    assert producer.context is not None
    assert consumer.parent.span_id == producer.context.span_id
    assert [link.context.span_id for link in consumer.links] == [producer.context.span_id]
    assert seen == [consumer.context.span_id if consumer.context else 0]
    assert dict(consumer.attributes or {}) == {
        "messaging.system": "tidemill", "messaging.operation.type": "process", "messaging.operation.name": "run",
        "messaging.destination.name": "mail", "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": job.correlation_id, "tidemill.task": "work",
        "tidemill.tenant": "default", "tidemill.attempt": 1,
    }  # fmt: skip


def test_a_retry_and_a_delayed_job_are_linked_and_begin_a_trace_of_their_own(world: World) -> None:
    @world.app.task(retry=Fixed(max_attempts=2, wait="1m"))
    def fail() -> None:
        raise ConnectionError("away")

    @world.app.task
    def later() -> None: ...

    fail.enqueue()
    later.using(delay="10m").enqueue()
    world.app.testing().run_until_idle()
    creators = {
        span.attributes["tidemill.task"]: span for span in world.spans(SpanKind.PRODUCER) if span.attributes
    }
    first, second, delayed = world.consumers()
    assert first.parent is not None
    assert second.parent is None
    assert delayed.parent is None
    for span, task in ((first, "fail"), (second, "fail"), (delayed, "later")):
        creator = creators[task].context
        assert creator is not None
        assert [link.context.span_id for link in span.links] == [creator.span_id]
    assert second.context is not None
    assert first.context is not None
    assert second.context.trace_id != first.context.trace_id


def test_a_fire_is_linked_to_the_span_that_made_its_job(world: World) -> None:
    @world.app.task
    def clean() -> None: ...

    world.app.schedules.add(clean, Every("1h"), key="hourly")
    world.clock.advance(3600)
    world.app.testing().drain()
    (producer,), (consumer,) = world.spans(SpanKind.PRODUCER), world.consumers()
    assert consumer.parent is None
    assert producer.context is not None
    assert [link.context.span_id for link in consumer.links] == [producer.context.span_id]


def test_errors_are_recorded_and_signals_are_not(world: World) -> None:
    @world.app.task
    def fail() -> None:
        raise PermanentError("no")

    @world.app.task
    def sleep() -> None:
        raise Snooze(for_="1h")

    fail.enqueue()
    sleep.enqueue()
    world.app.testing().drain()
    failed, snoozed = world.consumers()
    assert failed.status.status_code.name == "ERROR"
    assert [event.name for event in failed.events] == ["exception"]
    assert snoozed.status.status_code.name == "UNSET"
    assert (snoozed.attributes or {})["tidemill.signal"] == "Snooze"


def test_a_batch_has_one_span_for_the_write_and_one_for_each_job(world: World) -> None:
    @world.app.task
    def work(number: int) -> None: ...

    work.enqueue_many([{"number": number} for number in range(3)])
    world.app.testing().drain()
    (send,) = [span for span in world.spans() if span.name == "send default"]
    creates = [span for span in world.spans() if span.name == "create default"]
    assert (send.attributes or {})["messaging.batch.message_count"] == 3
    assert len({span.attributes["messaging.message.id"] for span in creates if span.attributes}) == 3
    parents = {span.context.span_id for span in creates if span.context}
    assert {span.parent.span_id for span in world.consumers() if span.parent} == parents


def test_a_job_inside_a_job_continues_its_trace(world: World) -> None:
    @world.app.task
    def inner() -> None: ...

    @world.app.task
    def outer() -> None:
        inner.enqueue()

    outer.enqueue()
    world.app.testing().drain()
    traces = {span.context.trace_id for span in world.spans() if span.context}
    assert len(world.spans()) == 4
    assert len(traces) == 1


def test_metrics_count_sent_and_consumed_jobs_and_measure_run_times(world: World) -> None:
    @world.app.task
    def work() -> None: ...

    @world.app.task(retry=None)
    def fail() -> None:
        raise ValueError("no")

    for _ in range(3):
        work.enqueue()
    fail.enqueue()
    world.app.testing().drain()
    data: Any = world.reader.get_metrics_data()
    found = {metric.name: metric.data for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert sum(point.value for point in found["messaging.client.sent.messages"].data_points) == 4
    assert sum(point.value for point in found["messaging.client.consumed.messages"].data_points) == 4
    points = found["messaging.process.duration"].data_points
    assert {point.attributes.get("error.type"): point.count for point in points} == {None: 3, "ValueError": 1}


def test_a_trace_of_a_request_is_continued(world: World) -> None:
    @world.app.task
    def work() -> None: ...

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    work.using(headers={"traceparent": parent}).enqueue()
    world.app.testing().drain()
    (producer,), (consumer,) = world.spans(SpanKind.PRODUCER), world.consumers()
    assert producer.parent is not None
    assert f"{producer.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert consumer.context is not None
    assert f"{consumer.context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_every_app_is_instrumented_and_no_longer_after_uninstrument(world: World) -> None:
    before, instrumentor = App("memory://"), TidemillInstrumentor()
    instrumentor.instrument(tracer_provider=world.tracers, meter_provider=world.meters)
    try:
        after = App("memory://")
        for app in (before, after):
            app.task(name="work")(lambda: None).enqueue()
            app.testing().drain()
        assert len(world.spans()) == 4
    finally:
        instrumentor.uninstrument()
    before.bound_task("work").enqueue()
    assert len(world.spans()) == 4
    before.close()
    after.close()


def test_a_worker_flushes_when_it_stops(world: World) -> None:
    flushed: list[str] = []

    def flush(timeout: int) -> bool:
        flushed.append("spans")
        return True

    vars(world.tracers)["force_flush"] = flush

    with App("memory://") as app:
        TidemillInstrumentor().instrument(app, tracer_provider=world.tracers, meter_provider=world.meters)

        @app.task
        def work() -> None: ...

        with app.worker():
            work.enqueue().result()
            assert flushed == []
        assert flushed == ["spans"]
