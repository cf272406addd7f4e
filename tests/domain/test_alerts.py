"""Tests of alert conditions."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.domain.alerts import (
    Alert,
    AlertInput,
    FlowFact,
    LeaderFact,
    LostWorker,
    QueueFact,
    Severity,
    Thresholds,
    alerts,
    read_thresholds,
)
from tidemill.domain.stats import TaskBacklog

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NORMAL = AlertInput(NOW, completed=100, workers=1)
LIMITS = Thresholds()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def codes(situation: AlertInput, limits: Thresholds = LIMITS) -> list[str]:
    return [alert.code for alert in alerts(situation, limits)]


def test_a_normal_situation_raises_no_alert() -> None:
    assert codes(NORMAL) == codes(AlertInput(NOW)) == []


@pytest.mark.parametrize(
    ("completed", "failed", "raised"),
    [(90, 10, False), (89, 11, True), (0, 9, False), (0, 10, True), (9, 1, False)],
)
def test_a_failure_rate_needs_enough_ended_jobs(completed: int, failed: int, raised: bool) -> None:
    raised_alerts = alerts(replace(NORMAL, completed=completed, failed=failed), LIMITS)
    assert [alert.code for alert in raised_alerts] == ["failure_rate"] * raised
    assert all(
        alert.value == failed / (completed + failed) and alert.threshold == 0.1 for alert in raised_alerts
    )


def test_stuck_jobs_are_reported_with_the_longest() -> None:
    (alert,) = alerts(replace(NORMAL, stuck=(ago(310), ago(900))), LIMITS)
    assert (alert.code, alert.value, alert.threshold, alert.since) == ("stuck_jobs", 900, 300, ago(900))
    assert alert.text.startswith("2 jobs have been running without progress for more than 5 minutes;")


def test_lost_workers_are_reported_by_name() -> None:
    lost = tuple(LostWorker(f"w{number}", ago(100 + number)) for number in range(5))
    (alert,) = alerts(replace(NORMAL, lost=lost), LIMITS)
    assert (alert.code, alert.severity, alert.value, alert.since) == (
        "lost_workers",
        Severity.WARNING,
        5,
        ago(104),
    )
    assert (
        "5 workers disappeared without stopping in the last 15 minutes: w0, w1, w2 and 2 more" in alert.text
    )
    (alert,) = alerts(replace(NORMAL, lost=lost[:1]), LIMITS)
    assert "1 worker disappeared without stopping in the last 15 minutes: w0;" in alert.text
    assert codes(replace(NORMAL, lost=lost), replace(LIMITS, lost_workers=5)) == []


def test_each_deep_or_old_queue_is_reported() -> None:
    queues = (QueueFact("a", 101, ago(1)), QueueFact("b", 100, ago(901)), QueueFact("c", 100, ago(900)))
    raised = alerts(replace(NORMAL, queues=queues), LIMITS)
    assert [(alert.code, alert.subject) for alert in raised] == [("queue_age", "b"), ("queue_depth", "a")]


def test_a_queue_that_someone_paused_is_not_too_old() -> None:
    queues = (QueueFact("a", 101, ago(9_000), is_paused=True), QueueFact("b", 1, ago(901)))
    raised = alerts(replace(NORMAL, queues=queues), LIMITS)
    assert [(alert.code, alert.subject) for alert in raised] == [("queue_age", "b"), ("queue_depth", "a")]
    everything = alerts(replace(NORMAL, queues=queues, paused_at=ago(60)), LIMITS)
    assert [alert.code for alert in everything] == ["queue_depth", "worker_disabled"]


def test_missing_or_disabled_workers_are_reported() -> None:
    waiting = replace(NORMAL, queues=(QueueFact("a", 1, ago(1)),))
    assert codes(replace(waiting, workers=0)) == ["no_workers"]
    assert codes(replace(NORMAL, workers=0)) == []
    assert codes(replace(NORMAL, enabled=False)) == ["worker_disabled"]
    assert codes(replace(waiting, paused_at=ago(9))) == ["worker_disabled"]
    assert codes(replace(NORMAL, paused_at=ago(9))) == []


def test_orphans_and_new_dead_letters_are_reported() -> None:
    raised = alerts(replace(NORMAL, orphans=(ago(40), ago(60)), dead=3), LIMITS)
    assert [(alert.code, alert.value, alert.since) for alert in raised] == [
        ("dead_letters", 3, None),
        ("orphans", 2, ago(60)),
    ]
    assert (
        codes(replace(NORMAL, orphans=(ago(40),), dead=3), replace(LIMITS, orphans=1, dead_letters=3)) == []
    )


@pytest.mark.parametrize(
    ("held", "silent", "idle", "raised"),
    [
        (400, 1, 301, True),
        (400, 30, None, True),
        (400, 31, None, False),  # it is dead, and another worker takes over
        (299, 1, None, False),  # it has just started
        (400, 1, 300, False),
        (10, 1, 301, False),  # the last action was by its predecessor
    ],
)
def test_an_idle_live_leader_is_stuck(held: float, silent: float, idle: float | None, raised: bool) -> None:
    leader = LeaderFact("duties", ago(held), ago(silent), None if idle is None else ago(idle))
    assert codes(replace(NORMAL, leaders=(leader,))) == ["stuck_leader"] * raised


@pytest.mark.parametrize(("idle", "raised"), [(301, False), (1199, False), (1201, True)])
def test_a_leader_of_a_duty_that_runs_seldom_is_stuck_after_twice_its_interval(
    idle: float, raised: bool
) -> None:
    leader = LeaderFact("duties:blobs", ago(4000), ago(1), ago(idle), timedelta(minutes=10))
    found = alerts(replace(NORMAL, leaders=(leader,)), LIMITS)
    assert [(alert.code, alert.threshold) for alert in found] == [("stuck_leader", 1200)] * raised


def test_critical_alerts_come_first() -> None:
    situation = replace(
        NORMAL, dead=1, stuck=(ago(999),), workers=0, queues=(QueueFact("a", 500, None),), failed=999
    )
    raised = alerts(situation, LIMITS)
    assert [alert.code for alert in raised] == [
        "failure_rate",
        "no_workers",
        "dead_letters",
        "queue_depth",
        "stuck_jobs",
    ]


def test_settings_change_thresholds() -> None:
    configured = {f"alerts.{field.name}": n for n, field in enumerate(fields(Thresholds))}
    thresholds, wrong = read_thresholds({**configured, "worker_enabled": True})
    assert [getattr(thresholds, field.name) for field in fields(Thresholds)] == list(range(len(configured)))
    assert wrong == []


@pytest.mark.parametrize("value", [True, "1", None, -1, [1]])
def test_a_non_numeric_setting_raises_an_alert(value: object) -> None:
    thresholds, (wrong,) = read_thresholds({"alerts.queue_depth": value})
    assert thresholds == LIMITS
    assert (wrong.code, wrong.severity, wrong.subject) == (
        "bad_setting",
        Severity.WARNING,
        "alerts.queue_depth",
    )
    assert "expected a number" in wrong.text


def test_an_unknown_setting_raises_an_alert_with_the_known_ones() -> None:
    _, (wrong,) = read_thresholds({"alerts.queue_dept": 5})
    assert isinstance(wrong, Alert)
    assert "queue_depth" in wrong.text


def test_explicit_thresholds_override_settings() -> None:
    mine = Thresholds(queue_depth=7)
    assert read_thresholds({"alerts.queue_depth": 5, "alerts.x": 1}, mine) == (mine, [])


def test_a_flow_without_progress_is_reported() -> None:
    (alert,) = alerts(replace(NORMAL, stalled=(FlowFact("01a1", "import", ago(3_600)),)), LIMITS)
    assert (alert.code, alert.subject, alert.value, alert.threshold) == (
        "stalled_flow",
        "import",
        3_600,
        3_600,
    )
    assert "tidemill flows show 01a1" in alert.text


@pytest.mark.parametrize(("age", "raised"), [(60, False), (61, True)])
def test_jobs_that_should_have_been_skipped_are_reported(age: int, raised: bool) -> None:
    assert codes(replace(NORMAL, unreachable=2, unreachable_at=ago(age))) == ["late_cascade"] * raised


@pytest.mark.parametrize(("age", "raised"), [(86_400, False), (86_401, True)])
def test_signals_that_no_job_takes_are_reported_after_a_day(age: int, raised: bool) -> None:
    assert codes(replace(NORMAL, unread=1, unread_at=ago(age))) == ["unread_signals"] * raised


@pytest.mark.parametrize(("age", "raised"), [(120, False), (121, True)])
def test_a_task_that_no_worker_knows_is_reported_by_name(age: int, raised: bool) -> None:
    found = alerts(replace(NORMAL, unknown=(TaskBacklog("typo", 3, ago(age)),)), LIMITS)
    assert [(alert.code, alert.subject, alert.value) for alert in found] == [
        ("unknown_task", "typo", 3)
    ] * raised


def test_many_unknown_tasks_share_one_more_alert() -> None:
    backlogs = tuple(TaskBacklog(f"task-{number:02}", 2, ago(900 - number)) for number in range(25))
    found = alerts(replace(NORMAL, unknown=backlogs), LIMITS)
    assert len(found) == 21
    assert (found[0].subject, found[0].value) == (None, 10)
    assert "10 jobs are waiting for 5 more tasks that no living worker knows" in found[0].text
    assert {alert.subject for alert in found[1:]} == {f"task-{number:02}" for number in range(20)}
