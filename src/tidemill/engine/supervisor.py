"""The supervisor: keeps runner processes at work, beats for them, does the duties, and replaces what dies.

It runs no user code and never imports the app: what it knows of it, a runner told. One loop handles one event after the
other, so nothing here needs a lock; whatever may wait (the store, a process) has a thread that only emits.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.clock import Clock, SystemClock
from tidemill.domain.cluster import Worker
from tidemill.engine.companion import Companion
from tidemill.engine.crew import (
    Exited,
    Phase,
    RunnerProcess,
    Said,
    runner_command,
    settings_to_data,
)
from tidemill.engine.deathwatch import end_in_words
from tidemill.engine.health import Health
from tidemill.engine.node import host_name, machine_name
from tidemill.engine.registrar import (
    CancelAsked,
    DrainAsked,
    Joined,
    LeaseLost,
    Left,
    Opened,
    Refused,
    Registrar,
    Told,
)
from tidemill.engine.seats import Seats
from tidemill.engine.settings import WorkerSettings
from tidemill.engine.systemd import Notifier
from tidemill.engine.vitals import Vitals
from tidemill.errors import BadSettings

_log = logging.getLogger("tidemill.worker")

_TICK = 0.5
_LOOK = 1.0  # seconds between two looks at who is to be recycled
_CLOSING = 0.9  # seconds for the store to hear that we are gone
_FIRST_TRIES = 5  # runners that may die before any said hello
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_NO_ADDRESS = (
    "{} keeps its jobs in the memory of its own process, or in a store that was given as an object; a worker needs an address "
    "that other processes can open: App('sqlite:///jobs.db') or App('postgresql://…')"
)


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal arrived."""

    number: int


Event = Said | Exited | Signalled | Told


class Supervisor:
    """Keeps ``processes`` runners of the app at work until it is told to stop.

    ``announce`` is called once, when a runner has told what the app is and the store answers; ``complain`` with what makes it
    give up. ``migrate`` brings the store's schema up to date whatever the app says; ``beside`` is started once the store answers,
    and stopped with the runners. ``run`` returns the exit code: 0 after a stop or a drain that was asked for, 1 after a failure or by force.
    """

    def __init__(
        self,
        app: str,
        settings: WorkerSettings,
        *,
        processes: int = 1,
        strict: bool = False,
        migrate: bool = False,
        beside: Companion | None = None,
        health: tuple[str, int] | None = None,
        log_level: str = "info",
        log_json: bool = False,
        announce: Callable[[dict[str, object]], None] | None = None,
        complain: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._app, self._settings, self._strict = app, settings, strict
        self._processes, self._clock = processes, clock or SystemClock()
        self._migrate, self._beside = migrate, beside
        self._announce, self._complain = announce, complain or _log.error
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        command = runner_command(app, log_level=log_level, log_json=log_json)
        self._seats = Seats(processes, command, self._events.put, self._clock)
        self._registrar = Registrar(settings, self._clock, self._events.put)
        self._notifier = Notifier(os.environ, self._clock, pid=os.getpid())
        self._vitals = Vitals(self._seats, self._registrar, self._notifier, processes, self._clock)
        self._health = Health(self._vitals.verdict, host=health[0], port=health[1]) if health else None
        self._hello: Mapping[str, Any] | None = None  # the first one
        self._first_tries = 0
        self._looked_at = self._clock.monotonic()
        self._ending = False
        self._stops = 0  # how often we were told to stop
        self._code = 0
        self.clean = (
            True  #: whether everything could be let go of; if not, a thread may still wait for the store
        )

    # Life ------------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until the end; the exit code. Signals are handled if this is called on the main thread."""
        with self._signals():
            self._registrar.start()
            if self._health is not None:
                self._health.start()
            try:
                while not self._ending or self._seats.crew:
                    self._turn()
            finally:
                self._close()
        return self._code

    def signal(self, number: int) -> None:
        """Act as on this signal; may be called from anywhere, also from a signal handler."""
        self._events.put(Signalled(number))

    def give_up(self, why: str) -> None:
        """End in good order with code 1, because of this; may be called from any thread."""
        self._events.put(Refused(BadSettings(why)))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda got, _: self.signal(got)) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _turn(self) -> None:
        self._tick()
        try:
            event = self._events.get(timeout=min(_TICK, self._seats.pause()))
        except queue.Empty:
            return
        self._handle(event)

    def _tick(self) -> None:
        for runner in self._seats.kill_overdue():
            level = logging.ERROR if runner.ready else logging.INFO  # one that never worked holds nothing
            _log.log(level, "%s did not end in time and is killed", runner)
        if not self._ending:
            self._seats.fill()
            self._ending = not self._seats.wanted and not self._seats.crew
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK:
            self._looked_at = now
            self._seats.recycle(self._worn)
        self._vitals.tick()

    def _worn(self, runner: RunnerProcess) -> str | None:
        """Why it should make room for a fresh one."""
        settings, done = self._settings, int(runner.stats.get("done", 0))
        if settings.max_jobs is not None and done >= settings.max_jobs:
            return f"it has done {done} jobs"
        if settings.max_age is not None and runner.age >= settings.max_age.total_seconds():
            return f"it is {runner.age:.0f} s old"
        if settings.max_memory is not None and (used := runner.memory() or 0) >= settings.max_memory:
            return f"it uses {used >> 20} MiB of memory"
        return None

    def _close(self) -> None:
        for runner in list(self._seats.crew):  # only after an error of our own
            runner.kill()
        if self._beside is not None:
            self._beside.close()
        self.clean = self._registrar.close(_CLOSING)
        if not self.clean:
            _log.warning("the store does not answer; what is written there about us runs out by itself")
        if self._health is not None:
            self._health.close()
        _log.info("the worker has stopped")

    # Events ----------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case Said(runner, message):
                runner.spoke_at, runner.silence_told = self._clock.monotonic(), False
                self._said(runner, message)
            case Exited(runner, code):
                self._exited(runner, code)
            case Signalled(signal.SIGHUP):
                _log.info("SIGHUP: every runner is replaced, one after the other")
                self._seats.recycle(lambda _runner: "the code is loaded anew")
                if self._beside is not None:
                    self._beside.restart()
            case Signalled(number):
                self._stop(signal.Signals(number).name)
            case Opened(url):
                self._opened(url)
            case Refused(error):
                self._give_up(str(error))
            case Joined(asked, worker):
                self._joined(asked, worker)
            case CancelAsked() | DrainAsked() | LeaseLost():
                self._pass_on(event)

    def _of(self, worker: UUID) -> RunnerProcess | None:
        return next((runner for runner in self._seats.crew if runner.worker == worker), None)

    def _pass_on(self, event: CancelAsked | DrainAsked | LeaseLost) -> None:
        """What the heart heard concerns one runner, if it is still there."""
        runner = self._of(event.request.worker if isinstance(event, CancelAsked) else event.worker)
        if runner is None:
            return
        match event:
            case CancelAsked(request):
                runner.tell("cancel", jobs=[[str(request.id), request.token, request.reason]])
            case DrainAsked():
                _log.info("%s is drained: an operator asked for it", runner)
                self._seats.leave_empty(runner)
            case LeaseLost():
                _log.error("%s is abandoned and replaced: its lease is lost", runner)
                self._seats.abandon(runner)

    def _said(self, runner: RunnerProcess, message: Mapping[str, Any]) -> None:
        match message.get("kind"):
            case "hello" if runner.phase is Phase.STARTING:
                self._greet(runner, message)
            case "failed":
                runner.failure = str(message.get("error", "no reason given"))
            case "ready":
                runner.ready, self._vitals.trouble = True, None
                _log.info("%s is ready", runner)
                self._seats.take_over(runner)
            case "stats":
                runner.stats = message
            case "drained":
                runner.done = True
            case "stuck" if runner.phase in (Phase.WORKING, Phase.DRAINING):
                _log.error("%s is replaced: %s, and cannot be stopped", runner, message.get("reason"))
                self._seats.vacate(runner)
                self._seats.stop(runner, self._settings.grace.total_seconds())

    def _greet(self, runner: RunnerProcess, hello: Mapping[str, Any]) -> None:
        url, tasks = str(hello.get("store") or ""), hello.get("tasks", {})
        if not url or url.startswith("memory:"):
            self._give_up(_NO_ADDRESS.format(self._app))
            return
        self._vitals.broken = broken = hello.get("broken", {})
        if self._strict and (broken or not tasks):
            why = "; ".join(f"task {name}: {error}" for name, error in broken.items())
            self._give_up(f"{self._app} is refused, strictly: {why or 'it declares no task'}")
            return
        if self._hello is None:
            self._hello = hello
            self._registrar.open(url, migrate=self._migrate or bool(hello.get("migrate")))
        elif url != self._hello.get("store"):
            runner.failure = "the app's store is not the one this worker was started with; restart the worker"
            runner.kill()
            return
        for name, error in broken.items():
            _log.error("task %s cannot be run, and its jobs are not claimed: %s", name, error)
        runner.phase = Phase.JOINING
        self._registrar.learn(tasks)
        host = host_name()
        self._registrar.join(
            Worker(
                id=runner.worker,
                name=f"{host}-{runner.pid}",
                host=host,
                pid=runner.pid,
                node=machine_name(),
                version=str(hello.get("version", "")),
                queues=self._settings.queues or (),
                tasks=tuple(sorted(tasks)),
                concurrency=self._slots(),
            )
        )

    def _slots(self) -> int:
        return self._settings.concurrency + self._settings.threads + self._settings.children

    def _opened(self, url: str) -> None:
        tasks = (self._hello or {}).get("tasks", {})
        queues = self._settings.queues or sorted({str(task["queue"]) for task in tasks.values()})
        health = f"http://{self._health.host}:{self._health.port}" if self._health is not None else None
        if self._announce is not None:
            self._announce(
                {"app": self._app, "store": url, "tasks": sorted(tasks), "queues": list(queues)}
                | {"processes": self._processes, "slots": self._slots(), "health": health, "pid": os.getpid()}
            )

        if self._beside is not None and not self._ending:
            self._beside.start()

    def _joined(self, asked: UUID, worker: UUID) -> None:
        runner = self._of(asked)
        if runner is None:
            self._registrar.leave(worker, Left.STOPPED)  # it died meanwhile
            return
        runner.worker = worker
        if runner.phase is Phase.JOINING:
            runner.phase = Phase.WORKING
            runner.tell("go", worker=str(worker), settings=settings_to_data(self._settings))

    # Ends ------------------------------------------------------------------------------------------------------------

    def _exited(self, runner: RunnerProcess, code: int) -> None:
        lived, asked, phase = runner.age, runner.asked, runner.phase
        self._vitals.gone(runner)
        pause = self._seats.exited(runner)
        clean = runner.done or (asked and code == 0)
        stopped = clean or (runner.killed and phase is Phase.STOPPING and self._stops < 3)
        self._registrar.leave(runner.worker, Left.STOPPED if stopped else Left.CRASHED)
        if clean or phase is Phase.LOST or (asked and not runner.ready):
            _log.info("%s has ended", runner)
            return
        how = f"{runner} {end_in_words(code)} after {lived:.1f} s"
        if runner.failure is not None:
            how = f"{runner} cannot work: {runner.failure}"
        if asked or self._ending:
            _log.warning("%s", how)
            return
        _log.error("%s%s", how, "" if pause is None else f"; the next one starts in {pause:g} s")
        self._vitals.trouble = how.splitlines()[0]
        self._judge_start(runner, how)

    def _judge_start(self, runner: RunnerProcess, how: str) -> None:
        """An app that never could be imported is given up; one that could before is tried again, unless strictly."""
        if runner.failure is not None and (self._hello is None or self._strict):
            self._give_up(f"{self._app} cannot be worked for: {runner.failure}")
        elif self._hello is None:
            self._first_tries += 1
            if self._first_tries >= _FIRST_TRIES:
                self._give_up(
                    f"{self._app} cannot be imported, {self._first_tries} runners died of it: {how}"
                )

    def _give_up(self, why: str) -> None:
        """End with code 1, in good order."""
        if not self._code:
            self._code = 1
            self._complain(why)
            self._end_all(self._settings.grace.total_seconds())

    def _stop(self, name: str) -> None:
        self._stops += 1
        match self._stops:
            case 1:
                grace = self._settings.grace.total_seconds()
                _log.info("%s: stopping, running jobs have %g s", name, grace)
                self._end_all(grace)
            case 2:
                _log.warning("%s again: stopping without grace", name)
                self._end_all(0.0)
            case _:
                _log.error("%s for the third time: the runners are killed", name)
                self._code = 1
                for runner in self._seats.crew:
                    runner.asked = True
                    runner.kill()

    def _end_all(self, grace: float) -> None:
        self._ending = self._vitals.stopping = True
        self._notifier.stopping()
        if self._beside is not None:
            self._beside.stop(grace)
        for runner in self._seats.crew:
            self._seats.stop(runner, grace)
