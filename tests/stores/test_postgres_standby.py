"""Tests of a synchronous standby that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest
from tests.engine.cluster_kit import eventually
from tests.servers.processes import ServiceMissing
from tests.servers.replica import Pair, running_pair
from tests.services import go_without

from tidemill.domain.cluster import Worker
from tidemill.domain.job import Claim, LogEntry, NewJob, Progress, ProgressReport
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

pytestmark = pytest.mark.long

LEASE = timedelta(minutes=10)
PATIENCE = 30.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    try:
        with running_pair() as pair:
            pair.wait_for_standby(synchronous=True)
            yield pair
    except ServiceMissing as missing:
        go_without("postgres", missing)


class Setup(NamedTuple):
    """A store with a registered worker that holds one claimed job and one lease."""

    store: Store
    worker: Worker
    claim: Claim
    term: int


@contextmanager
def a_setup(pair: Pair, options: str = "") -> Iterator[Setup]:
    name = f"t{new_id().hex}"
    pair.primary.create_database(name)
    try:
        with closing(open_store(f"{pair.url(name)}?{options}", migrate=True)) as store:
            store.migrate()
            worker = store.register(Worker(new_id(), "w"), lease=LEASE)
            store.enqueue([NewJob(new_id(), "work")])
            (claim,) = store.claim(ClaimRequest(worker.id, store.lanes(), 1, start=False))
            lease = store.acquire("duty", worker.id, ttl=LEASE)
            assert lease is not None
            yield Setup(store, worker, claim, lease.term)
    finally:
        pair.primary.drop_database(name)


@contextmanager
def halted(pair: Pair) -> Iterator[None]:
    pair.halt_receiver()
    try:
        yield
    finally:
        pair.resume_receiver()


@contextmanager
def waiting(pair: Pair, *actions: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Run actions on threads, and yield once all of them wait for the standby."""
    threads = [
        threading.Thread(target=action, name="waits-for-the-standby", daemon=True) for action in actions
    ]
    for thread in threads:
        thread.start()
    count = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
    try:
        eventually(lambda: pair.primary.ask(count) == str(len(actions)), PATIENCE)
        yield threads
    finally:
        if pair.primary.ask(count) != "0":
            pair.resume_receiver()
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads)


def test_liveness_and_progress_writes_do_not_wait_for_the_standby(pair: Pair) -> None:
    with a_setup(pair) as (store, worker, claim, term), halted(pair):
        assert store.beat([worker.id], lease=LEASE).alive == {worker.id}
        assert store.renew("duty", worker.id, term, ttl=LEASE)
        assert store.start([claim]) == frozenset()
        report = ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5))
        assert store.report([report]) == frozenset()
        line = LogEntry(claim.id, claim.token, claim.created_at, "a line", worker=claim.worker)
        assert store.log([line]) == frozenset()
        (job,) = store.get([claim.id], tenant=claim.tenant)
        assert (job.state, job.progress is not None) == (JobState.RUNNING, True)


@pytest.mark.parametrize("with_progress", [False, True])
def test_an_enqueue_waits_for_the_standby(pair: Pair, with_progress: bool) -> None:
    with a_setup(pair) as (store, worker, claim, _), halted(pair):
        job = NewJob(new_id(), "work")

        def enqueue() -> None:
            with store.transaction():
                if with_progress:
                    store.report([ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5))])
                store.enqueue([job])

        with waiting(pair, enqueue) as (thread,):
            assert store.beat([worker.id], lease=LEASE).alive == {worker.id}
            assert thread.is_alive()
        assert [row.id for row in store.get([job.id], tenant=job.tenant)] == [job.id]


def test_a_heartbeat_has_a_reserved_connection(pair: Pair) -> None:
    with a_setup(pair, "pool=2") as (store, worker, _, term), halted(pair):
        enqueues = [lambda: store.enqueue([NewJob(new_id(), "work")])] * 2
        with waiting(pair, *enqueues):
            for _ in range(3):
                assert store.beat([worker.id], lease=LEASE).alive == {worker.id}
                assert store.renew("duty", worker.id, term, ttl=LEASE)
            connections = "select count(*) from pg_stat_activity where application_name = 'tidemill'"
            # One connection is reserved for heartbeats, and opened only now.
            assert pair.primary.ask(connections) == "3"
