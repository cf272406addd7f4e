"""Tests of the task context: progress, stages, log lines and checkpoints."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.kit import ID, START, Notes, a_job

from tidemill.domain.job import Details, Progress
from tidemill.engine.context import LINE_LENGTH, Context, OutOfTime, current
from tidemill.engine.sanitize import MESSAGE_LENGTH
from tidemill.errors import BadSettings, Cancel, Retry, UsageError
from tidemill.tasks.ambient import inside_job


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def ctx(notes: Notes) -> Context:
    return Context(a_job(timeout=timedelta(minutes=1)), notes)


def test_a_context_has_the_data_of_its_job(ctx: Context) -> None:
    assert (ctx.attempt, ctx.tenant, ctx.job.id) == (1, "acme", ID)
    assert ctx.deadline == START + timedelta(minutes=1)
    assert ctx.idempotency_key == str(ID)
    assert ctx.correlation_id == str(ID)


def test_a_job_keeps_the_correlation_id_it_was_given(notes: Notes) -> None:
    assert Context(a_job(details=Details(correlation_id="c-1")), notes).correlation_id == "c-1"


def test_a_job_without_a_timeout_has_no_deadline(notes: Notes) -> None:
    assert Context(a_job(), notes).deadline is None
    assert Context(a_job(timeout=timedelta.max), notes).deadline is None


# ------------------------------------------------------------------------------------------------ progress


@pytest.mark.parametrize(
    ("given", "fraction"), [(0.5, 0.5), (1, 1.0), (0, 0.0), (-1e-9, 0.0), (1.0000000001, 1.0)]
)
def test_a_fraction_lies_between_0_and_1_except_for_rounding(
    ctx: Context, notes: Notes, given: float, fraction: float
) -> None:
    ctx.progress(given, "half")
    assert notes.reports == [Progress(fraction, message="half", at=START)]
    assert ctx.current == notes.reports[-1]


@pytest.mark.parametrize("given", [-0.1, 50, float("inf"), 1.01])
def test_an_invalid_fraction_is_refused_with_a_hint_about_steps(ctx: Context, given: float) -> None:
    with pytest.raises(UsageError, match=r"a fraction is from 0 to 1; write progress\(.*, total\) for steps"):
        ctx.progress(given)


@pytest.mark.parametrize(
    ("step", "total", "expected"),
    [
        (5, 10, Progress(0.5, 5, 10)),
        (12, 10, Progress(1.0, 10, 10)),
        (-1, 10, Progress(0.0, 0, 10)),
        (0, 0, Progress(1.0, 0, 0)),
        (7, None, Progress(None, 7, None)),
    ],
)
def test_steps_are_clamped_between_0_and_the_total(
    ctx: Context, step: int, total: int | None, expected: Progress
) -> None:
    ctx.progress(step, total, "words")
    told = ctx.current
    assert (told.fraction, told.step, told.total) == (expected.fraction, expected.step, expected.total)
    assert told.message == "words"


def test_total_and_message_may_be_keyword_arguments(ctx: Context) -> None:
    ctx.progress(1, total=4, message="one")
    assert (ctx.current.fraction, ctx.current.message) == (0.25, "one")
    ctx.progress(0.5, message="half")
    assert (ctx.current.fraction, ctx.current.step, ctx.current.message) == (0.5, None, "half")


@pytest.mark.parametrize(
    "given",
    [(float("nan"),), (True,), ("half",), (None,), (0.5, 10), (1, -1), (1, 2.5), (1, 2, 3), (1, 2, "x", "y")],
)
def test_invalid_progress_is_refused_and_not_reported(
    ctx: Context, notes: Notes, given: tuple[Any, ...]
) -> None:
    with pytest.raises(UsageError):
        ctx.progress(*given)
    assert notes.reports == []


def test_a_long_message_is_cut(ctx: Context) -> None:
    ctx.progress(0.5, "x" * 10_000)
    assert ctx.current.message is not None
    assert len(ctx.current.message) == MESSAGE_LENGTH


def test_progress_from_many_threads_is_all_reported_and_the_last_one_stays(
    ctx: Context, notes: Notes
) -> None:
    def work() -> None:
        for n in range(50):
            with ctx.stage("s"):
                ctx.progress(n, 50)
                ctx.log("x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([told for told in notes.reports if told.step is not None]) >= 200
    assert ctx.current == notes.reports[-1]
    assert ctx.current.stage is None


# --------------------------------------------------------------------------------------------------- track


def test_track_counts_finished_items_and_not_started_ones(ctx: Context, notes: Notes) -> None:
    seen = [(item, ctx.current.step) for item in ctx.track(["a", "b"], message="reading")]
    assert seen == [("a", None), ("b", 1)]
    assert [(told.step, told.total, told.message) for told in notes.reports] == [
        (1, 2, "reading"),
        (2, 2, "reading"),
    ]


def test_track_consumes_a_stream_lazily(ctx: Context) -> None:
    def numbers() -> Iterator[int]:
        n = 0
        while True:
            yield n
            n += 1

    for n in ctx.track(numbers()):
        if n == 3:
            break
    assert (ctx.current.step, ctx.current.total, ctx.current.fraction) == (3, None, None)
    assert list(ctx.track(iter("abc"), total=3)) == ["a", "b", "c"]
    assert ctx.current.fraction == 1.0


def test_track_works_over_an_async_stream(ctx: Context) -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    async def main() -> list[int]:
        return [n async for n in ctx.track(numbers(), total=3)]

    assert asyncio.run(main()) == [0, 1, 2]
    assert ctx.current.fraction == 1.0


def test_an_object_that_cannot_be_iterated_is_refused_at_once(ctx: Context) -> None:
    with pytest.raises(UsageError, match="int cannot be iterated"):
        ctx.track(5)  # type: ignore[call-overload]


# --------------------------------------------------------------------------------------------------- stages


def test_a_stage_appears_in_progress_and_its_duration_is_logged(ctx: Context, notes: Notes) -> None:
    with ctx.stage("copy"):
        ctx.progress(0.5)
        ctx.log("inside")
        notes.clock.advance(timedelta(seconds=3))
    assert [told.stage for told in notes.reports] == ["copy", "copy", None]
    assert notes.reports[-1].fraction == 0.5
    assert [(line.message, line.stage, line.duration) for line in notes.lines] == [
        ("stage copy begins", "copy", None),
        ("inside", "copy", None),
        ("stage copy ends", "copy", timedelta(seconds=3)),
    ]


def test_stages_nest_and_the_innermost_is_shown(ctx: Context) -> None:
    with ctx.stage("outer"):
        with ctx.stage("inner"):
            assert ctx.current.stage == "inner"
        assert ctx.current.stage == "outer"
    assert ctx.current.stage is None


def test_a_stage_that_raises_is_named_in_an_error_line(ctx: Context, notes: Notes) -> None:
    def copy() -> None:
        with ctx.stage("copy"):
            notes.clock.advance(timedelta(seconds=1))
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        copy()
    assert ctx.current.stage is None
    last = notes.lines[-1]
    assert (last.level, last.message) == ("error", "stage copy failed: ValueError: boom")
    assert last.duration == timedelta(seconds=1)


def test_a_signal_leaves_a_stage_without_an_error(ctx: Context, notes: Notes) -> None:
    with pytest.raises(Retry), ctx.stage("copy"):
        raise Retry
    assert (notes.lines[-1].level, notes.lines[-1].message) == ("info", "stage copy left by Retry")


def test_stages_of_parallel_coroutines_may_end_in_any_order(ctx: Context) -> None:
    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()

        async def one() -> None:
            with ctx.stage("one"):
                first.set()
                await second.wait()

        async def two() -> None:
            await first.wait()
            with ctx.stage("two"):
                second.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)

        await asyncio.gather(one(), two())

    asyncio.run(main())
    assert ctx.current.stage is None


# ---------------------------------------------------------------------------------------------------- lines


def test_a_log_line_has_the_execution_the_time_and_its_details(ctx: Context, notes: Notes) -> None:
    ctx.log("read", level="warning", rows=12, at=START, id=ID)
    (line,) = notes.lines
    assert (line.job_id, line.number, line.at, line.level, line.message) == (ID, 3, START, "warning", "read")
    assert line.details == {"rows": 12, "at": "2026-01-01T00:00:00Z", "id": str(ID)}


def test_an_unknown_level_is_refused(ctx: Context, notes: Notes) -> None:
    with pytest.raises(UsageError, match="expected one of debug, info, warning, error"):
        ctx.log("x", level="loud")
    assert notes.lines == []


def test_details_that_json_cannot_hold_do_not_fail_the_log_line(ctx: Context, notes: Notes) -> None:
    around: dict[str, object] = {}
    around["self"] = around
    ctx.log("a", thing=object(), nan=float("nan"))
    ctx.log("b", around=around)
    ctx.log("c", text="a\ud800b", rows=12)
    assert notes.lines[0].details is not None
    assert "object" in str(notes.lines[0].details["thing"])
    assert notes.lines[0].details["nan"] == "NaN"
    assert notes.lines[1].details == {"around": {"self": "..."}}
    assert notes.lines[2].details == {"text": "a?b", "rows": 12}


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_checkpoint_that_no_store_can_hold_is_refused(ctx: Context, text: str) -> None:
    with pytest.raises(BadSettings, match="checkpoint page"):
        ctx.save_checkpoint("page", text)
    with pytest.raises(BadSettings, match="name"):
        ctx.save_checkpoint(text, "7")


def test_a_long_log_line_is_cut_and_contains_no_nul(ctx: Context, notes: Notes) -> None:
    ctx.log("\x00" + "x" * 20_000)
    assert notes.lines[0].message == "\ufffd" + "x" * (LINE_LENGTH - 1) + "… (10,001 bytes cut)"
    assert "\x00" not in notes.lines[0].message


# -------------------------------------------------------------------------------------------- cancellation


def test_check_returns_while_the_job_may_continue(ctx: Context, notes: Notes) -> None:
    notes.clock.advance(timedelta(seconds=59))
    ctx.check()
    assert ctx.cancelled is False


def test_check_raises_once_a_cancel_was_requested(ctx: Context, notes: Notes) -> None:
    notes.cancelled = True
    assert ctx.cancelled is True
    with pytest.raises(Cancel), suppress(Exception):  # a task's own ``except Exception`` does not swallow it
        ctx.check()


def test_check_raises_once_the_deadline_has_passed(ctx: Context, notes: Notes) -> None:
    notes.clock.advance(timedelta(minutes=1))
    with pytest.raises(OutOfTime, match="past its deadline"):
        ctx.check()


def test_a_checkpoint_name_that_is_too_long_for_the_index_is_refused(ctx: Context) -> None:
    with pytest.raises(BadSettings, match="a checkpoint's name has 301 characters; 300 are the most"):
        ctx.save_checkpoint("x" * 301, "7")


def test_checkpoints_go_through_the_outlet(ctx: Context, notes: Notes) -> None:
    ctx.save_checkpoint("at", "5")
    assert (ctx.checkpoint("at"), ctx.checkpoint("other")) == ("5", None)


def test_outside_a_job_there_is_no_current_context(ctx: Context) -> None:
    with pytest.raises(UsageError, match="does not run in a job"):
        current()
    with inside_job(ctx):
        assert current() is ctx
