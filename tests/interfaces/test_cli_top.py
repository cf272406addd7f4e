"""``tidemill top`` on its own terminal: keys, and output without cursor control."""

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
from tidemill.client.stats.loads import Stats, gather
from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore

pty = pytest.importorskip("pty")
PATIENCE = 60.0


class Terminal:
    """A program on a pseudo-terminal, with its recorded output."""

    def __init__(self, process: subprocess.Popen[bytes], file: int) -> None:
        self.process, self._file, self.said = process, file, b""

    def until(self, words: bytes) -> None:
        """Wait for these words; raise ``EOFError`` if the program ends first."""
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
        except OSError:  # Linux reports a closed terminal as an error, other systems as empty data
            found = b""
        if not found:
            raise EOFError
        return found

    def forget(self) -> None:
        self.said = b""

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def ended(self) -> int:
        """Wait for the end and return the exit code; keep reading so that the program does not block on output."""
        with pytest.raises(EOFError):
            self.until(b"what nobody says")
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(folder: Path, term: str) -> Iterator[Terminal]:
    """Run ``tidemill top`` on a terminal of this type; kill it at the end if it still runs."""
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


def test_arrow_keys_do_not_end_top_and_q_does(tmp_path: Path) -> None:
    with terminal(tmp_path, "xterm") as top:
        top.until(b"nothing is running")
        top.type(b"\x1b[A")
        for _ in range(2):  # the first one may have been drawn before the key
            top.forget()
            top.until(b"nothing is running")
        top.type(b"xq")
        assert top.ended() == 0


def test_a_dumb_terminal_gets_one_frame_after_the_other(tmp_path: Path) -> None:
    with terminal(tmp_path, "dumb") as top:
        top.until(b"nothing is running")
        top.forget()
        top.until(b"nothing is running")
        assert b"\x1b" not in top.said
        top.process.send_signal(signal.SIGINT)  # like Ctrl-C
        assert top.ended() == 0


NOW = datetime(2026, 1, 1, tzinfo=UTC)


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
        for number in range(MOST_RUNNING)
    ]
    return Frame(found, crew, running)


def test_hidden_workers_leave_the_space_to_running_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(draw(busy(workers=500), 80, height=60))
    shown = capsys.readouterr().out
    assert shown.count("worker-") == 10
    assert shown.count("job-") == MOST_RUNNING
