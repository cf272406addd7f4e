"""Hears on an event loop what the ear would hear on its thread: one thread less to be woken between a job's coming and its begin.

Only where the store's listener has a file to be watched. The ear's own thread stands by: it hears what the loop leaves lying, be
it that the loop does not turn, and makes the connection anew when it breaks. This room decides nothing about what is heard.
"""

from __future__ import annotations

import asyncio
import os
from typing import Protocol, runtime_checkable

from tidemill.engine.ear import Ear

AGAIN = 1.0
"""Seconds after which a listener that could not be watched is tried again."""


@runtime_checkable
class Watched(Protocol):
    """A listener whose wake-ups can be watched for by somebody else."""

    def lend(self) -> int | None:
        """A file, the caller's to close, that becomes readable when there is something to hear; None where there is none just now."""

    def hear(self) -> frozenset[str]:
        """What is to be heard now, without waiting; an error where the file that was lent has nothing more to say."""

    def take_back(self) -> None:
        """Nobody watches any more."""


class LoopEar:
    """Watches the ear's listener on a loop. All of it happens on the loop's own thread."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
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
        listener = self._ear.listener
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
        except Exception:  # noqa: BLE001  (whatever it is, the ear's own thread finds out and mends it)
            self._leave_off()
            self._later = self._loop.call_later(AGAIN, self._watch)
            return
        if topics:
            self._ear.tell(topics)

    def _leave_off(self) -> None:
        listener, file = self._listener, self._file
        self._listener = self._file = None
        if listener is not None and file is not None and self._loop is not None:
            self._loop.remove_reader(file)
            os.close(file)
            listener.take_back()

    def close(self) -> None:
        """Watch no more; the loop is about to end."""
        if self._later is not None:
            self._later.cancel()
        self._leave_off()
