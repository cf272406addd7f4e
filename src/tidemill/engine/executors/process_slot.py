"""One slot of the process executor: a thread, its child process and its job.

The executor's lock guards all state that other threads use. Only the slot's own thread communicates with the child, so
no other thread waits for a child that does not respond.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, Details, NewJob
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    ReviewRequested,
    Succeeded,
    TimedOut,
)
from tidemill.engine import sanitize
from tidemill.engine.confinement.launch import is_detached
from tidemill.engine.confinement.requests import check_event, check_following, keyed
from tidemill.engine.context import Outlet, StartRefused
from tidemill.engine.executors.child_process import ChildProcess
from tidemill.engine.frames import (
    Data,
    claim_to_data,
    details_to_data,
    entry_from_data,
    entry_to_data,
    outcome_from_data,
    progress_from_data,
    progress_to_data,
)
from tidemill.engine.frames_additions import additions_from_data
from tidemill.engine.frames_events import event_from_data
from tidemill.engine.frames_follow_ups import following_from_data
from tidemill.engine.job_ends import ends_to_data
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.engine.runner.large_values import portable, stored_here
from tidemill.errors import BadSettings, Cancel, PayloadTooLarge, TidemillError
from tidemill.tasks.ambient import Audited
from tidemill.tasks.confinement import Confinement, Container, Process, Sandbox

if TYPE_CHECKING:
    from tidemill.engine.executors.processes import ProcessExecutor

_log = logging.getLogger("tidemill.engine")

_NEVER = float("inf")
_LINGER = 5.0  # seconds that the child of a spare slot is kept for the next job
_IDLE = 3600.0  # seconds between two checks of a spare slot that nothing wakes

_ASKED = frozenset(
    {
        "checkpoint",
        "flush",
        "unwritten",
        "renew_start",
        "step_records",
        "record_steps",
        "store_now",
        "take_signal",
        "find_event",
        "signal_url",
        "job_ends",
        "group_ends",
        "stop_group",
    }
)
"""Messages that a child waits for an answer to."""

Following = tuple[tuple[NewJob, ...], tuple[Audited, ...], Additions | None]


@dataclass(slots=True, eq=False)
class ChildJob:
    """A job for a child. At ``due_at`` it is killed, with the outcome ``verdict_then``."""

    claim: Claim
    details: Details
    outlet: Outlet
    timeout: timedelta | None
    on_end: Callable[[ExecutionEnd], None]
    begin: Callable[[], bool]
    confinement: Confinement | None = None  #: the rights of its child
    number: int = 0  #: number of the run in its child
    began: float | None = None
    cancel_reason: str | None = None
    cancel_sent: bool = False
    due_at: float = _NEVER
    verdict_then: Outcome | None = None
    verdict: Outcome | None = None  #: outcome of a job that is being killed

    def expire(self, at: float, verdict: Outcome) -> None:
        """Kill the job at this time, unless it is to be killed earlier."""
        if at < self.due_at:
            self.due_at, self.verdict_then = at, verdict

    def __str__(self) -> str:
        return f"task {self.claim.task} (job {self.claim.id})"


class ProcessSlot:
    """Place for one job at a time."""

    def __init__(self, lane: ProcessExecutor, number: int, *, spare: bool = False) -> None:
        self._lane = lane
        self.spare = spare  #: has a child only while there is a job for it
        self.order: ChildJob | None = None
        self.confinement: Confinement | None = None  #: of the last job, for which a child is kept ready
        self.wanted = False  #: set at the first use; from then on a child is kept ready
        self._child: ChildProcess | None = None
        self._start_by = _NEVER
        self._runs = itertools.count(1)
        self._wakened = self._wake = -1
        self._thread = threading.Thread(target=self._live, name=f"tidemill-child-{number}", daemon=True)

    # Called by other threads with the executor's lock held ------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether its child has imported the app."""
        return self._child is not None and self._child.ready

    @property
    def due_at(self) -> float:
        """When the keeper thread has to kill the child of this slot."""
        order = self.order
        if order is not None and order.verdict is None:
            return min(order.due_at, self._start_by)
        return self._start_by

    def need(self) -> None:
        """Keep a child ready from now on, and wake the thread."""
        self.wanted = True
        if self._thread.ident is None:
            self._wakened, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Wake the thread, so that it checks for work."""
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):  # the pipe is full, so a wake-up is already pending
                os.write(self._wake, b"!")

    def condemn(self, verdict: Outcome) -> ChildProcess | None:
        """End the job with this outcome. Returns the child to kill for that, if the job has started."""
        order = self.order
        if order is None or order.verdict is not None:
            return None
        order.verdict = verdict
        self.wake()
        return self._child if order.began is not None else None

    def condemn_overdue(self) -> ChildProcess | None:
        """Handle a deadline that has passed. Returns the child to kill, if any."""
        order, child = self.order, self._child
        if child is not None and not child.ready and self._start_by <= self._lane.clock.monotonic():
            self._start_by = _NEVER
            child.doom = f"the app was not imported within {self._lane.start_limit:g} seconds"
            return child
        if order is None or order.verdict_then is None:
            return None
        return self.condemn(order.verdict_then)

    def join(self) -> None:
        """Wait for the thread to end. Call it without the lock."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # Lifecycle --------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while self._goes_on():
                if self._child is None:
                    self._start()
                else:
                    self._attend(self._child)
        finally:
            child = self._child
            if child is not None:
                child.dismiss()
            with self._lane.changed:
                self._child = None
                wakened, wake, self._wake = self._wakened, self._wake, -1
            os.close(wakened)
            os.close(wake)

    def _goes_on(self) -> bool:
        """Finish jobs that need no child. Returns False once the slot is to end."""
        with self._lane.changed:
            order, closing = self.order, self._lane.closing
        if order is None:
            return not closing
        if order.began is None:
            if order.verdict is not None:
                self._finish(order, order.verdict)
            elif order.cancel_reason is not None:
                self._finish(order, Cancelled(order.cancel_reason))
            elif closing:
                self._finish(order, Released("the worker stopped before it began"))
        return True

    def _start(self) -> None:
        """Start a new child, unless none is needed or the executor pauses after failures."""
        lane = self._lane
        if self.spare and self.order is None:
            self._sleep(_IDLE)
            return
        rest = lane.resting()
        if rest > 0:
            self._sleep(rest)
            return
        try:
            with lane.changed:
                confinement = self.confinement if self.order is None else self.order.confinement
                self.confinement = confinement
            child = ChildProcess(lane.app_path, lane.store_name, confinement)
        except (OSError, BadSettings) as error:
            self._start_failed(f"it cannot be started: {error}")
            return
        with lane.changed:
            self._child = child
            self._start_by = lane.clock.monotonic() + lane.start_limit
            lane.expect(self._start_by)

    def _sleep(self, seconds: float) -> None:
        waiting = select.poll()
        waiting.register(self._wakened, select.POLLIN)
        if waiting.poll(seconds * 1000):
            os.read(self._wakened, 4096)

    def _attend(self, child: ChildProcess) -> None:
        """Send the child what is pending for it, and wait for the next event."""
        try:
            if self._is_wrong(child):
                self._dismiss(child)
                return
            self._give(child)
            lingers = self.spare and self.order is None
            spoke, ended, woken = child.wait_with(self._wakened, _LINGER if lingers else None)
            if lingers and not (spoke or ended or woken):
                self._dismiss(child)
            if woken:
                os.read(self._wakened, 4096)
            if spoke:
                self._hear(child, child.wire.receive())
            elif ended:
                self._lost(child)
        except Exception as error:  # noqa: BLE001  (whatever a child does, its slot must survive)
            if not isinstance(error, OSError):
                _log.exception("unexpected error in the child process protocol; replacing the child")
            self._lost(child, error)

    def _is_wrong(self, child: ChildProcess) -> bool:
        """Whether the next job needs a child with other limits."""
        order = self.order
        return order is not None and order.began is None and order.confinement != child.confinement

    def _give(self, child: ChildProcess) -> None:
        order = self.order
        if order is None or not child.ready:
            return
        if order.began is None:
            self._begin(child, order)
        elif order.cancel_reason is not None and not order.cancel_sent:
            order.cancel_sent = True
            child.wire.send({"kind": "cancel", "run": order.number, "reason": order.cancel_reason})

    def _begin(self, child: ChildProcess, order: ChildJob) -> None:
        lane = self._lane
        if not order.begin():
            self._finish(order, Released("the worker no longer owns it"))
            return
        order.number = next(self._runs)
        message = {
            "kind": "run",
            "run": order.number,
            "claim": claim_to_data(
                portable(order.claim, order.outlet, detached=is_detached(child.confinement))
            ),
            "details": details_to_data(order.details),
            "start_by": order.outlet.start_by,
        }
        with lane.changed:
            if order.verdict is not None:
                return  # it was killed before it started
            order.began = lane.clock.monotonic()
            if order.timeout is not None:
                order.expire(order.began + order.timeout.total_seconds(), TimedOut(order.timeout))
            lane.expect(order.due_at)
        try:
            child.wire.send(message)
        except PayloadTooLarge as error:
            self._finish(order, Failed(sanitize.error_info(error), permanent=True))
        except OSError:  # the child is dead: the job never started, and the next child gets it
            with lane.changed:
                order.began = None
                if isinstance(order.verdict_then, TimedOut):
                    order.due_at, order.verdict_then = _NEVER, None
            raise
        child.jobs += 1

    # Messages from the child ------------------------------------------------------------------------------------------

    def _hear(self, child: ChildProcess, message: Data | None) -> None:
        if message is None:
            child.last_moment()
            self._lost(child)
            return
        order = self.order
        try:
            match message["kind"]:
                case "ready":
                    self._ready(child)
                case "failed":
                    child.doom = str(message["error"])
                    self._start_failed(child.doom, message["traceback"], child)
                case kind if order is not None and message["run"] == order.number:
                    self._heard(child, order, kind, message)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # User code can write to that socket, too.
            raise ConnectionError(f"it sent an invalid message: {type(error).__name__}: {error}") from error

    def _heard(self, child: ChildProcess, order: ChildJob, kind: str, message: Data) -> None:
        match kind:
            case "report":
                self._pass_on(order.outlet.report, progress_from_data(message["progress"]))
            case "log":
                entry = entry_from_data(message["entry"])
                claim = order.claim
                fenced = replace(entry, job_id=claim.id, number=claim.token, worker=claim.worker)
                self._pass_on(order.outlet.log, fenced)
            case "stream":
                items = [(int(n), str(data)) for n, data in message["items"]]
                self._pass_on(order.outlet.write_stream, str(message["name"]), items)
            case "save_checkpoint":
                self._pass_on(order.outlet.save_checkpoint, message["name"], message["value"])
            case "event":
                event = event_from_data(message["event"])
                if is_detached(order.confinement):
                    check_event(order.claim, event)
                self._pass_on(self._lane.publish, event)
            case "completing":
                order.outlet.completing()
            case "seal" | "open":
                self._answer(child, order, message)
            case kind if kind in _ASKED:
                self._answer(child, order, message)
            case "ended":
                jobs, audit = following_from_data(message)
                additions = additions_from_data(message)
                if is_detached(order.confinement):
                    audit = check_following(order.claim, jobs, audit, additions)
                following = (jobs, audit, additions)
                self._ended(child, order, outcome_from_data(message["outcome"]), message["spent"], following)

    def _pass_on(self, say: Callable[..., object], *sanitize: object) -> None:
        try:
            say(*sanitize)
        except Exception:  # noqa: BLE001  (a failing outlet loses the output, but must not affect the job)
            _log.exception("cannot forward the output of a job")

    def _answer(self, child: ChildProcess, order: ChildJob, message: Data) -> None:
        answer: Data = {"kind": "answer", "ask": message["ask"]}
        try:
            if message["kind"] in ("seal", "open"):
                answer["value"] = keyed(order.claim, order.details.definition_id, message)
            else:
                answer["value"] = _answer_to(order.outlet, message)
            child.wire.send(answer)
        except TidemillError as error:
            child.wire.send({**answer, "value": None, "error": type(error).__name__, "message": str(error)})

    def _ready(self, child: ChildProcess) -> None:
        with self._lane.changed:
            child.ready = True
            self._start_by = _NEVER
        self._lane.started()

    def _ended(
        self, child: ChildProcess, order: ChildJob, outcome: Outcome, spent: str | None, following: Following
    ) -> None:
        if isinstance(order.verdict, TimedOut):
            outcome = order.verdict
        if isinstance(outcome, Cancelled) and outcome.reason is None:
            outcome = Cancelled(order.cancel_reason)
        if spent is not None or order.verdict is not None:
            if spent is not None:
                _log.warning("the child process of %s is replaced: %s", order, spent)
            self._bury(child)  # before reporting the end, so that nothing of the job is still running by then
        self._finish(order, outcome, following)
        # A job could have prepared its process to read the arguments of the next one.
        once = isinstance(child.confinement, Sandbox | Container) or _has_budget(child.confinement)
        if self._child is child and (once or child.jobs >= self._lane.max_jobs):
            self._dismiss(child)

    # Job ends ---------------------------------------------------------------------------------------------------------

    def _finish(self, order: ChildJob, outcome: Outcome, following: Following = ((), (), None)) -> None:
        now = self._lane.clock.monotonic()
        with self._lane.changed:
            self.order = None
        ended = ended_as(outcome, order.began if order.began is not None else now, now, following)
        try:
            if ended.result is not None and (order.outlet.is_private or is_detached(order.confinement)):
                ended = stored_here(ended, order.outlet)
            order.on_end(ended)
        except Exception:  # noqa: BLE001  (the slot has other jobs to run)
            _log.exception("cannot report the result of %s", order)

    def _dismiss(self, child: ChildProcess) -> None:
        with self._lane.changed:
            self._child = None
        child.dismiss()

    def _bury(self, child: ChildProcess) -> str:
        with self._lane.changed:
            self._child, self._start_by = None, _NEVER
        return child.reap()

    def _lost(self, child: ChildProcess, error: Exception | None = None) -> None:
        """Handle a child that has died, or kill one that no longer responds."""
        how = self._bury(child)
        order = self.order
        who, told = f"child process {child.pid}", "" if error is None else f": {error}"
        if not child.ready:
            self._start_failed(child.doom or f"{who} {how} before it was ready")
        elif order is None or order.began is None:
            _log.warning("%s %s while it had nothing to do", who, how)
            if not child.jobs:
                self._lane.failed(f"{who} {how} before it had anything to do")
        else:
            self._finish(order, order.verdict or Crashed(f"{who} {how} while running {order}{told}"))

    def _start_failed(self, why: str, trace: str | None = None, child: ChildProcess | None = None) -> None:
        if child is not None:
            self._bury(child)
        self._lane.failed(why, trace)
        order = self.order
        if order is not None:
            self._finish(order, order.verdict or Released(f"no child process could be started: {why}"))


def _has_budget(confinement: Confinement | None) -> bool:
    """Whether the limits of a child process are those of one job."""
    return isinstance(confinement, Process) and (confinement.cpu is not None or confinement.own_folder)


def _answer_to(outlet: Outlet, message: Data) -> object:
    match message["kind"]:
        case "checkpoint":
            return outlet.checkpoint(message["name"])
        case "renew_start":
            return _renewed(outlet)
        case "step_records":
            return dict(outlet.step_records())
        case "record_steps":
            return _recorded(outlet, message["records"])
        case "store_now":
            return outlet.store_now().isoformat()
        case "job_ends":
            return ends_to_data(outlet.job_ends([UUID(id) for id in message["ids"]]))
        case "group_ends":
            ends = outlet.group_ends(UUID(message["id"]))
            return {"is_ended": ends.is_ended, "members": ends_to_data(ends.members)}
        case "stop_group":
            outlet.stop_group(UUID(message["id"]), str(message["reason"]))
            return None
        case "take_signal" | "find_event" | "signal_url":
            return _of_messages(outlet, message)
        case "flush":
            outlet.flush()
            return None
        case _:
            unwritten = outlet.unwritten()
            return {
                "lines": [entry_to_data(entry) for entry in unwritten.lines],
                "progress": [progress_to_data(report.progress) for report in unwritten.reports],
                "items": [[entry.name, entry.n, entry.data] for entry in unwritten.items],
            }


def _of_messages(outlet: Outlet, message: Data) -> object:
    match message["kind"]:
        case "take_signal":
            return _taken(outlet, message)
        case "find_event":
            return outlet.find_event(message["name"], message["match"], _instant(message["since"]))
        case _:
            return outlet.signal_url(str(message["name"]), timedelta(seconds=float(message["ttl"])))


def _recorded(outlet: Outlet, records: Data) -> bool:
    """Write records of steps; return whether this worker still holds the job."""
    try:
        outlet.record_steps({str(name): str(value) for name, value in records.items()})
    except Cancel:
        return False
    return True


def _taken(outlet: Outlet, message: Data) -> Data:
    try:
        record = outlet.take_signal(message["names"], message["record"], _instant(message["before"]))
    except Cancel:
        return {"lost": True, "record": None}
    return {"lost": False, "record": record}


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _renewed(outlet: Outlet) -> Data:
    try:
        outlet.renew_start()
    except StartRefused as refused:
        return {"refused": refused.reason, "start_by": None}
    return {"refused": None, "start_by": outlet.start_by}


def ended_as(
    outcome: Outcome, began: float, ended: float, following: Following = ((), (), None)
) -> ExecutionEnd:
    """Build an ``ExecutionEnd`` from an outcome that another process reported, with readings of this process's clock."""
    result: str | None = None
    if isinstance(outcome, Succeeded):
        result = outcome.result
    elif isinstance(outcome, ReviewRequested):
        result = outcome.output
    error = outcome.error if isinstance(outcome, Failed) else None
    return ExecutionEnd(outcome, result, error, began, ended, None, *following)
