"""Rows of a job's waterfall: waits, attempts, stages, steps and children on one axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from tidemill.dashboard.timelines import TimelineSpan, spans
from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.stages import Stage, stages
from tidemill.domain.states import ENDED
from tidemill.domain.steps import StepView

WIDTH = 1000.0
LEAST = 3.0
"""Smallest width of a bar, so that a short one can be seen."""

MOST_STEPS = 30
TICKS = 5

_WAITS = {
    "scheduled": "until it is due",
    "retry_wait": "back-off",
    "queued": "in the queue",
    "waiting": "suspended",
}


class Segment(NamedTuple):
    """One bar of a row."""

    x: float
    width: float
    kind: str
    since: datetime
    until: datetime


class WaterfallRow(NamedTuple):
    """One row: a wait, an attempt, or something that happened in an attempt."""

    kind: str  #: wait, attempt, stage, step or child
    label: str
    length: timedelta | None
    segments: list[Segment]
    state: str = ""
    number: int = 0  #: of the execution, for an attempt
    job: UUID | None = None  #: of a child


class Waterfall(NamedTuple):
    """All rows, and the labels of the axis."""

    rows: list[WaterfallRow]
    since: datetime
    until: datetime
    ticks: list[timedelta]


class _Axis:
    def __init__(self, since: datetime, until: datetime) -> None:
        self.since, self.until = since, until
        self._seconds = max((until - since).total_seconds(), 1e-6)

    def segment(self, kind: str, since: datetime, until: datetime) -> Segment:
        since, until = max(since, self.since), min(max(until, since), self.until)
        wide = (until - since).total_seconds() / self._seconds * WIDTH
        wide = min(max(wide, LEAST), WIDTH)
        x = min(max((since - self.since).total_seconds() / self._seconds * WIDTH, 0.0), WIDTH - wide)
        return Segment(round(x, 1), round(wide, 1), kind, since, until)


def waterfall(
    job: JobRow,
    executions: Sequence[Execution],
    lines: Sequence[LogEntry],
    last_stages: Sequence[Stage],
    steps: Sequence[StepView],
    children: Iterable[JobRow],
    now: datetime,
) -> Waterfall:
    """Build the waterfall of a job, from its creation to its end, or to now; children may end after it.

    ``last_stages`` are those of the last attempt, with the declared ones that lie ahead.
    """
    begin, listed = spans(job, executions, now)
    children = list(children)
    ends = [span.until for span in listed] + [child.finished_at or now for child in children]
    axis = _Axis(begin, max([begin, *ends]))
    by_number = {execution.number: execution for execution in executions}
    rows: list[WaterfallRow] = []
    for number, group in groupby(listed, key=lambda span: span.number):
        own = list(group)
        if number is None:
            rows += [_wait(span, axis) for span in own]
            continue
        execution = by_number[number]
        rows.append(_attempt(execution, own, axis))
        own_lines = [line for line in lines if line.number == number]
        stage_names = last_stages if number == max(by_number) else ()
        rows += _stages(execution, stage_names or stages(own_lines, [execution]), axis, now)
    rows += [
        WaterfallRow(
            "step", step.name, None if step.took is None else timedelta(seconds=step.took), [], step.kind
        )
        for step in steps[:MOST_STEPS]
    ]
    rows += [_child(child, axis, now) for child in children]
    ticks = [(axis.until - axis.since) * number / (TICKS - 1) for number in range(TICKS)]
    return Waterfall(rows, axis.since, axis.until, ticks)


def _wait(span: TimelineSpan, axis: _Axis) -> WaterfallRow:
    label = _WAITS.get(span.kind, span.kind)
    return WaterfallRow(
        "wait", label, span.until - span.since, [axis.segment(span.kind, span.since, span.until)]
    )


def _attempt(execution: Execution, own: list[TimelineSpan], axis: _Axis) -> WaterfallRow:
    segments = [axis.segment(span.kind, span.since, span.until) for span in own]
    started = [span for span in own if span.kind != "claimed"]
    length = started[-1].until - started[-1].since if started else None
    return WaterfallRow(
        "attempt", f"Attempt {execution.attempt}", length, segments, execution.state.value, execution.number
    )


def _stages(execution: Execution, listed: Sequence[Stage], axis: _Axis, now: datetime) -> list[WaterfallRow]:
    rows = []
    for stage in listed:
        segments = []
        if stage.began_at is not None:
            end = stage.ended_at or execution.finished_at or now
            segments.append(axis.segment(_stage_kind(stage, execution), stage.began_at, end))
        rows.append(WaterfallRow("stage", stage.name, stage.took, segments, stage.words))
    return rows


def _stage_kind(stage: Stage, execution: Execution) -> str:
    if stage.words == "done":
        return "succeeded"
    return "running" if execution.finished_at is None else "failed"


def _child(child: JobRow, axis: _Axis, now: datetime) -> WaterfallRow:
    end = (child.finished_at if child.state in ENDED else None) or now
    bars = [axis.segment("queued", child.created_at, child.started_at or end)]
    if child.started_at is not None:
        bars.append(axis.segment(_CHILD.get(child.state.value, child.state.value), child.started_at, end))
    return WaterfallRow("child", child.task, end - child.created_at, bars, child.state.value, job=child.id)


_CHILD: Mapping[str, str] = {"completed": "succeeded", "dead_lettered": "failed"}
