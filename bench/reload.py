"""Time from an edit to the first answer of the new code: ``tidemill worker --reload`` in a small project.

    python3 dev.py bench reload [--edits 5]

It edits a module that the app imports, and enqueues jobs until one returns the new value. Then it writes a syntax error, and
shows that jobs still run on the old code.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidemill import App

PATIENCE = 60.0

APP = """
import answers

from tidemill import App

app = App("sqlite:///jobs.db", migrate=True)


@app.task
def answer() -> int:
    return answers.VALUE
"""


def until(done: Callable[[], bool]) -> float:
    """Wait until it is true, and return the seconds that this took."""
    began = time.perf_counter()
    while not done():
        took = time.perf_counter() - began
        assert took < PATIENCE, "the worker does not answer"
        time.sleep(0.01)
    return time.perf_counter() - began


def measure(folder: Path, edits: int) -> None:
    """Edit the module several times, and print the seconds of each."""
    log = folder / "worker.log"
    module = folder / "answers.py"
    module.write_text("VALUE = 0\n", encoding="utf-8")
    (folder / "shop.py").write_text(APP, encoding="utf-8")
    words = [sys.executable, "-m", "tidemill", "worker", "shop:app", "--reload"]
    with log.open("w") as output:
        worker = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output)
    try:
        until(lambda: " ready\n" in log.read_text())
        with App(f"sqlite:///{folder}/jobs.db") as app:

            def answer() -> object:
                return app.enqueue("answer").result(timeout=PATIENCE)

            def until_new(value: int) -> float:
                return until(lambda: answer() == value)

            times = []
            for number in range(1, edits + 1):
                # Python takes a file of the same size and the same second for unchanged.
                time.sleep(1.1)
                module.write_text(f"VALUE = {number}\n", encoding="utf-8")
                times.append(until_new(number))
                print(f"{times[-1]:6.2f} s  edit {number}: the first new answer", flush=True)
            module.write_text("VALUE = (\n", encoding="utf-8")
            took = until(lambda: "SyntaxError" in log.read_text())
            assert answer() == edits
            print(f"{took:6.2f} s  the syntax error is in the log; jobs still return {edits}")
            module.write_text("VALUE = -1\n", encoding="utf-8")
            took = until_new(-1)
            print(f"{took:6.2f} s  the corrected file: the first new answer")
    finally:
        worker.terminate()
        worker.wait(PATIENCE)
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"median {statistics.median(times):.2f} s, at most {max(times):.2f} s; {load}")


def main() -> None:
    """Measure in a temporary project."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=5)
    edits = parser.parse_args().edits
    with tempfile.TemporaryDirectory(prefix="tidemill-reload-") as folder:
        measure(Path(folder), edits)


if __name__ == "__main__":
    main()
