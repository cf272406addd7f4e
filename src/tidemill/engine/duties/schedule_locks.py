"""Locks of schedules while they fire, which keep other processes from planning the same fires.

The compare-and-set of a schedule makes each fire happen once. The locks only save the work of losing it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.domain.schedules import ScheduleRow
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.lock_server import LockServer

_log = logging.getLogger("tidemill.engine")

_PAUSE = 5.0  # seconds without locks after the server failed to answer


def lock_name(schedule: ScheduleRow) -> str:
    """The name of a schedule's lock."""
    return f"schedule:{schedule.id}"


def schedule_locks(store: Store, clock: Clock, coordination: Coordination) -> ScheduleLocks | None:
    """The locks of this coordination mode; None in modes without them."""
    if coordination is not Coordination.REDIS:
        return None
    locks = store.locks()
    if locks is None:
        raise BadSettings(
            "coordination 'redis' needs a Redis server; add ?locks=redis://host:port/0 to the URL of a PostgreSQL store",
            setting="coordination",
        )
    return ScheduleLocks(locks, clock)


class ScheduleLocks:
    """Takes the locks of a batch of schedules. While the server does not answer, schedules fire without locks."""

    def __init__(self, locks: LockServer, clock: Clock) -> None:
        self._locks, self._clock = locks, clock
        self._away_until = float("-inf")
        self._away = False
        self._taken: frozenset[str] = frozenset()

    def take(self, schedules: Sequence[ScheduleRow]) -> list[ScheduleRow]:
        """The schedules that this process may fire now: those that no other process has locked."""
        if self._clock.monotonic() < self._away_until:
            return list(schedules)
        try:
            if self._taken:  # the last release was not answered
                self.release()
            taken = self._taken = self._locks.take([lock_name(schedule) for schedule in schedules])
        except StoreUnavailable as error:
            self._failed(error)
            return list(schedules)
        if self._away:
            self._away = False
            _log.info("the lock server answers; schedules fire under locks again")
        return [schedule for schedule in schedules if lock_name(schedule) in taken]

    def release(self) -> None:
        """Release what was taken. Without an answer, the next call of ``take`` tries again, and the locks expire."""
        if self._taken:
            try:
                self._locks.release(self._taken)
            except StoreUnavailable as error:
                self._failed(error)
            else:
                self._taken = frozenset()

    def _failed(self, error: StoreUnavailable) -> None:
        self._away_until = self._clock.monotonic() + _PAUSE
        if not self._away:
            self._away = True
            _log.warning("schedules fire without locks, because of this error: %s", error)
