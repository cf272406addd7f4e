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
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, cast
from uuid import UUID

from tidemill import errors
from tidemill.domain.job import Claim, Details, ErrorInfo, LogEntry, Progress, ProgressReport, job_of
from tidemill.domain.large_values import BlobReference, SpilledText, is_reference
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.outcome import Cancelled, Failed, Outcome, Succeeded
from tidemill.domain.payload import size_of
from tidemill.domain.streams import StreamEntry
from tidemill.engine import sanitize
from tidemill.engine.app_lookup import Application, find_app, user_traceback
from tidemill.engine.completion import Connections, Unwritten
from tidemill.engine.confinement.streams import standard_streams
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
from tidemill.engine.executors.child_state import ChildState
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
from tidemill.engine.frames_additions import additions_to_data
from tidemill.engine.frames_events import event_to_data
from tidemill.engine.frames_follow_ups import following_to_data
from tidemill.engine.job_ends import GroupEnds, JobEnd, ends_from_data
from tidemill.engine.lifespan import Lifetime, OwnLoopLifetime
from tidemill.engine.log_capture import begin_capture, scrub_output
from tidemill.engine.log_formats import LogOutput, add_log_arguments, write_output
from tidemill.engine.log_records import stamp_records
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.engine.suspension import LEASE_LOST
from tidemill.errors import PayloadTooLarge, StoreError, TidemillError, UsageError
from tidemill.stores.base import Store
from tidemill.stores.large_values import is_private, read_value, store_value
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import Detached
from tidemill.tasks.events import Event
from tidemill.tasks.secret_values import Remote
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

_LAST_MOMENT = 5.0  # seconds for the app's exit handlers once the runner is gone
_LONGEST_TRACE = 20_000  # characters
_LAST_FLUSH = 1.5  # seconds to send what integrations have collected; the runner kills the child after two


class _Run:
    """One run of a job: its number in this process, and whether it was asked to stop."""

    def __init__(self, order: Data) -> None:
        self.order = order
        self.number: int = order["run"]
        self.cancelled = False
        self.reason: str | None = None
        self.stopped = threading.Event()
        self._stop: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def cancel(self, reason: str | None) -> None:
        with self._lock:
            self.cancelled, self.reason = True, reason
            self.stopped.set()
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
        self.life = child.life
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

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None:
        self._say("stream", name=name, items=list(items))

    def checkpoint(self, name: str) -> str | None:
        value: str | None = self._child.ask(self._run.number, "checkpoint", name=name)
        return value

    def save_checkpoint(self, name: str, value: str) -> None:
        self._say("save_checkpoint", name=name, value=value)

    def step_records(self) -> Mapping[str, str]:
        records: dict[str, str] = self._child.ask(self._run.number, "step_records")
        return records

    def record_steps(self, records: Mapping[str, str]) -> None:
        if not self._child.ask(self._run.number, "record_steps", records=dict(records)):
            raise errors.Cancel(LEASE_LOST)

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        await asyncio.to_thread(self.record_steps, records)

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        return ends_from_data(self._child.ask(self._run.number, "job_ends", ids=[str(id) for id in ids]))

    def group_ends(self, id: UUID) -> GroupEnds:
        answer = self._child.ask(self._run.number, "group_ends", id=str(id))
        return GroupEnds(answer["is_ended"], ends_from_data(answer["members"]))

    def stop_group(self, id: UUID, reason: str) -> None:
        self._child.ask(self._run.number, "stop_group", id=str(id), reason=reason)

    def store_now(self) -> datetime:
        return datetime.fromisoformat(self._child.ask(self._run.number, "store_now"))

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        question = {
            "names": list(names),
            "record": record,
            "before": None if before is None else before.isoformat(),
        }
        answer = self._child.ask(self._run.number, "take_signal", **question)
        if answer["lost"]:
            raise errors.Cancel(LEASE_LOST)
        taken: str | None = answer["record"]
        return taken

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        instant = None if since is None else since.isoformat()
        found: str | None = self._child.ask(
            self._run.number, "find_event", name=name, match=match, since=instant
        )
        return found

    def signal_url(self, name: str, ttl: timedelta) -> str:
        # The runner signs it, because a confined child must not have the secret.
        url: str = self._child.ask(self._run.number, "signal_url", name=name, ttl=ttl.total_seconds())
        return url

    def pause(self, seconds: float) -> None:
        self._run.stopped.wait(seconds)

    async def apause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

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
        return self._child.detached or is_private(self._child.app.store)

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

    def read_results(self) -> Mapping[UUID, NodeResult]:
        return NO_RESULTS

    @property
    def flow_store(self) -> Store:
        if self.is_private:
            raise UsageError("a job in a child process cannot read its flow from a store in memory")
        return self._child.app.store

    def flush(self) -> None:
        self._child.ask(self._run.number, "flush")

    def unwritten(self) -> Unwritten:
        told: Data = self._child.ask(self._run.number, "unwritten")
        id, token, worker = self.claim.id, self.claim.token, self.claim.worker
        reports = [ProgressReport(id, token, worker, progress_from_data(data)) for data in told["progress"]]
        lines = [replace(entry_from_data(data), worker=worker) for data in told["lines"]]
        items = [StreamEntry(id, token, worker, name, n, data) for name, n, data in told["items"]]
        return Unwritten(lines, reports, items)

    def _say(self, kind: str, **fields: Any) -> None:
        self._child.say({"kind": kind, "run": self._run.number, **fields})


class _RunnerSeals:
    """Sealed values of a job in a process without keys: the runner opens those of the running job, and seals."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def seal(self, text: str, job: UUID, field: str) -> dict[str, str]:
        made: dict[str, str] = self._child.ask_now("seal", text=text, job=str(job), field=field)
        return made

    def open(self, sealed: str, job: UUID, field: str) -> str:
        text: str = self._child.ask_now("open", text=sealed, job=str(job), field=field)
        return text


class Child:
    """Serves a runner. The main thread runs jobs, so that they may use signals. Another thread receives messages."""

    def __init__(
        self,
        app: Application,
        wire: Wire,
        store_name: str | None = None,
        life: Lifetime | None = None,
        *,
        detached: bool = False,
    ) -> None:
        self.detached = detached  #: has neither a store nor keys
        if detached:
            Remote.seals = _RunnerSeals(self)
        self.app, self._wire, self.store_name = app, wire, store_name
        self.life = life or OwnLoopLifetime(app.hooks)
        self._forks = Forks.number
        self._runs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._busy: _Run | None = None
        self._asks = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Data]] = {}
        self._surroundings = ChildState()
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
            if spent is not None:
                self.app.hooks.flush()  # the runner ends this process after the message
            self._end(own, outcome, spent, following)
        self.app.hooks.flush(_LAST_FLUSH)

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

    def ask_now(self, kind: str, **fields: Any) -> Any:
        """Send a request for the running job."""
        own = self._busy
        if own is None:
            raise UsageError("a secret was used after its job had ended")
        return self.ask(own.number, kind, **fields)

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
            return ended.outcome, following_to_data(ended.then, ended.audit) | additions_to_data(
                ended.additions
            )
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

        return cast("ExecutionEnd", self.life.run(main()))

    def _left_behind(self) -> str | None:
        """Reap ended processes of the job; return why this child must be replaced if any are still alive."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return None
        living = descendants(os.getpid())
        return "it left processes behind" if not living or living - self._own_processes else None


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


def refuse_memory_stores(app: Application, *, detached: bool = False) -> None:
    """Make in-memory stores raise an error on use.

    They are not the runner's store, so jobs enqueued there would be lost.
    """

    def refuse() -> NoReturn:
        if detached:
            raise UsageError(
                "this job is kept away from the store; return what it found, or enqueue follow-up jobs with its context"
            )
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
    parser.add_argument("--fd", type=int, help="the socket to the runner")
    parser.add_argument("--life", type=int, help="a pipe that is open as long as the runner lives")
    parser.add_argument("--stdio", action="store_true", help="standard input and output lead to the runner")
    parser.add_argument("--detached", action="store_true", help="there is no store and no key")
    parser.add_argument("--memory", type=int, help="bytes of address space")
    parser.add_argument("--cpu", type=int, help="seconds of processor time")
    parser.add_argument("--sandbox", help="the rules of a sandbox, as JSON")
    parser.add_argument("--app", required=True, help="where the app is: module:attribute")
    parser.add_argument("--parent", type=int, help="the runner's process id")
    parser.add_argument("--store-name", help="the store of the runner's jobs, if the app has several")
    parser.add_argument("--path", type=json.loads, help="where the runner finds its modules, as JSON")
    add_log_arguments(parser, level=None)
    given = parser.parse_args(arguments)
    wire = _connected(given)
    adopt_orphans()
    stamp_records()
    faulthandler.enable()
    Detached.on = given.detached
    if given.path is not None:
        sys.path[:] = given.path
    try:
        app = find_app(given.app)
        refuse_memory_stores(app, detached=given.detached)
        app = app if given.store_name is None else app.at_store(given.store_name)
        life = OwnLoopLifetime(app.hooks)
        life.enter()
    except BaseException as error:  # noqa: BLE001  (the runner must be notified of any error in the app's modules)
        cause = error.__cause__ if isinstance(error, TidemillError) else error
        trace = None if cause is None else user_traceback(cause)[-_LONGEST_TRACE:]
        wire.send({"kind": "failed", "error": sanitize.text_of(error), "traceback": trace})
        return 1
    if given.log_level is not None:
        write_output(LogOutput.taken(vars(given)), capture=app.hooks.capture)
    scrub_output()
    begin_capture(app.hooks.capture)
    Child(app, wire, given.store_name, life, detached=given.detached).serve()
    life.exit()
    return 0


def _connected(given: argparse.Namespace) -> Wire:
    """Tie this process to its runner, apply its limits, and return the connection."""
    if given.stdio:
        return Wire(standard_streams())
    os.set_inheritable(given.life, False)
    # Use only one of the two: the parent-death signal would end this process alone, and its descendants would lose
    # their tie.
    if not tie_group(given.life):
        die_with_parent(given.parent)
    if given.sandbox is not None:
        from tidemill.engine.confinement import sandbox

        sandbox.enter(sandbox.Rules.read(given.sandbox), (given.fd,))
        os.close(given.life)
    elif given.memory is not None or given.cpu is not None:
        from tidemill.engine.confinement import sandbox

        sandbox.limit(given.memory, given.cpu)
    connection = socket.socket(fileno=given.fd)
    connection.set_inheritable(False)
    return Wire(connection)


if __name__ == "__main__":
    sys.exit(main())
