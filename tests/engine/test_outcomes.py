"""Tests of outcomes: every exception of a task becomes one."""

from __future__ import annotations

import asyncio

import pytest
from tests.engine.kit import MINUTE, START, World, raising

from tidemill.domain.outcome import Cancelled, Failed, Misfit, ReviewRequested, Snoozed, TimedOut
from tidemill.domain.payload import TRACEBACK_LENGTH
from tidemill.engine.context import Context
from tidemill.errors import BadArguments, Cancel, PermanentError, Retry, Snooze
from tidemill.errors import Review as ReviewSignal


@pytest.fixture
def world() -> World:
    return World()


# ------------------------------------------------------------------------------------------------- failures


def test_an_exception_is_a_failure_with_the_users_frames_first(world: World) -> None:
    def work() -> None:
        raise LookupError("no such row")

    ended = world.run(work)
    assert isinstance(ended.outcome, Failed)
    assert ended.error == ended.outcome.error
    assert (ended.error.type, ended.error.message) == ("LookupError", "no such row")
    assert (ended.outcome.permanent, ended.outcome.retryable, ended.outcome.retry_after) == (
        False,
        None,
        None,
    )
    assert ended.error.traceback is not None
    lines = ended.error.traceback.splitlines()
    assert "test_outcomes.py" in lines[1]
    assert "in work" in lines[1]
    assert lines[-1] == "LookupError: no such row"
    assert isinstance(ended.exception, LookupError)


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_an_exception_that_cannot_be_converted_to_a_string_is_handled(world: World) -> None:
    error = world.run(raising(Odd())).error
    assert error is not None
    assert error.type.endswith("test_outcomes.Odd")
    assert error.message == "<its text cannot be read: RuntimeError>"
    assert error.traceback is not None


def test_causes_notes_and_groups_are_in_the_traceback(world: World) -> None:
    def work() -> None:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            group = ExceptionGroup("several", [ValueError("one"), TypeError("two")])
            group.add_note("by hand")
            raise group from cause

    error = world.run(work).error
    assert error is not None
    assert error.type == "ExceptionGroup"
    for words in ("KeyError: 'cause'", "ValueError: one", "TypeError: two", "by hand"):
        assert words in str(error.traceback)


def test_a_long_error_is_cut_and_keeps_the_end_of_its_traceback(world: World) -> None:
    error = world.run(raising(ValueError("x" * 100_000))).error
    assert error is not None
    assert error.traceback is not None
    assert len(error.message) == 2_000
    assert len(error.traceback) == TRACEBACK_LENGTH


def test_a_permanent_error_is_not_retried(world: World) -> None:
    outcome = world.run(raising(PermanentError("bad data"))).outcome
    assert isinstance(outcome, Failed)
    assert outcome.permanent
    assert outcome.error.type == "tidemill.errors.PermanentError"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_exiting_the_program_inside_a_task_is_a_failure(world: World, error: BaseException) -> None:
    outcome = world.run(raising(error)).outcome
    assert isinstance(outcome, Failed)
    assert outcome.error.type == type(error).__name__


def test_keyboard_interrupt_is_raised_to_the_caller(world: World) -> None:
    async def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.run(raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        world.run(work)


def test_arguments_that_do_not_fit_are_a_misfit_with_their_names(world: World) -> None:
    def work(n: int) -> None: ...

    ended = world.run(work, '{"n":"many"}')
    assert isinstance(ended.outcome, Misfit)
    assert ended.outcome.error.type.endswith("BadArguments")
    assert ended.outcome.problem.startswith("n: Input should be a valid integer")
    assert isinstance(ended.exception, BadArguments)


def test_bad_arguments_of_another_task_are_an_ordinary_failure(world: World) -> None:
    outcome = world.run(raising(BadArguments("of a child"))).outcome
    assert isinstance(outcome, Failed)
    assert not outcome.permanent


# -------------------------------------------------------------------------------------------------- signals


def test_a_retry_is_a_failure_with_its_own_delay_and_reason(world: World) -> None:
    outcome = world.run(raising(Retry(after=MINUTE, reason="not yet"))).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.retry_after, outcome.error.message, outcome.permanent) == (MINUTE, "not yet", False)


def test_signals_become_their_outcomes(world: World) -> None:
    assert world.run(raising(Snooze(MINUTE, "later"))).outcome == Snoozed(MINUTE, "later")
    assert world.run(raising(Cancel("enough"))).outcome == Cancelled("enough")
    ended = world.run(raising(ReviewSignal("look", output={"at": START})))
    assert ended.outcome == ReviewRequested("look", '{"at":"2026-01-01T00:00:00Z"}')
    assert ended.result == '{"at":"2026-01-01T00:00:00Z"}'
    assert world.run(raising(ReviewSignal("look"))).result is None


@pytest.mark.parametrize(
    "signal",
    [
        Snooze("soon"),
        Retry(after="soon"),
        ReviewSignal("look", output=object()),
    ],
)
def test_a_signal_with_an_invalid_value_is_a_permanent_failure(world: World, signal: BaseException) -> None:
    outcome = world.run(raising(signal), result_limit=1000).outcome
    assert isinstance(outcome, Failed)
    assert outcome.permanent


def test_a_signal_in_a_task_group_counts_like_one_raised_directly(world: World) -> None:
    async def child() -> None:
        raise Snooze(MINUTE)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    assert world.run(work).outcome == Snoozed(MINUTE)


def test_check_after_the_deadline_is_a_timeout(world: World) -> None:
    def work(ctx: Context) -> None:
        world.clock.advance(2 * MINUTE)
        ctx.check()

    assert world.run(work).outcome == TimedOut(MINUTE)


def test_a_coroutine_that_cancels_itself_is_cancelled(world: World) -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    assert world.run(work).outcome == Cancelled()
    assert world.run(raising(asyncio.CancelledError())).outcome == Cancelled()


def test_a_cancellation_from_outside_is_not_an_outcome(world: World) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(world.arun(work))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
