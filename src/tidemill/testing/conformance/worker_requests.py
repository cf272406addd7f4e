"""Laws of reports of workers, and of requests to them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tidemill.domain.cluster import Worker
from tidemill.domain.worker_reports import (
    ProcessFigures,
    Scale,
    ScaleRequest,
    SlotCounts,
    SupervisorReport,
    WorkerReport,
)
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, OTHER, SECOND, T0, WORKER, at, register

LEASE = 30 * SECOND
REPORT = WorkerReport(
    SlotCounts(90, 8, 2),
    ProcessFigures(2**31, 1.25),
    SupervisorReport("web-“1”", 7, 2, ProcessFigures(4096, 0.0)),
)
SCALE = Scale(3, SlotCounts(50, 4, 1))


def placed(store: Store, id: UUID, supervisor: UUID, place: int = 1, *, seconds: int = 0) -> None:
    """Register a worker of a supervisor."""
    store.register(Worker(id, f"w{place}", supervisor=supervisor, place=place), lease=HOUR, now=at(seconds))


class WorkerReportLaws:
    """A heartbeat carries a report."""

    def test_the_latest_report_of_a_worker_is_stored_with_its_slots(self, store: Store) -> None:
        supervisor = new_id()
        first = Worker(WORKER, "w", supervisor=supervisor, place=2, report=WorkerReport(SlotCounts(1, 2, 3)))
        assert store.register(first, lease=HOUR, now=T0).report == first.report
        assert [row.report for row in store.workers()] == [first.report]
        placed(store, OTHER, supervisor, 1)
        store.beat([WORKER, OTHER], lease=LEASE, reports={WORKER: REPORT}, now=at(1))
        rows = {worker.id: worker for worker in store.workers()}
        mine = rows[WORKER]
        assert (mine.report, mine.concurrency, mine.supervisor, mine.place) == (REPORT, 100, supervisor, 2)
        assert (rows[OTHER].report, rows[OTHER].concurrency) == (None, 0)
        store.beat([WORKER, OTHER], lease=LEASE, now=at(2))
        assert {worker.id: worker for worker in store.workers()}[WORKER] == replace(
            mine, beat_at=at(2), expires_at=at(32), beats=2
        )
        smaller = WorkerReport(SlotCounts(1, 0, 0))
        store.beat([WORKER, OTHER], lease=LEASE, reports={OTHER: REPORT, WORKER: smaller}, now=at(3))
        rows = {worker.id: worker for worker in store.workers()}
        assert [(rows[id].report, rows[id].concurrency) for id in (WORKER, OTHER)] == [
            (smaller, 1),
            (REPORT, 100),
        ]

    def test_reports_of_other_workers_change_nothing(self, store: Store) -> None:
        placed(store, WORKER, new_id())
        register(store, OTHER)
        before = [worker for worker in store.workers() if worker.id == OTHER]
        store.beat([WORKER], lease=LEASE, reports={OTHER: REPORT}, now=at(1))
        assert [worker for worker in store.workers() if worker.id == OTHER] == before


class WorkerRequestLaws:
    """A request reaches a worker with its next heartbeat."""

    def test_a_paused_worker_is_told_so_with_each_heartbeat_until_it_is_resumed(self, store: Store) -> None:
        supervisor = new_id()
        placed(store, WORKER, supervisor, 1)
        placed(store, OTHER, supervisor, 2)
        assert store.pause_workers([WORKER, new_id()]) == {WORKER}
        assert store.pause_workers([WORKER]) == frozenset()
        for seconds in (1, 2):
            assert store.beat([WORKER, OTHER], lease=HOUR, now=at(seconds)).paused == {WORKER}
        assert {worker.id: worker.paused for worker in store.workers()} == {WORKER: True, OTHER: False}
        assert store.resume_workers([WORKER, OTHER]) == {WORKER}
        assert store.resume_workers([WORKER]) == store.resume_workers([]) == frozenset()
        assert store.beat([WORKER, OTHER], lease=HOUR, now=at(3)).paused == frozenset()

    def test_the_successor_of_a_paused_worker_is_paused(self, store: Store) -> None:
        supervisor, successor, stranger = new_id(), new_id(), new_id()
        placed(store, WORKER, supervisor)
        store.pause_workers([WORKER])
        store.retire([WORKER], now=at(1))
        placed(store, successor, supervisor, seconds=2)
        placed(store, stranger, new_id(), seconds=2)
        assert store.beat([successor, stranger], lease=HOUR, now=at(3)).paused == {successor}
        assert store.resume_workers([successor]) == {successor}

    def test_stopped_workers_and_those_that_take_no_requests_are_not_paused(self, store: Store) -> None:
        register(store, OTHER)
        placed(store, WORKER, new_id())
        store.retire([WORKER], now=at(1))
        assert store.pause_workers([WORKER, OTHER]) == store.pause_workers([]) == frozenset()

    def test_each_worker_of_a_supervisor_is_told_its_latest_scale(self, store: Store) -> None:
        supervisor, elsewhere = new_id(), new_id()
        placed(store, WORKER, supervisor, 1)
        placed(store, OTHER, supervisor, 2)
        placed(store, elsewhere, new_id())
        assert store.beat([WORKER], lease=HOUR, now=at(1)).scales == {}
        assert store.scale(supervisor, Scale(9, SlotCounts(9, 9, 9)))
        assert store.scale(supervisor, SCALE)
        request = ScaleRequest(2, SCALE)
        assert store.beat([WORKER, OTHER, elsewhere], lease=HOUR, now=at(2)).scales == {
            WORKER: request, OTHER: request,
        }  # fmt: skip

    def test_a_supervisor_without_live_workers_cannot_be_scaled(self, store: Store) -> None:
        supervisor = new_id()
        placed(store, WORKER, supervisor)
        store.retire([WORKER], now=at(1))
        assert not store.scale(supervisor, SCALE)
        assert not store.scale(new_id(), SCALE)

    def test_requests_end_with_the_last_worker_of_their_supervisor(self, store: Store) -> None:
        supervisor, again = new_id(), new_id()
        placed(store, WORKER, supervisor, 1)
        placed(store, OTHER, supervisor, 2)
        store.pause_workers([WORKER])
        store.scale(supervisor, SCALE)
        store.retire([WORKER], now=at(1))
        assert store.sweep(SECOND, now=at(60)) == 1
        placed(store, again, supervisor, 1, seconds=61)
        pulse = store.beat([again], lease=HOUR, now=at(62))
        assert pulse.paused == {again}
        assert pulse.scales == {again: ScaleRequest(1, SCALE)}
        store.retire([again, OTHER], now=at(63))
        assert store.sweep(SECOND, now=at(120)) == 2
        placed(store, last := new_id(), supervisor, 1, seconds=121)
        pulse = store.beat([last], lease=HOUR, now=at(122))
        assert pulse.paused == frozenset()
        assert pulse.scales == {}
