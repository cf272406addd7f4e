"""Batches: members, callbacks, growth, and actions of people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, Batch, BatchInfo, Context, ManualClock, NoRetry
from tidemill.errors import (
    BatchEnded,
    FlowFailed,
    FlowNotFound,
    IllegalTransition,
    JobCancelled,
    PermanentError,
    UsageError,
)


class World:
    def __init__(self, url: str) -> None:
        self.app = App(url, clock=ManualClock(), migrate=True)
        self.ran: list[Any] = []
        self.failing: set[int] = set()
        world = self

        @self.app.task(retry=NoRetry())
        def load(row: int) -> int:
            world.ran.append(row)
            if row in world.failing:
                raise PermanentError("broken row")
            return row

        @self.app.task
        def grow(ctx: Context, row: int) -> None:
            world.ran.append(row)
            if row:
                ctx.batch.add(grow, row=row - 1)

        @self.app.task
        def report(batch: BatchInfo) -> None:
            world.ran.append(("report", batch.total, batch.pending, batch.failed, batch.description))

        @self.app.task
        def publish(batch: BatchInfo) -> None:
            world.ran.append("publish")

        @self.app.task
        def page(batch: BatchInfo) -> None:
            world.ran.append("page")

        self.load, self.grow, self.report, self.publish, self.page = load, grow, report, publish, page

    def drain(self) -> None:
        self.app.testing().drain()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(url_of(request.param, tmp_path, request))
    yield made
    made.app.close()


def test_jobs_enqueued_inside_the_block_are_counted_together(world: World) -> None:
    with world.app.batch("import", on_complete=world.report, on_success=world.publish, on_failure=world.page,
                         description="rows") as batch:  # fmt: skip
        for row in range(3):
            world.load.enqueue(row=row)
        world.load.enqueue_many([{"row": row} for row in range(3, 1_300)])
    world.load.enqueue(row=-1)
    assert (batch.total, batch.pending, batch.progress) == (1_300, 1_300, 0.0)
    world.drain()
    assert (batch.total, batch.pending, batch.failed, batch.progress) == (1_300, 0, 0, 1.0)
    assert str(batch.status) == "completed"
    assert batch.result(timeout=1).total == 1_300
    assert ("report", 1_300, 0, 0, "rows") in world.ran
    assert world.ran.count("publish") == 1
    assert "page" not in world.ran
    assert len(list(batch.jobs())) == 1_300


def test_the_first_failure_and_the_end_each_release_their_callback_once(world: World) -> None:
    world.failing |= {1, 2}
    with world.app.batch(
        "import", on_complete=world.report, on_success=world.publish, on_failure=world.page
    ) as batch:
        world.load.enqueue_many([{"row": row} for row in range(4)])
    world.drain()
    assert world.ran.count("page") == 1
    assert world.ran.count("publish") == 0
    assert ("report", 4, 0, 2, None) in world.ran
    with pytest.raises(FlowFailed, match="2 of 4 jobs"):
        batch.result(timeout=1)


def test_an_empty_batch_completes_at_once(world: World) -> None:
    with world.app.batch("nothing", on_complete=world.report) as batch:
        pass
    assert str(batch.status) == "completed"
    world.drain()
    assert world.ran == [("report", 0, 0, 0, None)]


def test_s24_a_batch_grown_by_its_last_member(world: World) -> None:
    with world.app.batch("grow", on_complete=world.report) as batch:
        world.grow.enqueue(row=3)
    world.drain()
    assert world.ran == [3, 2, 1, 0, ("report", 4, 0, 0, None)]
    assert str(batch.status) == "completed"


def test_s24_a_batch_that_was_opened_and_never_closed_stays_open_until_it_is_cancelled(world: World) -> None:
    batch = world.app.batch("open", on_complete=world.report)
    world.drain()
    assert str(batch.status) == "running"
    batch.cancel("forgotten")
    world.drain()
    assert str(batch.status) == "cancelled"
    with pytest.raises(JobCancelled, match="forgotten"):
        batch.result(timeout=1)


def test_a_block_that_raises_leaves_what_was_enqueued_or_cancels_it(world: World) -> None:
    def fill(batch: Batch, row: int) -> None:
        with batch:
            world.load.enqueue(row=row)
            raise ZeroDivisionError

    kept, cancelled = world.app.batch("a"), world.app.batch("b", on_error="cancel")
    for batch, row in ((kept, 1), (cancelled, 2)):
        with pytest.raises(ZeroDivisionError):
            fill(batch, row)
    world.drain()
    assert str(kept.status) == "completed"
    assert str(cancelled.status) == "cancelled"
    assert world.ran == [1]


def test_a_retry_reopens_the_batch_and_callbacks_do_not_run_again(world: World) -> None:
    world.failing.add(1)
    with world.app.batch("again", on_complete=world.report, on_success=world.publish) as batch:
        world.load.enqueue_many([{"row": row} for row in range(3)])
    world.drain()
    assert str(batch.status) == "failed"
    world.failing.clear()
    batch.retry_failed()
    world.drain()
    assert str(batch.status) == "completed"
    assert batch.failed == 0
    assert world.ran.count("publish") == 1
    assert sum(1 for item in world.ran if isinstance(item, tuple)) == 1
    with pytest.raises(IllegalTransition, match="no failed job"):
        batch.retry_failed()


def test_a_closed_batch_takes_no_more_jobs(world: World) -> None:
    with world.app.batch("closed") as batch:
        world.load.enqueue(row=1)
    with pytest.raises(BatchEnded):
        batch.add([], [])


def test_a_callback_takes_the_batch_as_its_only_argument(world: World) -> None:
    with pytest.raises(UsageError, match="batch: BatchInfo"):
        world.app.batch("bad", on_complete=world.load)
    with pytest.raises(UsageError, match="is not a task"):
        world.app.batch("bad", on_complete=len)  # type: ignore[arg-type]


def test_batches_are_found(world: World) -> None:
    with world.app.batch("one") as batch:
        world.load.enqueue(row=1)
    assert [found.name for found in world.app.batches.list()] == ["one"]
    assert world.app.batches.list(status="completed") == []
    assert world.app.batches.get(str(batch.id)).name == "one"
    assert world.app.flows.list() == []
    with pytest.raises(FlowNotFound):
        world.app.batches.get("nothing")
