"""Tests of renamed tasks: rows stored under an older name belong to the task."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT
from tests.engine.cluster_kit import eventually
from tests.engine.harness import STORES, Harness, opened
from tests.grounds import url_of

from tidemill import App, Context, Every, ManualClock
from tidemill.domain.job import NewJob
from tidemill.domain.records import PauseKind
from tidemill.domain.states import JobState
from tidemill.engine.runner.main import describe, examine
from tidemill.errors import BadSettings, DuplicateTask
from tidemill.ids import new_id

S = JobState


def send(to: str) -> str:
    return to


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        harness.app.task(name="send_email", aliases=["send_mail"])(send)
        yield harness


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


def test_jobs_schedules_and_definitions_of_the_older_name_run(url: str) -> None:
    with App(url, clock=ManualClock(MIDNIGHT)) as app:
        before = App(app.store, clock=app.clock)
        before.task(name="send_mail")(send).enqueue(to="ann")
        before.schedules.add("send_mail", Every(HOUR), "hourly", args={"to": "bob"})
        before.definitions.save("news", "send_mail", args={"to": "cy"})
        app.task(name="send_email", aliases=["send_mail"])(send)
        app.definitions.save("news", "send_email", args={"to": "cy"})
        app.definitions.trigger("news")
        testing = app.testing()
        testing.drain()
        testing.advance(HOUR)
        testing.drain()
        done = app.jobs.list(status="completed").items
        assert sorted(str(job.result()) for job in done) == ["ann", "bob", "cy"]


def test_a_worker_claims_jobs_of_the_older_name(harness: Harness) -> None:
    job = NewJob(new_id(), "send_mail", '{"to":"ann"}')
    harness.line.real.enqueue([job])
    with harness.worker():
        eventually(lambda: harness.state(job.id) is S.COMPLETED)
        (worker,) = [row for row in harness.line.real.workers() if row.pid]
        own = [name for name in worker.tasks or () if not name.startswith("tidemill.")]
        assert own == ["send_email", "send_mail"]


@pytest.mark.parametrize("paused", ["send_mail", "send_email"])
def test_a_pause_of_either_name_holds_jobs_of_the_older_one(harness: Harness, paused: str) -> None:
    job = NewJob(new_id(), "send_mail", '{"to":"ann"}')
    harness.app.control.pause(PauseKind.TASK, paused)
    harness.line.real.enqueue([job])
    assert harness.app.testing().drain().processed == 0
    with harness.worker():
        assert harness.state(job.id) is S.PENDING
        harness.app.control.resume(PauseKind.TASK, paused)
        eventually(lambda: harness.state(job.id) is S.COMPLETED)


def test_settings_of_the_current_name_apply_to_jobs_of_the_older_one(harness: Harness) -> None:
    seen: list[object] = []

    def look(ctx: Context) -> None:
        seen.append(ctx.job.timeout)

    harness.app.task(name="look", aliases=["peek"])(look)
    harness.app.control.set("task/look", {"timeout": 7})
    job = NewJob(new_id(), "peek")
    harness.line.real.enqueue([job])
    with harness.worker():
        eventually(lambda: harness.state(job.id) is S.COMPLETED)
    assert seen == [timedelta(seconds=7)]


def test_a_runner_sends_the_older_names_to_its_supervisor(harness: Harness) -> None:
    sound, broken = examine(harness.app.registry)
    told = describe(harness.app, sound, broken)["tasks"]
    assert isinstance(told, dict)
    assert told["send_mail"] == told["send_email"]


def test_an_alias_that_another_task_has_is_refused(harness: Harness) -> None:
    def other(to: str) -> None: ...

    with pytest.raises(DuplicateTask, match="two tasks are named send_mail"):
        harness.app.task(name="send_mail")(other)
    with pytest.raises(DuplicateTask, match="two tasks are named send_email"):
        harness.app.task(name="other", aliases=["send_email"])(other)
    with pytest.raises(BadSettings):
        harness.app.task(name="third", aliases=["*"])(other)
    with pytest.raises(BadSettings, match="aliases is the text"):
        harness.app.task(name="third", aliases="old")(other)


def test_an_unknown_value_for_extra_is_refused() -> None:
    with (
        App("memory://") as app,
        pytest.raises(BadSettings, match="extra is 'drop'; choose refuse or ignore"),
    ):
        app.task(name="t", extra="drop", timeout=timedelta(1))(send)  # type: ignore[call-overload]
