"""Workers and leases in memory.

The store reports overdue and orphaned jobs but does not act on them: the caller decides and calls ``finish``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.cluster import CancelRequest, Heartbeat, Lease, Pulse, Worker, WorkerState
from tidemill.domain.job import Claim
from tidemill.domain.states import JobState
from tidemill.domain.worker_reports import Scale, ScaleRequest, WorkerReport
from tidemill.errors import UsageError
from tidemill.stores.base import LeaseStore, Lock, RecoveryStore, WorkerStore
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.copies import json_copy
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State, claim_of
from tidemill.stores.requests import NO_REPORTS, RequestStore


class MemoryWorkers(MemoryPart, WorkerStore, RequestStore, RecoveryStore):
    """Liveness, one row per worker."""

    def register(self, worker: Worker, *, lease: timedelta, now: datetime | None = None) -> Worker:
        with self._open() as state:
            moment = self._at(now)
            if worker.id in state.workers:
                raise UsageError(
                    f"worker {worker.id} is already registered; use a new id at every start", id=worker.id
                )
            worker = replace(
                worker, started_at=moment, beat_at=moment, expires_at=moment + lease, beats=0, paused=False
            )
            state.workers[worker.id] = worker
            return worker

    def beat(
        self,
        ids: Collection[UUID],
        *,
        lease: timedelta,
        reports: Mapping[UUID, WorkerReport] = NO_REPORTS,
        now: datetime | None = None,
    ) -> Pulse:
        with self._open() as state:
            moment = self._at(now)
            expires_at = moment + lease
            alive = [worker for id in set(ids) if (worker := state.workers.get(id)) and not _gone(worker)]
            for worker in alive:
                report = reports.get(worker.id)
                state.workers[worker.id] = replace(
                    worker,
                    beat_at=moment,
                    expires_at=expires_at,
                    beats=worker.beats + 1,
                    report=report or worker.report,
                    concurrency=worker.concurrency if report is None else report.slots.total,
                )
            living = frozenset(worker.id for worker in alive)
            return Pulse(
                living,
                frozenset(worker.id for worker in alive if worker.state is WorkerState.DRAINING),
                _cancels(state, living),
                frozenset(worker.id for worker in alive if _place(worker) in state.worker_pauses),
                {
                    worker.id: state.worker_scales[worker.supervisor]
                    for worker in alive
                    if worker.supervisor in state.worker_scales
                },
            )

    def retire(self, ids: Collection[UUID], *, crashed: bool = False, now: datetime | None = None) -> None:
        with self._open() as state:
            moment = self._at(now)
            for id in ids:
                worker = state.workers.get(id)
                if worker is not None:
                    ends = moment if worker.expires_at is None else min(worker.expires_at, moment)
                    beat_at = worker.beat_at if crashed else max(worker.beat_at or moment, moment)
                    state.workers[id] = replace(
                        worker, state=WorkerState.STOPPED, expires_at=ends, beat_at=beat_at
                    )

    def drain(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            changed = set()
            for id in ids:
                worker = state.workers.get(id)
                if worker is not None and worker.state is WorkerState.ACTIVE:
                    state.workers[id] = replace(worker, state=WorkerState.DRAINING)
                    changed.add(id)
            return frozenset(changed)

    def pause_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            asked = [worker for id in ids if (worker := state.workers.get(id)) and not _gone(worker)]
            new = {
                worker.id: (worker.supervisor, worker.place)
                for worker in asked
                if worker.supervisor is not None and _place(worker) not in state.worker_pauses
            }
            state.worker_pauses.update(new.values())
            return frozenset(new)

    def resume_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            asked = [worker for id in ids if (worker := state.workers.get(id))]
            paused = {worker.id: _place(worker) for worker in asked if _place(worker) in state.worker_pauses}
            state.worker_pauses = {pause for pause in state.worker_pauses if pause not in paused.values()}
            return frozenset(paused)

    def scale(self, supervisor: UUID, scale: Scale) -> bool:
        with self._open() as state:
            if all(_gone(row) for row in state.workers.values() if row.supervisor == supervisor):
                return False
            before = state.worker_scales.get(supervisor)
            state.worker_scales[supervisor] = ScaleRequest(1 if before is None else before.number + 1, scale)
            return True

    def workers(self) -> list[Worker]:
        with self._open() as state:
            shown = [
                replace(worker, paused=_place(worker) in state.worker_pauses)
                for worker in state.workers.values()
            ]
            rows = sorted(shown, key=lambda worker: worker.id.int, reverse=True)
            return sorted(rows, key=lambda worker: _known(worker.started_at), reverse=True)

    def heartbeats(self, *, now: datetime | None = None) -> list[Heartbeat]:
        with self._open() as state:
            moment = self._at(now)
            return [
                Heartbeat(id, worker.beats, ends - _known(worker.beat_at), ends - moment)
                for id, worker in sorted(state.workers.items())
                if not _gone(worker)
                for ends in [_known(worker.expires_at)]
            ]

    def declare_gone(
        self, seen: Collection[tuple[UUID, int]], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            still = {
                id
                for id, beats in seen
                if (worker := state.workers.get(id)) and worker.beats == beats and not _gone(worker)
            }
            self.retire(still, crashed=True, now=now)
            return frozenset(still)

    def orphans(self, limit: int) -> list[Claim]:
        with self._open() as state:
            present = {id for id, worker in state.workers.items() if not _gone(worker)}
            lonely = [job for id in state.held if (job := state.jobs[id]).worker not in present]
            lonely.sort(key=lambda job: (_known(job.claimed_at), job.id))
            return [claim_of(job) for job in lonely[: max(limit, 0)]]

    def overdue(self, limit: int, *, now: datetime | None = None) -> list[Claim]:
        with self._open() as state:
            moment = self._at(now)
            late = []
            for id in state.held:
                job = state.jobs[id]
                if job.state is JobState.RUNNING and job.timeout is not None:
                    # Compared as ages, because a very long timeout may end beyond the calendar.
                    over = moment - _known(job.started_at) - job.timeout
                    if over >= timedelta(0):
                        late.append((-over, id))
            return [claim_of(state.jobs[id]) for _, id in sorted(late)[: max(limit, 0)]]

    def sweep(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        with self._open() as state:
            moment = self._at(now)
            unique_keys.sweep(state, moment)
            before = moment - older_than
            busy = {state.jobs[id].worker for id in state.held}
            gone = [
                id
                for id, worker in state.workers.items()
                if _gone(worker) and _known(worker.expires_at) <= before and id not in busy
            ]
            for id in gone:
                del state.workers[id]
            left = {worker.supervisor for worker in state.workers.values()}
            state.worker_pauses = {pause for pause in state.worker_pauses if pause[0] in left}
            state.worker_scales = {id: scale for id, scale in state.worker_scales.items() if id in left}
            return len(gone)


class MemoryLeases(MemoryPart, LeaseStore):
    """Named leases for duties."""

    def acquire(
        self,
        name: str,
        holder: UUID,
        *,
        ttl: timedelta,
        stale: tuple[int, datetime] | None = None,
        now: datetime | None = None,
    ) -> Lease | None:
        with self._open() as state:
            moment = self._at(now)
            expires_at = moment + ttl
            old = state.leases.get(name)
            if old is None or old.holder is None or _known(old.expires_at) <= moment:
                term = 1 if old is None else old.term + 1
                lease = Lease(name, holder, term, acquired_at=moment, beat_at=moment, expires_at=expires_at)
            elif old.holder == holder:
                lease = replace(old, beat_at=moment, expires_at=expires_at)
            elif stale == (old.term, old.beat_at):
                lease = Lease(
                    name, holder, old.term + 1, acquired_at=moment, beat_at=moment, expires_at=expires_at
                )
            else:
                return None
            state.leases[name] = lease
            return _shown(lease)

    def renew(
        self,
        name: str,
        holder: UUID,
        term: int,
        *,
        ttl: timedelta,
        metadata: Mapping[str, object] | None = None,
        now: datetime | None = None,
    ) -> bool:
        with self._open() as state:
            moment = self._at(now)
            lease = _own(state, name, holder, term)
            if lease is None or _known(lease.expires_at) <= moment:
                return False
            words = lease.metadata if metadata is None else json_copy(metadata)
            state.leases[name] = replace(lease, beat_at=moment, expires_at=moment + ttl, metadata=words)
            return True

    def release(self, name: str, holder: UUID, term: int) -> bool:
        with self._open() as state:
            lease = _own(state, name, holder, term)
            if lease is None:
                return False
            state.leases[name] = replace(lease, holder=None, expires_at=None)
            return True

    def leases(self) -> list[Lease]:
        with self._open() as state:
            return [_shown(lease) for _, lease in sorted(state.leases.items())]

    def hold(self, name: str) -> Lock | None:
        with self._open():
            return self._locks.take(name)


def _known(instant: datetime | None) -> datetime:
    """An instant that the store itself has written and that therefore exists."""
    assert instant is not None
    return instant


def _gone(worker: Worker) -> bool:
    return worker.state is WorkerState.STOPPED


def _place(worker: Worker) -> tuple[UUID | None, int]:
    return worker.supervisor, worker.place


def may_claim(state: State, worker: UUID, now: datetime) -> bool:
    """Whether this worker is registered, was not declared gone, and has an unexpired lease."""
    row = state.workers.get(worker)
    return row is not None and not _gone(row) and _known(row.expires_at) > now


def _cancels(state: State, workers: frozenset[UUID]) -> list[CancelRequest]:
    """The held jobs of these workers with a cancel request, by id."""
    found = []
    for job in sorted((state.jobs[id] for id in state.held), key=lambda job: job.id.int):
        if job.worker in workers and job.cancel_reason is not None:
            assert job.worker is not None
            found.append(CancelRequest(job.id, job.token, job.worker, job.cancel_reason))
    return found


def _own(state: State, name: str, holder: UUID, term: int) -> Lease | None:
    lease = state.leases.get(name)
    return lease if lease is not None and lease.holder == holder and lease.term == term else None


def _shown(lease: Lease) -> Lease:
    return replace(lease, metadata=json_copy(lease.metadata))
