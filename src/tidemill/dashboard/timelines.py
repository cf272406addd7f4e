"""Periods of a job: its waits and its executions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED, ExecutionState, JobState

MOST = 12
"""Maximum number of executions to draw; of more, the last ones are drawn."""

_E = ExecutionState
_BETWEEN = {
    _E.SUSPENDED: "waiting",
    _E.REVIEW: "waiting",
    _E.RELEASED: "queued",
}
"""Kind of the wait after an execution in this state; after any other state, the job waits for its retry."""


class TimelineSpan(NamedTuple):
    """A period of one kind, in the order of the executions; ``number`` is that of the execution, None for a wait."""

    row: int
    kind: str
    since: datetime
    until: datetime
    number: int | None = None


def spans(job: JobRow, executions: Sequence[Execution], now: datetime) -> tuple[datetime, list[TimelineSpan]]:
    """Return the start of a job's timeline (its creation, or the first listed execution) and its periods until its end or now.

    >>> from datetime import UTC
    >>> from uuid import UUID
    >>> def at(second): return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    >>> id = UUID(int=1)
    >>> job = JobRow(id, "t", JobState.COMPLETED, "a", "q", 0, "{}", 1, 1, 0, 1, at(0), at(0), finished_at=at(10))
    >>> done = Execution(id, 1, 1, ExecutionState.SUCCEEDED, None, at(4), at(5), at(10))
    >>> [(span.kind, span.since.second, span.until.second) for span in spans(job, [done], at(30))[1]]
    [('queued', 0, 4), ('claimed', 4, 5), ('succeeded', 5, 10)]
    """
    ordered = sorted(executions, key=lambda execution: execution.number)[-MOST:]
    first = ordered[0].claimed_at if len(executions) > MOST and ordered else None
    begin = first or job.created_at
    end = (job.finished_at if job.state in ENDED else None) or now
    return begin, [span for span in _spans(job, ordered, begin, max(end, begin)) if span.until > span.since]


def _spans(
    job: JobRow, ordered: Sequence[Execution], begin: datetime, end: datetime
) -> Iterator[TimelineSpan]:
    free, kind = begin, "scheduled"
    for row, execution in enumerate(ordered):
        claimed = execution.claimed_at or execution.started_at or free
        # ``run_at`` belongs to the last wait. The due times of earlier waits are unknown.
        due = job.run_at if execution is ordered[-1] and job.state in _AFTER_CLAIM else None
        yield from _wait(row, kind, free, claimed, due, first=row == 0)
        started, ended = execution.started_at, execution.finished_at or end
        if started is None:
            yield TimelineSpan(row, "claimed", claimed, ended, execution.number)
        else:
            yield TimelineSpan(row, "claimed", claimed, started, execution.number)
            yield TimelineSpan(row, execution.state.value, started, ended, execution.number)
        free, kind = max(ended, claimed), _BETWEEN.get(execution.state, "retry_wait")
    if job.state not in _AFTER_CLAIM:
        if job.state in (JobState.WAITING, JobState.REVIEW_NEEDED):
            yield TimelineSpan(len(ordered), "waiting", free, end)
        else:
            yield from _wait(len(ordered), kind, free, end, job.run_at, first=not ordered)
    elif not ordered:
        yield from _wait(0, kind, free, end, job.run_at, first=True)


_AFTER_CLAIM = ENDED | {JobState.CLAIMED, JobState.RUNNING}


def _wait(
    row: int, kind: str, since: datetime, until: datetime, due: datetime | None, *, first: bool
) -> Iterator[TimelineSpan]:
    """Yield the wait between two executions: first until the job is due, then in the queue."""
    if due is None:
        yield TimelineSpan(row, "queued" if first or kind == "queued" else kind, since, until)
        return
    turn = min(max(due, since), until)
    yield TimelineSpan(row, kind, since, turn)
    yield TimelineSpan(row, "queued", turn, until)
