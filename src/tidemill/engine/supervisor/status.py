"""Status of a supervisor for HTTP probes, the service manager and the log.

Apart from resetting runner timers after a halt, it only reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence

from tidemill.clock import Clock
from tidemill.engine.health import HealthVerdict
from tidemill.engine.runner.counters import Counters
from tidemill.engine.supervisor.runner_pool import RunnerPool
from tidemill.engine.supervisor.runner_process import RunnerPhase, RunnerProcess
from tidemill.engine.supervisor.store_group import ServedStore, StoreGroup
from tidemill.engine.supervisor.systemd import Notifier

_log = logging.getLogger("tidemill.worker")

_AWAY = 5.0  # a loop that did not turn for this many seconds was halted and has missed messages
_HUNG = 15.0


class SupervisorStatus:
    """Watches the seats and the stores. The supervisor's loop calls ``tick``; any thread may call ``verdict``."""

    def __init__(self, seats: RunnerPool, stores: StoreGroup, notifier: Notifier, clock: Clock) -> None:
        self._seats, self._stores, self._notifier, self._clock = seats, stores, notifier, clock
        self._ticked_at = clock.monotonic()
        self._was_ready = False
        self._past: dict[str | None, Counters] = {}  # of exited runners, by store
        self._counting = threading.Lock()
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
        state = "stopping" if self.stopping else f"{self._seats.ready} of {self._seats.count} runners ready"
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
        working = [runner for runner in crew if runner.ready and runner.phase is RunnerPhase.WORKING]
        reasons += self._trouble_of_runners(working)
        reasons += [f"{runner}: {runner.unwell}" for runner in crew if runner.unwell is not None]
        reasons += [
            f"{store.words} cannot be used: {store.refusal}"
            if store.refusal is not None
            else f"{store.words} does not answer"
            for store in self._stores
            if store.refusal is not None or not store.link.healthy
        ]
        runners = [
            {
                "pid": runner.pid,
                "worker": str(runner.worker),
                "phase": runner.phase.value,
                "ready": runner.ready,
            }
            | ({} if runner.store_name is None else {"store": runner.store_name})
            | {
                name: value
                for name, value in runner.stats.items()
                if name not in ("kind", "counters", "condition")
            }
            for runner in crew
        ]
        details: dict[str, object] = {
            "runners": runners,
            "broken_tasks": dict(self.broken),
            "leading": self._stores.leading,
        }
        details["fires_without_hooks"] = self._stores.fire_hooks.skipped
        stores = [store for store in self._stores if store.name is not None]
        if stores:
            details["stores"] = {store.name: self._details_of(store, working) for store in stores}
        return HealthVerdict(alive, not reasons, tuple(reasons), details, lambda: self._counters(crew))

    def _trouble_of_runners(self, working: Sequence[RunnerProcess]) -> list[str]:
        """Why jobs are not run: no runner at all, or none for one of several stores."""
        if not working:
            return ["no runner is ready" + (f": {self.trouble}" if self.trouble else "")]
        served = {runner.store_name for runner in working}
        return [
            f"no runner of {store.words} is ready"
            for store in self._stores
            if store.name is not None and store.name not in served and self._seats.is_wanted(store.name)
        ]

    def _details_of(self, store: ServedStore, working: Sequence[RunnerProcess]) -> dict[str, object]:
        return {
            "answers": store.refusal is None and store.link.healthy,
            "leading": store.link.leading,
            "processes": store.processes,
            "ready": sum(runner.store_name == store.name for runner in working),
        }

    def gone(self, runner: RunnerProcess) -> None:
        """Keep the counters of a runner that has exited."""
        with self._counting:
            past = self._past.setdefault(runner.store_name, Counters())
            past.add(runner.stats.get("counters", {}))
            runner.stats = {}

    def _counters(self, crew: Iterable[RunnerProcess]) -> dict[str | None, Counters]:
        found: dict[str | None, Counters] = {}
        with self._counting:  # so that each runner is counted exactly once
            for name, past in self._past.items():
                found.setdefault(name, Counters()).add(past.data())
            for runner in crew:
                found.setdefault(runner.store_name, Counters()).add(runner.stats.get("counters", {}))
        return found
