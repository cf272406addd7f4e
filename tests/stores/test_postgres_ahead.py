"""Steps that are sent to PostgreSQL before the last one is answered: in their order, each by itself, and nothing is left behind."""

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


def hired(store: Store, jobs: int) -> tuple[UUID, list[Claim]]:
    """A worker that has claimed ten of so many jobs."""
    worker = store.register(Worker(new_id(), "w"), lease=timedelta(hours=1)).id
    store.enqueue([NewJob(new_id(), "work") for _ in range(jobs)])
    return worker, store.claim(ClaimRequest(worker, [LANE], 10))


def done(claims: list[Claim]) -> list[Finish]:
    return [Finish(claim, COMPLETED, "1", None, 0.0, 0.0) for claim in claims]


def states(store: Store, claims: list[Claim]) -> set[JobState]:
    return {job.state for job in store.get([claim.id for claim in claims], tenant=ALL_TENANTS)}


def test_answers_come_in_the_order_of_sending(store: Store) -> None:
    worker, first = hired(store, 40)
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


def test_who_looks_is_told_when_there_is_an_answer_also_when_both_came_at_once(store: Store) -> None:
    worker, first = hired(store, 40)
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


def test_what_is_lost_is_told_by_its_own_answer(store: Store) -> None:
    worker, first = hired(store, 20)
    stale = [claim._replace(token=claim.token + 1) for claim in first[:5]]
    ahead = store.steps_ahead()
    assert ahead is not None
    assert ahead.send(done(stale), ClaimRequest(worker, [LANE], 1))
    assert ahead.send(done(first[5:]), ClaimRequest(worker, [LANE], 1))
    assert ahead.receive().lost == {claim.id for claim in stale}
    assert ahead.receive().lost == frozenset()
    assert states(store, first[:5]) == {JobState.RUNNING}


def test_one_that_fails_leaves_the_next_as_it_is(store: Store, postgres_url: str) -> None:
    """The first waits for a lock for too long; the second, which was sent behind it, does not."""
    worker, first = hired(store, 20)
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


def test_when_the_connection_breaks_every_answer_says_so_and_the_next_one_is_another(
    store: Store, postgres_url: str
) -> None:
    worker, first = hired(store, 20)
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
    assert states(store, first) == {JobState.RUNNING}  # neither was done
    assert ahead.send(done(first), ClaimRequest(worker, [LANE], 1))
    assert len(ahead.receive().claims) == 1
    assert states(store, first) == {JobState.COMPLETED}


@pytest.mark.parametrize("reason", ["nothing ended", "nothing asked for", "a limit"])
def test_what_is_no_plain_step_is_not_sent(store: Store, reason: str) -> None:
    worker, first = hired(store, 20)
    ahead = store.steps_ahead()
    assert ahead is not None
    finishes = [] if reason == "nothing ended" else done(first)
    lanes = [LANE._replace(gate="x", limits=("x",))] if reason == "a limit" else [LANE]
    assert not ahead.send(finishes, ClaimRequest(worker, lanes, 0 if reason == "nothing asked for" else 1))
    assert states(store, first) == {JobState.RUNNING}


def test_the_connection_goes_back_when_all_is_answered_and_others_always_have_one(postgres_url: str) -> None:
    store = open_store(f"{postgres_url}?pool=2&connect_timeout=1")
    try:
        store.migrate()
        worker, first = hired(store, 20)
        one, another = store.steps_ahead(), store.steps_ahead()
        assert one is not None
        assert another is not None
        request = ClaimRequest(worker, [LANE], 1)
        assert one.send(done(first[:1]), request)
        assert not another.send(done(first[1:2]), request)  # there would be none left
        assert states(store, first[5:]) == {JobState.RUNNING}
        one.receive()
        assert another.send(done(first[1:2]), request)
        another.receive()
    finally:
        store.close()
