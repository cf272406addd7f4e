"""Detection of dead workers, by an observer's monotonic clock.

Wall clocks jump: a laptop wakes up, NTP corrects the time, a standby with another clock takes over. So an expired lease alone does
not prove that a worker is dead. An observer records since when it has seen the same heartbeat counter, and declares a worker gone
only if

- the counter was unchanged for ``confirm_after`` over two readings, and the lease ended ``margin`` ago by the store's clock, or
- the counter was unchanged for the whole lease and the ``margin``, whatever the store's clock shows (it may have gone back).

A live worker beats several times within ``confirm_after``, so a clock jump kills no worker. A worker that cannot beat
abandons its jobs when its lease ends (``holds_for``), which is ``margin`` before an observer can declare it gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.cluster import Heartbeat

_CONFIRM_BEATS, _CONFIRM_SHARE = 2.4, 0.4
_MARGIN_SHARE = 1 / 6
OUTAGE = timedelta(seconds=5)
"""An observer without an answer for this long starts over, so that live workers can send a heartbeat first."""


def holds_for(lease: timedelta) -> float:
    """Seconds after sending a confirmed heartbeat for which a worker may keep its jobs.

    The store renews the lease after the heartbeat was sent, so the lease ends no earlier than this. No observer declares the worker
    gone before another ``margin`` has passed, which leaves time to stop its handlers.
    """
    return lease.total_seconds()


def margin(lease: timedelta) -> float:
    """Seconds between the end of a lease and the earliest time at which its worker can be declared gone: 5 of 30."""
    return lease.total_seconds() * _MARGIN_SHARE


def confirm_after(lease: timedelta, beat: timedelta) -> float:
    """Seconds for which the counter must be unchanged although the lease has ended: 12 with beats of 5 s and leases of 30 s."""
    return max(beat.total_seconds() * _CONFIRM_BEATS, lease.total_seconds() * _CONFIRM_SHARE)


class _Seen(NamedTuple):
    beats: int
    since: float  #: the observer's monotonic time when it first read this value


class GoneWorkers(NamedTuple):
    """The workers to declare gone, each with the counter that was read, and the seconds until the next one may be due."""

    gone: list[tuple[UUID, int]]
    again: float | None = None


class Observer:
    """The heartbeat counters of earlier readings. ``beat`` is the expected heartbeat interval of workers."""

    def __init__(self, beat: timedelta) -> None:
        self._beat = beat
        self._seen: dict[UUID, _Seen] = {}
        self._answered: float | None = None
        self._missed = False

    def missed(self) -> None:
        """Record that a reading failed because the store did not answer."""
        self._missed = True

    def look(
        self,
        heartbeats: Iterable[Heartbeat],
        *,
        sent: float,
        answered: float,
        alive: Collection[UUID] = (),
    ) -> GoneWorkers:
        """Judge a reading. ``alive`` are workers that the observer itself sees alive; they are never declared gone.

        A counter is dated when its answer arrives and judged by the time the next query is sent, so a slow answer only makes
        the observer wait longer.
        """
        if self._missed and (self._answered is None or sent - self._answered >= OUTAGE.total_seconds()):
            self._seen.clear()
        self._missed, self._answered = False, answered
        before, self._seen = self._seen, {}
        gone: list[tuple[UUID, int]] = []
        waits: list[float] = []
        for worker, beats, lease, left in heartbeats:
            seen = before.get(worker)
            if seen is None or seen.beats != beats:
                seen = _Seen(beats, answered)
            self._seen[worker] = seen
            if worker in alive:
                continue
            wait = self._wait(lease, left, still=sent - seen.since)
            if wait <= 0:
                gone.append((worker, beats))
            else:
                waits.append(wait)
        return GoneWorkers(gone, min(waits, default=None))

    def _wait(self, lease: timedelta, left: timedelta, still: float) -> float:
        """Seconds until this worker is gone if its counter stays unchanged; zero or less if it already is."""
        expires = left.total_seconds() + margin(lease)
        by_lease = max(expires, confirm_after(lease, self._beat) - still)
        by_own_clock = lease.total_seconds() + margin(lease) - still
        return min(by_lease, by_own_clock)
