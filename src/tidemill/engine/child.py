"""A child process: runs one job after the other for its runner, and dies with it. ``python -m tidemill.engine.child``.

All it knows of the job comes over a socket, and all it says of it goes back there: it claims nothing and finishes nothing.
What a job does to this process is its runner's to survive, so nothing here may be relied upon by the runner.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import itertools
import json
import locale
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from tidemill import errors
from tidemill.domain.job import Claim, LogEntry, Progress, job_of
from tidemill.domain.outcome import Cancelled, Failed, Outcome
from tidemill.engine import words
from tidemill.engine.deathwatch import (
    adopt_orphans,
    descendants,
    die_with_parent,
    end_own_descendants,
    tie_group,
)
from tidemill.engine.execute import Ended, arun, run
from tidemill.engine.frames import (
    LOST_WIRE,
    Data,
    Wire,
    claim_from_data,
    details_from_data,
    entry_to_data,
    outcome_to_data,
    progress_to_data,
)
from tidemill.engine.locate import Application, find_app
from tidemill.errors import PayloadTooLarge, StoreError, TidemillError, UsageError
from tidemill.stores.memory import MemoryStore

_LAST_MOMENT = 5.0  # seconds for what the app does at exit, once nobody waits for us any more


class _Run:
    """One job in hand: its number in this process, and whether it was asked to stop."""

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
        """Have this called when it is asked to stop, at once if it was already."""
        with self._lock:
            self._stop = stop
            if stop is not None and self.cancelled:
                stop()


class _Mouth:
    """The ``Outlet`` of a job in a child: every word goes to the runner, with the number of the run it belongs to."""

    def __init__(self, child: Child, own: _Run) -> None:
        self._child, self._run = child, own

    def report(self, progress: Progress) -> None:
        self._say("report", progress=progress_to_data(progress))

    def log(self, entry: LogEntry) -> None:
        try:
            self._say("log", entry=entry_to_data(entry))
        except PayloadTooLarge as error:  # a line must not fail its job because of what stands in it
            lesser = replace(entry, details={"unreadable": type(error).__name__})
            self._say("log", entry=entry_to_data(lesser))

    def checkpoint(self, name: str) -> str | None:
        value: str | None = self._child.ask(self._run.number, "checkpoint", name=name)
        return value

    def save_checkpoint(self, name: str, value: str) -> None:
        self._say("save_checkpoint", name=name, value=value)

    def is_cancelled(self) -> bool:
        return self._run.cancelled

    def now(self) -> datetime:
        return self._child.app.clock.now()

    def transaction(self) -> AbstractContextManager[None]:
        return self._child.app.store.transaction()

    def _say(self, kind: str, **facts: Any) -> None:
        self._child.say({"kind": kind, "run": self._run.number, **facts})


class Child:
    """Serves a runner: the main thread runs jobs, so that they may use signals; another listens meanwhile."""

    def __init__(self, app: Application, wire: Wire) -> None:
        self.app, self._wire = app, wire
        self._runs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._busy: _Run | None = None
        self._asks = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Data]] = {}
        self._surroundings = _Surroundings()
        self._known = descendants(os.getpid())  # what the app started for itself when it was imported

    def serve(self) -> None:
        """Run what comes until nobody sends anything any more."""
        self._prepare()
        threading.Thread(target=self._listen, name="tidemill-child-ear", daemon=True).start()
        self.say({"kind": "ready"})
        while (own := self._runs.get()) is not None:
            outcome = self._outcome(own)
            spent = self._surroundings.restore() or self._left_behind()
            self._busy = None  # before it is told: the next one may come at once
            self._end(own, outcome, spent)

    def _prepare(self) -> None:
        """Do now what the first job would wait for."""
        for declared in self.app.registry:
            with contextlib.suppress(Exception):  # whoever runs it is told what is wrong
                declared.arguments.prepare()
                declared.result.prepare()

    # What is heard ---------------------------------------------------------------------------------------------------

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

    # What is said ----------------------------------------------------------------------------------------------------

    def say(self, message: Mapping[str, Any]) -> None:
        """Tell the runner; who cannot do that any more is of no use."""
        try:
            self._wire.send(message)
        except OSError:
            _lost()

    def ask(self, number: int, kind: str, **facts: Any) -> Any:
        """Ask the runner and wait for its answer."""
        ask = next(self._asks)
        waiting: queue.SimpleQueue[Data] = queue.SimpleQueue()
        self._answers[ask] = waiting
        self.say({"kind": kind, "run": number, "ask": ask, **facts})
        answer = waiting.get()
        if "error" in answer:
            raise _named_error(answer["error"])(answer["message"])
        return answer["value"]

    def _end(self, own: _Run, outcome: Outcome, spent: str | None) -> None:
        message = {"kind": "ended", "run": own.number, "outcome": outcome_to_data(outcome), "spent": spent}
        try:
            self.say(message)
        except PayloadTooLarge as error:
            failed = Failed(words.error_info(error), permanent=True)
            self.say(message | {"outcome": outcome_to_data(failed)})

    # One job ---------------------------------------------------------------------------------------------------------

    def _outcome(self, own: _Run) -> Outcome:
        try:
            return self._execute(own).outcome
        except asyncio.CancelledError:
            return Cancelled(own.reason)
        except BaseException as error:  # noqa: BLE001  (an interrupt, too, can only be the job's own doing)
            return Failed(words.error_info(error))

    def _execute(self, own: _Run) -> Ended:
        claim: Claim = claim_from_data(own.order["claim"])
        job = job_of(claim, details_from_data(own.order["details"]), self.app.clock.now())
        declared = self.app.registry.get(claim.task)
        work = (declared, claim, job, _Mouth(self, own), self.app.clock, self.app._client.middleware)
        if not declared.is_async:
            return run(*work)

        async def main() -> Ended:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            own.stop_by(lambda: loop.call_soon_threadsafe(task.cancel))
            try:
                return await arun(*work)
            finally:
                own.stop_by(None)

        return asyncio.run(main())

    def _left_behind(self) -> str | None:
        """Whether processes of the job live on; those that only wait to be reaped are."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return None
        living = descendants(os.getpid())
        return "it left processes behind" if not living or living - self._known else None


class _Surroundings:
    """What a job may have changed for the next one and that is cheap to put back. It closes nothing."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1,
                signal.SIGUSR2)  # fmt: skip

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {sign: signal.getsignal(sign) for sign in self._SIGNALS}
        self._locale = locale.setlocale(locale.LC_ALL)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)

    def restore(self) -> str | None:
        """Put all back; if that cannot be done, why this process is no good any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for sign, handler in self._handlers.items():
            if handler is not None and signal.getsignal(sign) is not handler:
                signal.signal(sign, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._mask)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        try:
            os.chdir(self._folder)
            if locale.setlocale(locale.LC_ALL) != self._locale:
                locale.setlocale(locale.LC_ALL, self._locale)
            for number in (1, 2):
                os.fstat(number)
        except (OSError, locale.Error) as error:
            return f"its surroundings cannot be put back: {error}"
        return None


def _lost() -> NoReturn:
    end_own_descendants()
    os._exit(LOST_WIRE)


def _named_error(name: str) -> type[TidemillError]:
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, TidemillError) else StoreError


def refuse_memory_stores(app: Application) -> None:
    """A store in this process's memory is not the one its runner has: whatever were put there would go nowhere."""

    def refuse() -> NoReturn:
        raise UsageError(
            "this job runs in a process of its own, where the app's in-memory store is not the one that its worker has; "
            "use sqlite:///… or postgresql://…, or run the task without isolation='process'"
        )

    for store in app._client.stores.values():
        if isinstance(store, MemoryStore):
            vars(store)["_refuse_closed"] = refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Import the app, say so, and serve until the runner hangs up."""
    parser = argparse.ArgumentParser(prog="python -m tidemill.engine.child")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the runner")
    parser.add_argument(
        "--life", type=int, required=True, help="a pipe that is open as long as the runner lives"
    )
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    parser.add_argument("--parent", type=int, required=True, help="the runner's process id")
    parser.add_argument("--path", type=json.loads, help="where the runner finds its modules, as JSON")
    given = parser.parse_args(arguments)
    os.set_inheritable(given.life, False)
    # One of the two: the parent-death signal would end this process alone, and with it the tie of those it started.
    if not tie_group(given.life):
        die_with_parent(given.parent)
    adopt_orphans()
    faulthandler.enable()
    connection = socket.socket(fileno=given.fd)
    connection.set_inheritable(False)
    wire = Wire(connection)
    if given.path is not None:
        sys.path[:] = given.path
    try:
        app = find_app(given.app)
        refuse_memory_stores(app)
    except BaseException as error:  # noqa: BLE001  (whatever the app's modules do, the runner is told)
        trace = words.error_info(error.__cause__ or error).traceback
        wire.send({"kind": "failed", "error": words.text_of(error), "traceback": trace})
        return 1
    Child(app, wire).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
