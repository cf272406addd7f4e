"""Tests of the event loop executor and the isolation of its jobs."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from contextvars import ContextVar
from pathlib import Path

import pytest
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened

from tidemill.clock import SystemClock
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.executors.local import LoopExecutor
from tidemill.tasks.hooks import NO_HOOKS

S = JobState


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


def test_a_job_that_blocks_the_event_loop_is_named_in_the_log(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()
    went: list[float] = []

    @harness.app.task(name="blocker")
    async def blocker() -> None:
        begun.set()
        began = harness.clock.monotonic()
        while not caplog.records and harness.clock.monotonic() - began < PATIENCE:
            threading.Event().wait(0.01)
        went.append(harness.clock.monotonic() - began)

    @harness.app.task
    async def victim() -> None:
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "tidemill.engine"), harness.runner():
        job = blocker.enqueue()
        assert begun.wait(PATIENCE)
        others = victim.enqueue_many([{} for _ in range(50)])
        harness.ends(job, *others)
    assert 1.0 <= went[0] < 2.5
    (record,) = caplog.records
    assert str(job.id) in record.getMessage()
    assert "task blocker has blocked the event loop" in record.getMessage()
    (line,) = harness.lines(job)
    assert "task blocker has blocked the event loop" in line
    assert [harness.lines(other) for other in others] == [[]] * 50


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_job_cannot_end_the_worker(harness: Harness, error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error

    @harness.app.task(retry=None)
    async def by_itself() -> None:
        raise error

    @harness.app.task(retry=None)
    async def by_a_task_of_its_own() -> None:
        await asyncio.create_task(leave())

    @harness.app.task(retry=None)
    def in_a_thread() -> None:
        if error is SystemExit:
            sys.exit(1)
        raise error

    @harness.app.task
    async def neighbour() -> str:
        await asyncio.sleep(0.05)
        return "fine"

    with harness.runner():
        fine = neighbour.enqueue()
        jobs = [task.enqueue() for task in (by_itself, by_a_task_of_its_own, in_a_thread)]
        assert {row.state for row in harness.ends(*jobs)} <= {S.FAILED, S.CANCELLED}
        assert fine.result(PATIENCE) == "fine"
        assert neighbour.enqueue().result(PATIENCE) == "fine"


flavour: ContextVar[str] = ContextVar("flavour", default="plain")


def test_a_job_leaves_no_state_to_the_next_one(harness: Harness) -> None:
    """Jobs share asyncio tasks, but neither cancellations nor context variables pass to the next job."""
    tasted: list[str] = []

    @harness.app.task(retry=None)
    async def spoil(how: str) -> str:
        tasted.append(flavour.get())
        me = asyncio.current_task()
        assert me is not None
        match how:
            case "variable":
                flavour.set("bitter")
            case "cancel":
                me.cancel()  # and no await after it
            case "wait":
                me.cancel()
                await asyncio.sleep(0)
            case "swallow":
                me.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)
        return how

    @harness.app.task(retry=None)
    async def probe() -> str:
        tasted.append(flavour.get())
        me = asyncio.current_task()
        assert me is not None
        assert me.cancelling() == 0
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.sleep(0.001)
        return "fine"

    pairs = [
        (spoil.enqueue(how), probe.enqueue())
        for how in ("variable", "cancel", "wait", "swallow")
        for _ in range(5)
    ]
    with harness.runner(concurrency=1):
        harness.ends(*[job for pair in pairs for job in pair])
    assert [harness.row(job).result for _, job in pairs] == ['"fine"'] * 20
    assert set(tasted) == {"plain"}
    ends = [harness.state(job) for job, _ in pairs]
    assert ends == [S.COMPLETED] * 10 + [S.CANCELLED] * 5 + [S.COMPLETED] * 5


def test_a_cancel_hits_only_the_job_it_is_meant_for(harness: Harness) -> None:
    """This holds however close to the job's end the cancel arrives. The next job in the same task continues."""
    done: list[int] = []

    @harness.app.task(retry=None)
    async def work(number: int) -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        done.append(number)
        return number

    jobs = work.enqueue_many([{"number": number} for number in range(1_500)])
    meant = {job.id for job in jobs[::3]}
    with harness.runner(concurrency=2) as runner:
        while not all(harness.state(job) in ENDED for job in jobs):
            requests = [
                CancelRequest(held.claim.id, held.claim.token, runner.worker, "hit")
                for held in runner.holding()
                if held.claim.id in meant
            ]
            runner.cancel(requests)
        runner.wait_empty(PATIENCE)
    rows = [harness.row(job) for job in jobs]
    assert {row.state for row in rows if row.id not in meant} == {S.COMPLETED}
    assert {row.state for row in rows if row.id in meant} <= {S.COMPLETED, S.CANCELLED}
    assert all(row.reason == "hit" for row in rows if row.state is S.CANCELLED)
    assert Counter(done) == dict.fromkeys(done, 1)


@pytest.mark.parametrize("change", ["none", "another"])
def test_a_coroutine_that_sets_the_event_loop_does_not_stop_the_executor(
    place: Place, tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), place(tmp_path) as url, opened(url) as harness:

        @harness.app.task(name="spoiler")
        async def spoiler() -> None:
            asyncio.set_event_loop(None if change == "none" else other)

        @harness.app.task(name="plain")
        async def plain(number: int) -> int:
            await asyncio.sleep(0)
            return number

        other = asyncio.new_event_loop()
        try:
            with harness.runner(concurrency=10):
                harness.ends(spoiler.enqueue())
                jobs = plain.enqueue_many([{"number": number} for number in range(1_500)])
                rows = harness.ends(*jobs)
        finally:
            other.close()
        assert {row.state for row in rows} == {S.COMPLETED}
        assert caplog.records == []


def test_an_exception_whose_string_conversion_exits_frees_its_slot(harness: Harness) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    @harness.app.task(retry=None)
    async def on_the_loop() -> None:
        raise Unreadable from Unreadable()

    @harness.app.task(retry=None)
    def in_a_thread() -> None:
        raise Unreadable from Unreadable()

    @harness.app.task
    async def next_on_the_loop() -> None: ...

    @harness.app.task
    def next_in_a_thread() -> None: ...

    with harness.runner(concurrency=1, threads=1):
        rows = harness.ends(*[task.enqueue() for task in (on_the_loop, in_a_thread) for _ in range(3)])
        assert {row.state for row in rows} == {S.FAILED}
        rows = harness.ends(next_on_the_loop.enqueue(), next_in_a_thread.enqueue())
        assert {row.state for row in rows} == {S.COMPLETED}


def test_an_idle_loop_does_not_run_for_an_answer_that_arrives_soon() -> None:
    turns: list[object] = []

    class CountingLane(LoopExecutor):
        def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
            turns.append(loop)

    lane = CountingLane(1, SystemClock(), NO_HOOKS, lambda held, ended: None, lambda: None)
    ours, theirs = socket.socketpair()
    with ours, theirs, closing(asyncio.new_event_loop()) as loop:
        lane._loop = lane._turning = loop
        theirs.send(b"answer")
        lane.turn_until(ours.fileno())
        assert turns == []
        lane.turn_until(ours.fileno(), alert=True)
        assert turns == [loop]
        lane._active = 1
        lane.turn_until(ours.fileno())
        assert turns == [loop, loop]
        lane._active = 0
        ours.recv(10)
        lane.turn_until(ours.fileno())
        assert turns == [loop, loop, loop]
