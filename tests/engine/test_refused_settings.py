"""Tests of refused worker settings, and of the log of a stop."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from tidemill import App
from tidemill.domain.cluster import Coordination
from tidemill.engine import worker_settings
from tidemill.engine.worker_settings import check_memory_limit, fitted, read_settings
from tidemill.errors import BadSettings


@pytest.mark.parametrize(
    ("name", "option"), [("max_jobs", "--max-jobs"), ("max_age", "--max-age"), ("max_memory", "--max-memory")]
)
def test_an_embedded_worker_refuses_settings_for_its_replacement(name: str, option: str) -> None:
    with App("memory://") as app, pytest.raises(BadSettings) as refused:
        app.worker(**{name: 100})  # type: ignore[arg-type]
    assert str(refused.value) == (
        f"{name}: a worker inside your process cannot be replaced; run it with: tidemill worker APP {option}"
    )


def test_a_memory_limit_is_refused_where_memory_use_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_memory_limit(read_settings({"max_memory": 1 << 30}))
    monkeypatch.setattr(worker_settings, "resident_memory", lambda _pid: None)
    check_memory_limit(read_settings({}))
    with pytest.raises(BadSettings, match="max_memory needs Linux"):
        check_memory_limit(read_settings({"max_memory": 1 << 30}))


class Watch(logging.Handler):
    """Sets an event at the first log line that contains this text."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words, self.line, self.seen = words, "", threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.words in record.getMessage():
            self.line = record.getMessage()
            self.seen.set()


def test_a_stop_names_the_jobs_it_waits_for() -> None:
    began, go_on = threading.Event(), threading.Event()
    log = logging.getLogger("tidemill.engine")
    watch, level = Watch("waiting up to 20 s for 1 running job:"), log.level
    log.setLevel(logging.INFO)
    log.addHandler(watch)
    try:
        with App("memory://") as app:

            @app.task
            def slow() -> None:
                began.set()
                assert go_on.wait(30)

            worker = app.worker().start()
            job = slow.enqueue()
            assert began.wait(30)
            stopping = threading.Thread(target=worker.stop, args=[20.0])
            stopping.start()
            assert watch.seen.wait(30)
            go_on.set()
            stopping.join(30)
            assert "slow" in watch.line
            assert str(job.id) in watch.line
            assert job.result() is None
    finally:
        log.removeHandler(watch)
        log.setLevel(level)


@pytest.mark.parametrize("setting", [{"lease_per_duty": True}, {"lease_rotation": 60}])
def test_settings_of_leases_need_the_coordination_by_lease(setting: dict[str, Any]) -> None:
    for coordination in (None, "lease"):
        settings = fitted(read_settings({**setting, "coordination": coordination}), "sqlite:///jobs.db")
        assert settings.coordination is Coordination.LEASE
    for coordination in ("everyone", "advisory", "steal"):
        with pytest.raises(BadSettings, match=rf"{next(iter(setting))} needs coordination 'lease'"):
            read_settings({**setting, "coordination": coordination})
