"""Holds within one process: a table of names. A fork has a memory of its own, in which nobody holds anything yet.

It must not touch the store's lock: to look or to let go waits for no transaction.
"""

from __future__ import annotations

import os
from threading import Lock


class Locks:
    """Who has which name."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._holders: dict[str, MemoryHold] = {}

    def _begin_anew(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def take(self, name: str) -> MemoryHold | None:
        """The name, if nobody has it."""
        self._begin_anew()
        hold = MemoryHold(self, name)
        with self._lock:
            return hold if self._holders.setdefault(name, hold) is hold else None

    def has(self, hold: MemoryHold) -> bool:
        """Whether the name is still this one's."""
        self._begin_anew()
        return self._holders.get(hold.name) is hold

    def drop(self, hold: MemoryHold) -> None:
        """Let go of the name, if it is still this one's."""
        self._begin_anew()
        with self._lock:
            if self._holders.get(hold.name) is hold:
                del self._holders[hold.name]

    def drop_all(self) -> None:
        """Nobody has anything any more."""
        self._begin_anew()
        with self._lock:
            self._holders.clear()


class MemoryHold:
    """A name that is ours alone."""

    def __init__(self, locks: Locks, name: str) -> None:
        self._locks = locks
        self.name = name

    def held(self) -> bool:
        return self._locks.has(self)

    def release(self) -> None:
        self._locks.drop(self)
