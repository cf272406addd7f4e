"""Tests of the batcher: concurrent enqueues share a commit."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemill.client.enqueue.writes import AsyncBatcher, Batcher
from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id

PATIENCE = 30.0


class Paper:
    """A writer that blocks on its first batch until the test releases it."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def write(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self.batches.append(len(jobs))
        if len(self.batches) == 1:
            self.begun.set()
            assert self.go.wait(PATIENCE)
        if any(job.task == "bad" for job in jobs):
            raise StoreUnavailable("away")
        return [Enqueued(job.id, True) for job in jobs]


def job(task: str = "t") -> NewJob:
    return NewJob(new_id(), task)


def start(batcher: Batcher, one: NewJob, answers: list[object]) -> threading.Thread:
    def ask() -> None:
        try:
            answers.extend(batcher.submit([one]))
        except StoreUnavailable as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def wait_for(batcher: Batcher, count: int) -> None:
    """Wait until this many threads are queued in the batcher."""
    while len(batcher._waiting) < count:
        threading.Event().wait(0.001)


def test_jobs_that_arrive_during_a_write_are_written_in_one_batch() -> None:
    paper = Paper()
    batcher, answers = Batcher(paper.write), list[object]()
    threads = [start(batcher, job(), answers)]
    assert paper.begun.wait(PATIENCE)
    threads += [start(batcher, job(), answers) for _ in range(5)]
    wait_for(batcher, 5)
    paper.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert paper.batches == [1, 5]
    assert len(answers) == 6
    assert batcher.submit([job()])[0].created


def test_an_error_reaches_only_the_caller_whose_job_caused_it() -> None:
    paper = Paper()
    batcher, good, bad = Batcher(paper.write), list[object](), list[object]()
    threads = [start(batcher, job(), good)]
    assert paper.begun.wait(PATIENCE)
    threads += [start(batcher, job(), good), start(batcher, job("bad"), bad), start(batcher, job(), good)]
    wait_for(batcher, 3)
    paper.go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert [type(answer) for answer in good] == [Enqueued] * 3
    assert [type(answer) for answer in bad] == [StoreUnavailable]


def test_an_error_of_a_single_caller_leaves_the_batcher_usable() -> None:
    paper = Paper()
    paper.go.set()
    batcher = Batcher(paper.write)
    with pytest.raises(StoreUnavailable, match="away"):
        batcher.submit([job("bad")])
    assert batcher.submit([job()])[0].created


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are not sent to threads here")
def test_ctrl_c_while_waiting_withdraws_the_job_and_blocks_no_other_caller() -> None:
    paper = Paper()
    batcher, answers = Batcher(paper.write), list[object]()
    first = start(batcher, job(), answers)
    assert paper.begun.wait(PATIENCE)

    interrupted = threading.Event()

    def press() -> None:
        wait_for(batcher, 1)
        # A signal that arrives just before the main thread waits does not end its wait, so the key is pressed again.
        while not interrupted.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            interrupted.wait(1)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(KeyboardInterrupt):
        batcher.submit([job()])
    interrupted.set()
    finger.join(PATIENCE)
    paper.go.set()
    first.join(PATIENCE)
    assert batcher.submit([job()])[0].created
    assert paper.batches == [1, 1]


def test_a_coroutine_that_enqueues_after_the_thread_pool_closed_gets_an_error() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    batcher = AsyncBatcher(lambda jobs: [Enqueued(job.id, True) for job in jobs], lambda: pool)

    async def both() -> list[object]:
        asked = [asyncio.create_task(batcher.submit([job()])) for _ in range(2)]
        async with asyncio.timeout(PATIENCE):
            return list(await asyncio.gather(*asked, return_exceptions=True))

    answers = asyncio.run(both())
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    assert "is the app closed?" in str(answers[0])
