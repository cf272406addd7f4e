"""Tests of log records and printed lines that are copied into the log of their job."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.config
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill import App, Context, Fixed, PermanentError, Secret
from tidemill.engine import log_capture
from tidemill.engine.log_capture import HANDLER
from tidemill.engine.log_records import stamp_records
from tidemill.errors import BadSettings, JobFailed
from tidemill.tasks.secret_values import KEYS, new_key

log = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level, handlers = logging.getLogRecordFactory(), root.level, root.handlers[:]
    yield
    logging.setLogRecordFactory(before)
    root.setLevel(level)
    root.handlers[:] = handlers


def lines(job: Any) -> list[tuple[str, str]]:
    return [(entry.level, entry.message) for entry in job.logs()]


def ended(job: Any) -> Any:
    with contextlib.suppress(JobFailed):
        job.result()
    return job


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_warnings_are_captured_by_default_and_other_lines_are_not(in_coroutine: bool) -> None:
    app = App("memory://")

    def work() -> None:
        log.info("quiet")
        log.warning("the bank is %s", "slow")
        print("printed")

    async def awork() -> None:
        work()

    task = app.task(name="work")(awork if in_coroutine else work)
    with app, app.worker():
        job = task.enqueue()
        job.result()
        assert lines(job) == [("warning", "the bank is slow")]
        assert job.logs()[0].details == {"logger": "shop"}


def test_info_captures_records_and_printed_lines_and_leaves_the_output_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = App("memory://", capture_logs="INFO")
    logging.getLogger().setLevel(logging.INFO)

    @app.task
    def work() -> None:
        log.info("begin")
        print("one", 2)
        print("three\nfour", end="")

    @app.task
    async def awork() -> None:
        print("from a coroutine")
        log.debug("below the level")

    with app:
        with app.worker():
            assert type(sys.stdout).__name__ == "JobOutput"
            print("outside of jobs")
            jobs = work.enqueue(), awork.enqueue()
            for job in jobs:
                job.result()
            assert lines(jobs[0]) == [
                ("info", "begin"),
                ("info", "one 2"),
                ("info", "three"),
                ("info", "four"),
            ]
            assert lines(jobs[1]) == [("info", "from a coroutine")]
        assert type(sys.stdout).__name__ != "JobOutput"
    out = capsys.readouterr().out
    assert out.startswith("outside of jobs\n")
    for text in ("one 2\n", "three\nfour", "from a coroutine\n"):
        assert out.count(text) == 1, text


class _Recorded(io.StringIO):
    """A stream that records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


def recorded_output(monkeypatch: pytest.MonkeyPatch) -> _Recorded:
    """Replace standard output. A fixture would be too early: pytest replaces it again before the test."""
    stream = _Recorded()
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def test_secrets_that_a_job_prints_are_removed_from_the_output_and_from_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = recorded_output(monkeypatch)
    monkeypatch.setenv(KEYS, new_key("k1"))
    app = App("memory://", capture_logs="INFO")

    @app.task
    def pay(card: Secret[str]) -> None:
        print("card", card.reveal(), "password=hunter2")
        print("password=", end="")
        sys.stdout.write("hunter3\nlast ")
        print(card.reveal(), end="")

    with app, app.worker():
        job = pay.enqueue(card=Secret("4111-1111"))
        job.result()
        print("4111-1111 outside of a job")
        assert [text for _, text in lines(job)] == ["card *** password=***", "password=***", "last ***"]
    # The stream gets whole lines, because a secret may be printed in several pieces.
    assert printed.writes[:3] == ["card *** password=***\n", "password=***\n", "last ***"]
    assert "".join(printed.writes[3:]) == "4111-1111 outside of a job\n"


def test_a_job_that_flushes_the_output_shows_the_line_it_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = recorded_output(monkeypatch)
    app = App("memory://", capture_logs="INFO")
    seen: list[list[str]] = []

    @app.task
    async def work() -> None:
        print("one", end="")
        seen.append(printed.writes[:])
        print(" two", end="", flush=True)
        seen.append(printed.writes[:])
        print(" three")

    with app, app.worker():
        job = work.enqueue()
        job.result()
        assert lines(job) == [("info", "one two three")]
    assert seen == [[], ["one two"]]
    assert printed.writes == ["one two", " three\n"]


def test_a_very_long_line_is_written_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = recorded_output(monkeypatch)
    app = App("memory://", capture_logs="INFO")

    @app.task
    def work() -> None:
        for _ in range(3):
            print("x" * 50_000, end="")
        assert [len(text) for text in printed.writes] == [100_000]

    with app, app.worker():
        work.enqueue().result()
    assert [len(text) for text in printed.writes] == [100_000, 50_000]
    assert log_capture.PARTIAL_LINES == {}


def test_a_traceback_is_part_of_the_captured_line() -> None:
    app = App("memory://")

    @app.task
    def work() -> None:
        try:
            raise KeyError("price")
        except KeyError:
            log.exception("no price")

    with app, app.worker():
        job = work.enqueue()
        job.result()
        ((level, message),) = lines(job)
    assert (level, message.splitlines()[0], message.splitlines()[-1]) == (
        "error",
        "no price",
        "KeyError: 'price'",
    )


def test_each_failed_attempt_is_one_line_of_the_job_log() -> None:
    app = App("memory://")

    @app.task(retry=Fixed(max_attempts=2, wait=0))
    def fail() -> None:
        raise ConnectionError("away")

    with app, app.worker():
        job = ended(fail.enqueue())
        first, last = job.logs()
    assert (first.level, last.level) == ("warning", "error")
    assert first.message.startswith(
        "attempt 1 of 2 failed, next attempt now: ConnectionError: away\nTraceback"
    )
    assert last.message.startswith(
        "attempt 2 of 2 failed, job dead_lettered: ConnectionError: away\nTraceback"
    )
    assert first.details == {"logger": "tidemill.jobs"}


def test_nothing_is_captured_if_it_is_turned_off() -> None:
    app = App("memory://", capture_logs=None)

    @app.task
    def fail(ctx: Context) -> None:
        log.error("own")
        ctx.log("kept")
        raise PermanentError("no")

    with app, app.worker():
        job = ended(fail.enqueue())
        assert lines(job) == [("info", "kept")]


@pytest.mark.parametrize("given", ["loud", 20, True])
def test_an_unknown_level_is_refused(given: Any) -> None:
    with pytest.raises(BadSettings, match="capture_logs is"):
        App("memory://", capture_logs=given)


def test_log_jobs_logs_the_start_and_the_end_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidemill.jobs")
    app = App("memory://", log_jobs=True)

    @app.task
    def work() -> None: ...

    with app, app.worker():
        job = work.enqueue()
        job.result()
    texts = [record.getMessage() for record in caplog.records if record.name == "tidemill.jobs"]
    assert texts == [
        f"work {job.id} attempt 1 of 4 starts",
        f"work {job.id} attempt 1 of 4 succeeded, job completed",
    ]


def test_a_later_configuration_of_logging_keeps_the_capture() -> None:
    app = App("memory://")

    @app.task
    def work() -> None:
        log.warning("line")

    with app, app.worker():
        work.enqueue().result()
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, "root": {"handlers": []}})
        assert HANDLER not in logging.getLogger().handlers
        job = work.enqueue()
        job.result()
        assert lines(job) == [("warning", "line")]


def test_an_execution_captures_a_bounded_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_capture, "MOST_LINES", 3)
    app = App("memory://")

    @app.task
    def work(ctx: Context) -> None:
        for number in range(10):
            log.warning("line %d", number)
        ctx.log("not limited")

    with app, app.worker():
        job = work.enqueue()
        job.result()
        texts = [message for _, message in lines(job)]
    assert texts[:3] == ["line 0", "line 1", "line 2"]
    assert "were captured" in texts[3]
    assert texts[4:] == ["not limited"]


def test_warnings_still_reach_stderr_without_any_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(stream))
    logging.getLogger().handlers[:] = [HANDLER]
    stamp_records()
    log.warning("seen once")
    assert stream.getvalue() == "seen once\n"


def test_lines_are_found_by_text_level_task_and_job() -> None:
    app = App("memory://")

    @app.task
    def noisy(text: str) -> None:
        log.warning("about %s", text)

    @app.task
    def fail() -> None:
        raise PermanentError("the card has expired")

    with app, app.worker():
        first, second = noisy.enqueue(text="Ada"), noisy.enqueue(text="Bob")
        failed = ended(fail.enqueue())
        first.result(), second.result()
        found = app.jobs.search_logs("ADA")
        assert [(line.task, line.entry.job_id) for line in found.items] == [("noisy", first.id)]
        (error,) = app.jobs.search_logs(level="error").items
        assert (error.task, error.entry.job_id) == ("fail", failed.id)
        assert len(app.jobs.search_logs(task="noisy").items) == 2
        assert [line.entry.message for line in app.jobs.search_logs(job=second.id).items] == ["about Bob"]
        assert app.jobs.search_logs(tenant="other").items == []
