"""Laws of occurrences: written with their cause, once for each schedule, and kept until they are dropped."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from tidemill.domain.decide import COMPLETED, Action, move
from tidemill.domain.job import Details, Finish
from tidemill.domain.reactions import Occurrence
from tidemill.domain.record import Keep
from tidemill.domain.schedules import Definition, ScheduleRow
from tidemill.domain.signals import EmittedEvent
from tidemill.domain.states import JobState
from tidemill.domain.triggers.reactive import After, On
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.occurrences import tied_if_followed
from tidemill.testing.conformance.kit import (
    FAILED,
    SECOND,
    T0,
    a_job,
    at,
    claim_all,
    claim_one,
    get_one,
    retry,
)
from tidemill.testing.conformance.planned_fires import define, plan_one, schedule_of


def follow(store: Store, *keys: str, name: str = "load", **fields: Any) -> ScheduleRow:
    """Write a schedule that runs after these definitions."""
    return plan_one(store, name, trigger=After(*keys).to_data(), next_fire_at=None, **fields)


def put_job_of(store: Store, definition: Definition, **fields: Any) -> UUID:
    """Enqueue a job of a definition, tied as its callers do."""
    details = Details(definition_id=definition.id, definition_version=definition.version)
    (job,) = tied_if_followed(store, [a_job(details=details, **fields)])
    store.enqueue([job], now=T0)
    return job.id


def complete(store: Store, now: int = 1, **fields: Any) -> None:
    """Claim and complete every due job."""
    claims = claim_all(store)
    assert not store.finish([Finish(claim, COMPLETED, **fields) for claim in claims], now=at(now))


def seen(store: Store, *schedules: ScheduleRow) -> list[Occurrence]:
    return store.occurrences([schedule.id for schedule in schedules])


class OccurrenceLaws:
    """Law 37."""

    def test_the_end_of_a_job_occurs_for_every_schedule_that_runs_after_its_definition(
        self, store: Store
    ) -> None:
        extract, other = define(store, "extract"), define(store, "other")
        one, two = follow(store, "extract"), follow(store, "extract", "other", name="both")
        job = put_job_of(store, extract)
        assert seen(store, one, two) == []
        complete(store)
        expected = [Occurrence(id, job, "extract", at(1), "success") for id in sorted([one.id, two.id])]
        assert seen(store, one, two) == expected
        assert store.reacting() == sorted([one.id, two.id])
        assert store.reacting(after=min(one.id, two.id)) == [max(one.id, two.id)]
        assert store.followed([extract.id, other.id, new_id()]) == {extract.id, other.id}

    def test_an_end_of_another_definition_occurs_for_nobody(self, store: Store) -> None:
        define(store, "extract")
        other, foreign = define(store, "other"), define(store, "extract", tenant="acme")
        schedule = follow(store, "extract")
        assert store.followed([other.id, foreign.id]) == frozenset()
        put_job_of(store, other)
        put_job_of(store, foreign, tenant="acme")
        complete(store)
        assert seen(store, schedule) == []

    def test_an_end_without_a_worker_occurs_too(self, store: Store) -> None:
        extract = define(store, "extract")
        schedule = follow(store, "extract")
        job = put_job_of(store, extract)
        assert store.move([move(get_one(store, job), Action.CANCEL, "no")], now=at(2)) == {job}
        assert seen(store, schedule) == [Occurrence(schedule.id, job, "extract", at(2), "cancel")]

    def test_an_end_that_is_taken_back_removes_its_occurrence(self, store: Store) -> None:
        extract = define(store, "extract")
        schedule = follow(store, "extract")
        job = put_job_of(store, extract)
        claim = claim_one(store)
        assert not store.finish([Finish(claim, FAILED)], now=at(1))
        assert [one.outcome for one in seen(store, schedule)] == ["failure"]
        assert store.move([retry(get_one(store, job))], now=at(2)) == {job}
        assert seen(store, schedule) == []
        complete(store, 3)
        assert seen(store, schedule) == [Occurrence(schedule.id, job, "extract", at(3), "success")]

    def test_a_job_that_keeps_no_record_occurs(self, store: Store) -> None:
        extract = define(store, "extract")
        schedule = follow(store, "extract")
        put_job_of(store, extract)
        complete(store, keep=Keep.NOTHING)
        assert len(seen(store, schedule)) == 1

    def test_an_occurrence_is_not_written_if_its_end_is_rolled_back(self, store: Store) -> None:
        extract = define(store, "extract")
        schedule = follow(store, "extract")
        job = put_job_of(store, extract)
        claim = claim_one(store)
        with suppress(ZeroDivisionError), store.transaction():
            assert not store.finish([Finish(claim, COMPLETED)], now=at(1))
            raise ZeroDivisionError
        assert seen(store, schedule) == []
        assert get_one(store, job).state is JobState.RUNNING or get_one(store, job).state is JobState.CLAIMED

    def test_a_disabled_schedule_sees_nothing(self, store: Store) -> None:
        extract, downstream = define(store, "extract"), define(store, "load")
        paused = follow(store, "extract", name="paused", enabled=False)
        disabled = follow(store, "extract", name="disabled", definition_id=downstream.id)
        store.enable_definitions([downstream.id], tenant="default", enabled=False, now=at(0))
        put_job_of(store, extract)
        complete(store)
        assert seen(store, paused, disabled) == []

    def test_an_event_occurs_once_for_every_schedule_of_its_name(self, store: Store) -> None:
        paid = plan_one(store, "paid", trigger=On("paid").to_data(), next_fire_at=None)
        plan_one(store, "other", trigger=On("other").to_data(), next_fire_at=None)
        event = EmittedEvent(new_id(), "default", "paid", "42", '{"sum":1}')
        foreign = EmittedEvent(new_id(), "acme", "paid")
        assert store.emit([event, foreign], now=at(1)) == {event.id, foreign.id}
        assert store.emit([event], now=at(2)) == frozenset()
        assert seen(store, paid) == [Occurrence(paid.id, event.id, "paid", at(1), "", "42", '{"sum":1}')]
        assert store.reacting() == [paid.id]

    def test_occurrences_are_read_in_order_and_dropped_once(self, store: Store) -> None:
        paid = plan_one(store, "paid", trigger=On("paid").to_data(), next_fire_at=None)
        events = [EmittedEvent(new_id(), "default", "paid") for _ in range(3)]
        for seconds, event in enumerate(reversed(events)):
            store.emit([event], now=at(seconds))
        first, second, third = seen(store, paid)
        assert [one.id for one in (first, second, third)] == [event.id for event in reversed(events)]
        assert store.occurrences([paid.id], limit=2) == [first, second]
        assert store.drop_occurrences([first.key, third.key._replace(occurred_at=T0 - SECOND)]) == 1
        assert store.drop_occurrences([first.key]) == 0
        assert seen(store, paid) == [second, third]

    def test_occurrences_go_with_their_schedule_and_stay_with_a_changed_rule(self, store: Store) -> None:
        paid = plan_one(store, "paid", trigger=On("paid").to_data(), next_fire_at=None)
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=at(1))
        now = schedule_of(store, paid.id)
        assert not store.put_schedules(
            [ScheduleRow(**{**_fields(now), "trigger": On("refunded").to_data()})], now=at(2)
        )
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=at(3))
        assert len(seen(store, paid)) == 1
        assert store.drop_schedules([paid.id], tenant="default") == {paid.id}
        assert seen(store, paid) == [] == store.reacting()


def _fields(row: ScheduleRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ScheduleRow.__slots__}
