"""Tests of a database that lost its last writes, as after a failover to a standby."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, Harness, open_gate, opened

from tidemill import Context
from tidemill.domain.cluster import WORKER_EXPIRY, Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import JobState
from tidemill.engine.exchange.finisher import release
from tidemill.engine.exchange.held_job import HeldJob, Phase
from tidemill.engine.exchange.outbox import Outbox
from tidemill.engine.runner.runner import Runner
from tidemill.ids import new_id
from tidemill.stores.memory.store import MemoryStore
from tidemill.stores.wakeup_messages import RECONNECTED
from tidemill.tasks.task import Declared

S = JobState


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that is set at the latest when the test ends, so that no thread waits forever."""
    gate = threading.Event()
    yield gate
    gate.set()


class Standby:
    """A copy of the store that takes over later. Another worker is registered in it."""

    def __init__(self, harness: Harness) -> None:
        store = harness.line.real
        assert isinstance(store, MemoryStore)
        self._store, self.other = store, Worker(new_id(), "another")
        store.register(self.other, lease=WORKER_EXPIRY)
        self._state = store._state.copy()

    def promote(self) -> None:
        """Restore the store to the time of the copy."""
        with self._store._lock:
            self._store._state = self._state.copy()

    def promote_and_claim(self) -> Claim:
        """Restore the store, and let the other worker claim the only pending job first."""
        with self._store._lock:
            self.promote()
            (claim,) = self._store.claim(ClaimRequest(self.other.id, self._store.lanes(), 10))
        return claim


Trigger = Callable[[Harness, Runner], None]


def by_trouble(harness: Harness, runner: Runner) -> None:
    """Make the next claim fail."""
    harness.line.refuse("claim", "step")
    runner.wake()


def by_reconnecting(harness: Harness, runner: Runner) -> None:
    """Report a new listener connection, without any failing call."""
    assert runner._listener is not None
    runner._listener.tell(frozenset({"change", RECONNECTED}))


either_way = pytest.mark.parametrize("notice", [by_trouble, by_reconnecting])


def enqueued(harness: Harness, task: Any) -> tuple[Any, Standby]:
    """A job that is pending in the standby, although a worker soon claims it."""
    with harness.line.real._lock:  # type: ignore[attr-defined]
        job = task.enqueue()
        return job, Standby(harness)


@either_way
@pytest.mark.parametrize("lane", ["loop", "thread"])
def test_a_job_that_the_store_gave_to_another_worker_is_stopped_without_writes(
    harness: Harness, lane: str, notice: Trigger
) -> None:
    begun, ended = threading.Event(), threading.Event()

    @harness.app.task
    async def on_loop() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    @harness.app.task
    def in_thread(ctx: Context) -> None:
        begun.set()
        try:
            while True:
                ctx.check()
                threading.Event().wait(0.005)
        finally:
            ended.set()

    with harness.runner() as runner:
        job, standby = enqueued(harness, on_loop if lane == "loop" else in_thread)
        assert begun.wait(PATIENCE)
        (mine,) = runner.holding()
        theirs = standby.promote_and_claim()
        assert theirs.token == mine.claim.token
        notice(harness, runner)
        assert ended.wait(PATIENCE)
        assert runner.wait_empty(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
        assert harness.row(job).worker == standby.other.id
        assert harness.line.real.finish([Finish(theirs, COMPLETED, '"theirs"')]) == frozenset()
    assert harness.row(job).result == '"theirs"'
    (execution,) = harness.executions(job)
    assert execution.worker == standby.other.id


@either_way
def test_a_job_that_the_store_still_assigns_to_this_worker_continues(
    harness: Harness, gate: threading.Event, notice: Trigger
) -> None:
    begun: list[int] = []

    @harness.app.task
    async def work() -> str:
        begun.append(1)
        await open_gate(gate)
        return "done"

    with harness.runner() as runner:
        job = work.enqueue()
        harness.becomes(job, S.RUNNING)
        notice(harness, runner)
        eventually(lambda: harness.line.calls_of("held") == 1)
        gate.set()
        assert job.result(PATIENCE) == "done"
    assert begun == [1]


def test_a_job_whose_claim_is_not_answered_yet_is_not_lost_by_a_comparison(
    harness: Harness, gate: threading.Event
) -> None:
    begun: list[str] = []

    @harness.app.task
    async def work(name: str) -> str:
        begun.append(name)
        await open_gate(gate)
        return name

    with harness.runner(pumps=2) as runner:
        first = work.enqueue("first")
        harness.becomes(first, S.RUNNING)
        reached, go_on = harness.line.hold_up("claim", late=True, when=lambda given: bool(given[0].lanes))
        second = work.enqueue("second")
        runner.wake()
        assert reached.wait(PATIENCE)
        by_reconnecting(harness, runner)
        go_on.set()
        eventually(lambda: harness.line.calls_of("held") == 1)
        gate.set()
        assert [first.result(PATIENCE), second.result(PATIENCE)] == ["first", "second"]
    assert sorted(begun) == ["first", "second"]


def test_an_end_decided_before_the_database_went_back_is_refused(
    harness: Harness, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    finished: list[Any] = []
    harness.app.events.subscribe("job.finished", lambda event: finished.append(event.job_id))

    @harness.app.task
    async def work() -> str:
        await open_gate(gate)
        return "ours"

    with harness.runner() as runner:
        job, standby = enqueued(harness, work)
        harness.becomes(job, S.RUNNING)
        harness.line.cut()
        gate.set()
        # The worker may have noticed the outage already, and then it keeps the end without another call.
        eventually(lambda: all(held.over for held in runner.holding()))
        theirs = standby.promote_and_claim()
        # Token and state are equal, so only the worker shows that this is not the end that was sent.
        assert harness.line.real.finish([Finish(theirs, COMPLETED, '"theirs"')]) == frozenset()
        harness.line.mend()
        assert runner.wait_empty(PATIENCE)
        # It notices the loss when it writes the end, or before when it compares its jobs with the store.
        eventually(lambda: "their leases were lost" in caplog.text or "were taken over" in caplog.text)
    assert harness.row(job).result == '"theirs"'
    assert finished == []


@pytest.mark.parametrize("lane", ["loop", "thread"])
def test_a_job_issued_again_with_the_same_token_runs_again_and_alone(
    harness: Harness, gate: threading.Event, lane: str
) -> None:
    events: list[str] = []

    @harness.app.task
    async def on_loop(ctx: Context) -> str:
        me = str(sum(event.startswith("begin") for event in events))
        events.append(f"begin {me}")
        try:
            if me == "0":
                await asyncio.sleep(3600)
        finally:
            events.append(f"end {me}")
        return me

    @harness.app.task
    def in_thread(ctx: Context) -> str:
        me = str(sum(event.startswith("begin") for event in events))
        events.append(f"begin {me}")
        if me == "0":
            gate.wait(PATIENCE)  # it does not check for cancellation
            ctx.save_checkpoint("at", "too late")
            events.append("end 0")
        else:
            gate.set()
            eventually(lambda: "end 0" in events)  # the new claim waits while the old handler saves
        return me

    with harness.runner() as runner:
        job, standby = enqueued(harness, on_loop if lane == "loop" else in_thread)
        eventually(lambda: events == ["begin 0"])
        standby.promote()
        runner.wake()
        assert job.result(PATIENCE) == "1"
        eventually(lambda: "end 0" in events)
        assert runner.wait_empty(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
    (execution,) = harness.executions(job)
    assert execution.number == 1
    assert harness.line.real.checkpoints(job.id, tenant=ALL_TENANTS) == {}


def test_an_end_of_a_claim_that_was_issued_again_is_not_written(harness: Harness) -> None:
    @harness.app.task
    async def work() -> None: ...

    job, _ = enqueued(harness, work)
    worker = harness.line.real.register(Worker(new_id(), "a worker"), lease=WORKER_EXPIRY).id
    (claim,) = harness.line.real.claim(ClaimRequest(worker, harness.line.real.lanes(), 1))
    declared: Declared = harness.app.registry.get(work.name)
    outbox = Outbox({})
    with harness.runner() as runner:
        old, new = (HeldJob(claim, declared, harness.row(job).details, runner, "loop") for _ in range(2))
        outbox.decide([release(old, "before", 0.0)])
        old.phase = Phase.SUPERSEDED
        outbox.decide([release(new, "after", 0.0)])
        assert [item.held for item in outbox.take_decided(10)] == [new]
        assert not outbox
