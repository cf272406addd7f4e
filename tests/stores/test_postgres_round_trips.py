"""Tests that frequent verbs take one round trip and one transaction on PostgreSQL."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from psycopg.pq import Trace
from tests.servers.postgres import TestPostgres

from tidemill.domain.cluster import CancelRequest, Pulse, Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import ENDLESS_SPARE, Additions, Edge, GroupKind, NewGroup, NewJoin, Wait
from tidemill.domain.job import Details, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
from tidemill.domain.references import INPUTS
from tidemill.domain.schedules import Advance
from tidemill.domain.signals import NewSignal, Posted
from tidemill.ids import new_id
from tidemill.stores.base import ReadStepResult, Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.driver import PostgresDriver
from tidemill.testing.conformance.kit import SUSPENDED

LEASE = timedelta(hours=1)
LANE = Lane("default", "default", 0)
WORKER, NOBODY = new_id(), new_id()


@pytest.fixture(scope="module")
def store(postgres: TestPostgres) -> Iterator[Store]:
    """Open a store with one connection, jobs of every kind, and a worker that holds a job with a cancel request."""
    name = f"trips_{new_id().hex[-12:]}"
    store = open_store(f"{postgres.create_database(name)}?pool=1", migrate=True)
    store.register(Worker(WORKER, "w"), lease=LEASE)
    store.enqueue([NewJob(new_id(), "t") for _ in range(20)])
    store.enqueue([NewJob(new_id(), "t", delay=timedelta(microseconds=1)) for _ in range(20)])
    store.enqueue([NewJob(new_id(), "t", delay=LEASE)])
    (claim,) = store.claim(ClaimRequest(WORKER, [LANE], 1))
    store.request_cancel([claim.id], tenant=ALL_TENANTS, reason="enough")
    assert store.acquire("duty", WORKER, ttl=LEASE) is not None
    assert store.hold("duty") is not None
    yield store
    store.close()
    postgres.drop_database(name)


@contextmanager
def traced_messages(store: Store) -> Iterator[list[str]]:
    """Collect the names of the messages sent to the server."""
    driver: PostgresDriver = store._db  # type: ignore[attr-defined]
    with driver._pool.connection() as connection:
        wire = connection.pgconn
    sent: list[str] = []
    with tempfile.TemporaryFile("w+") as trace:
        wire.trace(trace.fileno())
        wire.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield sent
        finally:
            wire.untrace()
        trace.seek(0)
        lines = [line.split("\t") for line in trace]
    sent += [line[2].strip() for line in lines if line[0] == "F"]


def round_trips(sent: list[str]) -> int:
    """Count the messages after which the client waits; each ends a transaction if none is open."""
    return sent.count("Sync") + sent.count("Query")


VERBS: dict[str, Callable[[Store], object]] = {
    "beat": lambda store: store.beat([WORKER], lease=LEASE),
    "heartbeat of an unregistered worker": lambda store: store.beat([NOBODY], lease=LEASE),
    "promote": lambda store: store.promote(2),
    "promote nothing": lambda store: store.promote(0),
    "lanes": lambda store: store.lanes(["default"]),
    "claim": lambda store: store.claim(ClaimRequest(WORKER, [LANE], 1)),
    "claim nothing": lambda store: store.claim(ClaimRequest(WORKER, [Lane("none", "none", 0)], 1)),
    "held": lambda store: store.held(WORKER),
    "orphans": lambda store: store.orphans(10),
    "overdue": lambda store: store.overdue(10),
    "expired": lambda store: store.expired(10),
    "due": lambda store: store.due(10),
    "active jobs": lambda store: store.active_jobs([NOBODY]),
    "last fires": lambda store: store.last_fires([NOBODY], "node"),
    "advance": lambda store: store.advance([Advance(NOBODY, 1, None, None, None)]),
    "acquire": lambda store: store.acquire("duty", WORKER, ttl=LEASE),
    "acquire a lease that another worker holds": lambda store: store.acquire("duty", NOBODY, ttl=LEASE),
    "renew": lambda store: store.renew("duty", WORKER, 1, ttl=LEASE),
    "take a hold that another worker has": lambda store: store.hold("duty"),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_repeated_verb_takes_one_round_trip(store: Store, name: str) -> None:
    for _ in range(2):
        # This prepares its statement.
        VERBS[name](store)
    with traced_messages(store) as sent:
        VERBS[name](store)
    assert round_trips(sent) == 1, sent


def test_a_transaction_of_two_verbs_takes_more_round_trips(store: Store) -> None:
    with traced_messages(store) as sent, store.transaction():
        store.held(WORKER)
        store.lanes()
    assert round_trips(sent) >= 4, sent


def test_one_heartbeat_returns_everything(store: Store) -> None:
    store.drain([WORKER])
    (claim,) = [claim for claim in store.held(WORKER) if claim.cancel_reason is not None]
    request = CancelRequest(claim.id, claim.token, WORKER, "enough")
    assert store.beat([WORKER, NOBODY], lease=LEASE) == Pulse(
        frozenset({WORKER}), frozenset({WORKER}), [request]
    )


def test_promote_returns_the_next_due_time(store: Store) -> None:
    promoted = store.promote(1000)
    assert promoted.lanes == {LaneKey("default", "default", 0)}
    assert promoted.next_run_at is not None
    assert store.promote(1000) == (0, frozenset(), promoted.next_run_at, frozenset())


@pytest.fixture
def silent_store(migrated_postgres_url: str) -> Iterator[Store]:
    """Open a store with one connection that sends no wake-ups, because a thread would send them at any time."""
    store = open_store(f"{migrated_postgres_url}?pool=1&notify=no")
    store.register(Worker(WORKER, "w"), lease=LEASE)
    yield store
    store.close()


def test_a_step_reads_what_the_job_that_it_releases_and_claims_needs(silent_store: Store) -> None:
    store = silent_store
    lane = Lane("flow", "default", 0)
    trips: list[int] = []
    for _ in range(2):
        # The first turn prepares the statements.
        group, first, second = new_id(), new_id(), new_id()
        takes_first = Details(group_id=group, options={INPUTS: [str(first)]})
        store.start_flow(
            [NewGroup(group, "default", GroupKind.FLOW, "flow")],
            [
                NewJob(first, "t", queue="flow", details=Details(group_id=group)),
                NewJob(second, "t", queue="flow", waiting="needs the first", details=takes_first),
            ],
            [Edge(second, first)],
            [NewJoin(group, 0, 2, ENDLESS_SPARE, 2), NewJoin(second, 0, 1, 0, 1)],
        )
        (claim,) = store.claim(ClaimRequest(WORKER, [lane], 1))
        finish = Finish(claim, COMPLETED, '"made"', None, 0.0, 0.0, tied=True)
        with traced_messages(store) as sent:
            step = store.step([finish], ClaimRequest(WORKER, [lane], 1))
        (follower,) = step.claims
        assert follower.id == second
        assert isinstance(step, ReadStepResult)
        assert step.starts == store.job_starts([second])
        assert step.starts.results[first].result == '"made"'
        assert store.finish([Finish(follower, COMPLETED, None, None, 0.0, 0.0, tied=True)]) == frozenset()
        trips.append(sent.count("Flush") + round_trips(sent))
    assert trips[-1] == 2


def test_a_signal_is_stored_and_wakes_its_job_in_two_round_trips(silent_store: Store) -> None:
    store = silent_store
    trips: list[int] = []
    for queue in ("first", "second"):
        # The first turn prepares the statements.
        job = new_id()
        store.enqueue([NewJob(job, "t", queue=queue)])
        (claim,) = store.claim(ClaimRequest(WORKER, [Lane(queue, "default", 0)], 1))
        waits = Additions(waits=(Wait("go"),))
        assert store.finish([Finish(claim, SUSPENDED, additions=waits)]) == frozenset()
        with traced_messages(store) as sent:
            delivered = store.deliver_signal(NewSignal(job, "default", "go"))
        assert delivered == (Posted.ACCEPTED, [(job, queue)])
        trips.append(sent.count("Flush") + round_trips(sent))
    assert trips[-1] == 2
