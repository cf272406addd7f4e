"""Tests that kill a process between the write of a large value and that of the row that refers to it."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.blob_kill_app import POINTS, SIZE, make
from tests.grounds import url_of

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.large_values import is_reference
from tidemill.stores import large_values

LATER = timedelta(days=2)


def killed(url: str, place: str, point: str, mode: str) -> bool:
    """Run the process; return whether it was killed at the point."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.blob_kill_app", url, place, point, mode],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def applies(point: str, *, outside: bool) -> bool:
    return outside or "object" not in point


@pytest.mark.parametrize("outside", [False, True], ids=["table", "directory"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_enqueue_that_is_killed_leaves_no_dangling_reference(
    kind: str, point: str, outside: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_of(kind, tmp_path, request)
    place = f"file://{tmp_path}/blobs" if outside else ""
    assert killed(url, place, point, "enqueue") is applies(point, outside=outside)
    with make(url, place or None) as app:
        jobs = app.jobs.list(tenant=ALL_TENANTS).items
        # In a table, the value and the job are one transaction, which the end of `enqueue` does not commit yet.
        committed = not applies(point, outside=outside) or (point == "after_job" and outside)
        assert len(jobs) == int(committed)
        for job in jobs:
            assert len(job.args["text"]) == SIZE
        app.testing().drain()
        assert [job.refresh().status for job in jobs] == ["completed"] * len(jobs)
        large_values.sweep_blobs(app.store, 100, now=app.store.now() + LATER)
        assert app.store.orphan_blobs(timedelta(0), 10, now=app.store.now() + LATER) == []
        files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        assert len(files) == (len(jobs) if outside else 0)


@pytest.mark.parametrize("outside", [False, True], ids=["table", "directory"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_that_is_killed_leaves_no_dangling_reference(
    kind: str, point: str, outside: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_of(kind, tmp_path, request)
    place = f"file://{tmp_path}/blobs" if outside else ""
    assert killed(url, place, point, "result") is applies(point, outside=outside)
    with make(url, place or None) as app:
        store = app.store
        held = [claim for worker in store.workers() for claim in store.held(worker.id)]
        for job in app.jobs.list(tenant=ALL_TENANTS).items:
            if is_reference(job.row.result):
                assert job.result() == "p" * SIZE
        # The sweep of the other workers after the lease of the killed one has expired.
        store.declare_gone([(worker.id, worker.beats) for worker in store.workers()])
        with app.worker(threads=1):
            for job in app.jobs.list(tenant=ALL_TENANTS).items:
                assert job.result(60) == "p" * SIZE
        assert len(held) <= 1
        large_values.sweep_blobs(store, 100, now=store.now() + LATER)
        assert store.orphan_blobs(timedelta(0), 10, now=store.now() + LATER) == []
        (job,) = app.jobs.list(tenant=ALL_TENANTS).items
        assert job.result() == "p" * SIZE
        files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        assert len(files) == int(outside)
