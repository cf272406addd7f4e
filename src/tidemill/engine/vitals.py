"""How a supervisor is doing, told to whoever asks: HTTP probes, the service manager, the log. It changes nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from tidemill.clock import Clock
from tidemill.engine.crew import Phase, RunnerProcess
from tidemill.engine.health import Verdict
from tidemill.engine.registrar import Registrar
from tidemill.engine.seats import Seats
from tidemill.engine.systemd import Notifier
from tidemill.engine.tally import Tally

_log = logging.getLogger("tidemill.worker")

_SILENCE = 30.0
_AWAY = 5.0  # a loop that did not turn for so long was halted, and knows nothing of what happened meanwhile
_HUNG = 15.0


class Vitals:
    """Watches the seats and the registrar. ``tick`` is called by the supervisor's loop, ``verdict`` from any thread."""

    def __init__(
        self, seats: Seats, registrar: Registrar, notifier: Notifier, processes: int, clock: Clock
    ) -> None:
        self._seats, self._registrar, self._notifier = seats, registrar, notifier
        self._processes, self._clock = processes, clock
        self._ticked_at = clock.monotonic()
        self._was_ready = False
        self._past, self._counting = Tally(), threading.Lock()
        self.stopping = False
        self.trouble: str | None = None  #: why the last runner could not be started
        self.broken: Mapping[str, str] = {}  #: tasks that cannot be run, and why

    def tick(self) -> None:
        """The loop turns; a change of state is one line in the log."""
        now = self._clock.monotonic()
        if now - self._ticked_at > _AWAY:
            for runner in self._seats.crew:
                runner.spoke_at = now
        self._ticked_at = now
        self._notifier.ping()
        self._listen_for_silence()
        verdict = self.verdict()
        state = "stopping" if self.stopping else f"{self._seats.ready} of {self._processes} runners ready"
        self._notifier.status("; ".join([state, *verdict.reasons]))
        if verdict.ready and not self._was_ready:
            self._notifier.ready()
            _log.info("ready")
        elif self._was_ready and not verdict.ready and not self.stopping:
            _log.warning("not ready: %s", "; ".join(verdict.reasons))
        self._was_ready = verdict.ready

    def _listen_for_silence(self) -> None:
        """Silence alone is no reason to kill: a handler that holds the interpreter is silent, and works."""
        for runner in self._seats.crew:
            if runner.ready and runner.silence > _SILENCE and not runner.silence_told:
                runner.silence_told = True
                why = "somebody halted it" if runner.is_stopped() else "a job may hold the interpreter"
                _log.warning("%s has said nothing for %.0f s: %s", runner, runner.silence, why)

    def verdict(self) -> Verdict:
        """Alive while the loop turns; ready while a runner can take jobs and the store answers."""
        alive = self._clock.monotonic() - self._ticked_at < _HUNG
        reasons = [] if alive else ["the supervisor's loop does not turn"]
        crew = list(self._seats.crew)
        if self.stopping:
            reasons.append("stopping")
        if not any(runner.ready and runner.phase is Phase.WORKING for runner in crew):
            reasons.append("no runner is ready" + (f": {self.trouble}" if self.trouble else ""))
        if not self._registrar.healthy:
            reasons.append("the store does not answer")
        runners = [
            {
                "pid": runner.pid,
                "worker": str(runner.worker),
                "phase": runner.phase.value,
                "ready": runner.ready,
            }
            | {name: value for name, value in runner.stats.items() if name not in ("kind", "tally")}
            for runner in crew
        ]
        facts = {"runners": runners, "broken_tasks": dict(self.broken), "leading": self._registrar.leading}
        return Verdict(alive, not reasons, tuple(reasons), facts, lambda: self._tally(crew))

    def gone(self, runner: RunnerProcess) -> None:
        """It has ended: what it did still counts."""
        with self._counting:
            self._past.add(runner.stats.get("tally", {}))
            runner.stats = {}

    def _tally(self, crew: Iterable[RunnerProcess]) -> Tally:
        found = Tally()
        with self._counting:  # so that nobody is counted twice, or not at all
            found.add(self._past.data())
            for runner in crew:
                found.add(runner.stats.get("tally", {}))
        return found
