"""Merging of wake-ups that are sent in quick succession."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from tidemill.domain.calls import merged


class Coalescer:
    """Calls ``send`` with the offered topics, immediately if nothing was sent for ``gap`` seconds, otherwise after the gap.

    A background thread makes the calls, so callers and event loops never wait for a hint. Wake-ups are hints, so errors of
    ``send`` are ignored.
    """

    def __init__(self, send: Callable[[frozenset[str]], None], gap: float = 0.005) -> None:
        self._send = send
        self._gap = gap
        self._changed = threading.Condition()
        self._waiting: set[str] = set()
        self._last = float("-inf")
        self._sending = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def take_turn(self) -> bool:
        """Whether the caller may send topics itself, now, and not through ``offer``."""
        with self._changed:
            now = time.monotonic()
            # Topics that were offered earlier must also arrive earlier.
            if self._closed or self._waiting or self._sending or now - self._last < self._gap:
                return False
            self._last = now
            return True

    def offer(self, topics: Iterable[str]) -> None:
        """Send these topics, now or within the gap. Calls are added up."""
        offered = frozenset(topics)
        if offered <= self._waiting:
            return  # already queued
        with self._changed:
            if self._closed:
                return
            quiet = not self._waiting
            self._waiting |= offered
            if not quiet:
                return  # the thread is already notified
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="tidemill-wake", daemon=True)
                self._thread.start()
                # Otherwise a wake-up could be lost in a script that ends right after its last call.
                atexit.register(self.close)
            self._changed.notify()

    def _take(self) -> frozenset[str]:
        batch = frozenset(self._waiting)
        self._waiting.clear()
        self._last = time.monotonic()
        return batch

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                while not self._closed and (left := self._last + self._gap - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._closed:
                    return
                batch = self._take()
                self._sending = True
            self._out(batch)
            self._sending = False

    def _out(self, batch: frozenset[str]) -> None:
        if batch:
            with contextlib.suppress(Exception):
                self._send(merged(batch))

    def close(self) -> None:
        """Send the queued topics and end the thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            batch = self._take()
            self._changed.notify_all()
        atexit.unregister(self.close)
        self._out(batch)
        if self._thread is not None:
            self._thread.join()
