"""Tests that a supervisor reaps orphaned processes, as PID 1 of a container must."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.worker_kit import World, a_world, until

from tidemill.engine.supervisor.orphans import adopts_orphans

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

GRANDCHILDREN = 80


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


def zombies_of(parent: int) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        found += state == "Z" and int(ppid) == parent
    return found


def leave_orphans(world: World) -> None:
    jobs = world.tasks.orphan_some.enqueue_many(
        [{"count": 8, "file": world.file("orphans")}] * (GRANDCHILDREN // 8)
    )
    for job in jobs:
        job.result(timeout=60)
    assert len(world.notes("orphans")) == GRANDCHILDREN


def test_a_supervisor_that_is_a_subreaper_leaves_no_zombies(world: World) -> None:
    program = (
        "import ctypes, json, sys\n"
        "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
        "from tidemill.engine.worker_settings import read_settings\n"
        "from tidemill.engine.supervisor.supervisor import Supervisor\n"
        "import logging; logging.basicConfig(level='INFO', stream=sys.stderr)\n"
        "sys.exit(Supervisor('tests.engine.worker_app:app', read_settings({}), processes=1).run())\n"
    )
    worker = world._started([sys.executable, "-c", program], {}).ready()
    (runner,) = worker.runners()
    leave_orphans(world)
    until(lambda: zombies_of(worker.pid) == 0, "every orphan is reaped", 30)
    os.kill(runner, signal.SIGKILL)  # the supervisor can still read its exit code
    worker.ready(2)
    assert "was killed by SIGKILL" in worker.log


def test_a_supervisor_that_is_pid_1_leaves_no_zombies(world: World) -> None:
    unshare = shutil.which("unshare")
    isolated = [unshare or "unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if unshare is None or subprocess.run([*isolated, "true"], check=False, capture_output=True).returncode:
        warnings.warn("no pid namespace can be made here; the test of PID 1 is skipped", stacklevel=1)
        pytest.skip("unshare --pid is not permitted here")
    words = [*isolated, sys.executable, "-m", "tidemill", "worker", "tests.engine.worker_app:app", "--json"]
    worker = world._started([*words, "--processes", "1"], {})
    until(lambda: "is ready" in worker.log, "a runner is ready", 60)
    leave_orphans(world)
    (first,) = (int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == worker.pid)
    until(lambda: zombies_of(first) == 0, "every orphan is reaped", 30)


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_an_ordinary_process_adopts_no_orphans() -> None:
    assert not adopts_orphans()
