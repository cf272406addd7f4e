"""Tests of limits at enqueue time: cached rules and full queues."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, ManualClock, Rate
from tidemill.client.core import client_of
from tidemill.client.enqueue.limit_cache import COUNTED, FRESH
from tidemill.domain.limits import LimitKind, Rule
from tidemill.errors import BadSettings, QueueFull, StoreUnavailable

HOUR = timedelta(hours=1)
RULES_LIVE, DEPTHS_LIVE = timedelta(seconds=FRESH), timedelta(seconds=COUNTED)


def send(account: int = 1) -> None: ...


class Asked(Counter[str]):
    """Counts the calls of store methods."""

    def watch(self, app: App, monkeypatch: pytest.MonkeyPatch, *verbs: str) -> None:
        for verb in verbs:
            real = getattr(app.store, verb)

            def counted(*args: Any, real: Any = real, verb: str = verb, **words: Any) -> Any:
                self[verb] += 1
                return real(*args, **words)

            monkeypatch.setattr(app.store, verb, counted)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def still(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store with a manual clock."""
    url = url_of(request.param, tmp_path, request)
    with App(url, migrate=True, clock=ManualClock()) as app:
        yield app


def advance(app: App, by: timedelta) -> None:
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(by)


def test_enqueueing_reads_the_rules_once_in_five_seconds(still: App, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = still.task(name="plain")(send)
    limited = still.task(name="limited", max_concurrent=2, limits=[Rate(5, per=HOUR)])(send)
    asked = Asked()
    asked.watch(still, monkeypatch, "rules", "put_rules", "depth")
    for _ in range(5):
        plain.enqueue()
        limited.enqueue()
    assert asked == {"rules": 1, "put_rules": 1}
    advance(still, RULES_LIVE)
    for _ in range(5):
        plain.enqueue()
        limited.enqueue()
    assert asked == {"rules": 2, "put_rules": 1}


def test_unchanged_rules_are_not_written_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    task = app.task(name="send", max_concurrent=2)(send)
    app.store.put_rules([Rule("task/send", max=2)])
    asked = Asked()
    asked.watch(app, monkeypatch, "put_rules")
    task.enqueue()
    assert asked == {}


def test_a_rule_pinned_by_another_process_applies_within_five_seconds(still: App) -> None:
    task = still.task(name="send")(send)
    assert task.enqueue().row.limits == ()
    still.store.put_rules([Rule("task/send", max=2, pinned=True)])
    assert task.enqueue().row.limits == ()
    advance(still, RULES_LIVE)
    assert task.enqueue().row.limits == ("task/send",)
    still.store.drop_rules(["task/send"])
    advance(still, RULES_LIVE)
    assert task.enqueue().row.limits == ()


def test_a_limit_of_zero_is_not_attached_to_jobs(app: App) -> None:
    task = app.task(name="send")(send)
    app.limits.set("task/send", 0)
    assert task.enqueue().row.limits == ()


def test_a_limit_set_in_this_process_applies_at_once_under_any_store_name() -> None:
    with App(stores={"default": "memory://", "jobs": "memory://"}) as app:
        task = app.task(name="send")(send)
        assert task.using(store="jobs").enqueue().row.limits == ()
        app.limits.set("task/send", 2)
        assert task.using(store="jobs").enqueue().row.limits == ("task/send",)
        assert task.using(store="default").enqueue().row.limits == ()


def test_limits_apply_to_async_enqueues_too(app: App) -> None:
    task = app.task(name="send", queue="mail")(send)
    app.limits.set("task/send", 2)
    app.limits.set("depth/queue/mail", 1)

    async def act() -> None:
        job = await task.aenqueue()
        assert job.row.limits == ("task/send",)
        with pytest.raises(QueueFull):
            await task.aenqueue()

    asyncio.run(act())


def test_a_declared_rule_that_was_deleted_is_written_again(still: App) -> None:
    task = still.task(name="send", max_concurrent=2)(send)
    task.enqueue()
    still.store.drop_rules(["task/send"])
    advance(still, RULES_LIVE)
    task.enqueue()
    assert [rule.max for rule in still.store.rules()] == [2]


def test_a_rule_declared_in_a_rolled_back_transaction_is_written_again(still: App) -> None:
    task = still.task(name="send", max_concurrent=2)(send)

    def act() -> None:
        with still.store.transaction():
            task.enqueue_many([{}, {}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        act()
    assert still.store.rules() == []
    advance(still, RULES_LIVE)
    task.enqueue()
    assert [rule.max for rule in still.store.rules()] == [2]


def test_a_rule_that_another_app_declares_differently_is_not_overwritten(still: App) -> None:
    task = still.task(name="send", max_concurrent=2)(send)
    task.enqueue()
    still.store.put_rules([Rule("task/send", max=9)])
    advance(still, RULES_LIVE)
    task.enqueue()
    assert [rule.max for rule in still.store.rules()] == [9]


def test_concurrent_enqueues_inside_and_outside_a_transaction_do_not_deadlock(app: App) -> None:
    task = app.task(name="send", max_concurrent=2)(send)
    other = threading.Thread(target=task.enqueue)
    with app.store.transaction():
        task.enqueue_many([{}, {}])
        other.start()
        client_of(app).enqueuer.forget_limits()
        task.enqueue_many([{}, {}])
    other.join(60)
    assert not other.is_alive()
    assert len(app.testing().enqueued()) == 5


def test_if_the_rules_cannot_be_read_the_cached_ones_apply(
    still: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = still.task(name="send")(send)
    still.limits.set("task/send", 2)
    task.enqueue()

    def rules() -> list[Rule]:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(still.store, "rules", rules)
        advance(still, RULES_LIVE)
        assert task.enqueue().row.limits == ("task/send",)


# Limits of the app ---------------------------------------------------------------------------------------------------------


def test_limits_of_the_app_are_written_with_the_first_job_and_are_not_pinned() -> None:
    with App("memory://", limits={"queue/media": 5, "tenant": 10, "tenant/acme": 50}) as app:
        app.task(name="send")(send).enqueue()
        assert [(rule.name, rule.max, rule.pinned) for rule in app.store.rules()] == [
            ("queue/media", 5, False),
            ("tenant", 10, False),
            ("tenant/acme", 50, False),
        ]
        app.limits.set("tenant", 20)
        assert app.limits.unset("tenant")
        assert app.limits.get("tenant").rule.max == 10


def test_limits_of_the_app_are_written_when_a_worker_starts() -> None:
    with App("memory://", limits={"task/send": 5, "queue/media": 3}) as app:
        app.task(name="send", max_concurrent=2, limits=[Rate(5, per=HOUR)])(send)
        with app.worker():
            found = {rule.name: rule.max for rule in app.store.rules()}
        assert found == {"task/send": 5, "send.rate": 5, "queue/media": 3}


def test_a_limit_that_the_app_sets_for_a_task_is_attached_to_its_jobs() -> None:
    with App("memory://", limits={"task/send": 5}) as app:
        assert app.task(name="send")(send).enqueue().row.limits == ("task/send",)


def test_a_limit_of_the_app_for_an_unknown_task_stops_the_worker() -> None:
    lost = pytest.raises(BadSettings, match="there is no limit 'mial")
    with App("memory://", limits={"mial.rate": 5}) as app, lost:
        app.worker().start()
    with App("memory://", limits={"send.rate": Rate(7, per=HOUR)}) as app:
        app.task(name="send", limits=[Rate(5, per=HOUR)])(send)
        app.declare_limits()
        assert app.limits.get("send.rate").rule.max == 7


# Depth -----------------------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_jobs_with_queue_full(app: App) -> None:
    task = app.task(name="send", queue="mail")(send)
    app.limits.set("depth/queue/mail", 3)
    task.enqueue_many([{}] * 2)
    with pytest.raises(QueueFull, match="queue mail is full") as caught:
        task.enqueue_many([{}] * 2)
    assert caught.value.details == {"queue": "mail", "tenant": None, "depth": 2, "max": 3}
    assert caught.value.code == "queue_full"
    task.enqueue()
    with pytest.raises(QueueFull):
        task.enqueue()
    assert len(app.testing().enqueued()) == 3
    task.using(queue="other").enqueue()


@pytest.mark.parametrize("name", ["depth/tenant", "depth/tenant/acme"])
def test_the_depth_of_one_tenant_can_be_limited(app: App, name: str) -> None:
    task = app.task(name="send")(send)
    app.limits.set(name, 1)
    task.using(tenant="acme").enqueue()
    with pytest.raises(QueueFull, match="tenant acme is full"):
        task.using(tenant="acme").enqueue()
    task.using(tenant="bolt").enqueue()


def test_the_depth_limit_of_one_queue_overrides_the_general_one(app: App) -> None:
    task = app.task(name="send")(send)
    app.limits.set("depth/queue", 1)
    app.limits.set("depth/queue/big", 3)
    app.limits.set("depth/queue/endless", 0)
    task.using(queue="big").enqueue_many([{}] * 3)
    task.using(queue="endless").enqueue_many([{}] * 3)
    with pytest.raises(QueueFull):
        task.enqueue_many([{}] * 2)


def test_scheduled_jobs_do_not_count_toward_the_depth(app: App) -> None:
    task = app.task(name="send")(send)
    app.limits.set("depth/queue", 1)
    task.enqueue()
    task.using(delay=HOUR).enqueue()
    task.using(run_after=app.clock.now() + HOUR).enqueue()
    with pytest.raises(QueueFull):
        task.using(run_after=app.clock.now() - HOUR).enqueue()


def test_a_depth_is_read_once_a_second_and_counted_locally_in_between(
    still: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = still.task(name="send")(send)
    still.limits.set("depth/queue/default", 5)
    asked = Asked()
    asked.watch(still, monkeypatch, "depth")
    for _ in range(5):
        task.enqueue()
    with pytest.raises(QueueFull):
        task.enqueue()
    assert asked["depth"] == 1
    still.testing().drain()
    with pytest.raises(QueueFull):
        task.enqueue()
    advance(still, DEPTHS_LIVE)
    task.enqueue()
    assert asked["depth"] == 2


def test_concurrent_threads_do_not_exceed_a_depth_limit(still: App) -> None:
    task = still.task(name="send")(send)
    still.limits.set("depth/queue/default", 10)
    task.enqueue()  # this reads the depth, from which all threads count locally
    refused: list[QueueFull] = []

    def many() -> None:
        for _ in range(5):
            try:
                task.enqueue()
            except QueueFull as error:
                refused.append(error)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(refused) == 11
    assert len(still.testing().enqueued()) == 10


def test_a_depth_limit_can_be_declared_by_the_app() -> None:
    with App("memory://", limits={"depth/queue/default": 1}) as app:
        task = app.task(name="send")(send)
        task.enqueue()
        with pytest.raises(QueueFull):
            task.enqueue()
        assert [rule.kind for rule in app.store.rules()] == [LimitKind.DEPTH]
