"""Holds within one process: a table of names.

A forked process starts with an empty table. This module does not use the store's lock, so checking or releasing a hold never waits
for a transaction.
"""

from __future__ import annotations

import os
from threading import Lock


class LockTable:
    """The holder of each name."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._holders: dict[str, MemoryLock] = {}

    def _restart_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def take(self, name: str) -> MemoryLock | None:
        """A hold on the name, if it is free."""
        self._restart_after_fork()
        hold = MemoryLock(self, name)
        with self._lock:
            return hold if self._holders.setdefault(name, hold) is hold else None

    def has(self, hold: MemoryLock) -> bool:
        """Whether this hold still has its name."""
        self._restart_after_fork()
        return self._holders.get(hold.name) is hold

    def drop(self, hold: MemoryLock) -> None:
        """Release the name, if this hold still has it."""
        self._restart_after_fork()
        with self._lock:
            if self._holders.get(hold.name) is hold:
                del self._holders[hold.name]

    def drop_all(self) -> None:
        """Release all names."""
        self._restart_after_fork()
        with self._lock:
            self._holders.clear()


class MemoryLock:
    """Exclusive ownership of a name."""

    def __init__(self, locks: LockTable, name: str) -> None:
        self._locks = locks
        self.name = name

    def held(self) -> bool:
        return self._locks.has(self)

    def release(self) -> None:
        self._locks.drop(self)
