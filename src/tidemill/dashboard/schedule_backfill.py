"""The page that creates the missing fires of a past range of a schedule.

The form asks for the range, the preview lists the missing fires, and the button there creates them.
"""

from __future__ import annotations

from datetime import datetime

from starlette.responses import Response

from tidemill.client.schedules.api import Backfilled
from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard.form_state import FormState, complaints, refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.schedules import schedule_at
from tidemill.domain.access import Role
from tidemill.errors import TidemillError
from tidemill.web.parsers import Fields
from tidemill.web.text_parsers import read_moment

pages = PageRoutes()

LISTED = 50
"""Fires that the preview lists; the others are counted."""

MOST_FIRES = 1_000
"""Fires that one submission creates."""

_FIELDS = {"start": "start", "end": "end"}


@pages.get("/schedules/{id}/backfill", role=Role.OPERATOR)
async def ask_to_backfill(request: PageRequest) -> Response:
    """Ask for the range, and list its missing fires."""
    refuse_to_look(request)
    schedule = await schedule_at(request)
    given = request.query
    if given.get("start") is None and given.get("end") is None:
        return _page(request, schedule, FormState({"start": "1d"}))
    return await _try(request, schedule, given, dry_run=True)


@pages.post("/schedules/{id}/backfill", role=Role.OPERATOR)
async def backfill(request: PageRequest) -> Response:
    """Create the missing fires of the range that was previewed."""
    return await _try(request, await schedule_at(request), request.form, dry_run=False)


async def _try(request: PageRequest, schedule: Schedule, given: Fields, *, dry_run: bool) -> Response:
    """Preview the fires or create them; show the form again if a field is invalid."""
    start, end, errors = _range(given, request.now())
    if start is None or end is None:
        return _page(request, schedule, FormState(given, errors))
    act = request.read if dry_run else request.act
    try:
        done: Backfilled = await act(
            request.app.schedules.backfill,
            schedule.id,
            start,
            end,
            limit=MOST_FIRES,
            dry_run=dry_run,
            tenant=schedule.tenant,
        )
    except TidemillError as error:
        return _page(request, schedule, FormState(given, complaints(error, _FIELDS)))
    if dry_run:
        return _page(request, schedule, FormState(given), done, (start, end))
    words = f"{len(done.fires)} fires of schedule {schedule.key} were made, {done.existing} existed."
    more = " There are more; back-fill again for the rest." if done.more else ""
    return request.back(f"/schedules/{schedule.id}", words + more)


def _range(given: Fields, now: datetime) -> tuple[datetime | None, datetime | None, dict[str, str]]:
    """Return the start and the end, and an error message for each invalid field. Without an end it is now."""
    moments: dict[str, datetime] = {"end": now}
    errors: dict[str, str] = {}
    for field in _FIELDS:
        text = (given.get(field) or "").strip()
        if not text and field == "end":
            continue
        try:
            moments[field] = read_moment(text, now)
        except ValueError as error:
            errors[field] = str(error)
    if errors:
        return None, None, errors
    return moments["start"], moments["end"], errors


def _page(
    request: PageRequest,
    schedule: Schedule,
    form: FormState,
    missing: Backfilled | None = None,
    span: tuple[datetime, datetime] | None = None,
) -> Response:
    return request.render(
        "schedule_backfill.html",
        422 if form.is_wrong else 200,
        schedule=schedule,
        form=form,
        missing=missing,
        span=span,
        listed=LISTED,
        most=MOST_FIRES,
    )
