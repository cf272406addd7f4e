"""Tests of the samples of the depth of queues that the duty ``fold`` takes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.engine.cluster_kit import Line

from tidemill.clock import ManualClock
from tidemill.domain.job import NewJob
from tidemill.domain.rollups import KEPT, Unit
from tidemill.engine.duties import FoldEnds
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def line(clock: ManualClock) -> Iterator[Line]:
    store = MemoryStore(clock)
    yield Line(store)
    store.close()


def depths(line: Line, window: timedelta = 5 * MINUTE) -> list[int | None]:
    cells = line.store.depth_series(window, MINUTE, queue="mail").queues.get("mail", [])
    return [None if cell is None else cell.pending for cell in cells]


def test_the_depth_of_queues_is_sampled_once_a_minute(line: Line, clock: ManualClock) -> None:
    fold = FoldEnds(line.store)
    line.store.enqueue([NewJob(new_id(), "work", queue="mail")])
    for _ in range(12):
        fold()
        clock.advance(timedelta(seconds=10))
    assert line.calls.count("measure_depths") in (2, 3)  # the minutes that began in these two
    assert [cell for cell in depths(line) if cell] == [1] * line.calls.count("put_depths")


def test_two_processes_sample_a_minute_once(line: Line) -> None:
    line.store.enqueue([NewJob(new_id(), "work", queue="mail")])
    assert FoldEnds(line.store)().items == 1
    assert FoldEnds(line.store)().items == 0


def test_old_samples_are_merged_and_deleted_at_last(line: Line, clock: ManualClock) -> None:
    fold = FoldEnds(line.store)
    line.store.enqueue([NewJob(new_id(), "work", queue="mail")])
    fold()
    clock.advance(KEPT[Unit.MINUTE] + timedelta(minutes=15))
    FoldEnds(line.store)()
    long = line.store.depth_series(timedelta(hours=6), timedelta(minutes=15), queue="mail")
    assert sum(cell is not None and cell.pending == 1 for cell in long.queues["mail"]) == 2
    clock.advance(KEPT[Unit.DAY] + timedelta(days=2))
    assert FoldEnds(line.store)().items >= 1
    assert len(line.store.depth_series(timedelta(days=400), timedelta(days=10)).queues) == 1


def test_old_samples_are_merged_only_when_some_can_be_due(line: Line, clock: ManualClock) -> None:
    fold = FoldEnds(line.store, clock)
    line.store.enqueue([NewJob(new_id(), "work", queue="mail")])
    for _ in range(12 * 6):
        fold()
        clock.advance(timedelta(seconds=10))
    assert line.calls.count("compact_depths") == 1
    assert line.calls.count("drop_depths") == 0
    assert line.calls.count("now") == 12
    clock.advance(KEPT[Unit.MINUTE] + 5 * MINUTE)
    for _ in range(12):
        fold()
        clock.advance(timedelta(seconds=10))
    assert line.calls.count("compact_depths") == 1 + 3  # minutes were merged, so the longer units follow
    assert line.calls.count("drop_depths") == 1
