"""Timelines, tracebacks, durations and snippets of the job pages."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tidemill.dashboard import snippets, timelines
from tidemill.dashboard.waterfall import WIDTH, waterfall
from tidemill.domain import tracebacks
from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.source_files import is_users
from tidemill.domain.states import ExecutionState, JobState
from tidemill.domain.steps import StepView
from tidemill.web import text_parsers

ID = UUID(int=7)
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def a_job(state: JobState, **fields: Any) -> JobRow:
    facts = {
        "id": ID, "task": "t", "state": state, "tenant": "a", "queue": "q", "priority": 0, "args": "{}", "attempt": 1,
        "max_attempts": 3, "crashes": 0, "token": 1, "run_at": T0, "created_at": T0, **fields,
    }  # fmt: skip
    return JobRow(**facts)


def ran(number: int, state: ExecutionState, *moments: float | None) -> Execution:
    claimed, started, finished = (None if moment is None else at(moment) for moment in moments)
    return Execution(ID, number, number, state, None, claimed, started, finished)


def drawn(job: JobRow, executions: list[Execution], now: float) -> list[tuple[str, float, float]]:
    """The periods of a timeline: kind, start and end in seconds."""
    _, spans = timelines.spans(job, executions, at(now))
    return [
        (span.kind, (span.since - T0).total_seconds(), (span.until - T0).total_seconds()) for span in spans
    ]


E = ExecutionState


def test_a_scheduled_job_waits_until_it_is_due_and_then_in_the_queue() -> None:
    assert drawn(a_job(JobState.SCHEDULED, run_at=at(100)), [], 10) == [("scheduled", 0, 10)]
    assert drawn(a_job(JobState.PENDING, run_at=at(4)), [], 10) == [("scheduled", 0, 4), ("queued", 4, 10)]


def test_retries_are_rows_with_their_waiting_times() -> None:
    job = a_job(JobState.COMPLETED, run_at=at(30), finished_at=at(40))
    executions = [ran(2, E.SUCCEEDED, 31, 32, 40), ran(1, E.FAILED, 1, 2, 10)]
    assert drawn(job, executions, 99) == [
        ("queued", 0, 1), ("claimed", 1, 2), ("failed", 2, 10),
        ("retry_wait", 10, 30), ("queued", 30, 31), ("claimed", 31, 32), ("succeeded", 32, 40),
    ]  # fmt: skip
    whole = waterfall(job, executions, [], [], [], [], at(99))
    assert [row.label for row in whole.rows] == [
        "in the queue", "Attempt 1", "back-off", "in the queue", "Attempt 2",
    ]  # fmt: skip
    assert (whole.since, whole.until) == (T0, at(40))
    assert [tick.total_seconds() for tick in whole.ticks] == [0, 10, 20, 30, 40]


def test_stages_steps_and_children_share_the_axis_of_the_attempts() -> None:
    job = a_job(JobState.COMPLETED, finished_at=at(10))
    lines = [
        LogEntry(ID, 1, at(2), "stage load begins", stage="load"),
        LogEntry(ID, 1, at(6), "stage load ends", stage="load", duration=timedelta(seconds=4)),
    ]
    child = a_job(JobState.RUNNING, id=UUID(int=8), task="child", created_at=at(5), started_at=at(8))
    steps = [StepView("fetch", "value", took=0.5)]
    whole = waterfall(job, [ran(1, E.SUCCEEDED, 0, 0, 10)], lines, [], steps, [child], at(20))
    rows = {row.label: row for row in whole.rows}
    assert list(rows) == ["Attempt 1", "load", "fetch", "child"]
    # The child still runs, so the axis ends now.
    assert [(bar.kind, bar.x, bar.width) for bar in rows["load"].segments] == [("succeeded", 100, 200)]
    assert [(bar.kind, bar.x, bar.width) for bar in rows["child"].segments] == [
        ("queued", 250, 150), ("running", 400, 600),
    ]  # fmt: skip
    assert rows["child"].job == child.id
    assert (rows["fetch"].length, rows["fetch"].segments) == (timedelta(seconds=0.5), [])


def test_the_current_phase_extends_to_now() -> None:
    assert drawn(a_job(JobState.RUNNING), [ran(1, E.RUNNING, 1, 1, None)], 9)[-1] == ("running", 1, 9)
    assert drawn(a_job(JobState.CLAIMED), [ran(1, E.RUNNING, 1, None, None)], 9)[-1] == ("claimed", 1, 9)
    waiting = a_job(JobState.REVIEW_NEEDED)
    assert drawn(waiting, [ran(1, E.REVIEW, 0, 0, 5)], 9) == [("review", 0, 5), ("waiting", 5, 9)]
    cancelled = a_job(JobState.CANCELLED, finished_at=at(6))
    assert drawn(cancelled, [], 9) == [("queued", 0, 6)]


def test_every_piece_is_inside_the_picture() -> None:
    executions = [
        ran(n, E.FAILED, n * 10, n * 10 + (0.001 if n % 2 else 3), n * 10 + 4) for n in range(1, 31)
    ]
    job = a_job(JobState.DEAD_LETTERED, run_at=at(-500), finished_at=at(304))
    rows = waterfall(job, executions, [], [], [], [], at(1000)).rows
    assert sum(row.kind == "attempt" for row in rows) == timelines.MOST
    for bar in (bar for row in rows for bar in row.segments):
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.1
    assert waterfall(a_job(JobState.PENDING), [], [], [], [], [], T0).rows == []


TRACE = """Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 10, in pay
    charge(order)
    ~~~~~~^^^^^^^
  File "/venv/lib/python3.11/site-packages/httpx/_api.py", line 3, in post
    return request()
  File "/usr/lib/python3.11/socket.py", line 30, in connect
    raise X
httpx.ConnectError: nope

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 12, in pay
    raise Refused
shop.Refused: the card
  is expired
"""


def test_library_frames_are_folded_and_no_line_is_lost() -> None:
    parts = tracebacks.parts(TRACE)
    assert "\n".join(part.text for part in parts) == TRACE.rstrip("\n")
    assert [part.ours for part in parts] == [True, False, True]
    assert parts[1].summary == "2 frames in httpx, socket"
    assert parts[2].text.endswith("is expired")
    place = tracebacks.users_place(TRACE)
    assert place == tracebacks.FrameLocation("/srv/shop/tasks.py", 12, "pay")


@pytest.mark.parametrize(
    "text",
    [
        "no traceback at all",
        'Traceback:\n  File "/usr/lib/python3.12/json/decoder.py", line 1, in x\n    y\nValueError: z',
        'le "/srv/half.py", line 3\n    cut off',
    ],
)
def test_a_traceback_without_user_frames_is_shown_whole(text: str) -> None:
    (part,) = tracebacks.parts(text)
    assert (part.ours, part.text) == (True, text)
    assert tracebacks.users_place(text) is None
    assert tracebacks.parts("") == []


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (r"C:\shop\pay.py", True),
        (r"C:\Python312\Lib\json\decoder.py", False),
        ("/opt/ann/.venv/lib64/python3.13/site-packages/a/b.py", False),
        ("/opt/ann/lib/shop/pay.py", True),
        ("<string>", True),
        ("<frozen runpy>", False),
    ],
)
def test_user_files_and_library_files_are_distinguished(file: str, users: bool) -> None:
    assert is_users(file) is users


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3s", "1h nonsense", "9" * 50, "99999w"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|longer than ten years"):
        text_parsers.read_span(text)


def test_snippets_reproduce_the_call_with_any_arguments() -> None:
    args = {"to": 'o\'neil "x" $HOME `id`', "class": [None, True]}
    made: dict[str, Any] = {}

    class send:  # noqa: N801
        @staticmethod
        def enqueue(**given: Any) -> None:
            made.update(given)

    exec(snippets.as_python("send", args, {}), {"send": send})
    assert made == args
    curl = snippets.as_curl("https://x.example/api/jobs", "send", args, {"queue": "mail"})
    assert json.loads(shlex.split(curl)[-1]) == {"task": "send", "args": args, "queue": "mail"}
