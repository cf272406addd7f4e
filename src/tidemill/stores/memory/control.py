"""Job control in memory: moves, cancel requests and deletion.

A held job must not be changed, except for its cancel request.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import Change, JobRow, Move
from tidemill.domain.states import ENDED, HELD
from tidemill.stores.base import ControlStore
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.core import MemoryPart, refuse_repeats


class MemoryControl(MemoryPart, ControlStore):
    """The verbs of operators and duties."""

    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            refuse_repeats(move.id for move in moves)
            planned = []
            for move in moves:
                job = state.find(move.id, move.tenant)
                if job is not None and job.state in move.expect - HELD:
                    planned.append((job, _moved(job, move, moment), move.lets_go))
            changed = set()
            for before, after, lets_go in planned:
                if before.state in ENDED and not unique_keys.retake(state, after, moment):
                    continue
                state.place(after)
                if after.state in ENDED and lets_go:
                    unique_keys.drop(state, after.id)
                elif after.state in ENDED:
                    unique_keys.release(state, after, moment)
                changed.add(after.id)
            return frozenset(changed)

    def change(self, changes: Sequence[Change]) -> frozenset[UUID]:
        with self._open() as state:
            refuse_repeats(change.id for change in changes)
            changed = []
            for change in changes:
                job = state.find(change.id, change.tenant)
                if job is not None and job.state in change.expect:
                    queue = job.queue if change.queue is None else change.queue
                    priority = job.priority if change.priority is None else change.priority
                    changed.append(replace(job, queue=queue, priority=priority))
            state.relabel(changed)
            return frozenset(job.id for job in changed)

    def request_cancel(self, ids: Collection[UUID], *, tenant: str, reason: str) -> frozenset[UUID]:
        with self._open() as state:
            held = set()
            for id in ids:
                job = state.find(id, tenant)
                if job is None or job.state not in HELD:
                    continue
                held.add(id)
                if job.cancel_reason is None:
                    state.rewrite(replace(job, cancel_reason=reason))
            return frozenset(held)

    def delete(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        with self._open() as state:
            found = [
                job for id in set(ids) if (job := state.find(id, tenant)) is not None and job.state in ENDED
            ]
            for job in found:
                state.remove(job.id)
                unique_keys.drop(state, job.id)
            return frozenset(job.id for job in found)


def _moved(job: JobRow, move: Move, now: datetime) -> JobRow:
    """The job after a move. No worker holds it: only a claim assigns a job to a worker."""
    if move.restart:
        job = replace(job, attempt=0, crashes=0)
    if move.state in ENDED:
        result = job.result if move.result is None else move.result
        return replace(job, state=move.state, reason=move.reason, finished_at=now, result=result)
    return replace(
        job,
        state=move.state,
        reason=move.reason,
        run_at=now + move.delay,
        worker=None,
        claimed_at=None,
        started_at=None,
        finished_at=None,
        result=None,
        error=None,
        cancel_reason=None,
        progress=None,
    )
