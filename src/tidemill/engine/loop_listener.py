"""Listener for wake-ups on an event loop instead of the listening thread.

This saves waking one thread between a job's arrival and its start. It works only if the store's listener has a file
descriptor to watch. The listening thread stays as the fallback: it receives wake-ups that a blocked loop leaves unread,
and it reconnects after a failure.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, runtime_checkable

from tidemill.engine.listener import WakeupListener

AGAIN = 1.0
"""Seconds until a listener that could not be watched is tried again."""


@runtime_checkable
class Watched(Protocol):
    """A listener whose wake-ups another thread can watch for."""

    def lend(self) -> int | None:
        """A file descriptor that becomes readable when wake-ups arrive; None if there is none now. The caller closes it."""

    def hear(self) -> frozenset[str]:
        """The wake-ups that have arrived, without waiting.

        Raises an error if the lent file descriptor is no longer of use.
        """

    def take_back(self) -> None:
        """Record that the watching has ended."""


class LoopListener:
    """Watches the listener's file descriptor on a loop. All calls happen on the loop's own thread."""

    def __init__(self, wakeups: WakeupListener) -> None:
        self._wakeups = wakeups
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Watched | None = None
        self._file: int | None = None
        self._later: asyncio.TimerHandle | None = None

    @property
    def opened(self) -> bool:
        """Whether it has a loop."""
        return self._loop is not None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch on this loop from now on."""
        self._loop = loop
        self._watch()

    def _watch(self) -> None:
        assert self._loop is not None
        listener = self._wakeups.listener
        if listener is not None and not isinstance(listener, Watched):
            return
        file = None if listener is None else listener.lend()
        if listener is None or file is None:
            self._later = self._loop.call_later(AGAIN, self._watch)
            return
        self._listener, self._file = listener, file
        self._loop.add_reader(file, self._readable)

    def _readable(self) -> None:
        if self._listener is None or self._loop is None:
            return
        try:
            topics = self._listener.hear()
        except Exception:  # noqa: BLE001  (the listening thread finds the error and reconnects)
            self._leave_off()
            self._later = self._loop.call_later(AGAIN, self._watch)
            return
        if topics:
            self._wakeups.tell(topics)

    def _leave_off(self) -> None:
        listener, file = self._listener, self._file
        self._listener = self._file = None
        if listener is not None and file is not None and self._loop is not None:
            self._loop.remove_reader(file)
            os.close(file)
            listener.take_back()

    def close(self) -> None:
        """Stop watching before the loop ends."""
        if self._later is not None:
            self._later.cancel()
        self._leave_off()
