"""Tests of wake-ups in large fleets: calls, their repetition, and the relay from a supervisor to its runners."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.worker_kit import PATIENCE, a_world

from tidemill import App, ManualClock
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.job import NewJob
from tidemill.engine.duties.promote import Promote, Repeat
from tidemill.engine.duties.tick import TickDuty
from tidemill.engine.listener import WakeupListener
from tidemill.engine.loop_listener import Watched
from tidemill.engine.node import own_queue
from tidemill.engine.summons import Summons
from tidemill.engine.worker_settings import TRUSTED
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.stores.wakeup_relay import RelayedListener, WakeupRelay

FLEET = 200
TICK = frozenset({"tick", f"fleet:{FLEET}", "fleet:20:mail"})


def crew(clock: ManualClock, queues: tuple[str, ...] | None = None) -> list[Summons]:
    source = Random(7)
    return [Summons(UUID(int=source.getrandbits(128)), queues, "here", clock) for _ in range(FLEET)]


def answering(workers: list[Summons], *topics: str) -> int:
    return sum(worker.answers(frozenset(topics)) for worker in workers)


def test_few_workers_of_a_large_fleet_answer_a_call_and_all_answer_its_repetition() -> None:
    clock = ManualClock()
    workers = crew(clock)
    assert answering(workers, "ready:default", "call:5:1") == FLEET  # no leader has announced the fleet
    answering(workers, *TICK)
    assert 0 < answering(workers, "ready:default", "call:5:1") < 25
    assert answering(workers, "ready:default", "call:5:1000") == FLEET
    assert answering(workers, "ready:default") == FLEET
    assert answering(workers, "call:5:1") == 0


def test_workers_without_a_recent_tick_answer_every_call() -> None:
    clock = ManualClock()
    workers = crew(clock)
    answering(workers, *TICK)
    clock.advance(TRUSTED)
    assert answering(workers, "ready:default", "call:5:1") == FLEET
    answering(workers, "tick")  # the fleet is small again
    assert answering(workers, "ready:default", "call:5:1") == FLEET


def test_a_call_for_a_queue_counts_only_the_workers_that_serve_it() -> None:
    clock = ManualClock()
    mail = crew(clock, ("mail",))
    answering(mail, *TICK)
    # The same call wakes ten times the share of a group that is ten times smaller.
    assert answering(mail, "ready:mail", "call:5:1") > 50
    assert answering(mail, "ready:other", "call:5:1") == 0


def test_a_call_for_the_queue_of_a_node_concerns_its_worker() -> None:
    clock = ManualClock()
    workers = crew(clock)
    answering(workers, *TICK)
    assert answering(workers, f"ready:{own_queue('here')}", "call:5:1") == FLEET


class Leader:
    """The duties of a leader over a memory store with a fleet."""

    def __init__(self, size: int) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        for number in range(size):
            state = WorkerState.STOPPED if number >= size - 5 else WorkerState.ACTIVE
            self.store.register(Worker(new_id(), "w", state=state), lease=timedelta(hours=1))
        self.tick = TickDuty(self.clock, workers_of=self.store.workers)
        self.promote = Promote(self.store, tick=self.tick, random=Random(1))
        self.repeat = Repeat(self.store, self.clock, self.tick)
        self.listener = self.store.listen()

    def heard(self) -> frozenset[str]:
        return self.listener.wait(0)


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader(30)
    with closing(made.store):
        yield made


def test_the_leader_announces_the_active_workers_with_its_tick(leader: Leader) -> None:
    leader.promote()
    assert leader.heard() == {"tick", "fleet:25"}


def test_a_small_fleet_is_not_announced_and_nothing_is_repeated() -> None:
    small = Leader(20)
    with closing(small.store):
        small.promote()
        assert small.heard() == {"tick"}
        small.store.enqueue([NewJob(new_id(), "work")])
        assert small.repeat.due(frozenset({"ready:default", "call:1:1"})) is None
        small.repeat()
        assert small.heard() == set()


def test_the_leader_repeats_the_wake_up_of_jobs_that_no_called_worker_took(leader: Leader) -> None:
    leader.promote()
    leader.heard()
    call = frozenset({"ready:default", "call:1:1"})
    now = leader.clock.monotonic()
    assert leader.repeat.due(frozenset({"ready:default"})) is None
    assert leader.repeat.due(call) == pytest.approx(now + 0.05)
    leader.repeat()
    assert leader.heard() == set()  # the job was taken
    assert leader.repeat.due(call) == pytest.approx(now + 0.2)  # at most five looks a second
    leader.store.enqueue([NewJob(new_id(), "work", queue="mail")])
    leader.repeat()
    assert leader.heard() == {"ready:mail"}


def test_an_enqueue_calls_as_many_workers_as_it_has_jobs() -> None:
    with App("memory://") as app:

        @app.task
        def work(number: int) -> None: ...

        listener = app.store.listen()
        work.enqueue_many([{"number": number} for number in range(30)])
        (call,) = [topic for topic in listener.wait(5) if topic.startswith("call:")]
        assert call.endswith(":30")


# The relay ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_relayed_wake_up_is_received_by_waiting_and_by_watching(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    relay, listener = WakeupRelay(), RelayedListener(ends[1])
    relay.add(1, ends[0])
    relay.send(frozenset({"ready:a", "odd “x”\n"}))
    assert listener.wait(30) == {"ready:a", "odd “x”\n"}
    assert isinstance(listener, Watched)
    file = listener.lend()
    assert file is not None
    relay.send(frozenset({"tick"}))
    assert listener.hear() == {"tick"}
    os.close(file)
    listener.take_back()
    relay.remove(1)
    relay.send(frozenset({"tick"}))
    assert listener.wait(0) == set()
    listener.close()
    assert listener.wait(30) == set()


def test_a_runner_that_does_not_read_misses_wake_ups_and_learns_so(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    relay, listener = WakeupRelay(), RelayedListener(ends[1])
    relay.add(1, ends[0])
    for number in range(3_000):
        relay.send(frozenset({f"ready:{number}:{'x' * 500}"}))
    assert "change" not in listener.wait(0)
    relay.send(frozenset({"tick"}))  # ends the line that was cut
    relay.send(frozenset({"tick"}))
    assert "change" in listener.wait(0)
    ends[0].close()
    assert listener.wait(0) == set()
    with pytest.raises(ConnectionError):
        listener.hear()
    listener.close()


@pytest.mark.long
def test_runners_of_one_supervisor_share_its_listener(migrated_postgres_url: str, tmp_path: Path) -> None:
    with a_world(migrated_postgres_url, tmp_path) as world:
        worker = world.supervised(processes=2, poll=3600, batch=1).ready(2)
        listening = "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'"
        with psycopg.connect(world.url) as raw:
            assert raw.execute(listening).fetchone() == (1,)
        # Both runners poll once an hour, so a relayed wake-up starts each job.
        jobs = [world.tasks.add.enqueue(left=1, right=2) for _ in range(5)]
        assert [job.result(timeout=PATIENCE) for job in jobs] == [3] * 5
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0


def test_a_listener_may_listen_to_something_else_than_the_store(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    with closing(MemoryStore()) as store:
        wakeups = WakeupListener(store, ManualClock(), lambda: RelayedListener(ends[1]))
        heard: list[frozenset[str]] = []
        wakeups.subscribe(heard.append)
        wakeups.start()
        ends[0].sendall(json.dumps(["ready:x"]).encode() + b"\n")
        eventually(lambda: frozenset({"ready:x"}) in heard)
        wakeups.close()
