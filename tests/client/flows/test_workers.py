"""Tests of flows in real workers: one in this process, and one in a process of its own."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import each
from tidemill.errors import FlowFailed

MODULE = "tests.client.flows.worker_app"
ROOT = Path(__file__).parents[3]
ITEMS = 120


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the app, with a store that other processes reach."""
    monkeypatch.setenv("FLOW_STORE", url_of(request.param, tmp_path, request))
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    with module.app:
        yield module
    sys.modules.pop(MODULE, None)


def start(kit: Any) -> Any:
    """Start a flow whose map is made from a result, with a node that fails at the end of one branch."""
    flow = kit.app.flow("real")
    numbers = flow.add(kit.count, limit=ITEMS)
    doubled = flow.map(kit.double, number=each(numbers.result))
    summed = flow.add(kit.total, parts=doubled.results)
    failing = flow.add(kit.fail, value=summed.result)
    flow.add(kit.double, number=failing.result).named("never")
    flow.add(kit.double, number=summed.result).named("other-branch")
    flow.finally_(kit.cleanup)
    return flow.start()


def check(run: Any) -> None:
    with pytest.raises(FlowFailed, match=f"node fail failed: .*cannot take {sum(range(ITEMS)) * 2}"):
        run.result(timeout=60)
    assert {node.name: node.status for node in run.nodes() if node.position is None} == {
        "count": "completed",
        "double": "completed",
        "total": "completed",
        "fail": "failed",
        "never": "skipped",
        "other-branch": "completed",
        "cleanup": "completed",
    }
    items = [node for node in run.nodes() if node.position is not None]
    assert sorted(node.position for node in items) == list(range(ITEMS))
    assert {node.status for node in items} == {"completed"}
    assert run.node("other-branch").job.result() == sum(range(ITEMS)) * 4
    assert run.counts().remaining == 0


def test_a_worker_in_this_process_runs_a_flow_to_its_end(kit: Any) -> None:
    run = start(kit)
    with kit.app.worker(threads=2):
        check(run)


def test_a_worker_process_runs_a_flow_to_its_end(kit: Any, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tidemill", "worker", "--app", f"{MODULE}:app"]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
    try:
        run = start(kit)
        check(run)
        before = time.monotonic()
        flow = kit.app.flow("second")
        flow.returns(flow.add(kit.double, number=flow.add(kit.double, number=1).result).result)
        assert flow.start().result(timeout=30) == 4
        assert time.monotonic() - before < 20
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
