"""Creation, listing and revocation of API keys.

Only the response to the creation contains the secret.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import key_document
from tidemill.domain.access import Key, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import KeyNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import span
from tidemill.rest.models import BodyModel, Document, Instant, Items, Name, QueryModel, Seconds
from tidemill.rest.routes import Routes

routes = Routes("keys")


class KeysQuery(QueryModel):
    """Filter of keys."""

    all: bool = Field(False, description="Include expired and revoked keys.")


class KeyBody(BodyModel):
    """A key to create."""

    name: Name = Field(examples=["deploy"])
    role: Literal["viewer", "operator", "admin", "super_admin"] = "viewer"
    tenant: Name | None = Field(
        None, description="Null: the tenant of the calling key, which may be all tenants."
    )
    expires: Instant | Seconds | None = Field(None, description="An instant, or seconds from now.")
    max_priority: int | None = Field(
        None, ge=-100, le=100, description="Highest priority of jobs enqueued with this key. Null: no limit."
    )
    grants: list[str] = Field(
        default_factory=list,
        max_length=50,
        description="Restrict the role: `ACT,-ACT… [task=PATTERN] [queue=PATTERN] [definition=PATTERN]`.",
        examples=[["jobs.*,-jobs.arguments task=report.*"]],
    )
    roles: dict[str, str] | None = Field(
        None, max_length=100, description="A role in each of several tenants, instead of `role` and `tenant`."
    )
    environment: Name | None = Field(None, description="The only environment in which the key is accepted.")


class KeyDocument(Document):
    """A key without its secret."""

    id: str
    name: str
    role: str
    tenant: str = Field(description='`"*"`: all tenants.')
    state: Literal["active", "expired", "revoked"]
    created_at: Instant | None
    created_by: str | None
    expires_at: Instant | None
    revoked_at: Instant | None
    max_priority: int | None = Field(description="Jobs with a higher priority are refused.")
    grants: list[str] = Field(description="Empty: the role alone decides.")
    roles: dict[str, str] = Field(description="The role in each tenant; empty: one role.")
    environment: str | None


class NewKeyDocument(KeyDocument):
    """A newly created key."""

    secret: str = Field(description="Only shown once.", examples=["tm_ab12cd34.…"])


@routes.get("/api/keys", role=Role.SUPER_ADMIN, query=KeysQuery, answer=Items[KeyDocument])
async def list_keys(request: ApiRequest) -> Response:
    """List active keys of your tenant, or of all tenants."""
    return request.page(
        [
            key_document(key, request.now())
            for key in await _known(request)
            if request.query.all or key.lives(request.now())
        ]
    )


@routes.post("/api/keys", role=Role.SUPER_ADMIN, body=KeyBody, answer=NewKeyDocument, status=201)
async def create_key(request: ApiRequest) -> Response:
    """Create a key. Only this response contains its secret."""
    body: KeyBody = request.body
    tenant = request.chosen(body.tenant) or request.tenant
    if body.roles is not None:
        for name in body.roles:
            request.allowed(name)
    expires = span(body.expires) if isinstance(body.expires, int | float) else body.expires
    made = await request.act(
        request.app.keys.create,
        body.name,
        role=Role(body.role),
        tenant=None if tenant == ALL_TENANTS or body.roles else tenant,
        expires=expires,
        max_priority=_ceiling(request, body.max_priority),
        roles=body.roles,
        **request.key_permissions(body.grants, body.environment),
    )
    return request.reply({**key_document(made.key, request.now()), "secret": made.secret})


@routes.delete("/api/keys/{id}", role=Role.SUPER_ADMIN)
async def revoke_key(request: ApiRequest) -> Response:
    """Revoke a key. All processes refuse it within seconds."""
    id = request.path["id"]
    if not any(key.id == id for key in await _known(request)):
        raise KeyNotFound(f"there is no key {id[:100]!r}", id=id)
    await request.act(request.app.keys.revoke, id)
    return request.empty()


def _ceiling(request: ApiRequest, wanted: int | None) -> int | None:
    """Return the priority ceiling of a new key. It never exceeds that of the key that creates it."""
    own = request.identity.max_priority
    if wanted is None or own is None:
        return own if wanted is None else wanted
    return min(wanted, own)


async def _known(request: ApiRequest) -> list[Key]:
    keys = await request.read(request.app.keys.list)
    return [key for key in keys if request.tenant in (ALL_TENANTS, key.tenant)]
