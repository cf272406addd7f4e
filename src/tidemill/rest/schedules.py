"""Schedules.

A schedule that code declares can be read, paused and triggered through the API, but only changed in the code.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import instant, schedule_document
from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.access import Role
from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.schedule_rules import misfire_from_data, trigger_from_data
from tidemill.domain.triggers.base import FORMAT, Trigger
from tidemill.errors import BadSchedule, TaskNotFound, TidemillError
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument, ReasonBody
from tidemill.rest.job_options import OptionsBody
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, Name, QueryModel
from tidemill.rest.pagination import page_of
from tidemill.rest.routes import Routes
from tidemill.web.problems import Problem

routes = Routes("schedules")


class SchedulesQuery(QueryModel):
    """Filter and page of schedules."""

    task: str | None = None
    enabled: bool | None = None
    limit: Limit = 100
    cursor: Cursor = None


class PreviewQuery(QueryModel):
    """Number and start of the previewed fires."""

    n: int = Field(5, ge=1, le=100)
    after: Instant | None = None


class BackfillBody(BodyModel):
    """The past range whose missing fires are created."""

    start: Instant = Field(description="First instant of the range.")
    end: Instant = Field(description="End of the range; not in the future.")
    limit: int = Field(1_000, ge=1, le=10_000, description="Maximum number of fires.")
    dry_run: bool = Field(False, description="Only list the fires.")


class BackfillDocument(Document):
    """The fires that were created, or would be."""

    fires: list[Instant]
    existing: int = Field(description="Fires of the range that existed already.")
    more: bool = Field(description="Whether there are more missing fires than the limit.")
    dry_run: bool


class ForceBody(BodyModel):
    """Whether to create the job even if the definition is disabled or the schedule is paused."""

    force: bool = False


class RulesBody(OptionsBody):
    """Trigger, arguments and rules of a schedule."""

    trigger: str | dict[str, Any] = Field(
        description="A cron expression, or a trigger in the form that responses contain.",
        examples=[
            "0 2 * * *",
            {"kind": "every", "seconds": 300},
            {"kind": "after", "definitions": ["extract"]},
        ],
    )
    args: dict[str, Any] = Field({})
    timezone: str = Field("UTC", examples=["Europe/Berlin"])
    misfire: Literal["once", "skip"] | dict[Literal["all"], int] = "once"
    overlap: Literal["skip", "allow", "queue", "cancel"] | None = Field(
        None,
        description="What to do while a job of the schedule has not ended; by default `skip`, for `after` `queue`, for `on` `allow`.",
    )
    calendar: dict[str, Any] | None = None
    exclude: dict[str, Any] | None = None
    heartbeat: str | None = Field(
        None,
        max_length=2_000,
        description="The address of a monitor, which is pinged when jobs start, complete and fail.",
        examples=["https://hc-ping.com/your-uuid"],
    )


class ScheduleBody(RulesBody):
    """A new schedule, of a task or of a definition."""

    key: Name = Field(examples=["nightly"])
    task: Name | None = Field(None, examples=["send"])
    definition: Name | None = Field(None, description="The key of a definition, instead of a task.")
    scope: Literal["cluster", "instance", "process"] | None = None
    enabled: bool = True
    tenant: Name | None = Field(None, description="Tenant of the schedule; only for keys of all tenants.")


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


class WaitsDocument(Document):
    """The sources that a schedule waits for."""

    schedule: str
    waits: str = Field(description="The awaited events in words.")


class FiresDocument(Document):
    """The next fires in the schedule's time zone."""

    timezone: str
    fires: list[Instant]


@routes.get("/api/schedules", role=Role.VIEWER, query=SchedulesQuery, answer=Items[ScheduleDocument])
async def list_schedules(request: ApiRequest) -> Response:
    """List schedules, ordered by tenant and key."""
    query: SchedulesQuery = request.query
    schedules = await request.read(
        request.app.schedules.list, task=query.task, enabled=query.enabled, tenant=request.tenant
    )
    schedules = [row for row in schedules if request.permits("schedules.read", row.task, None, row.key)]
    items, following = page_of(
        schedules,
        lambda schedule: f"{schedule.tenant}\0{schedule.key}\0{schedule.id}",
        query.limit,
        query.cursor,
    )
    return request.page([_document(request, schedule) for schedule in items], following)


@routes.post("/api/schedules", role=Role.ADMIN, body=ScheduleBody, answer=ScheduleDocument, status=201)
async def add_schedule(request: ApiRequest) -> Response:
    """Create a schedule, after validating all of it."""
    body: ScheduleBody = request.body
    tenant = request.chosen(body.tenant) or request.home
    if (body.task is None) == (body.definition is None):
        raise BadSchedule("task: specify either a task or a definition", field="task")
    task: Any = body.task
    if body.definition is not None:
        task = await request.read(request.app.definitions.get, body.definition, tenant=tenant)
    rules = _rules(body)
    trigger = rules.pop("trigger")
    try:
        made = await request.act(
            request.app.schedules.add,
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
    return request.reply(
        _document(request, made), headers={"location": request.where(f"/api/schedules/{made.id}")}
    )


@routes.get("/api/schedules/{id}", role=Role.VIEWER, answer=ScheduleDocument)
async def get_schedule(request: ApiRequest) -> Response:
    """Get a schedule by its id or key."""
    return request.reply(_document(request, await _schedule(request)))


@routes.put("/api/schedules/{id}", role=Role.ADMIN, body=RulesBody, answer=ScheduleDocument)
async def put_schedule(request: ApiRequest) -> Response:
    """Replace the rules and arguments of a schedule, counting from now. Omitted job options keep their values."""
    schedule = await _schedule(request)
    changed = await request.act(
        request.app.schedules.update, schedule.id, tenant=schedule.tenant, **_rules(request.body)
    )
    return request.reply(_document(request, changed))


@routes.delete("/api/schedules/{id}", role=Role.ADMIN)
async def remove_schedule(request: ApiRequest) -> Response:
    """Delete a schedule; its jobs are kept."""
    schedule = await _schedule(request)
    await request.act(request.app.schedules.remove, schedule.id, tenant=schedule.tenant)
    return request.empty()


@routes.post(
    "/api/schedules/{id}/pause",
    role=Role.OPERATOR,
    body=ReasonBody,
    body_optional=True,
    answer=ScheduleDocument,
)
async def pause_schedule(request: ApiRequest) -> Response:
    """Pause a schedule until it is resumed."""
    schedule = await _schedule(request)
    changed = await request.act(
        request.app.schedules.pause, schedule.id, reason=request.body.reason, tenant=schedule.tenant
    )
    return request.reply(_document(request, changed))


@routes.post("/api/schedules/{id}/resume", role=Role.OPERATOR, answer=ScheduleDocument)
async def resume_schedule(request: ApiRequest) -> Response:
    """Resume a schedule from now on; fires missed during the pause are skipped."""
    schedule = await _schedule(request)
    changed = await request.act(request.app.schedules.resume, schedule.id, tenant=schedule.tenant)
    return request.reply(_document(request, changed))


@routes.post(
    "/api/schedules/{id}/trigger",
    role=Role.OPERATOR,
    body=ForceBody,
    body_optional=True,
    answer=JobDocument,
    status=201,
)
async def trigger_schedule(request: ApiRequest) -> Response:
    """Create a job of this schedule now.

    Responds with 409 if its definition is disabled, or if it is paused and only fires manually; `force` creates the job anyway.
    """
    schedule = await _schedule(request)
    job = await request.act(
        request.app.schedules.trigger, schedule.id, force=request.body.force, tenant=schedule.tenant
    )
    return request.reply(shown(request, job.row), headers={"location": request.where(f"/api/jobs/{job.id}")})


@routes.get("/api/schedules/{id}/why", role=Role.VIEWER, answer=WaitsDocument)
async def why_schedule(request: ApiRequest) -> Response:
    """Tell what a schedule waits for: its next fire, definitions or an event."""
    schedule = await _schedule(request)
    words = await request.read(request.app.schedules.why, schedule.id, tenant=schedule.tenant)
    return request.reply({"schedule": schedule.key, "waits": words})


@routes.get("/api/schedules/{id}/preview", role=Role.VIEWER, query=PreviewQuery, answer=FiresDocument)
async def preview_schedule(request: ApiRequest) -> Response:
    """Preview the next fires."""
    query: PreviewQuery = request.query
    schedule = await _schedule(request)
    fires: Any = await request.read(
        request.app.schedules.preview, schedule.id, query.n, after=query.after, tenant=schedule.tenant
    )
    return request.reply({"timezone": schedule.timezone, "fires": [_stamp(at) for at in fires]})


@routes.post("/api/schedules/{id}/backfill", role=Role.OPERATOR, body=BackfillBody, answer=BackfillDocument)
async def backfill_schedule(request: ApiRequest) -> Response:
    """Enqueue the missing fires of a past range."""
    body: BackfillBody = request.body
    schedule = await _schedule(request)
    done = await request.act(
        request.app.schedules.backfill,
        schedule.id,
        body.start,
        body.end,
        limit=body.limit,
        dry_run=body.dry_run,
        tenant=schedule.tenant,
    )
    return request.reply(
        {
            "fires": [instant(at) for at in done.fires],
            "existing": done.existing,
            "more": done.more,
            "dry_run": body.dry_run,
        }
    )


async def _schedule(request: ApiRequest) -> Schedule:
    schedule = await request.read(request.app.schedules.get, request.path["id"], tenant=request.tenant)
    request.check(schedule.task, None, schedule.key)
    return schedule


def _rules(body: RulesBody) -> dict[str, Any]:
    """Return the arguments of ``app.schedules``."""
    rules: dict[str, Any] = {
        "args": body.args,
        "timezone": body.timezone,
        "overlap": body.overlap,
        **body.options(),
    }
    if "heartbeat" in body.model_fields_set:
        rules["heartbeat"] = body.heartbeat
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
    """Parse plain data; report any parse error as the caller's."""
    try:
        return read(data)
    except TidemillError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
        raise BadSchedule(
            f"{field}: invalid value; use the form that responses contain", field=field
        ) from None


def _document(request: ApiRequest, schedule: Schedule) -> dict[str, Any]:
    document: dict[str, Any] = schedule_document(schedule)
    document["args"] = request.payload(document["args"])
    document["options"] = request.payload_options(document["options"])
    return document


def _stamp(at: datetime) -> str:
    return at.isoformat()
