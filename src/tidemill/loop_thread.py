"""An event loop on a thread of its own, for libraries that only work on one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_JOIN = 10.0


async def cancel_rest() -> None:
    """Cancel every other task of the running loop, and wait for their ends."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


class LoopThread:
    """An event loop in a daemon thread, which starts with the first coroutine, also after a fork."""

    def __init__(self, name: str = "tidemill-loop") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop of this thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout: float) -> T:
        """Wait for the result of a coroutine; cancel it and raise ``TimeoutError`` after the timeout."""
        future = self.run(coroutine)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid, self._loop = os.getpid(), asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.closing(loop):
            loop.run_forever()
            loop.run_until_complete(cancel_rest())

    def close(self) -> None:
        """End the thread and what runs on it. Closing twice is harmless."""
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_JOIN)
