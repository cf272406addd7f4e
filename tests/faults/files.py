"""A SQLite file that is replaced, deleted, or renamed and restored under load.

An enqueue that begins after the fault is accepted only if its job is in the file at the path. Workers log the loss once and
do not alternate between lost and found. ``python -m tests.faults.files --cycles 6``: the three kinds take turns.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import ROOT, Harness, clock, open_harness, pause, until

from tidemill.stores.open import open_store

KINDS = ("replace", "delete", "rename")
PRODUCERS = 2
_LOST = re.compile(r"the store does not respond; running jobs continue")
_FOUND = re.compile(r"the store responds again")

_PRODUCER = """
import sys, time
from tests.faults.tasks import FaultApp
from tidemill.errors import StoreError
noop = FaultApp(sys.argv[1]).tasks["noop"]
with open(sys.argv[2], "a", buffering=1) as report:
    while True:
        began = time.monotonic()
        try:
            print("accepted", noop.enqueue().id, began, file=report)
        except StoreError:
            print("refused", "-", began, file=report)
            time.sleep(0.005)
"""


class Attempt(NamedTuple):
    """One enqueue of a producer: its outcome, and when the call began."""

    accepted: bool
    job: str
    began: float


class Producer:
    """A process that enqueues as fast as it can and records what was accepted."""

    def __init__(self, url: str, report: Path) -> None:
        self._report = report
        report.touch()
        with report.with_suffix(".log").open("wb") as log:
            words = [sys.executable, "-c", _PRODUCER, url, str(report)]
            self._process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)

    def attempts(self) -> list[Attempt]:
        """Return the complete lines of its report."""
        lines = self._report.read_text().rpartition("\n")[0].splitlines()
        return [Attempt(kind == "accepted", job, float(began)) for kind, job, began in map(str.split, lines)]

    def count(self, *, accepted: bool, since: float = 0.0) -> int:
        """Count its enqueues since then that were accepted, or refused."""
        return sum(one.accepted is accepted and one.began > since for one in self.attempts())

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run the kinds in turn, each on a separate file; the file of the harness is not touched."""
    verdict, random = Verdict(), Random(seed)
    for cycle in range(cycles):
        kind = KINDS[cycle % len(KINDS)]
        for name, figure in _cycle(kind, verdict, random).items():
            key = f"{kind}_{name}"
            verdict.facts[key] = int(str(verdict.facts.get(key, 0))) + figure
    return verdict


def _cycle(kind: str, verdict: Verdict, random: Random) -> dict[str, int]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="files-")))
        path = folder / "jobs.db"
        harness = stack.enter_context(open_harness(f"sqlite:///{path}", folder))
        worker = harness.worker("--processes", "1").ready()
        producers = [Producer(harness.url, folder / f"producer-{number}") for number in range(PRODUCERS)]
        for producer in producers:
            stack.callback(producer.end)
        _wait_for_each(producers, lambda one: one.count(accepted=True) >= 50, "every producer enqueues")
        pause(random.uniform(0.0, 0.3))
        before = worker.log
        fault_at = _fault(kind, path)
        _wait_for_each(
            producers, lambda one: one.count(accepted=False, since=fault_at) >= 20, "enqueues are refused"
        )
        # Long enough for every check that happens once a second.
        pause(random.uniform(1.5, 2.5))
        if kind == "rename":
            (folder / "aside.db").rename(path)
            back_at = clock.monotonic()
            _wait_for_each(
                producers, lambda one: one.count(accepted=True, since=back_at) >= 20, "enqueues are accepted"
            )
        for producer in producers:
            producer.end()
        log = worker.log[len(before) :]
        lost, found = len(_LOST.findall(log)), len(_FOUND.findall(log))
        verdict.expect(worker.alive, f"{kind}: the worker does not crash", worker.log[-1000:])
        verdict.expect(lost <= 1, f"{kind}: the runner logs the loss once", lost)
        verdict.expect(
            found <= (kind == "rename"), f"{kind}: the store responds again only if the file is back", found
        )
        attempts = [one for producer in producers for one in producer.attempts()]
        late = [one for one in attempts if one.accepted and one.began > fault_at]
        stored = _stored(path)
        missing = [one.job for one in late if one.job not in stored]
        verdict.expect(not missing, f"{kind}: every job accepted after the fault is in the file", missing[:5])
        if kind == "rename":
            missing = [one.job for one in attempts if one.accepted and one.job not in stored]
            verdict.expect(not missing, "rename: every accepted job is in the file", missing[:5])
        if kind == "replace":
            with closing(open_store(harness.url)) as new:
                new.check()
        code = worker.stop()
        verdict.expect(code == 0, f"{kind}: a worker without its file exits with 0 on SIGTERM", code)
        return {
            "accepted": sum(one.accepted for one in attempts),
            "accepted_after_the_fault": len(late),
            "refused": sum(not one.accepted for one in attempts),
            "missing": len(missing),
        }


def _wait_for_each(producers: list[Producer], true: Callable[[Producer], bool], what: str) -> None:
    for producer in producers:
        until(lambda one=producer: true(one), what, 60)  # type: ignore[misc]


def _fault(kind: str, path: Path) -> float:
    """Take the file away; return when it was gone."""
    aside = path.with_name("aside.db")
    if kind == "replace":
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(aside)) as copy:
            source.backup(copy)
        # The restore guide says to remove these.
        for log in ("-wal", "-shm"):
            path.with_name(path.name + log).unlink(missing_ok=True)
        aside.replace(path)
    elif kind == "delete":
        path.unlink()
    else:
        path.rename(aside)
    return clock.monotonic()


def _stored(path: Path) -> set[str]:
    """Return the ids of all jobs in the file at the path; empty if there is no file."""
    if not path.exists():
        return set()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        tables = ("ready", "scheduled", "parked", "running", "history")
        rows = connection.execute(" union all ".join(f"select id from tidemill_{name}" for name in tables))
        return {str(UUID(bytes=id)) for (id,) in rows}


if __name__ == "__main__":
    main("files", run, cycles=6, stores=["sqlite"])
