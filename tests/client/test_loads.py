"""Tests of the load figures of queues and tasks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill import App, ManualClock, PermanentError, Review
from tidemill.client.stats.loads import (
    last_outcomes,
    queue_loads,
    serving,
    task_loads,
    task_names,
    waited_for,
)
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.ids import new_id


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    with App("memory://", clock=clock) as made:

        @made.task(name="good", queue="a")
        def good() -> None: ...

        @made.task(name="bad", queue="b", max_concurrent=1)
        def bad() -> None:
            raise PermanentError("no")

        yield made


def ask(app: App, task: str, number: int = 1, tenant: str = "default") -> None:
    with app.tenant(tenant):
        app.bound_task(task).enqueue_many([{}] * number)


def test_throughput_and_drain_time_of_a_queue_are_those_of_the_last_minute_or_ten(
    app: App, clock: ManualClock
) -> None:
    ask(app, "good", 20)
    app.testing().drain()
    ask(app, "good", 10)
    clock.advance(timedelta(seconds=30))
    (found,) = queue_loads(app.store, clock.now()).rows
    # The figures are those of whole minutes: 20 jobs in a minute and a half.
    assert (round(found.per_minute, 2), found.drains_in) == (13.33, timedelta(seconds=45))
    clock.advance(timedelta(seconds=91))
    (found,) = queue_loads(app.store, clock.now()).rows
    assert (found.name, found.depth, round(found.per_minute, 1)) == ("a", 10, 2.0)
    assert found.drains_in is not None
    assert round(found.drains_in.total_seconds()) in (300, 301)
    assert found.oldest_at == clock.now() - timedelta(seconds=121)
    clock.advance(timedelta(hours=1))
    (found,) = queue_loads(app.store, clock.now()).rows
    assert (found.per_minute, found.drains_in) == (0.0, None)


def test_the_deepest_queue_comes_first_and_requested_ones_are_included(app: App, clock: ManualClock) -> None:
    ask(app, "good", 1)
    ask(app, "bad", 2)
    app.control.pause("queue", "c", reason="why")
    found = queue_loads(app.store, clock.now(), also=["d"])
    assert [(row.name, row.depth, row.pause is not None) for row in found.rows] == [
        ("b", 2, False),
        ("a", 1, False),
        ("c", 0, True),
        ("d", 0, False),
    ]
    assert found.more is False


def test_a_tenant_sees_only_its_own_queues(app: App, clock: ManualClock) -> None:
    ask(app, "good", 3, "acme")
    ask(app, "bad", 1, "other")
    app.control.pause("queue", "c")
    found = queue_loads(app.store, clock.now(), tenant="acme")
    assert [(row.name, row.depth) for row in found.rows] == [("a", 3)]


def test_one_queue_can_be_requested_by_name(app: App, clock: ManualClock) -> None:
    ask(app, "good", 3)
    for name, depth in (("a", 3), ("nothing", 0)):
        (found,) = queue_loads(app.store, clock.now(), named=name).rows
        assert (found.name, found.depth) == (name, depth)


def test_workers_that_serve_a_queue_are_counted(app: App, clock: ManualClock) -> None:
    for queues, slots in ((("a",), 4), ((), 2), (("b",), 9)):
        worker = Worker(new_id(), "w", queues=queues, concurrency=slots)
        app.store.register(worker, lease=timedelta(seconds=30))
        assert serving(worker, "a") is (queues != ("b",))
    (found,) = queue_loads(app.store, clock.now(), named="a").rows
    assert (found.workers, found.slots) == (2, 6)
    clock.advance(timedelta(minutes=1))
    (found,) = queue_loads(app.store, clock.now(), named="a").rows
    assert (found.workers, found.slots) == (0, 0)


def test_the_queue_of_a_node_is_served_by_all_workers_of_that_node() -> None:
    for queues in ((), ("a",)):
        worker = Worker(new_id(), "w", node="here", queues=queues)
        assert serving(worker, "@here")
        assert not serving(worker, "@elsewhere")


def test_tasks_show_waiting_jobs_and_outcomes(app: App, clock: ManualClock) -> None:
    ask(app, "good", 2)
    ask(app, "bad", 2)
    app.testing().drain()
    ask(app, "good", 3)
    app.control.pause("task", "bad", reason="broken")
    good, bad, none = task_loads(app.store, clock.now(), ["good", "bad", "none"]).rows
    assert (good.waiting, good.running, good.ended, good.failure_rate) == (3, 0, 2, 0.0)
    assert good.p50 is not None
    assert (bad.waiting, bad.ended, bad.failed, bad.failure_rate) == (0, 2, 2, 1.0)
    assert bad.pause is not None
    assert bad.pause.reason == "broken"
    assert (none.ended, none.failure_rate, none.p50, none.last_at) == (0, None, None, None)
    assert task_names(app.store, clock.now()) == {"good", "bad"}


def test_failures_of_a_task_are_counted_over_a_day_and_not_over_recent_jobs(
    app: App, clock: ManualClock
) -> None:
    @app.task(name="either")
    def either(fail: bool) -> None:
        if fail:
            raise PermanentError("no")

    for fail, number in ((True, 60), (False, 60)):
        for _ in range(number):
            either.enqueue(fail=fail)
        app.testing().drain()
        clock.advance(timedelta(minutes=1))
    (found,) = task_loads(app.store, clock.now(), ["either"]).rows
    assert (found.ended, found.failed, found.failure_rate, found.timed) == (120, 60, 0.5, 120)
    # The day begins with a whole hour.
    clock.advance(timedelta(hours=25))
    (found,) = task_loads(app.store, clock.now(), ["either"]).rows
    assert (found.ended, found.failed, found.failure_rate) == (0, 0, None)


def test_jobs_waiting_for_review_are_counted(app: App, clock: ManualClock) -> None:
    @app.task(name="approve")
    def approve() -> None:
        raise Review("look at it")

    approve.enqueue()
    approve.enqueue()
    app.testing().drain()
    (found,) = task_loads(app.store, clock.now(), ["approve"]).rows
    assert (found.review, found.waiting, found.running, found.ended) == (2, 0, 0, 0)


def test_a_tenant_sees_only_its_own_task_names(app: App, clock: ManualClock) -> None:
    ask(app, "good", 1, "acme")
    ask(app, "bad", 1, "other")
    app.store.register(Worker(new_id(), "w", tasks=("third",)), lease=timedelta(seconds=30))
    assert task_names(app.store, clock.now(), tenant="acme") == {"good"}
    assert task_names(app.store, clock.now()) == {"good", "bad", "third"}
    app.testing().drain()
    assert task_names(app.store, clock.now(), tenant="other") == {"bad"}


def test_the_last_fires_of_schedules_show_the_states_of_their_jobs(app: App) -> None:
    made = app.schedules.add("good", "0 2 * * *", "nightly")
    never = app.schedules.add("good", "0 2 * * *", "never")
    for _ in range(3):
        app.schedules.trigger(made.id)
    app.testing().drain()
    app.schedules.trigger(made.id)
    found = last_outcomes(app.store, [(made.id, made.tenant), (never.id, never.tenant)], limit=3)
    assert [state for _, _, state, _ in found[made.id]] == [
        JobState.COMPLETED,
        JobState.COMPLETED,
        JobState.PENDING,
    ]
    assert found[never.id] == []


def test_limits_with_waiting_jobs_are_named(app: App) -> None:
    assert waited_for(app.store) == frozenset()
    ask(app, "bad")
    assert waited_for(app.store) == {"task", "task/bad"}
    assert app.jobs.count(tenant=ALL_TENANTS) == 1
