"""Tests of steps that are sent to PostgreSQL before the previous answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.states import JobState
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

LANE = Lane("default", "default", 0)


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    made = open_store(postgres_url)
    made.migrate()
    yield made
    made.close()


def worker_with_claims(store: Store, jobs: int) -> tuple[UUID, list[Claim]]:
    """Enqueue jobs, and claim ten of them with a new worker."""
    worker = store.register(Worker(new_id(), "w"), lease=timedelta(hours=1)).id
    store.enqueue([NewJob(new_id(), "work") for _ in range(jobs)])
    return worker, store.claim(ClaimRequest(worker, [LANE], 10))


def done(claims: list[Claim]) -> list[Finish]:
    return [Finish(claim, COMPLETED, "1", None, 0.0, 0.0) for claim in claims]


def states(store: Store, claims: list[Claim]) -> set[JobState]:
    return {job.state for job in store.get([claim.id for claim in claims], tenant=ALL_TENANTS)}


def test_answers_arrive_in_the_order_of_sending(store: Store) -> None:
    worker, first = worker_with_claims(store, 40)
    second = store.claim(ClaimRequest(worker, [LANE], 10))
    ahead = store.steps_ahead()
    assert ahead is not None
    assert ahead.send(done(first), ClaimRequest(worker, [LANE], 10))
    assert ahead.send(done(second), ClaimRequest(worker, [LANE], 5))
    one, two = ahead.receive(), ahead.receive()
    assert (len(one.claims), len(two.claims)) == (10, 5)
    assert not {claim.id for claim in one.claims} & {claim.id for claim in two.claims}
    assert not one.lost
    assert not two.lost
    assert states(store, first + second) == {JobState.COMPLETED}
    assert states(store, one.claims + two.claims) == {JobState.RUNNING}


def test_answered_is_true_for_each_of_two_answers_that_came_at_once(store: Store) -> None:
    worker, first = worker_with_claims(store, 40)
    ahead = store.steps_ahead()
    assert ahead is not None
    assert ahead.send(done(first[:5]), ClaimRequest(worker, [LANE], 1))
    assert ahead.send(done(first[5:]), ClaimRequest(worker, [LANE], 1))
    assert ahead.file >= 0
    while not ahead.answered():
        pass
    ahead.receive()
    while not ahead.answered():
        pass
    assert len(ahead.receive().claims) == 1


def test_each_answer_returns_the_lost_jobs_of_its_own_step(store: Store) -> None:
    worker, first = worker_with_claims(store, 20)
    stale = [claim._replace(token=claim.token + 1) for claim in first[:5]]
    ahead = store.steps_ahead()
    assert ahead is not None
    assert ahead.send(done(stale), ClaimRequest(worker, [LANE], 1))
    assert ahead.send(done(first[5:]), ClaimRequest(worker, [LANE], 1))
    assert ahead.receive().lost == {claim.id for claim in stale}
    assert ahead.receive().lost == frozenset()
    assert states(store, first[:5]) == {JobState.RUNNING}


def test_a_failed_step_does_not_affect_the_next_one(store: Store, postgres_url: str) -> None:
    """The first step waits too long for a lock; the second, sent after it, does not."""
    worker, first = worker_with_claims(store, 20)
    short = open_store(f"{postgres_url}?lock_timeout=0.2")
    try:
        ahead = short.steps_ahead()
        assert ahead is not None
        with psycopg.connect(postgres_url) as other:
            other.execute("select from tidemill.running where id = %s for update", (first[0].id,))
            assert ahead.send(done(first[:1]), ClaimRequest(worker, [LANE], 1))
            assert ahead.send(done(first[1:]), ClaimRequest(worker, [LANE], 1))
            with pytest.raises(Exception, match="lock") as caught:
                ahead.receive()
            assert type(caught.value).__name__ == "StoreBusy"
            assert len(ahead.receive().claims) == 1
        assert states(store, first[:1]) == {JobState.RUNNING}
        assert states(store, first[1:]) == {JobState.COMPLETED}
        assert ahead.send(done(first[:1]), ClaimRequest(worker, [LANE], 1))
        assert len(ahead.receive().claims) == 1
    finally:
        short.close()


def test_a_broken_connection_fails_every_open_step_and_is_replaced(store: Store, postgres_url: str) -> None:
    worker, first = worker_with_claims(store, 20)
    ahead = store.steps_ahead()
    assert ahead is not None
    with psycopg.connect(postgres_url, autocommit=True) as other, psycopg.connect(postgres_url) as holder:
        holder.execute("select from tidemill.running where id = %s for update", (first[0].id,))
        assert ahead.send(done(first[:1]), ClaimRequest(worker, [LANE], 1))
        assert ahead.send(done(first[1:2]), ClaimRequest(worker, [LANE], 1))
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
            " and pid not in (pg_backend_pid(), %s)",
            (holder.info.backend_pid,),
        )
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                ahead.receive()
    # Neither step was executed.
    assert states(store, first) == {JobState.RUNNING}
    assert ahead.send(done(first), ClaimRequest(worker, [LANE], 1))
    assert len(ahead.receive().claims) == 1
    assert states(store, first) == {JobState.COMPLETED}


@pytest.mark.parametrize("reason", ["nothing ended", "nothing requested", "a limit", "jobs to enqueue"])
def test_only_plain_steps_are_sent_ahead(store: Store, reason: str) -> None:
    worker, first = worker_with_claims(store, 20)
    ahead = store.steps_ahead()
    assert ahead is not None
    finishes = [] if reason == "nothing ended" else done(first)
    if reason == "jobs to enqueue":
        finishes[-1] = finishes[-1]._replace(then=(NewJob(new_id(), "next"),))
    lanes = [LANE._replace(gate="x", limits=("x",))] if reason == "a limit" else [LANE]
    assert not ahead.send(finishes, ClaimRequest(worker, lanes, 0 if reason == "nothing requested" else 1))
    assert states(store, first) == {JobState.RUNNING}


def test_the_connection_returns_after_the_last_answer_and_one_is_reserved(postgres_url: str) -> None:
    store = open_store(f"{postgres_url}?pool=2&connect_timeout=1")
    try:
        store.migrate()
        worker, first = worker_with_claims(store, 20)
        one, another = store.steps_ahead(), store.steps_ahead()
        assert one is not None
        assert another is not None
        request = ClaimRequest(worker, [LANE], 1)
        assert one.send(done(first[:1]), request)
        # Otherwise no connection would be left for other verbs.
        assert not another.send(done(first[1:2]), request)
        assert states(store, first[5:]) == {JobState.RUNNING}
        one.receive()
        assert another.send(done(first[1:2]), request)
        another.receive()
    finally:
        store.close()
