"""What every face of the store stands on: the one lock, the state behind it, the clock, and transactions.

It must not hold a verb.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import RLock
from uuid import UUID

from tidemill.clock import Clock, SystemClock
from tidemill.errors import StoreUnavailable, UsageError
from tidemill.stores.memory.locks import Locks
from tidemill.stores.memory.state import State


class Core:
    """A state, a re-entrant lock around it, and a clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = RLock()
        self._state = State()
        self._locks = Locks()  # beside the state, as no transaction takes a hold back
        self._closed = False
        self._in_transaction = False

    def _at(self, now: datetime | None) -> datetime:
        return now if now is not None else self._clock.now()

    @contextmanager
    def _open(self) -> Iterator[State]:
        """The state, for as long as the block lasts ours alone. A verb checks first and writes then: there is no undo."""
        with self._lock:
            self._refuse_closed()
            yield self._state

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("this memory store was closed; open a new one")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # The lock is held to the end, so the flag is only ever seen by the thread that set it.
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
    """An id given twice in one batch is an error of the caller, and told before anything is written."""
    seen: set[UUID] = set()
    for id in ids:
        if id in seen:
            raise UsageError(f"{what} {id} is given twice in one batch; give it once", id=id)
        seen.add(id)
