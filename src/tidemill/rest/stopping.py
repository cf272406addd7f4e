"""The word to stop, heard on every event loop, and safe to say from a signal's handler or another thread."""

from __future__ import annotations

import asyncio
import contextlib


class Stopping:
    """Set once. Whoever waits is told on his own loop."""

    def __init__(self) -> None:
        self._set = False
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Say it; saying it twice is harmless."""
        self._set = True
        for event, loop in list(self._waiters.items()):
            with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody waits there
                loop.call_soon_threadsafe(event.set)

    def subscribe(self, event: asyncio.Event) -> None:
        """Have this event of the running loop set when it is said."""
        self._waiters[event] = asyncio.get_running_loop()
        if self._set:
            event.set()

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Nobody waits there any more."""
        self._waiters.pop(event, None)
