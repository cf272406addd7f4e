"""Tests of the timed duty loop: when each duty runs, and how failures are handled."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest
from tests.engine.cluster_kit import SECOND, enqueue, the_jobs
from tests.engine.duty_kit import Deaf, Notebook, Yard, every

from tidemill.domain.cluster import Coordination
from tidemill.domain.decide import DEFAULT_POLICY
from tidemill.domain.states import JobState
from tidemill.engine.duties import usual_duties
from tidemill.engine.duty import Done, Duty
from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.ids import new_id

EVERYONE = Coordination.EVERYONE


@pytest.fixture
def yard() -> Iterator[Yard]:
    yard = Yard()
    yield yard
    yard.close()


# ---------------------------------------------------------------------------------------------------- timing


def test_a_duty_runs_at_once_and_then_at_its_interval(yard: Yard) -> None:
    book = Notebook(yard.clock)
    yard.loop(every(5, book), coordination=EVERYONE)
    yard.pass_time(21)
    assert book.times == [0, 5, 10, 15, 20]


def test_a_duty_with_more_work_continues_and_lets_the_others_run(yard: Yard) -> None:
    answers = iter([Done(2, more=True), Done(2, more=True), Done(1), Done()])
    greedy, modest = Notebook(yard.clock, lambda: next(answers)), Notebook(yard.clock)
    loop = yard.loop(every(5, greedy), Duty("modest", SECOND, modest), coordination=EVERYONE)
    yard.pass_time(0.5)
    assert len(greedy.times) == 3
    assert len(modest.times) == 1
    facts = loop.status()["work"]
    assert isinstance(facts, dict)
    assert facts.pop("last_tick").startswith("2026-01-01T00:00:00.00000")
    assert facts == {"items": 5, "errors": 0, "last_error": None, "took_ms": 0.0, "every": 5.0}


def test_a_duty_runs_exactly_at_the_next_time_it_returned(yard: Yard) -> None:
    due = yard.clock.now() + timedelta(seconds=2.5)
    book = Notebook(yard.clock, lambda: Done(0, due if yard.clock.now() < due else None))
    yard.loop(every(5, book), coordination=EVERYONE)
    yard.pass_time(8)
    assert book.times == [0, 2.5, 7.5]


def test_a_distant_next_time_does_not_delay_the_fallback_interval(yard: Yard) -> None:
    book = Notebook(yard.clock, lambda: Done(0, yard.clock.now() + timedelta(days=9)))
    yard.loop(every(5, book), coordination=EVERYONE)
    yard.pass_time(11)
    assert book.times == [0, 5, 10]


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_store_clock_that_is_hours_off_does_not_cause_endless_calls(yard: Yard, hours: int) -> None:
    # The store's next job is due in three seconds by the store's clock.
    due = yard.clock.now() + timedelta(hours=hours, seconds=3)

    def answer() -> Done:
        theirs = yard.clock.now() + timedelta(hours=hours)
        return Done(0, due) if theirs < due else Done(1)

    book = Notebook(yard.clock, answer)
    yard.loop(every(5, book), coordination=EVERYONE)
    yard.pass_time(6)
    assert len(book.times) <= 10
    assert any(3 <= at <= 6 for at in book.times)


def test_a_duty_is_woken_by_its_topics_at_a_limited_rate(yard: Yard) -> None:
    book, listener = Notebook(yard.clock), Deaf(yard.memory, yard.clock)
    yard.loop(every(60, book, "scheduled", "change"), coordination=EVERYONE, listener=listener)
    yard.pass_time(2)
    listener.hear("ready:default", "ended")
    yard.pass_time(1)
    assert book.times == [0]
    listener.hear("scheduled")
    yard.pass_time(0.5)
    assert len(book.times) == 2
    for _ in range(100):
        listener.hear("scheduled")
        yard.pass_time(0.01)
    assert 15 <= len(book.times) - 2 <= 21
    yard.pass_time(2)
    before = len(book.times)
    for _ in range(100):
        listener.hear("change")
        yard.pass_time(0.05)
    assert 4 <= len(book.times) - before <= 6


def test_loops_that_steal_work_start_at_different_times(yard: Yard) -> None:
    books = [Notebook(yard.clock) for _ in range(8)]
    for book in books:
        yard.loop(every(5, book), coordination=Coordination.STEAL)
    yard.pass_time(5.1)
    assert len({book.times[0] for book in books}) == 8


# ---------------------------------------------------------------------------------------------------- failures


def test_a_failing_duty_is_logged_once_backs_off_and_stops_no_other(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception | None] = [StoreBusy("busy")] * 3 + [KeyError("what")] * 2 + [None]

    def answer() -> Done:
        error = errors.pop(0) if len(errors) > 1 else None
        if error is not None:
            raise error
        return Done(1)

    bad, good = Notebook(yard.clock, answer), Notebook(yard.clock)
    loop = yard.loop(every(60, bad), Duty("good", SECOND, good), coordination=EVERYONE)
    with caplog.at_level(logging.INFO, "tidemill.engine"):
        yard.pass_time(45)
    assert len(bad.times) == 6
    gaps = [after - before for before, after in zip(bad.times, bad.times[1:], strict=False)]
    assert all(
        low / 2 <= gap <= low + 0.01 for gap, low in zip(gaps, [1.0, 2.0, 4.0, 8.0, 16.0], strict=True)
    )
    assert len(good.times) >= 44
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    facts = loop.status()["work"]
    assert isinstance(facts, dict)
    assert (facts["errors"], facts["items"], facts["last_error"]) == (5, 1, "KeyError: 'what'")


def test_run_once_does_all_the_work_without_leading_and_raises_the_first_error(yard: Yard) -> None:
    ids = enqueue(yard.memory, 1200, delay=SECOND)
    duties = usual_duties(
        yard.memory, yard.clock, lambda claim, details: DEFAULT_POLICY, Random(1), batch=100
    )
    yard.memory.acquire("duties", new_id(), ttl=timedelta(hours=1))
    loop = yard.loop(*duties)
    loop.step()
    yard.clock.advance(SECOND)
    answers = loop.run_once()
    assert not loop.leading
    assert answers["promote"].items == 1200
    assert {job.state for job in the_jobs(yard.memory, ids)} == {JobState.PENDING}

    def fail() -> Done:
        raise StoreUnavailable("gone")

    book = Notebook(yard.clock)
    failing = yard.loop(Duty("bad", SECOND, fail), every(1, book))
    with pytest.raises(StoreUnavailable):
        failing.run_once()
    assert book.times
