"""Queues in which a hub gathers requests of many hands for one call of the store."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from tidemill.engine.hub.keys import Caller
from tidemill.stores.hub.protocol import HubBusy, error_bytes, result_bytes
from tidemill.stores.wire.base import Answer

_log = logging.getLogger("tidemill.hub")

GATHER = 0.002
"""Seconds that a hub waits for further requests after the first one, if the last call joined several."""

MOST = 200
"""Requests that one call joins."""

MOST_WAITING = 5_000
"""Requests that may wait. A hub refuses further ones, and their hands try again a little later."""

BUSY = 0.1
"""Seconds until a refused hand tries again, for each full queue of requests before it."""

_JOIN = 10.0  # seconds


class HandCall(NamedTuple):
    """A request whose key and arguments were checked."""

    caller: Caller
    verb: str
    args: dict[str, Any]
    answer: Answer
    address: UUID | None

    def reply(self, result: object) -> None:
        """Send the result of the verb."""
        self.answer(result_bytes(result))

    def fail(self, error: Exception) -> None:
        """Send an error."""
        self.answer(error_bytes(error))


T = TypeVar("T")


class Intake(Generic[T]):
    """A queue and the thread that serves it, many requests at a time."""

    def __init__(
        self,
        name: str,
        serve: Callable[[Sequence[T]], None],
        *,
        idle: Callable[[], float | None] = lambda: None,
        refuse: Callable[[T, Exception], None] = lambda _item, _error: None,
    ) -> None:
        """``idle`` is called before each wait and returns the seconds until it must be called again."""
        self._serve, self._idle, self._refuse = serve, idle, refuse
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._woken = False
        self._thread = threading.Thread(target=self._run, name=f"tidemill-hub-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: T) -> None:
        """Add a request, or refuse it if too many wait. Any thread may call it."""
        with self._changed:
            if not self._closed and len(self._items) < MOST_WAITING:
                self._items.append(item)
                self._changed.notify()
                return
        self._refuse(item, HubBusy(BUSY))

    def wake(self) -> None:
        """Call ``idle`` soon."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._items)

    def close(self) -> None:
        """Serve what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_JOIN)

    def _run(self) -> None:
        gathers = False
        while True:
            try:
                again = self._idle()
            except Exception:  # noqa: BLE001  (an error must not stop the hub)
                _log.exception("unexpected error in the hub; continuing")
                again = 1.0
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed or self._woken, again)
                self._woken = False
                if not self._items:
                    if self._closed:
                        return
                    continue
                if gathers and not self._closed:
                    self._changed.wait_for(lambda: len(self._items) >= MOST or self._closed, GATHER)
                batch = [self._items.popleft() for _ in range(min(MOST, len(self._items)))]
            gathers = len(batch) > 1
            try:
                self._serve(batch)
            except Exception as error:  # noqa: BLE001  (an error must not stop the hub)
                _log.exception("unexpected error in the hub; continuing")
                for item in batch:
                    self._refuse(item, error)


def rounds(calls: Iterable[tuple[T, Iterable[Hashable]]]) -> Iterator[list[T]]:
    """The calls in rounds without common keys, in which they may be joined.

    A store refuses a batch that names a job twice, and a worker that lost a job may finish it at the same moment as the one that has it.
    """
    left = [(call, frozenset(keys)) for call, keys in calls]
    while left:
        used: set[Hashable] = set()
        now: list[T] = []
        later: list[tuple[T, frozenset[Hashable]]] = []
        for call, keys in left:
            if used.isdisjoint(keys):
                used |= keys
                now.append(call)
            else:
                later.append((call, keys))
        yield now
        left = later
