"""``tidemill top`` on a terminal of its own: which keys end it, and what it shows where nothing can be drawn over."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from tidemill.cli.top import MOST_RUNNING, Frame, draw
from tidemill.client.stats import Stats, gather
from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Job
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore

pty = pytest.importorskip("pty")
PATIENCE = 60.0


class Terminal:
    """A program on a terminal; what it writes is kept."""

    def __init__(self, pid: int, file: int) -> None:
        self.pid, self._file, self.said = pid, file, b""

    def until(self, words: bytes) -> None:
        """Wait until these words were written."""
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE
        while words not in self.said:
            left = deadline - clock.monotonic()
            assert left > 0, self.said
            if select.select([self._file], [], [], left)[0]:
                self.said += os.read(self._file, 65536)

    def forget(self) -> None:
        self.said = b""

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def ended(self) -> int:
        """Its exit code, once it has ended; what it still writes is read meanwhile, for it must not wait for us."""
        try:
            while True:
                os.read(self._file, 65536)
        except OSError:  # the other side is closed
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def terminal(folder: Path, term: str) -> Iterator[Terminal]:
    """``tidemill top`` on a terminal of this kind; killed at the end if it is still there."""
    words = [
        sys.executable,
        "-m",
        "tidemill",
        "top",
        "--every",
        "0.2",
        "--store",
        f"sqlite:///{folder}/jobs.db",
    ]
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    pid, file = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.execve(words[0], words, {**env, "TERM": term, "COLUMNS": "80", "LINES": "24"})
    found = Terminal(pid, file)
    try:
        yield found
    finally:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
        except ChildProcessError:  # it has ended, and was waited for
            pass
        os.close(file)


def test_arrows_do_not_end_top_and_q_does_whatever_was_typed_before_it(tmp_path: Path) -> None:
    with terminal(tmp_path, "xterm") as top:
        top.until(b"nothing is running")
        top.type(b"\x1b[A")
        top.forget()
        top.until(b"nothing is running")  # the next look
        top.type(b"xq")
        assert top.ended() == 0


def test_a_terminal_that_takes_no_orders_is_shown_look_after_look(tmp_path: Path) -> None:
    with terminal(tmp_path, "dumb") as top:
        top.until(b"nothing is running")
        top.forget()
        top.until(b"nothing is running")
        assert b"\x1b" not in top.said
        top.type(b"\x03")
        assert top.ended() == 0


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def busy(workers: int) -> Frame:
    """So many workers, and as much that runs as is looked at."""
    store = MemoryStore()
    found: Stats = gather(store, NOW, ended=False)
    store.close()
    crew = [
        (Worker(new_id(), f"worker-{number}", beat_at=NOW, expires_at=NOW + timedelta(minutes=1)), 1)
        for number in range(workers)
    ]
    running = [
        Job(
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
        for number in range(MOST_RUNNING)
    ]
    return Frame(found, crew, running)


def test_workers_that_are_not_shown_take_no_room_from_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(draw(busy(workers=500), 80, height=60))
    shown = capsys.readouterr().out
    assert shown.count("worker-") == 10
    assert shown.count("job-") == MOST_RUNNING
