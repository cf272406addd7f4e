"""One slot of the process lane: a thread, its child, and the job they have in hand.

All that others may look at or change is guarded by the lane's one lock; only the slot's own thread speaks with the child,
so nobody else ever waits for one that does not listen.
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
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.domain.job import Claim, Details
from tidemill.domain.outcome import Cancelled, Crashed, Failed, Outcome, Released, Review, Succeeded, TimedOut
from tidemill.engine import words
from tidemill.engine.context import Outlet
from tidemill.engine.execute import Ended
from tidemill.engine.frames import (
    Data,
    claim_to_data,
    details_to_data,
    entry_from_data,
    outcome_from_data,
    progress_from_data,
)
from tidemill.engine.offspring import Offspring
from tidemill.errors import PayloadTooLarge, TidemillError

if TYPE_CHECKING:
    from tidemill.engine.isolated import ProcessLane

_log = logging.getLogger("tidemill.engine")

_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Order:
    """A job for a child. ``due_at`` and ``verdict_then`` say when it is killed and what that is called."""

    claim: Claim
    details: Details
    outlet: Outlet
    timeout: timedelta | None
    on_end: Callable[[Ended], None]
    begin: Callable[[], bool]
    number: int = 0  #: of the run, in its child
    began: float | None = None
    cancel_reason: str | None = None
    cancel_sent: bool = False
    due_at: float = _NEVER
    verdict_then: Outcome | None = None
    verdict: Outcome | None = None  #: it is being killed, and this is why

    def expire(self, at: float, verdict: Outcome) -> None:
        """Have it killed then, unless it is to be killed earlier."""
        if at < self.due_at:
            self.due_at, self.verdict_then = at, verdict

    def __str__(self) -> str:
        return f"task {self.claim.task} (job {self.claim.id})"


class Slot:
    """A place for one job at a time."""

    def __init__(self, lane: ProcessLane, number: int) -> None:
        self._lane = lane
        self.order: Order | None = None
        self.wanted = False  #: somebody needed it once; from then on a child is kept ready
        self._child: Offspring | None = None
        self._start_by = _NEVER
        self._runs = itertools.count(1)
        self._wakened = self._wake = -1
        self._thread = threading.Thread(target=self._live, name=f"tidemill-child-{number}", daemon=True)

    # For others; the lane's lock is held -------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether its child waits for a job or has one."""
        return self._child is not None and self._child.ready

    @property
    def due_at(self) -> float:
        """When the keeper has to kill something here."""
        order = self.order
        if order is not None and order.verdict is None:
            return min(order.due_at, self._start_by)
        return self._start_by

    def need(self) -> None:
        """Have a child, and look at what there is to do."""
        self.wanted = True
        if self._thread.ident is None:
            self._wakened, self._wake = os.pipe()
            os.set_blocking(self._wake, False)
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Have its thread look again."""
        if self._wake >= 0:
            with contextlib.suppress(BlockingIOError):  # it has been woken often enough
                os.write(self._wake, b"!")

    def condemn(self, verdict: Outcome) -> Offspring | None:
        """The job shall end so; the child that has to be killed for it, if it has begun."""
        order = self.order
        if order is None or order.verdict is not None:
            return None
        order.verdict = verdict
        self.wake()
        return self._child if order.began is not None else None

    def condemn_overdue(self) -> Offspring | None:
        """What is due here is done: who has to be killed for it."""
        order, child = self.order, self._child
        if child is not None and not child.ready and self._start_by <= self._lane.clock.monotonic():
            self._start_by = _NEVER
            child.doom = f"the app was not imported within {self._lane.start_limit:g} seconds"
            return child
        if order is None or order.verdict_then is None:
            return None
        return self.condemn(order.verdict_then)

    def join(self) -> None:
        """Wait for its thread to end; the lock is not held."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # The life of a slot ------------------------------------------------------------------------------------------------

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
        """Do what can be done without the child; False at the end."""
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
        """A new child, now or after a rest."""
        lane = self._lane
        rest = lane.resting()
        if rest > 0:
            self._sleep(rest)
            return
        try:
            child = Offspring(lane.app_path)
        except OSError as error:
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

    def _attend(self, child: Offspring) -> None:
        """Give the child what is there for it, and wait for the next event."""
        try:
            self._give(child)
            spoke, ended, woken = child.wait_with(self._wakened, None)
            if woken:
                os.read(self._wakened, 4096)
            if spoke:
                self._hear(child, child.wire.receive())
            elif ended:
                self._lost(child)
        except Exception as error:  # noqa: BLE001  (whatever a child does, its slot lives on)
            if not isinstance(error, OSError):
                _log.exception("a child process confused its runner and is replaced")
            self._lost(child, error)

    def _give(self, child: Offspring) -> None:
        order = self.order
        if order is None or not child.ready:
            return
        if order.began is None:
            self._begin(child, order)
        elif order.cancel_reason is not None and not order.cancel_sent:
            order.cancel_sent = True
            child.wire.send({"kind": "cancel", "run": order.number, "reason": order.cancel_reason})

    def _begin(self, child: Offspring, order: Order) -> None:
        lane = self._lane
        if not order.begin():
            self._finish(order, Released("it is not ours any more"))
            return
        order.number = next(self._runs)
        message = {
            "kind": "run",
            "run": order.number,
            "claim": claim_to_data(order.claim),
            "details": details_to_data(order.details),
        }
        with lane.changed:
            if order.verdict is not None:
                return  # it is over before it began
            order.began = lane.clock.monotonic()
            if order.timeout is not None:
                order.expire(order.began + order.timeout.total_seconds(), TimedOut(order.timeout))
            lane.expect(order.due_at)
        try:
            child.wire.send(message)
        except PayloadTooLarge as error:
            self._finish(order, Failed(words.error_info(error), permanent=True))
        except OSError:  # the child is dead: this job was never begun, and the next child gets it
            with lane.changed:
                order.began = None
                if isinstance(order.verdict_then, TimedOut):
                    order.due_at, order.verdict_then = _NEVER, None
            raise
        child.jobs += 1

    # What a child says -------------------------------------------------------------------------------------------------

    def _hear(self, child: Offspring, message: Data | None) -> None:
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
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:  # user code can write to that socket, too
            raise ConnectionError(f"it sent what is no message: {type(error).__name__}: {error}") from error

    def _heard(self, child: Offspring, order: Order, kind: str, message: Data) -> None:
        match kind:
            case "report":
                self._pass_on(order.outlet.report, progress_from_data(message["progress"]))
            case "log":
                entry = entry_from_data(message["entry"])
                claim = order.claim
                self._pass_on(order.outlet.log, replace(entry, job_id=claim.id, number=claim.token))
            case "save_checkpoint":
                self._pass_on(order.outlet.save_checkpoint, message["name"], message["value"])
            case "checkpoint":
                self._answer(child, order, message)
            case "ended":
                self._ended(child, order, outcome_from_data(message["outcome"]), message["spent"])

    def _pass_on(self, say: Callable[..., None], *words: object) -> None:
        try:
            say(*words)
        except Exception:  # noqa: BLE001  (what an outlet cannot take is lost; the job goes on)
            _log.exception("a job's words could not be passed on")

    def _answer(self, child: Offspring, order: Order, message: Data) -> None:
        answer: Data = {"kind": "answer", "ask": message["ask"]}
        try:
            answer["value"] = order.outlet.checkpoint(message["name"])
            child.wire.send(answer)
        except TidemillError as error:
            child.wire.send({**answer, "value": None, "error": type(error).__name__, "message": str(error)})

    def _ready(self, child: Offspring) -> None:
        with self._lane.changed:
            child.ready = True
            self._start_by = _NEVER
        self._lane.started()

    def _ended(self, child: Offspring, order: Order, outcome: Outcome, spent: str | None) -> None:
        if isinstance(order.verdict, TimedOut):
            outcome = order.verdict
        if isinstance(outcome, Cancelled) and outcome.reason is None:
            outcome = Cancelled(order.cancel_reason)
        if spent is not None or order.verdict is not None:
            if spent is not None:
                _log.warning("the child process of %s is replaced: %s", order, spent)
            self._bury(child)  # before the end is told: then nothing of the job lives any more
        self._finish(order, outcome)
        if self._child is child and child.jobs >= self._lane.max_jobs:
            with self._lane.changed:
                self._child = None
            child.dismiss()

    # Ends --------------------------------------------------------------------------------------------------------------

    def _finish(self, order: Order, outcome: Outcome) -> None:
        now = self._lane.clock.monotonic()
        with self._lane.changed:
            self.order = None
        ended = ended_as(outcome, order.began if order.began is not None else now, now)
        try:
            order.on_end(ended)
        except Exception:  # noqa: BLE001  (the slot has other jobs to serve)
            _log.exception("the end of %s could not be told", order)

    def _bury(self, child: Offspring) -> str:
        with self._lane.changed:
            self._child, self._start_by = None, _NEVER
        return child.reap()

    def _lost(self, child: Offspring, error: Exception | None = None) -> None:
        """The child is dead, or does not speak any more and is killed."""
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

    def _start_failed(self, why: str, trace: str | None = None, child: Offspring | None = None) -> None:
        if child is not None:
            self._bury(child)
        self._lane.failed(why, trace)
        order = self.order
        if order is not None:
            self._finish(order, order.verdict or Released(f"no child process could be started: {why}"))


def ended_as(outcome: Outcome, began: float, ended: float) -> Ended:
    """An end that was told from elsewhere, with readings of this process's own clock."""
    result: str | None = None
    if isinstance(outcome, Succeeded):
        result = outcome.result
    elif isinstance(outcome, Review):
        result = outcome.output
    return Ended(outcome, result, outcome.error if isinstance(outcome, Failed) else None, began, ended)
