"""Laws of recorded events and of the history of alerts."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tidemill.domain.alert_history import NewAlert, SeenAlert
from tidemill.domain.decide import COMPLETED, Action, move
from tidemill.domain.job import Claim, Finish, Transition
from tidemill.domain.lanes import Lane
from tidemill.domain.records import Setting
from tidemill.domain.states import ExecutionState, JobState
from tidemill.domain.subscriptions import NewEvent, StoredEvent, StoredSubscription
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.job_events import DelayedEvent
from tidemill.testing.conformance.kit import (
    AGAIN,
    BOOM,
    CRASHED,
    FAILED,
    T0,
    WORKER,
    a_job,
    asks,
    at,
    claim_one,
    put_one,
)

DEAD = Transition(JobState.DEAD_LETTERED, ExecutionState.FAILED, "attempts exhausted")


def claimed(store: Store) -> Claim:
    """Enqueue a job and claim it."""
    return claim_one(store, put_one(store))


def subscribe(store: Store, *patterns: str, name: str = "billing", states: set[str] | None = None) -> None:
    wanted = StoredSubscription(name, patterns, None if states is None else frozenset(states))
    store.put_settings([wanted.setting()], now=T0)
    store.settings()


def waiting(store: Store, name: str = "billing", seconds: float = 0) -> list[StoredEvent]:
    return store.waiting_events(name, now=at(seconds))


def names(store: Store, name: str = "billing", seconds: float = 0) -> list[tuple[str, str | None]]:
    return [(event.name, event.state) for event in waiting(store, name, seconds)]


class RecordedEventLaws:
    """Events of changes, which are written with the change."""

    def test_no_event_is_recorded_without_a_subscription(self, store: Store) -> None:
        claim = claimed(store)
        store.finish([Finish(claim, COMPLETED)], now=T0)
        assert store.event_backlogs() == []

    def test_an_accepted_finish_is_recorded_and_a_lost_one_is_not(self, store: Store) -> None:
        subscribe(store, "job.finished")
        claim = claimed(store)
        stale = claim._replace(token=claim.token + 1)
        store.finish([Finish(stale, COMPLETED)], now=T0)
        assert waiting(store) == []
        store.finish([Finish(claim, FAILED, error=BOOM)], now=at(1))
        (event,) = waiting(store, seconds=1)
        assert (event.name, event.at, event.job_id) == ("job.finished", at(1), claim.id)
        assert (event.task, event.tenant, event.state) == (claim.task, claim.tenant, "failed")
        assert json.loads(event.data)["error"] == {"type": "ValueError", "message": "boom"}

    def test_a_step_records_the_finishes_of_its_batch(self, store: Store) -> None:
        subscribe(store, "job.finished")
        claim = claimed(store)
        store.enqueue([a_job()], now=T0)
        request = asks(store, WORKER, [Lane("default", "default", 0)], 1)
        result = store.step([Finish(claim, COMPLETED)], request, now=T0)
        assert len(result.claims) == 1
        assert names(store) == [("job.finished", "completed")]

    def test_a_late_cancel_request_is_in_the_event(self, store: Store) -> None:
        subscribe(store, "job.finished", "job.put_off")
        claim = claimed(store)
        store.request_cancel([claim.id], tenant="default", reason="no longer wanted")
        store.finish([Finish(claim, AGAIN)], now=T0)
        assert names(store) == [("job.finished", "cancelled")]

    def test_a_retry_and_a_crash_have_their_own_names(self, store: Store) -> None:
        subscribe(store, "job.put_off", "job.reclaimed", states={"pending"})
        claim = claimed(store)
        store.finish([Finish(claim, AGAIN)], now=T0)
        store.finish([Finish(claim_one(store), CRASHED)], now=T0)
        assert names(store) == [("job.put_off", "pending"), ("job.reclaimed", "pending")]

    def test_a_subscription_may_want_some_states_only(self, store: Store) -> None:
        subscribe(store, "job.finished", states={"dead_lettered"})
        store.finish([Finish(claimed(store), COMPLETED)], now=T0)
        store.finish([Finish(claimed(store), DEAD)], now=T0)
        assert names(store) == [("job.finished", "dead_lettered")]

    def test_new_jobs_are_recorded_on_request(self, store: Store) -> None:
        subscribe(store, "job.enqueued")
        job = a_job()
        store.enqueue([job], now=T0)
        store.enqueue(iter([a_job(), a_job()]), now=T0)
        assert names(store) == [("job.enqueued", "pending")] * 3
        later = [a_job(run_at=at(9)), a_job(run_at=at(-9)), a_job(delay=timedelta(seconds=9))]
        store.enqueue([*later, a_job(waiting="for an answer")], now=T0)
        assert [state for _, state in names(store)[3:]] == ["scheduled", "pending", "scheduled", "waiting"]
        assert waiting(store)[0].job_id == job.id

    def test_an_action_is_recorded_with_its_actor(self, store: Store) -> None:
        subscribe(store, "job.cancelled")
        job = a_job()
        store.enqueue([job], now=T0)
        (row,) = store.get([job.id], tenant="default")
        store.move([move(row, Action.CANCEL, "a typo", by="ada")], now=T0)
        store.move([move(row, Action.CANCEL, "again", by="bob")], now=T0)
        (event,) = waiting(store)
        assert (event.name, event.state, event.task) == ("job.cancelled", "cancelled", job.task)
        assert json.loads(event.data) == {"reason": "a typo", "by": "ada"}

    def test_jobs_of_tidemill_itself_are_not_recorded(self, store: Store) -> None:
        subscribe(store, "*")
        assert store.append_events([NewEvent("job.finished", new_id(), "tidemill.notification")], now=T0) == 0

    def test_an_event_is_rolled_back_with_its_change(self, store: Store) -> None:
        subscribe(store, "job.finished")
        claim = claimed(store)

        def work() -> None:
            with store.transaction():
                store.finish([Finish(claim, COMPLETED)], now=T0)
                raise LookupError

        with pytest.raises(LookupError):
            work()
        assert waiting(store) == []


class SubscriptionLaws:
    """Delivery of recorded events."""

    def test_every_subscription_has_its_own_events_in_order(self, store: Store) -> None:
        subscribe(store, "order.*")
        subscribe(store, "*", name="audit")
        ids = [new_id(), new_id()]
        store.append_events([NewEvent("order.paid", id, data='{"é":1}') for id in ids], now=T0)
        assert [event.job_id for event in waiting(store)] == ids
        assert [event.job_id for event in waiting(store, "audit")] == ids
        first, second = waiting(store)
        assert store.settle_events([first.seq]) == {first.seq}
        assert store.settle_events([first.seq]) == frozenset()
        assert waiting(store) == [second]
        assert len(waiting(store, "audit")) == 2
        assert first.data == '{"é":1}'

    def test_a_delayed_event_holds_back_later_ones_of_its_job_only(self, store: Store) -> None:
        subscribe(store, "*")
        one, two = new_id(), new_id()
        store.append_events([NewEvent("a", one), NewEvent("b", one), NewEvent("c", two)], now=T0)
        first = waiting(store)[0]
        store.delay_events([DelayedEvent(first.seq, timedelta(seconds=5), "no connection")], now=T0)
        assert [event.name for event in waiting(store)] == ["c"]
        due = waiting(store, seconds=5)
        assert [(event.name, event.attempts) for event in due] == [("a", 1), ("b", 0), ("c", 0)]

    def test_the_backlog_counts_waiting_and_failing_events(self, store: Store) -> None:
        subscribe(store, "*")
        store.append_events([NewEvent("a"), NewEvent("b")], now=T0)
        store.delay_events([DelayedEvent(waiting(store)[0].seq, timedelta(hours=1), "boom")], now=at(1))
        (backlog,) = store.event_backlogs()
        assert backlog == ("billing", 2, 1, T0, "boom")

    def test_a_dropped_subscription_loses_its_events(self, store: Store) -> None:
        subscribe(store, "*")
        subscribe(store, "*", name="audit")
        store.append_events([NewEvent("a"), NewEvent("b")], now=T0)
        assert store.drop_subscription("billing") == 2
        assert [backlog.subscription for backlog in store.event_backlogs()] == ["audit"]

    def test_a_subscription_ends_when_its_setting_is_removed(self, store: Store) -> None:
        subscribe(store, "*")
        store.drop_settings(["events/billing"])
        store.settings()
        assert store.append_events([NewEvent("a")], now=T0) == 0

    def test_an_invalid_subscription_is_ignored(self, store: Store) -> None:
        store.put_settings([Setting("events/x", 3), Setting("events/y", {"on": "job"})], now=T0)
        store.settings()
        assert store.subscriptions == ()

    def test_an_empty_batch_of_events_does_nothing(self, store: Store) -> None:
        assert store.append_events([], now=T0) == 0
        assert store.settle_events([]) == frozenset()
        store.delay_events([], now=T0)


def an_alert(code: str = "queue_depth", subject: str = "default") -> NewAlert:
    return NewAlert(new_id(), code, subject, "warning", "many jobs", 120.0, 100.0, T0)


class AlertHistoryLaws:
    """Alerts open once, are acknowledged once and recover once."""

    def test_every_field_of_an_alert_is_stored(self, store: Store) -> None:
        alert = an_alert()
        assert store.open_alerts([alert], now=at(1)) == {alert.id}
        (stored,) = store.stored_alerts()
        assert (stored.id, stored.code, stored.subject, stored.severity) == alert[:4]
        assert (stored.text, stored.value, stored.threshold, stored.since) == alert[4:]
        assert (stored.opened_at, stored.seen_at, stored.is_open) == (at(1), at(1), True)

    def test_an_open_alert_is_not_opened_again(self, store: Store) -> None:
        first, again, other = an_alert(), an_alert(), an_alert(subject="mail")
        assert store.open_alerts([first], now=T0) == {first.id}
        assert store.open_alerts([again, other], now=T0) == {other.id}
        assert store.recover_alerts([first.id, again.id], now=at(1)) == {first.id}
        assert store.open_alerts([again], now=at(2)) == {again.id}
        assert [alert.id for alert in store.stored_alerts(recovered=True)] == [first.id]
        assert {alert.id for alert in store.stored_alerts(recovered=False)} == {again.id, other.id}

    def test_an_alert_recovers_once_and_changes_no_more(self, store: Store) -> None:
        alert = an_alert()
        store.open_alerts([alert], now=T0)
        assert store.see_alerts([SeenAlert(alert.id, "critical", "more", 200.0)], now=at(1)) == {alert.id}
        assert store.recover_alerts([alert.id], now=at(2)) == {alert.id}
        assert store.recover_alerts([alert.id], now=at(3)) == frozenset()
        assert store.see_alerts([SeenAlert(alert.id, "warning", "less", 1.0)], now=at(3)) == frozenset()
        assert store.acknowledge_alerts([alert.id], by="ada", now=at(3)) == frozenset()
        (stored,) = store.stored_alerts()
        assert (stored.severity, stored.text, stored.value) == ("critical", "more", 200.0)
        assert (stored.seen_at, stored.recovered_at) == (at(1), at(2))

    def test_the_first_acknowledgement_counts(self, store: Store) -> None:
        alert = an_alert()
        store.open_alerts([alert], now=T0)
        assert store.acknowledge_alerts([alert.id], by="ada", now=at(1)) == {alert.id}
        assert store.acknowledge_alerts([alert.id], by="bob", now=at(2)) == frozenset()
        (stored,) = store.stored_alerts()
        assert (stored.acknowledged_at, stored.acknowledged_by) == (at(1), "ada")

    def test_alerts_are_listed_newest_first_and_page_by_page(self, store: Store) -> None:
        for number in range(3):
            store.open_alerts([an_alert(subject=str(number))], now=at(number))
        assert [alert.subject for alert in store.stored_alerts(limit=2)] == ["2", "1"]
        assert [alert.subject for alert in store.stored_alerts(before=at(1))] == ["0"]

    def test_only_alerts_that_recovered_long_ago_are_deleted(self, store: Store) -> None:
        old, new, still = (an_alert(subject=name) for name in "abc")
        store.open_alerts([old, new, still], now=T0)
        store.recover_alerts([old.id], now=T0)
        store.recover_alerts([new.id], now=at(10))
        assert store.drop_alerts(timedelta(seconds=5), now=at(11)) == 1
        assert {alert.id for alert in store.stored_alerts()} == {new.id, still.id}
