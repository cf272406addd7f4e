"""A runner process: imports the app, says what it found, and runs jobs until its supervisor says otherwise or is gone.

``python -m tidemill.engine.process --fd N --life N --parent PID --app module:attr``, started by the supervisor alone. It does not beat,
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
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.domain.cluster import CancelRequest
from tidemill.domain.retry import policy_to_data
from tidemill.engine.deathwatch import die_with_parent, end_own_descendants, tie_group
from tidemill.engine.ear import Ear
from tidemill.engine.frames import Wire
from tidemill.engine.locate import Application, find_app
from tidemill.engine.logs import LEVELS, write_logs
from tidemill.engine.node import release_here
from tidemill.engine.runner import Runner
from tidemill.engine.settings import fitted, read_settings
from tidemill.errors import StoreBusy, StoreUnavailable, TidemillError
from tidemill.tasks.registry import Registry

_log = logging.getLogger("tidemill.worker")

_OFTEN, _SELDOM = 1.0, 5.0  # seconds between two messages while something changes, and while nothing does
_ABANDONED = 1.0  # seconds for handlers to end whose lease is lost
_LEAVING = 3.0  # seconds for the interpreter to end once all is done
_LONGEST_ERROR = 20_000  # characters
_AS_PYTHON_SETS_IT = gc.get_threshold()
_COLLECT_AFTER = 10_000  # objects more than before


class RunnerMain:
    """The life of one runner process. Its main thread speaks with the supervisor; jobs run on the runner's own threads."""

    def __init__(self, wire: Wire, app_path: str, begin_log: Callable[[], None]) -> None:
        self._wire, self._app_path, self._begin_log = wire, app_path, begin_log
        self._inbox: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._working = threading.Event()
        self._last: tuple[object, ...] = ()
        self._told_at = self._tried_at = float("-inf")

    def run(self) -> int:
        """From the first word to the last; the exit code."""
        threading.Thread(target=self._hear, name="tidemill-supervisor", daemon=True).start()
        try:
            app = find_app(self._app_path)
            self._begin_log()  # after the import: an app that arranges for its log itself is left alone
            sound, broken = examine(app.registry)
            hello = describe(app, sound, broken)
        except BaseException as error:  # noqa: BLE001  (whatever a module does when it is imported, the supervisor shall know)
            self._say("failed", error=explain(error))
            return 1
        self._say("hello", **hello)
        while (message := self._inbox.get()).get("kind") != "go":
            pass
        return self._work(app, sound, message)

    # Talking ---------------------------------------------------------------------------------------------------------

    def _say(self, kind: str, **facts: object) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, and so are we in a moment
            self._wire.send({"kind": kind, **facts})

    def _hear(self) -> None:
        """On a thread of its own, so that a supervisor is heard while a long import goes on."""
        with contextlib.suppress(OSError):
            while (message := self._wire.receive()) is not None:
                if not self._working.is_set() and message.get("kind") in ("stop", "drain", "lost"):
                    leave_at_once(0)  # nothing is held yet
                self._inbox.put(message)
        leave_at_once(1)

    # Working ---------------------------------------------------------------------------------------------------------

    def _work(self, app: Application, tasks: Registry, go: Mapping[str, Any]) -> int:
        self._working.set()
        spare_the_collector()
        ear = Ear(app.store, app.clock)
        runner = Runner(
            app.store,
            tasks,
            UUID(go["worker"]),
            fitted(read_settings(dict(go["settings"])), app.store.url),
            app.clock,
            ear=ear,
            events=app.events,
            middleware=app._client.middleware,
            app_path=self._app_path,
            on_stuck=lambda reason: self._say("stuck", reason=reason),
        )
        reconciled = prepare(app)  # before the first claim, which is to keep the app's limits
        ear.start()
        runner.start()
        self._say("ready")
        while self._obey(runner):
            self._tell(runner, app.clock.monotonic())
            if not reconciled and app.clock.monotonic() - self._tried_at >= _SELDOM:
                self._tried_at = app.clock.monotonic()
                reconciled = prepare(app)
        self._tell(runner, float("inf"))  # what was done since it was last said is not to be lost
        self._say("drained")
        hurry(_LEAVING)
        ear.close()
        app._client.close()
        return 0

    def _obey(self, runner: Runner) -> bool:
        """Do what the supervisor says next, or nothing for a second; False once the work is over."""
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
            case "stop":  # a second one, with less grace, overtakes the first
                self._begin(runner, lambda: runner.stop(float(message["grace"])))
            case "lost":
                abandon(runner)
            case "over":
                return False
        return True

    def _begin(self, runner: Runner, end: Callable[[], None]) -> None:
        runner.drain()
        _log.info("this runner claims nothing more")

        def act() -> None:
            end()
            self._inbox.put({"kind": "over"})

        threading.Thread(target=act, name="tidemill-end", daemon=True).start()

    def _tell(self, runner: Runner, now: float) -> None:
        stats = runner.stats()
        if now - self._told_at >= (_OFTEN if tuple(stats) != self._last else _SELDOM):
            self._told_at, self._last = now, tuple(stats)
            self._say("stats", **stats._asdict(), tally=runner.tally.data())


def examine(tasks: Registry) -> tuple[Registry, dict[str, str]]:
    """The tasks that can be run, ready to be, and why others cannot: those are not claimed, and wait for another worker."""
    sound, broken = Registry(), {}
    for task in tasks:
        try:
            task.arguments.prepare()
            task.result.prepare()
        except Exception as error:  # noqa: BLE001  (an annotation may do anything when it is looked at)
            broken[task.name] = f"{type(error).__name__}: {error}"
        else:
            sound.add(task)
    return sound, broken


def describe(app: Application, sound: Registry, broken: Mapping[str, str]) -> dict[str, object]:
    """What a supervisor must know of an app that it does not import. The address may hold a password: the socket is private."""
    return {
        "pid": os.getpid(),
        "version": release_here(),
        "store": app.store_url(),
        "migrate": app.migrates,
        "tasks": {
            task.name: {
                **task.facts,
                "retry": policy_to_data(task.options.policy.retry),
                "crash_cap": task.options.policy.crash_cap,
                "orphans": task.options.policy.orphans.value,
            }
            for task in sound
        },
        "broken": dict(broken),
    }


def prepare(app: Application) -> bool:
    """Bring the limits and the schedules that the app declares into the store; False if that is to be tried again."""
    acts: tuple[tuple[str, Callable[[], object]], ...] = (
        ("limits", app.declare_limits),
        ("schedules", app.reconcile),
    )
    for what, act in acts:
        try:
            act()
        except (StoreBusy, StoreUnavailable) as error:
            _log.warning("the app's %s could not be brought into the store yet: %s", what, error)
            return False
        except TidemillError as error:
            _log.error("the app's %s could not be brought into the store: %s", what, error)
    return True


def explain(error: BaseException) -> str:
    """Why the app cannot be imported: our own errors in a sentence, with the traceback of what caused them."""
    if isinstance(error, TidemillError):
        cause = error.__cause__
        trace = "".join(traceback.format_exception(cause)) if cause is not None else ""
        return f"{error}\n{trace}".strip()[-_LONGEST_ERROR:]
    return "".join(traceback.format_exception(error)).strip()[-_LONGEST_ERROR:]


def spare_the_collector() -> None:
    """What was imported stays: the garbage collector need not look at it again and again, nor at every few hundred objects."""
    gc.collect()
    gc.freeze()
    if gc.get_threshold() == _AS_PYTHON_SETS_IT:  # else the app has its own opinion
        gc.set_threshold(_COLLECT_AFTER, *_AS_PYTHON_SETS_IT[1:])


def drain(runner: Runner) -> None:
    """Finish what is held, however long it takes."""
    runner.drain()
    while not runner.wait_empty(3600.0):
        pass
    runner.stop(3600.0)  # a claim that was under way may have brought something after all


def abandon(runner: Runner) -> None:
    """The lease is lost: others have these jobs. Stop them and end, whether or not they let themselves be stopped."""
    ending = threading.Thread(target=runner.abandon, name="tidemill-abandon", daemon=True)
    ending.start()
    ending.join(_ABANDONED)
    leave_at_once(1)


def leave_at_once(code: int) -> None:
    """End this process with everything it started."""
    try:
        end_own_descendants()
        if code and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # also those whose parents are gone, and ourselves
    finally:
        os._exit(code)


def hurry(seconds: float) -> None:
    """End the process after so long, if a thread or an exit handler of the app's own keeps it from ending by itself."""
    timer = threading.Timer(seconds, os._exit, [0])
    timer.daemon = True
    timer.start()


def main(words: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.engine.process", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket to the supervisor")
    parser.add_argument("--life", type=int, required=True, help="a pipe that is open as long as it lives")
    parser.add_argument("--parent", type=int, required=True, help="its process id")
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    parser.add_argument("--log-level", choices=LEVELS, default="info")
    parser.add_argument("--log-json", action="store_true")
    given = parser.parse_args(words)
    # Handled by doing nothing, not ignored: programs that jobs start would inherit that, and could not be terminated.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    os.set_inheritable(given.life, False)
    if not tie_group(given.life):
        die_with_parent(given.parent)
    connection = socket.socket(fileno=given.fd)
    connection.set_inheritable(False)
    begin_log = partial(write_logs, given.log_level, as_json=given.log_json)
    return RunnerMain(Wire(connection), given.app, begin_log).run()


if __name__ == "__main__":
    sys.exit(main())
