"""Tests of ``--reload``: the watched files, and reloading after a change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill import App
from tidemill.domain.cluster import WorkerState
from tidemill.engine.supervisor.reloader import Reloader, source_files


def test_the_users_own_modules_are_watched_and_installed_ones_are_not() -> None:
    found = source_files()
    assert str(Path(__file__).resolve()) in found
    assert not [file for file in found if "site-packages" in file or "src/tidemill" in file]
    assert os.__file__ not in found


@pytest.fixture
def changes() -> Iterator[tuple[Reloader, threading.Semaphore]]:
    seen = threading.Semaphore(0)
    reloader = Reloader(seen.release, poll=0.01)
    yield reloader, seen
    reloader.close()


def test_changed_and_replaced_files_are_noticed(
    changes: tuple[Reloader, threading.Semaphore], tmp_path: Path
) -> None:
    reloader, seen = changes
    file, other = tmp_path / "shop.py", tmp_path / "other.py"
    file.write_text("x = 1")
    other.write_text("x = 1")
    reloader.watch([str(file), str(other)])
    file.write_text("x = 22")
    assert seen.acquire(timeout=30)
    (tmp_path / "new").write_text("x = 333")
    (tmp_path / "new").replace(other)
    assert seen.acquire(timeout=30)


def test_without_a_change_nothing_is_reloaded(
    changes: tuple[Reloader, threading.Semaphore], tmp_path: Path
) -> None:
    reloader, seen = changes
    file = tmp_path / "shop.py"
    file.write_text("x = 1")
    reloader.watch([str(file)])
    reloader.watch([str(file)])
    assert not seen.acquire(timeout=0.2)


APP = """
from pathlib import Path

import shelf

from tidemill import App

app = App("sqlite:///jobs.db", migrate=True)
Path("seen").write_text(str(shelf.VALUE))


@app.task
def work() -> int:
    return shelf.VALUE
"""


@pytest.mark.long
def test_a_worker_reloads_a_changed_module_and_keeps_its_code_while_the_new_one_is_wrong(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "shelf.py").write_text("VALUE = 1\n")
    words = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--reload"]
    with subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as worker:
        assert worker.stderr is not None
        try:
            _until(worker, "ready")
            with App(f"sqlite:///{tmp_path}/jobs.db") as app:
                (only,) = app.store.workers()  # one process is the default here
                assert only.state is WorkerState.ACTIVE
            (tmp_path / "shelf.py").write_text("VALUE = 22\n")
            _until(worker, "shelf.py changed; reloading the code")
            _until(worker, "has ended")
            assert (tmp_path / "seen").read_text() == "22"
            (tmp_path / "shelf.py").write_text("VALUE = (\n")
            _until(worker, "SyntaxError")
            with App(f"sqlite:///{tmp_path}/jobs.db") as app:
                assert app.enqueue("work").result(timeout=60) == 22
            (tmp_path / "shelf.py").write_text("VALUE = 333\n")
            _until(worker, "is ready")
            assert (tmp_path / "seen").read_text() == "333"
        finally:
            worker.terminate()
            worker.communicate(timeout=60)


def _until(worker: subprocess.Popen[str], words: str) -> None:
    assert worker.stderr is not None
    for line in worker.stderr:
        if words in line:
            return
    pytest.fail(f"the worker ended before it said {words!r}")
