"""Retention in a worker: an archive run whenever one is due, on a thread of its own.

It runs where the app is, because the places of archived jobs and the subscribers to events belong to the app. Every
runner process and every embedded worker has this thread; the archive lease admits one of them at a time. A run pauses
between its batches, so that the worker's own writes and claims go first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from tidemill.archive.lease import TTL, found_lease
from tidemill.archive.places import ArchivePlace
from tidemill.archive.run import ArchivedBatch, ArchiveRun, ArchiveRunner
from tidemill.clock import Clock, ManualClock
from tidemill.domain.archive_totals import last_run
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.retention_settings import Retention, in_effect, pace_of
from tidemill.errors import ArchiveRunning, LeaseLost, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.archive")

ACTOR = "tidemill:retention"
"""The actor of background runs in the audit log."""

LOOK = timedelta(minutes=5)
"""Longest time between two looks at the settings of the store."""

_FIRST = 20.0  # seconds after the start of a worker, so that it begins with its jobs
_LONGEST_PAUSE = TTL.total_seconds() / 6
_EVERYTHING = 2**31
_NO_BUDGET = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class RetentionDuty:
    """Archives the due jobs of a store at the interval of its retention."""

    jobs: Store
    place_of: Callable[[str], ArchivePlace]
    clock: Clock
    retention: Retention
    done: Callable[[ArchivedBatch], None]

    def step(
        self,
        wait: Callable[[float], bool] = lambda _: False,
        *,
        limit: int = _EVERYTHING,
        budget: timedelta = _NO_BUDGET,
    ) -> float:
        """Perform a run if one is due. Returns the seconds until the next look.

        ``wait`` pauses for some seconds between two batches; it returns true if the run must end.
        """
        switch = in_effect(self.retention, {setting.key: setting.value for setting in self.jobs.settings()})
        longest = LOOK.total_seconds()
        if not switch.enabled:
            return longest
        left = self._left(switch.interval)
        if left > 0:
            return min(left, longest)
        try:
            done = self._run(switch.policies, wait, limit, budget)
        except ArchiveRunning:
            return TTL.total_seconds()  # if that process dies, its lease has expired by then
        except LeaseLost as error:
            _log.warning("the archive run ended early: %s", error)
            return TTL.total_seconds()
        if done.archived:
            _log.info("archived %d jobs in %.1f s%s", done.archived, done.took.total_seconds(), _more(done))
        # A run without progress, because a place fails, is repeated after the interval.
        return 0.0 if done.more and done.archived else min(switch.interval.total_seconds(), longest)

    def _left(self, interval: timedelta) -> float:
        """Seconds until a run is due; none if the last one left work behind that it could have done."""
        lease = found_lease(self.jobs)
        last = None if lease is None else last_run(lease.metadata)
        if last is None or (last.more and last.archived):
            return 0.0
        return (last.at + interval - (self._pin or self.jobs.now())).total_seconds()

    def _run(
        self,
        policies: Sequence[ArchivePolicy],
        wait: Callable[[float], bool],
        limit: int,
        budget: timedelta,
    ) -> ArchiveRun:
        idle = 1 / pace_of(self.retention, self.jobs.url) - 1

        def pause(seconds: float) -> bool:
            return not wait(min(seconds * idle, _LONGEST_PAUSE))

        runner = ArchiveRunner(
            self.jobs, self.place_of, self.clock, by=ACTOR, pin=self._pin, done=self.done, pause=pause
        )
        return runner.run(policies, limit=limit, budget=budget)

    @property
    def _pin(self) -> datetime | None:
        return self.clock.now() if isinstance(self.clock, ManualClock) else None


class RetentionThread:
    """Performs a retention duty on a thread of its own."""

    def __init__(self, duty: RetentionDuty) -> None:
        self._duty = duty
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tidemill-retention", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End after the current batch. Closing twice is harmless."""
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(TTL.total_seconds())

    def _loop(self) -> None:
        random = Random()  # noqa: S311  (spreads load, keeps no secret)
        first = min(_FIRST, self._duty.retention.interval.total_seconds())
        seconds = first * random.uniform(0.5, 1.0)
        while not self._closing.wait(seconds):
            try:
                seconds = self._duty.step(self._closing.wait)
            except StoreError as error:
                _log.warning("cannot archive jobs now: %s", error)
                seconds = TTL.total_seconds()
            except Exception:  # noqa: BLE001  (the next run may succeed, and the worker must continue)
                _log.exception("unexpected error in the archive run; it is repeated later")
                seconds = LOOK.total_seconds()


def _more(done: ArchiveRun) -> str:
    return "; more jobs are due" if done.more else ""
