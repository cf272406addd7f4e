"""Permissions of the caller, and explanations of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.permissions import ACTS, decide
from tidemill.errors import KeyNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import Document, Items, Name, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("access")


class AccessDocument(Document):
    """The permissions of the caller."""

    who: str
    role: str
    tenant: str = Field(description='`"*"`: all tenants.')
    roles: dict[str, str] = Field(description="Roles in several tenants; select one with `?tenant=`.")
    grants: list[str] = Field(description="Empty: the role alone decides.")
    environment: str | None = Field(description="Environment of this server.")
    acts: list[str] = Field(description="Acts that are allowed to the caller, at least on some objects.")


class ActDocument(Document):
    """One act with its requirements."""

    act: str
    description: str
    role: str
    everywhere: bool = Field(description="Needs an identity of all tenants.")
    second_role: str | None = Field(description="The role that it needs in production as well.")


class ExplainQuery(QueryModel):
    """The act to explain."""

    act: Name = Field(examples=["jobs.run"])
    task: Name | None = None
    queue: Name | None = None
    definition: Name | None = Field(None, description="Key of a definition or schedule.")
    key: Name | None = Field(None, description="Id of an API key. Default: the caller.")


class VerdictDocument(Document):
    """Whether an act is allowed, and why."""

    act: str
    allowed: bool
    reason: str
    code: str = Field(description="Code of the refusal; empty if it is allowed.")


@routes.get("/api/access", role=Role.VIEWER, answer=AccessDocument)
async def get_access(request: ApiRequest) -> Response:
    """Get your own permissions."""
    identity, environment = request.identity, request.service.guard.environment
    return request.reply(
        {
            "who": identity.who,
            "role": identity.role.value,
            "tenant": identity.tenant,
            "roles": {tenant: role.value for tenant, role in identity.roles},
            "grants": [str(grant) for grant in identity.grants],
            "environment": environment,
            "acts": [act for act in ACTS if decide(identity, act, None, environment).allowed],
        }
    )


@routes.get("/api/access/acts", role=Role.VIEWER, answer=Items[ActDocument])
async def list_acts(request: ApiRequest) -> Response:
    """List every act with its requirements."""
    return request.page([act_document(act) for act in ACTS])


@routes.get("/api/access/explain", role=Role.VIEWER, query=ExplainQuery, answer=VerdictDocument)
async def explain_access(request: ApiRequest) -> Response:
    """Explain whether you, or with `key` an API key, may do an act, and why. Other keys require `keys.read`."""
    query: ExplainQuery = request.query
    who: Any = request.identity
    if query.key is not None:
        request.need("keys.read")
        keys = await request.read(request.app.keys.list)
        if not any(key.id == query.key and request.identity.sees(key.tenant) for key in keys):
            raise KeyNotFound(f"there is no key {query.key[:100]!r}", id=query.key)
        who = query.key
    verdict = await request.read(
        request.app.access.explain,
        who,
        query.act,
        task=query.task,
        queue=query.queue,
        definition=query.definition,
    )
    return request.reply({"act": query.act, **verdict._asdict()})


def act_document(act: str) -> dict[str, Any]:
    """Return the document of one act."""
    rule = ACTS[act]
    return {
        "act": act,
        "description": rule.words,
        "role": rule.role.value,
        "everywhere": rule.everywhere,
        "second_role": None if rule.second is None else rule.second.value,
    }
