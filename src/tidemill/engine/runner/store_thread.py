"""A thread for calls that may wait for the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("tidemill.engine")

_JOIN = 5.0


class StoreThread:
    """Runs one call at a time, so that the calling thread never waits for the store."""

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._call: Callable[[], None] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, call: Callable[[], None]) -> bool:
        """Run this call soon; return False if an earlier one has not returned yet."""
        with self._changed:
            if self._call is not None or self._closed:
                return False
            self._call = call
            self._changed.notify()
            return True

    def close(self) -> None:
        """End the thread after its current call."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._call is not None or self._closed)
                call = self._call
            if call is None or self._closed:
                return
            try:
                call()
            except Exception:  # noqa: BLE001  (one failed call must not end the thread)
                _log.exception("unexpected error in a background store call; continuing")
            with self._changed:
                self._call = None
