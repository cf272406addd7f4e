"""Duties: recurring maintenance of all jobs, and the loop that runs them.

The loop decides when a duty runs. The duties themselves are in ``duties/``. A failed duty never ends the loop. Two
loops may run the same duty at once, because duties only use compare-and-set operations of the store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import LEASE_BEAT, LEASE_EXPIRY, SPREAD, Coordination
from tidemill.domain.payload import clip
from tidemill.engine.duty_leases import MODE, DutyLeases
from tidemill.engine.leadership import ByLease, ByLock, Everyone, Leadership
from tidemill.engine.listener import WakeupListener
from tidemill.engine.unused_lease import UnusedLease
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.wakeup_messages import CHANGE

_log = logging.getLogger("tidemill.engine")

# Seconds before a duty runs again that found nothing although something should have been due.
_SHORTEST = 0.02
# Minimum seconds between two runs of a duty, however often it is woken.
_GAP = 0.05
# The same for wake-ups that do not name what changed: some stores send one with every write.
_VAGUE_GAP = 1.0
_AGAIN = 1.0  # seconds after a failure; doubled each time
_ROUNDS = 10_000  # the maximum number of runs of a duty in one call of run_once
_JOIN = 15.0  # seconds; longer than any store call can block
_EMPTY_RUNS = 3  # runs that found nothing, after which a duty is at rest


class Done(NamedTuple):
    """The result of a duty: how many items it changed, when it is next needed (store time), and whether more is due now."""

    items: int = 0
    next_at: datetime | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Duty:
    """A function to run at least ``every`` so often, and soon after a notification of one of ``topics``.

    With ``at_rest``, it runs that often instead after a few runs that found nothing, until one finds something.
    ``due_after`` returns the monotonic time at which it is to run after a notification; None if it need not.
    ``beside`` names a duty with which it shares state: in a fleet with a lease for each duty, one lease is for both.
    """

    name: str
    every: timedelta
    run: Callable[[], Done]
    topics: frozenset[str] = frozenset()
    at_rest: timedelta | None = None
    due_after: Callable[[frozenset[str]], float | None] | None = None
    beside: str | None = None


class _Slot:
    """A duty's state in the loop: who leads it, when it is due, and its statistics."""

    def __init__(self, duty: Duty, due: float, lead: Leadership) -> None:
        self.duty, self.due, self.lead = duty, due, lead
        self.ended = float("-inf")
        self.failures = self.misses = self.items = self.errors = self.empty_runs = 0
        self.last_error: str | None = None
        self.last_tick: datetime | None = None
        self.took = 0.0

    def wake(self, topics: frozenset[str]) -> None:
        """Make the duty due soon if one of these topics concerns it. A failing duty keeps its retry time."""
        heard = topics & self.duty.topics
        if heard and not self.failures:
            gap = _VAGUE_GAP if heard == {CHANGE} else _GAP
            self.due = min(self.due, self.ended + gap)
        due = None if self.duty.due_after is None or self.failures else self.duty.due_after(topics)
        if due is not None:
            self.due = min(self.due, due)

    def done(self, done: Done, now: datetime, began: float, ended: float) -> None:
        if self.failures:
            _log.info("duty %s recovered after %d failures", self.duty.name, self.failures)
        self.failures, self.ended = 0, ended
        self.items += done.items
        self.empty_runs = 0 if done.items or done.more else self.empty_runs + 1
        self.last_tick, self.took = now, ended - began
        every = self._every().total_seconds()
        self.due = ended if done.more else ended + min(every, self._delay(done, now, every))

    def _every(self) -> timedelta:
        duty = self.duty
        return duty.at_rest if duty.at_rest is not None and self.empty_runs >= _EMPTY_RUNS else duty.every

    def _delay(self, done: Done, now: datetime, every: float) -> float:
        """Seconds until an item is due.

        If it is due by the local clock but the store returned none, the local clock is ahead.
        """
        if done.next_at is None:
            return every
        delay = (done.next_at - now).total_seconds()
        self.misses = 0 if delay > 0 or done.items else min(self.misses + 1, 16)
        return max(delay, _SHORTEST * float(2**self.misses))

    def failed(self, error: Exception, began: float, ended: float, spread: float) -> None:
        words = clip(f"{type(error).__name__}: {error}", 200)
        if not self.failures or type(error).__name__ != (self.last_error or "").partition(":")[0]:
            trace = None if isinstance(error, StoreError) else error
            _log.warning("duty %s failed and will be retried: %s", self.duty.name, words, exc_info=trace)
        self.failures += 1
        self.errors += 1
        self.last_error, self.ended, self.took = words, ended, ended - began
        pause = min(self.duty.every.total_seconds(), _AGAIN * 2 ** min(self.failures - 1, 16))
        self.due = ended + pause * spread

    def status(self) -> dict[str, object]:
        return {
            "last_tick": None if self.last_tick is None else self.last_tick.isoformat(),
            "items": self.items,
            "errors": self.errors,
            "last_error": self.last_error,
            "took_ms": round(self.took * 1000, 3),
            "every": max(self.duty.every, self.duty.at_rest or self.duty.every).total_seconds(),
        }


class Duties:
    """Runs duties on its own thread while it leads them, and waits to become the leader otherwise.

    ``step`` is one iteration of the loop, which tests call directly. ``run_once`` runs everything now, with or without
    the lead.
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
        lease_rotation: timedelta | None = None,
        lease_per_duty: bool = False,
        random: Random,
        listener: WakeupListener | None = None,
        describe: Callable[[], Mapping[str, object]] | None = None,
    ) -> None:
        """Initialize the loop without starting it.

        ``describe`` identifies the process to readers of the lease. Duties of one node need no lease and leave it out.
        With ``lease_per_duty`` each duty has a lease of its own, so that several processes lead at a time.
        """
        self._clock, self._random, self._listener, self._describe = clock, random, listener, describe
        unused = None
        if describe is not None and (lease_per_duty or coordination is not Coordination.LEASE):
            mode = MODE if lease_per_duty else coordination
            unused = UnusedLease(store, clock, holder, mode, lease_expiry)
        self._per_duty: DutyLeases | None = None
        lead: Leadership
        match coordination:
            case Coordination.LEASE if lease_per_duty:
                self._per_duty = DutyLeases(
                    store,
                    clock,
                    holder,
                    [duty.beside or duty.name for duty in duties],
                    beat=lease_beat,
                    expiry=lease_expiry,
                    rotation=lease_rotation,
                    random=random,
                    listener=listener,
                    unused=unused,
                )
            case Coordination.LEASE:
                lead = ByLease(
                    store,
                    clock,
                    holder,
                    beat=lease_beat,
                    expiry=lease_expiry,
                    rotation=lease_rotation,
                    random=random,
                    listener=listener,
                )
            case Coordination.ADVISORY:
                lead = ByLock(
                    store, clock, beat=lease_beat, expiry=lease_expiry, random=random, unused=unused
                )
            case _:
                lead = Everyone(unused)
        per_duty = None if self._per_duty is None else self._per_duty.leads
        self._leads: list[Leadership] = [lead] if per_duty is None else list(per_duty.values())
        now = clock.monotonic()
        # Processes that compete for the same work start at different times.
        offset = random.random() if coordination in SPREAD else 0.0
        self._slots = [
            _Slot(
                duty,
                now + offset * duty.every.total_seconds(),
                lead if per_duty is None else per_duty[duty.beside or duty.name],
            )
            for duty in duties
        ]
        # Only one duty runs at a time, even while another thread calls run_once.
        self._one = threading.Lock()
        self._changed = threading.Condition()
        self._heard: set[str] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="tidemill-duties", daemon=True)

    @property
    def leading(self) -> bool:
        """Whether this process runs the duties, or one of them, at the moment."""
        return any(lead.leading for lead in self._leads)

    def status(self) -> dict[str, object]:
        """The statistics of each duty."""
        return {slot.duty.name: slot.status() for slot in self._slots}

    def _lease_data(self, lead: Leadership) -> dict[str, object]:
        """The metadata of a lease: its holder, and the statistics of its duties."""
        holder = {} if self._describe is None else {"holder": dict(self._describe())}
        return {
            **holder,
            "duties": {slot.duty.name: slot.status() for slot in self._slots if slot.lead is lead},
        }

    def start(self) -> None:
        """Start the thread and listen for wake-ups."""
        if self._listener is not None:
            self._listener.subscribe(self._hear)
        self._thread.start()

    def close(self) -> None:
        """Stop after the current duty and release the lead. Closing twice is harmless."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)
        for lead in self._leads:
            lead.close()

    def run_once(self) -> dict[str, Done]:
        """Run every duty now, in this thread, until no work is left; raise the first error after all duties have run."""
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
        concerned = [lead.hear(topics) for lead in self._leads]
        if any(concerned) and self._per_duty is not None:
            self._per_duty.heard()
        if not any(concerned) and not self.leading:
            return  # only a leader acts on other topics
        with self._changed:
            self._heard |= topics
            self._changed.notify_all()

    def _loop(self) -> None:
        while not self._closed:
            try:
                wait = self.step()
            except Exception:  # noqa: BLE001  (all jobs depend on the duties, so the loop must continue)
                _log.exception("unexpected error in the duties; continuing")
                wait = _AGAIN
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._heard, wait)

    def step(self) -> float:
        """Keep the lead up to date, run the duty that is most overdue, and return the seconds until the next step."""
        with self._changed:
            topics, self._heard = frozenset(self._heard), set()
        led = [lead for lead in self._leads if lead.leading]
        wait = self._step_leads()
        now = self._clock.monotonic()
        slots = [slot for slot in self._slots if slot.lead.leading]
        if not slots:
            return wait
        for slot in slots:
            if slot.lead in led:
                slot.wake(topics)
            else:
                # The previous leader may have left any duty undone.
                slot.due = min(slot.due, now)
        slot = min(slots, key=lambda slot: slot.due)
        if slot.due > now:
            return min(wait, slot.due - now)
        if not slot.lead.sure():
            return 0.0  # the next step finds out whether the lead is lost
        self._do(slot)
        return 0.0  # the lease may need a renewal between two duties

    def _step_leads(self) -> float:
        """Keep every lead up to date; return the seconds until the next call."""
        if self._per_duty is not None:
            return self._per_duty.step(lambda lead: lead.step(lambda: self._lease_data(lead)))
        (lead,) = self._leads
        return lead.step(lambda: self._lease_data(lead))

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
