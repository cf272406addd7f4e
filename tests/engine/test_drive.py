"""Tests of store steps on the event loop's thread, and of a blocked loop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, Harness, Place, a_place, opened

from tidemill import Context, Fixed
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import JobState
from tidemill.engine.runner.runner import Runner
from tidemill.errors import StoreError
from tidemill.stores.wait_function import wait_function

MANY = 3_000


@pytest.fixture(scope="module", params=["postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as found:
        yield found


class Steppers:
    """Records the threads that ran steps on the store."""

    def __init__(self, harness: Harness) -> None:
        self.names: Counter[str] = Counter()
        step = harness.line.real.step

        def noted(*given: object, **named: object) -> object:
            self.names[threading.current_thread().name.rstrip("0123456789-")] += 1
            return step(*given, **named)  # type: ignore[arg-type]

        harness.line.real.step = noted  # type: ignore[method-assign, assignment]
        steps_ahead, self.ahead = harness.line.real.steps_ahead, 0

        def watched() -> object:
            ahead = steps_ahead()
            assert ahead is not None
            send = ahead.send

            def noted_too(*given: object) -> bool:
                sent = send(*given)  # type: ignore[arg-type]
                self.ahead += sent
                self.names[threading.current_thread().name.rstrip("0123456789-")] += sent
                return sent

            ahead.send = noted_too  # type: ignore[method-assign, assignment]
            return ahead

        harness.line.real.steps_ahead = watched  # type: ignore[method-assign, assignment]


def count(harness: Harness) -> Counter[JobState]:
    try:
        return Counter(harness.line.real.count(JobFilter(ALL_TENANTS)))
    except StoreError:  # the test's own connection was terminated
        return Counter()


def ended(harness: Harness, number: int) -> None:
    eventually(lambda: count(harness)[JobState.COMPLETED] == number, PATIENCE)


def test_under_load_the_event_loop_thread_writes_and_claims(harness: Harness) -> None:
    ran: Counter[int] = Counter()

    @harness.app.task
    async def work(number: int) -> None:
        assert wait_function.get() is None  # a job's own store calls block like any other call
        ran[number] += 1

    steppers = Steppers(harness)
    work.enqueue_many([{"number": number} for number in range(MANY)])
    with harness.runner(pumps=2):
        ended(harness, MANY)
    assert set(ran.values()) == {1}
    assert len(ran) == MANY
    assert steppers.names["tidemill-loop"] > steppers.names["tidemill-pump"]
    assert steppers.ahead > 0  # the store had the next step before it was done with the previous one


def test_a_blocked_event_loop_does_not_hold_up_other_jobs(harness: Harness) -> None:
    gate = threading.Event()

    @harness.app.task
    async def block(number: int) -> None:
        if number == MANY // 2:
            gate.wait(PATIENCE)

    @harness.app.task
    def in_thread() -> str:
        return "done"

    block.enqueue_many([{"number": number} for number in range(MANY)])
    try:
        with harness.runner(pumps=1):
            eventually(lambda: count(harness)[JobState.COMPLETED] > MANY // 10, PATIENCE)
            assert in_thread.enqueue().result(PATIENCE) == "done"
            assert not gate.is_set()
            gate.set()
            ended(harness, MANY + 1)
    finally:
        gate.set()


def test_an_idle_worker_claims_on_its_event_loop_and_wakes_no_other_thread(harness: Harness) -> None:
    @harness.app.task
    async def work() -> str:
        return "done"

    claimers: list[str] = []
    claim = harness.line.real.claim

    def noted(*given: object, **named: object) -> object:
        claims = claim(*given, **named)  # type: ignore[arg-type]
        claimers.extend(threading.current_thread().name for _ in claims)
        return claims

    harness.line.real.claim = noted  # type: ignore[method-assign, assignment]
    with harness.runner(pumps=2) as runner:
        assert work.enqueue().result(PATIENCE) == "done"  # there is no loop before the first job
        for _ in range(20):
            eventually(lambda: runner.quiet, PATIENCE)
            assert work.enqueue().result(PATIENCE) == "done"
    assert len(claimers) == 21
    assert claimers.count("tidemill-loop") > 10  # the other wake-ups came while a claim was still running


def test_a_job_enqueued_by_one_that_blocks_the_loop_still_runs(harness: Harness) -> None:
    gate = threading.Event()

    @harness.app.task
    async def block() -> None:
        gate.wait(PATIENCE)

    @harness.app.task(queue="other")
    def in_thread() -> str:
        return "done"

    try:
        with harness.runner(pumps=1) as runner:
            gate.set()
            block.enqueue().result(PATIENCE)
            eventually(lambda: runner.quiet, PATIENCE)
            gate.clear()
            with harness.app.store.transaction():
                block.enqueue()
                other = in_thread.enqueue()
            assert other.result(PATIENCE) == "done"
            assert not gate.is_set()
            gate.set()
            ended(harness, 3)
    finally:
        gate.set()


def test_connections_terminated_during_loop_steps_lose_no_job(harness: Harness) -> None:
    ran: Counter[int] = Counter()

    @harness.app.task
    async def work(number: int) -> None:
        ran[number] += 1

    work.enqueue_many([{"number": number} for number in range(MANY)])
    with psycopg.connect(harness.url, autocommit=True) as other, harness.runner(pumps=2):
        for _ in range(5):
            before = len(ran)
            eventually(lambda: len(ran) >= min(MANY, before + 100), PATIENCE)  # noqa: B023
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and datname = current_database()"
            )
        ended(harness, MANY)
    assert set(ran.values()) == {1}
    assert len(ran) == MANY


def test_a_stop_under_load_releases_jobs_that_have_not_started(harness: Harness) -> None:
    @harness.app.task
    async def work() -> None: ...

    work.enqueue_many([{}] * MANY)
    runner: Runner
    with harness.runner(pumps=2) as runner:
        eventually(lambda: runner.stats().done > 100, PATIENCE)
    found = count(harness)
    assert found[JobState.COMPLETED] + found[JobState.PENDING] == MANY
    waiting = JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING}))
    assert {job.attempt for job in harness.line.real.jobs(waiting).items} <= {0}


def test_store_calls_of_jobs_are_not_part_of_the_transaction_of_the_loop(harness: Harness) -> None:
    @harness.app.task
    async def child() -> None: ...

    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(0)))
    async def parent(ctx: Context) -> None:
        child.enqueue()  # a sync call on the loop's own thread
        await asyncio.sleep(0)
        if ctx.attempt == 1:
            raise ValueError("again")  # ends that return a job to the queue are written in a transaction

    number = MANY // 6
    parent.enqueue_many([{}] * number)
    with harness.runner(pumps=1):
        ended(harness, 3 * number)


# Pipelined steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose_answer", "refuse", "refuse_busy"])
def test_pipelined_steps_whose_answers_fail_lose_no_job_and_repeat_none(harness: Harness, fault: str) -> None:
    ran: Counter[int] = Counter()

    @harness.app.task
    async def work(number: int) -> None:
        ran[number] += 1

    steppers = Steppers(harness)
    work.enqueue_many([{"number": number} for number in range(MANY)])
    with harness.runner(pumps=2):
        for _ in range(4):
            before = len(ran)
            eventually(lambda: len(ran) >= min(MANY, before + 200), PATIENCE)  # noqa: B023
            getattr(harness.line, fault)("step", times=2)
        ended(harness, MANY)
    assert set(ran.values()) == {1}
    assert len(ran) == MANY
    assert steppers.ahead > 0


def test_ends_that_cannot_be_pipelined_are_still_written(harness: Harness) -> None:
    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(0)))
    async def work(ctx: Context, number: int) -> None:
        if ctx.attempt == 1 and number % 3 == 0:
            raise ValueError("again")  # returns to the queue, by another statement

    steppers = Steppers(harness)
    work.enqueue_many([{"number": number} for number in range(MANY)])
    with harness.runner(pumps=2):
        ended(harness, MANY)
    assert sum(steppers.names.values()) > steppers.ahead


def test_an_abandoned_worker_with_pipelined_steps_writes_nothing_more(harness: Harness) -> None:
    @harness.app.task
    async def work() -> None: ...

    work.enqueue_many([{}] * MANY)
    with harness.runner(pumps=2) as runner:
        eventually(lambda: runner.stats().done > 100, PATIENCE)
        runner.abandon()
        found = count(harness)
        assert not runner._exchange.loop._flights
        assert not runner._exchange._machine.steps
    assert count(harness) == found
    assert sum(found.values()) == MANY


def test_with_only_one_connection_no_step_is_pipelined(place: Place, tmp_path: Path) -> None:
    with place(tmp_path) as url, opened(f"{url}?pool=1") as harness:

        @harness.app.task
        async def work() -> None: ...

        steppers = Steppers(harness)
        work.enqueue_many([{}] * MANY)
        with harness.runner(pumps=1):
            ended(harness, MANY)
        assert steppers.ahead == 0
