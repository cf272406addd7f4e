"""Signals and events in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, page_size
from tidemill.domain.job import Finish, JobRow, Move
from tidemill.domain.signals import (
    MOST_UNREAD,
    QUESTION,
    EmittedEvent,
    NewSignal,
    Posted,
    SignalFence,
    StoredSignal,
    StoredWait,
    Taken,
    signal_record,
)
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import ControlStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.occurrences import TOPIC, note_events
from tidemill.stores.memory.state import State
from tidemill.stores.signals import Delivered, EventStore, Receiver, SignalStore, UnreadSignals

WOKEN = "a signal or event arrived"
_WAITING = frozenset({JobState.WAITING})


class MemorySignals(MemoryPart, ControlStore, SignalStore, EventStore):
    """Signals, waits and events."""

    def post_signals(self, signals: Sequence[NewSignal], *, now: datetime | None = None) -> list[Posted]:
        with self._open() as state:
            moment = self._at(now)
            return [_post(state, signal, moment) for signal in signals]

    def deliver_signal(self, signal: NewSignal, *, now: datetime | None = None) -> Delivered:
        with self._open():
            (answer,) = self.post_signals([signal], now=now)
            woken = self.wake_receivers([signal.job_id], now=now) if answer is Posted.ACCEPTED else []
            return Delivered(answer, woken)

    def take_signal(
        self,
        fence: SignalFence,
        names: Collection[str],
        record: str,
        *,
        before: datetime | None = None,
        now: datetime | None = None,
    ) -> Taken:
        with self._open() as state:
            job = state.find_held(*fence)
            if job is None:
                return Taken(None, lost=True)
            records = state.checkpoints.setdefault(fence.job_id, {})
            if record not in records:
                unread = state.signals.get(fence.job_id, [])
                ripe = [
                    signal
                    for signal in unread
                    if signal.name in names and (before is None or signal.created_at <= before)
                ]
                if not ripe:
                    return Taken(None)
                unread.remove(ripe[0])
                records[record] = signal_record(ripe[0])
                state.rewrite(replace(job, attempt=1, crashes=0))
            return Taken(records[record])

    def signals(self, job_id: UUID, *, tenant: str, after: int = 0, limit: int = 100) -> list[StoredSignal]:
        size = page_size(limit)
        with self._open() as state:
            return [
                signal
                for signal in state.signals.get(job_id, [])
                if signal.position > after and tenant in (ALL_TENANTS, signal.tenant)
            ][:size]

    def waits(self, ids: Collection[UUID], *, tenant: str) -> list[StoredWait]:
        with self._open() as state:
            return [
                wait
                for id in sorted(set(ids))
                if (job := state.find(id, tenant)) is not None
                for wait in _open_waits(state, job)
            ]

    def questions(self, *, tenant: str, after: UUID | None = None, limit: int = 100) -> list[StoredWait]:
        size = page_size(limit)
        with self._open() as state:
            ids = [id for id in state.waits if after is None or id > after]
            waits = self.waits(ids, tenant=tenant)
        return [wait for wait in waits if not wait.event and wait.name.startswith(QUESTION)][:size]

    def wake_receivers(
        self,
        ids: Collection[UUID] | None = None,
        *,
        event_id: UUID | None = None,
        within: timedelta | None = None,
        limit: int = 500,
        now: datetime | None = None,
    ) -> list[Receiver]:
        with self._open() as state:
            since = None if within is None or ids is not None else self._at(now) - within
            events = list(state.events.values()) if event_id is None else _some(state.events.get(event_id))
            waiting = [
                job
                for id in sorted(state.waits if ids is None else set(ids))
                if (job := state.jobs.get(id)) is not None
                and any(
                    _arrived(state, wait, events, since, event_id is None) for wait in _open_waits(state, job)
                )
            ]
            if ids is None:
                waiting = waiting[: max(limit, 0)]
            moves = [Move(job.id, job.tenant, _WAITING, JobState.PENDING, WOKEN) for job in waiting]
            woken = self.move(moves, now=now)
            return [Receiver(job.id, job.queue) for job in waiting if job.id in woken]

    def unread_signals(self) -> UnreadSignals:
        with self._open() as state:
            unread = [signal.created_at for signals in state.signals.values() for signal in signals]
            return UnreadSignals(len(unread), min(unread, default=None))

    def emit(self, events: Sequence[EmittedEvent], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            fresh: dict[UUID, EmittedEvent] = {}
            for event in events:
                if event.id not in state.events:
                    fresh.setdefault(event.id, event._replace(created_at=moment))
            state.events |= fresh
            if note_events(state, fresh.values()):
                self._bell.ring([TOPIC])
            return frozenset(fresh)

    def events(
        self,
        *,
        tenant: str,
        name: str | None = None,
        match: str | None = None,
        since: datetime | None = None,
        before: tuple[datetime, UUID] | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> list[EmittedEvent]:
        size = page_size(limit)
        with self._open() as state:
            ordered = sorted(state.events.values(), key=_place, reverse=newest)
        return [
            event
            for event in ordered
            if tenant in (ALL_TENANTS, event.tenant)
            and name in (None, event.name)
            and match in (None, event.match)
            and (since is None or _place(event)[0] >= since)
            and (before is None or _place(event) < before)
        ][:size]

    def drop_events(self, older_than: timedelta, *, limit: int, now: datetime | None = None) -> int:
        with self._open() as state:
            before = self._at(now) - older_than
            old = sorted(event for event in map(_place, state.events.values()) if event[0] < before)
            dropped = old[: max(limit, 0)]
            for _, id in dropped:
                del state.events[id]
            return len(dropped)


def write_waits(state: State, finish: Finish) -> None:
    """Replace the waits of a job that this accepted finish suspended."""
    claim = finish.claim
    waits = () if finish.additions is None else finish.additions.waits
    rows = {
        (wait.event, wait.name, wait.match): StoredWait(
            claim.id, wait.name, wait.match, wait.event, wait.since or claim.created_at
        )
        for wait in waits
    }
    state.waits.pop(claim.id, None)
    if rows:
        state.waits[claim.id] = (claim.token, tuple(rows[key] for key in sorted(rows)))


def _post(state: State, signal: NewSignal, now: datetime) -> Posted:
    job = state.find(signal.job_id, signal.tenant)
    if job is None:
        return Posted.MISSING
    if signal.key is not None and signal.key in state.signal_keys.get(job.id, frozenset()):
        return Posted.REPEATED
    if job.state in ENDED:
        return Posted.ENDED
    unread = state.signals.setdefault(job.id, [])
    if len(unread) >= MOST_UNREAD:
        return Posted.FULL
    state.last_position += 1
    fields = (job.id, job.tenant, signal.name, signal.payload, signal.key, signal.source, now)
    unread.append(StoredSignal(state.last_position, *fields))
    if signal.key is not None:
        state.signal_keys[job.id] = state.signal_keys.get(job.id, frozenset()) | {signal.key}
    return Posted.ACCEPTED


def _open_waits(state: State, job: JobRow) -> tuple[StoredWait, ...]:
    """The waits of a job while it is suspended by the execution that wrote them."""
    token, waits = state.waits.get(job.id, (0, ()))
    return waits if job.state is JobState.WAITING and job.token == token else ()


def _arrived(
    state: State, wait: StoredWait, events: Sequence[EmittedEvent], since: datetime | None, signals: bool
) -> bool:
    if wait.event:
        tenant = state.jobs[wait.job_id].tenant
        return any(
            (event.tenant, event.name) == (tenant, wait.name)
            and wait.match in ("", event.match)
            and _place(event)[0] >= max(wait.since_at, since or wait.since_at)
            for event in events
        )
    return signals and any(
        signal.name == wait.name and (since is None or signal.created_at >= since)
        for signal in state.signals.get(wait.job_id, [])
    )


def _place(event: EmittedEvent) -> tuple[datetime, UUID]:
    assert event.created_at is not None
    return event.created_at, event.id


def _some(event: EmittedEvent | None) -> list[EmittedEvent]:
    return [] if event is None else [event]
