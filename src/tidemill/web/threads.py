"""Bounded thread pool for blocking calls.

When too many calls are waiting, new ones fail immediately with 503.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from tidemill.web.problems import Problem

P = ParamSpec("P")
R = TypeVar("R")


def overloaded() -> Problem:
    """Return the problem for a caller when too many calls are waiting."""
    return Problem(
        503, "overloaded", "too many requests are waiting for the store", headers={"retry-after": "1"}
    )


class Threads:
    """Runs at most ``size`` calls at a time and queues at most ``waiting`` more. Threads start on first use."""

    def __init__(self, size: int, waiting: int) -> None:
        self._size, self._most = size, size + waiting
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._busy = 0

    async def run(self, act: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call on a thread, in a copy of the caller's context."""
        pool = self._enter()
        try:
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(
                pool, partial(context.run, partial(act, *args, **kwargs))
            )
        finally:
            self._leave()

    def begin(self, act: Callable[[], R], *, only_if_free: bool = False) -> Future[R] | None:
        """Start a call on a thread and return its future. With ``only_if_free``, return None instead of queueing."""
        if only_if_free:
            with self._lock:
                if self._closed or self._busy >= self._size:
                    return None
        pool = self._enter()
        try:
            future = pool.submit(act)
        # The pool was closed in the meantime.
        except RuntimeError:
            self._leave()
            raise Problem(503, None, "the server is stopping", headers={"retry-after": "5"}) from None
        future.add_done_callback(lambda _: self._leave())
        return future

    def _enter(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise Problem(503, None, "the server is stopping", headers={"retry-after": "5"})
            if self._busy >= self._most:
                raise overloaded()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="tidemill-rest")
            self._busy += 1
            return self._pool

    def _leave(self) -> None:
        with self._lock:
            self._busy -= 1

    def close(self) -> None:
        """Wait for running calls; no further call starts."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
