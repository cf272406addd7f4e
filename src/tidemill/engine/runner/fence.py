"""A runner's own view of its worker's lease, by its monotonic clock.

Another process or thread sends the heartbeat: a supervisor that may be halted while its runners keep running, or a
thread that waits for the store. So each confirmed beat is passed on to the runner, which claims nothing and drops its
jobs once the confirmed beats stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from tidemill.clock import Clock

_log = logging.getLogger("tidemill.engine")

STALL, LOOKS = 1.0, 5
"""Seconds, and number of looks, for which the fence must be open before jobs are dropped.

After a stall (a halted process, or one call that held the GIL) confirmed beats from that time may still wait to be
read.
"""


class Fence:
    """Whether the lease of one worker is reliable: for ``limit`` seconds after its last confirmed beat was sent.

    ``confirm`` may be called from any thread. ``on_lost`` is called once, when jobs must be dropped.
    """

    def __init__(self, clock: Clock, worker: UUID, *, limit: float, confirmed: float) -> None:
        self._clock, self.worker, self._limit = clock, worker, limit
        self._confirmed = confirmed
        self.until = confirmed + limit  #: the monotonic time until which the lease is reliable
        self.on_lost: Callable[[], None] | None = None
        self._stall = min(STALL, limit / 12)
        self._open_since, self._looks = 0.0, 0

    def confirm(self, at: float) -> None:
        """Record that the store answered a beat that was sent at this monotonic time."""
        self._confirmed = max(self._confirmed, min(at, self._clock.monotonic()))
        self.until = self._confirmed + self._limit

    @property
    def holds(self) -> bool:
        """Whether jobs may be claimed and begun."""
        return self._clock.monotonic() < self.until

    def look(self) -> None:
        """Call ``on_lost`` if jobs must be dropped. One thread calls this repeatedly while jobs are held."""
        if self.on_lost is None or not self._is_lost():
            return
        on_lost, self.on_lost = self.on_lost, None
        _log.error(
            "no heartbeat of worker %s was confirmed for %.3g s: its jobs are dropped",
            self.worker,
            self._limit,
        )
        on_lost()

    def _is_lost(self) -> bool:
        if self.holds:
            self._looks = 0
            return False
        now = self._clock.monotonic()
        self._open_since = self._open_since if self._looks else now
        self._looks += 1
        return self._looks > LOOKS and now - self._open_since >= self._stall
