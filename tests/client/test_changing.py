"""Tests of changing queue and priority, and of cancelling descendants."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tidemill import App
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter, BadSettings, IllegalTransition, PriorityTooHigh, UsageError

HOUR = timedelta(hours=1)


class Shop:
    """An app with tasks that record their runs."""

    def __init__(self, app: App) -> None:
        self.app, self.ran = app, list[str]()
        ran = self.ran

        @app.task
        def work(word: str = "x") -> None:
            ran.append(word)

        @app.task
        def family(depth: int) -> None:
            """Enqueue two jobs of the same task with depth reduced by one."""
            for _ in range(2 if depth else 0):
                family.using(queue="later").enqueue(depth=depth - 1)

        self.work, self.family = work, family

    def entries(self, action: str) -> list[Any]:
        """The audit entries of an action, oldest first."""
        found = [
            record for record in self.app.audit.list(tenant="*", limit=100) if record.entry.action == action
        ]
        return [record.entry for record in sorted(found, key=lambda record: record.number)]


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(app)


# Queue and priority --------------------------------------------------------------------------------------------------


def test_a_pending_job_with_a_higher_priority_runs_first(shop: Shop) -> None:
    shop.work.enqueue("first")
    job = shop.work.enqueue("second")
    assert job.change(priority=10).priority == 10
    assert job.refresh().status is JobState.PENDING
    shop.app.testing().drain()
    assert shop.ran == ["second", "first"]


def test_a_scheduled_job_moves_to_another_queue_and_stays_scheduled(shop: Shop) -> None:
    job = shop.work.using(delay=HOUR).enqueue()
    due = job.refresh().run_at
    changed = asyncio.run(job.achange(queue="fast", priority=-3))
    assert (changed.queue, changed.priority, changed.status) == ("fast", -3, JobState.SCHEDULED)
    assert changed.run_at == due
    assert [found.id for found in shop.app.jobs.list(queue="fast").items] == [job.id]


def test_the_audit_entry_of_a_change_has_the_old_and_the_new_values(shop: Shop) -> None:
    job = shop.work.enqueue()
    job.change(queue="fast")
    (entry,) = shop.entries("job.changed")
    assert entry.subject == f"job:{job.id}"
    assert entry.before == {"task": "work", "queue": "default", "priority": 0}
    assert entry.after == {"queue": "fast", "priority": 0}


def test_a_job_that_is_not_waiting_to_run_cannot_be_changed(shop: Shop) -> None:
    job = shop.work.enqueue()
    shop.app.testing().drain()
    with pytest.raises(IllegalTransition, match="it is completed; that needs pending or scheduled"):
        job.change(priority=1)
    assert shop.entries("job.changed") == []


def test_an_invalid_change_is_refused(shop: Shop) -> None:
    job = shop.work.enqueue()
    with pytest.raises(UsageError, match="there is nothing to change"):
        job.change()
    with pytest.raises(BadSettings, match="priority is 101"):
        job.change(priority=101)
    with pytest.raises(BadSettings, match="is not a queue's name"):
        job.change(queue="*")
    with pytest.raises(BadSettings, match="belongs to one node or runner"):
        job.change(queue="@node")
    assert (job.refresh().queue, job.priority) == ("default", 0)


def test_the_maximum_priority_of_a_tenant_applies_to_changes_too(shop: Shop) -> None:
    shop.app.control.set("tenant/default", {"max_priority": 5})
    job = shop.work.enqueue()
    with pytest.raises(
        PriorityTooHigh, match="priority 6 is above 5, the highest that tenant default may use"
    ):
        job.change(priority=6)
    with pytest.raises(PriorityTooHigh):
        shop.app.jobs.change(priority=6, task="work")
    assert job.change(priority=5).priority == 5


def test_jobs_are_run_now_rescheduled_and_retried_over_time_by_filter(shop: Shop) -> None:
    jobs = [shop.work.using(delay=HOUR).enqueue() for _ in range(3)]
    assert shop.app.jobs.reschedule(at=2 * HOUR, task="work").done == 3
    assert all(job.refresh().run_at - job.created_at > timedelta(minutes=119) for job in jobs)
    assert shop.app.jobs.run_now(ids=[jobs[0].id]).done == 1
    assert [job.refresh().status for job in jobs] == ["pending", "scheduled", "scheduled"]
    shop.app.jobs.cancel(task="work")
    assert shop.app.jobs.retry(task="work", spread="30m").done == 3
    now = jobs[0].refresh().run_at
    assert [job.refresh().status for job in jobs] == ["pending", "scheduled", "scheduled"]
    waits = [(job.run_at - now) / timedelta(minutes=1) for job in jobs]
    assert waits == pytest.approx([0, 10, 20], abs=0.5)
    actions = [len(shop.entries(f"jobs.{verb}")) for verb in ("rescheduled", "run_now", "retried")]
    assert actions == [1, 1, 1]
    with pytest.raises(UsageError, match="to the past"):
        shop.app.jobs.reschedule(at=timedelta(0), task="work")
    with pytest.raises(UsageError, match="spread is '9w'"):
        shop.app.jobs.retry(task="work", spread="9w")


def test_jobs_are_changed_by_filter(shop: Shop) -> None:
    slow = [shop.work.using(queue="slow").enqueue() for _ in range(3)]
    later = shop.work.using(queue="slow", delay=HOUR).enqueue()
    other = shop.work.enqueue()
    slow[0].cancel()
    done = shop.app.jobs.change(to_queue="fast", priority=7, queue="slow")
    assert (done.done, done.skipped) == (3, 0)
    found = {job.id: (job.queue, job.priority) for job in shop.app.jobs.list().items}
    assert found == {
        slow[0].id: ("slow", 0),
        slow[1].id: ("fast", 7),
        slow[2].id: ("fast", 7),
        later.id: ("fast", 7),
        other.id: ("default", 0),
    }
    (entry,) = shop.entries("jobs.changed")
    assert (entry.after["to"], entry.after["done"]) == ({"queue": "fast", "priority": 7}, 3)
    assert asyncio.run(shop.app.jobs.achange(priority=1, queue="fast")).done == 3
    with pytest.raises(UsageError, match="there is nothing to change"):
        shop.app.jobs.change(queue="fast")
    with pytest.raises(BadFilter, match="needs a condition"):
        shop.app.jobs.change(priority=1)


# Descendants ---------------------------------------------------------------------------------------------------------


def test_a_job_is_cancelled_with_all_its_descendants(shop: Shop) -> None:
    root = shop.family.using(delay=HOUR).enqueue(depth=0)
    one = shop.work.using(parent=root.id).enqueue()
    two = shop.work.using(parent=one.id, delay=HOUR).enqueue()
    ended = shop.work.using(parent=root.id).enqueue()
    ended.cancel("before")
    below = shop.work.using(parent=ended.id).enqueue()
    other = shop.work.enqueue()
    assert root.cancel("enough", children=True).status is JobState.CANCELLED
    assert [job.refresh().reason for job in (root, one, two, below)] == ["enough"] * 4
    assert ended.refresh().reason == "before"
    assert other.refresh().status is JobState.PENDING
    said = [(entry.after["descendants_of"], entry.after["done"]) for entry in shop.entries("jobs.cancelled")]
    assert said == [(str(root.id), 1), (str(root.id), 2)]


def test_the_children_of_an_ended_job_are_cancelled(shop: Shop) -> None:
    root = shop.family.enqueue(depth=1)
    shop.app.testing().drain()
    root.refresh()
    left = [shop.work.using(parent=root.id).enqueue() for _ in range(2)]
    assert asyncio.run(root.acancel(children=True)).status is JobState.COMPLETED
    assert {job.refresh().status for job in left} == {JobState.CANCELLED}
    with pytest.raises(IllegalTransition):
        root.cancel()


def test_without_children_only_the_job_is_cancelled(shop: Shop) -> None:
    root = shop.work.enqueue()
    child = shop.work.using(parent=root.id).enqueue()
    root.cancel()
    assert child.refresh().status is JobState.PENDING


def test_many_descendants_are_cancelled_in_batches(shop: Shop) -> None:
    root = shop.work.using(delay=HOUR).enqueue()
    shop.work.using(parent=root.id).enqueue_many({"word": str(number)} for number in range(1_201))
    root.cancel(children=True)
    assert shop.app.jobs.count(parent_id=root.id, status="cancelled") == 1_201
    assert [entry.after["done"] for entry in shop.entries("jobs.cancelled")] == [500, 500, 201]


def test_jobs_enqueued_by_a_job_are_its_children(shop: Shop) -> None:
    root = shop.family.enqueue(depth=2)
    shop.app.testing().drain()
    assert len(root.children()) == 2
    assert {len(child.children()) for child in root.children()} == {2}
