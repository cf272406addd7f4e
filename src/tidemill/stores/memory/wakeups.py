"""Wake-ups within one process.

They are hints: nothing may depend on one arriving. This module does not use the store's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Condition


class WakeupHub:
    """Sends topics to all listeners."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._listeners: list[MemoryListener] = []

    def listen(self) -> MemoryListener:
        """A new listener."""
        listener = MemoryListener(self, self._condition)
        with self._condition:
            self._listeners.append(listener)
        return listener

    def ring(self, topics: Iterable[str]) -> None:
        """Send these topics to every listener."""
        heard = frozenset(topics)
        with self._condition:
            for listener in self._listeners:
                listener.heard |= heard
            self._condition.notify_all()

    def remove(self, listener: MemoryListener) -> None:
        """Remove a listener; a thread that waits on it returns immediately."""
        with self._condition:
            listener.closed = True
            if listener in self._listeners:
                self._listeners.remove(listener)
            self._condition.notify_all()

    def close(self) -> None:
        """Remove all listeners."""
        with self._condition:
            for listener in list(self._listeners):
                self.remove(listener)


class MemoryListener:
    """Collects topics until they are read; returns immediately once closed."""

    def __init__(self, bell: WakeupHub, condition: Condition) -> None:
        self._bell = bell
        self._condition = condition
        self.heard: frozenset[str] = frozenset()
        self.closed = False

    def wait(self, timeout: float) -> frozenset[str]:
        with self._condition:
            self._condition.wait_for(lambda: self.heard or self.closed, timeout)
            heard, self.heard = self.heard, frozenset()
            return heard

    def close(self) -> None:
        self._bell.remove(self)
