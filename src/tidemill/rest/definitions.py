"""Job definitions: per-tenant configurations of tasks."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import definition_document
from tidemill.domain.access import Role
from tidemill.domain.schedules import Definition
from tidemill.errors import TaskNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import JobDocument
from tidemill.rest.job_options import OptionsBody
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, Name, QueryModel
from tidemill.rest.pagination import page_of
from tidemill.rest.routes import Routes
from tidemill.rest.tasks import ParameterDocument
from tidemill.tasks.parameter_rows import parameter_rows
from tidemill.web.problems import Problem

routes = Routes("definitions")


class DefinitionsQuery(QueryModel):
    """Filter and page of definitions."""

    task: str | None = None
    limit: Limit = 100
    cursor: Cursor = None


class ContentBody(OptionsBody):
    """Content of a definition, with the options of its jobs."""

    name: Name | None = None
    owner: Name | None = Field(
        None, description="A person or team of the app, who is notified of permanent failures."
    )
    notifications: dict[str, list[Name]] | None = Field(
        None,
        description="The channels that receive notifications about its jobs, by kind of event.",
        examples=[{"failed": ["ops"]}],
    )
    max_concurrent: int | None = Field(
        None,
        ge=0,
        description="Maximum number of its jobs that run at the same time; 0: unlimited. Default for a new definition: 1.",
    )
    on_busy: Literal["queue", "refuse"] | None = Field(
        None,
        description="Behaviour of a trigger while one of its jobs has not ended: `queue` creates a job that waits, `refuse` (for "
        "one job at a time) responds with 409.",
    )

    def options(self) -> dict[str, Any]:
        """Return the options that were given, including those specific to definitions."""
        own = {"max_concurrent": self.max_concurrent, "on_busy": self.on_busy}
        return super().options() | {name: value for name, value in own.items() if value is not None}


class PatchBody(ContentBody):
    """Fields to change; omitted fields keep their values."""

    args: dict[str, Any] | None = None
    version: int | None = Field(None, ge=1, description="Only if this is the current version.")
    enabled: bool | None = None


class PutBody(ContentBody):
    """The next version of a definition, or a new definition."""

    task: Name | None = Field(None, description="Required for a new definition.")
    args: dict[str, Any] = Field({})
    version: int | None = Field(
        None, ge=0, description="Only if this is the current version; 0: only if the definition is new."
    )


class DefinitionBody(ContentBody):
    """A new definition."""

    key: Name = Field(examples=["monthly-report"])
    task: Name = Field(examples=["send"])
    args: dict[str, Any] = Field({})
    tenant: Name | None = Field(None, description="Tenant of the definition; only for keys of all tenants.")


class TriggerBody(BodyModel):
    """Arguments that override those of the definition."""

    args: dict[str, Any] = Field({})
    force: bool = Field(False, description="Create the job even if the definition is disabled or busy.")


class DefinitionDocument(Document):
    """One definition."""

    id: UUID
    key: str
    name: str | None
    task: str
    tenant: str
    version: int
    args: Any
    settings: dict[str, Any]
    notifications: dict[str, Any]
    owner: str | None
    enabled: bool
    created_at: Instant | None
    created_by: str | None
    updated_at: Instant | None
    deleted_at: Instant | None


@routes.get("/api/definitions", role=Role.VIEWER, query=DefinitionsQuery, answer=Items[DefinitionDocument])
async def list_definitions(request: ApiRequest) -> Response:
    """List definitions, ordered by tenant and key."""
    query: DefinitionsQuery = request.query
    definitions = await request.read(request.app.definitions.list, task=query.task, tenant=request.tenant)
    definitions = [row for row in definitions if request.permits("definitions.read", definition=row.key)]
    items, following = page_of(
        definitions,
        lambda definition: f"{definition.tenant}\0{definition.key}\0{definition.id}",
        query.limit,
        query.cursor,
    )
    return request.page([_document(request, definition) for definition in items], following)


@routes.post("/api/definitions", role=Role.ADMIN, body=DefinitionBody, answer=DefinitionDocument, status=201)
async def add_definition(request: ApiRequest) -> Response:
    """Create a definition."""
    body: DefinitionBody = request.body
    tenant = request.chosen(body.tenant) or request.home
    made = await _save(request, body.key, body, tenant, task=body.task, args=body.args, version=0)
    return request.reply(
        _document(request, made),
        headers={"location": request.where(f"/api/definitions/{quote(made.key, safe='')}")},
    )


@routes.get("/api/definitions/{key}", role=Role.VIEWER, answer=DefinitionDocument)
async def get_definition(request: ApiRequest) -> Response:
    """Get a definition by its key. With an API key of all tenants, `tenant` selects the tenant; default: the app's own."""
    return request.reply(_document(request, await _definition(request)))


@routes.get("/api/definitions/{key}/parameters", role=Role.VIEWER, answer=Items[ParameterDocument])
async def list_parameters(request: ApiRequest) -> Response:
    """List the parameters of a definition's task with the definition's values, for forms."""
    definition = await _definition(request)
    rows = parameter_rows(request.app.registry.get(definition.task), definition.args)
    visible = request.payload({row.name: row.value for row in rows if row.is_set})
    return request.page([row._replace(value=visible.get(row.name))._asdict() for row in rows], None)


@routes.put("/api/definitions/{key}", role=Role.ADMIN, body=PutBody, answer=DefinitionDocument)
async def put_definition(request: ApiRequest) -> Response:
    """Save the next version of a definition, or create one, which requires a task."""
    body: PutBody = request.body
    saved = await _save(
        request, request.path["key"], body, request.home, task=body.task, args=body.args, version=body.version
    )
    return request.reply(_document(request, saved))


@routes.patch("/api/definitions/{key}", role=Role.ADMIN, body=PatchBody, answer=DefinitionDocument)
async def change_definition(request: ApiRequest) -> Response:
    """Change the given fields as the next version; `enabled` controls whether its schedules fire."""
    body: PatchBody = request.body
    definition = await _definition(request)
    if body.model_fields_set - {"enabled"}:
        definition = await _save(
            request, definition.key, body, definition.tenant, args=body.args, version=body.version
        )
    if body.enabled is not None and body.enabled != definition.enabled:
        turn = request.app.definitions.enable if body.enabled else request.app.definitions.disable
        definition = await request.act(turn, definition.key, tenant=definition.tenant)
    return request.reply(_document(request, definition))


@routes.delete("/api/definitions/{key}", role=Role.ADMIN)
async def remove_definition(request: ApiRequest) -> Response:
    """Delete a definition with its schedules; its versions are kept."""
    definition = await _definition(request)
    await request.act(request.app.definitions.remove, definition.key, tenant=definition.tenant)
    return request.empty()


@routes.post(
    "/api/definitions/{key}/trigger",
    role=Role.OPERATOR,
    body=TriggerBody,
    body_optional=True,
    answer=JobDocument,
    status=201,
)
async def trigger_definition(request: ApiRequest) -> Response:
    """Create a job of this definition now; the given arguments override its own.

    Responds with 409 if the definition is disabled, or busy with `on_busy` set to `refuse`; `force` creates the job anyway.
    """
    definition = await _definition(request)
    body: TriggerBody = request.body
    job = await request.act(
        request.app.definitions.trigger,
        definition.key,
        args=body.args,
        force=body.force,
        tenant=definition.tenant,
    )
    return request.reply(shown(request, job.row), headers={"location": request.where(f"/api/jobs/{job.id}")})


async def _definition(request: ApiRequest) -> Definition:
    return await request.read(request.app.definitions.get, request.path["key"], tenant=request.home)


async def _save(
    request: ApiRequest, key: str, body: ContentBody, tenant: str, *, task: str | None = None, **content: Any
) -> Definition:
    try:
        return await request.act(
            request.app.definitions.save,
            key,
            task,
            name=body.name,
            owner=body.owner,
            notifications=body.notifications,
            by=request.identity.who,
            tenant=tenant,
            **content,
            **body.options(),
        )
    except TaskNotFound as error:
        raise Problem(422, error.code, f"task: {error.message}", field="task") from None


def _document(request: ApiRequest, definition: Definition) -> dict[str, Any]:
    document: dict[str, Any] = definition_document(definition)
    document["args"] = request.payload(document["args"])
    document["settings"] = request.payload_options(document["settings"])
    document["notifications"] = request.masked(document["notifications"])
    return document
