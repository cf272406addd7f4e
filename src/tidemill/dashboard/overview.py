"""Overview page: waiting, running and ended jobs, workers and alerts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.stats import snapshot
from tidemill.client.stats.loads import liveness
from tidemill.client.stats.reports import RECENT, GroupThroughput, ThroughputStep, pace_of
from tidemill.client.stats.snapshot import HOUR
from tidemill.dashboard import charts
from tidemill.dashboard.alert_links import concern
from tidemill.dashboard.ended_charts import deploy_marks
from tidemill.dashboard.formats import percent, short_number, span
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS

pages = PageRoutes()

MOST_WORKERS = 8
MOST_MARKS = 5
COLOURS = 7
"""Groups of the chart with a colour of their own."""

SPARKS = 200
MOST_REGRESSED = 100


WINDOWS = {
    "5m": (timedelta(minutes=5), timedelta(minutes=1)),
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=15)),
    "24h": (timedelta(days=1), timedelta(minutes=15)),
    "7d": (timedelta(days=7), timedelta(hours=2)),
    "30d": (timedelta(days=30), timedelta(days=1)),
}
"""The windows of the chart, each with the length of a bar."""

GROUPS = ("outcome", "queue", "task")


class NowFigure(NamedTuple):
    """One figure about the last minutes, and how it compares with the hour before."""

    name: str
    value: str
    change: str
    worse: bool
    path: str  #: SVG path of the sparkline


@pages.get("/", role=Role.VIEWER)
async def overview(request: PageRequest) -> Response:
    """Show the overview."""
    window = request.query.get("window") or "1h"
    group = request.query.get("by") or "outcome"
    window = window if window in WINDOWS else "1h"
    group = group if group in GROUPS else "outcome"
    about = ("overview", window, group, request.tenant, request.identity.tenant)
    values = await request.cached(about, _look, request, window, group)
    return request.render(
        "overview.html", window=window, windows=list(WINDOWS), group=group, groups=GROUPS, **values
    )


def _look(request: PageRequest, window: str, group: str) -> dict[str, Any]:
    """Run all queries in sequence on one thread, so that a page uses at most one connection."""
    stats, tenant = request.app.stats, request.tenant
    length, step = WINDOWS[window]
    look = request.inspection.snapshot(tenant)
    steps = stats.throughput(length, step, tenant=tenant)
    # Workers belong to no tenant, so only users of all tenants see them.
    whole = request.identity.tenant == ALL_TENANTS
    workers = request.inspection.workers() if whole else []
    marks = sorted([*_versions(workers, steps.at - length), *deploy_marks(request, steps.at - length)])
    summary = snapshot.overview(look, length)
    quiet = not summary.ended and not any(summary.counts.values())
    lately = {
        name: {row.name: row for row in stats.throughput_by(name, HOUR, limit=SPARKS, tenant=tenant)}
        for name in ("queue", "task")
    }
    return {
        "overview": summary,
        "concerns": [concern(alert) for alert in snapshot.raised(look, None, HOUR)],
        "figures": now_figures(list(stats.throughput("1h", tenant=tenant))),
        "queues": [(row, _row_spark(lately["queue"].get(row.queue))) for row in snapshot.deepest(look, 8)],
        "failing": [
            (row, _row_spark(lately["task"].get(row.task), failed=True))
            for row in stats.failures(tenant=tenant, limit=8)
        ],
        "regressed": len(
            request.app.errors.list("24h", status="regressed", limit=MOST_REGRESSED, tenant=tenant)
        ),
        "crew": _crew(request, workers, steps.at) if whole else None,
        "marks": marks,
        "new_here": quiet and _new_here(request),
        **_chart(request, list(steps), group, (length, step), marks),
    }


def _chart(
    request: PageRequest,
    steps: list[ThroughputStep],
    group: str,
    window: tuple[timedelta, timedelta],
    marks: list[tuple[datetime, str]],
) -> dict[str, Any]:
    """Return the chart, and the classes of its parts with their names."""
    if group == "outcome":
        names = {name: name for name in ("completed", "failed", "cancelled")}
        bars = [(step.at, {name: getattr(step, name) for name in names}) for step in steps]
    else:
        rows = list(request.app.stats.throughput_by(group, *window, limit=COLOURS, tenant=request.tenant))
        names = {f"g{number}": row.name for number, row in enumerate(rows)}
        bars = [
            (
                step.at,
                {f"g{number}": row.total[at] for number, row in enumerate(rows)} | _rest(step, rows, at),
            )
            for at, step in enumerate(steps)
        ]
        if any("other" in values for _, values in bars):
            names["other"] = "other"
    chart = charts.stacked(bars, width=1200, height=240, marks=marks)
    return {"chart": chart, "names": names, "bar_length": window[1]}


def _rest(step: ThroughputStep, rows: list[GroupThroughput], at: int) -> dict[str, int]:
    """Return the jobs of the groups that have no colour of their own."""
    rest = step.total - sum(row.total[at] for row in rows)
    return {"other": rest} if rest > 0 else {}


def now_figures(minutes: list[ThroughputStep]) -> list[NowFigure]:
    """Return throughput, failures, run time and wait of the last full minutes, compared with those before."""
    full = minutes[:-1]
    now, then = pace_of(full[-RECENT:]), pace_of(full[:-RECENT])
    paces = [pace_of([minute]) for minute in full]
    rows = [
        ("jobs a minute", short_number, False),
        ("failed", percent, True),
        ("run time p95", _seconds_in_words, True),
        ("wait p95", _seconds_in_words, True),
    ]
    figures = []
    for at, (name, words, is_bad) in enumerate(rows):
        path = charts.spark([pace[at] or 0 for pace in paces], width=120, height=24)
        value, before = now[at], then[at]
        change, worse = (_points if words is percent else _relative)(value, before)
        figures.append(NowFigure(name, words(value), change, is_bad and worse, path))
    return figures


def _relative(value: float | None, before: float | None) -> tuple[str, bool]:
    """Return the change relative to before, and whether it is a considerable rise.

    >>> _relative(30.0, 20.0), _relative(20.0, 20.5), _relative(5.0, None)
    (('+50 %', True), ('steady', False), ('', False))
    """
    if value is None or not before:
        return "", False
    apart = (value - before) / before
    if abs(apart) < 0.05:
        return "steady", False
    return f"{'+' if apart > 0 else '−'}{min(abs(apart) * 100, 999):.0f} %", apart > 0.2


def _points(value: float | None, before: float | None) -> tuple[str, bool]:
    """Return the change of a share in percentage points: relative to a small share, each failure would be a leap.

    >>> _points(0.04, 0.02), _points(0.12, 0.02), _points(0.02, 0.02), _points(0.0, None)
    (('+2 points', False), ('+10 points', True), ('steady', False), ('', False))
    """
    if value is None or before is None:
        return "", False
    apart = round((value - before) * 100)
    if not apart:
        return "steady", False
    return f"{'+' if apart > 0 else '−'}{abs(apart)} point{'' if abs(apart) == 1 else 's'}", apart >= 5


def _seconds_in_words(value: float | None) -> str:
    return span(value)


def _row_spark(row: GroupThroughput | None, *, failed: bool = False) -> str | None:
    """Return the sparkline of the last hour of a queue or task; None if nothing ended."""
    if row is None or not any(row.failed if failed else row.total):
        return None
    return charts.spark(row.failed if failed else row.total, width=120, height=20)


def _versions(workers: list[Worker], since: datetime) -> list[tuple[datetime, str]]:
    """Return when each version first started, for the latest versions in the window.

    Based on the workers that the store still lists.
    """
    first: dict[str, datetime] = {}
    for worker in workers:
        if worker.version and worker.started_at is not None:
            first[worker.version] = min(first.get(worker.version, worker.started_at), worker.started_at)
    starts = sorted((at, f"version {name} started") for name, at in first.items() if at >= since)
    return starts[-MOST_MARKS:]


def _crew(request: PageRequest, workers: list[Worker], at: datetime) -> dict[str, Any]:
    held = {
        holder.worker: holder.claimed + holder.running
        for holder in request.inspection.holders(tenant=ALL_TENANTS)
    }
    living = [(worker, how) for worker in workers if (how := liveness(worker, at)) in ("alive", "late")]
    # Late workers first, then the busiest.
    living.sort(key=lambda pair: (pair[1] == "alive", -held.get(pair[0].id, 0), pair[0].name))
    rows = [(worker, how, held.get(worker.id, 0)) for worker, how in living[:MOST_WORKERS]]
    return {"rows": rows, "more": len(living) - len(rows)}


def _new_here(request: PageRequest) -> bool:
    """Whether the store has no jobs at all, as far as this user can see."""
    return not request.inspection.newest_jobs(tenant=request.tenant, limit=1)
