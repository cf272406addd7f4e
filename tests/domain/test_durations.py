"""Durations as users give them: the parser, and every place that accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import (
    App,
    ArchivePolicy,
    Breaker,
    Duration,
    Every,
    Exponential,
    Fixed,
    Immediate,
    Linear,
    ManualClock,
    Rate,
    Retry,
    Snooze,
    Unique,
)
from tidemill.dashboard.form_state import FormError, read_span
from tidemill.domain.bounds import LONGEST
from tidemill.domain.durations import parse_duration, read_duration, read_when
from tidemill.engine.worker_settings import read_settings
from tidemill.errors import BadSchedule, BadSettings, TidemillError, WaitTimeout
from tidemill.rest import ApiSettings
from tidemill.web.parsers import Fields

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEN_MINUTES = timedelta(minutes=10)
SAME: list[Duration] = [TEN_MINUTES, 600, 600.0, "600", "10m", "10 min", "0h10m", "600s", "600000ms"]
"""Ten minutes, in every form."""

EXPECTED = "give a timedelta, seconds, or text such as '10m'"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h 30m", 5400), ("7d", 604_800), ("2w", 1_209_600),
        ("500ms", 0.5), ("1.5h", 5400), (" 10M ", 600), ("0s", 0), ("1d2h3m4s5ms", 93_784.005),
    ],
)  # fmt: skip
def test_a_text_has_numbers_and_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "10x", "m", "h1", "1h30", "-5m", "1e3", "1..5h", "10m!", "ten minutes", "٣m", "1m" * 30, None, True, [], {},
        float("nan"), float("inf"), 1e300, object(),
    ],
)  # fmt: skip
def test_other_values_are_no_duration(value: object) -> None:
    assert parse_duration(value) is None
    with pytest.raises(BadSettings, match=EXPECTED):
        read_duration("timeout", value)


def test_the_error_names_the_place_and_the_value() -> None:
    with pytest.raises(BadSettings) as caught:
        read_duration("timeout", "10x", option="timeout")
    assert str(caught.value) == f"timeout: '10x' is not a duration; {EXPECTED}"
    assert caught.value.details["option"] == "timeout"


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_every_timedelta_and_its_seconds_are_the_same(span: timedelta) -> None:
    assert parse_duration(span) == span
    assert parse_duration(span.total_seconds()) == timedelta(seconds=span.total_seconds())


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    found = parse_duration(text)
    assert found is None or found >= timedelta(0)


def test_an_instant_or_a_duration() -> None:
    assert read_when("expires", START) == START
    assert read_when("expires", "10m") == TEN_MINUTES
    assert read_when("expires", None) is None
    with pytest.raises(BadSettings, match="no time zone"):
        read_when("expires", datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(BadSettings, match="give an aware datetime, a timedelta, seconds, or text"):
        read_when("expires", "tomorrow")
    with pytest.raises(BadSettings, match="a hundred years"):
        read_when("expires", timedelta.max)


# Every place -----------------------------------------------------------------------------------------------------------


def _app() -> App:
    return App("memory://", clock=ManualClock(START))


def _task(app: App, **options: Any) -> Any:
    return app.task(name="send", **options)(_send)


def _send() -> None: ...


def _timeout_of_a_task(span: Duration) -> Any:
    with _app() as app:
        return _task(app, timeout=span).enqueue().row.timeout


def _using(name: str) -> Callable[[Duration], Any]:
    def read(span: Duration) -> Any:
        with _app() as app:
            job = _task(app).using(**{name: span}).enqueue()
            at = job.row.expires_at if name == "expires" else job.run_at
            return job.row.timeout if name == "timeout" else at - START

    return read


def _recipe(span: Duration) -> Any:
    with _app() as app:
        return app.recipe(timeout=span)(_task(app)).enqueue().row.timeout


def _of_a_schedule(name: str) -> Callable[[Duration], Any]:
    def read(span: Duration) -> Any:
        with _app() as app:
            options: dict[str, Any] = {name: span}
            schedule = app.schedules.add(_task(app), "0 2 * * *", "nightly", **options)
            return timedelta(seconds=float(str(schedule.options[name])))

    return read


def _declared_schedule(span: Duration) -> Any:
    with _app() as app:
        app.schedule(_task(app), Every(span), key="often")
        app.reconcile()
        return app.schedules.get("often").trigger.interval


def _limit_at_run_time(span: Duration) -> Any:
    with _app() as app:
        return app.limits.set("queue/mail", 5, per=span).rule.per


def _key(span: Duration) -> Any:
    with _app() as app:
        expires_at = app.keys.create("ci", expires=span).key.expires_at
        assert expires_at is not None
        return expires_at - START


def _rescheduled(span: Duration) -> Any:
    with _app() as app:
        return _task(app).using(delay=1).enqueue().reschedule(span).run_at - START


def _archive(span: Duration) -> Any:
    with _app() as app:
        _task(app).enqueue()
        testing = app.testing()
        testing.drain()
        testing.advance(TEN_MINUTES - timedelta(seconds=1))
        assert app.archive.run(older_than=span, budget=span).archived == 0
        testing.advance("1s")
        assert app.archive.run(older_than=span).archived == 1
    return TEN_MINUTES


def _window(span: Duration) -> Any:
    with _app() as app:
        report = app.stats.throughput(span, step="1m")
        app.stats.health(span)
        app.stats.stuck(span)
        app.stats.lag(span, span)
        return timedelta(minutes=len(report))


def _clock(span: Duration) -> Any:
    clock = ManualClock(START)
    clock.leap(span)
    return clock.advance(span) - START - TEN_MINUTES


def _signal(make: Callable[[Duration], BaseException]) -> Callable[[Duration], Any]:
    def read(span: Duration) -> Any:
        with _app() as app:

            @app.task(name="again", retry=Fixed(max_attempts=5, wait=1))
            def again() -> None:
                raise make(span)

            job = again.enqueue()
            app.testing().drain()
            return job.refresh().run_at - START

    return read


def _retry_delay(span: Duration) -> Any:
    with _app() as app:

        @app.task(name="again", retry=Fixed(max_attempts=5, wait=1), retry_delay=lambda _: span)
        def again() -> None:
            raise ValueError("no")

        job = again.enqueue()
        app.testing().drain()
        return job.refresh().run_at - START


def _until_idle(span: Duration) -> Any:
    with _app() as app:
        _task(app).using(delay=TEN_MINUTES).enqueue()
        assert app.testing().run_until_idle(span).processed == 1
        return app.clock.now() - START


PLACES: dict[str, Callable[[Duration], Any]] = {
    "@app.task(timeout=)": _timeout_of_a_task,
    "@app.task(retry_delay=)": _retry_delay,
    "using(delay=)": _using("delay"),
    "using(run_after=)": _using("run_after"),
    "using(expires=)": _using("expires"),
    "using(timeout=)": _using("timeout"),
    "app.recipe(timeout=)": _recipe,
    "Fixed(wait=)": lambda span: Fixed(wait=span).wait,
    "Fixed(cap=)": lambda span: Fixed(cap=span).cap,
    "Linear(wait=)": lambda span: Linear(wait=span).wait,
    "Exponential(wait=)": lambda span: Exponential(wait=span).wait,
    "Exponential(cap=)": lambda span: Exponential(cap=span).cap,
    "Immediate(cap=)": lambda span: Immediate(cap=span).cap,
    "Unique(within=)": lambda span: Unique(within=span).within,
    "Rate(per=)": lambda span: Rate(5, per=span).per,
    "Breaker(window=)": lambda span: Breaker("api", window=span).window,
    "Breaker(rest=)": lambda span: Breaker("api", rest=span).rest,
    "ApiSettings(idempotency_window=)": lambda span: ApiSettings(idempotency_window=span).idempotency_window,
    "ApiSettings(request_timeout=)": lambda span: timedelta(
        seconds=ApiSettings(request_timeout=span).request_timeout
    ),
    "ApiSettings(heartbeat=)": lambda span: timedelta(seconds=ApiSettings(heartbeat=span).heartbeat),
    "ArchivePolicy(max_age=)": lambda span: ArchivePolicy("old", max_age=span).max_age,
    "Every()": lambda span: Every(span).interval,
    "app.schedule(Every())": _declared_schedule,
    "app.schedules.add(jitter=)": _of_a_schedule("jitter"),
    "app.schedules.add(timeout=)": _of_a_schedule("timeout"),
    "app.schedules.add(expires=)": _of_a_schedule("expires"),
    "app.limits.set(per=)": _limit_at_run_time,
    "app.keys.create(expires=)": _key,
    "app.archive.run(older_than=)": _archive,
    "app.stats": _window,
    "job.reschedule()": _rescheduled,
    "raise Retry(after=)": _signal(lambda span: Retry(after=span)),
    "raise Snooze(for_=)": _signal(Snooze),
    "app.worker(grace=)": lambda span: read_settings({"grace": span}).grace,
    "app.worker(max_age=)": lambda span: read_settings({"max_age": span}).max_age,
    "ManualClock": _clock,
    "app.testing().run_until_idle()": _until_idle,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("span", SAME, ids=repr)
def test_every_place_accepts_every_form(place: str, span: Duration) -> None:
    assert PLACES[place](span) == TEN_MINUTES


SIGNALS = ("raise Retry(after=)", "raise Snooze(for_=)", "@app.task(retry_delay=)")
"""Places inside a job, where the error ends the job or is logged."""


@pytest.mark.parametrize("place", [name for name in PLACES if name not in SIGNALS])
def test_every_place_refuses_other_texts_and_says_what_to_give(place: str) -> None:
    with pytest.raises(TidemillError, match=r"'10x'.*(seconds, or text such as '10m')"):
        PLACES[place]("10x")


def test_a_wrong_interval_is_a_bad_schedule() -> None:
    with pytest.raises(BadSchedule, match="interval: '10x' is not a duration") as caught:
        Every("10x")
    assert caught.value.details["field"] == "interval"


def test_waiting_for_a_result_takes_any_duration() -> None:
    with _app() as app:
        job = _task(app).enqueue()
        for span in ("10ms", 0.01, timedelta(milliseconds=10)):
            with pytest.raises(WaitTimeout):
                job.result(timeout=span)
            with pytest.raises(WaitTimeout):
                asyncio.run(job.aresult(timeout=span))
        with pytest.raises(BadSettings, match="timeout: '10x'"):
            job.result(timeout="10x")


def test_a_tick_takes_any_duration() -> None:
    with App("memory://") as app:
        _task(app).enqueue()
        assert app.tick("20s").processed == 1
        with pytest.raises(BadSettings, match="budget: '10x'"):
            app.tick("10x")


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("10", "minutes", 600.0),
        ("1.5", "hours", 5400.0),
        ("90", None, 90.0),
        ("10m", "hours", 600.0),
        ("1h30m", None, 5400.0),
    ],
)
def test_a_form_takes_a_number_with_a_unit_or_text(text: str, unit: str | None, expected: float) -> None:
    pairs = [("delay", text), *([] if unit is None else [("delay_unit", unit)])]
    assert read_span(Fields(pairs), "delay") == timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("text", "unit"), [("10x", None), ("-1", "hours"), ("nan", None), ("1", "years"), ("1e9", "days")]
)
def test_a_form_refuses_other_durations(text: str, unit: str | None) -> None:
    pairs = [("delay", text), *([] if unit is None else [("delay_unit", unit)])]
    with pytest.raises(FormError, match="is not a duration"):
        read_span(Fields(pairs), "delay")
