"""Laws of signals and events: accepted once, taken once, and never across tenants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.decide import Action, move
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Additions, StepRecord, Wait
from tidemill.domain.job import Claim, Finish
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.signals import MOST_UNREAD, EmittedEvent, NewSignal, Posted, SignalFence, Taken
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    HOUR,
    OTHER,
    SECOND,
    SUSPENDED,
    T0,
    UNHELD,
    at,
    bring,
    claim_one,
    due,
    finish_all,
    get_one,
    held,
    patiently,
    put_one,
    together,
)


def post(store: Store, job_id: UUID, name: str = "go", *, now: datetime = T0, **fields: str) -> Posted:
    """Post one signal to a job of the default tenant."""
    tenant = fields.pop("tenant", "default")
    (answer,) = store.post_signals([NewSignal(job_id, tenant, name, **fields)], now=now)
    return answer


def take(
    store: Store, claim: Claim, *names: str, record: str = "step/go", before: datetime | None = None
) -> Taken:
    """Take the oldest signal of these names (``go`` if none is given)."""
    fence = SignalFence(claim.id, claim.token, claim.worker)
    return store.take_signal(fence, names or ("go",), record, before=before, now=at(60))


def suspend(
    store: Store, claim: Claim, *waits: Wait, records: Sequence[StepRecord] = (), now: datetime = T0
) -> None:
    """Suspend a held job that waits for these."""
    finish = Finish(claim, SUSPENDED, additions=Additions(waits=waits, records=tuple(records)))
    assert store.finish([finish], now=now) == frozenset()


def waiting(store: Store, *waits: Wait, **fields: Any) -> Claim:
    """Return the last claim of a new job that waits for these."""
    claim = claim_one(store, put_one(store, **fields))
    suspend(store, claim, *waits)
    return claim


def payload_of(taken: Taken) -> object:
    """Return the payload in the record of a taken signal."""
    assert taken.record is not None
    return json.loads(taken.record)["v"]


def names_of(store: Store, id: UUID) -> list[str]:
    """Return the names of a job's unread signals."""
    return [signal.name for signal in store.signals(id, tenant=ALL_TENANTS)]


class MailboxLaws:
    """Signals are kept in order, and accepted once per key."""

    def test_a_signal_is_read_as_it_was_posted(self, store: Store) -> None:
        id = put_one(store)
        odd = '{"é":"“🦊”\\u0000"}'
        assert (
            post(store, id, "ödd ':id", payload=odd, key="k ':key", source="ada@ö", now=at(3))
            is Posted.ACCEPTED
        )
        (signal,) = store.signals(id, tenant="default")
        assert signal[1:] == (id, "default", "ödd ':id", odd, "k ':key", "ada@ö", at(3))

    def test_an_empty_batch_posts_nothing(self, store: Store) -> None:
        assert store.post_signals([]) == []

    @pytest.mark.parametrize("state", sorted(JobState))
    def test_a_live_job_accepts_signals_and_an_ended_one_refuses_them(
        self, store: Store, state: JobState
    ) -> None:
        job = bring(store, state)
        answer = Posted.ENDED if state in ENDED else Posted.ACCEPTED
        assert post(store, job.id) is answer
        assert len(store.signals(job.id, tenant="default")) == (answer is Posted.ACCEPTED)

    def test_a_signal_to_an_unknown_job_is_missing(self, store: Store) -> None:
        assert post(store, new_id()) is Posted.MISSING

    def test_a_signal_to_a_job_of_another_tenant_is_missing(self, store: Store) -> None:
        id = put_one(store, tenant="ours")
        assert post(store, id, tenant="theirs") is Posted.MISSING
        assert post(store, id, tenant="ours") is Posted.ACCEPTED
        assert post(store, id, tenant=ALL_TENANTS) is Posted.ACCEPTED
        assert {signal.tenant for signal in store.signals(id, tenant="ours")} == {"ours"}
        assert store.signals(id, tenant="theirs") == []

    def test_signals_stay_in_the_order_of_acceptance(self, store: Store) -> None:
        id = put_one(store)
        batch = [NewSignal(id, "default", name) for name in ("a", "b", "a")]
        assert store.post_signals(batch, now=at(9)) == [Posted.ACCEPTED] * 3
        post(store, id, "c", now=T0)
        assert names_of(store, id) == ["a", "b", "a", "c"]

    def test_signals_are_read_in_pages(self, store: Store) -> None:
        id = put_one(store)
        store.post_signals([NewSignal(id, "default", name) for name in "abcde"], now=T0)
        first = store.signals(id, tenant="default", limit=2)
        rest = store.signals(id, tenant="default", after=first[-1].position)
        assert [signal.name for signal in (*first, *rest)] == list("abcde")
        with pytest.raises(BadFilter):
            store.signals(id, tenant="default", limit=0)

    def test_a_key_is_accepted_once_per_job(self, store: Store) -> None:
        id, other = put_one(store), put_one(store)
        assert post(store, id, key="k", payload="1") is Posted.ACCEPTED
        assert post(store, id, "another", key="k", payload="2") is Posted.REPEATED
        assert post(store, other, key="k") is Posted.ACCEPTED
        assert [signal.payload for signal in store.signals(id, tenant="default")] == ["1"]

    def test_a_key_is_accepted_once_within_a_batch(self, store: Store) -> None:
        id = put_one(store)
        batch = [NewSignal(id, "default", "go", key="k"), NewSignal(id, "default", "go", key="k")]
        assert store.post_signals(batch, now=T0) == [Posted.ACCEPTED, Posted.REPEATED]

    def test_a_key_stays_accepted_after_its_signal_was_taken(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, key="k", payload="1")
        assert payload_of(take(store, claim)) == 1
        assert post(store, claim.id, key="k", payload="2") is Posted.REPEATED
        assert store.signals(claim.id, tenant="default") == []
        assert take(store, claim, record="step/go#2") == Taken(None)

    def test_a_key_stays_accepted_after_its_job_ended(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, key="k")
        finish_all(store, [claim])
        assert post(store, claim.id, key="k") is Posted.REPEATED
        assert post(store, claim.id, key="l") is Posted.ENDED

    def test_one_of_two_senders_with_the_same_key_is_accepted(self, store: Store) -> None:
        id = put_one(store)
        answers = together([lambda: patiently(post, store, id, key="k")] * 4)
        assert sorted(answers) == [Posted.ACCEPTED, *[Posted.REPEATED] * 3]

    def test_a_job_has_a_bounded_number_of_unread_signals(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        batch = [NewSignal(claim.id, "default", "go", str(n)) for n in range(MOST_UNREAD + 2)]
        answers = store.post_signals(batch, now=T0)
        assert answers == [Posted.ACCEPTED] * MOST_UNREAD + [Posted.FULL] * 2
        assert post(store, claim.id) is Posted.FULL
        take(store, claim)
        assert post(store, claim.id) is Posted.ACCEPTED
        assert post(store, claim.id) is Posted.FULL

    def test_a_signal_that_is_rolled_back_was_never_sent(self, store: Store) -> None:
        id = put_one(store)
        with suppress(ZeroDivisionError), store.transaction():
            assert post(store, id, key="k") is Posted.ACCEPTED
            raise ZeroDivisionError
        assert names_of(store, id) == []
        assert post(store, id, key="k") is Posted.ACCEPTED

    def test_unread_signals_are_counted_with_their_age(self, store: Store) -> None:
        assert store.unread_signals() == (0, None)
        claim = claim_one(store, put_one(store))
        post(store, claim.id, now=at(5), key="k")
        post(store, claim.id, "other", now=at(7))
        assert store.unread_signals() == (2, at(5))
        take(store, claim)
        assert store.unread_signals() == (1, at(7))

    def test_deleting_a_job_deletes_its_signals(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, key="k")
        finish_all(store, [claim])
        store.delete([claim.id], tenant="default")
        assert store.unread_signals() == (0, None)

    def test_archiving_a_job_deletes_its_signals(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        finish_all(store, [claim])
        documents = due(store, ArchivePolicy("all", max_age=timedelta(0)), at(9))
        store.put_archive(documents)
        assert store.forget(documents) == {claim.id}
        assert store.unread_signals() == (0, None)


class TakeLaws:
    """A signal is taken once, with the record of the step that took it."""

    def test_the_oldest_signal_of_a_name_is_taken_with_its_record(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, "other", payload="0")
        post(store, claim.id, payload='{"n":[1,"ö"]}', source='a"b\\c', now=at(2))
        post(store, claim.id, payload="2")
        taken = take(store, claim)
        assert taken.record is not None
        instant = (at(2) - datetime(1970, 1, 1, tzinfo=T0.tzinfo)) // timedelta(microseconds=1)
        assert json.loads(taken.record) == {
            "v": {"n": [1, "ö"]}, "is": "signal",
            "name": "go", "source": 'a"b\\c', "at": instant,
        }  # fmt: skip
        assert store.checkpoints(claim.id, tenant="default") == {"step/go": taken.record}
        assert [signal.payload for signal in store.signals(claim.id, tenant="default")] == ["0", "2"]

    def test_a_signal_without_payload_or_sender_has_nulls_in_its_record(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        record = json.loads(take(store, claim).record or "")
        assert (record["v"], record["source"]) == (None, None)

    def test_the_oldest_signal_of_several_names_is_taken(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        for name in ("c", "b", "a"):
            post(store, claim.id, name)
        record = take(store, claim, "a", "b").record or ""
        assert json.loads(record)["name"] == "b"

    def test_nothing_is_taken_where_no_signal_fits(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, "other")
        assert take(store, claim) == Taken(None)
        assert store.checkpoints(claim.id, tenant="default") == {}

    def test_a_step_that_has_its_record_takes_no_other_signal(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, payload="1")
        post(store, claim.id, payload="2")
        first = take(store, claim)
        assert take(store, claim) == first
        assert len(store.signals(claim.id, tenant="default")) == 1
        assert payload_of(take(store, claim, record="step/go#2")) == 2

    def test_a_signal_accepted_at_the_deadline_counts_and_a_later_one_stays(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, payload="1", now=at(10))
        post(store, claim.id, payload="2", now=at(11))
        assert payload_of(take(store, claim, before=at(10))) == 1
        assert take(store, claim, record="step/go#2", before=at(10)) == Taken(None)
        assert payload_of(take(store, claim, record="step/go#2", before=at(11))) == 2

    def test_only_the_holder_takes_signals(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        for stale in (claim._replace(token=claim.token + 1), claim._replace(worker=OTHER)):
            assert take(store, stale) == Taken(None, lost=True)
        finish_all(store, [claim], AGAIN)
        assert take(store, claim) == Taken(None, lost=True)
        again = claim_one(store, claim.id)
        assert take(store, claim) == Taken(None, lost=True)
        assert take(store, again).record is not None

    @pytest.mark.parametrize("state", sorted(UNHELD))
    def test_a_job_that_is_not_held_takes_nothing(self, store: Store, state: JobState) -> None:
        assert take(store, held(bring(store, state))) == Taken(None, lost=True)

    def test_a_record_stays_when_its_job_is_claimed_again(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        first = take(store, claim)
        finish_all(store, [claim], CRASHED)
        again = claim_one(store, claim.id)
        assert take(store, again) == first

    def test_a_job_that_took_a_signal_counts_attempts_and_crashes_from_then(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], CRASHED)
        again = claim_one(store, claim.id)
        assert (again.attempt, again.crashes) == (2, 1)
        post(store, claim.id)
        take(store, again)
        job = get_one(store, claim.id)
        assert (job.attempt, job.crashes) == (1, 0)

    def test_a_take_that_is_rolled_back_leaves_the_signal(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, key="k", payload="1")
        with suppress(ZeroDivisionError), store.transaction():
            take(store, claim)
            raise ZeroDivisionError
        assert store.checkpoints(claim.id, tenant="default") == {}
        assert payload_of(take(store, claim)) == 1

    def test_one_signal_is_taken_by_one_of_two_steps(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        works = [
            lambda record=record: patiently(take, store, claim, record=record)
            for record in ("step/a", "step/b")
        ]
        taken = together(works)
        assert sum(answer.record is not None for answer in taken) == 1
        assert len(store.checkpoints(claim.id, tenant="default")) == 1


class ReceiverLaws:
    """Suspended jobs are woken when a signal or event that they wait for is there."""

    def test_a_signal_wakes_the_job_that_waits_for_it(self, store: Store) -> None:
        claim = waiting(store, Wait("go"), queue="mail")
        assert store.wake_receivers([claim.id], now=T0) == []
        post(store, claim.id)
        assert store.wake_receivers([claim.id], now=at(3)) == [(claim.id, "mail")]
        job = get_one(store, claim.id)
        assert (job.state, job.run_at) == (JobState.PENDING, at(3))
        assert store.wake_receivers([claim.id], now=T0) == []

    def test_a_delivered_signal_wakes_its_job_once(self, store: Store) -> None:
        claim = waiting(store, Wait("go"), queue="mail")
        signal = NewSignal(claim.id, "default", "go", "1", key="k")
        assert store.deliver_signal(signal, now=at(3)) == (Posted.ACCEPTED, [(claim.id, "mail")])
        job = get_one(store, claim.id)
        assert (job.state, job.run_at) == (JobState.PENDING, at(3))
        assert store.deliver_signal(signal, now=at(4)) == (Posted.REPEATED, [])
        assert [unread.payload for unread in store.signals(claim.id, tenant="default")] == ["1"]

    def test_a_delivered_signal_wakes_no_job_that_waits_for_another_one(self, store: Store) -> None:
        claim = waiting(store, Wait("go"))
        stop = NewSignal(claim.id, "default", "stop")
        assert store.deliver_signal(stop, now=T0) == (Posted.ACCEPTED, [])
        assert store.deliver_signal(stop._replace(tenant="other"), now=T0) == (Posted.MISSING, [])
        assert get_one(store, claim.id).state is JobState.WAITING
        assert len(store.signals(claim.id, tenant="default")) == 1

    def test_a_signal_before_the_wait_wakes_the_job_too(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id)
        assert store.wake_receivers([claim.id], now=T0) == []
        suspend(store, claim, Wait("go"))
        assert [woken.id for woken in store.wake_receivers([claim.id], now=T0)] == [claim.id]

    def test_a_signal_of_another_name_wakes_no_job(self, store: Store) -> None:
        claim = waiting(store, Wait("go"))
        post(store, claim.id, "stop")
        assert store.wake_receivers([claim.id], now=T0) == []
        assert store.wake_receivers(now=T0) == []

    def test_a_taken_signal_wakes_no_job(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        post(store, claim.id, key="k")
        take(store, claim)
        suspend(store, claim, Wait("go"))
        assert store.wake_receivers([claim.id], now=T0) == []

    def test_an_event_wakes_the_jobs_that_wait_for_it(self, store: Store) -> None:
        alike = waiting(store, Wait("paid", "42", event=True))
        whatever = waiting(store, Wait("paid", event=True))
        waiting(store, Wait("paid", "43", event=True))
        waiting(store, Wait("paid", "42", event=True), tenant="theirs")
        waiting(store, Wait("paid"))
        event = EmittedEvent(new_id(), "default", "paid", "42")
        assert store.wake_receivers(event_id=event.id, now=T0) == []
        store.emit([event], now=at(1))
        woken = store.wake_receivers(event_id=event.id, now=T0)
        assert {receiver.id for receiver in woken} == {alike.id, whatever.id}
        assert store.wake_receivers(now=T0) == []

    def test_an_event_since_the_creation_of_the_job_wakes_it(self, store: Store) -> None:
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=at(-1))
        claim = claim_one(store, put_one(store))
        suspend(store, claim, Wait("paid", event=True))
        assert store.wake_receivers([claim.id], now=T0) == []
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=T0)
        assert [receiver.id for receiver in store.wake_receivers([claim.id], now=T0)] == [claim.id]

    def test_a_wait_may_exclude_earlier_events(self, store: Store) -> None:
        claim = waiting(store, Wait("paid", event=True, since=at(5)))
        event = EmittedEvent(new_id(), "default", "paid")
        store.emit([event], now=at(4))
        assert store.wake_receivers([claim.id], now=T0) == []
        assert store.wake_receivers(event_id=event.id, now=T0) == []
        assert store.wake_receivers(now=T0) == []
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=at(5))
        assert len(store.wake_receivers(now=T0)) == 1

    def test_all_receivers_are_found_without_naming_them(self, store: Store) -> None:
        signalled, told = waiting(store, Wait("go")), waiting(store, Wait("paid", event=True))
        waiting(store, Wait("go"))
        post(store, signalled.id, now=at(1))
        store.emit([EmittedEvent(new_id(), "default", "paid")], now=at(1))
        assert store.wake_receivers(within=SECOND, now=at(3)) == []
        assert {receiver.id for receiver in store.wake_receivers(within=2 * SECOND, now=at(3))} == {
            signalled.id,
            told.id,
        }

    def test_a_wake_up_moves_a_bounded_number_of_jobs(self, store: Store) -> None:
        claims = [waiting(store, Wait("go")) for _ in range(3)]
        for claim in claims:
            post(store, claim.id)
        sizes = [len(store.wake_receivers(limit=2, now=T0)) for _ in range(3)]
        assert sizes == [2, 1, 0]

    def test_a_job_without_waits_is_not_woken(self, store: Store) -> None:
        claim = waiting(store)
        post(store, claim.id)
        assert store.wake_receivers([claim.id], now=T0) == []
        assert store.wake_receivers([new_id()], now=T0) == []
        assert store.wake_receivers([], now=T0) == []

    def test_a_suspension_replaces_the_waits_of_the_one_before(self, store: Store) -> None:
        claim = waiting(store, Wait("go"), Wait("paid", event=True))
        post(store, claim.id, "go")
        store.wake_receivers([claim.id], now=T0)
        suspend(store, claim_one(store, claim.id), Wait("stop"))
        assert [wait.name for wait in store.waits([claim.id], tenant="default")] == ["stop"]
        assert store.wake_receivers([claim.id], now=T0) == []

    def test_waits_left_behind_wake_no_job(self, store: Store) -> None:
        claim = waiting(store, Wait("go"))
        post(store, claim.id, "go")
        store.wake_receivers([claim.id], now=T0)
        again = claim_one(store, claim.id)
        finish_all(store, [again], SUSPENDED)
        assert store.waits([claim.id], tenant="default") == []
        assert store.wake_receivers([claim.id], now=T0) == []
        assert store.wake_receivers(now=T0) == []

    def test_waits_are_shown_while_the_job_is_suspended(self, store: Store) -> None:
        claim = waiting(store, Wait("paid", "42", event=True, since=at(2)), Wait("go"), Wait("also"))
        rows = [
            (claim.id, "also", "", False, T0),
            (claim.id, "go", "", False, T0),
            (claim.id, "paid", "42", True, at(2)),
        ]
        assert store.waits([claim.id, new_id()], tenant="default") == rows
        assert store.waits([claim.id], tenant="theirs") == []
        assert store.waits([], tenant="default") == []
        post(store, claim.id)
        store.wake_receivers([claim.id], now=T0)
        assert store.waits([claim.id], tenant="default") == []

    def test_questions_are_waits_for_people(self, store: Store) -> None:
        first, second = waiting(store, Wait("ask/a")), waiting(store, Wait("ask/b"))
        waiting(store, Wait("asked"))
        waiting(store, Wait("ask/c"), tenant="theirs")
        asked = store.questions(tenant="default")
        assert [(wait.job_id, wait.name) for wait in asked] == [(first.id, "ask/a"), (second.id, "ask/b")]
        assert [wait.name for wait in store.questions(tenant="default", after=first.id)] == ["ask/b"]
        assert len(store.questions(tenant="default", limit=1)) == 1
        assert len(store.questions(tenant=ALL_TENANTS)) == 3

    def test_records_and_waits_are_written_with_the_suspension(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        record = StepRecord(claim.id, claim.token, claim.worker, "step/until", "1")
        suspend(store, claim, Wait("go"), records=[record])
        assert store.checkpoints(claim.id, tenant="default") == {"step/until": "1"}
        stale = Finish(claim, SUSPENDED, additions=Additions(waits=(Wait("stop"),)))
        assert store.finish([stale], now=T0) == {claim.id}
        assert [wait.name for wait in store.waits([claim.id], tenant="default")] == ["go"]

    def test_a_second_suspension_replaces_the_waits_of_the_first(self, store: Store) -> None:
        claim = waiting(store, Wait("go"), Wait("stop"))
        post(store, claim.id)
        assert store.wake_receivers([claim.id], now=at(1))
        suspend(store, claim_one(store, claim.id), Wait("stop"), now=at(2))
        assert [wait.name for wait in store.waits([claim.id], tenant="default")] == ["stop"]

    def test_a_cancelled_job_waits_for_nothing(self, store: Store) -> None:
        claim = waiting(store, Wait("go"))
        job = get_one(store, claim.id)
        store.move([move(job, Action.CANCEL, "no")], now=T0)
        assert store.waits([claim.id], tenant="default") == []
        assert post(store, claim.id) is Posted.ENDED


class EventLaws:
    """An event is stored once per id, and seen by its tenant."""

    def test_an_event_is_read_as_it_was_emitted(self, store: Store) -> None:
        event = EmittedEvent(new_id(), "ours", "ödd ':id", "m'", '{"é":"\\u0000"}', "ada")
        assert store.emit([event], now=at(4)) == {event.id}
        assert store.events(tenant="ours") == [event._replace(created_at=at(4))]
        assert store.events(tenant="theirs") == []
        assert store.emit([]) == frozenset()

    def test_an_event_of_an_id_is_stored_once(self, store: Store) -> None:
        event = EmittedEvent(new_id(), "default", "paid", payload="1")
        assert store.emit([event, event], now=T0) == {event.id}
        assert store.emit([event._replace(payload="2")], now=at(1)) == frozenset()
        (stored,) = store.events(tenant="default")
        assert (stored.payload, stored.created_at) == ("1", T0)

    def test_events_are_found_by_name_match_and_time(self, store: Store) -> None:
        for n, (name, match) in enumerate([("paid", "1"), ("paid", "2"), ("sent", "1"), ("paid", "")]):
            store.emit([EmittedEvent(new_id(), "default", name, match)], now=at(n))

        def seen(**where: object) -> list[tuple[str, str]]:
            return [(event.name, event.match) for event in store.events(tenant="default", **where)]  # type: ignore[arg-type]

        assert seen(name="paid") == [("paid", "1"), ("paid", "2"), ("paid", "")]
        assert seen(name="paid", match="2") == [("paid", "2")]
        assert seen(since=at(2)) == [("sent", "1"), ("paid", "")]
        assert seen(limit=1) == [("paid", "1")]
        assert seen(newest=True, limit=1) == [("paid", "")]

    def test_events_are_paged_from_the_newest(self, store: Store) -> None:
        ids = sorted(new_id() for _ in range(4))
        store.emit([EmittedEvent(id, "default", "paid") for id in ids[:2]], now=at(1))
        store.emit([EmittedEvent(id, "default", "paid") for id in ids[2:]], now=at(2))
        first = store.events(tenant="default", newest=True, limit=3)
        last = first[-1]
        assert last.created_at is not None
        rest = store.events(tenant="default", newest=True, before=(last.created_at, last.id))
        assert [event.id for event in (*first, *rest)] == [*reversed(ids[2:]), *reversed(ids[:2])]

    def test_an_event_that_is_rolled_back_was_never_emitted(self, store: Store) -> None:
        event = EmittedEvent(new_id(), "default", "paid")
        with suppress(ZeroDivisionError), store.transaction():
            store.emit([event], now=T0)
            raise ZeroDivisionError
        assert store.emit([event], now=T0) == {event.id}

    def test_old_events_are_dropped_the_oldest_first(self, store: Store) -> None:
        for n in range(4):
            store.emit([EmittedEvent(new_id(), "default", str(n))], now=T0 + n * HOUR)
        assert store.drop_events(HOUR, limit=2, now=T0 + 4 * HOUR) == 2
        assert [event.name for event in store.events(tenant="default")] == ["2", "3"]
        assert store.drop_events(HOUR, limit=2, now=T0 + 4 * HOUR) == 1
        assert store.drop_events(HOUR, limit=2, now=T0 + 4 * HOUR) == 0
