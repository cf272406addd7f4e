"""Tests of the hint for a job that waits for another in the only slot."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tidemill import App
from tidemill.client.jobs import handle
from tidemill.errors import JobFailed, WaitTimeout

HINT = "Enqueue the next step with ctx.then(…) instead of waiting, or give the worker more threads."


def test_a_parent_that_waits_for_its_child_in_the_only_slot_gets_a_hint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handle, "SILENT", 0.1)
    with App("memory://") as app:

        @app.task
        def child() -> int:
            return 1

        @app.task(retry=None, timeout=timedelta(minutes=1))
        def parent() -> int:
            return child.enqueue().result(timeout=1.0)

        with caplog.at_level(logging.WARNING, "tidemill"), app.worker(threads=1):
            job = parent.enqueue()
            with pytest.raises(JobFailed, match="keeps its own slot"):
                job.result(timeout=60)
            (below,) = job.children()
            assert below.result(timeout=60) == 1
    said = [record.getMessage() for record in caplog.records if "has not started yet" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"job {below.id} of task child has not started yet. Job {job.id} waits for it")
    assert said[0].endswith(HINT)


def test_a_wait_outside_of_jobs_gets_no_such_hint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handle, "SILENT", 0.01)
    with App("memory://") as app:

        @app.task
        def lonely() -> None: ...

        with pytest.raises(WaitTimeout) as late:
            lonely.enqueue().result(timeout=0.05)
    assert "slot" not in str(late.value)
    assert "has not started yet" not in caplog.text
