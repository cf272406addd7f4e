"""Stores of the app: list."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from tidemill.client.inspection import MOST_WAITING, StoreStatus
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import Document, Items
from tidemill.rest.routes import Routes

routes = Routes("stores")


class NamedStoreDocument(Document):
    """One store of the app."""

    name: str
    default: bool = Field(description="Whether requests without a store address it.")
    live: bool = Field(description="Whether workers serve it by default; false for stores of archived jobs.")
    url: str = Field(description="Its address without the password.")
    status: str = Field(description="`ok`, or `unavailable`.")
    code: str | None = Field(description="The error code if it is unavailable.")
    workers: int = Field(description="Living workers that serve it.")
    waiting: int = Field(description=f"Pending jobs, counted up to {MOST_WAITING:,}.")


@routes.get("/api/stores", role=Role.VIEWER, everywhere=True, answer=Items[NamedStoreDocument])
async def list_stores(request: ApiRequest) -> Response:
    """List the app's stores, with their workers and waiting jobs; only for keys of all tenants."""
    statuses = [
        await request.read(request.inspection.store_status, name) for name in request.inspection.store_names()
    ]
    return request.page([_document(status) for status in statuses])


def _document(status: StoreStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "default": status.is_default,
        "live": status.is_live,
        "url": status.url,
        "status": "ok" if status.code is None else "unavailable",
        "code": status.code,
        "workers": status.workers,
        "waiting": status.waiting,
    }
