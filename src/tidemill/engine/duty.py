"""Duties: what has to be done again and again for all jobs, and the one timed loop that does it.

The loop knows when, never what: what a duty does stands in its own file in ``duties/``. A duty may fail, and never ends the
loop; two loops may do the same duty at once, because duties only use verbs that compare and set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import LEASE_BEAT, LEASE_EXPIRY, Coordination
from tidemill.domain.payload import clip
from tidemill.engine.ear import Ear
from tidemill.engine.lead import NAME, ByLease, ByLock, Everyone, Lead
from tidemill.errors import StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

CHANGE = "change"
_SHORTEST = 0.02  # before a duty that found nothing is asked again for what should have been due
_GAP = 0.05  # between two runs of a duty, however often it is woken
_VAGUE_GAP = 1.0  # the same when nobody said what changed: some stores say so with every write
_AGAIN = 1.0  # after a failure, then twice that
_ROUNDS = 10_000  # the most times a duty is run in one go; there is always an end
_JOIN = 15.0  # longer than any store lets a call hang


class Done(NamedTuple):
    """What a duty did: to how many things, when it is next needed (by the store's clock), and whether there is more now."""

    items: int = 0
    next_at: datetime | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Duty:
    """Something to do ``every`` so often at the latest, and soon after one of ``topics`` is heard."""

    name: str
    every: timedelta
    run: Callable[[], Done]
    topics: frozenset[str] = frozenset()


class _Slot:
    """A duty's place in the loop: when it is due, and what is told about it."""

    def __init__(self, duty: Duty, due: float) -> None:
        self.duty, self.due = duty, due
        self.ended = float("-inf")
        self.failures = self.misses = self.items = self.errors = 0
        self.last_error: str | None = None
        self.last_tick: datetime | None = None
        self.took = 0.0

    def wake(self, topics: frozenset[str]) -> None:
        """Be due soon, if one of these topics concerns it; what fails waits for its time."""
        heard = topics & self.duty.topics
        if heard and not self.failures:
            gap = _VAGUE_GAP if heard == {CHANGE} else _GAP
            self.due = min(self.due, self.ended + gap)

    def done(self, done: Done, now: datetime, began: float, ended: float) -> None:
        if self.failures:
            _log.info("duty %s works again, after %d failures", self.duty.name, self.failures)
        self.failures, self.ended = 0, ended
        self.items += done.items
        self.last_tick, self.took = now, ended - began
        self.due = (
            ended if done.more else ended + min(self.duty.every.total_seconds(), self._delay(done, now))
        )

    def _delay(self, done: Done, now: datetime) -> float:
        """Seconds until something is due. If it is due by our clock, and the store did not think so, our clock is ahead."""
        if done.next_at is None:
            return self.duty.every.total_seconds()
        delay = (done.next_at - now).total_seconds()
        self.misses = 0 if delay > 0 or done.items else min(self.misses + 1, 16)
        return max(delay, _SHORTEST * float(2**self.misses))

    def failed(self, error: Exception, began: float, ended: float, spread: float) -> None:
        words = clip(f"{type(error).__name__}: {error}", 200)
        if not self.failures or type(error).__name__ != (self.last_error or "").partition(":")[0]:
            trace = None if isinstance(error, StoreError) else error
            _log.warning(
                "duty %s failed, and is tried again until it works: %s", self.duty.name, words, exc_info=trace
            )
        self.failures += 1
        self.errors += 1
        self.last_error, self.ended, self.took = words, ended, ended - began
        pause = min(self.duty.every.total_seconds(), _AGAIN * 2 ** min(self.failures - 1, 16))
        self.due = ended + pause * spread

    def facts(self) -> dict[str, object]:
        return {
            "last_tick": None if self.last_tick is None else self.last_tick.isoformat(),
            "items": self.items,
            "errors": self.errors,
            "last_error": self.last_error,
            "took_ms": round(self.took * 1000, 3),
        }


class Duties:
    """Does duties on a thread of its own for as long as it leads, and waits for its turn while another does.

    ``step`` is the loop's one round, which tests call by hand; ``run_once`` does everything now, whoever leads.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        holder: UUID,
        duties: Sequence[Duty],
        *,
        coordination: Coordination = Coordination.LEASE,
        lease_beat: timedelta = LEASE_BEAT,
        lease_expiry: timedelta = LEASE_EXPIRY,
        random: Random,
        ear: Ear | None = None,
    ) -> None:
        self._clock, self._random, self._ear = clock, random, ear
        self._lead: Lead
        match coordination:
            case Coordination.LEASE:
                self._lead = ByLease(
                    store, clock, holder, beat=lease_beat, expiry=lease_expiry, random=random, ear=ear
                )
            case Coordination.ADVISORY:
                self._lead = ByLock(store, clock, beat=lease_beat, expiry=lease_expiry, random=random)
            case _:
                self._lead = Everyone()
        now = clock.monotonic()
        # Those who steal work from each other do not all come at the same moment.
        offset = random.random() if coordination is Coordination.STEAL else 0.0
        self._slots = [_Slot(duty, now + offset * duty.every.total_seconds()) for duty in duties]
        self._one = threading.Lock()  # one duty at a time, also when somebody calls run_once
        self._changed = threading.Condition()
        self._heard: set[str] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="tidemill-duties", daemon=True)

    @property
    def leading(self) -> bool:
        """Whether it does the duties just now."""
        return self._lead.leading

    def facts(self) -> dict[str, object]:
        """What each duty did so far; the lease carries it, for whoever looks."""
        return {slot.duty.name: slot.facts() for slot in self._slots}

    def start(self) -> None:
        """Begin."""
        if self._ear is not None:
            self._ear.subscribe(self._hear)
        self._thread.start()

    def close(self) -> None:
        """Stop after the duty under way, and give the lead back; closing twice is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)
        self._lead.close()

    def run_once(self) -> dict[str, Done]:
        """Do every duty now, in this thread, until there is no more to do; the first error is raised when all had their turn."""
        answers: dict[str, Done] = {}
        errors: list[Exception] = []
        for slot in self._slots:
            items, rounds, done = 0, 0, Done(more=True)
            while done.more and rounds < _ROUNDS:
                answer = self._do(slot)
                if isinstance(answer, Exception):
                    errors.append(answer)
                    break
                done, rounds, items = answer, rounds + 1, items + answer.items
            answers[slot.duty.name] = done._replace(items=items)
        if errors:
            raise errors[0]
        return answers

    # The loop ----------------------------------------------------------------------------------------------------------

    def _hear(self, topics: frozenset[str]) -> None:
        if NAME in topics:
            self._lead.invite()
        elif not self._lead.leading:
            return  # what concerns the leader need not wake the others
        with self._changed:
            self._heard |= topics
            self._changed.notify_all()

    def _loop(self) -> None:
        while not self._closed:
            try:
                wait = self.step()
            except Exception:  # noqa: BLE001  (the duties are everybody's; whatever it was, go on)
                _log.exception("the duties met something unforeseen and go on")
                wait = _AGAIN
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._heard, wait)

    def step(self) -> float:
        """Look after the lead, and do the one duty that has been due the longest; seconds until there is more to do."""
        with self._changed:
            topics, self._heard = frozenset(self._heard), set()
        led = self._lead.leading
        wait = self._lead.step(self.facts)
        now = self._clock.monotonic()
        if not self._lead.leading or not self._slots:
            return wait
        for slot in self._slots:
            if led:
                slot.wake(topics)
            else:
                slot.due = min(slot.due, now)  # nobody knows what was left undone
        slot = min(self._slots, key=lambda slot: slot.due)
        if slot.due > now:
            return min(wait, slot.due - now)
        if not self._lead.sure():
            return 0.0  # the next round finds out
        self._do(slot)
        return 0.0  # between any two duties the lease may need its beat

    def _do(self, slot: _Slot) -> Done | Exception:
        with self._one:
            began = self._clock.monotonic()
            try:
                done = slot.duty.run()
            except Exception as error:  # noqa: BLE001  (a duty never ends the loop)
                slot.failed(error, began, self._clock.monotonic(), self._random.uniform(0.5, 1.0))
                return error
            slot.done(done, self._clock.now(), began, self._clock.monotonic())
            return done
