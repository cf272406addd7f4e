"""Tasks of the app: list, details, pause and resume."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

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
from tidemill.tasks.task import Declared

routes = Routes("tasks")


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


class TaskDetailsDocument(TaskDocument):
    """One task with its arguments and job counts."""

    arguments: dict[str, Any] = Field(description="JSON schema of the arguments.")
    counts: dict[str, int] = Field(description="Number of jobs that have not ended, by status.")


class TaskBody(BodyModel):
    """Fields of a task that can be changed at run time."""

    paused: bool
    reason: Words | None = None


@routes.get("/api/tasks", role=Role.VIEWER, query=TasksQuery, answer=Items[TaskDocument])
async def list_tasks(request: ApiRequest) -> Response:
    """List the app's tasks, ordered by name."""
    query: TasksQuery = request.query
    names, following = page_of(request.app.registry.names(), str, query.limit, query.cursor)
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
    """Pause or resume a task."""
    body: TaskBody = request.body
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
        "isolation": options.isolation,
        "scope": options.scope,
        "max_concurrent": options.max_concurrent,
        "tags": list(options.tags),
        "owner": options.owner,
        "stages": list(options.stages),
        "paused": paused,
    }
