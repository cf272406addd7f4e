"""The app's enqueue hooks as a supervisor reaches them: in its runner processes.

A supervisor imports no user code, so it sends the jobs of a fire to a runner and writes them as the runner returns them.
The write is the same compare-and-set as without hooks. A runner that dies, hangs or answers late can therefore neither
lose nor repeat a fire. If no runner answers in time, the fire is made without the hooks.

The duties wait only briefly for an answer. A fire whose hooks take longer stays due, and the next run of the duty takes
up the answer, so that slow user code delays no other duty and costs no lease.

Each runner has a socket for this alone. A large request to a halted process may fill the socket's buffer, and must not
hold up or break the connection that carries heartbeats and cancellations.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import NewJob
from tidemill.domain.schedule_fires import FirePlan
from tidemill.engine.fire_hooks import Applied, Declares
from tidemill.engine.frames import Data, Wire
from tidemill.engine.frames_hooks import VERSION, apply_to_data, enqueued_to_data, jobs_from_data, parts_of
from tidemill.errors import PayloadTooLarge

_log = logging.getLogger("tidemill.worker")

LIMIT = 10.0
"""Seconds for a runner to answer a request. Also the time to wait for a runner if there is none."""

_AT_ONCE = 0.5  # seconds that a duty waits for answers; the lease of the duties is renewed every 2.5 s
_CRASHES = 2  # runners that may end while they apply the hooks to one fire
_FORGET = 60.0  # seconds until a request is dropped that no duty has asked about
_BACKLOG = 1_000  # messages that may wait for one runner

Key = tuple[UUID, str]


class Peer(Protocol):
    """A runner process."""

    hooks: socket.socket

    @property
    def silence(self) -> float:
        """Seconds since its last message."""


@dataclass(slots=True, eq=False)
class Request:
    """A fire whose jobs pass the hooks. The lock of ``RunnerHooks`` guards all fields."""

    plan: FirePlan
    asked_at: float
    channel: Channel | None = None
    jobs: tuple[NewJob, ...] | None = None  #: as the hooks left them
    refusal: str | None = None  #: the error of a hook
    hopeless: str | None = None  #: why it has to be made without hooks
    crashes: int = 0
    dropped: bool = False

    @property
    def open(self) -> bool:
        """Whether an answer may still arrive."""
        return self.jobs is None and self.refusal is None and self.hopeless is None

    def answer(self, answers: Sequence[Data]) -> None:
        """Read the runner's answers. They come from a process that runs user code, so they may contain anything."""
        errors = [str(data["error"]) for data in answers if "error" in data]
        if errors:
            self.refusal = errors[0]
            return
        try:
            jobs = tuple(job for data in answers for job in jobs_from_data(data))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            self.refusal = f"a hook left a job that cannot be read: {type(error).__name__}: {error}"
            return
        if [job.id for job in jobs] == [job.id for job in self.plan.jobs]:
            self.jobs = jobs
        else:
            self.refusal = "the hooks added, removed or renumbered jobs"

    def crashed(self) -> None:
        """Count a runner that ended while it applied the hooks."""
        self.crashes += 1
        if self.crashes >= _CRASHES:
            self.give_up(f"{self.crashes} runner processes ended while they applied the hooks")

    def give_up(self, why: str) -> None:
        """Have the fire made without the hooks."""
        self.hopeless = why


class Channel:
    """The connection to one runner. Its thread sends one request at a time and waits for the answer."""

    def __init__(self, peer: Peer, changed: threading.Condition, clock: Clock) -> None:
        self.peer, self.hooks, self.events = peer, False, False
        self.alive, self._closed = True, False
        self.sent_at: float | None = None  #: when the unanswered request was sent
        self._changed, self._clock = changed, clock
        self._wire = Wire(peer.hooks)
        self._queue: queue.SimpleQueue[Request | Data | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="tidemill-hooks", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        return self._queue.qsize()

    def waited(self) -> float:
        """Seconds since the unanswered request was sent; 0 if there is none."""
        return 0.0 if self.sent_at is None else self._clock.monotonic() - self.sent_at

    def put(self, item: Request | Data) -> None:
        """Queue a request, or a message without an answer."""
        self._queue.put(item)

    def close(self) -> None:
        """End the thread, even if it waits for the runner."""
        self._closed = True
        self._queue.put(None)
        self._wire.hang_up()

    def _serve(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, Request):
                    self._ask(item)
                else:
                    self._wire.send(item)
        except OSError:
            _log.debug("the connection for hooks to %s is closed", self.peer)
        finally:
            with self._changed:
                self.alive = False
                self._changed.notify_all()

    def _ask(self, request: Request) -> None:
        """Send the parts of a request one by one. The time limit applies to each of them."""
        answers: list[Data] = []
        for jobs in parts_of(request.plan.jobs):
            with self._changed:
                if request.dropped or self._closed:
                    return
                self.sent_at = self._clock.monotonic()
            try:
                # A runner that is gone already has not begun with the hooks: this is no crash of the request.
                self._wire.send(apply_to_data(jobs))
            except PayloadTooLarge as error:
                self._settle(partial(request.give_up, str(error)))
                return
            answers.append(self._answer(request))
        self._settle(partial(request.answer, answers))

    def _answer(self, request: Request) -> Data:
        try:
            data = self._wire.receive()
        except OSError:
            data = None
        if data is None:
            self._settle(request.crashed)
            raise ConnectionError("the runner has closed the connection")
        self._settle()
        return data

    def _settle(self, act: Callable[[], None] = lambda: None) -> None:
        with self._changed:
            self.sent_at = None
            act()
            self._changed.notify_all()


class RunnerHooks:
    """Applies the hooks of an app in its runners. The supervisor's loop adds and removes runners; duties ask."""

    def __init__(self, clock: Clock, *, limit: float = LIMIT) -> None:
        self._clock, self._limit = clock, limit
        self._changed = threading.Condition()
        self._channels: dict[Peer, Channel] = {}
        self._requests: dict[Key, Request] = {}
        self._hooks = self._events = False  # as the newest runner reported them
        self._absent_since: float | None = None
        self._closing = False
        self.skipped = 0  #: fires that were made without the hooks

    # The supervisor's loop -------------------------------------------------------------------------------------------

    def offered(self, peer: Peer, offer: object) -> None:
        """Record what a runner has for fires. An app without hooks and subscribers gets no connection."""
        known = offer if isinstance(offer, Mapping) and offer.get("version") == VERSION else {}
        hooks, events = bool(known.get("hooks")), bool(known.get("events"))
        with self._changed:
            self._hooks, self._events = hooks, events
            channel = self._channels.get(peer)
            if channel is None and (hooks or events):
                channel = self._channels[peer] = Channel(peer, self._changed, self._clock)
            if channel is not None:
                channel.hooks, channel.events = hooks, events
                self._absent_since = None
            self._changed.notify_all()

    def gone(self, peer: Peer) -> None:
        """Remove a runner that has ended."""
        with self._changed:
            channel = self._channels.pop(peer, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Wait for no more runners. A fire without a runner then stays due, for another worker or the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    # The duties ------------------------------------------------------------------------------------------------------

    def apply(self, plans: Sequence[FirePlan], declares: Declares) -> Applied:
        """Pass the jobs of these plans through the hooks in a runner."""
        if not self._hooks:
            return Applied(plans)
        with self._changed:
            requests = {
                _key(plan): self._request(plan)
                for plan in plans
                if plan.jobs and declares(plan.schedule.task)
            }
            self._wait(requests)
            self._forget()
            return self._collect(plans, requests)

    def publish(self, jobs: Sequence[NewJob], now: datetime) -> None:
        """Have a runner publish events for jobs that were just written."""
        if not self._events or not jobs:
            return
        with self._changed:
            channel = self._best([one for one in self._living() if one.events and one.backlog < _BACKLOG])
            if channel is None:
                _log.warning(
                    "%d job.enqueued events of fires are not published: no runner answers", len(jobs)
                )
                return
            for message in enqueued_to_data(jobs, now):
                channel.put(message)

    def _request(self, plan: FirePlan) -> Request:
        """The request for this plan: an earlier one, unless the schedule was changed or advanced since."""
        key, now = _key(plan), self._clock.monotonic()
        request = self._requests.get(key)
        if request is None or request.plan.advance[:3] != plan.advance[:3]:
            self._drop(key)
            request = self._requests[key] = Request(plan, now)
        request.asked_at = now
        return request

    def _wait(self, requests: Mapping[Key, Request]) -> None:
        """Wait briefly for requests that are sent now. Earlier ones had their time."""
        until = self._clock.monotonic() + _AT_ONCE
        fresh = [request for request in requests.values() if request.channel is None]
        while True:
            for request in requests.values():
                self._assign(request)
            left = until - self._clock.monotonic()
            if left <= 0 or self._closing or not any(self._may_settle(request) for request in fresh):
                return
            self._changed.wait(left)

    def _assign(self, request: Request) -> None:
        """Send a request to a runner, unless one has it."""
        channel = request.channel
        if not request.open or (channel is not None and channel.alive):
            return
        living = [one for one in self._living() if one.hooks]
        request.channel = self._best([one for one in living if one.waited() < self._limit])
        if request.channel is not None:
            request.channel.put(request)
        if living:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = self._clock.monotonic()

    def _may_settle(self, request: Request) -> bool:
        return request.open and self._reason(request) is None

    def _reason(self, request: Request) -> str | None:
        """Why a fire has to be made without the hooks; None if an answer may still arrive."""
        if not request.open:
            return request.hopeless
        channel = request.channel
        if channel is not None and channel.alive:
            late = channel.waited() >= self._limit
            return f"{channel.peer} has not answered for {self._limit:g} s" if late else None
        if any(one.hooks for one in self._living()):
            return f"no runner process has answered for {self._limit:g} s"
        absent = (
            self._absent_since is not None and self._clock.monotonic() - self._absent_since >= self._limit
        )
        if not absent or self._closing:
            return None
        return f"no runner process has been available for {self._limit:g} s"

    def _collect(self, plans: Sequence[FirePlan], requests: Mapping[Key, Request]) -> Applied:
        applied: list[FirePlan] = []
        refused: list[tuple[FirePlan, str]] = []
        unanswered: set[UUID] = set()
        skipped: Counter[str] = Counter()
        for plan in plans:
            request = requests.get(_key(plan))
            if request is None:
                applied.append(plan)
            elif request.jobs is not None:
                # The request's own plan: this one has other job ids.
                applied.append(request.plan._replace(jobs=request.jobs))
            elif request.refusal is not None:
                refused.append((request.plan, request.refusal))
            elif (why := self._reason(request)) is not None:
                applied.append(plan)
                skipped[why] += len(plan.jobs)
            else:
                unanswered.add(plan.schedule.id)
                continue
            self._drop(_key(plan))
        for why, count in skipped.items():
            self.skipped += count
            _log.warning("%d fire(s) made without the app's enqueue hooks: %s", count, why)
        return Applied(applied, refused, frozenset(unanswered))

    def _forget(self) -> None:
        """Drop requests whose schedules are no longer due here."""
        now = self._clock.monotonic()
        for key, request in list(self._requests.items()):
            if now - request.asked_at > _FORGET:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        """End a request. A runner that has not begun with it does not begin."""
        request = self._requests.pop(key, None)
        if request is not None:
            request.dropped = True

    def _living(self) -> list[Channel]:
        return [channel for channel in self._channels.values() if channel.alive]

    def _best(self, channels: Sequence[Channel]) -> Channel | None:
        """The runner that most likely answers soon: one without a late request, that reported last."""
        return min(channels, key=lambda one: (one.waited() > _AT_ONCE, one.peer.silence), default=None)


def _key(plan: FirePlan) -> Key:
    """A schedule in one place."""
    return plan.schedule.id, plan.fires[0].scope_key if plan.fires else ""
