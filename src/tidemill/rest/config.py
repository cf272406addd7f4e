"""Runtime settings of the workers."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import setting_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Instant
from tidemill.rest.routes import Routes

routes = Routes("workers")


class SettingDocument(Document):
    """One setting."""

    key: str
    value: Any
    description: str | None
    updated_at: Instant | None
    updated_by: str | None


class ConfigDocument(Document):
    """All stored settings; the others have their defaults."""

    settings: list[SettingDocument]


class ConfigBody(BodyModel):
    """Settings to store; null removes one. Omitted settings keep their values."""

    settings: dict[str, Any] = Field(min_length=1, max_length=100, examples=[{"worker_enabled": True}])


@routes.get("/api/worker/config", role=Role.SUPER_ADMIN, answer=ConfigDocument, everywhere=True)
async def get_config(call: ApiRequest) -> Response:
    """List the stored settings."""
    return call.reply(await _document(call))


@routes.put(
    "/api/worker/config", role=Role.SUPER_ADMIN, body=ConfigBody, answer=ConfigDocument, everywhere=True
)
async def put_config(call: ApiRequest) -> Response:
    """Store settings; workers apply them within seconds."""
    await call.act(_put, call, call.body.settings)
    return call.reply(await _document(call))


def _put(call: ApiRequest, settings: dict[str, Any]) -> None:
    # Apply all settings or none.
    with call.app.store.transaction():
        for key, value in settings.items():
            if value is None:
                call.app.control.unset(key)
            else:
                call.app.control.set(key, value)


async def _document(call: ApiRequest) -> dict[str, Any]:
    found = await call.read(call.app.control.settings)
    return {"settings": [setting_document(each, each.value) for each in found]}
