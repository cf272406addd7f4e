"""Tests of schedules under ``tidemill worker``, whose supervisor imports no app."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.worker_kit import WorkerProcess, until

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

MODULE = """
import os
from datetime import timedelta
from pathlib import Path

from tidemill import App, Context, Every

app = App({url!r})
notes = Path({notes!r})


@app.scheduled(Every(timedelta(seconds=1)), key="second", overlap="allow", args={{"word": "cluster"}})
@app.task(queue="slow", timeout=timedelta(seconds=7), retry=None)
def note(word: str, ctx: Context) -> None:
    with notes.open("a") as file:
        file.write(f"{{word}} {{ctx.job.details.fire_at.isoformat()}}\\n")


app.schedule(note, Every(timedelta(seconds=1)), "each", overlap="allow", scope="instance", args={{"word": "node"}})


@app.scheduled(Every(timedelta(seconds=1)), key="caches", overlap="allow", scope="process")
@app.task
def clear(ctx: Context) -> None:
    with notes.open("a") as file:
        file.write(f"clear {{ctx.job.details.fire_at.isoformat()}} {{os.getpid()}}\\n")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Path, WorkerProcess]]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        url = request.getfixturevalue("fresh_postgres_url")
    notes = tmp_path / "notes"
    (tmp_path / "ticking.py").write_text(MODULE.format(url=url, notes=str(notes)), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "tidemill", "worker", "ticking:app", "--json", "--processes", "2"]
    environment = {**os.environ, "PYTHONPATH": path, "TIDEMILL_NODE": "blue"}
    store = open_store(url)
    store.migrate()
    worker = WorkerProcess(words, tmp_path / "worker", environment)
    try:
        yield store, notes, worker
    finally:
        worker.end()
        store.close()


@pytest.mark.long
def test_a_worker_stores_declared_schedules_and_fires_them_once_a_second(
    place: tuple[Store, Path, WorkerProcess],
) -> None:
    store, notes, worker = place
    worker.ready(2)

    def seen(word: str) -> list[str]:
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [line for line in lines if line.startswith(word)]

    def cleared() -> dict[str, list[str]]:
        """The processes that cleared their cache, by fire."""
        found: dict[str, list[str]] = {}
        for line in seen("clear"):
            _, fire, pid = line.split()
            found.setdefault(fire, []).append(pid)
        return found

    until(lambda: sum(len(pids) == 2 for pids in cleared().values()) >= 2, "two fires ran in both runners")
    assert all(len(set(pids)) == len(pids) for pids in cleared().values()), "one fire, once in each runner"
    assert len({pid for pids in cleared().values() for pid in pids}) == 2
    until(lambda: len(seen("cluster")) >= 3 and len(seen("node")) >= 3, "three fires of each schedule ran")
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0, worker.log
    for word in ("cluster", "node"):
        assert len(set(seen(word))) == len(seen(word))
    rows = {row.key: row for row in store.schedules(tenant=ALL_TENANTS)}
    assert {row.options["app"] for row in rows.values()} == {"ticking:app"}
    for key, node in (("second", ""), ("each", "blue")):
        fires = [fire for fire in store.fires(rows[key].id, tenant="default") if fire.job_id is not None]
        assert {fire.scope_key for fire in fires} == {node}
        jobs = store.get([fire.job_id for fire in fires if fire.job_id is not None], tenant=ALL_TENANTS)
        assert {job.queue for job in jobs} == {f"@{node}" if node else "slow"}
        assert {(job.max_attempts, job.timeout and job.timeout.total_seconds()) for job in jobs} == {(1, 7.0)}
        done = [job for job in jobs if job.state is JobState.COMPLETED]
        assert len(done) >= 3
