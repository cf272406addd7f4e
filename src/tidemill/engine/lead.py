"""Who does the duties: everyone, the holder of a lease, or whoever has a lock. It saves work and is never their safety.

It must not do a duty, and it never blocks longer than one call to the store.
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
from tidemill.engine.ear import TICK, Ear
from tidemill.errors import BadSettings, StoreError
from tidemill.stores.base import Hold, Store

_log = logging.getLogger("tidemill.engine")

NAME = "duties"
"""Of the lease, of the lock, and of the topic that tells the others when they are given back."""


Facts = Callable[[], Mapping[str, object]]

_LONG = 3600.0


class Lead(ABC):
    """A way to agree on who does the duties."""

    leading: bool = False

    @abstractmethod
    def step(self, facts: Facts) -> float:
        """Take the lead, keep it or wait, as is due now; seconds until it is to be called again."""

    @abstractmethod
    def sure(self) -> bool:
        """Whether the lead is ours beyond doubt at this moment; asked before each duty."""

    def invite(self) -> None:  # noqa: B027  (not everyone waits for an invitation)
        """Somebody gave the lead back; may be called from any thread."""

    def close(self) -> None:
        """Give it back, and say so."""
        self.leading = False


class Everyone(Lead):
    """Nobody waits for anybody: every duty is safe when two do it at once."""

    leading = True

    def step(self, facts: Facts) -> float:
        return _LONG

    def sure(self) -> bool:
        return self.leading


class _Contest(Lead):
    """What the lease and the lock have in common: trouble with the store, and when to look again."""

    def __init__(self, store: Store, clock: Clock, *, beat: float, expiry: float, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._beat, self._expiry = beat, expiry
        self._at = clock.monotonic()
        self._failures = 0
        self._invited = False

    def step(self, facts: Facts) -> float:
        invited, self._invited = self._invited, False
        try:
            if self._turn(facts, invited=invited) and self._failures:
                self._failures = 0
                _log.info("the lead of the duties can be asked for again")
        except Exception as error:  # noqa: BLE001  (whoever cannot ask now asks again; the duties must not end)
            self._failed(error)
        return max(0.0, self._at - self._clock.monotonic())

    @abstractmethod
    def _turn(self, facts: Facts, *, invited: bool) -> bool:
        """Do what is due now; whether the store was asked, and answered."""

    def invite(self) -> None:
        self._invited = True

    def _in(self, seconds: float) -> None:
        self._at = self._clock.monotonic() + seconds

    def _pause(self) -> float:
        """How long a loser waits who knows nothing: 1 to 5 s with the usual expiry."""
        return self._random.uniform(self._expiry / 8, self._expiry * 5 / 8)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            trace = None if isinstance(error, StoreError) else error
            _log.warning("the lead of the duties could not be asked for or kept: %s", error, exc_info=trace)
        # A leader has a few tries before its time is over; the others have no hurry.
        quick = min(self._beat, self._beat / 4 * 2 ** min(self._failures - 1, 8))
        self._in(quick * self._random.uniform(0.5, 1.0) if self.leading else self._pause())


class ByLease(_Contest):
    """One lease with a term. Losers do not ask at a fixed rate: while they hear the leader's ticks they do nothing, and
    otherwise they read when the lease runs out and come back then.
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
        ear: Ear | None,
    ) -> None:
        super().__init__(
            store, clock, beat=beat.total_seconds(), expiry=expiry.total_seconds(), random=random
        )
        self._holder, self._ttl, self._ear = holder, expiry, ear
        self._term = 0
        self._seen: tuple[int, datetime] | None = None  # another's term and last beat
        self._seen_ends = 0.0
        self._sent = float("-inf")  # when the last renewal that was answered had been sent
        # After three quarters of the expiry without an answer the lease counts as lost: the rest is for the duty under way.
        self._sure_for = self._expiry * 3 / 4

    def sure(self) -> bool:
        return self.leading and self._clock.monotonic() < self._sent + self._sure_for

    def _turn(self, facts: Facts, *, invited: bool) -> bool:
        now = self._clock.monotonic()
        if self.leading:
            if not self.sure():
                self._lose("it could not be renewed in time", now)
                return False
            if now < self._at:
                return False
            self._renew(facts, now)
            return True
        if not invited:
            quiet = self._quiet_until()
            if self._at <= now < quiet:
                self._at = quiet + self._jitter()
            if now < self._at:
                return False
        self._try()
        return True

    def _quiet_until(self) -> float:
        """Who has just heard a tick need not look: one second less than the expiry, so that a look follows before a lease
        that died with its leader runs out.
        """
        if self._ear is None:
            return float("-inf")
        return self._ear.heard_at(TICK) + self._expiry - min(1.0, self._expiry / 8)

    def _renew(self, facts: Facts, now: float) -> None:
        if self._store.renew(NAME, self._holder, self._term, ttl=self._ttl, metadata=facts()):
            self._sent, self._at = now, now + self._beat
        else:
            self._lose("the store says so", now + self._pause())

    def _lose(self, why: str, at: float) -> None:
        self.leading = False
        self._at = at
        _log.warning("worker %s does the duties no more, its lease of term %d is lost: %s",
                     self._holder, self._term, why)  # fmt: skip

    def _try(self) -> None:
        left = self._left()
        if left > 0:
            self._in(left + self._jitter())
            return
        sent = self._clock.monotonic()
        lease = self._store.acquire(NAME, self._holder, ttl=self._ttl)
        if lease is None:
            self._in(self._pause())
            return
        self._term, self._sent, self._at, self.leading = lease.term, sent, sent + self._beat, True
        _log.info("worker %s does the duties, by its lease of term %d", self._holder, self._term)

    def _left(self) -> float:
        """Seconds until the lease may be taken, as well as one can tell when the store's clock may be another.

        It was whole at its last beat. So from when a beat is first seen, it cannot last longer than that by the monotonic
        clock, wherever the hands of our own clock stand.
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
                _log.warning(
                    "the lease of the duties was not given back and will run out by itself: %s", error
                )
            with contextlib.suppress(StoreError):
                self._store.notify([NAME])


class ByLock(_Contest):
    """A lock of the database or of the machine, which goes with the connection or the process that took it.

    Where there can be none, everyone does the duties: that costs more, and undone duties would cost jobs.
    """

    def __init__(
        self, store: Store, clock: Clock, *, beat: timedelta, expiry: timedelta, random: Random
    ) -> None:
        super().__init__(
            store, clock, beat=beat.total_seconds(), expiry=expiry.total_seconds(), random=random
        )
        self._hold: Hold | None = None
        self._lockless = False

    def sure(self) -> bool:
        return self._lockless or (self._hold is not None and self._hold.held())

    def _turn(self, facts: Facts, *, invited: bool) -> bool:
        if self._lockless:
            self._in(_LONG)
            return False
        if not invited and self._clock.monotonic() < self._at and self.sure() == self.leading:
            return False
        if self._hold is None:
            self._ask()
        elif not self._hold.held():
            self._drop()
            _log.warning("the lock of the duties is lost")
        self._in(self._beat if self.leading else self._pause())
        return True

    def _ask(self) -> None:
        try:
            self._hold = self._store.hold(NAME)
        except BadSettings as error:
            self._lockless = True
            _log.warning("this store has no lock for the duties, so every worker does them: %s", error)
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
