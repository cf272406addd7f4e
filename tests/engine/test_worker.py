"""Tests of the embedded worker: results, claim order and shared work."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened
from tests.grounds import new_database

from tidemill import Context, Task
from tidemill.domain.job import NewJob
from tidemill.domain.records import PauseKind
from tidemill.domain.states import ExecutionState, JobState
from tidemill.errors import StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.tasks.item_task import ItemTask

S, E = JobState, ExecutionState
SOON = timedelta(milliseconds=50)


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def small() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


# ---------------------------------------------------------------------------------------------------- results


def test_functions_coroutines_classes_and_item_tasks_return_their_results(harness: Harness) -> None:
    @harness.app.task
    def add(left: int, right: int) -> int:
        return left + right

    @harness.app.task
    async def multiply(left: int, right: int) -> int:
        await asyncio.sleep(0)
        return left * right

    class Shout(Task[Context, str]):
        def run(self, ctx: Context, text: str) -> str:
            return f"{text.upper()} {ctx.attempt}"

    class Rows(ItemTask[int, dict[str, int]]):
        def items(self, *, count: int) -> Iterator[int]:
            yield from range(count)

        def process(self, item: int, index: int, ctx: Context) -> None:
            if item == 3:
                raise ValueError("three is bad")

    shout, rows = harness.app.task(Shout), harness.app.task(Rows)
    with harness.worker():
        jobs: list[Any] = [
            add.enqueue(1, 2),
            multiply.enqueue(3, 4),
            shout.enqueue(text="ho"),
            rows.enqueue(count=5),
        ]
        assert [job.result(PATIENCE) for job in jobs[:3]] == [3, 12, "HO 1"]
        counts = jobs[3].result(PATIENCE)
        assert (counts["processed"], counts["failed"]) == (4, 1)
    for job in jobs:
        (execution,) = harness.executions(job)
        assert execution.state is E.SUCCEEDED
        assert execution.started_at is not None
        assert execution.finished_at is not None
        assert execution.started_at <= execution.finished_at


def test_the_embedded_worker_is_an_async_context_manager_too(small: Harness) -> None:
    @small.app.task
    async def echo(text: str) -> str:
        return text

    async def main() -> str:
        async with small.worker():
            job = await echo.aenqueue("hello")
            return await job.aresult(PATIENCE)

    assert asyncio.run(main()) == "hello"


def test_a_worker_can_be_started_only_once(small: Harness) -> None:
    worker = small.worker()
    ids = []
    with worker:
        ids.append(worker.id)
        with pytest.raises(UsageError):
            worker.start()
    worker.stop()
    ids.append(worker.id)
    assert [id is None for id in ids] == [False, True]
    assert worker.stats() is None
    with pytest.raises(UsageError):
        worker.start()


def test_a_start_while_the_store_is_down_raises_and_can_be_repeated_later(
    small: Harness,
) -> None:
    @small.app.task
    def hello() -> str:
        return "hello"

    worker = small.worker()
    small.line.cut()
    with pytest.raises(StoreUnavailable):
        worker.start()
    small.line.mend()
    small.line.refuse("register")
    with pytest.raises(StoreUnavailable):
        worker.start()
    with worker:
        assert hello.enqueue().result(PATIENCE) == "hello"


# ------------------------------------------------------------------------------------------------ claiming


@pytest.mark.parametrize("lane", ["threads", "concurrency"])
def test_jobs_with_higher_priority_run_first(harness: Harness, lane: str) -> None:
    order: list[int] = []

    @harness.app.task
    def in_thread(number: int) -> None:
        order.append(number)

    @harness.app.task
    async def on_loop(number: int) -> None:
        order.append(number)

    task = in_thread if lane == "threads" else on_loop
    numbers = [3, -100, 50, 0, 100, 7, -3, 99, 50, 0]
    jobs = [task.using(priority=number).enqueue(number) for number in numbers]
    with harness.worker(**{lane: 1}):
        harness.ends(*jobs)
    assert order == sorted(numbers, reverse=True)


def test_only_known_tasks_and_given_queues_are_claimed(harness: Harness) -> None:
    @harness.app.task
    def known(name: str) -> str:
        return name

    other = harness.another_app()

    @other.task
    def unknown() -> str:
        return "done by the other"

    strange, mail = unknown.enqueue(), known.using(queue="mail").enqueue("mail")
    with harness.worker(queues=["default"]):
        assert known.enqueue("mine").result(PATIENCE) == "mine"
        assert (harness.state(strange), harness.state(mail)) == (S.PENDING, S.PENDING)
        assert harness.row(strange).attempt == 0
        with other.worker(children=0):
            assert strange.result(PATIENCE) == "done by the other"
        with harness.worker(queues="mail"):
            assert mail.result(PATIENCE) == "mail"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PauseKind.QUEUE, "default"),
        (PauseKind.TASK, "held_back"),
        (PauseKind.TENANT, "acme"),
        (PauseKind.ALL, ""),
    ],
)
def test_paused_jobs_do_not_start_and_continue_soon_after_the_resume(
    harness: Harness, kind: PauseKind, name: str
) -> None:
    @harness.app.task(name="held_back")
    def held_back() -> str:
        return "done"

    @harness.app.task(queue="other")
    def free() -> str:
        return "free"

    with harness.worker(poll=60) as worker, harness.app.tenant("acme"):
        assert held_back.enqueue().result(PATIENCE) == "done"
        harness.line.reset_counts()
        harness.pause(kind, name)
        # It has been notified. A claim that was in flight did not see the pause yet.
        eventually(
            lambda: harness.line.calls_of("orders") and worker._runner is not None and worker._runner.quiet
        )
        harness.line.reset_counts()
        job = held_back.enqueue()
        eventually(lambda: harness.line.calls_of("lanes") > 0)  # it was notified, and read the lanes
        if kind is not PauseKind.ALL:
            with harness.app.tenant("other"):
                assert free.enqueue().result(PATIENCE) == "free"
        assert harness.state(job) is S.PENDING
        began = harness.clock.monotonic()
        harness.resume(kind, name)
        harness.ends(job)
        assert harness.clock.monotonic() - began < 4.0  # sooner than the tick of the duties


# ------------------------------------------------------------------------------------------------- many jobs


@pytest.mark.parametrize("slots", [3, 500])
def test_a_thousand_jobs_each_run_once(harness: Harness, slots: int) -> None:
    ran: Counter[int] = Counter()
    most, now = 0, 0

    @harness.app.task
    async def work(number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        ran[number] += 1
        now -= 1
        return number

    jobs = work.enqueue_many([{"number": number} for number in range(1000)])
    with harness.worker(concurrency=slots):
        harness.ends(*jobs)
    assert set(ran.values()) == {1}
    assert len(ran) == 1000
    assert most <= slots
    assert [int(harness.row(job).result or -1) for job in jobs[::100]] == list(range(0, 1000, 100))


def test_threads_and_coroutines_do_not_block_each_other(small: Harness) -> None:
    gate = threading.Event()

    @small.app.task
    def slow() -> None:
        gate.wait(PATIENCE)

    @small.app.task
    async def quick() -> str:
        return "quick"

    blocked = slow.enqueue_many([{} for _ in range(30)])
    with small.worker(threads=2):
        eventually(lambda: sum(small.state(job) is not S.PENDING for job in blocked) == 2)
        assert quick.enqueue().result(PATIENCE) == "quick"
        gate.set()
        small.ends(*blocked)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


def test_two_workers_share_two_thousand_jobs_and_run_none_twice(shared_place: Place, tmp_path: Path) -> None:
    effects: list[tuple[str, int]] = []
    with shared_place(tmp_path) as url, opened(url) as harness:
        other = harness.another_app()
        for app, who in ((harness.app, "one"), (other, "two")):

            def work(number: int, *, who: str = who) -> None:
                effects.append((who, number))

            async def awork(number: int, *, who: str = who) -> None:
                await asyncio.sleep(0.001)
                effects.append((who, number))

            app.task(name="work")(work)
            app.task(name="awork")(awork)
        with harness.worker(), other.worker(children=0):
            _put(harness, "work", range(1000))
            _put(harness, "awork", range(1000, 2000))
            eventually(lambda: len(effects) >= 2000, 120)
            eventually(lambda: set(harness.app.jobs.counts()) == {S.COMPLETED}, 120)
    done = Counter(number for _, number in effects)
    assert sorted(done) == list(range(2000))
    assert set(done.values()) == {1}


def _put(harness: Harness, task: str, numbers: range) -> None:
    harness.line.real.enqueue([NewJob(new_id(), task, f'{{"number":{number}}}') for number in numbers])
    harness.line.real.notify(["ready:default"])


@pytest.mark.long
def test_an_idle_worker_makes_few_calls_to_the_server(postgres: Any, tmp_path: Path) -> None:
    with new_database(postgres) as url, opened(url) as harness:
        harness.app.task(name="work")(lambda: None)
        with harness.worker():
            eventually(lambda: harness.line.calls_of("sweep") > 0, 20)  # all duties have run once
            harness.line.reset_counts()
            threading.Event().wait(6.0)
            asked = harness.line.asked()
        assert sum(asked.values()) / 6.0 < 4.0, asked
        assert asked["claim"] + asked["step"] + asked["orders"] <= 2, asked
