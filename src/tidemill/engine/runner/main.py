"""A runner process: imports the app, says what it found, and runs jobs until its supervisor says otherwise or is gone.

``python -m tidemill.engine.runner.main --fd N --life N --parent PID --app module:attr``, started by the supervisor alone. It does not beat,
does no duties and obeys no signals: what it is to do comes over the socket.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from tidemill.archive.duty import RetentionThread
from tidemill.clock import Clock, SystemClock
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.liveness import holds_for
from tidemill.domain.releases import CONFIRM
from tidemill.domain.retry import policy_to_data
from tidemill.domain.worker_reports import SlotCounts
from tidemill.early_signals import accept_signals
from tidemill.engine.app_lookup import Application, find_app, unused_store, user_traceback
from tidemill.engine.deathwatch import die_with_parent, end_own_descendants, tie_group
from tidemill.engine.duties import REST
from tidemill.engine.frames import Data, Wire, instant_from_data
from tidemill.engine.import_failures import described
from tidemill.engine.listener import WakeupListener
from tidemill.engine.log_capture import scrub_output
from tidemill.engine.log_formats import LogOutput, add_log_arguments, write_output
from tidemill.engine.node import release_here
from tidemill.engine.runner.code_check import EVERY, CodeCheck
from tidemill.engine.runner.hook_server import HookServer
from tidemill.engine.runner.runner import Runner
from tidemill.engine.runner.watchdog import Fence
from tidemill.engine.supervisor.reloader import source_files
from tidemill.engine.supervisor.terminal import refuse_halts
from tidemill.engine.worker_settings import fitted, read_settings
from tidemill.errors import StoreBusy, StoreError, StoreUnavailable, TidemillError
from tidemill.stores.open import OpenWatch
from tidemill.stores.wakeup_relay import RelayedListener
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.worker")

_OFTEN, _SELDOM = 1.0, 2.0  # seconds between two status messages while figures change, and while they do not
_AGAIN = 5.0  # seconds between two attempts to declare the app's limits and schedules
_CONFIRM = CONFIRM.total_seconds()
_CHECK = EVERY.total_seconds()
_REST = REST.total_seconds()
_ABANDONED = 1.0  # seconds for handlers to stop after the lease was lost
_LEAVING = 3.0  # seconds for the interpreter to exit after all work is done
_COLLECT_AFTER = 10_000  # net new objects


class RunnerMain:
    """Main program of one runner process.

    The main thread communicates with the supervisor; jobs run on the runner's own threads.
    """

    def __init__(
        self,
        wire: Wire,
        app_path: str,
        logs: LogOutput,
        *,
        sources: bool = False,
        hooks: Wire | None = None,
        wakeups: socket.socket | None = None,
    ) -> None:
        self._wire, self._app_path, self._logs = wire, app_path, logs
        self._hooks, self._wakeups = hooks, wakeups
        self._hook_server: HookServer | None = None
        self._offer: Data = {}
        self._sources = sources
        self._inbox: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._working = threading.Event()
        self._fence: Fence | None = None
        self._last: tuple[object, ...] = ()
        self._told_at = self._tried_at = float("-inf")

    def run(self) -> int:
        """Run until the end, and return the exit code."""
        threading.Thread(target=self._hear, name="tidemill-supervisor", daemon=True).start()
        OpenWatch.tell = lambda scheme: self._say("opens", scheme=scheme)
        try:
            app = find_app(self._app_path)
            # After the import, so that an app that configures logging itself is left alone.
            write_output(self._logs, capture=app.hooks.capture)
            scrub_output()
            sound, broken = examine(app.registry)
            hello = describe(app, sound, broken) | {"warning": unused_store(app, self._app_path)}
            hello |= {"sources": source_files()} if self._sources else {}
            hello |= {"fires": self._offer_hooks(app)}
        # Importing may raise anything, and the supervisor must get the reason.
        except BaseException as error:  # noqa: BLE001
            write_output(self._logs)
            self._say("failed", error=explain(error))
            return 1
        OpenWatch.tell = None
        self._say("hello", **hello)
        while (message := self._inbox.get()).get("kind") != "go":
            pass
        return self._work(app, sound, message)

    # Messages --------------------------------------------------------------------------------------------------------

    def _offer_hooks(self, app: Application) -> Data:
        """The hooks and subscribers of the app for fires, which the supervisor makes."""
        if self._hook_server is None and self._hooks is not None:
            self._hook_server = HookServer(app, self._hooks)
        self._offer = {} if self._hook_server is None else self._hook_server.offer()
        return self._offer

    def _say(self, kind: str, **fields: object) -> None:
        try:
            self._wire.send({"kind": kind, **fields})
        except OSError:
            # The supervisor is gone, or a job has closed our socket. This runner can do no more work in either case.
            leave_at_once(1)

    def _hear(self) -> None:
        """Receive messages on a thread of its own, so that they arrive even during a long import."""
        with contextlib.suppress(OSError):
            while (message := self._wire.receive()) is not None:
                if message.get("kind") == "beat" and self._fence is not None:
                    # On this thread, because the main thread may be waiting for the store.
                    self._fence.confirm(float(message["at"]))
                    continue
                if message.get("kind") == "go":
                    self._fence = fence_of(message)
                if not self._working.is_set() and message.get("kind") in ("stop", "drain", "lost"):
                    leave_at_once(0)  # no job is held yet
                self._inbox.put(message)
        leave_at_once(1)

    # Work ------------------------------------------------------------------------------------------------------------

    def _work(self, root: Application, tasks: Registry, go: Mapping[str, Any]) -> int:
        self._working.set()
        name = go.get("store")  # None if the app has one store
        app = root if name is None else root.at_store(name)
        spare_the_collector()
        relayed = self._wakeups if go.get("relayed") else None
        listener = WakeupListener(
            app.store, app.clock, None if relayed is None else lambda: RelayedListener(relayed)
        )
        runner = Runner(
            app.store,
            tasks,
            UUID(go["worker"]),
            fitted(read_settings(dict(go["settings"])), app.store.url),
            app.clock,
            listener=listener,
            events=app.events,
            hooks=app.hooks,
            connections=app.connections,
            app_path=self._app_path,
            on_stuck=lambda reason: self._say("stuck", reason=reason),
            fence=self._fence,
            store_name=name,
            paused=bool(go.get("paused")),
        )
        app.deployed_at = instant_from_data(go.get("deployed_at"))
        assert self._fence is not None  # the "go" message has set it
        self._fence.on_lost = lambda: threading.Thread(
            target=self._drop, args=[runner], name="tidemill-drop", daemon=True
        ).start()
        reconciled = prepare(app)  # before the first claim, which must respect the app's limits
        self._tried_at = app.clock.monotonic()
        check = CodeCheck(app.store, tasks)
        check.quietly()
        regular = (Regular(app.clock, _CHECK, check.quietly), Regular(app.clock, _REST, app.store.rest))
        listener.start()
        try:
            runner.start()
        except BaseException as error:  # noqa: BLE001  (the app's lifespan may raise anything)
            self._say("failed", error=explain(error))
            return 1
        duty = app.retention_duty()
        archiver = None if duty is None else RetentionThread(duty)
        if archiver is not None:
            archiver.start()
        background = app.background_thread()
        if background is not None:
            listener.subscribe(background.heard)
            background.start()
        self._say("ready")
        confirm(app)
        while self._obey(runner):
            self._tell(runner, app.clock.monotonic())
            if self._offer != self._offer_hooks(root):
                self._say("fires", **self._offer)
            if app.clock.monotonic() - self._tried_at >= (_CONFIRM if reconciled else _AGAIN):
                reconciled = confirm(app) if reconciled else prepare(app)
                self._tried_at = app.clock.monotonic()
            for act in regular:
                act()
        self._tell(runner, float("inf"))  # report the figures since the last message
        root.hooks.flush()
        self._say("drained")
        hurry(_LEAVING)
        if archiver is not None:
            archiver.close()
        if background is not None:
            background.close()
        if self._hook_server is not None:
            self._hook_server.close()
        listener.close()
        root.close()
        return 0

    def _obey(self, runner: Runner) -> bool:
        """Handle the next message from the supervisor, waiting at most a second.

        Returns False once the work is over.
        """
        try:
            message = self._inbox.get(timeout=_OFTEN)
        except queue.Empty:
            return True
        match message.get("kind"):
            case "cancel":
                runner.cancel(
                    CancelRequest(UUID(id), token, runner.worker, reason)
                    for id, token, reason in message["jobs"]
                )
            case "drain":
                self._begin(runner, lambda: drain(runner))
            case "pause":
                runner.pause()
            case "resume":
                runner.resume()
            case "slots":
                runner.resize(SlotCounts(*message["slots"]))
            case "stop":  # a second one with a shorter grace takes precedence
                self._begin(runner, lambda: runner.stop(float(message["grace"])))
            case "lost":
                abandon(runner)
            case "over":
                return False
        return True

    def _drop(self, runner: Runner) -> None:
        """Drop all jobs because no confirmed heartbeat has arrived in time.

        The supervisor is halted, or cannot reach the store.
        """
        # A halted supervisor does not read, so the socket may be full. Nothing here may wait for that.
        threading.Thread(target=self._say, args=["fenced"], daemon=True).start()
        abandon(runner)

    def _begin(self, runner: Runner, end: Callable[[], None]) -> None:
        runner.drain()
        _log.info("this runner claims nothing more")

        def act() -> None:
            end()
            self._inbox.put({"kind": "over"})

        threading.Thread(target=act, name="tidemill-end", daemon=True).start()

    def _tell(self, runner: Runner, now: float) -> None:
        stats, condition = runner.stats(), runner.condition()
        known = (*stats, *condition)
        if now - self._told_at >= (_OFTEN if known != self._last else _SELDOM):
            self._told_at, self._last = now, known
            self._say(
                "stats", **stats._asdict(), counters=runner.counters.data(), condition=condition._asdict()
            )


class Regular:
    """An action that is carried out at most once in so many seconds, first after that time."""

    def __init__(self, clock: Clock, every: float, act: Callable[[], object]) -> None:
        self._clock, self._every, self._act = clock, every, act
        self._at = clock.monotonic()

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if now - self._at >= self._every:
            self._at = now
            self._act()


def fence_of(go: Mapping[str, Any]) -> Fence:
    """Return the fence of this runner's worker. All processes of a machine share one monotonic clock."""
    limit = holds_for(read_settings(dict(go["settings"])).expiry)
    return Fence(SystemClock(), UUID(go["worker"]), limit=limit, confirmed=float(go["at"]))


def examine(tasks: Registry) -> tuple[Registry, dict[str, str]]:
    """Prepare the tasks.

    Returns those that can run and, for the others, the reason; other workers may still claim the latter.
    """
    sound, broken = tasks.empty_copy(), {}
    for task in tasks:
        if not tasks.is_served(task):
            continue
        try:
            task.arguments.prepare()
            task.result.prepare()
        except Exception as error:  # noqa: BLE001  (evaluating an annotation may raise anything)
            broken[task.name] = f"{type(error).__name__}: {error}"
        else:
            sound.add(task)
    return sound, broken


def describe(app: Application, sound: Registry, broken: Mapping[str, str]) -> dict[str, object]:
    """Describe the app for a supervisor, which does not import it.

    The store URL may contain a password: the socket is private.
    """
    return {
        "pid": os.getpid(),
        "version": release_here(),
        "store": app.store_url(),
        "stores": {name: app.store_url(name) for name in app.stores},
        "live": app.live_stores,
        "migrate": app.migrates,
        "tasks": {
            name: {
                **task.data,
                "retry": policy_to_data(task.options.policy.retry),
                "crash_cap": task.options.policy.crash_cap,
                "orphans": task.options.policy.orphans.value,
            }
            for task in sound
            for name in sound.names_of(task)
        },
        "broken": dict(broken),
    }


def prepare(app: Application) -> bool:
    """Declare the app's limits and schedules in the store. Returns False if that must be tried again."""
    acts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("limits", app.declare_limits),
        ("schedules", app.reconcile),
    )
    for what, act in acts:
        try:
            act()
        except (StoreBusy, StoreUnavailable) as error:
            _log.warning("the app's %s could not be synchronized with the store yet: %s", what, error)
            return False
        except TidemillError as error:
            _log.error("the app's %s could not be synchronized with the store: %s", what, error)
    return True


def confirm(app: Application) -> bool:
    """Confirm that this deployment is alive.

    Always returns True: if the store does not answer, the next attempt is soon enough.
    """
    try:
        app.confirm()
    except StoreError as error:
        _log.debug("the release record cannot be confirmed: %s", error)
    return True


def explain(error: BaseException) -> str:
    """Explain in one sentence why this runner cannot work. The traceback is logged for ``--log-level debug``."""
    _log.debug("%s", user_traceback(error.__cause__ or error))
    return str(error) if isinstance(error, TidemillError) else described(error)


def spare_the_collector() -> None:
    """Exclude imported objects from garbage collection."""
    gc.collect()
    gc.freeze()


def drain(runner: Runner) -> None:
    """Finish all held jobs, however long it takes."""
    runner.drain()
    while not runner.wait_empty(3600.0):
        pass
    runner.stop(3600.0)  # a claim that was under way may have returned more jobs


def abandon(runner: Runner) -> None:
    """Stop all jobs and exit because the lease is lost. Jobs that do not stop in time are killed with the process."""
    ending = threading.Thread(target=runner.abandon, name="tidemill-abandon", daemon=True)
    ending.start()
    ending.join(_ABANDONED)
    leave_at_once(1)


def leave_at_once(code: int) -> None:
    """Exit this process and kill everything it started."""
    try:
        end_own_descendants()
        if code and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # includes this process, and descendants whose parents are gone
    finally:
        os._exit(code)


def hurry(seconds: float) -> None:
    """Force the exit after this many seconds, in case a thread or an exit handler of the app prevents it."""
    timer = threading.Timer(seconds, os._exit, [0])
    timer.daemon = True
    timer.start()


def main(words: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.engine.runner.main", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the supervisor")
    parser.add_argument("--hooks", type=int, help="the socket for the hooks of fires")
    parser.add_argument("--wakeups", type=int, help="the socket for wake-ups that the supervisor relays")
    parser.add_argument("--life", type=int, required=True, help="a pipe that is open as long as it lives")
    parser.add_argument("--parent", type=int, required=True, help="its process id")
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    add_log_arguments(parser)
    parser.add_argument("--sources", action="store_true", help="tell the files of the imported code")
    given = parser.parse_args(words)
    # Before the app is imported, which creates many objects that stay, and which may configure the collector itself.
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    # An empty handler instead of SIG_IGN: programs that jobs start would inherit SIG_IGN and could not be terminated.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    accept_signals()
    refuse_halts()
    os.set_inheritable(given.life, False)
    if not tie_group(given.life):
        die_with_parent(given.parent)
    wire = wire_of(given.fd)
    hooks = None if given.hooks is None else wire_of(given.hooks)
    wakeups = None if given.wakeups is None else socket_of(given.wakeups)
    logs = LogOutput.taken(vars(given))
    return RunnerMain(wire, given.app, logs, sources=given.sources, hooks=hooks, wakeups=wakeups).run()


def wire_of(descriptor: int) -> Wire:
    """Take over an inherited socket for messages."""
    return Wire(socket_of(descriptor))


def socket_of(descriptor: int) -> socket.socket:
    """Take over an inherited socket. Programs that jobs start do not inherit it."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    return connection


if __name__ == "__main__":
    sys.exit(main())
