"""Tests of the highest priority of a tenant and of a key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill import App, ManualClock
from tidemill.client.enqueue.limit_cache import FRESH
from tidemill.errors import BadSettings, PriorityTooHigh


def send() -> None: ...


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    with App("memory://", clock=clock) as app:
        app.control.set("tenant/acme", {"max_priority": 10, "weight": 2})
        yield app


def test_a_priority_above_the_maximum_of_the_tenant_is_refused(app: App) -> None:
    task = app.task(name="send")(send)
    with pytest.raises(
        PriorityTooHigh, match="priority 11 is above 10, the highest that tenant acme may use"
    ) as caught:
        task.using(tenant="acme", priority=11).enqueue()
    assert caught.value.code == "priority_too_high"
    assert caught.value.details == {"tenant": "acme", "priority": 11, "max": 10}
    assert app.testing().enqueued() == []
    task.using(tenant="acme", priority=10).enqueue()
    task.using(tenant="other", priority=11).enqueue()


def test_one_refused_job_in_a_batch_prevents_the_whole_batch(app: App) -> None:
    task = app.task(name="send", priority=11)(send)
    with pytest.raises(PriorityTooHigh):
        task.using(tenant="acme").enqueue_many([{}] * 3)
    assert app.testing().enqueued() == []


def test_a_removed_maximum_is_ignored_after_five_seconds(app: App, clock: ManualClock) -> None:
    task = app.task(name="send", priority=11)(send)
    with pytest.raises(PriorityTooHigh):
        task.using(tenant="acme").enqueue()
    app.control.unset("tenant/acme")
    clock.advance(timedelta(seconds=FRESH))
    task.using(tenant="acme").enqueue()


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"weight": 0},
        {"max_priority": 101},
        {"max_priority": "high"},
        {"other": 1},
        {"max_priority": True},
        3,
    ],
)
def test_the_setting_of_a_tenant_is_validated(app: App, value: object) -> None:
    with pytest.raises(BadSettings):
        app.control.set("tenant/acme", value)


def test_a_key_has_a_maximum_priority(app: App) -> None:
    made = app.keys.create("ci", role="operator", max_priority=5)
    assert made.key.max_priority == 5
    assert [key.max_priority for key in app.keys.list()] == [5]
    identity = app.keys.identify(made.secret)
    assert identity is not None
    identity.check_priority(5)
    with pytest.raises(PriorityTooHigh, match="priority 6 is above 5, the highest this key may use"):
        identity.check_priority(6)


def test_a_key_without_a_maximum_may_use_any_priority(app: App) -> None:
    identity = app.keys.identify(app.keys.create("ci", role="operator").secret)
    assert identity is not None
    identity.check_priority(100)


def test_the_maximum_priority_of_a_key_is_validated(app: App) -> None:
    with pytest.raises(BadSettings):
        app.keys.create("ci", max_priority=101)
