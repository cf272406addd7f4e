"""Tests of the bounds of job logs: dropped lines, back pressure and full logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE
from tests.engine.output_writer_kit import Office

from tidemill.engine.runner import log_buffer


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.line.mend()
    office.output_writer.close()
    office.memory.close()


def test_during_an_outage_the_oldest_lines_are_dropped_and_a_note_is_stored(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_buffer, "MOST", 100)
    (held,) = office.held()
    office.line.refuse("log")
    reached, go_on = office.line.hold_up("log")
    office.say(held, "first")
    assert reached.wait(PATIENCE)  # the second try, so the store has refused one and not answered the next
    for number in range(205):
        office.say(held, str(number))
    go_on.set()
    eventually(lambda: office.lines(held)[-1:] == ["204"])
    # Each time the buffer is full, it drops its oldest eleven lines.
    note = "110 log lines before this one were dropped: the store did not answer"
    assert office.lines(held) == ["first", note, *map(str, range(110, 205))]
    eventually(lambda: "110 log lines of jobs were dropped: the store did not answer" in caplog.text)


def test_a_note_about_dropped_lines_is_counted_when_it_is_dropped_too(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_buffer, "MOST", 100)
    (held,) = office.held()
    office.line.cut()
    for start in range(0, 600, 200):
        for number in range(start, start + 200):
            office.say(held, str(number))
        wanted = office.line.calls_of("log") + 2
        eventually(partial(_has_called, office, wanted))
    office.line.mend()
    eventually(lambda: office.lines(held)[-1:] == ["599"])
    note, *kept = office.lines(held)
    assert note.startswith(
        f"{600 - len(kept)} log lines before this one were dropped: the store did not answer"
    )
    assert kept == [str(number) for number in range(600 - len(kept), 600)]


def _has_called(office: Office, times: int) -> bool:
    return office.line.calls_of("log") >= times


def test_the_log_of_an_execution_ends_with_a_line_that_it_is_full(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_buffer, "LOG_LINES", 10)
    one, two = office.held(2)
    office.say(one, *(str(number) for number in range(30)))
    office.say(two, "another job")
    office.finish(one, two)
    *kept, last = office.lines(one)
    assert kept == [str(number) for number in range(10)]
    assert "is full (10 lines or 64 MiB); lines after this one are not stored" in last
    assert office.lines(two) == ["another job"]


def test_a_thread_that_logs_too_fast_waits_for_the_store_and_loses_no_line(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_buffer, "PRESSED", 50)
    monkeypatch.setattr(log_buffer, "MOST", 200)
    (held,) = office.held()
    held.kind = "thread"
    reached, go_on = office.line.hold_up("log")
    office.say(held, "first")
    assert reached.wait(PATIENCE)
    talker = threading.Thread(target=lambda: office.say(held, *(str(number) for number in range(900))))
    talker.start()
    eventually(lambda: len(office.output_writer._lines) == 50)
    assert talker.is_alive()
    go_on.set()
    talker.join(PATIENCE)
    office.finish(held)
    assert office.lines(held) == ["first", *(str(number) for number in range(900))]
