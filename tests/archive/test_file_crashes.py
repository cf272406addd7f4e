"""Tests of processes that are killed at every point of an archive run or an erasure."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from tests.archive.archive_kit import documents, ended_jobs
from tests.grounds import new_file

from tidemill import App
from tidemill.domain.archive_totals import LEASE

CHILD = Path(__file__).with_name("crash_child.py")
BATCH = 4


@pytest.fixture(params=["sqlite", "postgres"])
def jobs_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return new_file(tmp_path)
    return str(request.getfixturevalue("migrated_postgres_url"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def app(jobs_url: str, files: Path) -> Iterator[App]:
    with App(stores={"default": jobs_url, "archive": f"file://{files}"}) as app:
        yield app


def child(url: str, files: Path, point: int, *command: str) -> list[str]:
    """Run the child and return the points that it passed; none if it was killed."""
    line = [sys.executable, str(CHILD), url, f"file://{files}", str(point), *command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == -signal.SIGKILL:
        return []
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def free_lease(app: App) -> None:
    """End the lease of the dead run, as time would."""
    for lease in app.store.leases():
        if lease.name == LEASE and lease.holder is not None:
            assert app.store.release(LEASE, lease.holder, lease.term)


def written(files: Path) -> list[dict[str, Any]]:
    """Every document in every committed file, read without the catalogue."""
    rows: list[dict[str, Any]] = []
    for manifest in files.rglob("manifest/*/*.json"):
        path = json.loads(manifest.read_bytes())["path"]
        text = zstd.decompress((files / path).read_bytes()).decode()
        rows += [json.loads(line) for line in text.splitlines()]
    return rows


def test_a_killed_run_loses_no_job_and_the_next_one_leaves_one_copy(
    app: App, jobs_url: str, files: Path
) -> None:
    expected: dict[str, str] = {}
    points = 1
    point = 0
    while point < points:
        point += 1
        ended_jobs(app, BATCH)
        expected |= {str(row.id): row.fingerprint for row in documents(app, "archive")}
        passed = child(jobs_url, files, point, "run")
        if passed:
            points = len([line for line in passed if line])
            assert point > points
        live = {str(job.id) for job in app.jobs.stream(tenant="*")}
        kept = {str(row.id) for row in app.archive.stream(tenant="*")}
        # A committed file that the catalogue does not know yet belongs to jobs that are still live.
        assert live | kept == set(expected)
        free_lease(app)
        assert app.archive.run(older_than=0).failed == 0
        assert app.jobs.count(tenant="*") == 0
        copies = list(app.archive.stream(tenant="*"))
        assert {str(copy.id): copy.fingerprint for copy in copies} == expected
        assert len(copies) == len(expected)
        assert all(copy.sound for copy in copies)
        if not passed:
            points = max(points, point + 1)
    rows = written(files)
    assert sorted(row["id"] for row in rows) == sorted(expected)
    assert point > 8  # object, manifest, catalogue, read back and forget, before and after each


@pytest.mark.long
def test_a_killed_erasure_can_be_repeated(app: App, jobs_url: str, files: Path) -> None:
    point = 0
    while True:
        point += 1
        jobs = ended_jobs(app, 3, metadata={"canary": f"zebra-{point}"})
        free_lease(app)
        assert app.archive.run(older_than=0).archived == 3
        victim, *others = jobs
        ended = child(jobs_url, files, point, "erase", str(victim.id))
        app.archive.rebuild()
        app.archive.erase(ids=[victim.id], tenant="*")
        rows = written(files)
        assert str(victim.id) not in {row["id"] for row in rows}
        assert {str(job.id) for job in others} <= {row["id"] for row in rows}
        assert app.archive.search(ids=[victim.id], tenant="*").items == []
        assert len(app.archive.search(ids=[job.id for job in others], tenant="*").items) == 2
        if ended:
            break
    assert point > 10
