"""Shards of the app, and the tenants in them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field
from starlette.responses import Response

from tidemill.app_shards import COUNTED
from tidemill.client.documents import placement_document, shard_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Items
from tidemill.rest.routes import Routes

routes = Routes("shards")


class ShardDocument(Document):
    """One shard of the app."""

    name: str = Field(examples=["eu"])
    url: str = Field(description="Its address without the password.")
    status: str = Field(description="`ok`, or `unavailable`.")
    code: str | None = Field(description="The error code if it is unavailable.")
    home: bool = Field(description="Whether it has the placements and the app's own tenant.")
    open: bool = Field(description="Whether it gets new tenants.")
    weight: float = Field(description="Share of the new tenants, compared with other shards.")
    tenants: int = Field(description="Tenants that are placed in it.")
    workers: int = Field(description="Living workers that serve it.")
    waiting: int = Field(description=f"Pending jobs, counted up to {COUNTED:,}.")


class PlacementDocument(Document):
    """The shard of one tenant."""

    tenant: str = Field(examples=["north"])
    shard: str = Field(examples=["eu"])
    state: str = Field(description="`placed`, or how far a move is: `moving`, then `draining`.")
    target: str | None = Field(description="The other shard of a move that has not ended.")
    former: list[str] = Field(description="Shards that may still have ended jobs of the tenant.")
    changed_at: datetime | None


class PlacementBody(BodyModel):
    """The shard of a new tenant."""

    shard: str | None = Field(None, description="Chosen as for a first job if it is left out.")


@routes.get("/api/shards", role=Role.VIEWER, everywhere=True, answer=Items[ShardDocument])
async def list_shards(request: ApiRequest) -> Response:
    """List the app's shards, with their tenants, workers and waiting jobs; only for keys of all tenants."""
    return request.page([shard_document(status) for status in await request.read(request.app.shards.list)])


@routes.get("/api/placements", role=Role.VIEWER, everywhere=True, answer=Items[PlacementDocument])
async def list_placements(request: ApiRequest) -> Response:
    """List the tenants that have a shard."""
    return request.page(
        [placement_document(row) for row in await request.read(request.app.shards.placements)]
    )


@routes.put(
    "/api/placements/{name}",
    role=Role.SUPER_ADMIN,
    everywhere=True,
    body=PlacementBody,
    answer=PlacementDocument,
)
async def place_tenant(request: ApiRequest) -> Response:
    """Place a new tenant in a shard before its first job. The placement of a known tenant is returned unchanged."""
    body: PlacementBody = request.body
    return request.reply(
        placement_document(await request.act(request.app.shards.place, request.path["name"], body.shard))
    )
