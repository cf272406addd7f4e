"""The counting of ends in PostgreSQL: one statement finishes jobs and counts their ends.

The base class counts row by row, which takes a round trip for each kind of row. It remains in use for ends that are taken back and for
new edges, which are rare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.graph import EndOutcome, FlowState, end_of_group, outcome_of
from tidemill.domain.job import Claim, Finish
from tidemill.domain.join_counts import GROUP_ENDS, UNREACHABLE, Ended
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.node_results import NO_STARTS
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import ReadStepResult, StepResult
from tidemill.stores.sql.driver import QueryCall, Row, Turn, Turns
from tidemill.stores.sql.flows import job_start_calls, job_starts
from tidemill.stores.sql.lifecycle import claim_takes, claims_of, finish_call, gated_columns
from tidemill.stores.sql.occurrences import TOPIC as OCCURRENCES
from tidemill.stores.sql.store import SqlStore

_OUTCOMES = {
    "unreachable": UNREACHABLE,
    "when_cancelled": end_of_group(cancelled=True, bad=0),
    "when_failed": end_of_group(cancelled=False, bad=1),
    "when_complete": end_of_group(cancelled=False, bad=0),
}
"""The states in which groups end, of which the row of the group selects one, and the reason of jobs that can no longer start."""


class _Counted(NamedTuple):
    """The answer to a statement that counts ends: released jobs with their queues, closed groups, and whether jobs became unreachable."""

    released: Mapping[UUID, str]
    closed: Mapping[UUID, EndOutcome]
    lost: frozenset[UUID]
    unreachable: bool


class _TiedStep(NamedTuple):
    """A written step, and the released jobs that it did not claim itself."""

    step: StepResult
    topics: frozenset[str]


class PostgresEndCounts(SqlStore):
    """Base of the PostgreSQL store."""

    def _count_ends(self, ends: Sequence[Ended], now: datetime | None) -> None:
        super()._count_ends([end for end in ends if end.back], now)
        outcomes = {end.id: end.outcome for end in ends if not end.back}
        if outcomes:
            self.notify(self._db.run_turns(lambda: _group_turns(outcomes, now)))

    def _finish_tied(self, finishes: Sequence[Finish], now: datetime | None) -> frozenset[UUID]:
        if any(item.then or item.additions is not None for item in finishes):
            return super()._finish_tied(finishes, now)
        return self._step_tied(finishes, None, now).lost

    def _step_tied(
        self, finishes: Sequence[Finish], request: ClaimRequest | None, now: datetime | None
    ) -> StepResult:
        """Finish jobs, count their ends, and claim what this released, in one transaction of two round trips."""
        step, topics = self._db.run_turns(lambda: _step_turns(finishes, request, now))
        if topics:
            self.notify(topics)
        return step


def _step_turns(
    finishes: Sequence[Finish], request: ClaimRequest | None, now: datetime | None
) -> Turns[_TiedStep]:
    flags = ("counted",) if any(item.claim.limits is not None for item in finishes) else ()
    call = finish_call(finishes, now, *flags)
    finish = QueryCall("finish_tied", {**call.takes, **_OUTCOMES}, call.items, call.flags)
    ids = sorted(item.claim.id for item in finishes)
    locked, rows = yield Turn([QueryCall("lock_ties", {"ids": ids}), finish])
    counted = _counted(rows)
    defined = [id for id, _, defined in locked if defined and id not in counted.lost]
    released, unreachable = dict(counted.released), counted.unreachable
    if counted.closed:
        more = yield from _count_turns(counted.closed, now)
        released |= more.released
        unreachable = unreachable or more.unreachable
    noted = bool(defined) and (yield from _note_turns(defined, now))
    claims: Sequence[Claim] = ()
    starts = NO_STARTS
    if request is not None:
        claim = QueryCall("claim", claim_takes(request, now), gated_columns(request.lanes))
        ahead = _read_ahead(released, request)
        rows, *read = yield Turn([claim, *ahead], last=True)
        claims = claims_of(rows, request)
        starts = job_starts(*read) if read else NO_STARTS
        # The jobs that this step claims need no wake-up.
        for taken in claims:
            released.pop(taken.id, None)
    topics = _topics(released, closes=bool(counted.closed), unreachable=unreachable)
    step = ReadStepResult(counted.lost, list(claims))
    step.starts = starts
    return _TiedStep(step, topics | {OCCURRENCES} if noted else topics)


def _read_ahead(released: Mapping[UUID, str], request: ClaimRequest) -> list[QueryCall]:
    """The calls that read what the released jobs need to begin, in case that this step claims them."""
    queues = {lane.queue for lane in request.lanes}
    ids = [id for id, queue in released.items() if queue in queues]
    return job_start_calls(ids) if 0 < len(ids) <= request.limit else []


def _note_turns(ids: Sequence[UUID], now: datetime | None) -> Turns[bool]:
    """Write the ends of jobs of definitions for the schedules that run after these. Returns whether there are such schedules."""
    (rows,) = yield Turn([QueryCall("job_states", {"ids": ids})])
    ends = [(id, outcome_of(JobState(state))) for id, state, _ in rows if state in ENDED]
    if not ends:
        return False
    columns: dict[str, Sequence[object]] = {"id": [id for id, _ in ends], "outcome": [end for _, end in ends]}
    (noted,) = yield Turn([QueryCall("note_ends", {"now": now}, columns)])
    return bool(noted)


def _group_turns(ends: Mapping[UUID, EndOutcome], now: datetime | None) -> Turns[frozenset[str]]:
    counted = yield from _count_turns(ends, now)
    return _topics(counted.released, closes=bool(counted.closed), unreachable=counted.unreachable)


def _count_turns(ends: Mapping[UUID, EndOutcome], now: datetime | None) -> Turns[_Counted]:
    """Count these ends, then those of the groups that this closes, until none closes."""
    released: dict[UUID, str] = {}
    closed: dict[UUID, EndOutcome] = {}
    unreachable = False
    while ends:
        ids = sorted(ends)
        columns: dict[str, Sequence[object]] = {"id": ids, "outcome": [ends[id] for id in ids]}
        takes = {"now": now, **_OUTCOMES}
        _, rows = yield Turn([QueryCall("lock_ends", {"ids": ids}), QueryCall("count_ends", takes, columns)])
        counted = _counted(rows)
        released |= counted.released
        unreachable = unreachable or counted.unreachable
        ends = counted.closed
        closed |= ends
    return _Counted(released, closed, frozenset(), unreachable)


def _counted(rows: Sequence[Row]) -> _Counted:
    return _Counted(
        {id: queue for kind, id, queue in rows if kind == "released"},
        {id: outcome_of(FlowState(state)) for kind, id, state in rows if kind == "closed"},
        frozenset([id for kind, id, _ in rows if kind == "lost"]),
        any(kind == "unreachable" for kind, _, _ in rows),
    )


def _topics(released: Mapping[UUID, str], *, closes: bool, unreachable: bool) -> frozenset[str]:
    topics = {f"ready:{queue}" for queue in released.values()}
    if closes:
        topics.add(GROUP_ENDS)
    if unreachable:
        topics.add("cascade")
    return frozenset(topics)
