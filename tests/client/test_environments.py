"""Environments of apps and tasks."""

from __future__ import annotations

import pytest

from tidemill import App, BoundTask
from tidemill.engine.runner.main import examine
from tidemill.errors import BadSettings, WrongEnvironment


def _shop(environment: str | None) -> App:
    app = App("memory://", environment=environment)

    @app.task(name="wipe", environment="staging")
    def wipe() -> str:
        return "wiped"

    @app.task(name="report")
    def report() -> str:
        return "done"

    return app


def test_a_task_of_another_environment_is_not_enqueued() -> None:
    with _shop("production") as app:
        with pytest.raises(WrongEnvironment, match="task wipe is for the environment staging") as raised:
            app.bound_task("wipe").enqueue()
        assert raised.value.details == {"task": "wipe", "environment": "production"}
        assert app.jobs.list().items == []
        assert app.bound_task("report").enqueue().status == "pending"


@pytest.mark.parametrize("environment", ["staging", None])
def test_a_task_runs_in_its_environment_and_in_apps_without_one(environment: str | None) -> None:
    with _shop(environment) as app:
        job = app.bound_task("wipe").enqueue()
        app.testing().drain()
        assert job.refresh().status == "completed"


def test_a_worker_of_another_environment_does_not_claim_the_job() -> None:
    with _shop(None) as app:
        job = app.bound_task("wipe").enqueue()
        app.configure(environment="production")
        assert "wipe" not in app.registry.served_names()
        app.testing().drain()
        assert job.refresh().status == "pending"


def test_a_running_worker_of_another_environment_leaves_the_job_alone() -> None:
    with _shop(None) as app:
        wipe = app.bound_task("wipe").using(priority=10).enqueue()
        app.configure(environment="production")
        with app.worker():
            app.bound_task("report").enqueue().result(timeout=30)
        assert (wipe.refresh().status, wipe.attempt) == ("pending", 0)


def test_a_runner_process_knows_the_environment_of_its_app() -> None:
    with _shop("production") as app:
        sound, broken = examine(app.registry)
        assert (sound.environment, broken) == ("production", {})
        assert "wipe" not in sound.served_names()


def test_a_flow_with_a_task_of_another_environment_is_refused() -> None:
    with _shop("production") as app:
        flow = app.flow("cleaning")
        wipe: BoundTask[[], str] = app.bound_task("wipe")
        with pytest.raises(WrongEnvironment):
            flow.add(wipe)


def test_the_environment_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_ENVIRONMENT", "production")
    with App("memory://") as app:
        assert app.environment == "production"
    with pytest.raises(BadSettings, match="environment"):
        App("memory://", environment="")
