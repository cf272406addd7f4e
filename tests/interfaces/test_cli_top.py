"""``tidemill top`` on a terminal of its own: keys, actions, and output without cursor control."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from tests.interfaces.cli_kit import Shop, make_shop
from tests.interfaces.pty_kit import Terminal, on_terminal

from tidemill.cli.top_keys import Row, TopAction, TopState, View, press, quits
from tidemill.cli.top_view import MOST_JOBS, Frame, draw
from tidemill.client.stats.loads import Stats, gather
from tidemill.client.stats.reports import Pace
from tidemill.domain.cluster import Worker
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore


@contextmanager
def top_on(url: str, term: str = "xterm") -> Iterator[Terminal]:
    words = [sys.executable, "-m", "tidemill", "top", "--every", "0.2", "--store", url]
    with on_terminal(words, term) as top:
        yield top


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def test_arrow_keys_do_not_end_top_and_q_does(tmp_path: Path) -> None:
    with top_on(f"sqlite:///{tmp_path}/jobs.db") as top:
        top.until(b"nothing is running")
        top.type(b"\x1b[A")
        for _ in range(2):  # the first one may have been drawn before the key
            top.forget()
            top.until(b"nothing is running")
        top.type(b"xq")
        assert top.ended() == 0


def test_a_dumb_terminal_gets_one_frame_after_the_other(tmp_path: Path) -> None:
    with top_on(f"sqlite:///{tmp_path}/jobs.db", "dumb") as top:
        top.until(b"nothing is running")
        top.forget()
        top.until(b"nothing is running")
        assert b"\x1b" not in top.said
        top.process.send_signal(signal.SIGINT)  # like Ctrl-C
        assert top.ended() == 0


def test_keys_pause_and_resume_a_queue_and_retry_a_failed_job(shop: Shop) -> None:
    failed = shop.run("jobs", "enqueue", "fail", "words=the card has expired").stdout.strip()
    shop.drain()
    shop.run("jobs", "enqueue", "send", "to=ann")
    with top_on(shop.url) as top:
        top.until(b"mail")
        top.until(b"100% failed")
        top.type(b"p")
        top.until("select a queue with ↑ ↓ first".encode())
        top.type(b"\x1b[Bp")
        top.until(b"queue mail is paused; running jobs continue")
        top.until(b"paused by")
        assert [
            queue["paused"] is not None for queue in shop.json("queues", "list") if queue["name"] == "mail"
        ] == [True]
        top.type(b"p")
        top.until(b"queue mail is resumed")
        top.type(b"f")
        top.until(b"PermanentError: the card has")
        top.type(b"jjr")
        top.until(b"is pending again")
        assert shop.json("jobs", "show", failed)["status"] == "pending"
        top.type(b"\x1b")
        assert top.ended() == 0
    actions = [entry["action"] for entry in shop.json("audit", "list")]
    assert {"queue.paused", "queue.resumed"} <= set(actions)


ROWS = (
    Row("mail", "mail"),
    Row("media", "media", paused=True),
    Row("1", "send", JobState.RUNNING),
    Row("2", "send", JobState.DEAD_LETTERED),
    Row("3", "send", JobState.COMPLETED),
)


def after(*keys: str, selection: TopState | None = None) -> tuple[TopState, TopAction | None]:
    """The selection after these keys, and the last action."""
    selection, act = selection or TopState(), None
    for key in keys:
        selection, act = press(selection, key, ROWS)
    return selection, act


def test_arrows_move_the_selection_within_the_rows() -> None:
    assert after("down")[0].key == "mail"
    assert after("down", "down", "up")[0].key == "mail"
    assert after("up")[0].key == "3"
    assert after("up", "down", "j")[0].key == "3"
    assert after("down", "k", "k")[0].key == "mail"
    assert press(TopState(), "down", [])[0].key is None


def test_p_pauses_or_resumes_the_selected_queue_only() -> None:
    assert after("down", "p")[1] == TopAction("pause", ROWS[0])
    assert after("down", "down", "p")[1] == TopAction("resume", ROWS[1])
    selection, act = after("up", "p")
    assert act is None
    assert selection.note


def test_c_asks_before_it_cancels_a_job_that_has_not_ended() -> None:
    asked, act = after("down", "down", "down", "c")
    assert act is None
    assert asked.question == TopAction("cancel", ROWS[2])
    assert press(asked, "y", ROWS)[1] == TopAction("cancel", ROWS[2])
    assert not quits(asked, "escape")
    answered, act = press(asked, "escape", ROWS)
    assert (answered.question, act, answered.note) == (None, None, "nothing was changed")
    assert quits(answered, "escape")
    assert after("up", "c")[0].question is None


def test_r_retries_a_failed_job_only() -> None:
    assert after("up", "up", "r")[1] == TopAction("retry", ROWS[3])
    for selected in (("up",), ("down",), ("down", "down", "down"), ()):
        selection, act = after(*selected, "r")
        assert act is None
        assert "failed job" in selection.note


def test_f_switches_between_running_and_failed_jobs() -> None:
    selection = after("down", "f")[0]
    assert (selection.view, selection.key) == (View.FAILED, None)
    assert after("f", selection=selection)[0].view is View.RUNNING


NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_PACE = Pace(None, None, None, None)


def busy(workers: int) -> Frame:
    """A frame with this number of workers and the maximum of running jobs."""
    store = MemoryStore()
    found: Stats = gather(store, NOW, ended=False)
    store.close()
    crew = [
        (Worker(new_id(), f"worker-{number}", beat_at=NOW, expires_at=NOW + timedelta(minutes=1)), 1)
        for number in range(workers)
    ]
    running = [
        JobRow(
            new_id(),
            f"job-{number}",
            JobState.RUNNING,
            "a",
            "q",
            0,
            "{}",
            1,
            1,
            0,
            1,
            NOW,
            NOW,
            started_at=NOW,
        )
        for number in range(MOST_JOBS)
    ]
    return Frame(found, crew, running, NO_PACE)


def test_hidden_workers_leave_the_space_to_running_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(draw(busy(workers=500), 80, height=60))
    shown = capsys.readouterr().out
    assert shown.count("worker-") == 10
    assert shown.count("job-") == MOST_JOBS


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_frame_fits_its_screen_and_keeps_the_selected_row_and_the_keys(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = busy(workers=3)
    last = TopState(key=str(frame.jobs[-1].id))
    Console(width=width).print(draw(frame, width, height=24, selection=last))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert any(line.startswith(f"job-{MOST_JOBS - 1}") for line in lines)
    assert lines[-1].startswith("↑↓ select")


def test_the_pace_contains_jobs_that_ended_a_moment_ago(shop: Shop) -> None:
    for _ in range(3):
        shop.run("jobs", "enqueue", "fail", "words=no")
    shop.run("jobs", "enqueue", "send", "to=ann")
    shop.drain()
    pace = shop.json("top", "--once")["pace"]
    assert pace["failure_rate"] == 0.75
    assert pace["per_minute"] > 0
    assert "75% failed" in shop.run("top", "--once").stdout
