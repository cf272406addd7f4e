"""Overview page: waiting, running and ended jobs, workers and alerts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from tidemill.client.stats import snapshot
from tidemill.client.stats.api import WINDOWS
from tidemill.client.stats.loads import liveness
from tidemill.client.stats.reports import Report, ThroughputStep
from tidemill.client.stats.snapshot import HOUR
from tidemill.dashboard import charts
from tidemill.dashboard.alert_links import concern
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS

pages = PageRoutes()

MOST_WORKERS = 8
MOST_MARKS = 5


@pages.get("/", role=Role.VIEWER)
async def overview(request: PageRequest) -> Response:
    """Show the overview."""
    window = request.query.get("window") or "1h"
    if window not in WINDOWS:
        window = "1h"
    about = ("overview", window, request.tenant, request.identity.tenant)
    values = await request.cached(about, _look, request, window)
    return request.render("overview.html", window=window, windows=list(WINDOWS), **values)


def _look(request: PageRequest, window: str) -> dict[str, Any]:
    """Run all queries in sequence on one thread, so that a page uses at most one connection."""
    stats, tenant = request.app.stats, request.tenant
    look = request.inspection.snapshot(tenant)
    steps = stats.throughput(window, tenant=tenant)
    # Workers belong to no tenant, so only users of all tenants see them.
    whole = request.identity.tenant == ALL_TENANTS
    workers = request.inspection.workers() if whole else []
    marks = _versions(workers, steps.at - WINDOWS[window][0])
    summary = snapshot.overview(look, WINDOWS[window][0])
    quiet = not summary.ended and not any(summary.counts.values())
    return {
        "overview": summary,
        "concerns": [concern(alert) for alert in snapshot.raised(look, None, HOUR)],
        "queues": snapshot.deepest(look, 8),
        "failing": stats.failures(tenant=tenant, limit=8),
        "crew": _crew(request, workers, steps.at) if whole else None,
        "marks": marks,
        "new_here": quiet and _new_here(request),
        **_charts(steps, marks),
    }


def _charts(steps: Report[ThroughputStep], marks: list[tuple[datetime, str]]) -> dict[str, charts.Chart]:
    ended = [
        (step.at, {"completed": step.completed, "failed": step.failed, "cancelled": step.cancelled})
        for step in steps
    ]
    times: dict[str, Any] = {
        name: [_seconds(getattr(step, name)) for step in steps]
        for name in ("duration_p50", "duration_p95", "lag_p95")
    }
    return {
        "throughput": charts.stacked(ended, marks=marks),
        "durations": charts.lines(times, ats=[step.at for step in steps], marks=marks),
    }


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


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
