"""``tidemill top`` on a terminal of its own: which keys end it, and what it shows where nothing can be drawn over."""

from __future__ import annotations

import os
import select
import signal
import subprocess
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

    def __init__(self, process: subprocess.Popen[bytes], file: int) -> None:
        self.process, self._file, self.said = process, file, b""

    def until(self, words: bytes) -> None:
        """Wait until these words were written; ``EOFError`` where it has ended before."""
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE
        while words not in self.said:
            left = deadline - clock.monotonic()
            assert left > 0, self.said
            if select.select([self._file], [], [], left)[0]:
                self.said += self._read()

    def _read(self) -> bytes:
        try:
            found = os.read(self._file, 65536)
        except OSError:  # so Linux says that the other side is closed; others say nothing
            found = b""
        if not found:
            raise EOFError
        return found

    def forget(self) -> None:
        self.said = b""

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def ended(self) -> int:
        """Its exit code, once it has ended; what it still writes is read meanwhile, for it must not wait for us."""
        with pytest.raises(EOFError):
            self.until(b"what nobody says")
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(folder: Path, term: str) -> Iterator[Terminal]:
    """``tidemill top`` on a terminal of this kind; killed at the end if it is still there."""
    words = [sys.executable, "-m", "tidemill", "top", "--every", "0.2"]
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*words, "--store", f"sqlite:///{folder}/jobs.db"],
        stdin=its, stdout=its, stderr=its,
        env={**env, "TERM": term, "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    os.close(its)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_arrows_do_not_end_top_and_q_does_whatever_was_typed_before_it(tmp_path: Path) -> None:
    with terminal(tmp_path, "xterm") as top:
        top.until(b"nothing is running")
        top.type(b"\x1b[A")
        for _ in range(2):  # the first of them may have been under way
            top.forget()
            top.until(b"nothing is running")
        top.type(b"xq")
        assert top.ended() == 0


def test_a_terminal_that_takes_no_orders_is_shown_look_after_look(tmp_path: Path) -> None:
    with terminal(tmp_path, "dumb") as top:
        top.until(b"nothing is running")
        top.forget()
        top.until(b"nothing is running")
        assert b"\x1b" not in top.said
        top.process.send_signal(signal.SIGINT)  # as Ctrl-C does
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
