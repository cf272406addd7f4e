"""Reads from a standby: lists, statistics and dashboards of an app with ``reads=``.

The primary answers in place of the standby if that is away, lags by more than 30 seconds or cancels the query, and for an identity
that has just changed something in this process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from tidemill.clock import Clock, SystemClock
from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.client")

MAX_LAG = timedelta(seconds=30)
"""A standby with older data is not read."""

OWN_WRITES = timedelta(seconds=10)
"""How long an identity reads the primary after a change of its own."""

VERBS = frozenset(
    {
        "backlogs", "count", "crowd", "declared", "depth_series", "depths", "ended_by", "ended_ever", "flow_totals", "holders", "holding", "jobs", "lately",
        "search_archive", "search_logs", "series", "stalled_flows", "standing", "times_by",
        "failure_groups", "failure_series", "failure_counts",
    }
)  # fmt: skip
"""The verbs that a standby may answer. Everything else, such as single jobs, workers and leases, comes from the primary."""

_CHECKED = 1.0  # seconds between two readings of the lag
_AWAY = 5.0  # seconds until a standby that failed is asked again
_MOST = 10_000  # identities that are remembered


class RecentWriters:
    """The identities that have changed something lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}

    def add(self, who: str) -> None:
        """Record a change by this identity."""
        if len(self._at) >= _MOST:
            self._at.clear()
        self._at[who] = self._clock.monotonic()

    def has(self, who: str) -> bool:
        """Whether it has changed something in the last ten seconds."""
        return self._clock.monotonic() - self._at.get(who, float("-inf")) < OWN_WRITES.total_seconds()


WRITERS = RecentWriters(SystemClock())
"""Those of this process."""


class StandbyReads:
    """The standby of one store."""

    def __init__(self, primary: Store, standby: Store, clock: Clock) -> None:
        self.primary, self._standby, self._clock = primary, standby, clock
        self._lock = threading.Lock()
        self._fresh, self._check_at = False, float("-inf")
        self._why: str | None = None  # the standby is not used, as it was logged

    def reader(self, who: str) -> Store:
        """The store that answers a report for this identity."""
        if WRITERS.has(who) or not self._is_fresh():
            return self.primary
        return cast("Store", _Reader(self))

    def _is_fresh(self) -> bool:
        with self._lock:
            if self._clock.monotonic() >= self._check_at:
                self._check()
            return self._fresh

    def _check(self) -> None:
        try:
            server = self._standby.server()
        except (StoreBusy, StoreUnavailable) as error:
            self._set_aside(f"it does not answer: {error}", _AWAY)
            return
        lag = None if server is None else server.replay_age
        if server is not None and server.in_recovery and (lag is None or lag > MAX_LAG):
            self._set_aside("its data is too old", _CHECKED)
            return
        if self._why is not None:
            _log.info("the standby answers reports again")
        self._why, self._fresh, self._check_at = None, True, self._clock.monotonic() + _CHECKED

    def _set_aside(self, why: str, seconds: float) -> None:
        if self._why is None:
            _log.warning("the primary answers reports instead of the standby: %s", why)
        self._why, self._fresh, self._check_at = why, False, self._clock.monotonic() + seconds

    def ask(self, verb: str, args: tuple[object, ...], options: dict[str, object]) -> Any:
        """Ask the standby, and the primary if it fails."""
        act: Callable[..., Any] = getattr(self._standby, verb)
        try:
            return act(*args, **options)
        except StoreBusy:  # replay needed a row that the query was reading
            pass
        except StoreUnavailable as error:
            with self._lock:
                self._set_aside(f"it does not answer: {error}", _AWAY)
        return getattr(self.primary, verb)(*args, **options)

    def close(self) -> None:
        """Close the connections to the standby."""
        self._standby.close()


class _Reader:
    """A store whose reports come from the standby."""

    def __init__(self, reads: StandbyReads) -> None:
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        if name not in VERBS:
            return getattr(self._reads.primary, name)
        return lambda *args, **options: self._reads.ask(name, args, options)
