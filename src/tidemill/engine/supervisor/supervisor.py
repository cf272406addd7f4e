"""The supervisor of runner processes, which also sends heartbeats.

It starts and replaces runners, and performs the duties. It runs no user code and never imports the app; runners
describe the app to it. One loop handles all events in order, so no lock is needed here. Everything that may block (the
store, a process) has its own thread, which only emits events.
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
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.clock import Clock, SystemClock
from tidemill.domain.cluster import Worker
from tidemill.early_signals import accept_signals
from tidemill.engine.deathwatch import end_in_words
from tidemill.engine.frames import instant_to_data
from tidemill.engine.health import url_of
from tidemill.engine.log_formats import LogOutput
from tidemill.engine.node import host_name, machine_name
from tidemill.engine.store_shares import Wanted
from tidemill.engine.supervisor.reloader import Reloader
from tidemill.engine.supervisor.requests import SupervisorRequests
from tidemill.engine.supervisor.runner_checks import RunnerChecks, worn
from tidemill.engine.supervisor.runner_hooks import RunnerHooks
from tidemill.engine.supervisor.runner_pool import RunnerPool
from tidemill.engine.supervisor.runner_process import (
    RunnerExited,
    RunnerMessage,
    RunnerPhase,
    RunnerProcess,
    runner_command,
    settings_to_data,
)
from tidemill.engine.supervisor.sidecar import Sidecar
from tidemill.engine.supervisor.status import SupervisorStatus
from tidemill.engine.supervisor.store_group import StoreGroup
from tidemill.engine.supervisor.store_link import (
    CancelRequested,
    DrainRequested,
    HeartbeatConfirmed,
    OverdueSeen,
    PauseRequested,
    ScaleRequested,
    StoreLink,
    StoreOpened,
    StoreRefused,
    Told,
    WorkerEnd,
    WorkerJoined,
    WorkerLeaseLost,
)
from tidemill.engine.supervisor.systemd import Notifier
from tidemill.engine.supervisor.terminal import IGNORED, refuse_halts
from tidemill.engine.worker_settings import WorkerSettings, check_memory_limit
from tidemill.errors import BadSettings, TidemillError

if TYPE_CHECKING:
    from tidemill.engine.health_server import HealthServer

_log = logging.getLogger("tidemill.worker")

_TICK = 0.5
_LOOK = 1.0  # seconds between two checks for runners to replace
_CLOSING = 0.9  # seconds for telling the store that this worker is gone
# Seconds for a sick runner to exit by itself; less for one that does not respond.
_SICK, _SICK_SILENT = 1.0, 0.2
_FIRST_TRIES = 5  # runners that may die before any has sent a hello message
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


def need_posix(command: str) -> None:
    """Raise an error on systems without the process groups and signals that a supervisor needs."""
    if not hasattr(os, "killpg"):
        raise BadSettings(
            f"{command} does not run on Windows; run a worker inside your program: with app.worker(): …"
        )


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal arrived."""

    number: int


Event = RunnerMessage | RunnerExited | Signalled | Told


class Supervisor:
    """Keeps ``processes`` runners of the app working until it is stopped.

    ``announce`` is called once, when a runner has described the app and the store answers. ``complain`` is called with
    the reason when the supervisor gives up. ``migrate`` updates the store's schema even if the app does not ask for it.
    ``reload`` acts as on SIGHUP when a source file of the app changes. ``beside`` is started once the store answers,
    and stopped with the runners. ``stores`` names the stores to serve, by default all live ones of the app; each runner
    works for one of them. ``run`` returns the exit code: 0 after a requested stop or drain, 1 after a failure or
    a forced stop.
    """

    def __init__(
        self,
        app: str,
        settings: WorkerSettings,
        *,
        processes: int = 1,
        strict: bool = False,
        migrate: bool = False,
        reload: bool = False,
        beside: Sidecar | None = None,
        health: tuple[str, int] | None = None,
        logs: LogOutput | None = None,
        announce: Callable[[dict[str, object]], None] | None = None,
        complain: Callable[[str], None] | None = None,
        stores: Wanted | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_memory_limit(settings)
        self._wanted = stores or {}
        numbers = [number for number in self._wanted.values() if number is not None]
        if numbers and len(numbers) == len(self._wanted):
            processes = sum(numbers)
        self._app, self._settings, self._strict = app, settings, strict
        self._processes, self._clock = processes, clock or SystemClock()
        self._migrate, self._beside = migrate, beside
        self._announce, self._complain = announce, complain or _log.error
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        command = runner_command(app, logs=logs, sources=reload)
        self._reloader = Reloader(lambda: self.signal(signal.SIGHUP)) if reload else None
        self._seats = RunnerPool(processes, command, self._events.put, self._clock)
        self._fire_hooks = RunnerHooks(self._clock)
        self._requests = SupervisorRequests(self._seats, settings, self._clock)
        self._stores = StoreGroup(
            settings, self._clock, self._events.put, self._fire_hooks, self._requests.reports
        )
        self._notifier = Notifier(os.environ, self._clock, pid=os.getpid())
        self._vitals = SupervisorStatus(self._seats, self._stores, self._notifier, self._clock)
        self._checkup = RunnerChecks(
            settings,
            self._clock,
            self._stores.look_for_overdue,
            lambda runner: self._stores.of(runner.store_name).link.healthy,
        )
        self._health = _health_server(self._vitals, *health) if health else None
        self._hello: Mapping[str, Any] | None = None  # of the first runner
        self._announced = False
        self._first_tries = 0
        self._looked_at = self._clock.monotonic()
        self._ending = False
        self._stops = 0  # number of stop signals received
        self._code = 0
        self.clean = True  #: False if closing timed out; a thread may then still be waiting for the store

    # Lifecycle -------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until the end and return the exit code. Signals are handled if this is called on the main thread."""
        with self._signals():
            self._stores.start()
            if self._health is not None:
                self._health.start()
            try:
                while not self._ending or self._seats.crew:
                    self._turn()
            finally:
                self._close()
        return self._code

    def signal(self, number: int) -> None:
        """Act as on this signal. Safe to call from any thread and from signal handlers."""
        self._events.put(Signalled(number))

    def give_up(self, why: str) -> None:
        """Stop in an orderly way with exit code 1 and this reason. Safe to call from any thread."""
        self._events.put(StoreRefused(BadSettings(why)))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {
            number: signal.signal(number, lambda got, _: self.signal(got)) for number in _SIGNALS
        }
        before |= refuse_halts(self.signal)
        accept_signals()
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
            # A runner that never worked holds no jobs.
            level = logging.ERROR if runner.ready else self._routine
            _log.log(level, "%s did not end in time and is killed", runner)
        if not self._ending:
            self._stores.retry()
            self._seats.fill()
            self._ending = not self._seats.wanted and not self._seats.crew
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK:
            self._looked_at = now
            self._seats.recycle(partial(worn, self._settings))
            for runner, diagnosis in self._checkup.look(list(self._seats.crew)):
                self._replace_sick(runner, diagnosis.reason)
        self._vitals.tick()

    def _replace_sick(self, runner: RunnerProcess, reason: str) -> None:
        _log.error(
            "%s is unhealthy and is replaced: %s; it is killed, and its jobs run elsewhere", runner, reason
        )
        runner.condemn(reason)
        self._vitals.trouble = f"{runner} was replaced: {reason}"
        self._seats.abandon(runner, _SICK_SILENT if runner.silence >= _SICK_SILENT else _SICK)

    @property
    def _routine(self) -> int:
        """The level for the end of processes. Of a worker that cannot start, only the error is of interest."""
        return logging.DEBUG if self._hello is None else logging.INFO

    def _close(self) -> None:
        for runner in list(self._seats.crew):  # only after an error in the supervisor itself
            runner.kill()
        if self._reloader is not None:
            self._reloader.close()
        if self._beside is not None:
            self._beside.close()
        self.clean = self._stores.close(_CLOSING)
        if not self.clean:
            _log.warning("a store does not respond; this worker's records there will expire")
        if self._health is not None:
            self._health.close()
        _log.log(self._routine, "the worker has stopped")

    # Events ----------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case RunnerMessage(runner, message):
                runner.spoke_at = self._clock.monotonic()
                self._received(runner, message)
            case RunnerExited(runner, code):
                self._exited(runner, code)
            case Signalled(number):
                self._signalled(number)
            case StoreOpened(url, store):
                self._opened(url, store)
            case StoreRefused(error, link):
                self._refused(error, link)
            case WorkerJoined():
                self._joined(event)
            case OverdueSeen(jobs, store):
                self._checkup.seen(jobs, self._seats.of_store(store))
            case ScaleRequested(request, store):
                processes = self._requests.scale(store, request)
                if processes is not None:
                    self._stores.of(store).processes = processes
            case (
                CancelRequested()
                | DrainRequested()
                | PauseRequested()
                | WorkerLeaseLost()
                | HeartbeatConfirmed()
            ):
                self._pass_on(event)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            _log.info("SIGHUP: replacing every runner, one at a time")
            self._stores.redeploy()
            self._seats.recycle(lambda _runner: "code reload")
            if self._beside is not None:
                self._beside.restart()
        elif number == signal.SIGTSTP:
            _log.warning(IGNORED)
        else:
            self._stop(signal.Signals(number).name)

    def _of(self, worker: UUID) -> RunnerProcess | None:
        return next((runner for runner in self._seats.crew if runner.worker == worker), None)

    def _pass_on(
        self,
        event: CancelRequested | DrainRequested | PauseRequested | WorkerLeaseLost | HeartbeatConfirmed,
    ) -> None:
        """Pass an event of the heartbeat thread to the runner it concerns, if that still exists.

        A confirmed heartbeat concerns several runners.
        """
        if isinstance(event, HeartbeatConfirmed):
            self._seats.confirm(event.workers, event.at)
            return
        runner = self._of(event.request.worker if isinstance(event, CancelRequested) else event.worker)
        if runner is None:
            return
        match event:
            case CancelRequested(request):
                runner.tell("cancel", jobs=[[str(request.id), request.token, request.reason]])
            case DrainRequested():
                _log.info("%s is draining at an operator's request", runner)
                self._seats.leave_empty(runner)
            case PauseRequested(_, paused):
                self._requests.pause(runner, paused=paused)
            case WorkerLeaseLost():
                _log.error("%s lost its lease and is replaced", runner)
                self._seats.abandon(runner)

    def _received(self, runner: RunnerProcess, message: Mapping[str, Any]) -> None:
        match message.get("kind"):
            case "opens" if self._hello is None:
                self._stores.expect(str(message.get("scheme")))
            case "hello" if runner.phase is RunnerPhase.STARTING:
                self._greet(runner, message)
            case "failed":
                runner.failure = str(message.get("error", "no reason given"))
            case "ready":
                runner.ready, self._vitals.trouble = True, None
                _log.info("%s is ready", runner)
                self._seats.take_over(runner)
            case "stats":
                runner.stats = message
            case "fires":
                self._fire_hooks.offered(runner, message)
            case "drained":
                runner.done = True
            case "fenced" if runner.phase is not RunnerPhase.LOST:
                _log.error("%s dropped its jobs and is replaced: it had no confirmed heartbeat", runner)
                self._seats.abandon(runner)
            case "stuck" if runner.phase in (RunnerPhase.WORKING, RunnerPhase.DRAINING):
                _log.error("%s is replaced: %s, and cannot be stopped", runner, message.get("reason"))
                self._seats.vacate(runner)
                # While the event loop is blocked, waiting for the grace period would be useless.
                wedged = bool(runner.condition.get("loop"))
                self._seats.stop(runner, 0.0 if wedged else self._settings.grace.total_seconds())

    def _greet(self, runner: RunnerProcess, hello: Mapping[str, Any]) -> None:
        tasks = hello.get("tasks", {})
        self._vitals.broken = broken = hello.get("broken", {})
        if self._strict and (broken or not tasks):
            why = "; ".join(f"task {name}: {error}" for name, error in broken.items())
            self._give_up(f"{self._app} is rejected (--strict): {why or 'it declares no task'}")
            return
        if self._hello is None and not self._choose_stores(hello):
            return
        if not self._stores.fits(hello):
            runner.failure = "the app's store is not the one this worker was started with; restart the worker"
            runner.kill()
            return
        # Before the stores are opened, because the duties begin with the first fires then.
        self._stores.learn(tasks)
        self._fire_hooks.offered(runner, hello.get("fires"))
        if self._hello is None:
            self._hello = hello
            if hello.get("warning"):
                _log.warning("%s", hello["warning"])
            self._stores.open(migrate=self._migrate or bool(hello.get("migrate")))
        for name, error in broken.items():
            _log.error("task %s cannot be run, and its jobs are not claimed: %s", name, error)
        if self._reloader is not None:
            self._reloader.watch(hello.get("sources", ()))
        runner.phase = RunnerPhase.JOINING
        host = host_name()
        self._link_of(runner).join_worker(
            Worker(
                id=runner.worker,
                name=f"{host}-{runner.pid}",
                host=host,
                pid=runner.pid,
                node=machine_name(),
                version=str(hello.get("version", "")),
                queues=self._settings.queues or (),
                tasks=tuple(sorted(tasks)),
                concurrency=self._requests.slots_of(runner.store_name).total,
                supervisor=self._requests.id,
                place=runner.seat,
                report=self._requests.report_of(runner),
                paused=self._seats.is_suspended(runner),
            )
        )

    def _choose_stores(self, hello: Mapping[str, Any]) -> bool:
        """Settle which stores are served, at the first description of the app. Returns False after giving up."""
        try:
            places = self._stores.choose(self._app, hello, self._wanted, self._processes)
        except BadSettings as error:
            self._give_up(str(error))
            return False
        self._processes = len(places)
        self._seats.assign(places)
        return True

    def _link_of(self, runner: RunnerProcess) -> StoreLink:
        return self._stores.of(runner.store_name).link

    def _opened(self, url: str, name: str | None) -> None:
        self._stores.opened(name)
        self._seats.pause_store(name, paused=False)
        if self._announced:
            return
        self._announced = True
        tasks = (self._hello or {}).get("tasks", {})
        queues = self._settings.queues or sorted({str(task["queue"]) for task in tasks.values()})
        health = url_of(self._health.host, self._health.port) if self._health is not None else None
        if self._announce is not None:
            stores = {store.name: store.processes for store in self._stores} if self._stores.several else None
            self._announce(
                {"app": self._app, "store": url, "tasks": sorted(tasks), "queues": list(queues)}
                | {
                    "processes": self._processes,
                    "slots": self._requests.slots_of(name).total,
                    "health": health,
                    "pid": os.getpid(),
                }
                | ({} if stores is None else {"stores": stores})
            )
        if self._beside is not None and not self._ending:
            self._beside.start()

    def _refused(self, error: TidemillError, link: StoreLink | None) -> None:
        """Stop the work of a store that cannot be used. Other stores are still served."""
        if link is None or not self._stores.several or self._strict:
            self._give_up(str(error))
            return
        if self._ending or link is not self._stores.of(link.name).link or link.is_closing:
            return
        if not self._stores.refuse(link.name, str(error)) and not self._announced:
            self._give_up(f"no store can be used: {error}")
            return
        self._seats.pause_store(link.name, paused=True)
        for runner in self._seats.of_store(link.name):
            self._seats.abandon(runner)

    def _joined(self, joined: WorkerJoined) -> None:
        runner, worker = self._of(joined.asked), joined.worker
        if runner is None:
            # The runner has died since.
            self._stores.of(joined.store).link.leave(worker, WorkerEnd.STOPPED)
            return
        runner.worker = worker
        if runner.phase is RunnerPhase.JOINING:
            runner.phase = RunnerPhase.WORKING
            deployed_at = instant_to_data(self._link_of(runner).deployed_at)
            store = runner.store_name
            settings = settings_to_data(self._requests.settings_of(store))
            served = self._stores.of(store)
            if served.relays:
                served.link.relay.add(runner.pid, runner.wakeups)
            runner.tell(
                "go",
                worker=str(worker),
                settings=settings,
                deployed_at=deployed_at,
                at=joined.at,
                store=store,
                relayed=served.relays,
                paused=self._seats.is_suspended(runner),
            )

    # Runner exits ----------------------------------------------------------------------------------------------------

    def _exited(self, runner: RunnerProcess, code: int) -> None:
        lived, asked, phase = runner.age, runner.asked, runner.phase
        self._vitals.gone(runner)
        self._fire_hooks.gone(runner)
        self._link_of(runner).relay.remove(runner.pid)
        pause = self._seats.exited(runner)
        clean = runner.done or (asked and code == 0)
        # A lost lease is not the jobs' fault: those that no other worker has claimed are released without a charge.
        stopped = (
            clean
            or phase is RunnerPhase.LOST
            or (runner.killed and phase is RunnerPhase.STOPPING and self._stops < 3)
        )
        link = self._link_of(runner)
        if runner.sick is not None:
            link.leave(runner.worker, WorkerEnd.SICK, reason=runner.sick, blamed=runner.blamed)
        else:
            link.leave(runner.worker, WorkerEnd.STOPPED if stopped else WorkerEnd.CRASHED)
        if clean or phase is RunnerPhase.LOST or (asked and not runner.ready):
            _log.log(self._routine, "%s has ended", runner)
            return
        how = f"{runner} {end_in_words(code)} after {lived:.1f} s"
        if runner.failure is not None:
            how = f"{runner} cannot work: {runner.failure}"
        if asked or self._ending:
            _log.warning("%s", how)
            return
        self._vitals.trouble = how.splitlines()[0]
        if not self._gives_up_start(runner, how):
            _log.error("%s%s", "" if pause is None else f"(the next runner starts in {pause:g} s) ", how)

    def _gives_up_start(self, runner: RunnerProcess, how: str) -> bool:
        """Give up if the app could never be imported. If it could be before, retry, unless ``strict``."""
        if runner.failure is not None and (self._hello is None or self._strict):
            self._give_up(f"cannot start a worker for {self._app}: {runner.failure}")
            return True
        if self._hello is None:
            self._first_tries += 1
            if self._first_tries >= _FIRST_TRIES:
                self._give_up(
                    f"cannot start a worker for {self._app}: {self._first_tries} runners died while importing it: {how}"
                )
                return True
        return False

    def _give_up(self, why: str) -> None:
        """Stop in an orderly way with exit code 1."""
        if not self._code:
            self._code = 1
            self._complain(why)
            self._end_all(self._settings.grace.total_seconds())

    def _stop(self, name: str) -> None:
        self._stops += 1
        match self._stops:
            case 1:
                grace = self._settings.grace.total_seconds()
                again = "press Ctrl-C again" if name == "SIGINT" else f"send {name} again"
                _log.info("%s: stopping, running jobs have %g s; %s to stop at once", name, grace, again)
                self._end_all(grace)
            case 2:
                _log.warning("%s again: stopping without grace", name)
                self._end_all(0.0)
            case _:
                _log.error("%s for the third time: killing the runners", name)
                self._code = 1
                for runner in self._seats.crew:
                    runner.asked = True
                    runner.kill()

    def _end_all(self, grace: float) -> None:
        self._ending = self._vitals.stopping = True
        self._fire_hooks.close()
        self._notifier.stopping()
        if self._beside is not None:
            self._beside.stop(grace)
        for runner in self._seats.crew:
            self._seats.stop(runner, grace)


def _health_server(status: SupervisorStatus, host: str, port: int) -> HealthServer:
    # Imported here: an HTTP server costs every worker 3 MB, and few have the endpoint.
    from tidemill.engine.health_server import HealthServer

    return HealthServer(status.verdict, host=host, port=port)
