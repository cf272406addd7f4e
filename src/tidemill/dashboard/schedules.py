"""Schedule pages: list, details with fires and preview, operator actions.

``schedules_edit`` has the pages that create and change schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from starlette.responses import Response

from tidemill.client.schedules.api import REMOVED
from tidemill.client.schedules.schedule import Schedule, trigger_refusal
from tidemill.dashboard.day_strip import day_strip
from tidemill.dashboard.form_state import read_reason, refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.clock_notes import ClockChange, clock_changes, fire_note
from tidemill.domain.schedule_fires import read_rules
from tidemill.domain.schedules import Definition, Fired, Scope, Source
from tidemill.domain.states import JobState
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.reactive import ReactiveTrigger, sources_of
from tidemill.errors import StoreError, TidemillError
from tidemill.web.problems import Problem
from tidemill.web.sessions import LONGEST_UNDO, UndoForm

pages = PageRoutes()

PAGE = 50
"""Schedules per page."""

FIRES = 25
"""Fires per page."""

MOST_NODES = 1_000
"""Maximum number of fires of one instant (one per node) on a page. They are never split across pages."""

MOST_SHOWN = 100
"""Maximum number of fires in a preview."""

STATES = ("enabled", "paused", "broken")


class UpcomingFire(NamedTuple):
    """A future fire: its instant, its local time in the schedule's zone, and an optional note."""

    at: datetime
    local: str
    note: str | None


class PastFire(NamedTuple):
    """A past fire, and the state of its job if the job still exists."""

    fire: Fired
    state: JobState | None


@pages.get("/schedules", role=Role.VIEWER)
async def schedules(request: PageRequest) -> Response:
    """List the matching schedules of one page."""
    words = request.query.get("q")
    status = request.query.get("status") or request.query.get("state")
    page = request.query.whole_number("page", 1, least=1, most=100_000)
    values = await request.read(_list, request, words, status if status in STATES else None, page)
    values["day"] = await request.read(day_strip, values.pop("rows"), request.now())
    return request.render(
        "schedules.html", words=words, chosen=status, page=page, statuses=STATES, state_of=state_of, **values
    )


def _list(request: PageRequest, words: str | None, status: str | None, page: int) -> dict[str, Any]:
    """Find the matching schedules. Only the schedules on the page are parsed, so that a long list stays fast."""
    rows = request.inspection.schedules(tenant=request.tenant)
    total = len(rows)
    if words is not None:
        low = words.lower()
        rows = [row for row in rows if low in row.key.lower() or low in row.task.lower()]
    if status in ("enabled", "paused"):
        rows = [row for row in rows if row.enabled == (status == "enabled")]
    if status == "broken":
        rows = [row for row in rows if Schedule(row).broken is not None]
    shown = [Schedule(row) for row in rows[(page - 1) * PAGE : page * PAGE]]
    refusals = {schedule.id: _refusal(schedule, _definition(request, schedule)) for schedule in shown}
    return {
        "rows": rows,
        "declared": request.inspection.declared(tenant=request.tenant),
        "refusals": refusals,
        "total": total,
        "matching": len(rows),
        "schedules": shown,
        "outcomes": request.inspection.last_outcomes([(schedule.id, schedule.tenant) for schedule in shown]),
        "more": len(rows) > page * PAGE,
    }


@pages.get("/schedules/{id}", role=Role.VIEWER)
async def schedule(request: PageRequest) -> Response:
    """Show one schedule."""
    count = request.query.whole_number("n", 5, least=1, most=MOST_SHOWN)
    before = _instant(request, "before")
    values = await request.read(_look, request, count, before)
    return request.render("schedule.html", count=count, **values)


def _look(request: PageRequest, count: int, before: datetime | None) -> dict[str, Any]:
    schedule = request.app.schedules.get(request.path["id"], tenant=request.tenant)
    request.check(schedule.task, None, schedule.key)
    shown, more = _fires(request, schedule, before)
    ids = [fire.job_id for fire in shown if fire.job_id is not None]
    states = {job.id: job.state for job in request.inspection.live_jobs(ids, tenant=schedule.tenant)}
    after = _after(request, schedule)
    definition = _definition(request, schedule)
    coming, changes = preview(schedule, count, after or request.now())
    return {
        "schedule": schedule,
        "args": request.payload(schedule.args),
        "options": request.payload_options(schedule.options),
        "fires": [_happened(fire, states) for fire in shown],
        "older": shown[-1].fire_at.isoformat() if more else None,
        "newest": before is None,
        "coming": coming,
        "changes": changes,
        "after": request.query.get("after"),
        "knows_task": schedule.task in request.app.registry,
        "may_remove": may_remove(schedule),
        "can_backfill": can_backfill(schedule),
        "is_stored": schedule.source is Source.STORED,
        "state": state_of(schedule),
        "definition": definition,
        "refusal": _refusal(schedule, definition),
        "waits": _waits(request, schedule),
    }


def _definition(request: PageRequest, schedule: Schedule) -> Definition | None:
    if schedule.definition_id is None:
        return None
    return request.inspection.definition(schedule.definition_id, tenant=schedule.tenant)


def _waits(request: PageRequest, schedule: Schedule) -> str | None:
    """Return what a schedule without times waits for, or None."""
    if not isinstance(schedule.trigger, ReactiveTrigger):
        return None
    words: str = request.app.schedules.why(schedule.id, tenant=schedule.tenant)
    return words


def _refusal(schedule: Schedule, definition: Definition | None) -> str | None:
    """Return why the schedule cannot be run now, or None."""
    error = trigger_refusal(schedule.row, definition)
    return None if error is None else error.message.partition(";")[0]


def _fires(request: PageRequest, schedule: Schedule, before: datetime | None) -> tuple[Sequence[Fired], bool]:
    """Return one page of fires, and whether there are older ones.

    If an instant has one fire per node, they all appear on the same page.
    """
    ask = partial(request.app.schedules.fires, schedule.id, tenant=schedule.tenant)
    fires = ask(limit=FIRES + 1, before=before)
    if len(fires) <= FIRES:
        return fires, False
    last = fires[-1].fire_at
    whole = [fire for fire in fires if fire.fire_at > last]
    if whole:
        return whole, True
    nodes = ask(limit=MOST_NODES, before=last + timedelta(microseconds=1))
    return [fire for fire in nodes if fire.fire_at == last], bool(ask(limit=1, before=last))


def _happened(fire: Fired, states: dict[UUID, JobState]) -> PastFire:
    return PastFire(fire, None if fire.job_id is None else states.get(fire.job_id))


def state_of(schedule: Schedule) -> str:
    """Return whether the schedule is enabled, paused or broken."""
    if schedule.broken is not None:
        return "broken"
    return "enabled" if schedule.enabled else "paused"


def may_remove(schedule: Schedule) -> bool:
    """Whether the schedule can be removed. A schedule that code declares would reappear."""
    return schedule.source is Source.STORED or schedule.note == REMOVED


def can_backfill(schedule: Schedule) -> bool:
    """Whether missed fires of the schedule can be made: one job each, at times that its rule gives."""
    return (
        schedule.broken is None and schedule.scope is Scope.CLUSTER and not sources_of(schedule.row.trigger)
    )


def preview(
    schedule: Schedule, count: int, after: datetime
) -> tuple[Sequence[UpcomingFire], Sequence[ClockChange]]:
    """Return the next fires after an instant and the next clock changes of the zone.

    Both are empty if the schedule is invalid.
    """
    try:
        rules = read_rules(schedule.row)
        return preview_of(rules.trigger, rules.zone, rules.calendar, rules.exclude, count, after)
    except (TidemillError, OverflowError):
        return [], []


def preview_of(
    trigger: Trigger,
    zone: ZoneInfo,
    calendar: BusinessCalendar | None,
    exclude: Exclude | None,
    count: int,
    after: datetime,
) -> tuple[Sequence[UpcomingFire], Sequence[ClockChange]]:
    """Return the next fires of a trigger after an instant and the next clock changes of the zone."""
    around = (zone, calendar, exclude)
    fires = trigger.preview(count, after, *around)
    coming = [UpcomingFire(at, told(at, zone), fire_note(trigger, at, *around)) for at in fires]
    return coming, clock_changes(trigger, after, *around) if fires else []


def told(at: datetime, zone: ZoneInfo) -> str:
    """Format an instant as local time in a zone.

    >>> told(datetime.fromisoformat("2026-03-29T01:00:00Z"), ZoneInfo("Europe/Berlin"))
    'Sun 2026-03-29 03:00:00 +0200'
    """
    return at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


def _after(request: PageRequest, schedule: Schedule) -> datetime | None:
    """Return the start of the preview: a day in the schedule's zone, or an instant."""
    text = request.query.get("after")
    if text is None or schedule.broken is not None:
        return None
    try:
        day = date.fromisoformat(text)
        begin = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(schedule.timezone))
        # Fires at midnight belong to the day.
        return begin - timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return _instant(request, "after")


def _instant(request: PageRequest, name: str) -> datetime | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise Problem(422, None, f"{name} is {text[:40]!r}; give a day such as 2026-03-28") from None
    if at.tzinfo is None or not 1970 <= at.year <= 9000:
        raise Problem(422, None, f"{name} is {text[:40]!r}; give a day such as 2026-03-28")
    return at


# Actions -----------------------------------------------------------------------------------------------------------------


@pages.post("/schedules/{id}/pause", role=Role.OPERATOR)
async def pause(request: PageRequest) -> Response:
    """Pause a schedule."""
    schedule = await schedule_at(request)
    reason = read_reason(request.form)
    await request.act(request.app.schedules.pause, schedule.id, reason=reason, tenant=schedule.tenant)
    return request.back_to(
        request.form.get("next"),
        f"Schedule {schedule.key} is paused.",
        otherwise=f"/schedules/{schedule.id}",
        undo=UndoForm(f"/schedules/{schedule.id}/resume", {}),
    )


@pages.post("/schedules/{id}/resume", role=Role.OPERATOR)
async def resume(request: PageRequest) -> Response:
    """Resume a schedule from now on."""
    schedule = await schedule_at(request)
    await request.act(request.app.schedules.resume, schedule.id, tenant=schedule.tenant)
    return request.back_to(
        request.form.get("next"),
        f"Schedule {schedule.key} is resumed.",
        otherwise=f"/schedules/{schedule.id}",
        undo=UndoForm(
            f"/schedules/{schedule.id}/pause", {"reason": (schedule.row.note or "")[:LONGEST_UNDO]}
        ),
    )


@pages.get("/schedules/{id}/run", role=Role.OPERATOR)
async def ask_to_run(request: PageRequest) -> Response:
    """Ask for confirmation before a job is created."""
    refuse_to_look(request)
    schedule = await schedule_at(request)
    return request.render("schedule_sure.html", schedule=schedule, act="run", next=request.query.get("next"))


@pages.post("/schedules/{id}/run", role=Role.OPERATOR)
async def run(request: PageRequest) -> Response:
    """Create a job now, independent of the trigger."""
    schedule = await schedule_at(request)
    try:
        job = await request.act(request.app.schedules.trigger, schedule.id, tenant=schedule.tenant)
    except TidemillError as error:
        if (wrong := problem(error)) is None:
            raise
        return request.back_to(
            request.form.get("next"), wrong, good=False, otherwise=f"/schedules/{schedule.id}"
        )
    return request.back_to(
        request.form.get("next"),
        f"Job {job.id} of schedule {schedule.key} was created.",
        otherwise=f"/schedules/{schedule.id}",
    )


@pages.get("/schedules/{id}/remove", role=Role.ADMIN)
async def ask_to_remove(request: PageRequest) -> Response:
    """Ask for confirmation before a schedule is removed."""
    refuse_to_look(request)
    schedule = await schedule_at(request)
    return request.render("schedule_sure.html", schedule=schedule, act="remove", next=None)


@pages.post("/schedules/{id}/remove", role=Role.ADMIN)
async def remove(request: PageRequest) -> Response:
    """Remove a schedule; its jobs stay."""
    schedule = await schedule_at(request)
    await request.act(request.app.schedules.remove, schedule.id, tenant=schedule.tenant)
    return request.back("/schedules", f"Schedule {schedule.key} is removed. Its jobs are kept.")


async def schedule_at(request: PageRequest) -> Schedule:
    """Return the schedule in the path, if the user may see it."""
    schedule = await request.read(request.app.schedules.get, request.path["id"], tenant=request.tenant)
    request.check(schedule.task, None, schedule.key)
    return schedule


def problem(error: TidemillError) -> str | None:
    """Return the message of an error that the user can act on; None for a store error."""
    return None if isinstance(error, StoreError) else error.message
