"""Figures that take the store long to make, kept for a moment: who opens a page meanwhile gets the last ones at once.

What is quick to make is made anew for everybody, and nothing is kept of it. What took long is shown while a newer one is made
beside it, and never for longer than ``KEPT``; so nobody waits but the first. Making it takes a tenth of the time at most: the
busier the store, the less often it is asked. The script, for which nobody waits, gets new ones only, or is to come again. What
somebody did here is on the next page that is opened, however long that takes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar, cast

from tidemill.clock import Clock
from tidemill.rest.threads import Threads

R = TypeVar("R")

QUICK = 0.15
"""Seconds: what took no longer is not kept."""

KEPT = 15.0
"""Seconds after which a figure is too old for anybody."""

REST = 9.0
"""For how many times as long as it took to make one no other is begun."""

MOST = 64

Key = tuple[Any, ...]


class ComeAgain(Exception):
    """There is nothing newer yet for the script, which shows the last ones already."""


class _Figure(NamedTuple):
    """What was found, when it was asked for, how long that took, and how much had been done here before."""

    value: Any
    begun: float
    took: float
    acts: int


class Figures:
    """The last figures that took long, by what they are about; the key says all that they depend on."""

    def __init__(self, clock: Clock, threads: Threads) -> None:
        self._clock, self._threads = clock, threads
        # Reentrant: what ended before it was waited for says so at once, on the thread that began it.
        self._lock = threading.RLock()
        self._kept: OrderedDict[Key, _Figure] = OrderedDict()
        self._making: dict[tuple[Key, int, int], Future[_Figure]] = {}
        self._acts = 0

    async def of(self, key: Key, ask: Callable[[], R], *, heard: int = 0, new: bool = False) -> R:
        """What ``ask`` finds, or found a moment ago; it is called on a thread, once for all who come meanwhile.

        ``heard`` counts what was told to have moved: who has heard of more does not get what was begun before. With ``new``
        what was found before is not given; ``ComeAgain`` says that it is too early to ask again.
        """
        with self._lock:
            known = self._good(key)
            making = self._making.get((key, self._acts, heard))
            if known is not None:
                if making is None and self._rested(key, known):
                    making = self._begin(key, heard, ask, only_if_free=True)
                if not new:
                    return cast(R, known.value)
                if making is None:
                    raise ComeAgain
            elif making is None:
                making = self._begin(key, heard, ask)
                assert making is not None
        found = await asyncio.shield(asyncio.wrap_future(making))
        return cast(R, found.value)

    def acted(self) -> None:
        """Somebody did something here: what was made before lacks it."""
        with self._lock:
            self._acts += 1

    def _good(self, key: Key) -> _Figure | None:
        known = self._kept.get(key)
        if known is None or known.acts != self._acts or self._clock.monotonic() - known.begun >= KEPT:
            return None
        return known

    def _rested(self, key: Key, known: _Figure) -> bool:
        """Whether the next one may be begun: the store had its rest, and none is on its way."""
        rested = self._clock.monotonic() - known.begun >= known.took * (1 + REST)
        return rested and not any(each[0] == key for each in self._making)

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
                return  # the last one stands, for as long as it may
            found, before = done.result(), self._kept.pop(key, None)
            if before is not None and before.acts == acts and before.begun > found.begun:
                found = before
            if found.took > QUICK:
                self._kept[key] = found
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
