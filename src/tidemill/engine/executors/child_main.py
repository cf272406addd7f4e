"""Child process that runs jobs: ``python -m tidemill.engine.executors.child_main``.

It receives one job after another from its runner over a socket and reports everything about them there. It claims
nothing and writes no results. A job may do anything to this process, so the runner must not rely on anything here. The
child dies with its runner.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
import json
import locale
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from tidemill import errors
from tidemill.domain.job import Claim, Details, ErrorInfo, LogEntry, Progress, ProgressReport, job_of
from tidemill.domain.large_values import BlobReference, SpilledText, is_reference
from tidemill.domain.outcome import Cancelled, Failed, Outcome, Succeeded
from tidemill.domain.payload import size_of
from tidemill.engine import sanitize
from tidemill.engine.app_lookup import Application, find_app, user_traceback
from tidemill.engine.completion import Connections
from tidemill.engine.context import StartRefused
from tidemill.engine.deathwatch import (
    Forks,
    adopt_orphans,
    descendants,
    die_with_parent,
    end_fork,
    end_own_descendants,
    tie_group,
)
from tidemill.engine.frames import (
    LOST_WIRE,
    Data,
    Wire,
    claim_from_data,
    details_from_data,
    entry_from_data,
    entry_to_data,
    outcome_to_data,
    progress_from_data,
    progress_to_data,
)
from tidemill.engine.frames_events import event_to_data
from tidemill.engine.frames_follow_ups import following_to_data
from tidemill.engine.log_records import stamp_records
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.errors import PayloadTooLarge, StoreError, TidemillError, UsageError
from tidemill.stores.large_values import is_private, read_value, store_value
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.events import Event
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

_LAST_MOMENT = 5.0  # seconds for the app's exit handlers once the runner is gone
_LONGEST_TRACE = 20_000  # characters


class _Run:
    """One run of a job: its number in this process, and whether it was asked to stop."""

    def __init__(self, order: Data) -> None:
        self.order = order
        self.number: int = order["run"]
        self.cancelled = False
        self.reason: str | None = None
        self._stop: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def cancel(self, reason: str | None) -> None:
        with self._lock:
            self.cancelled, self.reason = True, reason
            if self._stop is not None:
                self._stop()

    def stop_by(self, stop: Callable[[], object] | None) -> None:
        """Call ``stop`` when the run is asked to stop, or at once if it already was."""
        with self._lock:
            self._stop = stop
            if stop is not None and self.cancelled:
                stop()


class _Sender:
    """The ``Outlet`` of a job in a child: it sends every call to the runner, with the number of the run."""

    def __init__(self, child: Child, own: _Run, declared: Declared, claim: Claim, details: Details) -> None:
        self.record = declared.record(details)
        self._completes = False
        self._child, self._run, self.declared, self.claim = child, own, declared, claim
        self.connections: Connections = child.app.connections
        self.store_name = child.store_name
        self._began = child.app.clock.monotonic()
        # All processes of a machine share the monotonic clock.
        self.start_by: float | None = own.order["start_by"]

    def report(self, progress: Progress) -> None:
        self._say("report", progress=progress_to_data(progress))

    def log(self, entry: LogEntry) -> None:
        try:
            self._say("log", entry=entry_to_data(entry))
        except PayloadTooLarge as error:
            # The content of a log line must not fail its job.
            lesser = replace(entry, details={"unreadable": type(error).__name__})
            self._say("log", entry=entry_to_data(lesser))

    def checkpoint(self, name: str) -> str | None:
        value: str | None = self._child.ask(self._run.number, "checkpoint", name=name)
        return value

    def save_checkpoint(self, name: str, value: str) -> None:
        self._say("save_checkpoint", name=name, value=value)

    def is_timed_out(self) -> bool:
        return False  # the parent kills a child that runs past its timeout

    def renew_start(self) -> None:
        answer = self._child.ask(self._run.number, "renew_start")
        if answer["refused"] is not None:
            raise StartRefused(answer["refused"])
        self.start_by = answer["start_by"]

    def is_cancelled(self) -> bool:
        return self._run.cancelled

    def now(self) -> datetime:
        return self._child.app.clock.now()

    @property
    def is_private(self) -> bool:
        return is_private(self._child.app.store)

    def spill(self, value: SpilledText) -> str:
        if self.is_private:
            return value.content  # the runner stores it
        return store_value(self._child.app.store, value, in_table=self._completes)

    def fetch(self, text: str) -> str:
        return read_value(self._child.app.store, text)

    def completing(self) -> float:
        self._completes = True
        self._say("completing")
        return self._child.app.clock.monotonic() - self._began

    def flush(self) -> None:
        self._child.ask(self._run.number, "flush")

    def unwritten(self) -> tuple[list[LogEntry], list[ProgressReport]]:
        told: Data = self._child.ask(self._run.number, "unwritten")
        id, token, worker = self.claim.id, self.claim.token, self.claim.worker
        reports = [ProgressReport(id, token, worker, progress_from_data(data)) for data in told["progress"]]
        return [replace(entry_from_data(data), worker=worker) for data in told["lines"]], reports

    def _say(self, kind: str, **fields: Any) -> None:
        self._child.say({"kind": kind, "run": self._run.number, **fields})


class Child:
    """Serves a runner. The main thread runs jobs, so that they may use signals. Another thread receives messages."""

    def __init__(self, app: Application, wire: Wire, store_name: str | None = None) -> None:
        self.app, self._wire, self.store_name = app, wire, store_name
        self._forks = Forks.number
        self._runs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._busy: _Run | None = None
        self._asks = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Data]] = {}
        self._surroundings = _ChildServices()
        self._own_processes = descendants(os.getpid())  # processes that the app started while it was imported
        app.events.forward(self._forward)

    def serve(self) -> None:
        """Run jobs until the runner closes the connection."""
        self._prepare()
        threading.Thread(target=self._listen, name="tidemill-child-listener", daemon=True).start()
        self.say({"kind": "ready"})
        while (own := self._runs.get()) is not None:
            outcome, following = self._outcome(own)
            # Before restoring anything: a fork shares open files and locks with its parent.
            end_fork(self._forks)
            spent = self._surroundings.restore() or self._left_behind()
            self._busy = None  # before reporting the end: the next job may arrive at once
            self._end(own, outcome, spent, following)

    def _prepare(self) -> None:
        """Do slow preparations now, so that the first job need not wait for them."""
        for declared in self.app.registry:
            # A run of the task reports the problem.
            with contextlib.suppress(Exception):
                declared.arguments.prepare()
                declared.result.prepare()

    # Messages from the runner ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._wire.receive()) is not None:
                self._hear(message)
        if self._busy is not None:
            _lost()
        self._runs.put(None)
        threading.Event().wait(_LAST_MOMENT)
        _lost()

    def _hear(self, message: Data) -> None:
        own = self._busy
        match message["kind"]:
            case "run":
                self._busy = _Run(message)
                self._runs.put(self._busy)
            case "cancel" if own is not None and own.number == message["run"]:
                own.cancel(message["reason"])
            case "answer" if (waiting := self._answers.pop(message["ask"], None)) is not None:
                waiting.put(message)

    # Messages to the runner ------------------------------------------------------------------------------------------

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message to the runner. If that fails, this process ends."""
        end_fork(self._forks)  # a fork has the socket, too
        try:
            self._wire.send(message)
        except OSError:
            _lost()

    def _forward(self, event: Event) -> None:
        """Send an event of the running job to the runner, whose process has the subscribers."""
        own = self._busy
        if own is None:
            _log.warning("event %s was published after its job had ended; it is dropped", event.name)
            return
        try:
            self.say({"kind": "event", "run": own.number, "event": event_to_data(event)})
        except PayloadTooLarge as error:
            _log.error("event %s is dropped: %s", event.name, error)

    def ask(self, number: int, kind: str, **fields: Any) -> Any:
        """Send a request to the runner and wait for its answer."""
        ask = next(self._asks)
        waiting: queue.SimpleQueue[Data] = queue.SimpleQueue()
        self._answers[ask] = waiting
        self.say({"kind": kind, "run": number, "ask": ask, **fields})
        answer = waiting.get()
        if "error" in answer:
            raise _named_error(answer["error"])(answer["message"])
        return answer["value"]

    def _end(self, own: _Run, outcome: Outcome, spent: str | None, following: Data) -> None:
        message = {"kind": "ended", "run": own.number, "outcome": outcome_to_data(outcome), "spent": spent}
        try:
            self.say(message | following)
        except PayloadTooLarge as error:
            self._end_smaller(message, following, outcome, error)

    def _end_smaller(self, message: Data, following: Data, outcome: Outcome, error: PayloadTooLarge) -> None:
        """Report the end without the result. If the rest is still too large, the job fails: its next jobs would be lost."""
        without = _without_result(outcome, error)
        if without is not None:
            with contextlib.suppress(PayloadTooLarge):
                self.say(message | following | {"outcome": outcome_to_data(without)})
                return
        failed = Failed(sanitize.error_info(error), permanent=True)
        self.say(message | {"outcome": outcome_to_data(failed)})

    # One job ---------------------------------------------------------------------------------------------------------

    def _outcome(self, own: _Run) -> tuple[Outcome, Data]:
        """The outcome of the run, and the jobs to enqueue with its completion."""
        try:
            ended = self._execute(own)
            return ended.outcome, following_to_data(ended.then, ended.audit)
        except asyncio.CancelledError:
            return Cancelled(own.reason), {}
        except BaseException as error:  # noqa: BLE001  (even an interrupt can only come from the job itself)
            try:
                return Failed(sanitize.error_info(error)), {}
            except KeyboardInterrupt:  # raised by the exception's own __str__
                text = "<its text cannot be read: KeyboardInterrupt>"
                return Failed(ErrorInfo(sanitize.type_of(error), text)), {}

    def _execute(self, own: _Run) -> ExecutionEnd:
        claim: Claim = claim_from_data(own.order["claim"])
        details = details_from_data(own.order["details"])
        job = job_of(claim, details, self.app.clock.now())
        declared = self.app.registry.get(claim.task)
        work = (
            declared,
            claim,
            job,
            _Sender(self, own, declared, claim, details),
            self.app.clock,
            self.app.hooks,
        )
        if not declared.is_async:
            return run(*work)

        async def main() -> ExecutionEnd:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            own.stop_by(lambda: loop.call_soon_threadsafe(task.cancel))
            try:
                return await arun(*work)
            finally:
                own.stop_by(None)

        return asyncio.run(main())

    def _left_behind(self) -> str | None:
        """Reap ended processes of the job; return why this child must be replaced if any are still alive."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return None
        living = descendants(os.getpid())
        return "it left processes behind" if not living or living - self._own_processes else None


try:
    import resource
except ImportError:  # Windows
    _LIMITS: list[int] = []
else:
    _LIMITS = sorted(
        {
            getattr(resource, name)
            for name in dir(resource)
            if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
        }
    )


class _ChildServices:
    """Process state that a job may have changed and that is cheap to restore. It closes nothing."""

    _NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    _SIGNALS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {sign: signal.getsignal(sign) for sign in self._SIGNALS}
        self._locale = locale.setlocale(locale.LC_ALL)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}

    def restore(self) -> str | None:
        """Restore everything; if that fails, return why this process must be replaced."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for sign, handler in self._handlers.items():
            if handler is not None and signal.getsignal(sign) is not handler:
                signal.signal(sign, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._mask)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        try:
            for limit, (soft, hard) in self._limits.items():
                now = resource.getrlimit(limit)
                if now != (soft, hard):
                    # A lowered hard limit cannot be raised again without privileges. This process must then be
                    # replaced.
                    resource.setrlimit(limit, (soft, hard))
            os.chdir(self._folder)
            if locale.setlocale(locale.LC_ALL) != self._locale:
                locale.setlocale(locale.LC_ALL, self._locale)
            for number in (1, 2):
                os.fstat(number)
        except (OSError, ValueError, locale.Error) as error:
            return f"its environment cannot be restored: {error}"
        return None


def _without_result(outcome: Outcome, error: PayloadTooLarge) -> Outcome | None:
    """The outcome without a result that does not fit into a message; None if there is no such result."""
    if isinstance(outcome, Succeeded) and outcome.result is not None and not is_reference(outcome.result):
        return Succeeded(BlobReference(size_of(outcome.result), refused=str(error)).text())
    return None


def _lost() -> NoReturn:
    end_own_descendants()
    os._exit(LOST_WIRE)


def _named_error(name: str) -> type[TidemillError]:
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, TidemillError) else StoreError


def refuse_memory_stores(app: Application) -> None:
    """Make in-memory stores raise an error on use.

    They are not the runner's store, so jobs enqueued there would be lost.
    """

    def refuse() -> NoReturn:
        raise UsageError(
            "this job runs in a process of its own, where the app's in-memory store is not the one that its worker has; "
            "use sqlite:///… or postgresql://…, or run the task without isolation='process'"
        )

    for store in app.stores.values():
        if isinstance(store, MemoryStore):
            vars(store)["_refuse_closed"] = refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Import the app, report that it is ready, and serve until the runner closes the connection."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.engine.executors.child_main")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the runner")
    parser.add_argument(
        "--life", type=int, required=True, help="a pipe that is open as long as the runner lives"
    )
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    parser.add_argument("--parent", type=int, required=True, help="the runner's process id")
    parser.add_argument("--store-name", help="the store of the runner's jobs, if the app has several")
    parser.add_argument("--path", type=json.loads, help="where the runner finds its modules, as JSON")
    given = parser.parse_args(arguments)
    os.set_inheritable(given.life, False)
    # Use only one of the two: the parent-death signal would end this process alone, and its descendants would lose
    # their tie.
    if not tie_group(given.life):
        die_with_parent(given.parent)
    adopt_orphans()
    stamp_records()
    faulthandler.enable()
    connection = socket.socket(fileno=given.fd)
    connection.set_inheritable(False)
    wire = Wire(connection)
    if given.path is not None:
        sys.path[:] = given.path
    try:
        app = find_app(given.app)
        refuse_memory_stores(app)
        app = app if given.store_name is None else app.at_store(given.store_name)
    except BaseException as error:  # noqa: BLE001  (the runner must be notified of any error in the app's modules)
        cause = error.__cause__ if isinstance(error, TidemillError) else error
        trace = None if cause is None else user_traceback(cause)[-_LONGEST_TRACE:]
        wire.send({"kind": "failed", "error": sanitize.text_of(error), "traceback": trace})
        return 1
    Child(app, wire, given.store_name).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
