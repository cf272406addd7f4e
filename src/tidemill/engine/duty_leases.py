"""A lease for each duty, and how the processes of a fleet come to hold about as many each.

A process that holds few leases asks the one with the most, by a wake-up, to pass some on. Wake-ups may be lost: then the leases
stay where they are, and every duty still has one holder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import duty_lease_name, leases_to_ask_for
from tidemill.engine.leadership import ASK, ByLease, LeaseReading
from tidemill.engine.listener import WakeupListener
from tidemill.engine.unused_lease import UnusedLease
from tidemill.errors import StoreError
from tidemill.stores.base import Store

MODE = "a lease for each duty"
"""The coordination that the unused lease of all duties names."""

_FIRST_LOOK, _LONGEST_LOOK = 10.0, 300.0
"""Seconds until a process compares what it holds with the others; doubled after each look that changed nothing."""


class DutyLeases:
    """The contests of one process for the leases of all its duties."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        holder: UUID,
        duties: Sequence[str],
        *,
        beat: timedelta,
        expiry: timedelta,
        rotation: timedelta | None,
        random: Random,
        listener: WakeupListener | None,
        unused: UnusedLease | None,
    ) -> None:
        self._store, self._clock, self._holder, self._random, self._unused = (
            store,
            clock,
            holder,
            random,
            unused,
        )
        self._reading = LeaseReading(store, clock)
        # Holders renew at the same interval, so a look that comes a beat early saves another one.
        self._near = beat.total_seconds() + expiry.total_seconds() / 16
        self.leads = {
            duty: ByLease(
                store,
                clock,
                holder,
                beat=beat,
                expiry=expiry,
                rotation=rotation,
                random=random,
                listener=listener,
                name=duty_lease_name(duty),
                leases=self._reading,
                load=self.load,
            )
            for duty in dict.fromkeys(duties)
        }
        self._pause = _FIRST_LOOK
        self._looks_at = clock.monotonic() + self._random.uniform(0.5, 1.5) * self._pause

    def load(self) -> int:
        """The number of leases that this process holds."""
        return sum(lead.leading for lead in self.leads.values())

    def heard(self) -> None:
        """Read the leases again: one of them has changed hands. May be called from any thread."""
        self._reading.forget()

    def step(self, step: Callable[[ByLease], float]) -> float:
        """Keep all leases up to date with ``step``; return the seconds until the next call."""
        now = self._clock.monotonic()
        if any(lead.looks_before(now) for lead in self.leads.values()):
            for lead in self.leads.values():
                if lead.looks_before(now + self._near):
                    lead.look_now()
        if self._unused is not None:
            self._unused.mark()
        wait = min((step(lead) for lead in self.leads.values()), default=_LONGEST_LOOK)
        if now >= self._looks_at:
            self._compare(now)
        return min(wait, max(0.0, self._looks_at - now))

    def _compare(self, now: float) -> None:
        """Ask the process with the most leases for some, if this one has fewer."""
        names: list[str] = []
        with contextlib.suppress(StoreError):
            names = leases_to_ask_for(self._reading(), self._holder, self._store.now())
            if names:
                self._store.notify([name + ASK for name in names])
        self._pause = _FIRST_LOOK if names else min(2 * self._pause, _LONGEST_LOOK)
        self._looks_at = now + self._random.uniform(0.5, 1.5) * self._pause
