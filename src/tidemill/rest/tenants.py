"""Tenants: list them, and set or remove their share and highest priority."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from tidemill.client.control import COUNTED, TENANT_SETTING
from tidemill.client.documents import tenant_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Items
from tidemill.rest.routes import Routes

routes = Routes("tenants")


class TenantDocument(Document):
    """One tenant with its jobs of the last 24 hours and its settings."""

    tenant: str = Field(examples=["blue"])
    pending: int = Field(description=f"Jobs that wait; counted up to {COUNTED:,}.")
    ended: int = Field(description="Jobs that ended in the last 24 hours.")
    failed: int = Field(description="Jobs of these that did not succeed.")
    weight: float = Field(description="Share of the workers, compared with other tenants.")
    max_priority: int | None = Field(description="Jobs with a higher priority are refused.")
    paused: bool


class TenantSettingsDocument(Document):
    """The settings of a tenant; null for those that have their default."""

    tenant: str
    weight: float | None
    max_priority: int | None


class TenantBody(BodyModel):
    """Settings of a tenant. A setting that is left out keeps its value; null removes it."""

    weight: float | None = Field(None, gt=0, description="Share of the workers, compared with other tenants.")
    max_priority: int | None = Field(None, ge=-100, le=100, description="Refuse jobs with a higher priority.")


@routes.get("/api/tenants", role=Role.VIEWER, answer=Items[TenantDocument], everywhere=True)
async def list_tenants(request: ApiRequest) -> Response:
    """List tenants that had jobs in the last 24 hours, have pending jobs, are paused or have settings."""
    return request.page([tenant_document(state) for state in await request.read(request.app.control.tenants)])


@routes.patch(
    "/api/tenants/{name}",
    role=Role.SUPER_ADMIN,
    body=TenantBody,
    answer=TenantSettingsDocument,
    everywhere=True,
)
async def change_tenant(request: ApiRequest) -> Response:
    """Set a tenant's share of the workers and its highest priority."""
    body: TenantBody = request.body
    given = {name: getattr(body, name) for name in body.model_fields_set}
    values = {name: value for name, value in given.items() if value is not None}
    name = request.path["name"]
    settings = await request.act(
        request.app.control.set_tenant, name, values, [option for option in given if option not in values]
    )
    return request.reply(
        {"tenant": name, "weight": settings.get("weight"), "max_priority": settings.get("max_priority")}
    )


@routes.delete("/api/tenants/{name}", role=Role.SUPER_ADMIN, everywhere=True)
async def reset_tenant(request: ApiRequest) -> Response:
    """Remove the settings of a tenant. Its jobs are not affected."""
    await request.act(request.app.control.unset, f"{TENANT_SETTING}{request.path['name']}")
    return request.empty()
