"""Schedules: the list, one of them with its fires and its preview, and the acts of operators. Making and changing is next door."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from starlette.responses import Response

from tidemill.client.loads import last_outcomes
from tidemill.client.scheduled import Schedule
from tidemill.client.schedules import REMOVED
from tidemill.dashboard.filled import read_reason, refuse_to_look
from tidemill.dashboard.pages import Pages
from tidemill.dashboard.visit import Visit
from tidemill.domain.access import Role
from tidemill.domain.clock_notes import ClockChange, clock_changes, fire_note
from tidemill.domain.firing import read_rules
from tidemill.domain.states import JobState
from tidemill.domain.timetable import Fired, Source
from tidemill.errors import StoreError, TidemillError
from tidemill.rest.problems import Problem

pages = Pages()

PAGE = 50
"""Schedules on a page."""

FIRES = 25
"""Fires on a page."""

MOST_NODES = 1_000
"""Fires of one instant on a page, one for each node: these are not divided."""

MOST_SHOWN = 100
"""Fires of a preview."""

STATES = ("enabled", "paused", "broken")


class Coming(NamedTuple):
    """A fire to come: as a clock in the schedule's zone shows it, and what is to be said of it."""

    at: datetime
    local: str
    note: str | None


class Happened(NamedTuple):
    """A fire that was, and its job if that is still there."""

    fire: Fired
    state: JobState | None


@pages.get("/schedules", role=Role.VIEWER)
async def schedules(visit: Visit) -> Response:
    """All of them, or those that a word is found in; a page at a time."""
    words = visit.asked.get("q")
    state = visit.asked.get("state")
    page = visit.asked.whole("page", 1, least=1, most=100_000)
    found = await visit.read(_list, visit, words, state if state in STATES else None, page)
    return visit.render(
        "schedules.html", words=words, state=state, page=page, states=STATES, state_of=state_of, **found
    )


def _list(visit: Visit, words: str | None, state: str | None, page: int) -> dict[str, Any]:
    """Rules are read for what is shown, not for all: a thousand schedules are no reason to wait."""
    facts = visit.app.store.schedules(tenant=visit.tenant)
    total = len(facts)
    if words is not None:
        low = words.lower()
        facts = [each for each in facts if low in each.key.lower() or low in each.task.lower()]
    if state in ("enabled", "paused"):
        facts = [each for each in facts if each.enabled == (state == "enabled")]
    if state == "broken":
        facts = [each for each in facts if Schedule(each).broken is not None]
    shown = [Schedule(each) for each in facts[(page - 1) * PAGE : page * PAGE]]
    return {
        "total": total,
        "matching": len(facts),
        "schedules": shown,
        "outcomes": last_outcomes(visit.app.store, [(each.id, each.tenant) for each in shown]),
        "more": len(facts) > page * PAGE,
    }


@pages.get("/schedules/{id}", role=Role.VIEWER)
async def schedule(visit: Visit) -> Response:
    """Everything about one."""
    count = visit.asked.whole("n", 5, least=1, most=MOST_SHOWN)
    before = _instant(visit, "before")
    found = await visit.read(_look, visit, count, before)
    return visit.render("schedule.html", count=count, **found)


def _look(visit: Visit, count: int, before: datetime | None) -> dict[str, Any]:
    found = visit.app.schedules.get(visit.path["id"], tenant=visit.tenant)
    shown, more = _fires(visit, found, before)
    ids = [fire.job_id for fire in shown if fire.job_id is not None]
    states = {job.id: job.state for job in visit.app.store.get(ids, tenant=found.tenant)} if ids else {}
    after = _after(visit, found)
    coming, changes = preview(found, count, after or visit.now())
    return {
        "schedule": found,
        "args": visit.masked(found.args),
        "options": visit.masked(found.options),
        "fires": [_happened(fire, states) for fire in shown],
        "older": shown[-1].fire_at.isoformat() if more else None,
        "newest": before is None,
        "coming": coming,
        "changes": changes,
        "after": visit.asked.get("after"),
        "knows_task": found.task in visit.app.registry,
        "may_remove": may_remove(found),
        "is_stored": found.source is Source.STORED,
        "state": state_of(found),
    }


def _fires(visit: Visit, found: Schedule, before: datetime | None) -> tuple[Sequence[Fired], bool]:
    """A page of them, and whether there are older ones. Where an instant has one for each node, the next page begins before it:
    so a page ends with all of them.
    """
    ask = partial(visit.app.schedules.fires, found.id, tenant=found.tenant)
    fires = ask(limit=FIRES + 1, before=before)
    if len(fires) <= FIRES:
        return fires, False
    last = fires[-1].fire_at
    whole = [fire for fire in fires if fire.fire_at > last]
    if whole:
        return whole, True
    nodes = ask(limit=MOST_NODES, before=last + timedelta(microseconds=1))
    return [fire for fire in nodes if fire.fire_at == last], bool(ask(limit=1, before=last))


def _happened(fire: Fired, states: dict[UUID, JobState]) -> Happened:
    return Happened(fire, None if fire.job_id is None else states.get(fire.job_id))


def state_of(found: Schedule) -> str:
    """One word on whether it fires."""
    if found.broken is not None:
        return "broken"
    return "enabled" if found.enabled else "paused"


def may_remove(found: Schedule) -> bool:
    """What is declared in code would come back."""
    return found.source is Source.STORED or found.note == REMOVED


def preview(found: Schedule, count: int, after: datetime) -> tuple[Sequence[Coming], Sequence[ClockChange]]:
    """The next fires after an instant, and the next changes of the zone's clocks; nothing of one that cannot be read."""
    try:
        rules = read_rules(found.facts)
        around = (rules.zone, rules.calendar, rules.exclude)
        fires = rules.trigger.preview(count, after, *around)
        coming = [Coming(at, told(at, rules.zone), fire_note(rules.trigger, at, *around)) for at in fires]
        return coming, clock_changes(rules.trigger, after, *around) if fires else []
    except (TidemillError, OverflowError):
        return [], []


def told(at: datetime, zone: ZoneInfo) -> str:
    """An instant as a clock in a zone shows it.

    >>> told(datetime.fromisoformat("2026-03-29T01:00:00Z"), ZoneInfo("Europe/Berlin"))
    'Sun 2026-03-29 03:00:00 +0200'
    """
    return at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z")


def _after(visit: Visit, found: Schedule) -> datetime | None:
    """From when on: a day of the schedule's zone, or an instant."""
    text = visit.asked.get("after")
    if text is None or found.broken is not None:
        return None
    try:
        day = date.fromisoformat(text)
        begin = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(found.timezone))
        return begin - timedelta(microseconds=1)  # so that midnight belongs to the day
    except (ValueError, OverflowError):
        return _instant(visit, "after")


def _instant(visit: Visit, name: str) -> datetime | None:
    text = visit.asked.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise Problem(422, None, f"{name} is {text[:40]!r}; give a day such as 2026-03-28") from None
    if at.tzinfo is None or not 1970 <= at.year <= 9000:
        raise Problem(422, None, f"{name} is {text[:40]!r}; give a day such as 2026-03-28")
    return at


# Acts --------------------------------------------------------------------------------------------------------------------


@pages.post("/schedules/{id}/pause", role=Role.OPERATOR)
async def pause(visit: Visit) -> Response:
    """Fire no more."""
    found = await found_at(visit)
    reason = read_reason(visit.form)
    await visit.act(visit.app.schedules.pause, found.id, reason=reason, tenant=found.tenant)
    return visit.back(f"/schedules/{found.id}", f"Schedule {found.key} is paused.")


@pages.post("/schedules/{id}/resume", role=Role.OPERATOR)
async def resume(visit: Visit) -> Response:
    """Fire again, from now on."""
    found = await found_at(visit)
    await visit.act(visit.app.schedules.resume, found.id, tenant=found.tenant)
    return visit.back(f"/schedules/{found.id}", f"Schedule {found.key} fires again, from now on.")


@pages.get("/schedules/{id}/run", role=Role.OPERATOR)
async def ask_to_run(visit: Visit) -> Response:
    """Ask before a job is made."""
    refuse_to_look(visit)
    found = await found_at(visit)
    return visit.render("schedule_sure.html", schedule=found, act="run")


@pages.post("/schedules/{id}/run", role=Role.OPERATOR)
async def run(visit: Visit) -> Response:
    """Make a job now, whatever the rules say."""
    found = await found_at(visit)
    try:
        job = await visit.act(visit.app.schedules.trigger, found.id, tenant=found.tenant)
    except TidemillError as error:
        if (wrong := problem(error)) is None:
            raise
        return visit.back(f"/schedules/{found.id}", wrong, good=False)
    return visit.back(f"/schedules/{found.id}", f"Job {job.id} was made; it is the first of the fires below.")


@pages.get("/schedules/{id}/remove", role=Role.ADMIN)
async def ask_to_remove(visit: Visit) -> Response:
    """Ask before it is removed."""
    refuse_to_look(visit)
    found = await found_at(visit)
    return visit.render("schedule_sure.html", schedule=found, act="remove")


@pages.post("/schedules/{id}/remove", role=Role.ADMIN)
async def remove(visit: Visit) -> Response:
    """Remove it; its jobs stay."""
    found = await found_at(visit)
    await visit.act(visit.app.schedules.remove, found.id, tenant=found.tenant)
    return visit.back("/schedules", f"Schedule {found.key} is removed. Its jobs stay.")


async def found_at(visit: Visit) -> Schedule:
    """The schedule that the address names, if the reader may see it."""
    return await visit.read(visit.app.schedules.get, visit.path["id"], tenant=visit.tenant)


def problem(error: TidemillError) -> str | None:
    """The words of an error that a person can do something about; None for a store's."""
    return None if isinstance(error, StoreError) else error.message
