"""Preview of the rule in a schedule form; the script fetches it while the user types."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from starlette.responses import Response

from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard import schedule_form
from tidemill.dashboard.form_state import refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.schedules import UpcomingFire, preview, preview_of
from tidemill.domain.access import Role
from tidemill.domain.clock_notes import ClockChange
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.triggers.reactive import ReactiveTrigger
from tidemill.domain.zones import zone_of
from tidemill.errors import TidemillError

pages = PageRoutes()

PREVIEWED = 8
"""Fires in a preview."""


class SchedulePreview(NamedTuple):
    """A rule in words with its next fires, or what its fields lack."""

    words: str | None = None
    timezone: str = "UTC"
    coming: Sequence[UpcomingFire] = ()
    changes: Sequence[ClockChange] = ()
    problems: Sequence[str] = ()
    hints: Sequence[str] = ()  #: what to write into fields that are still empty


NO_PREVIEW = SchedulePreview()


@pages.get("/schedules/preview", role=Role.ADMIN)
async def show_preview(request: PageRequest) -> Response:
    """Show the next fires of the rule in the query, whose names are those of the form."""
    refuse_to_look(request)
    rule = await request.read(_of_query, request)
    return request.render("schedule_preview.html", preview=rule, after=request.query.get("preview_from"))


def _of_query(request: PageRequest) -> SchedulePreview:
    rules, errors = schedule_form.read_rules(request.query)
    trigger = rules.get("trigger")
    wrong = {field: words for field, words in errors.items() if not field.startswith(("args", "arg."))}
    problems = list(wrong.values())
    if wrong and not any(request.query.all(field) for field in wrong):
        return SchedulePreview(hints=problems)  # nothing is wrong yet: these fields are still empty
    if trigger is None or problems:
        return SchedulePreview(problems=problems or ["choose when it fires"])
    timezone = rules["timezone"]
    if isinstance(trigger, ReactiveTrigger):
        return SchedulePreview(trigger.explain(), timezone)
    zone = zone_of(timezone)
    try:
        after = _start(request, zone)
        coming, changes = preview_of(
            trigger, zone, rules["calendar"], rules["exclude"], PREVIEWED, after or request.now()
        )
    except (TidemillError, OverflowError) as error:
        return SchedulePreview(problems=[str(error)])
    return SchedulePreview(trigger.explain(), timezone, coming, changes)


def _start(request: PageRequest, zone: ZoneInfo) -> datetime | None:
    """Return the midnight at which the preview begins; None for now."""
    text = request.query.get("preview_from")
    if text is None:
        return None
    try:
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day, tzinfo=zone) - timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def preview_row(request: PageRequest, row: ScheduleRow) -> SchedulePreview:
    """Return the preview of a complete schedule."""
    schedule = Schedule(row)
    coming, changes = preview(schedule, PREVIEWED, request.now())
    return SchedulePreview(schedule.words, schedule.timezone, coming, changes)
