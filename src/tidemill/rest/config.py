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
async def get_config(request: ApiRequest) -> Response:
    """List the stored settings."""
    return request.reply(await _document(request))


@routes.put(
    "/api/worker/config", role=Role.SUPER_ADMIN, body=ConfigBody, answer=ConfigDocument, everywhere=True
)
async def put_config(request: ApiRequest) -> Response:
    """Store settings; workers apply them within seconds."""
    await request.act(request.app.control.set_all, request.body.settings)
    return request.reply(await _document(request))


async def _document(request: ApiRequest) -> dict[str, Any]:
    settings = await request.read(request.app.control.settings)
    return {"settings": [setting_document(setting, setting.value) for setting in settings]}
