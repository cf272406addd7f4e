"""Laws of the samples of depths over time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tidemill.domain.depths import DepthSample, DepthStep
from tidemill.domain.rollups import KEPT, LENGTHS, Compaction, Unit, compactions, floored
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, SECOND, T0, WORKER, a_job, at, claim_all, put, register

MINUTE = timedelta(minutes=1)
NOTHING = timedelta(0)


def pending(store: Store, queue: str, *, now: datetime, window: timedelta = 4 * MINUTE) -> list[int | None]:
    """Return the pending jobs of a queue by minute."""
    cells = store.depth_series(window, MINUTE, queue=queue, now=now).queues.get(queue, [])
    return [None if cell is None else cell.pending for cell in cells]


class DepthSampleLaws:
    """One sample per minute of the queues that are not empty, and of those that have just become empty."""

    def test_every_queue_with_waiting_jobs_is_measured(self, store: Store) -> None:
        put(store, a_job(), a_job(tenant="b"), a_job(queue="mail “x” %s", run_at=at(600)), now=T0)
        put(store, a_job(queue="late", run_at=at(30)), a_job(queue="late", run_at=at(900)), now=T0)
        assert store.measure_depths(now=at(60)) == [
            DepthSample("default", 2, 0, 60 * SECOND),
            DepthSample("late", 1, 1, 30 * SECOND),
            DepthSample("mail “x” %s", 0, 1, NOTHING),
        ]

    def test_running_jobs_do_not_wait(self, store: Store) -> None:
        register(store, WORKER)
        put(store, a_job())
        claim_all(store)
        assert store.measure_depths(now=at(60)) == []

    def test_a_minute_is_measured_once(self, store: Store) -> None:
        put(store, a_job())
        samples = store.measure_depths(now=at(0))
        assert store.put_depths(samples, now=at(0)) == 1
        assert store.measure_depths(now=at(20)) == []
        assert store.put_depths([DepthSample("default", 9, 9, HOUR)], now=at(20)) == 0
        assert pending(store, "default", now=at(20))[-1] == 1
        assert store.measure_depths(now=at(60)) == [DepthSample("default", 1, 0, 60 * SECOND)]

    def test_a_queue_that_became_empty_has_one_empty_sample(self, store: Store) -> None:
        assert (
            store.put_depths([DepthSample("a", 3, 0, SECOND), DepthSample("b", 0, 2, NOTHING)], now=at(0))
            == 2
        )
        assert store.put_depths([DepthSample("b", 0, 2, NOTHING)], now=at(120)) == 2
        assert store.put_depths([], now=at(180)) == 1
        assert store.put_depths([], now=at(240)) == 0
        assert pending(store, "a", now=at(240), window=5 * MINUTE) == [3, None, 0, 0, 0]
        assert store.depth_series(5 * MINUTE, MINUTE, queue="b", now=at(240)).queues["b"][2:] == [
            DepthStep(0, 2, NOTHING), DepthStep(0, 0, NOTHING), DepthStep(0, 0, NOTHING),
        ]  # fmt: skip

    def test_a_step_has_the_highest_values_of_its_samples(self, store: Store) -> None:
        base = floored(T0, HOUR)
        for minute, (jobs, later, age) in enumerate([(1, 9, 30), (7, 2, 10), (3, 4, 90)]):
            sample = DepthSample("a", jobs, later, age * SECOND)
            assert store.put_depths([sample], now=base + minute * MINUTE) == 1
        series = store.depth_series(30 * MINUTE, 15 * MINUTE, now=base + 16 * MINUTE)
        assert series.queues == {"a": [DepthStep(7, 9, 90 * SECOND), None]}
        assert (series.steps, series.step) == ([base, base + 15 * MINUTE], 15 * MINUTE)

    def test_a_series_has_the_deepest_queues_within_the_limit(self, store: Store) -> None:
        samples = [
            DepthSample(name, jobs, 0, SECOND) for name, jobs in (("a", 1), ("b", 3), ("c", 3), ("d", 2))
        ]
        store.put_depths(samples, now=T0)
        assert list(store.depth_series(HOUR, MINUTE, limit=3, now=T0).queues) == ["b", "c", "d"]
        assert list(store.depth_series(HOUR, MINUTE, queue="a", now=T0).queues) == ["a"]
        assert store.depth_series(HOUR, MINUTE, limit=0, now=T0).queues == {}
        assert store.depth_series(HOUR, MINUTE, queue="z", now=T0).queues == {}

    def test_old_samples_are_merged_into_their_maximum_and_dropped_at_last(self, store: Store) -> None:
        base = floored(T0, LENGTHS[Unit.DAY])
        for minute in range(20):
            store.put_depths(
                [DepthSample("a", minute, 20 - minute, minute * SECOND)], now=base + minute * MINUTE
            )
        first, *_ = compactions(base + KEPT[Unit.MINUTE] + 21 * MINUTE)
        assert first == Compaction(Unit.MINUTE, Unit.QUARTER, base + 15 * MINUTE)
        assert store.compact_depths(first) == 15
        assert store.compact_depths(first) == 0
        window: Any = {"window": 30 * MINUTE, "step": 15 * MINUTE, "now": base + 20 * MINUTE}
        assert store.depth_series(**window).queues["a"] == [
            DepthStep(14, 20, 14 * SECOND), DepthStep(19, 5, 19 * SECOND),
        ]  # fmt: skip
        assert store.compact_depths(Compaction(Unit.MINUTE, Unit.QUARTER, base + HOUR)) == 5
        assert store.compact_depths(Compaction(Unit.QUARTER, Unit.HOUR, base + HOUR)) == 2
        day = store.depth_series(2 * HOUR, HOUR, now=base + HOUR)
        assert day.queues["a"][0] == DepthStep(19, 20, 19 * SECOND)
        assert store.drop_depths(base) == 0
        assert store.drop_depths(base + MINUTE) == 1
