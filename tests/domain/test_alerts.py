"""When an alert is raised, and when not."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.domain.alerts import (
    Alert,
    LeaderFact,
    QueueFact,
    Severity,
    Situation,
    Thresholds,
    alerts,
    read_thresholds,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALM = Situation(NOW, completed=100, workers=1)
LIMITS = Thresholds()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def codes(facts: Situation, limits: Thresholds = LIMITS) -> list[str]:
    return [alert.code for alert in alerts(facts, limits)]


def test_a_calm_situation_raises_nothing() -> None:
    assert codes(CALM) == codes(Situation(NOW)) == []


@pytest.mark.parametrize(
    ("completed", "failed", "raised"),
    [(90, 10, False), (89, 11, True), (0, 9, False), (0, 10, True), (9, 1, False)],
)
def test_a_failure_rate_is_judged_from_enough_ends(completed: int, failed: int, raised: bool) -> None:
    found = alerts(replace(CALM, completed=completed, failed=failed), LIMITS)
    assert [alert.code for alert in found] == ["failure_rate"] * raised
    assert all(alert.value == failed / (completed + failed) and alert.threshold == 0.1 for alert in found)


def test_what_is_stuck_is_told_from_the_longest() -> None:
    (found,) = alerts(replace(CALM, stuck=(ago(310), ago(900))), LIMITS)
    assert (found.code, found.value, found.threshold, found.since) == ("stuck_jobs", 900, 300, ago(900))
    assert "2 jobs are" in found.text


def test_each_deep_or_old_queue_is_told() -> None:
    queues = (QueueFact("a", 101, ago(1)), QueueFact("b", 100, ago(901)), QueueFact("c", 100, ago(900)))
    found = alerts(replace(CALM, queues=queues), LIMITS)
    assert [(alert.code, alert.subject) for alert in found] == [("queue_age", "b"), ("queue_depth", "a")]


def test_workers_that_are_missing_disabled_or_paused_are_told_while_jobs_wait() -> None:
    waiting = replace(CALM, queues=(QueueFact("a", 1, ago(1)),))
    assert codes(replace(waiting, workers=0)) == ["no_workers"]
    assert codes(replace(CALM, workers=0)) == []
    assert codes(replace(CALM, enabled=False)) == ["worker_disabled"]
    assert codes(replace(waiting, paused_at=ago(9))) == ["worker_disabled"]
    assert codes(replace(CALM, paused_at=ago(9))) == []


def test_orphans_and_new_dead_letters_are_told() -> None:
    found = alerts(replace(CALM, orphans=(ago(40), ago(60)), dead=3), LIMITS)
    assert [(alert.code, alert.value, alert.since) for alert in found] == [
        ("dead_letters", 3, None),
        ("orphans", 2, ago(60)),
    ]
    assert codes(replace(CALM, orphans=(ago(40),), dead=3), replace(LIMITS, orphans=1, dead_letters=3)) == []


@pytest.mark.parametrize(
    ("held", "silent", "idle", "raised"),
    [
        (400, 1, 301, True),
        (400, 30, None, True),
        (400, 31, None, False),  # it is dead, and another takes over
        (299, 1, None, False),  # it has only begun
        (400, 1, 300, False),
        (10, 1, 301, False),  # what was done before its time is another's
    ],
)
def test_a_leader_that_lives_and_does_nothing_is_stuck(
    held: float, silent: float, idle: float | None, raised: bool
) -> None:
    leader = LeaderFact("duties", ago(held), ago(silent), None if idle is None else ago(idle))
    assert codes(replace(CALM, leaders=(leader,))) == ["stuck_leader"] * raised


def test_the_critical_come_first() -> None:
    facts = replace(
        CALM, dead=1, stuck=(ago(999),), workers=0, queues=(QueueFact("a", 500, None),), failed=999
    )
    found = alerts(facts, LIMITS)
    assert [alert.code for alert in found] == [
        "failure_rate",
        "no_workers",
        "dead_letters",
        "queue_depth",
        "stuck_jobs",
    ]


def test_settings_change_thresholds() -> None:
    said = {f"alerts.{field.name}": n for n, field in enumerate(fields(Thresholds))}
    found, wrong = read_thresholds({**said, "worker_enabled": True})
    assert [getattr(found, field.name) for field in fields(Thresholds)] == list(range(len(said)))
    assert wrong == []


@pytest.mark.parametrize("value", [True, "1", None, -1, [1]])
def test_a_setting_that_is_no_number_is_an_alert_and_changes_nothing(value: object) -> None:
    found, (wrong,) = read_thresholds({"alerts.queue_depth": value})
    assert found == LIMITS
    assert (wrong.code, wrong.severity, wrong.subject) == (
        "bad_setting",
        Severity.WARNING,
        "alerts.queue_depth",
    )
    assert "give a number" in wrong.text


def test_a_setting_nobody_knows_is_told_with_those_there_are() -> None:
    _, (wrong,) = read_thresholds({"alerts.queue_dept": 5})
    assert isinstance(wrong, Alert)
    assert "queue_depth" in wrong.text


def test_thresholds_that_are_given_stand_before_settings() -> None:
    mine = Thresholds(queue_depth=7)
    assert read_thresholds({"alerts.queue_depth": 5, "alerts.x": 1}, mine) == (mine, [])
