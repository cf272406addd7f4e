"""Tests of log lines about failed attempts, and of lines logged in a job."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.engine.harness import Harness, opened

from tidemill import Fixed, Retry, Snooze
from tidemill.domain.states import JobState
from tidemill.engine.log_formats import JsonLines, PlainLines
from tidemill.engine.log_records import FIELDS, stamp_records

NOW = timedelta(0)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture(autouse=True)
def factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


def lines(caplog: pytest.LogCaptureFixture, name: str = "tidemill.jobs") -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == name]


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_every_failed_attempt_is_logged_with_its_traceback(
    harness: Harness, caplog: pytest.LogCaptureFixture, in_coroutine: bool
) -> None:
    def fail() -> None:
        raise ConnectionError("the mail server is away")

    async def afail() -> None:
        fail()

    declare = harness.app.task(name="send", retry=Fixed(max_attempts=2, wait=NOW))
    task = declare(afail) if in_coroutine else declare(fail)
    with harness.runner():
        job = task.enqueue()
        harness.ends(job)
    first, last = lines(caplog)
    assert (first.levelname, last.levelname) == ("WARNING", "ERROR")
    head, _, trace = first.getMessage().partition("\n")
    assert head == (
        f"send {job.id} attempt 1 of 2 failed, next attempt now: ConnectionError: the mail server is away"
    )
    assert trace.startswith("Traceback")
    assert "in fail" in trace
    assert last.getMessage().startswith(f"send {job.id} attempt 2 of 2 failed, job dead_lettered: Connection")
    assert {name: getattr(last, name) for name in FIELDS} == {
        "job_id": str(job.id),
        "task": "send",
        "attempt": 2,
        "queue": "default",
        "tenant": "default",
        "correlation_id": job.correlation_id,
        "trace_id": None,
    }


def test_the_delay_before_the_next_attempt_is_logged(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(hours=1)))
    async def fail() -> None:
        raise ValueError("no")

    with harness.runner():
        harness.becomes(fail.enqueue(), JobState.SCHEDULED)
    (line,) = lines(caplog)
    assert ", next attempt in 1 h: ValueError: no" in line.getMessage()


def test_signals_and_successes_are_not_logged_as_failures(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    @harness.app.task
    async def fine() -> None: ...

    @harness.app.task
    async def later() -> None:
        raise Snooze(for_=timedelta(hours=1))

    with harness.runner():
        harness.ends(fine.enqueue())
        harness.becomes(later.enqueue(), JobState.SCHEDULED)
    assert [line for line in lines(caplog) if line.levelno >= logging.INFO] == []


def test_a_retry_requested_by_the_task_is_logged_as_a_retry(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    @harness.app.task
    async def again() -> None:
        raise Retry(after=timedelta(hours=1), reason="rate limited")

    with harness.runner():
        harness.becomes(again.enqueue(), JobState.SCHEDULED)
    (line,) = lines(caplog)
    assert line.levelname == "WARNING"
    assert "rate limited" in line.getMessage()


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_lines_logged_inside_a_job_have_its_id(
    harness: Harness, caplog: pytest.LogCaptureFixture, in_coroutine: bool
) -> None:
    log = logging.getLogger("shop")

    def work() -> None:
        log.warning("inside", extra={"tenant": "the caller's own"})

    async def awork() -> None:
        work()
        await asyncio.sleep(0)

    declare = harness.app.task(name="work")
    task = declare(awork) if in_coroutine else declare(work)
    with harness.runner():
        job = task.enqueue()
        harness.ends(job)
        log.warning("outside")
    inside, outside = lines(caplog, "shop")
    assert json.loads(JsonLines().format(inside)) | {"time": "", "pid": 0} == {
        "time": "", "level": "warning", "logger": "shop", "message": "inside", "pid": 0, "job_id": str(job.id),
        "task": "work", "attempt": 1, "queue": "default", "tenant": "the caller's own",
        "correlation_id": str(job.id),
    }  # fmt: skip
    assert PlainLines().format(inside).endswith(f"inside [work {job.id}]")
    assert PlainLines().format(outside).endswith("outside")
    assert "job_id" not in json.loads(JsonLines().format(outside))
    assert logging.Formatter("%(job_id)s %(message)s").format(outside) == "None outside"


def test_the_log_record_factory_is_installed_only_once() -> None:
    stamp_records()
    factory = logging.getLogRecordFactory()
    stamp_records()
    assert logging.getLogRecordFactory() is factory
