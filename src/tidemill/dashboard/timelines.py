"""Geometry of a job's timeline; the template draws it as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED, ExecutionState, JobState

WIDTH = 720.0
ROW, GAP = 14.0, 4.0
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
    """A period of one kind, in a row of the picture."""

    row: int
    kind: str
    since: datetime
    until: datetime
    attempt: int | None = None


class TimelinePiece(NamedTuple):
    """A span with its position and size."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    length: timedelta
    since: datetime
    until: datetime
    attempt: int | None


class TimelinePicture(NamedTuple):
    """The whole timeline; ``kinds`` lists the kinds that occur, in order."""

    width: float
    height: float
    pieces: list[TimelinePiece]
    kinds: list[str]
    since: datetime
    until: datetime


def picture(job: JobRow, executions: Sequence[Execution], now: datetime) -> TimelinePicture:
    """Build the timeline of a job, from its creation (or the first drawn execution) to its end or to now.

    >>> from datetime import UTC
    >>> from uuid import UUID
    >>> def at(second): return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    >>> id = UUID(int=1)
    >>> job = JobRow(id, "t", JobState.COMPLETED, "a", "q", 0, "{}", 1, 1, 0, 1, at(0), at(0), finished_at=at(10))
    >>> done = Execution(id, 1, 1, ExecutionState.SUCCEEDED, None, at(4), at(5), at(10))
    >>> [(piece.kind, piece.x, piece.width) for piece in picture(job, [done], at(30)).pieces]
    [('queued', 0.0, 288.0), ('claimed', 288.0, 72.0), ('succeeded', 360.0, 360.0)]
    """
    ordered = sorted(executions, key=lambda execution: execution.number)[-MOST:]
    first = ordered[0].claimed_at if len(executions) > MOST and ordered else None
    begin = first or job.created_at
    end = (job.finished_at if job.state in ENDED else None) or now
    spans = [span for span in _spans(job, ordered, begin, max(end, begin)) if span.until > span.since]
    rows = max((span.row for span in spans), default=0) + 1
    latest = max((span.until for span in spans), default=end)
    whole = max((max(latest, end) - begin).total_seconds(), 1e-6)
    pieces = [_place(span, begin, whole) for span in spans]
    kinds = list(dict.fromkeys(span.kind for span in spans))
    return TimelinePicture(WIDTH, rows * (ROW + GAP) + GAP, pieces, kinds, begin, max(latest, end))


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
            yield TimelineSpan(row, "claimed", claimed, ended, execution.attempt)
        else:
            yield TimelineSpan(row, "claimed", claimed, started, execution.attempt)
            yield TimelineSpan(row, execution.state.value, started, ended, execution.attempt)
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


def _place(span: TimelineSpan, begin: datetime, total: float) -> TimelinePiece:
    x = (span.since - begin).total_seconds() / total * WIDTH
    wide = (span.until - span.since).total_seconds() / total * WIDTH
    # Keep very short spans visible.
    wide = min(max(wide, 1.5), WIDTH)
    x = min(max(x, 0.0), WIDTH - wide)
    y = GAP + span.row * (ROW + GAP)
    length = span.until - span.since
    return TimelinePiece(
        round(x, 2), y, round(wide, 2), ROW, span.kind, length, span.since, span.until, span.attempt
    )
