"""The page that searches the log lines of all jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.filters import Page
from tidemill.domain.job import LEVELS
from tidemill.domain.log_search import FoundLine
from tidemill.errors import BadFilter

pages = PageRoutes()

PAGE = 100


@pages.get("/logs", role=Role.VIEWER)
async def logs(request: PageRequest) -> Response:
    """Search log lines by text, level, task, job and time; newest first."""
    typed = {
        name: request.query.get(name) or "" for name in ("text", "level", "task", "job", "since", "until")
    }
    cursor = request.query.get("cursor") or None
    page: Page[FoundLine] = Page([])
    wrong: str | None = None
    try:
        page = await request.read(
            request.app.jobs.search_logs,
            typed["text"] or None,
            level=typed["level"] or None,
            task=typed["task"] or None,
            job=_id(typed["job"]),
            since=_instant("since", typed["since"]),
            until=_instant("until", typed["until"]),
            tenant=request.tenant,
            limit=PAGE,
            cursor=cursor,
        )
    except BadFilter as error:
        wrong = error.message
    return request.render(
        "logs.html",
        422 if wrong else 200,
        lines=page.items,
        following=page.next,
        typed=typed,
        levels=LEVELS,
        wrong=wrong,
        cursor=cursor,
        is_filtered=any(typed.values()),
    )


def _id(text: str) -> UUID | None:
    try:
        return UUID(text.strip()) if text.strip() else None
    except ValueError:
        raise BadFilter(f"{text[:40]!r} is not a job id; copy it from the job's page", field="job") from None


def _instant(name: str, text: str) -> datetime | None:
    """Parse the value of a date and time field, in UTC.

    >>> _instant("since", "2026-12-31T06:00")
    datetime.datetime(2026, 12, 31, 6, 0, tzinfo=datetime.timezone.utc)
    """
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadFilter(
            f"{name}: {text[:40]!r} is not a time; write it as 2026-12-31T06:00", field=name
        ) from None
