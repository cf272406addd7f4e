"""Tells what happens to jobs here: events to subscribers in this process, wake-ups to those who wait elsewhere.

A wake-up costs the store a write, so those that merely shorten somebody's poll are sent freely only while somebody watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from tidemill.clock import Clock
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.ear import Ear
from tidemill.engine.finisher import Settled, topics
from tidemill.engine.held import Held
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Events

WATCHED = 60.0
"""Seconds a watcher is believed to watch after it was last heard."""

FREE = 20.0
"""Wake-ups a second that are sent in any case: at low load nobody waits for a poll."""


class News:
    """Tells ``ended`` and ``progress`` as far as it is worth it; everything else is passed on as it is."""

    def __init__(self, store: Store, clock: Clock, ear: Ear | None, events: Events | None) -> None:
        self._store, self._clock, self._ear, self._events = store, clock, ear, events
        self._credit = FREE
        self._counted_at = clock.monotonic()

    def started(self, jobs: Sequence[Held]) -> None:
        """These jobs have been claimed here and begin."""
        if self._events is not None and self._events.wanted:
            for held in jobs:
                self._publish("job.started", held, JobState.RUNNING)

    def finished(self, settled: Sequence[Settled]) -> None:
        """These jobs' ends are written."""
        self.wake(topics(settled))
        if self._events is not None and self._events.wanted:
            for item in settled:
                state = item.transition.state
                self._publish("job.finished" if state in ENDED else "job.put_off", item.held, state)

    def _publish(self, name: str, held: Held, state: JobState) -> None:
        assert self._events is not None
        claim = held.claim
        self._events.publish(Event(name, self._clock.now(), claim.id, claim.task, claim.tenant, state))

    def wake(self, concerned: Iterable[str]) -> None:
        """Wake whoever these topics concern."""
        wanted = set(concerned)
        hints = wanted & {"ended", "progress"}
        if hints and not self._affordable():
            wanted -= hints
        if wanted:
            with suppress(StoreError):  # a hint that cannot be given is no failure of what was done
                self._store.notify(wanted)

    def _affordable(self) -> bool:
        now = self._clock.monotonic()
        if self._ear is not None and now - self._ear.heard_at("watch") < WATCHED:
            return True
        self._credit = min(FREE, self._credit + (now - self._counted_at) * FREE)
        self._counted_at = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True
