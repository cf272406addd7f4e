"""Examination of a supervisor's runners for those that are alive but do no work.

It collects the symptoms and asks ``domain.runner_health`` to judge them. It kills nothing and writes nothing to the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.runner_health import Diagnosis, HealthBounds, RunnerSigns, diagnose
from tidemill.engine.supervisor.orphans import Orphans
from tidemill.engine.supervisor.runner_process import RunnerPhase, RunnerProcess
from tidemill.engine.worker_settings import WorkerSettings

_log = logging.getLogger("tidemill.worker")

_QUIET = 3.0  # seconds of silence after which the store is asked whether a runner's jobs are overdue
_EXAMINED = (RunnerPhase.WORKING, RunnerPhase.DRAINING)


class RunnerChecks:
    """Examines every runner about once a second, and reaps orphans.

    ``ask`` requests the overdue jobs; ``seen`` takes the answer.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        ask: Callable[[], None],
        store_ok: Callable[[RunnerProcess], bool],
    ) -> None:
        self._clock, self._ask, self._store_ok = clock, ask, store_ok
        self._orphans = Orphans()
        self._bounds = HealthBounds(settings.patience.total_seconds(), settings.silence.total_seconds())

    def look(self, crew: Iterable[RunnerProcess]) -> list[tuple[RunnerProcess, Diagnosis]]:
        """The runners to replace now, and why. Other runners with a symptom are marked, for the readiness probe."""
        self._orphans.look()
        found, asks = [], False
        for runner in crew:
            if not runner.ready or runner.phase not in _EXAMINED:
                runner.unwell = None
                continue
            if self._may_be_late(runner):
                asks = True
            else:
                runner.overdue.clear()
            diagnosis = diagnose(self._signs(runner), self._bounds)
            self._mark(runner, diagnosis)
            if diagnosis is not None and diagnosis.replace:
                found.append((runner, diagnosis))
        if asks:
            self._ask()
        return found

    def seen(self, overdue: Collection[tuple[UUID | None, UUID, int]], crew: Iterable[RunnerProcess]) -> None:
        """Record the jobs that the store reports past their timeout: worker, job and token of each."""
        now = self._clock.monotonic()
        for runner in crew:
            late = {(job, token) for worker, job, token in overdue if worker == runner.worker}
            runner.overdue = {key: runner.overdue.get(key, now) for key in late}

    def _may_be_late(self, runner: RunnerProcess) -> bool:
        return runner.silence >= _QUIET or bool(runner.condition.get("overdue"))

    def _signs(self, runner: RunnerProcess) -> RunnerSigns:
        now, condition = self._clock.monotonic(), runner.condition
        return RunnerSigns(
            silence=runner.silence,
            overdue=max((now - since for since in runner.overdue.values()), default=0.0),
            loop=float(condition.get("loop", 0.0)),
            loop_waiting=bool(condition.get("loop_waiting")),
            pump=float(condition.get("pump", 0.0)),
            store=float(condition.get("store", 0.0)) if self._store_ok(runner) else 0.0,
            files=float(condition.get("files", 0.0)),
        )

    def _mark(self, runner: RunnerProcess, diagnosis: Diagnosis | None) -> None:
        if diagnosis is not None and runner.unwell is None and not diagnosis.replace:
            halted = "; the process is halted (SIGSTOP or a debugger)" if runner.is_stopped() else ""
            _log.warning("%s may be unhealthy: %s%s", runner, diagnosis.reason, halted)
        elif diagnosis is None and runner.unwell is not None:
            _log.info("%s is healthy again", runner)
        runner.unwell = None if diagnosis is None else diagnosis.reason


def worn(settings: WorkerSettings, runner: RunnerProcess) -> str | None:
    """Why a healthy runner should be replaced by a new one."""
    done = int(runner.stats.get("done", 0))
    if settings.max_jobs is not None and done >= settings.max_jobs:
        return f"it has done {done} jobs"
    if settings.max_age is not None and runner.age >= settings.max_age.total_seconds():
        return f"it is {runner.age:.0f} s old"
    if settings.max_memory is not None and (used := runner.memory() or 0) >= settings.max_memory:
        return f"it uses {used >> 20} MiB of memory"
    return None
