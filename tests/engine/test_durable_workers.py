"""Tests of durable functions in real workers: threads, the event loop and child processes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app of ``durable_app``, with a store that its child processes reach, too."""
    monkeypatch.setenv("DURABLE_STORE", url_of(request.param, tmp_path, request))
    sys.modules.pop("tests.engine.durable_app", None)
    module = importlib.import_module("tests.engine.durable_app")
    with module.app:
        yield module
    sys.modules.pop("tests.engine.durable_app", None)


@pytest.mark.parametrize("kind", ["thread", "loop", "process", "process loop"])
def test_a_durable_function_resumes_after_its_sleep_in_every_kind_of_execution(
    kit: Any, kind: str, tmp_path: Path
) -> None:
    job = kit.KINDS[kind].enqueue(folder=str(tmp_path))
    with kit.app.worker(threads=1, children=1, queues=["default"]):
        assert job.result(timeout=60) == "ONETWO 3"
    assert (tmp_path / "effects").read_text() == "one\ntwo\n"
    states = [entry.state.value for entry in kit.app.store.executions([job.id], tenant="default")]
    assert states == ["suspended", "succeeded"]
