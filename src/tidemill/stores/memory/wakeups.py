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
        self._ears: list[MemoryListener] = []

    def listen(self) -> MemoryListener:
        """A new listener."""
        ear = MemoryListener(self, self._condition)
        with self._condition:
            self._ears.append(ear)
        return ear

    def ring(self, topics: Iterable[str]) -> None:
        """Send these topics to every listener."""
        heard = frozenset(topics)
        with self._condition:
            for ear in self._ears:
                ear.heard |= heard
            self._condition.notify_all()

    def remove(self, ear: MemoryListener) -> None:
        """Remove a listener; a thread that waits on it returns immediately."""
        with self._condition:
            ear.closed = True
            if ear in self._ears:
                self._ears.remove(ear)
            self._condition.notify_all()

    def close(self) -> None:
        """Remove all listeners."""
        with self._condition:
            for ear in list(self._ears):
                self.remove(ear)


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
