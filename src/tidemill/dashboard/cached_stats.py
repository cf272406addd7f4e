"""Cache for slow figures, refreshed in the background.

Results of fast queries are not cached. Slow results are served from the cache for at most ``KEPT`` seconds, and for at
most ``TIMES`` as long as the query took, while a newer one is computed in the background, so only the first request waits. Each query runs at most a tenth of the time:
the busier the store, the less often it is queried. A refresh request of the script gets only a new result, or 204 and
retries later. An action in this process invalidates all cached results, so that the next page shows its effect.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar, cast

from tidemill.clock import Clock
from tidemill.web.threads import Threads

R = TypeVar("R")

QUICK = 0.04
"""Seconds; faster results are not cached."""

KEPT = 15.0
"""Maximum age of a cached result, in seconds."""

TIMES = 100.0
"""Maximum age of a cached result, as a multiple of the time that its query took."""

REST = 9.0
"""Pause between two computations, as a multiple of the time that the last one took."""

MOST = 64

Key = tuple[Any, ...]


class StatsPending(Exception):
    """No newer result is available yet for the script, which already shows the last one."""


class _Figure(NamedTuple):
    """A result, when its query started, how long that took, and the number of actions before it."""

    value: Any
    begun: float
    took: float
    acts: int


class CachedStats:
    """Cache of slow results. A key contains everything that its result depends on."""

    def __init__(self, clock: Clock, threads: Threads) -> None:
        self._clock, self._threads = clock, threads
        # Reentrant: the callback of a future that is already done runs immediately, on the thread that adds it.
        self._lock = threading.RLock()
        self._values: OrderedDict[Key, _Figure] = OrderedDict()
        self._making: dict[tuple[Key, int, int], Future[_Figure]] = {}
        self._acts = 0

    async def of(self, key: Key, ask: Callable[[], R], *, heard: int = 0, new: bool = False) -> R:
        """Return the result of ``ask``, possibly from the cache.

        ``ask`` runs on a thread, once for all concurrent callers.

        ``heard`` counts the change notifications so far. A caller with a higher count does not share a computation that
        started with a lower one. With ``new``, cached results are not returned; ``StatsPending`` means that it is too
        early to query again.
        """
        with self._lock:
            cached = self._good(key)
            making = self._making.get((key, self._acts, heard))
            if cached is not None:
                if making is None and self._rested(key, cached):
                    making = self._begin(key, heard, ask, only_if_free=True)
                if not new:
                    return cast(R, cached.value)
                if making is None:
                    raise StatsPending
            elif making is None:
                making = self._begin(key, heard, ask)
                assert making is not None
        figure = await asyncio.shield(asyncio.wrap_future(making))
        return cast(R, figure.value)

    def acted(self) -> None:
        """Invalidate all results, because an action in this process changed something."""
        with self._lock:
            self._acts += 1

    def _good(self, key: Key) -> _Figure | None:
        cached = self._values.get(key)
        if cached is None or cached.acts != self._acts:
            return None
        is_old = self._clock.monotonic() - cached.begun >= min(KEPT, cached.took * TIMES)
        return None if is_old else cached

    def _rested(self, key: Key, cached: _Figure) -> bool:
        """Whether the next computation may start: the pause is over and none is in progress for this key."""
        rested = self._clock.monotonic() - cached.begun >= cached.took * (1 + REST)
        return rested and not any(running[0] == key for running in self._making)

    def _begin(
        self, key: Key, heard: int, ask: Callable[[], Any], *, only_if_free: bool = False
    ) -> Future[_Figure] | None:
        acts = self._acts

        def make() -> _Figure:
            begun = self._clock.monotonic()
            value = ask()
            return _Figure(value, begun, self._clock.monotonic() - begun, acts)

        future = self._threads.begin(make, only_if_free=only_if_free)
        if future is not None:
            self._making[key, acts, heard] = future
            future.add_done_callback(lambda done: self._ended(key, acts, heard, done))
        return future

    def _ended(self, key: Key, acts: int, heard: int, done: Future[_Figure]) -> None:
        with self._lock:
            self._making.pop((key, acts, heard), None)
            if done.cancelled() or done.exception() is not None or acts != self._acts:
                # Keep the last result until it expires.
                return
            figure, before = done.result(), self._values.pop(key, None)
            if before is not None and before.acts == acts and before.begun > figure.begun:
                figure = before
            if figure.took > QUICK:
                self._values[key] = figure
            while len(self._values) > MOST:
                self._values.popitem(last=False)
