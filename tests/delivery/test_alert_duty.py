"""Alerts that workers evaluate: opened once, recovered once, with a history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill import App, Event, Every, ManualClock
from tidemill.domain.alerts import Alert, Severity
from tidemill.domain.breaker import BreakerPhase, BreakerState, written
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.errors import AlertNotFound
from tidemill.ids import new_id


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    with App("memory://", clock=clock) as app:
        yield app


def fill(app: App, jobs: int) -> None:
    @app.task
    def work() -> None: ...

    work.enqueue_many([{} for _ in range(jobs)])


def test_an_alert_is_opened_once_and_recovers_once(app: App, clock: ManualClock) -> None:
    events: list[Event] = []
    app.on("alert.*", events.append, durable="pager")
    fill(app, 101)
    for _ in range(3):
        app.alerts.evaluate()
        clock.advance("1m")
    opened = {alert.code for alert in app.alerts.list()}
    assert opened == {"queue_depth", "no_workers"}
    app.testing().drain()
    for _ in range(3):
        app.alerts.evaluate()
        clock.advance("1m")
    assert app.alerts.list() == []
    app.subscriptions.deliver()
    told = sorted((event.name, str(event.data["code"])) for event in events)
    assert told == [
        ("alert.opened", "no_workers"),
        ("alert.opened", "queue_depth"),
        ("alert.recovered", "no_workers"),
        ("alert.recovered", "queue_depth"),
    ]
    history = app.alerts.history()
    assert len(history) == 2
    assert all(alert.recovered_at is not None for alert in history)


def test_the_alert_about_an_unknown_task_recovers_when_a_worker_knows_it(
    app: App, clock: ManualClock
) -> None:
    app.store.register(Worker(new_id(), "old", tasks=("work",)), lease=timedelta(hours=1))
    app.store.enqueue([NewJob(new_id(), "renamed") for _ in range(2)])
    app.alerts.evaluate()
    assert app.alerts.list() == []
    clock.advance("3m")
    for _ in range(2):
        app.alerts.evaluate()
    (alert,) = app.alerts.list()
    assert (alert.code, alert.subject, alert.value) == ("unknown_task", "renamed", 2)
    app.store.register(Worker(new_id(), "new", tasks=("renamed",)), lease=timedelta(hours=1))
    app.alerts.evaluate()
    assert app.alerts.list() == []
    assert [alert.recovered_at is None for alert in app.alerts.history()] == [False]


def test_an_alert_that_comes_back_is_a_new_one(app: App, clock: ManualClock) -> None:
    fill(app, 101)
    app.alerts.evaluate()
    app.testing().drain()
    app.alerts.evaluate()
    clock.advance("1m")
    app.bound_task("work").enqueue_many([{} for _ in range(200)])
    app.alerts.evaluate()
    depths = [alert for alert in app.alerts.history() if alert.code == "queue_depth"]
    assert [alert.is_open for alert in depths] == [True, False]


def test_an_acknowledgement_is_kept_and_audited(app: App) -> None:
    fill(app, 101)
    app.alerts.evaluate()
    alert = next(alert for alert in app.alerts.list() if alert.code == "queue_depth")
    done = app.alerts.acknowledge(alert.id)
    assert done.acknowledged_by is not None
    app.alerts.evaluate()
    assert (
        next(one for one in app.alerts.list() if one.id == alert.id).acknowledged_by == done.acknowledged_by
    )
    assert "alert.acknowledged" in {record.entry.action for record in app.audit.list(tenant="*")}
    with pytest.raises(AlertNotFound):
        app.alerts.acknowledge("01890a5d-ac96-774b-bcce-b302099a8057")


def test_a_schedule_that_no_worker_fires_is_late(app: App, clock: ManualClock) -> None:
    @app.task
    def report() -> None: ...

    app.schedules.add(report, Every("10m"), "reports")
    clock.advance("11m")
    app.alerts.evaluate()
    assert app.alerts.list() == []
    clock.advance("2m")
    app.alerts.evaluate()
    (alert,) = app.alerts.list()
    assert (alert.code, alert.subject, alert.severity) == ("schedule_late", "reports", "critical")
    app.testing().drain()
    app.alerts.evaluate()
    assert "schedule_late" not in {one.code for one in app.alerts.list()}


def test_an_open_breaker_is_an_alert(app: App) -> None:
    @app.task(retry=None, breaker="bank")
    def pay() -> None:
        raise ConnectionError

    app.declare_limits()
    now = app.clock.now()
    state = written(BreakerState(BreakerPhase.OPEN, now, now + timedelta(minutes=1)))
    assert app.store.change_breaker("breaker/bank", None, state, now=now)
    assert [(alert.code, alert.subject) for alert in app.alerts.evaluate()] == [("breaker_open", "bank")]
    app.limits.reset_breaker("bank")
    assert app.alerts.evaluate() == []


def test_a_worker_evaluates_the_alerts_by_itself(app: App) -> None:
    from tidemill.delivery.alert_duty import AlertDuty

    raised = [Alert("stuck_jobs", Severity.WARNING, "a job is stuck", 1, 0)]
    duty = AlertDuty(app.store, app.clock, lambda: raised, "test", every=timedelta(seconds=60))
    assert duty.step() > 0
    assert app.alerts.list() == []
    assert isinstance(app.clock, ManualClock)
    app.clock.advance("1m")
    duty.step()
    assert [alert.code for alert in app.alerts.list()] == ["stuck_jobs"]
    other = AlertDuty(app.store, app.clock, list, "other", every=timedelta(seconds=60))
    app.clock.advance("10s")
    other.step(force=True)
    assert len(app.alerts.list()) == 1, "another process has the lease"
    duty.keeper.close()
    other.step(force=True)
    assert app.alerts.list() == []
    other.keeper.close()
