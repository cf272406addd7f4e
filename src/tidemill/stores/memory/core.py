"""The base of all parts of the memory store: lock, state, clock and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import RLock
from uuid import UUID

from tidemill.clock import Clock, SystemClock
from tidemill.errors import StoreUnavailable, UsageError
from tidemill.stores.memory.locks import LockTable
from tidemill.stores.memory.state import State
from tidemill.stores.memory.wakeups import WakeupHub


class MemoryPart:
    """A state, a re-entrant lock around it, and a clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = RLock()
        self._state = State()
        self._locks = LockTable()  # outside the state, because transactions do not roll back holds
        self._bell = WakeupHub()
        self._closed = False
        self._in_transaction = False

    def _at(self, now: datetime | None) -> datetime:
        return now if now is not None else self._clock.now()

    @contextmanager
    def _open(self) -> Iterator[State]:
        """Exclusive access to the state. There is no undo, so a verb must check everything before it writes."""
        with self._lock:
            self._refuse_closed()
            yield self._state

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("this memory store was closed; open a new one")

    def _ring(self, topics: Iterable[str]) -> None:
        """Wake those who wait for one of these topics."""
        topics = sorted(set(topics))
        if topics:
            self._bell.ring(topics)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # The lock is held to the end, so only the thread that set the flag sees it.
        with self._open() as state:
            if self._in_transaction:
                yield
                return
            before = state.copy()
            self._in_transaction = True
            try:
                yield
            except BaseException:
                self._state = before
                raise
            finally:
                self._in_transaction = False


def refuse_repeats(ids: Iterable[UUID], what: str = "job") -> None:
    """Refuse duplicate ids in one batch, which are a caller error, before anything is written."""
    seen: set[UUID] = set()
    for id in ids:
        if id in seen:
            raise UsageError(f"{what} {id} is given twice in one batch; give it once", id=id)
        seen.add(id)
