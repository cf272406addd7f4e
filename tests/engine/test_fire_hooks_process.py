"""Tests of the enqueue hooks of fires under ``tidemill worker``, whose supervisor imports no app."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.engine.worker_kit import WorkerProcess, until

from tidemill import App, Once
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import JobRow
from tidemill.domain.schedules import Fired
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

pytestmark = pytest.mark.long

MODULE = """
import os
import signal
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tidemill import App, Every

app = App({url!r})
folder = Path({folder!r})
second = Every(timedelta(seconds=1))


@app.task
def work() -> None: ...


def note(name, line):
    with (folder / name).open("a") as file:
        file.write(line + "\\n")


def enqueued(event):
    note("events", f"{{event.job_id}} {{event.task}} {{event.tenant}} {{event.state}} {{os.getpid()}}")
"""

HOOK = """

@contextmanager
def stamp(step):
    step.headers["trace"] = f"{{step.task}} {{os.getpid()}}"
    note("calls", str(os.getpid()))
    act(step)
    yield


app.around(enqueue=stamp)
app.on("job.enqueued", enqueued)
"""


class Harness:
    """A worker of an app with hooks, and its store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.store: Store = open_store(url)
        self.store.migrate()
        self.worker: WorkerProcess | None = None

    def start(self, code: str, *options: str, processes: int = 1) -> WorkerProcess:
        """Start a worker of the module with this code at its end."""
        text = (MODULE + code).format(url=self.url, folder=str(self.folder))
        (self.folder / "hooked.py").write_text(text, encoding="utf-8")
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        words = [sys.executable, "-m", "tidemill", "worker", "hooked:app", "--json"]
        words += ["--processes", str(processes), *options]
        environment = {**os.environ, "PYTHONPATH": path, "TIDEMILL_NODE": "blue"}
        self.worker = WorkerProcess(words, self.folder / "worker", environment)
        return self.worker.ready(processes)

    def fire_once(self) -> None:
        """Add a schedule that is due once, in half a second."""
        with App(self.url) as app:

            @app.task
            def work() -> None: ...

            app.schedules.add("work", Once(self.store.now() + timedelta(seconds=0.5)), key="once")

    def fires(self, key: str) -> list[Fired]:
        """The fires of a schedule that have a job, in any state."""
        rows = [row for row in self.store.schedules(tenant=ALL_TENANTS) if row.key == key]
        return [
            fire
            for row in rows
            for fire in self.store.fires(row.id, tenant="default")
            if fire.job_id is not None
        ]

    def jobs(self, key: str) -> list[JobRow]:
        """The jobs of a schedule."""
        ids = [fire.job_id for fire in self.fires(key) if fire.job_id is not None]
        return list(self.store.get(ids, tenant=ALL_TENANTS)) if ids else []

    def notes(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        if self.worker is not None:
            self.worker.end()
        self.store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        url = request.getfixturevalue("fresh_postgres_url")
    harness = Harness(url, tmp_path)
    try:
        yield harness
    finally:
        harness.close()


def test_fires_of_every_scope_pass_the_hooks_and_are_published(harness: Harness) -> None:
    code = """
def act(step): ...

for scope in ("cluster", "instance", "process"):
    app.schedule(work, second, scope, overlap="allow", scope=scope)
"""
    worker = harness.start(code + HOOK, processes=2)
    runners = {str(pid) for pid in worker.runners()}
    for key in ("cluster", "instance", "process"):
        until(lambda key=key: len(harness.fires(key)) >= 4, f"{key} has fired")  # type: ignore[misc]
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0, worker.log
    jobs = [job for key in ("cluster", "instance", "process") for job in harness.jobs(key)]
    traces = [job.details.headers["trace"].split() for job in jobs]
    assert {task for task, _ in traces} == {"work"}
    assert {pid for _, pid in traces} <= runners
    assert str(worker.pid) not in harness.notes("calls")
    events = [line.split() for line in harness.notes("events")]
    assert len({id for id, *_ in events}) == len(events), "no event is published twice"
    # The last fires may have been made while the runners ended.
    assert len(events) >= len(jobs) - 4
    assert {id for id, *_ in events} <= {str(job.id) for job in jobs}
    assert {tuple(rest[:3]) for _, *rest in events} == {("work", "default", "pending")}
    assert {rest[3] for _, *rest in events} <= runners
    assert "without the app's enqueue hooks" not in worker.log


def test_a_hook_that_raises_puts_off_its_own_fire_only(harness: Harness) -> None:
    code = """
@app.task
def refused() -> None: ...

def act(step):
    if step.task == "refused":
        raise PermissionError("not now")

app.schedule(refused, second, "refused", overlap="allow")
app.schedule(work, second, "made", overlap="allow")
"""
    worker = harness.start(code + HOOK)
    until(lambda: len(harness.fires("made")) >= 3, "the other schedule fires")
    until(lambda: "PermissionError: not now" in worker.log, "the refusal is logged")
    assert "schedule refused of tenant default does not fire: its jobs cannot be written" in worker.log
    assert harness.fires("refused") == []
    assert all("trace" in job.details.headers for job in harness.jobs("made"))
    (row,) = [row for row in harness.store.schedules(tenant=ALL_TENANTS) if row.key == "refused"]
    assert row.next_fire_at is not None
    assert (row.next_fire_at - harness.store.now()).total_seconds() > 30


def test_a_fire_is_made_once_if_its_runner_is_killed_by_the_hook(harness: Harness) -> None:
    code = """
def act(step):
    if not (folder / "killed").exists():
        (folder / "killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
"""
    worker = harness.start(code + HOOK)
    harness.fire_once()
    (fire,) = until(lambda: harness.fires("once"), "it has fired")
    killed = (harness.folder / "killed").read_text()
    until(lambda: harness.notes("events"), "it is published")
    (job,) = harness.jobs("once")
    assert (fire.job_id, harness.notes("calls")[0]) == (job.id, killed)
    assert job.details.headers["trace"] != f"work {killed}"
    assert len(harness.notes("calls")) == 2
    assert [line.split()[0] for line in harness.notes("events")] == [str(job.id)]
    assert sum(harness.store.count(JobFilter(ALL_TENANTS)).values()) == 1
    assert "was killed by SIGKILL" in worker.log
    assert "without the app's enqueue hooks" not in worker.log


def test_a_fire_is_made_without_hooks_if_they_do_not_end(harness: Harness) -> None:
    code = """
(folder / "block").touch()

def act(step):
    while (folder / "block").exists():
        time.sleep(0.02)
"""
    worker = harness.start(code + HOOK, "--health-port", "0")
    (runner,) = worker.runners()
    harness.fire_once()
    until(lambda: harness.notes("calls") == [str(runner)], "the hook was called")
    (fire,) = until(lambda: harness.fires("once"), "it has fired")
    (job,) = harness.jobs("once")
    assert (fire.job_id, job.details.headers) == (job.id, {})
    assert fire.created_at is not None
    assert (fire.created_at - fire.fire_at).total_seconds() >= 9
    assert "1 fire(s) made without the app's enqueue hooks: runner 1" in worker.log
    assert "has not answered for 10 s" in worker.log
    with urlopen(
        json.loads(worker.out.splitlines()[0])["started"]["health"] + "/metrics", timeout=5
    ) as answer:
        assert "\ntidemill_worker_fires_without_hooks_total 1\n" in answer.read().decode()
    (harness.folder / "block").unlink()
    until(lambda: len(harness.notes("events")) == 1, "it is published once the runner answers")
    assert worker.runners() == [runner]
    assert harness.fires("once") == [fire]
