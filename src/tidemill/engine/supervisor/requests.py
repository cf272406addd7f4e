"""Requests of operators to a supervisor, and the reports about its processes.

A request pauses one runner, or changes the number of runners and of their slots. It stays in the store and applies to runners
that start later. A new supervisor begins with its own settings.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.worker_reports import (
    MOST,
    ScaleRequest,
    SlotCounts,
    SupervisorReport,
    WorkerReport,
)
from tidemill.engine.node import process_name
from tidemill.engine.process_figures import ProcessMeter
from tidemill.engine.supervisor.runner_pool import RunnerPool
from tidemill.engine.supervisor.runner_process import RunnerPhase, RunnerProcess
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.ids import new_id

_log = logging.getLogger("tidemill.worker")


class SupervisorRequests:
    """Carries out requests. The supervisor's loop calls everything but ``reports``, which heartbeat threads call."""

    def __init__(self, seats: RunnerPool, settings: WorkerSettings, clock: Clock) -> None:
        self.id = new_id()
        self._seats, self._settings = seats, settings
        self._slots: dict[str | None, SlotCounts] = {}
        self._numbers: dict[str | None, int] = {}  # of the latest request, by store
        self._meter, self._measuring = ProcessMeter(clock), threading.Lock()

    def slots_of(self, store: str | None) -> SlotCounts:
        """The slots of each runner of this store."""
        settings = self._settings
        return self._slots.get(store) or SlotCounts(settings.concurrency, settings.threads, settings.children)

    def settings_of(self, store: str | None) -> WorkerSettings:
        """The settings of the runners of this store."""
        return replace(self._settings, **self.slots_of(store)._asdict())

    def pause(self, runner: RunnerProcess, *, paused: bool) -> None:
        """Let a runner claim nothing for now, and its successors, or let it claim again."""
        _log.info("%s %s at an operator's request", runner, "is paused" if paused else "claims again")
        for other in self._seats.suspend(runner, suspended=paused):
            if other.phase is RunnerPhase.WORKING:
                other.tell("pause" if paused else "resume")

    def scale(self, store: str | None, request: ScaleRequest) -> int | None:
        """Change the number of runners of this store, and their slots. Returns the number, or None if it was done before."""
        if request.number <= self._numbers.get(store, 0):
            return None
        self._numbers[store] = request.number
        processes = min(request.scale.processes, MOST["processes"])
        slots = SlotCounts(
            *(min(number, MOST[name]) for name, number in request.scale.slots._asdict().items())
        )
        _log.info(
            "scaled at an operator's request: %d processes with %d coroutines, %d threads and %d children each",
            processes,
            *slots,
        )
        if slots != self.slots_of(store):
            self._slots[store] = slots
            for runner in self._seats.of_store(store):
                if runner.phase in (RunnerPhase.WORKING, RunnerPhase.DRAINING):
                    runner.tell("slots", slots=list(slots))
        self._seats.scale(store, processes)
        return processes

    def reports(self) -> Mapping[UUID, WorkerReport]:
        """The reports of all runners, by worker."""
        crew = list(self._seats.crew)
        with self._measuring:
            self._meter.keep({os.getpid(), *(runner.pid for runner in crew)})
        return {runner.worker: self.report_of(runner) for runner in crew}

    def report_of(self, runner: RunnerProcess) -> WorkerReport:
        """The report of one runner."""
        store = runner.store_name
        with self._measuring:
            own, figures = self._meter.measure(os.getpid()), self._meter.measure(runner.pid)
        above = SupervisorReport(process_name(), os.getpid(), self._seats.wanted_of(store), own)
        return WorkerReport(self.slots_of(store), figures, above)
