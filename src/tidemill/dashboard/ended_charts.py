"""Charts of the ended jobs of one queue or one task, and the marks of deploys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tidemill.dashboard import charts
from tidemill.dashboard.formats import span
from tidemill.dashboard.page_request import PageRequest
from tidemill.domain.depths import EMPTY_STEP
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.rollups import BOUNDS, Distribution
from tidemill.domain.stats import Series

WINDOWS = {
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "24h": (timedelta(days=1), timedelta(minutes=30)),
    "7d": (timedelta(days=7), timedelta(hours=4)),
    "30d": (timedelta(days=30), timedelta(days=1)),
}
"""The windows of the charts, each with the length of a step."""

MOST_MARKS, MOST_SPARKS = 5, 200
LATELY = timedelta(hours=1)
OUTCOMES = ("completed", "failed", "cancelled")


def window_of(request: PageRequest) -> str:
    """Return the window that the address names."""
    window = request.query.get("window") or "24h"
    return window if window in WINDOWS else "24h"


def deploy_marks(request: PageRequest, since: datetime) -> list[tuple[datetime, str]]:
    """Return when releases of the app started first, for the latest ones in the window."""
    deploys = [row for row in request.app.errors.deploys(limit=MOST_MARKS) if row.deployed_at >= since]
    return [(row.deployed_at, f"release {row.release} of {row.app}") for row in reversed(deploys)]


def ended_charts(
    request: PageRequest, window: str, *, queue: str | None = None, task: str | None = None
) -> dict[str, Any]:
    """Return the charts of outcomes, waits and run times, and the figures of the window."""
    length, step = WINDOWS[window]
    now = request.now()
    series = request.inspection.series(length, step, now, tenant=request.tenant, queue=queue, task=task)
    marks = deploy_marks(request, series.since_at)
    ats = [slot.at for slot in series.slots]
    ended = charts.stacked(
        [(slot.at, {name: getattr(slot, name) for name in OUTCOMES}) for slot in series.slots], marks=marks
    )
    waits = charts.lines(
        {
            "lag_p95": [_seconds(slot.times.wait, 0.95) for slot in series.slots],
            "duration_p95": [_seconds(slot.times.run, 0.95) for slot in series.slots],
        },
        ats=ats,
        marks=marks,
    )
    return {
        "window": window,
        "windows": list(WINDOWS),
        "ended_chart": ended,
        "wait_chart": waits,
        "run_heat": charts.heat(
            [(slot.at, {row.number: row.jobs for row in slot.times.run.buckets}) for slot in series.slots],
            run_label,
            marks=marks,
        ),
        "marks": marks,
        **_depth_charts(request, length, step, marks, queue),
        **_figures(series),
    }


def _depth_charts(
    request: PageRequest,
    length: timedelta,
    step: timedelta,
    marks: list[tuple[datetime, str]],
    queue: str | None,
) -> dict[str, Any]:
    """Return the charts of the depth of a queue and of the age of its oldest job. Samples cover all tenants."""
    if queue is None or request.tenant != ALL_TENANTS:
        return {}
    series = request.inspection.depth_series(length, step, request.now(), queue=queue)
    cells = series.queues.get(queue, [EMPTY_STEP] * len(series.steps))
    depth = charts.lines(
        {
            "pending": [None if cell is None else float(cell.pending) for cell in cells],
            "scheduled": [None if cell is None else float(cell.scheduled) for cell in cells],
        },
        ats=series.steps,
        marks=marks,
    )
    oldest = charts.lines(
        {"oldest": [None if cell is None else cell.oldest.total_seconds() for cell in cells]},
        ats=series.steps,
        marks=marks,
    )
    return {
        "depth_chart": depth,
        "oldest_chart": oldest,
        "most_pending": max((cell.pending for cell in cells if cell is not None), default=0),
        "most_scheduled": max((cell.scheduled for cell in cells if cell is not None), default=0),
        "longest_oldest": max((cell.oldest for cell in cells if cell is not None), default=timedelta(0)),
    }


def _figures(series: Series) -> dict[str, Any]:
    """Return the sums of the window."""
    judged = sum(slot.completed + slot.failed for slot in series.slots)
    failed = sum(slot.failed for slot in series.slots)
    waits = Distribution.of(row for slot in series.slots for row in slot.times.wait.buckets)
    runs = Distribution.of(row for slot in series.slots for row in slot.times.run.buckets)
    return {
        "ended_jobs": sum(slot.total for slot in series.slots),
        "failed_jobs": failed,
        "failed_share": failed / judged if judged else None,
        "wait_p95": waits.quantile(0.95),
        "run_p50": runs.quantile(0.5),
        "run_p95": runs.quantile(0.95),
    }


def _seconds(times: Distribution, share: float) -> float | None:
    value = times.quantile(share)
    return None if value is None else value.total_seconds()


def sparks(request: PageRequest, group: str) -> dict[str, str]:
    """Return a sparkline of the jobs that ended per minute in the last hour, of each task, queue or worker."""
    rows = request.app.stats.throughput_by(group, LATELY, limit=MOST_SPARKS, tenant=request.tenant)
    return {row.name: charts.spark(row.total, width=120, height=20) for row in rows if any(row.total)}


def depth_sparks(request: PageRequest) -> dict[str, str]:
    """Return a sparkline of the pending jobs of each queue in the last hour; of no queue if one tenant is shown."""
    if request.tenant != ALL_TENANTS:
        return {}
    series = request.inspection.depth_series(LATELY, timedelta(minutes=1), request.now(), limit=MOST_SPARKS)
    values = {
        name: [0 if cell is None else cell.pending for cell in cells] for name, cells in series.queues.items()
    }
    return {name: charts.spark(row, width=120, height=20) for name, row in values.items() if any(row)}


def run_label(bucket: int) -> str:
    """Format the run times of a bucket.

    >>> run_label(0), run_label(3), run_label(len(BOUNDS))
    ('<1 ms', '4 ms to 8 ms', 'over 9 h 19 min')
    """
    if bucket == 0:
        return "<1 ms"
    low = span(BOUNDS[bucket - 1] / 1_000_000)
    return f"over {low}" if bucket == len(BOUNDS) else f"{low} to {span(BOUNDS[bucket] / 1_000_000)}"
