"""Publisher of job events in this process and of wake-ups to other processes.

A wake-up costs the store a write. Wake-ups that only shorten a poll are therefore rate-limited unless a watcher is
active.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from tidemill.clock import Clock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.subscriptions import STARTED, TOPIC, NewEvent, started_event, wants_any
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.listener import WakeupListener
from tidemill.engine.wakeup_topics import topics
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Events

_log = logging.getLogger("tidemill.engine")

WATCHED = 60.0
"""Seconds after its last message for which a watcher counts as active."""

FREE = 20.0
"""Wake-ups per second that are sent even without a watcher, so that clients need not wait for a poll at low load."""


def publish_enqueued(store: Store, clock: Clock, events: Events, jobs: Sequence[NewJob]) -> None:
    """Publish events for jobs that a completion enqueued, except those whose unique key was already taken."""
    unsure = {job.id for job in jobs if job.unique is not None}
    if unsure:
        with suppress(StoreError):  # on failure, jobs with a unique key are left out
            unsure -= {job.id for job in store.get(unsure, tenant=ALL_TENANTS)}
    now = clock.now()
    for job in jobs:
        if job.id not in unsure:
            later = job.delay is not None or (job.run_at is not None and job.run_at > now)
            state = JobState.SCHEDULED if later else JobState.PENDING
            events.publish(Event("job.enqueued", now, job.id, job.task, job.tenant, state))


class Publisher:
    """Publishes events and wake-ups.

    The topics ``ended`` and ``progress`` are rate-limited; all other topics are always sent.
    """

    def __init__(
        self, store: Store, clock: Clock, listener: WakeupListener | None, events: Events | None
    ) -> None:
        self._store, self._clock, self._listener, self._events = store, clock, listener, events
        self._credit = FREE
        self._counted_at = clock.monotonic()

    def started(self, jobs: Iterable[HeldJob]) -> None:
        """Publish that these jobs have been claimed and are starting."""
        if self._store.subscriptions and wants_any(self._store.subscriptions, STARTED):
            jobs = list(jobs)
            self._record([started_event(held.claim) for held in jobs])
        if self._events is not None and self._events.wanted:
            for held in jobs:
                self._publish("job.started", held, JobState.RUNNING)

    def _record(self, events: Sequence[NewEvent]) -> None:
        """Record starts for the subscriptions that want them. A start is no change of the job, so it may be lost."""
        try:
            if self._store.append_events(events):
                self._store.notify([TOPIC])
        except StoreError as error:
            _log.warning("cannot record the start of %d jobs: %s", len(events), error)

    def finished(self, settled: Sequence[Settled]) -> None:
        """Publish that the outcomes of these jobs have been written."""
        self.wake(topics(settled))
        if self._events is not None and self._events.wanted:
            for item in settled:
                state = item.transition.state
                self._publish("job.finished" if state in ENDED else "job.put_off", item.held, state)
            publish_enqueued(
                self._store, self._clock, self._events, [job for item in settled for job in item.then]
            )

    def publish(self, event: Event) -> None:
        """Publish an event of a job that runs in a child process."""
        if self._events is not None:
            self._events.publish(event)

    def _publish(self, name: str, held: HeldJob, state: JobState) -> None:
        assert self._events is not None
        claim = held.claim
        self._events.publish(Event(name, self._clock.now(), claim.id, claim.task, claim.tenant, state))

    def wake(self, concerned: Iterable[str]) -> None:
        """Send wake-ups for these topics."""
        wanted = set(concerned)
        hints = wanted & {"ended", "progress"}
        if hints and not self._affordable():
            wanted -= hints
        if wanted:
            with suppress(StoreError):  # a wake-up is a hint: failing to send it does not undo the work
                self._store.notify(wanted)

    def _affordable(self) -> bool:
        now = self._clock.monotonic()
        if self._listener is not None and now - self._listener.heard_at("watch") < WATCHED:
            return True
        self._credit = min(FREE, self._credit + (now - self._counted_at) * FREE)
        self._counted_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True
