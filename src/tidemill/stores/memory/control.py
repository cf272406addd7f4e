"""Job control in memory: moves, cancel requests and deletion.

A held job must not be changed, except for its cancel request.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.graph import outcome_of
from tidemill.domain.job import Change, JobRow, Move
from tidemill.domain.join_counts import Ended
from tidemill.domain.states import ENDED, HELD, ExecutionState, JobState
from tidemill.domain.subscriptions import row_event
from tidemill.stores.base import ControlStore
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.core import refuse_repeats
from tidemill.stores.memory.job_events import MemoryJobEvents
from tidemill.stores.memory.join_counts import count_ends
from tidemill.stores.memory.occurrences import TOPIC, note_ends
from tidemill.stores.memory.state import State


class MemoryControl(MemoryJobEvents, ControlStore):
    """The verbs of operators and duties."""

    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            refuse_repeats(move.id for move in moves)
            planned = []
            for move in moves:
                job = state.find(move.id, move.tenant)
                if job is not None and job.state in move.expect - HELD:
                    planned.append((job, _moved(_with_start(state, job), move, moment), move.lets_go))
            changed = set()
            ends: list[Ended] = []
            for before, after, lets_go in planned:
                if before.state in ENDED and not unique_keys.retake(state, after, moment):
                    continue
                state.waits.pop(after.id, None)
                if after.id in state.tied and before.state in ENDED:
                    ends.append(Ended(after.id, outcome_of(before.state), back=True))
                elif after.id in state.tied and after.state in ENDED:
                    ends.append(Ended(after.id, outcome_of(after.state)))
                state.place(after)
                if after.state in ENDED:
                    state.ends.append((after, after.state, None))
                if after.state in ENDED and lets_go:
                    unique_keys.drop(state, after.id)
                elif after.state in ENDED:
                    unique_keys.release(state, after, moment)
                changed.add(after.id)
                state.unreachable.pop(after.id, None)
            self._append_moved(moves, [after for _, after, _ in planned if after.id in changed], moment)
            self._ring(count_ends(state, ends, moment))
            if ends and note_ends(state, ends, moment):
                self._bell.ring([TOPIC])
            return frozenset(changed)

    def _append_moved(self, moves: Sequence[Move], changed: Sequence[JobRow], now: datetime) -> None:
        if self.subscriptions:
            named = {move.id: move for move in moves if move.event_name}
            events = [
                row_event(named[job.id].event_name, job, named[job.id].event_data)
                for job in changed
                if job.id in named
            ]
            self.append_events(events, now=now)

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
                job
                for id in set(ids)
                if (job := state.find(id, tenant)) is not None
                and job.state in ENDED
                and not state.kept_by_flow(id)
            ]
            for job in found:
                state.remove(job.id)
                unique_keys.drop(state, job.id)
            return frozenset(job.id for job in found)


def _with_start(state: State, job: JobRow) -> JobRow:
    """The job with the start of the execution that requested a review, if a person decides about it now."""
    if job.state is not JobState.REVIEW_NEEDED:
        return job
    asked = (
        each
        for each in state.executions.get(job.id, ())
        if each.number == job.token and each.state is ExecutionState.REVIEW
    )
    last = next(asked, None)
    return job if last is None else replace(job, started_at=last.started_at)


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
