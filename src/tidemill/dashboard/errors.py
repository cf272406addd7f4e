"""``/errors`` pages: failures grouped by cause, with their statuses and bulk retry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.error_groups import ErrorGroup
from tidemill.client.jobs.api import Acted
from tidemill.dashboard import charts
from tidemill.dashboard.job_filter import in_words
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain import tracebacks
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.durations import read_duration
from tidemill.domain.failures import MOST_GROUPS, ErrorStatus, FailureCount, FailurePart
from tidemill.domain.job import JobRow
from tidemill.domain.releases import Deploy
from tidemill.errors import BadFilter

pages = PageRoutes()

WINDOWS = ("1h", "24h", "7d", "30d", "60d")
SHOWN = 100
LISTED = 20

TABS: dict[str, Callable[[ErrorGroup], bool]] = {
    "open": lambda row: row.status in (ErrorStatus.OPEN, ErrorStatus.REGRESSED),
    "new": lambda row: row.is_new and row.status is ErrorStatus.OPEN,
    "regressed": lambda row: row.status is ErrorStatus.REGRESSED,
    "muted": lambda row: row.status is ErrorStatus.MUTED,
    "resolved": lambda row: row.status is ErrorStatus.RESOLVED,
}
"""The tabs of the list. New groups are those that failed first since the latest deploy."""

MARKS = {
    "mute": "muted: its failures are counted, and this list leaves it out",
    "unmute": "open again",
    "resolve": "resolved; it returns as regressed if it fails again",
    "unresolve": "open again",
}
"""The statuses that a form can set, and what a message says about them."""


class ListedError(NamedTuple):
    """A group of failures, and its trend."""

    group: ErrorGroup
    path: str  #: SVG path of the sparkline


class ErrorParts(NamedTuple):
    """A group, its parts, and the latest jobs that are still in it."""

    listed: ListedError
    variants: Sequence[FailureCount]
    tasks: Sequence[FailureCount]
    tenants: Sequence[FailureCount]
    jobs: Sequence[JobRow]
    waiting: int  #: jobs that a retry would start
    example: JobRow | None


@pages.get("/errors", role=Role.VIEWER)
async def errors(request: PageRequest) -> Response:
    """List the error groups, most frequent first."""
    window, tab, task = _window(request), request.query.get("status") or "open", request.query.get("task")
    tab = tab if tab in TABS else "open"
    about = ("errors", window, task, request.tenant, request.hides_arguments)
    rows, deploy = await request.cached(about, _list, request, window, task)
    shown = [row for row in rows if TABS[tab](row.group)]
    return request.render(
        "errors.html",
        window=window,
        windows=WINDOWS,
        tab=tab,
        task=task,
        tabs={name: sum(1 for row in rows if belongs(row.group)) for name, belongs in TABS.items()},
        rows=shown[:SHOWN],
        more=max(len(shown) - SHOWN, 0),
        total=sum(row.group.jobs for row in shown),
        deploy=deploy,
    )


def _list(request: PageRequest, window: str, task: str | None) -> tuple[list[ListedError], Deploy | None]:
    groups = request.app.errors.list(window, task=task, limit=MOST_GROUPS, tenant=request.tenant)
    deploy = next(iter(request.app.errors.deploys(limit=1)), None)
    return [_listed(request, row) for row in groups], deploy


def _listed(request: PageRequest, group: ErrorGroup) -> ListedError:
    if request.hides_arguments:
        group = replace(group, message="")
    return ListedError(group, charts.spark(group.trend))


@pages.get("/errors/{fingerprint}", role=Role.VIEWER)
async def error(request: PageRequest) -> Response:
    """Show one error group: its variants, tasks and tenants, an example with its traceback, and the failed jobs."""
    window = _window(request)
    fingerprint = request.path["fingerprint"]
    about = ("error", fingerprint, window, request.tenant, request.hides_arguments)
    parts = await request.cached(about, _look, request, fingerprint, window)
    example = None if parts.example is None else request.cleared(parts.example)
    trace = example.error.traceback if example is not None and example.error is not None else None
    return request.render(
        "error_group.html",
        window=window,
        windows=WINDOWS,
        parts=parts,
        example=example,
        trace=tracebacks.parts(trace) if trace else [],
        place=tracebacks.users_place(trace) if trace else None,
    )


def _look(request: PageRequest, fingerprint: str, window: str) -> ErrorParts:
    errors, tenant = request.app.errors, request.tenant
    group = errors.get(fingerprint, window, tenant=tenant)
    counts: dict[str, Sequence[FailureCount]] = {
        part: errors.parts(fingerprint, part, window, tenant=tenant) for part in FailurePart
    }
    where: dict[str, Any] = {"error_group": fingerprint, "tenant": tenant}
    jobs = [job.row for job in request.app.jobs.list(limit=LISTED, **where).items]
    waiting = request.app.jobs.count(status=list(expected(Action.RETRY)), **where)
    example = next((job for job in jobs if job.id == group.example), jobs[0] if jobs else None)
    return ErrorParts(
        _listed(request, group),
        () if request.hides_arguments else counts[FailurePart.VARIANT],
        counts[FailurePart.TASK],
        counts[FailurePart.TENANT],
        [request.cleared(job) for job in jobs],
        waiting,
        example,
    )


@pages.post("/errors/{fingerprint}/mark", role=Role.OPERATOR)
async def mark(request: PageRequest) -> Response:
    """Mute or resolve a group, or open it again."""
    name = request.form.get("mark") or ""
    if name not in MARKS:
        raise BadFilter(f"mark is {name[:40]!r}; expected one of {', '.join(MARKS)}", field="mark")
    row = await request.act(
        getattr(request.app.errors, name), request.path["fingerprint"], tenant=request.tenant
    )
    return request.back_to(
        request.form.get("next"), f"{row.type or 'The error'} is {MARKS[name]}.", otherwise="/errors"
    )


@pages.post("/errors/{fingerprint}/retry", role=Role.OPERATOR)
async def retry(request: PageRequest) -> Response:
    """Ask for confirmation with the number of jobs, then retry them."""
    window, fingerprint = _window(request), request.path["fingerprint"]
    group = await request.read(request.app.errors.get, fingerprint, tenant=request.tenant)
    if request.form.get("sure") != "1":
        counts = await request.read(
            request.app.jobs.counts,
            error_group=fingerprint,
            status=list(expected(Action.RETRY)),
            tenant=request.tenant,
        )
        return request.render(
            "error_retry.html",
            window=window,
            group=_listed(request, group).group,
            total=sum(counts.values()),
            by_state=in_words(counts),
        )
    spread = request.form.get("spread")
    acted: Acted = await request.act(
        request.app.errors.retry,
        fingerprint,
        spread=read_duration("spread", spread, error=BadFilter, field="spread") if spread else None,
        tenant=request.tenant,
    )
    skipped = f" {acted.skipped:,} skipped: their status has changed." if acted.skipped else ""
    jobs = "1 job" if acted.done == 1 else f"{acted.done:,} jobs"
    return request.back(
        "/errors", f"{jobs} with {group.type or 'this error'} retried.{skipped}", window=window
    )


def _window(request: PageRequest) -> str:
    window = request.query.get("window") or "24h"
    return window if window in WINDOWS else "24h"
