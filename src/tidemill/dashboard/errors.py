"""``/errors`` pages: failures grouped by fingerprint, with bulk retry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.jobs.api import Acted
from tidemill.client.stats.api import TROUBLES, WINDOWS
from tidemill.dashboard import charts, tracebacks
from tidemill.dashboard.job_filter import FAILED, in_words
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.filters import MAX_TEXT
from tidemill.domain.stats import ErrorGroup, FailedJob, error_groups, gathered, normalised
from tidemill.web.problems import Problem

pages = PageRoutes()

STEPS = 30
GROUPS = 100
LISTED = 50


class ErrorKind(NamedTuple):
    """A group of failures with the same fingerprint, and how often it occurred over time."""

    group: ErrorGroup
    troubles: list[FailedJob]
    path: str  #: SVG path of the sparkline
    states: str
    query: dict[str, Any]  #: query that finds these jobs on the jobs page


@pages.get("/errors", role=Role.VIEWER)
async def errors(request: PageRequest) -> Response:
    """List the error groups, most frequent first."""
    window = _window(request)
    kinds, sampled = await request.read(_look, request, window)
    return request.render(
        "errors.html",
        window=window,
        windows=list(WINDOWS),
        kinds=kinds[:GROUPS],
        more=max(len(kinds) - GROUPS, 0),
        total=sum(kind.group.count for kind in kinds),
        sampled=sampled,
        looked=TROUBLES,
    )


@pages.get("/errors/{fingerprint}", role=Role.VIEWER)
async def error(request: PageRequest) -> Response:
    """Show one error group: an example with its traceback, and the failed jobs."""
    window = _window(request)
    kind, sampled = await _kind(request, window)
    examples = await request.read(request.inspection.live_jobs, [kind.group.example], tenant=request.tenant)
    example = request.cleared(examples[0]) if examples else None
    trace = example.error.traceback if example is not None and example.error is not None else None
    return request.render(
        "error_kind.html",
        window=window,
        kind=kind,
        sampled=sampled,
        listed=kind.troubles[:LISTED],
        example=example,
        trace=tracebacks.parts(trace) if trace else [],
        place=tracebacks.users_place(trace) if trace else None,
    )


@pages.post("/errors/{fingerprint}/retry", role=Role.OPERATOR)
async def retry(request: PageRequest) -> Response:
    """Ask for confirmation with the number of jobs, then retry them."""
    window = _window(request)
    kind, sampled = await _kind(request, window)
    ids = [trouble.id for trouble in kind.troubles]
    if request.form.get("sure") != "1":
        states = list(expected(Action.RETRY))
        counts = await request.read(request.app.jobs.counts, ids=ids, status=states, tenant=request.tenant)
        return request.render(
            "error_retry.html",
            window=window,
            kind=kind,
            sampled=sampled,
            total=sum(counts.values()),
            by_state=in_words(counts),
        )
    acted: Acted = await request.act(
        request.app.jobs.retry,
        ids=ids,
        tenant=request.tenant,
        asked={"error": kind.group.fingerprint, "task": kind.group.task, "ids": ids},
    )
    skipped = f" {acted.skipped:,} skipped: their status has changed." if acted.skipped else ""
    jobs = "1 job" if acted.done == 1 else f"{acted.done:,} jobs"
    return request.back("/errors", f"{jobs} of task {kind.group.task} retried.{skipped}", window=window)


async def _kind(request: PageRequest, window: str) -> tuple[ErrorKind, bool]:
    kinds, sampled = await request.read(_look, request, window)
    wanted = request.path["fingerprint"]
    for kind in kinds:
        if kind.group.fingerprint == wanted:
            return kind, sampled
    raise Problem(
        404,
        None,
        f"No job failed with this error in the last {window}: its jobs were retried, deleted or archived, "
        "or failed before that.",
        title="Error not found",
    )


def _look(request: PageRequest, window: str) -> tuple[list[ErrorKind], bool]:
    """Return the error groups, and whether the store had more failures than the query reads."""
    length = WINDOWS[window][0]
    troubles = request.inspection.failed_jobs(length, tenant=request.tenant, limit=TROUBLES)
    if request.hides_arguments:
        # Groups then have a type only: a fingerprint of the message would reveal a guessed message.
        troubles = [trouble._replace(message=None, reason=None) for trouble in troubles]
    alike = gathered(troubles)
    now = request.now()
    kinds = []
    for group in error_groups(troubles, len(alike)):
        own = alike[group.fingerprint]
        counted: dict[str, int] = {}
        for trouble in own:
            counted[trouble.state.value] = counted.get(trouble.state.value, 0) + 1
        kinds.append(
            ErrorKind(
                group,
                own,
                charts.spark(steps([failure.finished_at for failure in own], now, length)),
                ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in sorted(counted.items())),
                query_of(group),
            )
        )
    return kinds, len(troubles) >= TROUBLES


def steps(moments: Sequence[datetime], now: datetime, length: timedelta, number: int = STEPS) -> list[int]:
    """Count the instants in each of ``number`` equal steps that end now.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> steps([noon, noon - timedelta(minutes=50), noon - timedelta(hours=9)], noon, timedelta(hours=1), 3)
    [1, 0, 1]
    """
    counts = [0] * number
    for moment in moments:
        place = number - 1 - int((now - moment) / length * number)
        if 0 <= place < number:
            counts[place] += 1
        # The database's clock is ahead of this process's clock.
        elif place >= number:
            counts[-1] += 1
    return counts


def query_of(group: ErrorGroup) -> dict[str, Any]:
    """Return the query that finds these jobs on the jobs page.

    It is approximate if their messages contain varying values.
    """
    query: dict[str, Any] = {"task": group.task, "status": FAILED}
    if group.type is not None:
        query["text"] = _piece(group.message) or group.type[:MAX_TEXT]
    return query


def _piece(message: str) -> str | None:
    """Return the longest part of a message that all failures of its group share.

    >>> _piece("order 4711 of 'ann' not found after 3.5 s")
    'not found after'
    """
    pieces = (piece.strip() for piece in re.split("[#…]", normalised(message)))
    best = max(pieces, key=len, default="")[:80].strip()
    return best if len(best) >= 6 and best in message else None


def _window(request: PageRequest) -> str:
    window = request.query.get("window") or "24h"
    return window if window in WINDOWS else "24h"
