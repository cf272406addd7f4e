"""Leader election for the duties: by a lease, by a lock, or none.

It saves work, but the duties stay correct without it. It must not run a duty, and it never blocks longer than one store
call.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import Coordination
from tidemill.engine.listener import TICK, WakeupListener
from tidemill.errors import BadSettings, StoreError
from tidemill.stores.base import Lock, Store

_log = logging.getLogger("tidemill.engine")

NAME = "duties"
"""The name of the lease, of the lock, and of the topic that is notified when either is released."""


LeaseData = Callable[[], Mapping[str, object]]

_LONG = 3600.0


class UnusedLease:
    """Marks the lease of the duties as unused while the workers coordinate without it.

    Without the mark, readers of the lease would take the last leader's figures for the present ones.
    """

    def __init__(self, store: Store, clock: Clock, holder: UUID, mode: Coordination, ttl: timedelta) -> None:
        self._store, self._clock, self._holder, self._mode, self._ttl = store, clock, holder, mode, ttl
        self._next = clock.monotonic()

    def mark(self) -> None:
        """Write the mark, at most once an hour, unless the lease is held or was never used."""
        if self._clock.monotonic() < self._next:
            return
        self._next = self._clock.monotonic() + _LONG
        try:
            self._mark()
        except Exception as error:  # noqa: BLE001  (a missing mark only misleads a reader; it must not stop the duties)
            _log.warning("cannot mark the lease %s as unused: %s", NAME, error)

    def _mark(self) -> None:
        lease = next((lease for lease in self._store.leases() if lease.name == NAME), None)
        if lease is None or lease.held(self._store.now()) or lease.unused_by == self._mode:
            return
        taken = self._store.acquire(NAME, self._holder, ttl=self._ttl)
        if taken is None:
            return
        lease_data = {"coordination": self._mode.value}
        self._store.renew(NAME, self._holder, taken.term, ttl=self._ttl, metadata=lease_data)
        self._store.release(NAME, self._holder, taken.term)


class Leadership(ABC):
    """A strategy that determines which process runs the duties."""

    leading: bool = False

    @abstractmethod
    def step(self, lease_data: LeaseData) -> float:
        """Take the lead, keep it or wait, as is due now; return the seconds until the next call."""

    @abstractmethod
    def sure(self) -> bool:
        """Whether this process certainly leads at this moment. Checked before each duty."""

    def invite(self) -> None:  # noqa: B027  (not every strategy uses it)
        """Record that the lead was released. May be called from any thread."""

    def close(self) -> None:
        """Release the lead and notify the other workers."""
        self.leading = False


class Everyone(Leadership):
    """All workers run the duties, which are safe to run concurrently."""

    leading = True

    def __init__(self, unused: UnusedLease | None = None) -> None:
        self._unused = unused

    def step(self, lease_data: LeaseData) -> float:
        if self._unused is not None:
            self._unused.mark()
        return _LONG

    def sure(self) -> bool:
        return self.leading


class _Contest(Leadership):
    """Shared parts of the lease and the lock: store errors, and when to try again."""

    def __init__(self, store: Store, clock: Clock, *, beat: float, expiry: float, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._beat, self._expiry = beat, expiry
        self._at = clock.monotonic()
        self._failures = 0
        self._invited = False

    def step(self, lease_data: LeaseData) -> float:
        invited, self._invited = self._invited, False
        try:
            if self._turn(lease_data, invited=invited) and self._failures:
                self._failures = 0
                _log.info("leadership requests succeed again")
        except Exception as error:  # noqa: BLE001  (the duties must not end; the next step tries again)
            self._failed(error)
        return max(0.0, self._at - self._clock.monotonic())

    @abstractmethod
    def _turn(self, lease_data: LeaseData, *, invited: bool) -> bool:
        """Do what is due now; return whether the store was called and answered."""

    def invite(self) -> None:
        self._invited = True

    def _in(self, seconds: float) -> None:
        self._at = self._clock.monotonic() + seconds

    def _pause(self) -> float:
        """Seconds to wait when the holder's expiry is unknown: 1 to 5 s with the default expiry."""
        return self._random.uniform(self._expiry / 8, self._expiry * 5 / 8)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            trace = None if isinstance(error, StoreError) else error
            _log.warning("cannot acquire or renew leadership of the duties: %s", error, exc_info=trace)
        # A leader has time for a few tries before its lease expires. The others can wait.
        quick = min(self._beat, self._beat / 4 * 2 ** min(self._failures - 1, 8))
        self._in(quick * self._random.uniform(0.5, 1.0) if self.leading else self._pause())


class ByLease(_Contest):
    """Leadership by one lease with a term.

    The other workers do not poll at a fixed rate. While they receive the leader's ticks they do nothing. Otherwise they
    read when the lease expires and try again then. With ``rotation``, a leader releases the lease after that time and stays
    away from it for one beat, so that another worker takes it; a worker that is alone then takes it again.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        holder: UUID,
        *,
        beat: timedelta,
        expiry: timedelta,
        random: Random,
        listener: WakeupListener | None,
        rotation: timedelta | None = None,
    ) -> None:
        super().__init__(
            store, clock, beat=beat.total_seconds(), expiry=expiry.total_seconds(), random=random
        )
        self._holder, self._ttl, self._listener = holder, expiry, listener
        self._rotation = None if rotation is None else rotation.total_seconds()
        self._since = self._away_until = float("-inf")
        self._term = 0
        self._seen: tuple[int, datetime] | None = None  # another holder's term and last beat
        self._seen_ends = 0.0
        self._sent = float("-inf")  # when the last answered renewal was sent
        # After three quarters of the expiry without an answer the lease counts as lost. The rest is time for the
        # current duty.
        self._sure_for = self._expiry * 3 / 4

    def sure(self) -> bool:
        return self.leading and self._clock.monotonic() < self._sent + self._sure_for

    def _turn(self, lease_data: LeaseData, *, invited: bool) -> bool:
        now = self._clock.monotonic()
        if self.leading:
            if not self.sure():
                self._lose("it was not renewed in time", now)
                return False
            if self._rotation is not None and now >= self._since + self._rotation:
                self._pass_on(now)
                return True
            if now < self._at:
                return False
            self._renew(lease_data, now)
            return True
        if now < self._away_until:
            self._at = self._away_until
            return False
        if not invited and self._away_until == float("-inf"):
            quiet = self._quiet_until()
            if self._at <= now < quiet:
                self._at = quiet + self._jitter()
            if now < self._at:
                return False
        self._try()
        return True

    def _quiet_until(self) -> float:
        """The time until which a recent tick makes a look unnecessary.

        That is up to one second less than the expiry, so that a look follows before the lease of a dead leader expires.
        """
        if self._listener is None:
            return float("-inf")
        return self._listener.heard_at(TICK) + self._expiry - min(1.0, self._expiry / 8)

    def _pass_on(self, now: float) -> None:
        """Release the lease for another worker."""
        self.leading = False
        self._away_until = self._at = now + self._beat
        self._store.release(NAME, self._holder, self._term)
        _log.info("worker %s passes the duties on, after term %d", self._holder, self._term)
        with contextlib.suppress(StoreError):
            self._store.notify([NAME])

    def _renew(self, lease_data: LeaseData, now: float) -> None:
        if self._store.renew(NAME, self._holder, self._term, ttl=self._ttl, metadata=lease_data()):
            self._sent, self._at = now, now + self._beat
        else:
            self._lose("the store refused to renew it", now + self._pause())

    def _lose(self, why: str, at: float) -> None:
        self.leading = False
        self._at = at
        _log.warning("worker %s no longer runs the duties: it lost the lease of term %d: %s",
                     self._holder, self._term, why)  # fmt: skip

    def _try(self) -> None:
        self._away_until = float("-inf")
        left = self._left()
        if left > 0:
            self._in(left + self._jitter())
            return
        sent = self._clock.monotonic()
        # The store's clock may have been set back since the last beat. A lease without a beat for its whole length is
        # expired.
        stale = self._seen if sent >= self._seen_ends else None
        lease = self._store.acquire(NAME, self._holder, ttl=self._ttl, stale=stale)
        if lease is None:
            self._in(self._pause())
            return
        # The next step renews the lease at once, which records the holder.
        self._term, self._sent, self._at, self.leading = lease.term, sent, sent, True
        self._since = sent
        _log.info("worker %s runs the duties with the lease of term %d", self._holder, self._term)

    def _left(self) -> float:
        """Seconds until the lease may be taken, even if the store's clock differs from the local one.

        A beat renews the lease for its whole length. So it cannot last longer than that length from when the beat is
        first seen, measured by the monotonic clock, whatever the local wall clock shows.
        """
        lease = next((lease for lease in self._store.leases() if lease.name == NAME), None)
        if lease is None or lease.holder in (None, self._holder):
            return 0.0
        if lease.expires_at is None or lease.beat_at is None:
            return 0.0
        now = self._clock.monotonic()
        if self._seen != (lease.term, lease.beat_at):
            self._seen = (lease.term, lease.beat_at)
            self._seen_ends = now + (lease.expires_at - lease.beat_at).total_seconds()
        return min((lease.expires_at - self._clock.now()).total_seconds(), self._seen_ends - now)

    def _jitter(self) -> float:
        return self._random.uniform(0.0, self._expiry / 16)

    def close(self) -> None:
        if self.leading:
            self.leading = False
            try:
                self._store.release(NAME, self._holder, self._term)
            except StoreError as error:
                _log.warning("cannot release the duty lease; it will expire: %s", error)
            with contextlib.suppress(StoreError):
                self._store.notify([NAME])


class ByLock(_Contest):
    """Leadership by a lock of the database or of the machine, which ends with the connection or process that took it.

    If the store has no locks, every worker runs the duties: that costs more, but duties that never run would cost jobs.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        beat: timedelta,
        expiry: timedelta,
        random: Random,
        unused: UnusedLease | None = None,
    ) -> None:
        super().__init__(
            store, clock, beat=beat.total_seconds(), expiry=expiry.total_seconds(), random=random
        )
        self._unused = unused
        self._hold: Lock | None = None
        self._lockless = False

    def sure(self) -> bool:
        return self._lockless or (self._hold is not None and self._hold.held())

    def _turn(self, lease_data: LeaseData, *, invited: bool) -> bool:
        if self._lockless:
            self._in(_LONG)
            return False
        if not invited and self._clock.monotonic() < self._at and self.sure() == self.leading:
            return False
        if self._hold is None:
            self._ask()
        elif not self._hold.held():
            self._drop()
            _log.warning("the duty lock was lost")
        if self.leading and self._unused is not None:
            self._unused.mark()
        self._in(self._beat if self.leading else self._pause())
        return True

    def _ask(self) -> None:
        try:
            self._hold = self._store.hold(NAME)
        except BadSettings as error:
            self._lockless = True
            _log.warning("this store has no duty lock, so every worker runs the duties: %s", error)
        self.leading = self._lockless or self._hold is not None

    def _drop(self) -> None:
        hold, self._hold = self._hold, None
        self.leading = False
        if hold is not None:
            with contextlib.suppress(StoreError):
                hold.release()

    def close(self) -> None:
        if self._hold is not None:
            self._drop()
            with contextlib.suppress(StoreError):
                self._store.notify([NAME])
