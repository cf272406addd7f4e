"""The store of a hand: a hub performs its verbs.

It answers the part of the store contract that a runner and the handlers of jobs need. A call without an answer raises
``StoreUnavailable``, as that of any store whose answer is lost: the worker then writes again and reads back what it holds.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.domain.access import read_secret, secret_hash
from tidemill.domain.calls import new_job_topics
from tidemill.domain.hand_ids import DICE_BYTES, hand_id
from tidemill.domain.job import Claim, Enqueued, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import Rules
from tidemill.errors import BadSettings, StoreBusy, StoreUnavailable, UsageError
from tidemill.stores.base import Listener, StepResult, Store
from tidemill.stores.hub.codec import encode
from tidemill.stores.hub.protocol import (
    ASK,
    VERBS,
    HubBusy,
    HubRefusal,
    codec_of,
    read_answer,
    read_notice,
    request_bytes,
)
from tidemill.stores.limits import Redated
from tidemill.stores.settings import RuntimeState
from tidemill.stores.subscription_cache import SubscriptionCache
from tidemill.stores.wire.base import HubWire

ANY_LANE = Lane("", "", 0)
"""Stands in a request for the lanes that the hub chooses."""

TIMEOUT = 10.0
"""Seconds for an answer. A request that no hub takes expires on the wire after this time."""

_BUSY_TRIES = 5
_LONGEST_BUSY = 1.0  # seconds between two tries while the hub is busy


class HubStore(SubscriptionCache):
    """The store of the workers of one process that reach the database through hubs."""

    blob_url: str | None = None
    cooperative = False

    def __init__(
        self,
        wire: HubWire,
        key: str,
        *,
        queues: tuple[str, ...] | None = None,
        timeout: float = TIMEOUT,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        parts = read_secret(key)
        if parts is None:
            raise BadSettings(
                "the key is not valid; create one with: tidemill keys create NAME --role admin --grant jobs.work",
                setting="key",
            )
        self.url = wire.url
        self._wire, self._key, self._queues = wire, key, queues
        self._hash = secret_hash(parts.secret)
        self._timeout, self._rest = timeout, rest
        self._listeners: list[_HandListener] = []
        self._lock = threading.Lock()
        self._closed = False

    def new_worker_id(self) -> UUID:
        """An id for a worker of this process, which only the owner of the key can create."""
        return hand_id(self._hash, time.time_ns() // 1_000_000, os.urandom(DICE_BYTES))

    # Requests ------------------------------------------------------------------------------------------------------------

    def _send(self, verb: str, args: dict[str, Any]) -> Any:
        """The data of the hub's answer."""
        if self._closed:
            raise StoreUnavailable("the connection to the hub was closed")
        data = request_bytes(self._key, verb, args)
        for _ in range(_BUSY_TRIES):
            try:
                return read_answer(self._wire.request(data, self._timeout))
            except HubBusy as busy:
                self._rest(min(busy.seconds, _LONGEST_BUSY))
        raise StoreBusy("the hubs are busy; nothing was done, try again")

    def _call(self, verb: str, args: dict[str, Any]) -> Any:
        try:
            return self._send(verb, args)
        except HubRefusal as refusal:
            raise StoreUnavailable(f"the hub refused {verb}: {refusal}") from None

    def _ask(self, verb: str, *args: Any, **options: Any) -> Any:
        codec = codec_of(verb)
        return codec.decode_result(self._call(verb, codec.encode_call(args, options)))

    def __getattr__(self, name: str) -> Any:
        if name in VERBS:
            return partial(self._ask, name)
        if hasattr(Store, name):
            raise UsageError(
                f"a hand has no database, and its hub offers no {name!r}; do this in a process that has the store"
            )
        raise AttributeError(name)

    # Verbs with something to do here -------------------------------------------------------------------------------------

    def enqueue_and_wake(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs and notify the workers that wait for such jobs."""
        written: list[Enqueued] = self._ask("enqueue", jobs)
        self._ask("notify", new_job_topics(jobs))
        return written

    def claim(self, request: ClaimRequest, *, now: datetime | None = None) -> list[Claim]:
        """Claim jobs. For ``ANY_LANE`` the hub chooses the lanes, and counts the limits."""
        if request.dating is not None:
            request.dating()  # no later than the start that the hub records
        if ANY_LANE in request.lanes:
            return self._ask_for((), request).claims
        claims: list[Claim] = self._ask("claim", request, now=now)
        return claims

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        """Finish and claim, as ``claim``."""
        if request.dating is not None:
            request.dating()
        if ANY_LANE in request.lanes:
            return self._ask_for(finishes, request)
        result: StepResult = self._ask("step", finishes, request, now=now)
        return result

    def _ask_for(self, finishes: Sequence[Finish], request: ClaimRequest) -> StepResult:
        args = {
            "finishes": encode(finishes),
            "worker": request.worker.hex,
            "limit": request.limit,
            "tasks": None if request.tasks is None else list(request.tasks),
            "start": request.start,
            "queues": self._queues,
        }
        result: StepResult = codec_of("step").decode_result(self._call(ASK, args))
        return result

    def redate(
        self,
        claims: Sequence[Claim],
        rules: Rules,
        *,
        dating: Callable[[], object] | None = None,
        now: datetime | None = None,
    ) -> Redated:
        """Record the starts of jobs again."""
        if dating is not None:
            dating()
        redated: Redated = self._ask("redate", claims, rules, now=now)
        return redated

    def orders(self) -> RuntimeState:
        """The pauses, the settings and the limit rules."""
        state: RuntimeState = self._ask("orders")
        self.learn_subscriptions(state.settings)
        return state

    def check(self) -> None:
        """Return if a hub answers and accepts the key; otherwise raise the error."""
        try:
            self._send("check", {})
        except HubRefusal as refusal:
            raise BadSettings(f"the hub refuses this key: {refusal}", setting="key") from None

    # Wake-ups ------------------------------------------------------------------------------------------------------------

    def listen(self) -> Listener:
        """A listener for what hubs tell this hand."""
        listener = _HandListener(self._leave)
        with self._lock:
            self._listeners.append(listener)
            first = len(self._listeners) == 1
        if first:
            self._wire.hear(self._heard)
        return listener

    def _heard(self, data: bytes) -> None:
        topics = read_notice(data)
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners if topics else ():
            listener.put(topics)

    def _leave(self, listener: _HandListener) -> None:
        with self._lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    # The store as a whole ------------------------------------------------------------------------------------------------

    def steps_ahead(self) -> None:
        """There is no channel to send steps ahead."""

    def server(self) -> None:
        """There is no server that a hand could ask."""

    def rest(self) -> None:
        """There is nothing to release."""

    def close(self) -> None:
        """Close the wire; a second call has no effect."""
        self._closed = True
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.close()
        self._wire.close()


# Type checks of programs, such as ``App("…")``, take it for a store. It has the verbs that workers use.
# Not ``Store.register``, which registers a worker.
ABCMeta.register(Store, HubStore)


class _HandListener:
    """The wake-ups of one hand."""

    def __init__(self, leave: Callable[[_HandListener], None]) -> None:
        self._leave = leave
        self._topics: queue.SimpleQueue[frozenset[str]] = queue.SimpleQueue()
        self._closed = False

    def put(self, topics: Iterable[str]) -> None:
        self._topics.put(frozenset(topics))

    def wait(self, timeout: float) -> frozenset[str]:
        """The topics received since the last call; empty after this time."""
        if self._closed:
            return frozenset()
        try:
            topics = self._topics.get(timeout=timeout)
        except queue.Empty:
            return frozenset()
        while not self._topics.empty():
            topics |= self._topics.get()
        return topics

    def close(self) -> None:
        """Wake the thread that waits."""
        self._closed = True
        self._topics.put(frozenset())
        self._leave(self)
