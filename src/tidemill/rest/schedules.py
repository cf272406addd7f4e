"""Schedules: when jobs are made. Those declared in code can be looked at, paused and triggered, and are changed in the code."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import schedule_document
from tidemill.client.scheduled import Schedule
from tidemill.domain.access import Role
from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.schedule import misfire_from_data, trigger_from_data
from tidemill.domain.triggers.base import FORMAT, Trigger
from tidemill.errors import BadSchedule, TaskNotFound, TidemillError
from tidemill.rest.call import Call
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument, ReasonBody
from tidemill.rest.job_options import OptionsBody
from tidemill.rest.models import Cursor, Document, Instant, Items, Limit, Name, Query
from tidemill.rest.paging import page_of
from tidemill.rest.problems import Problem
from tidemill.rest.routes import Routes

routes = Routes("schedules")


class SchedulesQuery(Query):
    """Which schedules, and which page of them."""

    task: str | None = None
    enabled: bool | None = None
    limit: Limit = 100
    cursor: Cursor = None


class PreviewQuery(Query):
    """How many fires, and from when."""

    n: int = Field(5, ge=1, le=100)
    after: Instant | None = None


class RulesBody(OptionsBody):
    """When, with which arguments, and by which rules."""

    trigger: str | dict[str, Any] = Field(
        description="A cron expression, or a trigger as it is answered.",
        examples=["0 2 * * *", {"kind": "every", "seconds": 300}],
    )
    args: dict[str, Any] = Field({})
    timezone: str = Field("UTC", examples=["Europe/Berlin"])
    misfire: Literal["once", "skip"] | dict[Literal["all"], int] = "once"
    overlap: Literal["skip", "allow", "queue", "cancel"] = "skip"
    calendar: dict[str, Any] | None = None
    exclude: dict[str, Any] | None = None


class ScheduleBody(RulesBody):
    """A new schedule, of a task or of a definition."""

    key: Name = Field(examples=["nightly"])
    task: Name | None = Field(None, examples=["send"])
    definition: Name | None = Field(None, description="The key of a definition, instead of a task.")
    scope: Literal["cluster", "instance"] | None = None
    enabled: bool = True
    tenant: Name | None = Field(None, description="For keys of all tenants: whose schedule it is.")


class ScheduleDocument(Document):
    """One schedule."""

    id: UUID
    key: str
    task: str
    tenant: str
    definition_id: UUID | None
    trigger: dict[str, Any]
    words: str = Field(description="When it fires, in words.")
    timezone: str
    calendar: dict[str, Any] | None
    exclude: dict[str, Any] | None
    args: Any
    options: dict[str, Any]
    misfire: Any
    overlap: str
    scope: str
    source: str
    app: str | None
    enabled: bool
    note: str | None
    broken: str | None
    created_at: Instant | None
    updated_at: Instant | None
    last_fire_at: Instant | None
    next_fire_at: Instant | None


class FiresDocument(Document):
    """The next fires, as a clock in the schedule's time zone shows them."""

    timezone: str
    fires: list[Instant]


@routes.get("/api/schedules", role=Role.VIEWER, query=SchedulesQuery, answer=Items[ScheduleDocument])
async def list_schedules(call: Call) -> Response:
    """The schedules that match, by tenant and key."""
    query: SchedulesQuery = call.query
    found = await call.read(
        call.app.schedules.list, task=query.task, enabled=query.enabled, tenant=call.tenant
    )
    items, following = page_of(
        found, lambda each: f"{each.tenant}\0{each.key}\0{each.id}", query.limit, query.cursor
    )
    return call.page([_document(call, each) for each in items], following)


@routes.post("/api/schedules", role=Role.ADMIN, body=ScheduleBody, answer=ScheduleDocument, status=201)
async def add_schedule(call: Call) -> Response:
    """Save a new schedule; all of it is checked first."""
    body: ScheduleBody = call.body
    tenant = call.chosen(body.tenant) or call.home
    if (body.task is None) == (body.definition is None):
        raise BadSchedule("task: give a task or a definition, one of them", field="task")
    task: Any = body.task
    if body.definition is not None:
        task = await call.read(call.app.definitions.get, body.definition, tenant=tenant)
    rules = _rules(body)
    trigger = rules.pop("trigger")
    try:
        made = await call.act(
            call.app.schedules.add,
            task,
            trigger,
            body.key,
            scope=body.scope,
            enabled=body.enabled,
            tenant=tenant,
            **rules,
        )
    except TaskNotFound as error:
        raise Problem(422, error.code, f"task: {error.message}", field="task") from None
    return call.reply(_document(call, made), headers={"location": call.where(f"/api/schedules/{made.id}")})


@routes.get("/api/schedules/{id}", role=Role.VIEWER, answer=ScheduleDocument)
async def get_schedule(call: Call) -> Response:
    """One schedule, by its id or its key."""
    return call.reply(_document(call, await _found(call)))


@routes.put("/api/schedules/{id}", role=Role.ADMIN, body=RulesBody, answer=ScheduleDocument)
async def put_schedule(call: Call) -> Response:
    """Give a schedule new rules and arguments; it counts from now on. Options of its jobs that are left out stay."""
    found = await _found(call)
    changed = await call.act(call.app.schedules.update, found.id, tenant=found.tenant, **_rules(call.body))
    return call.reply(_document(call, changed))


@routes.delete("/api/schedules/{id}", role=Role.ADMIN)
async def remove_schedule(call: Call) -> Response:
    """Remove a schedule; its jobs stay."""
    found = await _found(call)
    await call.act(call.app.schedules.remove, found.id, tenant=found.tenant)
    return call.empty()


@routes.post(
    "/api/schedules/{id}/pause",
    role=Role.OPERATOR,
    body=ReasonBody,
    body_optional=True,
    answer=ScheduleDocument,
)
async def pause_schedule(call: Call) -> Response:
    """Fire no more, until it is resumed."""
    found = await _found(call)
    changed = await call.act(call.app.schedules.pause, found.id, reason=call.body.reason, tenant=found.tenant)
    return call.reply(_document(call, changed))


@routes.post("/api/schedules/{id}/resume", role=Role.OPERATOR, answer=ScheduleDocument)
async def resume_schedule(call: Call) -> Response:
    """Fire again, from now on: what lies before is not made up for."""
    found = await _found(call)
    changed = await call.act(call.app.schedules.resume, found.id, tenant=found.tenant)
    return call.reply(_document(call, changed))


@routes.post("/api/schedules/{id}/trigger", role=Role.OPERATOR, answer=JobDocument, status=201)
async def trigger_schedule(call: Call) -> Response:
    """Make a job now, whatever the rules say."""
    found = await _found(call)
    job = await call.act(call.app.schedules.trigger, found.id, tenant=found.tenant)
    return call.reply(shown(call, job.facts), headers={"location": call.where(f"/api/jobs/{job.id}")})


@routes.get("/api/schedules/{id}/preview", role=Role.VIEWER, query=PreviewQuery, answer=FiresDocument)
async def preview_schedule(call: Call) -> Response:
    """The next fires."""
    query: PreviewQuery = call.query
    found = await _found(call)
    fires: Any = await call.read(
        call.app.schedules.preview, found.id, query.n, after=query.after, tenant=found.tenant
    )
    return call.reply({"timezone": found.timezone, "fires": [_stamp(at) for at in fires]})


async def _found(call: Call) -> Schedule:
    return await call.read(call.app.schedules.get, call.path["id"], tenant=call.tenant)


def _rules(body: RulesBody) -> dict[str, Any]:
    """As ``app.schedules`` takes them."""
    rules: dict[str, Any] = {
        "args": body.args,
        "timezone": body.timezone,
        "overlap": body.overlap,
        **body.options(),
    }
    given = body.trigger
    rules["trigger"] = given if isinstance(given, str) else _read("trigger", _trigger, given)
    rules["misfire"] = _read("misfire", misfire_from_data, body.misfire)
    for name, kind in (("calendar", BusinessCalendar), ("exclude", Exclude)):
        data = getattr(body, name)
        rules[name] = None if data is None else _read(name, kind.from_data, data)
    return rules


def _trigger(data: dict[str, Any]) -> Trigger:
    return trigger_from_data({"format": FORMAT, **data})


def _read(field: str, read: Any, data: Any) -> Any:
    """Plain data as the value it stands for; whatever is wrong with it is the caller's to know."""
    try:
        return read(data)
    except TidemillError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        raise BadSchedule(f"{field}: this cannot be read; give it as it is answered", field=field) from None


def _document(call: Call, found: Schedule) -> dict[str, Any]:
    document: dict[str, Any] = schedule_document(found)
    for name in ("args", "options"):
        document[name] = call.masked(document[name])
    return document


def _stamp(at: datetime) -> str:
    return at.isoformat()
