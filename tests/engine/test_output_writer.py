"""Tests of the output writer: ordered logs and throttled progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened
from tests.engine.output_writer_kit import Office

from tidemill import Context
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.engine.runner import output_writer as scribes
from tidemill.errors import StoreCorrupt, StoreUnavailable


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.line.mend()
    office.output_writer.close()
    office.memory.close()


# ------------------------------------------------------------------------------------------------------ log lines


def test_lines_are_written_soon_and_in_order(office: Office) -> None:
    one, two = office.held(2)
    for number in range(100):
        office.say(one, f"one {number}")
        office.say(two, f"two {number}")
    eventually(lambda: len(office.lines(one)) == len(office.lines(two)) == 100)
    assert office.lines(one) == [f"one {number}" for number in range(100)]
    assert office.lines(two) == [f"two {number}" for number in range(100)]


def test_many_lines_make_few_writes(office: Office) -> None:
    (held,) = office.held()
    began = office.clock.monotonic()
    for number in range(100):
        office.say(held, str(number))
        threading.Event().wait(0.005)
    eventually(lambda: len(office.lines(held)) == 100)
    seconds = office.clock.monotonic() - began
    assert office.line.calls_of("log") <= seconds / scribes.GATHER + 2


def test_all_output_of_a_job_is_written_before_it_is_finished(office: Office) -> None:
    for _ in range(50):
        (held,) = office.held()
        office.say(held, "one", "two", "three")
        office.progress(held, 0.75)
        office.finish(held)
        assert office.lines(held) == ["one", "two", "three"]
        assert office.fraction(held) == 0.75
    assert office.lost == []


def test_an_end_waits_for_lines_that_are_being_written(office: Office) -> None:
    (held,) = office.held()
    reached, go_on = office.line.hold_up("log")
    office.say(held, "first")
    assert reached.wait(PATIENCE)  # the output writer is writing it, and the buffer is empty
    finishing = threading.Thread(target=office.finish, args=(held,))
    finishing.start()
    finishing.join(0.2)
    assert finishing.is_alive()
    go_on.set()
    finishing.join(PATIENCE)
    assert office.lines(held) == ["first"]
    assert office.lost == []


def test_an_end_does_not_wait_for_the_lines_of_other_jobs(office: Office) -> None:
    one, two = office.held(2)
    reached, go_on = office.line.hold_up("log")
    office.say(one, "slow")
    assert reached.wait(PATIENCE)
    office.finish(two)
    go_on.set()


# ------------------------------------------------------------------------------------------------------- progress


@pytest.mark.long
def test_progress_is_written_once_a_second_and_the_last_report_always(office: Office) -> None:
    one, two = office.held(2)
    began = office.clock.monotonic()
    count = 0
    while office.clock.monotonic() - began < 2.5:
        count += 1
        office.progress(one, count / 10_000)
        office.progress(two, count / 10_000)
        threading.Event().wait(0.002)
    office.progress(one, 0.99)
    office.finish(one)
    assert office.fraction(one) == 0.99
    # Both jobs may be due together or apart: at most one write per second for each, and the last one.
    assert 3 <= office.line.calls_of("report") <= 2 * 3 + 1
    assert "progress" in office.woken


def test_a_finished_job_leaves_no_state_behind(office: Office) -> None:
    jobs = office.held(20)
    for held in jobs:
        office.progress(held, 0.5)
        office.say(held, "line")
    office.finish(*jobs)
    assert office.output_writer._written_at == {}
    assert office.output_writer._progress == {}
    assert office.output_writer._lines.idle


# ------------------------------------------------------------------------------------------------- failing stores


def test_an_outage_is_logged_once_and_lines_are_written_afterwards(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    (held,) = office.held()
    office.line.cut()
    office.say(held, "one")
    eventually(lambda: office.line.calls_of("log") >= 3)
    office.say(held, "two")
    office.progress(held, 0.1)
    office.progress(held, 0.2)
    office.line.mend()
    eventually(lambda: office.lines(held) == ["one", "two"] and office.fraction(held) == 0.2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_an_end_is_not_written_before_its_output(office: Office) -> None:
    (held,) = office.held()
    office.line.cut()
    office.say(held, "last words")
    with pytest.raises(StoreUnavailable):
        office.finish(held)
    office.line.mend()
    office.finish(held)
    assert office.lines(held) == ["last words"]


@pytest.mark.parametrize("error", [StoreCorrupt("no"), UnicodeEncodeError("utf-8", "x", 0, 1, "no")])
def test_a_line_that_the_store_refuses_is_the_only_one_lost(office: Office, error: Exception) -> None:
    one, two = office.held(2)

    def is_bad(given: tuple[Any, ...]) -> bool:
        return any(entry.message == "bad" for entry in given[0])

    office.line.refuse("log", error=error, times=1e9, when=is_bad)
    reached, go_on = office.line.hold_up("log")
    office.say(one, "begin")
    assert reached.wait(PATIENCE)
    office.say(one, "a", "bad", "b")
    office.say(two, "c", "bad", "bad", "d")
    go_on.set()
    office.finish(one, two)
    assert office.lines(one) == ["begin", "a", "b"]
    assert office.lines(two) == ["c", "d"]
    office.held()
    (other,) = office.held()
    office.say(other, "still here")
    eventually(lambda: office.lines(other) == ["still here"])


# ----------------------------------------------------------------------------------------------------- lost jobs


def test_a_job_that_is_no_longer_held_is_reported_once(office: Office) -> None:
    one, two = office.held(2)
    office.memory.finish([Finish(one.claim, COMPLETED)])
    reached, go_on = office.line.hold_up("log")
    office.say(two, "first")
    assert reached.wait(PATIENCE)
    office.say(one, "too late")
    office.say(two, "second")
    office.progress(one, 0.5)
    go_on.set()
    eventually(lambda: office.lost)
    office.output_writer.close()
    assert office.lines(two) == ["first", "second"]
    assert office.lost == [one]


def test_output_of_an_earlier_execution_does_not_affect_the_current_one(office: Office) -> None:
    (held,) = office.held()
    old = office._held(held.claim._replace(token=held.claim.token - 1))
    reached, go_on = office.line.hold_up("log")
    office.say(held, "first")
    assert reached.wait(PATIENCE)
    office.say(old, "from the grave")
    office.say(held, "second")
    go_on.set()
    office.finish(held)
    assert office.lines(held) == ["first", "second"]
    assert office.lost == []


def test_output_of_a_dropped_job_is_not_written(office: Office) -> None:
    one, two = office.held(2)
    reached, go_on = office.line.hold_up("log")
    office.say(two, "first")
    assert reached.wait(PATIENCE)
    office.say(one, "secret")
    office.progress(one, 0.5)
    office.say(two, "second")
    office.output_writer.forget([one.id])
    go_on.set()
    office.output_writer.close()
    assert (office.lines(one), office.fraction(one)) == ([], None)
    assert office.lines(two) == ["first", "second"]


# ------------------------------------------------------------------------------------------------- on every store


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.mark.parametrize("colour", ["loop", "thread"])
def test_the_log_of_a_job_is_complete_and_in_order_at_its_end(
    place: Place, tmp_path: Path, colour: str
) -> None:
    with place(tmp_path) as url, opened(url) as harness:
        task = _talker(harness, colour)
        with harness.worker():
            jobs = [task.enqueue(lines) for lines in (0, 1, 2, 50, 500)]
            harness.ends(*jobs)
        for job, count in zip(jobs, (0, 1, 2, 50, 500), strict=True):
            assert harness.lines(job) == [f"line {number}" for number in range(count)]
            progress = harness.row(job).progress
            assert progress is not None
            assert (progress.fraction, progress.message) == (1.0, "all of it")


@pytest.mark.long
@pytest.mark.parametrize("colour", ["loop", "thread"])
def test_twenty_thousand_lines_of_one_job_are_all_stored(place: Place, tmp_path: Path, colour: str) -> None:
    with place(tmp_path) as url, opened(url) as harness:
        task = _talker(harness, colour)
        with harness.worker():
            job = task.enqueue(20_000)
            harness.ends(job)
        messages: list[str] = []
        last = 0
        while page := harness.app.store.logs(job.id, tenant=ALL_TENANTS, after=last, limit=1000):
            last = page[-1][0]
            # The worker adds a warning to the log because such a coroutine blocks the event loop.
            messages += [entry.message for _, entry in page if entry.level == "info"]
        assert messages == [f"line {number}" for number in range(20_000)]


def _talker(harness: Harness, colour: str) -> Any:
    def talk(ctx: Context, lines: int) -> None:
        for number in range(lines):
            ctx.log(f"line {number}")
            ctx.progress(number / lines)
        ctx.progress(1.0, "all of it")

    async def atalk(ctx: Context, lines: int) -> None:
        talk(ctx, lines)

    chosen: Callable[..., Any] = talk if colour == "thread" else atalk
    return harness.app.task(name="talk")(chosen)
