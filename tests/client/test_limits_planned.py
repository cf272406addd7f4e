"""Tests that jobs of schedules and definitions count against task limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.client.audit_kit import HOUR
from tests.client.limits_kit import claim

from tidemill import App, Limit, Manual, ManualClock, Rate
from tidemill.domain.job import Finish, JobRow, Transition
from tidemill.domain.job_requests import task_data
from tidemill.domain.limits import Rule
from tidemill.domain.schedule_fires import fire_job
from tidemill.domain.states import ExecutionState, JobState
from tidemill.errors import BadSchedule
from tidemill.ids import new_id

EVERYTHING = (
    "breaker/api",
    "send.limit",
    "send.limit.account/7",
    "send.limit2/default",
    "send.rate/seven",
    "task/send",
)


def send(account: int = 7, to: str = "ann") -> None: ...


def spelled(values: Mapping[str, Any]) -> str:
    return {7: "seven", 8: "eight"}[values["account"]]


def with_limits(app: App) -> Any:
    limits: list[Limit | Rate] = [
        Limit(5),
        Limit(9, by_tenant=True),
        Limit(3, key="account"),
        Rate(100, per=HOUR, key=spelled),
    ]
    return app.task(name="send", max_concurrent=4, limits=limits, breaker="api")(send)


def limits_of(app: App) -> list[tuple[str, ...]]:
    return [job.limits for job in app.testing().enqueued()]


def test_a_triggered_schedule_has_the_same_limits_as_a_call(app: App) -> None:
    task = with_limits(app)
    app.schedules.add(task, Manual(), "by hand")
    app.schedules.trigger("by hand")
    task.enqueue()
    assert limits_of(app) == [EVERYTHING, EVERYTHING]


def test_a_fired_schedule_has_the_same_limits_as_a_call() -> None:
    with App("memory://", clock=ManualClock()) as app:
        task = with_limits(app)
        app.schedules.add(task, "0 * * * *", "hourly", args={"account": 8})
        testing = app.testing()
        testing.advance(timedelta(hours=1))
        testing.fire()
        (job,) = testing.enqueued()
        assert job.limits == (
            "breaker/api",
            "send.limit",
            "send.limit.account/8",
            "send.limit2/default",
            "send.rate/eight",
            "task/send",
        )


def test_a_schedule_fires_with_its_limits_in_a_process_without_the_task(app: App) -> None:
    """The supervisor imports no user code, so it only has the data that was saved with the schedule."""
    task = with_limits(app)
    facts = app.schedules.add(task, Manual(), "by hand").row
    (stored,) = app.store.schedules(tenant="*", ids=[facts.id])
    assert fire_job(stored, None, None, app.clock.now(), new_id()).limits == EVERYTHING
    # A runner also sends the data of the task to its supervisor as JSON over a socket.
    told = json.loads(json.dumps(app.registry.get("send").data))
    assert fire_job(stored, None, told, app.clock.now(), new_id()).limits == EVERYTHING


def test_a_changed_schedule_is_limited_by_its_new_arguments(app: App) -> None:
    task = with_limits(app)
    app.schedules.add(task, Manual(), "by hand")
    app.schedules.update("by hand", args={"account": 8})
    assert "limits" not in app.schedules.get("by hand").options
    app.schedules.trigger("by hand")
    (found,) = limits_of(app)
    assert {"send.limit.account/8", "send.rate/eight"} <= set(found)
    assert not {"send.limit.account/7", "send.rate/seven"} & set(found)


def test_a_task_without_limits_stores_no_limit_data() -> None:
    with App("memory://") as app:
        task = app.task(name="plain")(send)
        assert not {"limits", "left_out", "max_concurrent", "breaker"} & task_data(task.options).keys()
        app.schedules.add(task, Manual(), "by hand")
        app.schedules.trigger("by hand")
        assert limits_of(app) == [()]


# Definitions -----------------------------------------------------------------------------------------------------------


def rule(app: App, id: object) -> Rule | None:
    return next((each for each in app.store.rules() if each.name == f"definition/{id}"), None)


def test_the_limit_of_a_definition_is_a_rule_and_is_attached_to_its_jobs(app: App) -> None:
    task = app.task(name="send", max_concurrent=4)(send)
    made = app.definitions.save("daily", task, max_concurrent=1)
    own = f"definition/{made.id}"
    assert app.limits.get(own).rule.max == 1
    app.definitions.trigger("daily")
    app.schedules.add(made, Manual(), "by hand")
    app.schedules.trigger("by hand")
    assert limits_of(app) == [(own, "task/send")] * 2
    app.definitions.save("daily", max_concurrent=2)
    assert app.limits.get(own).rule.max == 2
    app.definitions.save("daily", max_concurrent=0)
    found = rule(app, made.id)
    assert found is None or found.max == 0
    app.definitions.trigger("daily")
    assert limits_of(app)[-1] == ("task/send",)


def test_a_limit_that_an_operator_sets_for_a_definition_stays_until_unset(app: App) -> None:
    made = app.definitions.save("daily", app.task(name="send")(send), max_concurrent=1)
    name = f"definition/{made.id}"
    app.limits.set(name, 5)
    app.definitions.save("daily", max_concurrent=2)
    assert app.limits.get(name).rule.max == 5
    app.limits.unset(name)
    assert app.limits.get(name).rule.max == 2


def test_removing_a_definition_removes_its_rule(app: App) -> None:
    task = app.task(name="send", max_concurrent=4)(send)
    made = app.definitions.save("daily", task, max_concurrent=1)
    app.declare_limits()
    app.definitions.remove("daily")
    assert rule(app, made.id) is None


def test_a_restored_definition_keeps_its_limit(app: App) -> None:
    app.definitions.save("daily", app.task(name="send")(send), max_concurrent=3)
    app.definitions.remove("daily")
    again = app.definitions.restore("daily")
    found = rule(app, again.id)
    assert found is not None
    assert found.max == 3


@pytest.mark.parametrize("most", [-1, True, "3", 1.5])
def test_an_invalid_limit_of_a_definition_is_refused(most: Any) -> None:
    with App("memory://") as app:
        task = app.task(name="send")(send)
        with pytest.raises(BadSchedule, match="max_concurrent"):
            app.definitions.save("daily", task, max_concurrent=most)
        assert app.definitions.list() == []


def test_jobs_of_a_definition_run_one_at_a_time(app: App) -> None:
    task = app.task(name="send")(send)
    app.definitions.save("daily", task, max_concurrent=1)
    for _ in range(3):
        app.definitions.trigger("daily")
    (held,) = claim(app.store)
    assert claim(app.store) == []
    app.store.finish([Finish(held, Transition(JobState.COMPLETED, ExecutionState.SUCCEEDED))])
    assert len(claim(app.store)) == 1


def test_the_limits_of_a_stored_job_are_part_of_its_row(app: App) -> None:
    task = with_limits(app)
    app.schedules.add(task, Manual(), "by hand")
    triggered = app.schedules.trigger("by hand")
    (stored,) = app.store.get([triggered.id], tenant="*")
    assert isinstance(stored, JobRow)
    assert stored.limits == EVERYTHING
