"""Tests of item tasks: counting, failed items, and resuming from a checkpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from tests.engine.kit import MINUTE, World

from tidemill.domain.outcome import Cancelled, Failed, Snoozed
from tidemill.engine.context import Context
from tidemill.errors import BadSettings, PermanentError, Snooze
from tidemill.tasks.item_task import CHECKPOINT, SKIP, Counts, ItemTask, Skip
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.task import declare


class Numbers(ItemTask[int, dict[str, int | None]]):
    """Processes numbers: 13 fails, and multiples of ten are skipped."""

    seen: ClassVar[list[tuple[int, int]]] = []

    def items(self, first: int, last: int) -> Iterator[int]:
        yield from range(first, last + 1)

    def process(self, item: int, index: int, ctx: Context) -> Skip | None:
        self.seen.append((index, item))
        if item == 13:
            raise ValueError("bad luck")
        return SKIP if item % 10 == 0 else None


@pytest.fixture
def world() -> World:
    Numbers.seen.clear()
    return World()


def counts_of(world: World, target: type[Any], args: str = "{}") -> dict[str, Any]:
    result = world.run(target, args).result
    assert result is not None
    found: dict[str, Any] = json.loads(result)
    return found


def test_every_item_is_counted_and_a_failed_one_does_not_stop_the_others(world: World) -> None:
    found = counts_of(world, Numbers, '{"first":10,"last":20}')
    assert found == {"total": 11, "processed": 8, "failed": 1, "skipped": 2}
    assert Numbers.seen == [(n - 10, n) for n in range(10, 21)]


def test_a_failed_item_is_logged_with_its_index(world: World) -> None:
    world.run(Numbers, '{"first":12,"last":14}')
    (line,) = world.outlet.lines
    assert (line.level, line.message) == ("error", "item 1 failed: ValueError: bad luck")
    assert line.details == {"index": 1, "error": "ValueError"}


def test_progress_shows_processed_and_total_items(world: World) -> None:
    class Listed(Numbers):
        def items(self, first: int, last: int) -> list[int]:  # type: ignore[override]
            return list(range(first, last + 1))

    world.run(Listed, '{"first":12,"last":15}')
    assert [told.message for told in world.outlet.reports][:3] == [
        "Processed 1/4 (0 failed)",
        "Processed 2/4 (1 failed)",
        "Processed 3/4 (1 failed)",
    ]
    assert (world.outlet.reports[-1].fraction, world.outlet.reports[-1].total) == (1.0, 4)


def test_a_stream_has_no_total_before_its_end_unless_the_task_knows_it(world: World) -> None:
    class Known(Numbers):
        def total(self, first: int, last: int) -> int:
            return last - first + 1

    world.run(Numbers, '{"first":1,"last":2}')
    assert [told.message for told in world.outlet.reports] == [
        "Processed 1 (0 failed)",
        "Processed 2 (0 failed)",
        "Processed 2/2 (0 failed)",
    ]
    known = World()
    known.run(Known, '{"first":1,"last":2}')
    assert known.outlet.reports[0].message == "Processed 1/2 (0 failed)"


def test_a_job_without_items_completes(world: World) -> None:
    assert counts_of(world, Numbers, '{"first":1,"last":0}')["total"] == 0
    assert world.outlet.reports[-1].fraction == 1.0


def test_arguments_come_from_items_and_the_result_from_summary(world: World) -> None:
    class Summed(ItemTask[int, str]):
        def items(self, numbers: list[int], ctx: Context) -> list[int]:
            assert ctx.attempt == 1
            return numbers

        def process(self, item: int, index: int, ctx: Context) -> bool:
            return item > 0

        def summary(self, counts: Counts) -> str:
            return f"{counts.processed} good, {counts.failed} bad"

    declared = declare(Summed, TaskOptions(name="summed"))
    assert declared.arguments.names == ("numbers",)
    assert (declared.context_parameter, declared.is_async, declared.is_class) == ("ctx", False, True)
    assert world.run(Summed, '{"numbers":[1,-1,2]}').result == '"2 good, 1 bad"'


def test_a_wrong_summary_is_a_wrong_result(world: World) -> None:
    class Wrong(Numbers):
        def summary(self, counts: Counts) -> dict[str, int | None]:
            return "nothing"  # type: ignore[return-value]

    outcome = world.run(Wrong, '{"first":1,"last":2}').outcome
    assert isinstance(outcome, Failed)
    assert outcome.permanent


def test_items_are_streamed_one_by_one(world: World) -> None:
    alive: list[int] = []

    class Lazy(ItemTask[int, Any]):
        def items(self) -> Iterator[int]:
            for n in range(1000):
                alive.append(n)
                yield n

        def process(self, item: int, index: int, ctx: Context) -> None:
            assert len(alive) == index + 1

    assert counts_of(world, Lazy)["failed"] == 0


# ---------------------------------------------------------------------------------------------- coroutines


class Slow(ItemTask[int, Any]):
    """An item task with coroutines for items and process."""

    closed: ClassVar[list[bool]] = []

    async def items(self, last: int) -> AsyncIterator[int]:
        try:
            for n in range(last):
                await asyncio.sleep(0)
                yield n
        finally:
            self.closed.append(True)

    async def process(self, item: int, index: int, ctx: Context) -> Skip | bool | None:
        await asyncio.sleep(0)
        if item == 3:
            raise ValueError("three")
        if item == 5:
            raise Snooze(MINUTE)
        return SKIP if item == 1 else item != 2


def test_items_and_process_may_be_async(world: World) -> None:
    assert declare(Slow, TaskOptions(name="slow")).is_async
    assert counts_of(world, Slow, '{"last":5}') == {"total": 5, "processed": 2, "failed": 2, "skipped": 1}


def test_an_async_stream_is_closed_when_the_execution_ends_early(world: World) -> None:
    Slow.closed.clear()
    assert world.run(Slow, '{"last":9}').outcome == Snoozed(MINUTE)
    assert Slow.closed == [True]
    assert world.outlet.kept[CHECKPOINT] == "[5,2,2,1]"


def test_either_method_may_be_async_alone(world: World) -> None:
    class Mixed(ItemTask[int, Any]):
        def items(self) -> list[int]:
            return [1, 2]

        async def process(self, item: int, index: int, ctx: Context) -> None:
            await asyncio.sleep(0)

    class Hidden(ItemTask[int, Any]):
        def items(self) -> AsyncIterator[int]:
            return Slow().items(2)

        def process(self, item: int, index: int, ctx: Context) -> None: ...

    class Fetched(ItemTask[int, Any]):
        async def items(self) -> list[int]:
            return [1, 2]

        def process(self, item: int, index: int, ctx: Context) -> None: ...

    for task in (Mixed, Hidden, Fetched):
        assert counts_of(world, task)["processed"] == 2


# -------------------------------------------------------------------------------------------------- resuming


class Stops(Numbers):
    """Raises ``how`` at 15, while it is set."""

    how: ClassVar[BaseException | None] = None

    def process(self, item: int, index: int, ctx: Context) -> Skip | None:
        if item == 15 and self.how is not None:
            raise self.how
        return super().process(item, index, ctx)


@pytest.mark.parametrize("how", [PermanentError("stop"), Snooze(MINUTE)])
def test_the_position_is_saved_and_the_next_attempt_resumes_after_it(
    world: World, how: BaseException
) -> None:
    Stops.how = how
    ended = world.run(Stops, '{"first":11,"last":18}')
    assert ended.exception is how
    assert world.outlet.kept[CHECKPOINT] == "[4,3,1,0]"
    Stops.how = None
    found = counts_of(world, Stops, '{"first":11,"last":18}')
    assert found == {"total": 8, "processed": 7, "failed": 1, "skipped": 0}
    assert [item for _, item in Stops.seen] == [11, 12, 13, 14, 15, 16, 17, 18]


def test_a_summary_that_fails_does_not_repeat_the_items(world: World) -> None:
    class Forgetful(Numbers):
        fail: ClassVar[bool] = True

        def summary(self, counts: Counts) -> dict[str, int | None]:
            if self.fail:
                raise ValueError("not now")
            return super().summary(counts)

    assert isinstance(world.run(Forgetful, '{"first":1,"last":4}').outcome, Failed)
    Forgetful.fail = False
    assert counts_of(world, Forgetful, '{"first":1,"last":4}')["processed"] == 4
    assert len(Forgetful.seen) == 4


def test_checkpoints_are_saved_at_most_once_a_second_and_at_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []

    class Ticking(Numbers):
        def process(self, item: int, index: int, ctx: Context) -> None:
            world.clock.advance(timedelta(seconds=0.4))

    monkeypatch.setattr(world.outlet, "save_checkpoint", lambda _, value: saved.append(value))
    world.run(Ticking, '{"first":1,"last":7}')
    assert saved == ["[3,3,0,0]", "[6,6,0,0]", "[7,7,0,0]"]


def test_a_checkpoint_that_cannot_be_saved_does_not_hide_the_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, value: str) -> None:
        raise ConnectionError("store is away")

    monkeypatch.setattr(world.outlet, "save_checkpoint", refuse)
    Stops.how = PermanentError("stop")
    assert world.run(Stops, '{"first":11,"last":18}').exception is Stops.how


def test_a_cancelled_job_stops_before_the_next_item(world: World) -> None:
    class Watched(Numbers):
        def process(self, item: int, index: int, ctx: Context) -> None:
            self.seen.append((index, item))
            world.outlet.cancelled = item == 3

    assert world.run(Watched, '{"first":1,"last":9}').outcome == Cancelled()
    assert len(Watched.seen) == 3


def test_a_task_without_items_or_process_is_refused(world: World) -> None:
    class Empty(ItemTask[int, Any]):
        pass

    with pytest.raises(BadSettings):
        declare(Empty, TaskOptions(name="empty"))


def test_the_description_of_a_class_is_its_own_docstring_and_not_inherited() -> None:
    class Silent(Numbers):
        pass

    class Told(Numbers):
        """Sums it up.

        And more.
        """

    silent, told = (declare(each, TaskOptions(name="sum")) for each in (Silent, Told))
    assert (silent.description, silent.summary) == (None, None)
    assert (told.description, told.summary) == ("Sums it up.\n\nAnd more.", "Sums it up.")
    said = declare(Told, TaskOptions(name="sum", description="By hand."))
    assert said.description == said.summary == "By hand."
