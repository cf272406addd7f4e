"""An upgrade from the first release under load; ``python -m tests.faults.upgrade`` is the same with more jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import first_release, upgrade
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill import App
from tidemill.errors import SchemaTooNew

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("fresh_postgres_url"))


def test_an_upgrade_from_the_first_release_under_load_loses_nothing(url: str, tmp_path: Path) -> None:
    try:
        with upgrade.opened(url, tmp_path) as processes:
            verdict = upgrade.run(processes, jobs=60)
    except ServiceMissing as missing:
        go_without("first-release", missing)
    assert verdict.violations == []


def test_a_process_of_the_first_release_does_not_start_after_the_migration(url: str, tmp_path: Path) -> None:
    try:
        source = first_release.unpack(tmp_path / "first")
    except ServiceMissing as missing:
        go_without("first-release", missing)
    with App(url) as app:
        app.store.migrate()
    done = subprocess.run(
        [sys.executable, "-c", f"from tidemill import App; App({url!r}).jobs.list()"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert SchemaTooNew.__name__ in done.stderr
