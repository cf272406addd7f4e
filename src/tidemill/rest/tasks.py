"""Tasks of the app: list, details, pause, resume and run-time overrides."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from tidemill.client.control import TASK_OVERRIDES
from tidemill.client.documents import pause_document, seconds
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import PauseKind
from tidemill.domain.states import LIVE
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import ReasonBody
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, QueryModel, Words
from tidemill.rest.pagination import page_of
from tidemill.rest.routes import Routes
from tidemill.tasks.parameter_rows import parameter_rows
from tidemill.tasks.task import Declared

routes = Routes("tasks")

Override = Literal["max_attempts", "timeout", "max_concurrent", "retry_delay"]

assert Override.__args__ == TASK_OVERRIDES  # type: ignore[attr-defined]


class TasksQuery(QueryModel):
    """Page of a list."""

    limit: Limit = 100
    cursor: Cursor = Field(None)


class PauseDocument(Document):
    """One pause, with its author and reason."""

    kind: str
    name: str
    reason: str | None
    paused_by: str | None
    paused_at: Instant | None


class TaskDocument(Document):
    """One task as declared, and whether it is paused."""

    name: str = Field(examples=["send"])
    description: str | None
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    isolation: str
    scope: str
    max_concurrent: int
    tags: list[str]
    owner: str | None
    stages: list[str]
    paused: PauseDocument | None


class ParameterDocument(Document):
    """One parameter of a task, and the value that a definition has for it."""

    name: str
    type: str = Field(examples=["string"])
    required: bool
    default: Any
    secret: bool = Field(description="Sealed in the store; the value is shown as `***`.")
    description: str | None
    is_set: bool = Field(description="Whether the definition has a value.")
    value: Any


class TaskDetailsDocument(TaskDocument):
    """One task with its arguments and job counts."""

    arguments: dict[str, Any] = Field(description="JSON schema of the arguments.")
    overrides: dict[str, Any] = Field(description="Options that were overridden at run time.")
    parameters: list[ParameterDocument] = Field(description="The arguments as rows.")
    counts: dict[str, int] = Field(description="Number of jobs that have not ended, by status.")


class TaskBody(BodyModel):
    """Fields of a task that can be changed at run time."""

    paused: bool | None = Field(None, description="Pause or resume the task.")
    reason: Words | None = Field(None, description="Reason of the pause.")
    max_attempts: int | None = Field(None, ge=1, description="Attempts in total, for all workers.")
    timeout: float | None = Field(None, gt=0, le=1e9, description="Seconds per attempt, for all workers.")
    max_concurrent: int | None = Field(None, ge=0, description="Jobs at the same time; 0 for no limit.")
    retry_delay: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="Seconds before every further attempt, instead of the policy's delays.",
    )
    unset: list[Override] = Field([], description="Overrides to remove, so that the code applies again.")


@routes.get("/api/tasks", role=Role.VIEWER, query=TasksQuery, answer=Items[TaskDocument])
async def list_tasks(request: ApiRequest) -> Response:
    """List the app's tasks, ordered by name."""
    query: TasksQuery = request.query
    known = [name for name in request.app.registry.names() if request.permits("tasks.read", name)]
    names, following = page_of(known, str, query.limit, query.cursor)
    pauses = await _pauses(request)
    return request.page(
        [_document(request.app.registry.get(name), pauses.get(name)) for name in names], following
    )


@routes.get("/api/tasks/{name}", role=Role.VIEWER, answer=TaskDetailsDocument)
async def get_task(request: ApiRequest) -> Response:
    """Get a task with its options, arguments and job counts."""
    return request.reply(await _details(request))


@routes.patch(
    "/api/tasks/{name}", role=Role.ADMIN, body=TaskBody, answer=TaskDetailsDocument, everywhere=True
)
async def change_task(request: ApiRequest) -> Response:
    """Pause or resume a task, and override its options for all workers. Options that are left out keep their values."""
    body: TaskBody = request.body
    name = request.app.registry.get(request.path["name"]).name
    values = {option: getattr(body, option) for option in TASK_OVERRIDES if getattr(body, option) is not None}
    if values or body.unset:
        await request.act(request.app.control.set_task, name, values, body.unset)
    if body.paused is None:
        return request.reply(await _details(request))
    return await (_pause(request, body.reason) if body.paused else _resume(request))


@routes.post(
    "/api/tasks/{name}/pause",
    role=Role.OPERATOR,
    body=ReasonBody,
    body_optional=True,
    answer=TaskDetailsDocument,
    everywhere=True,
)
async def pause_task(request: ApiRequest) -> Response:
    """Pause a task: no more of its jobs start; running jobs continue."""
    return await _pause(request, request.body.reason)


@routes.post("/api/tasks/{name}/resume", role=Role.OPERATOR, answer=TaskDetailsDocument, everywhere=True)
async def resume_task(request: ApiRequest) -> Response:
    """Resume a task."""
    return await _resume(request)


async def _pause(request: ApiRequest, reason: str | None) -> Response:
    task = request.app.registry.get(request.path["name"])
    await request.act(request.app.control.pause, PauseKind.TASK, task.name, reason=reason)
    return request.reply(await _details(request))


async def _resume(request: ApiRequest) -> Response:
    task = request.app.registry.get(request.path["name"])
    await request.act(request.app.control.resume, PauseKind.TASK, task.name)
    return request.reply(await _details(request))


async def _details(request: ApiRequest) -> dict[str, Any]:
    task = request.app.registry.get(request.path["name"])
    pauses = await _pauses(request)
    counts = await request.read(request.app.jobs.counts, task=task.name, status=LIVE, tenant=request.tenant)
    return {
        **_document(task, pauses.get(task.name)),
        "arguments": task.arguments.schema(),
        "overrides": await request.read(request.app.control.task_overrides, task.name),
        "parameters": [row._asdict() for row in parameter_rows(task)],
        "counts": {state.value: number for state, number in counts.items()},
    }


async def _pauses(request: ApiRequest) -> dict[str, dict[str, Any]]:
    pauses = await request.read(request.app.control.pauses)
    return {
        pause.name: _shown(request, pause_document(pause)) for pause in pauses if pause.kind is PauseKind.TASK
    }


def _shown(request: ApiRequest, document: dict[str, Any]) -> dict[str, Any]:
    """Hide the reason and author of a pause from users of a single tenant."""
    if request.identity.tenant == ALL_TENANTS:
        return document
    return {**document, "reason": None, "paused_by": None}


def _document(task: Declared, paused: dict[str, Any] | None) -> dict[str, Any]:
    options = task.options
    return {
        "name": task.name,
        "description": task.summary,
        "queue": options.queue,
        "priority": options.priority,
        "max_attempts": options.retry.max_attempts,
        "timeout": seconds(options.timeout),
        "isolation": options.isolation_name,
        "scope": options.scope,
        "max_concurrent": options.max_concurrent,
        "tags": list(options.tags),
        "owner": options.owner,
        "stages": list(options.stages),
        "paused": paused,
    }
