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
    await call.act(call.app.control.set_all, call.body.settings)
    return call.reply(await _document(call))


async def _document(call: ApiRequest) -> dict[str, Any]:
    settings = await call.read(call.app.control.settings)
    return {"settings": [setting_document(setting, setting.value) for setting in settings]}
