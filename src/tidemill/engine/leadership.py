"""Leader election for the duties: by leases, by a lock, or none.

It saves work, but the duties stay correct without it. It must not run a duty, and it never blocks longer than one store
call.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import DUTIES, Lease, duty_of_lease
from tidemill.engine.listener import TICK, WakeupListener
from tidemill.engine.unused_lease import UnusedLease
from tidemill.errors import BadSettings, StoreError
from tidemill.stores.base import Lock, Store

_log = logging.getLogger("tidemill.engine")

NAME = DUTIES
"""The name of the lease, of the lock, and of the topic that is notified when either is released."""

ASK = ":ask"
"""Appended to the name of a lease: the topic by which another process asks its holder to pass it on."""

LeaseData = Callable[[], Mapping[str, object]]

_LONG = 3600.0
_COURTESY = 0.05  # seconds by which a process with leases lets one with fewer take a released lease


class Leadership(ABC):
    """A strategy that determines which process runs the duties."""

    leading: bool = False
    name: str = NAME

    @abstractmethod
    def step(self, lease_data: LeaseData) -> float:
        """Take the lead, keep it or wait, as is due now; return the seconds until the next call."""

    @abstractmethod
    def sure(self) -> bool:
        """Whether this process certainly leads at this moment. Checked before each duty."""

    def hear(self, topics: frozenset[str]) -> bool:
        """Record that the lead was released; return whether these topics concern it. May be called from any thread."""
        if self.name not in topics:
            return False
        self.invite()
        return True

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
            _log.warning(
                "cannot acquire or renew leadership of %s: %s", _what(self.name), error, exc_info=trace
            )
        # A leader has time for a few tries before its lease expires. The others can wait.
        quick = min(self._beat, self._beat / 4 * 2 ** min(self._failures - 1, 8))
        self._in(quick * self._random.uniform(0.5, 1.0) if self.leading else self._pause())


def _what(name: str) -> str:
    duty = duty_of_lease(name)
    return "the duties" if duty is None else f"duty {duty}"


class LeaseReading:
    """The leases of the store, read once for several contests of one process that look at the same time."""

    FRESH = 0.05  # seconds

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._at = float("-inf")
        self._leases: Sequence[Lease] = ()

    def __call__(self) -> Sequence[Lease]:
        """Return leases that were read at most a moment ago."""
        if self._clock.monotonic() >= self._at + self.FRESH:
            self._leases, self._at = self._store.leases(), self._clock.monotonic()
        return self._leases

    def forget(self) -> None:
        """Read again at the next call. May be called from any thread."""
        self._at = float("-inf")


class ByLease(_Contest):
    """Leadership by one lease with a term, of all duties or of one.

    The other workers do not poll at a fixed rate. While they receive the leader's ticks they do nothing. Otherwise they
    read when the lease expires and try again then. With ``rotation``, a leader releases the lease after that time and stays
    away from it for one beat, so that another worker takes it; a worker that is alone then takes it again.

    ``name`` is the lease. ``load`` returns how many leases of duties this process holds. A process that holds one looks at the
    others whatever ticks it receives, lets processes with fewer leases take a released one first, and passes one on when asked.
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
        name: str = NAME,
        leases: Callable[[], Sequence[Lease]] | None = None,
        load: Callable[[], int] = int,
    ) -> None:
        super().__init__(
            store, clock, beat=beat.total_seconds(), expiry=expiry.total_seconds(), random=random
        )
        self.name, self._leases, self._load = name, leases or store.leases, load
        self._asked = False
        self._yields_until: float | None = None
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
        asked, self._asked = self._asked, False
        if self.leading:
            return self._keep(lease_data, now, asked=asked and self._load() > 1)
        if now < self._away_until:
            self._at = self._away_until
            return False
        if invited and self._yields_until is None:
            self._yields_until = now + _COURTESY * self._load()
        if self._yields_until is not None:
            self._at = self._yields_until
            if now < self._at:
                return False
            invited, self._yields_until = True, None
        if not invited and self._away_until == float("-inf"):
            quiet = self._quiet_until()
            if self._at <= now < quiet:
                self._at = quiet + self._jitter()
            if now < self._at:
                return False
        self._try()
        return True

    def _keep(self, lease_data: LeaseData, now: float, *, asked: bool) -> bool:
        """Renew the lease or pass it on, as is due now."""
        if not self.sure():
            self._lose("it was not renewed in time", now)
            return False
        if asked or (self._rotation is not None and now >= self._since + self._rotation):
            self._pass_on(now)
            return True
        if now < self._at:
            return False
        self._renew(lease_data, now)
        return True

    def hear(self, topics: frozenset[str]) -> bool:
        asked = self.leading and self.name + ASK in topics
        self._asked |= asked
        return super().hear(topics) or asked

    def looks_before(self, at: float) -> bool:
        """Whether this process does not lead and would look at the lease before this time."""
        return not self.leading and self._yields_until is None and self._away_until < self._at < at

    def look_now(self) -> None:
        """Look at the lease in the next step."""
        self._at = self._clock.monotonic()

    def _quiet_until(self) -> float:
        """The time until which a recent tick makes a look unnecessary.

        That is up to one second less than the expiry, so that a look follows before the lease of a dead leader expires.
        """
        if self._listener is None or self._load():
            return float("-inf")
        return self._listener.heard_at(TICK) + self._expiry - min(1.0, self._expiry / 8)

    def _pass_on(self, now: float) -> None:
        """Release the lease for another worker."""
        self.leading = False
        self._away_until = self._at = now + self._beat
        self._store.release(self.name, self._holder, self._term)
        _log.info("worker %s passes %s on, after term %d", self._holder, _what(self.name), self._term)
        with contextlib.suppress(StoreError):
            self._store.notify([self.name])

    def _renew(self, lease_data: LeaseData, now: float) -> None:
        if self._store.renew(self.name, self._holder, self._term, ttl=self._ttl, metadata=lease_data()):
            self._sent, self._at = now, now + self._beat
        else:
            self._lose("the store refused to renew it", now + self._pause())

    def _lose(self, why: str, at: float) -> None:
        self.leading = False
        self._at = at
        _log.warning("worker %s no longer runs %s: it lost the lease of term %d: %s",
                     self._holder, _what(self.name), self._term, why)  # fmt: skip

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
        lease = self._store.acquire(self.name, self._holder, ttl=self._ttl, stale=stale)
        if lease is None:
            self._in(self._pause())
            return
        # The next step renews the lease at once, which records the holder.
        self._term, self._sent, self._at, self.leading = lease.term, sent, sent, True
        self._since = sent
        _log.info("worker %s runs %s with the lease of term %d", self._holder, _what(self.name), self._term)

    def _left(self) -> float:
        """Seconds until the lease may be taken, even if the store's clock differs from the local one.

        A beat renews the lease for its whole length. So it cannot last longer than that length from when the beat is
        first seen, measured by the monotonic clock, whatever the local wall clock shows.
        """
        lease = next((lease for lease in self._leases() if lease.name == self.name), None)
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
                self._store.release(self.name, self._holder, self._term)
            except StoreError as error:
                _log.warning("cannot release the lease of %s; it will expire: %s", _what(self.name), error)
            with contextlib.suppress(StoreError):
                self._store.notify([self.name])


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
