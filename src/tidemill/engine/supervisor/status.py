"""Status of a supervisor for HTTP probes, the service manager and the log.

Apart from resetting runner timers after a halt, it only reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from tidemill.clock import Clock
from tidemill.engine.health import HealthVerdict
from tidemill.engine.runner.counters import Counters
from tidemill.engine.supervisor.runner_pool import RunnerPool
from tidemill.engine.supervisor.runner_process import RunnerPhase, RunnerProcess
from tidemill.engine.supervisor.store_link import StoreLink
from tidemill.engine.supervisor.systemd import Notifier

_log = logging.getLogger("tidemill.worker")

_AWAY = 5.0  # a loop that did not turn for this many seconds was halted and has missed messages
_HUNG = 15.0


class SupervisorStatus:
    """Watches the seats and the registrar. The supervisor's loop calls ``tick``; any thread may call ``verdict``."""

    def __init__(
        self, seats: RunnerPool, registrar: StoreLink, notifier: Notifier, processes: int, clock: Clock
    ) -> None:
        self._seats, self._registrar, self._notifier = seats, registrar, notifier
        self._processes, self._clock = processes, clock
        self._ticked_at = clock.monotonic()
        self._was_ready = False
        self._past, self._counting = Counters(), threading.Lock()
        self.stopping = False
        self.trouble: str | None = None  #: why the last runner could not be started
        self.broken: Mapping[str, str] = {}  #: tasks that cannot run, with the reasons

    def tick(self) -> None:
        """Update the status once per turn of the loop. Logs one line when the readiness changes."""
        now = self._clock.monotonic()
        if now - self._ticked_at > _AWAY:
            for runner in self._seats.crew:
                runner.spoke_at = now
                runner.overdue.clear()
        self._ticked_at = now
        self._notifier.ping()
        verdict = self.verdict()
        state = "stopping" if self.stopping else f"{self._seats.ready} of {self._processes} runners ready"
        self._notifier.status("; ".join([state, *verdict.reasons]))
        if verdict.ready and not self._was_ready:
            self._notifier.ready()
            _log.info("ready")
        elif self._was_ready and not verdict.ready and not self.stopping:
            _log.warning("not ready: %s", "; ".join(verdict.reasons))
        self._was_ready = verdict.ready

    def verdict(self) -> HealthVerdict:
        """Return the status: alive while the loop turns, ready while a runner can take jobs and the store answers."""
        alive = self._clock.monotonic() - self._ticked_at < _HUNG
        reasons = [] if alive else ["the supervisor's loop is stuck"]
        crew = list(self._seats.crew)
        if self.stopping:
            reasons.append("stopping")
        if not any(runner.ready and runner.phase is RunnerPhase.WORKING for runner in crew):
            reasons.append("no runner is ready" + (f": {self.trouble}" if self.trouble else ""))
        reasons += [f"{runner}: {runner.unwell}" for runner in crew if runner.unwell is not None]
        if not self._registrar.healthy:
            reasons.append("the store does not answer")
        runners = [
            {
                "pid": runner.pid,
                "worker": str(runner.worker),
                "phase": runner.phase.value,
                "ready": runner.ready,
            }
            | {
                name: value
                for name, value in runner.stats.items()
                if name not in ("kind", "counters", "condition")
            }
            for runner in crew
        ]
        details = {"runners": runners, "broken_tasks": dict(self.broken), "leading": self._registrar.leading}
        details["fires_without_hooks"] = self._registrar.fire_hooks.skipped
        return HealthVerdict(alive, not reasons, tuple(reasons), details, lambda: self._counters(crew))

    def gone(self, runner: RunnerProcess) -> None:
        """Keep the counters of a runner that has exited."""
        with self._counting:
            self._past.add(runner.stats.get("counters", {}))
            runner.stats = {}

    def _counters(self, crew: Iterable[RunnerProcess]) -> Counters:
        found = Counters()
        with self._counting:  # so that each runner is counted exactly once
            found.add(self._past.data())
            for runner in crew:
                found.add(runner.stats.get("counters", {}))
        return found
