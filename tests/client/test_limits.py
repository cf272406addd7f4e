"""Tests of ``app.limits``: reading, setting and unsetting limits, and breakers."""

from __future__ import annotations

import asyncio
import inspect
import threading
from datetime import timedelta

import pytest
from tests.client.audit_kit import HOUR, acts, entries, undone
from tests.client.limits_kit import claim

from tidemill import App, Breaker, Limit, Rate
from tidemill.client.access import acting
from tidemill.client.limits import Limits, tenant_limits
from tidemill.domain.breaker import BreakerPhase, BreakerState, written
from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule
from tidemill.errors import BadSettings, LimitNotFound
from tidemill.ids import new_id

SECOND = timedelta(seconds=1)


def send(account: int = 1) -> None: ...


def test_a_limit_shows_its_use_and_its_remaining_room(app: App) -> None:
    task = app.task(name="send", max_concurrent=3)(send)
    assert app.limits.list() == []
    task.enqueue_many([{}] * 5)
    assert len(claim(app.store, 2)) == 2
    (found,) = app.limits.list()
    assert (found.name, found.rule.max, found.used, found.room, found.is_full) == (
        "task/send",
        3,
        2,
        1,
        False,
    )
    assert len(claim(app.store)) == 1
    full = app.limits.get("task/send")
    assert (full.used, full.room, full.is_full, full.opens_at) == (3, 0, True, None)


def test_the_limits_of_tenants_are_their_own_or_the_general_ones(app: App) -> None:
    app.limits.set("tenant", 5)
    app.limits.set("tenant/acme", 2)
    app.limits.set("tenant/free", 0)
    app.limits.set("depth/tenant/acme", 10)
    job = NewJob(id=new_id(), task="send", args="{}", tenant="acme", limits=("tenant/acme",))
    app.store.enqueue([job._replace(id=new_id()) for _ in range(3)])
    assert len(claim(app.store, 1)) == 1
    states = tenant_limits(app.store, ["acme", "free", "other"], app.clock.now())
    assert {
        tenant: [(state.name, state.rule.name, state.used, state.room) for state in limits]
        for tenant, limits in states.items()
    } == {
        "acme": [("tenant/acme", "tenant/acme", 1, 1), ("depth/tenant/acme", "depth/tenant/acme", 2, 8)],
        "other": [("tenant/other", "tenant", 0, 5)],
    }


def test_a_keyed_limit_shows_its_most_used_keys(app: App) -> None:
    task = app.task(name="send", limits=[Limit(2, key="account")])(send)
    task.enqueue_many([{"account": 7}] * 3 + [{"account": 8}])
    claim(app.store)
    (found,) = app.limits.list()
    assert (found.name, found.used, found.room) == ("send.limit.account", 3, None)
    assert [(key.name, key.used, key.room) for key in found.keys] == [
        ("send.limit.account/7", 2, 0),
        ("send.limit.account/8", 1, 1),
    ]
    assert found.is_full
    assert app.limits.get("send.limit.account/7") == found.keys[0]
    assert app.limits.get("send.limit.account/99").used == 0


def test_a_rate_limit_shows_when_it_has_room_again(app: App) -> None:
    task = app.task(name="send", limits=[Rate(2, per=HOUR)])(send)
    task.enqueue_many([{}] * 3)
    assert len(claim(app.store)) == 2
    found = app.limits.get("send.rate")
    assert (found.used, found.room) == (2, 0)
    assert found.opens_at is not None
    assert timedelta(minutes=58) < found.opens_at - app.clock.now() < timedelta(minutes=62)


def test_a_set_limit_overrides_the_code_until_unset_and_both_are_audited(app: App) -> None:
    task = app.task(name="send", max_concurrent=3)(send)
    task.enqueue()
    with acting("ann"):
        found = app.limits.set("task/send", 1)
        again = app.limits.set("task/send", 1)
    assert again == found
    assert (found.rule.max, found.rule.pinned, found.rule.changed_by) == (1, True, "ann")
    app.declare_limits()
    task.enqueue()
    assert app.limits.get("task/send").rule.max == 1
    with acting("bob"):
        assert app.limits.unset("task/send")
        assert not app.limits.unset("task/send")
    assert (app.limits.get("task/send").rule.max, app.limits.get("task/send").rule.pinned) == (3, False)
    made, dropped = entries(app)
    assert (made.who, made.action, made.subject) == ("ann", "limit.changed", "limit:task/send")
    assert (made.before, made.after) == ({"max": 3, "pinned": False}, {"max": 1, "pinned": True})
    assert (dropped.who, dropped.action) == ("bob", "limit.removed")
    assert (dropped.before, dropped.after) == ({"max": 1, "pinned": True}, {"max": 3, "pinned": False})


def test_setting_a_rate_keeps_the_parameters_that_are_not_given(app: App) -> None:
    app.task(name="send", limits=[Rate(100, per=SECOND, burst=5)])(send)
    found = app.limits.set("send.rate", 10).rule
    assert (found.kind, found.max, found.per, found.burst) == (LimitKind.RATE, 10, SECOND, 5)


def test_one_key_can_have_a_limit_of_its_own(app: App) -> None:
    task = app.task(name="send", limits=[Limit(1, key="account")])(send)
    app.limits.set("send.limit.account/7", 3)
    task.enqueue_many([{"account": 7}] * 4 + [{"account": 8}] * 4)
    held = claim(app.store)
    assert sorted(name for each in held for name in each.limits or ()) == [
        "send.limit.account/7",
        "send.limit.account/7",
        "send.limit.account/7",
        "send.limit.account/8",
    ]


def test_a_new_limit_applies_to_waiting_and_to_future_jobs(app: App) -> None:
    task = app.task(name="send")(send)
    task.enqueue_many([{}] * 3)
    task.using(delay=HOUR).enqueue()
    app.limits.set("task/send", 2)
    task.enqueue()
    jobs = app.testing().enqueued("send")
    assert [job.limits for job in jobs] == [("task/send",)] * 5
    assert len(claim(app.store)) == 2
    assert claim(app.store) == []


def test_many_jobs_get_a_limit_in_batches(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.client.limits.LABELLED", 3)
    task = app.task(name="send")(send)
    task.enqueue_many([{}] * 10)
    app.limits.set("task/send", 1)
    assert all(job.limits == ("task/send",) for job in app.testing().enqueued())


def test_another_client_attaches_a_pinned_limit_of_a_task_too(app: App) -> None:
    task = app.task(name="send")(send)
    app.store.put_rules([Rule("task/send", max=2, pinned=True)])
    assert task.enqueue().row.limits == ("task/send",)


def test_jobs_that_had_a_dropped_limit_still_run(app: App) -> None:
    task = app.task(name="send")(send)
    task.enqueue_many([{}] * 3)
    app.limits.set("task/send", 1)
    app.limits.unset("task/send")
    assert app.limits.list() == []
    assert app.store.rules(), "a worker looks behind gates only while there are rules"
    task.enqueue()
    assert [job.limits for job in app.testing().enqueued()][-1] == ()
    jobs = app.jobs.list().items
    with app.worker():
        for job in jobs:
            job.result(timeout=60)


class Peak:
    """A task that records its peak concurrency. Each run waits until two run or no other job is left."""

    def __init__(self, jobs: int) -> None:
        self._changed = threading.Condition()
        self._left, self._running, self.highest = jobs, 0, 0

    def run(self) -> None:
        with self._changed:
            self._running += 1
            self.highest = max(self.highest, self._running)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._running >= 2 or self._left <= 1, timeout=60)
            self._running -= 1
            self._left -= 1
            self._changed.notify_all()


@pytest.mark.parametrize("name", ["queue/mail", "tenant/acme", "queue", "tenant"])
def test_a_queue_and_a_tenant_are_limited_without_declarations_on_tasks(app: App, name: str) -> None:
    peak = Peak(5)

    @app.task(queue="mail")
    def work() -> None:
        peak.run()

    app.limits.set(name, 2)
    jobs = work.using(tenant="acme").enqueue_many([{}] * 5)
    with app.worker(threads=5):
        for job in jobs:
            job.result(timeout=60)
    assert peak.highest == 2
    assert app.limits.get(name).used == 0


def test_a_running_worker_applies_a_raised_limit(app: App) -> None:
    peak = Peak(4)

    @app.task(max_concurrent=1)
    def work() -> None:
        peak.run()

    jobs = work.enqueue_many([{}] * 4)
    with app.worker(threads=4):
        app.limits.set("task/work", 2)  # the first run waits for a second one
        for job in jobs:
            job.result(timeout=60)
    assert peak.highest == 2


def test_a_limit_of_one_tenant_is_audited_for_that_tenant(app: App) -> None:
    app.limits.set("tenant/acme", 2)
    app.limits.set("depth/tenant/acme", 2)
    app.limits.set("queue/mail", 2)
    assert [entry.tenant for entry in entries(app)] == ["acme", "acme", "*"]


def test_setting_or_unsetting_a_limit_that_cannot_be_audited_is_rolled_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone(app, monkeypatch, lambda: app.limits.set("queue/mail", 2))
    assert app.store.rules() == []
    app.limits.set("queue/mail", 2)
    undone(app, monkeypatch, lambda: app.limits.unset("queue/mail"))
    assert app.limits.get("queue/mail").rule.max == 2


@pytest.mark.parametrize("name", ["mial.rate", "queue/", "breaker/x", "task"])
def test_an_invalid_limit_name_is_refused_and_nothing_is_written(name: str) -> None:
    with App("memory://") as app:
        with pytest.raises(BadSettings):
            app.limits.set(name, 1)
        assert app.store.rules() == []
        assert entries(app) == []


@pytest.mark.parametrize("name", ["mial.rate", "depth/queue/x", "depth/queue", "queue/x", "a/b/c"])
def test_an_unknown_limit_raises_limit_not_found(app: App, name: str) -> None:
    with pytest.raises(LimitNotFound, match="limits list"):
        app.limits.get(name)
    assert not app.limits.unset(name)


def test_a_breaker_shows_its_phase_and_can_be_reset(app: App) -> None:
    app.task(name="send", breaker=Breaker("api"))(send).enqueue()
    assert app.limits.get("breaker/api").phase is BreakerPhase.CLOSED
    now = app.clock.now()
    opened = written(BreakerState(BreakerPhase.OPEN, now, now + HOUR))
    assert app.store.change_breaker("breaker/api", None, opened)
    found = app.limits.get("breaker/api")
    assert (found.phase, found.room) == (BreakerPhase.OPEN, 0)
    assert found.opens_at is not None
    assert claim(app.store) == []
    with acting("ann"):
        assert app.limits.reset_breaker("api").phase is BreakerPhase.CLOSED
    assert len(claim(app.store)) == 1
    (entry,) = entries(app)
    assert (entry.who, entry.action, entry.before) == ("ann", "breaker.reset", {"phase": "open"})
    with pytest.raises(LimitNotFound):
        app.limits.reset_breaker("other")


def test_resetting_a_breaker_that_never_opened_changes_nothing(app: App) -> None:
    app.task(name="send", breaker="api")(send).enqueue()
    assert app.limits.reset_breaker("breaker/api").phase is BreakerPhase.CLOSED
    assert acts(app) == []


def test_depth_limits_show_the_number_of_waiting_jobs(app: App) -> None:
    task = app.task(name="send", queue="mail", max_concurrent=1)(send)
    plain = app.task(name="plain", queue="post")(send)
    app.limits.set("depth/queue", 4)
    app.limits.set("depth/queue/post", 2)
    task.enqueue_many([{}] * 3)
    plain.enqueue()
    each, post, _ = app.limits.list()
    assert [(key.name, key.used, key.room) for key in each.keys] == [("depth/queue/mail", 3, 1)]
    assert (post.name, post.used, post.room) == ("depth/queue/post", 1, 1)
    assert app.limits.get("depth/queue/mail").used == 3


def test_every_method_has_an_async_variant_with_the_same_signature() -> None:
    for name in ("list", "get", "declared", "set", "unset", "reset_breaker"):
        one, twin = getattr(Limits, name), getattr(Limits, f"a{name}")
        assert inspect.signature(one) == inspect.signature(twin), name
        assert inspect.iscoroutinefunction(twin)


def test_the_async_variants_behave_the_same(app: App) -> None:
    app.task(name="send", breaker="api")(send).enqueue()

    async def act() -> None:
        assert (await app.limits.aset("queue/mail", 2)).rule.max == 2
        assert (await app.limits.aget("queue/mail")).rule.pinned
        assert len(await app.limits.alist()) == 2
        assert await app.limits.aunset("queue/mail")
        assert (await app.limits.areset_breaker("api")).phase is BreakerPhase.CLOSED
        assert set(await app.limits.adeclared()) == {"breaker/api"}

    asyncio.run(act())


def test_a_drain_in_a_test_runs_limited_jobs_and_releases_the_limits(app: App) -> None:
    limited = app.task(name="send", max_concurrent=1, limits=[Rate(1, per=HOUR, key="account")])(send)
    plain = app.task(name="plain")(send)
    limited.enqueue_many([{"account": number % 2} for number in range(6)])
    plain.enqueue()
    app.task(name="other", max_concurrent=1)(send).enqueue()
    assert app.testing().drain().completed == 8
    assert [(limit.name, limit.used) for limit in app.limits.list()][1:] == [
        ("task/other", 0),
        ("task/send", 0),
    ]


def test_a_drain_in_a_test_skips_paused_queues_and_runs_by_priority(app: App) -> None:
    order: list[str] = []

    @app.task(max_concurrent=1)
    def work(name: str) -> None:
        order.append(name)

    work.using(queue="held").enqueue("held")
    work.using(priority=-1).enqueue("low")
    work.using(priority=5).enqueue("high")
    app.control.pause("queue", "held")
    assert app.testing().drain().completed == 2
    assert order == ["high", "low"]
