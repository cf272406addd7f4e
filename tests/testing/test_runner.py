"""Tests of the test runner: real states and retries, without waiting."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.testing.bench import Bench

from tidemill.domain.cluster import WorkerState
from tidemill.domain.decide import DEFAULT_POLICY, decide
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Details, Finish
from tidemill.domain.outcome import Crashed
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.retry import Exponential, Fixed
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.context import Context
from tidemill.errors import PermanentError, Retry, Review, Snooze
from tidemill.tasks.events import Event
from tidemill.testing.runner import Drained

S, E = JobState, ExecutionState
MINUTE = timedelta(minutes=1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.testing.close()
    bench.store.close()


def test_due_jobs_run_and_their_results_are_stored(bench: Bench) -> None:
    def double(n: int) -> int:
        return 2 * n

    ids = [bench.put(bench.task(double), f'{{"n":{n}}}') for n in (1, 2)]
    assert bench.testing.drain() == Drained(processed=2, completed=2)
    assert [(bench.job(id).state, bench.job(id).result) for id in ids] == [
        (S.COMPLETED, "2"),
        (S.COMPLETED, "4"),
    ]
    assert bench.testing.drain() == Drained()


def test_all_queues_and_tenants_are_drained_by_priority(bench: Bench) -> None:
    order: list[str] = []

    def work(name: str) -> None:
        order.append(name)

    task = bench.task(work)
    bench.put(task, '{"name":"low"}', queue="mail", tenant="a", priority=-5)
    bench.put(task, '{"name":"high"}', queue="media", tenant="b", priority=5)
    bench.put(task, '{"name":"middle"}')
    bench.testing.drain()
    assert order == ["high", "middle", "low"]


def test_a_failed_job_is_retried_when_its_time_has_come_and_not_before(bench: Bench) -> None:
    def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError("away")
        return ctx.attempt

    id = bench.put(bench.task(flaky, retry=Exponential(jitter=0.5)))
    assert bench.testing.drain() == Drained(processed=1, failed=1, put_off=1)
    job = bench.job(id)
    assert (job.state, job.run_at) == (S.SCHEDULED, bench.clock.now() + timedelta(seconds=5))
    assert bench.testing.drain().processed == 0
    bench.testing.advance(timedelta(seconds=5))
    assert bench.testing.drain().failed == 1
    bench.testing.advance(timedelta(seconds=10))
    assert bench.testing.drain().completed == 1
    states = [execution.state for execution in bench.store.executions([id], tenant=ALL_TENANTS)]
    assert states == [E.FAILED, E.FAILED, E.SUCCEEDED]


def test_run_until_idle_moves_the_clock_from_one_due_job_to_the_next(bench: Bench) -> None:
    def broken() -> None:
        raise ValueError("always")

    id = bench.put(bench.task(broken, retry=Fixed(max_attempts=3)), max_attempts=3)
    began = bench.clock.now()
    assert bench.testing.run_until_idle() == Drained(processed=3, failed=3, put_off=2)
    assert bench.clock.now() - began == 2 * MINUTE
    job = bench.job(id)
    assert (job.state, job.reason) == (S.DEAD_LETTERED, "ValueError: always")
    assert job.error is not None
    assert "in broken" in str(job.error.traceback)


def test_run_until_idle_stops_at_its_maximum_time(bench: Bench) -> None:
    def forever() -> None:
        raise Snooze(MINUTE)

    id = bench.put(bench.task(forever))
    began = bench.clock.now()
    assert bench.testing.run_until_idle(max_time=5 * MINUTE).processed == 6
    assert bench.clock.now() - began == 5 * MINUTE
    assert (bench.job(id).state, bench.job(id).attempt) == (S.SCHEDULED, 0)


def test_a_limit_ends_a_drain_of_endless_work(bench: Bench) -> None:
    def endless() -> None:
        raise Snooze(timedelta(0))

    bench.put(bench.task(endless))
    assert bench.testing.drain(limit=7).processed == 7
    assert bench.testing.run_until_idle(limit=3).processed == 3


def test_the_exception_of_a_job_is_raised_with_its_traceback_after_the_write(bench: Bench) -> None:
    def deep() -> None:
        raise KeyError("here")

    def work() -> None:
        deep()

    id = bench.put(bench.task(work))
    with pytest.raises(KeyError, match="here") as raised:
        bench.testing.drain(raise_errors=True)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-2:] == ["work", "deep"]
    assert bench.job(id).state is S.SCHEDULED


def test_a_signal_is_not_raised_as_an_error(bench: Bench) -> None:
    def again(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry(after=MINUTE)

    bench.put(bench.task(again))
    assert bench.testing.run_until_idle(raise_errors=True).completed == 1


def test_every_outcome_leads_to_its_state(bench: Bench) -> None:
    def permanent() -> None:
        raise PermanentError("no")

    def review() -> None:
        raise Review("look", output=[1])

    failed, seen = bench.put(bench.task(permanent)), bench.put(bench.task(review))
    assert bench.testing.drain() == Drained(processed=2, failed=1, put_off=1)
    assert bench.job(failed).state is S.FAILED
    assert (bench.job(seen).state, bench.job(seen).result) == (S.REVIEW_NEEDED, "[1]")


def test_log_lines_progress_and_checkpoints_are_stored(bench: Bench) -> None:
    def work(ctx: Context) -> str | None:
        before = ctx.checkpoint("at")
        ctx.save_checkpoint("at", "7")
        ctx.progress(1, 2, "half")
        with ctx.stage("copy"):
            ctx.log("copied", rows=3)
        if before is None:
            raise Retry
        return before

    id = bench.put(bench.task(work), tenant="acme")
    bench.testing.run_until_idle()
    job = bench.job(id)
    assert job.result == '"7"'
    lines = [(line.number, line.message) for _, line in bench.store.logs(id, tenant="acme")]
    assert lines[:3] == [(1, "stage copy begins"), (1, "copied"), (1, "stage copy ends")]
    assert {number for number, _ in lines} == {1, 2}
    assert job.progress is not None
    assert (job.progress.step, job.progress.message) == (1, "half")


def test_the_context_has_the_details_of_the_job(bench: Bench) -> None:
    def work(ctx: Context) -> str:
        return ctx.correlation_id

    id = bench.put(bench.task(work), details=Details(correlation_id="c-1"))
    bench.testing.drain()
    assert bench.job(id).result == '"c-1"'


def test_a_job_sees_its_cancellation(bench: Bench) -> None:
    def work(ctx: Context) -> None:
        bench.store.request_cancel([ctx.job.id], tenant="default", reason="not wanted")
        ctx.check()

    id = bench.put(bench.task(work))
    bench.testing.drain()
    assert (bench.job(id).state, bench.job(id).reason) == (S.CANCELLED, "not wanted")


def test_a_cancelled_job_that_fails_is_not_retried(bench: Bench) -> None:
    def work(ctx: Context) -> None:
        bench.store.request_cancel([ctx.job.id], tenant="default", reason="not wanted")
        raise ValueError("boom")

    id = bench.put(bench.task(work))
    bench.testing.drain()
    assert (bench.job(id).state, bench.job(id).reason) == (S.CANCELLED, "not wanted")


def test_a_task_that_moves_the_clock_past_its_timeout_has_timed_out(bench: Bench) -> None:
    def slow() -> int:
        bench.clock.advance(2 * MINUTE)
        return 1

    id = bench.put(bench.task(slow), timeout=MINUTE, max_attempts=1)
    assert bench.testing.drain() == Drained(processed=1, failed=1)
    assert (bench.job(id).state, bench.job(id).result) == (S.TIMED_OUT, None)


def test_an_expired_job_is_cancelled_and_not_run(bench: Bench) -> None:
    called: list[int] = []

    def work() -> None:
        called.append(1)

    id = bench.put(bench.task(work), expires_at=bench.clock.now() + MINUTE)
    bench.testing.advance(MINUTE)
    assert bench.testing.drain() == Drained()
    assert (bench.job(id).state, bench.job(id).reason, called) == (S.CANCELLED, "expired", [])


def test_paused_jobs_stay_pending(bench: Bench) -> None:
    def work() -> None: ...

    def other() -> None: ...

    task, task2 = bench.task(work), bench.task(other)
    for fields in ({"queue": "mail"}, {"tenant": "acme"}, {"queue": "media"}):
        bench.put(task, **fields)
    bench.put(task2)
    bench.store.pause([Pause(PauseKind.QUEUE, "mail"), Pause(PauseKind.TENANT, "acme")])
    bench.store.pause([Pause(PauseKind.TASK, "other")])
    assert bench.testing.drain().processed == 1
    bench.store.resume([(PauseKind.QUEUE, "mail"), (PauseKind.TASK, "other")])
    bench.store.pause([Pause(PauseKind.ALL, "")])
    assert bench.testing.drain().processed == 0
    bench.store.resume([(PauseKind.ALL, "")])
    assert bench.testing.drain().processed == 2


def test_jobs_of_undeclared_tasks_stay_pending(bench: Bench) -> None:
    id = bench.put("unknown")
    assert bench.testing.drain() == Drained()
    assert bench.job(id).state is S.PENDING


def test_enqueued_lists_waiting_jobs_by_name_or_by_task(bench: Bench) -> None:
    def one() -> None: ...

    def two() -> None: ...

    bench.task(one)
    bench.task(two)
    first = bench.put("one")
    later = bench.put("one", delay=MINUTE, tenant="acme")
    other = bench.put("two")
    assert [job.id for job in bench.testing.enqueued()] == [first, later, other]
    assert [job.id for job in bench.testing.enqueued("one")] == [first, later]
    assert [job.id for job in bench.testing.enqueued(bench.registry.get("two"))] == [other]
    bench.testing.drain()
    assert [job.id for job in bench.testing.enqueued()] == [later]


def test_jobs_enqueued_by_a_job_are_drained_too(bench: Bench) -> None:
    def parent(depth: int) -> None:
        if depth:
            bench.put("parent", f'{{"depth":{depth - 1}}}')

    bench.put(bench.task(parent), '{"depth":3}')
    assert bench.testing.drain().completed == 4


def test_an_execution_that_lost_its_claim_writes_nothing(bench: Bench) -> None:
    def robbed(ctx: Context) -> str:
        bench.store.retire([worker.id for worker in bench.store.workers()], now=bench.clock.now())
        (claim,) = bench.store.orphans(10)
        crashed = decide(claim, Crashed("gone"), DEFAULT_POLICY, bench.clock.now(), 0.5)
        bench.store.finish([Finish(claim, crashed)], now=bench.clock.now())
        ctx.progress(0.5)
        return "late" if ctx.cancelled else "never told"

    id = bench.put(bench.task(robbed), max_attempts=2)
    assert bench.testing.drain(limit=1) == Drained(processed=1, lost=1)
    assert (bench.job(id).state, bench.job(id).result) == (S.PENDING, None)


def test_an_interrupted_drain_releases_the_job(bench: Bench) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    id = bench.put(bench.task(work))
    with pytest.raises(KeyboardInterrupt):
        bench.testing.drain()
    assert (bench.job(id).state, bench.job(id).attempt) == (S.PENDING, 0)


def test_the_test_runner_is_a_registered_worker_while_it_is_open(bench: Bench) -> None:
    assert bench.store.workers() == []
    bench.testing.drain()
    bench.testing.advance(timedelta(days=100))
    bench.testing.drain()
    (worker,) = bench.store.workers()
    assert (worker.name, worker.state, worker.beats > 0) == ("testing", WorkerState.ACTIVE, True)
    bench.testing.close()
    bench.testing.close()
    (worker,) = bench.store.workers()
    assert worker.state is WorkerState.STOPPED
    bench.testing.drain()
    assert len(bench.store.workers()) == 2


def test_start_and_end_events_reach_subscribers(bench: Bench) -> None:
    heard: list[Event] = []
    bench.events.subscribe("job.*", heard.append)

    def work() -> None: ...

    id = bench.put(bench.task(work))
    bench.testing.drain()
    assert [(event.name, event.job_id, event.state) for event in heard] == [
        ("job.started", id, "running"),
        ("job.finished", id, "completed"),
    ]
