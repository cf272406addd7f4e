"""Tests of storing an app's limits before claiming, and of sweeping unused counts."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tidemill import App, ManualClock, Rate
from tidemill.domain.breaker import Breaker
from tidemill.domain.limits import MOST_SLACK, LimitKind, Rule, memory_of
from tidemill.engine.duties import Sweep
from tidemill.engine.runner.main import prepare
from tidemill.errors import StoreUnavailable

DAY = timedelta(days=1)


def send() -> None: ...


def test_a_runner_stores_the_limits_of_its_app() -> None:
    with App("memory://", limits={"queue/media": 3}) as app:
        app.task(name="send", max_concurrent=2)(send)
        assert prepare(app)
        assert {rule.name: rule.max for rule in app.store.rules()} == {"queue/media": 3, "task/send": 2}


def test_a_runner_retries_while_the_store_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with App("memory://", limits={"queue/media": 3}) as app:

        def rules() -> list[Rule]:
            raise StoreUnavailable("away")

        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setattr(app.store, "rules", rules)
            assert not prepare(app)
        assert "the app's limits could not be synchronized with the store yet: away" in caplog.text
        assert prepare(app)
        assert len(app.store.rules()) == 1


def test_a_runner_logs_invalid_limits_of_its_app_and_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with App("memory://", limits={"mial.rate": 3}) as app:
        with caplog.at_level(logging.ERROR):
            assert prepare(app)
        assert "there is no limit 'mial.rate'" in caplog.text


def test_a_tick_applies_the_limits_of_its_app() -> None:
    with App("memory://", limits={"queue/default": 1}) as app:
        task = app.task(name="send", max_concurrent=2)(send)
        task.enqueue_many([{}] * 3)
        assert app.tick(60.0).processed == 3
        assert {rule.name for rule in app.store.rules()} == {"queue/default", "task/send"}


def test_unused_counts_are_deleted_when_no_rule_needs_them() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:
        task = app.task(name="send", limits=[Rate(5, per=3 * DAY)])(send)
        task.enqueue()
        app.testing().drain()
        sweep = Sweep(app.store)

        def ten() -> int:  # counts are swept on every tenth run
            return sum(sweep().items for _ in range(10))

        clock.advance(2 * DAY)
        assert ten() == 0
        clock.advance(2 * DAY)
        assert ten() == 1
        assert ten() == 0


def test_a_rule_needs_counts_for_its_window_its_bucket_or_its_breaker() -> None:
    window = Rule("a", LimitKind.RATE, 10, 3 * DAY)
    bucket = Rule("b", LimitKind.RATE, 1, DAY, 5)
    breaker = Rule("c", LimitKind.BREAKER, 1, breaker=Breaker("c", window=DAY, rest=7 * DAY))
    assert memory_of([], DAY) == DAY
    assert memory_of([Rule("d", max=5), window], DAY) == 3 * DAY + MOST_SLACK
    assert memory_of([bucket, window], DAY) == 5 * DAY
    assert memory_of([bucket, breaker], DAY) == 8 * DAY
