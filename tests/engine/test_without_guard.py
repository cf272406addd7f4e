"""Test of a worker script without a ``__main__`` guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging
import threading

from tidemill import App

app = App("sqlite:///{file}")
seen = threading.Event()


class Watch(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        if "__main__" in record.getMessage():
            seen.set()


@app.task(isolation="process", retry=None)
def work(n: int) -> int:
    return n * 2


logging.getLogger().addHandler(Watch())
with app.worker(children=1):
    job = work.enqueue(n=4)
    assert seen.wait(50)
    print(app.jobs.count())
"""


def test_a_script_without_the_guard_gets_one_error_that_names_it(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(SCRIPT.format(file=tmp_path / "jobs.db"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"  # no child enqueued another job
    assert done.stderr.count("__main__") == 1
    assert "Traceback" not in done.stderr
    assert (
        "module 'unguarded' starts a worker when it is imported; move the lines that start it under"
        in done.stderr
    )
