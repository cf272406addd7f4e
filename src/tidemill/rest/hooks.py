"""Incoming webhooks, which become events."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.bounds import text_flaw
from tidemill.domain.webhooks import MOST_BODY, BadSignature, HookRule, read_hook, verify_delivery
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import Document
from tidemill.rest.routes import Routes
from tidemill.web.guard import address_of
from tidemill.web.parsers import receive_body
from tidemill.web.problems import Problem

routes = Routes("hooks")

VARIABLE = "TIDEMILL_HOOK_"
"""Prefix of the environment variables that configure hooks: TIDEMILL_HOOK_SHOP=stripe:whsec_…"""


class DeliveryDocument(Document):
    """Whether the delivery is new; a repeated one has no effect."""

    accepted: bool
    event: str = Field(examples=["shop.invoice.paid"])


@routes.post(
    "/api/hooks/{name}",
    role=None,
    answer=DeliveryDocument,
    status=202,
    raw=True,
    also={
        401: "The signature is missing, wrong or too old.",
        403: "This server is read-only.",
        413: "The body is too large.",
        429: "Too many deliveries; see Retry-After.",
    },
)
async def receive_hook(request: ApiRequest) -> Response:
    """Accept a signed webhook and emit it as an event, once per delivery.

    The environment of the server names the hooks: `TIDEMILL_HOOK_SHOP=stripe:whsec_…` configures `/api/hooks/shop`. The kinds are
    `standard` (Standard Webhooks), `github` and `stripe`. The event is named after the hook and the type of the delivery, such as
    `shop.invoice.paid`, and has the body as its payload. The answer follows the commit.
    """
    name = request.path["name"]
    rule = _rule(name)
    if request.service.settings.read_only:
        raise Problem(403, "read_only", "this server is read-only")
    body = await receive_body(request.http, MOST_BODY)
    try:
        delivery = verify_delivery(rule, request.headers, body, request.now())
    except BadSignature as error:
        # Counted apart, so that a stranger cannot use up the deliveries of the sender.
        _count(request, f"{name} {address_of(request.http)}")
        raise Problem(401, "bad_signature", str(error)) from None
    _count(request, name)
    payload = payload_of(body)
    fields = payload if isinstance(payload, dict) else {}
    kind = delivery.type or _text(fields.get("type"))
    event = f"{name}.{kind}" if kind else name
    id = delivery.id or _text(fields.get("id"))
    emitted = await request.read(request.app.signals.emit, event[:200], payload, id=id, by=f"hook:{name}")
    return request.reply({"accepted": emitted is not None, "event": event[:200]})


def _count(request: ApiRequest, what: str) -> None:
    if wait := request.service.guard.hook_wait(what):
        raise Problem(429, None, "too many deliveries", headers={"retry-after": str(math.ceil(wait))})


def _rule(name: str) -> HookRule:
    plain = name.replace("-", "_")
    text = os.environ.get(VARIABLE + plain.upper()) if plain.isidentifier() and name == name.lower() else None
    if not text:
        raise Problem(404, None, f"there is no hook {name[:100]!r}")
    return read_hook(text)


def payload_of(body: bytes) -> Any:
    """Return the JSON of a body."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(422, None, "the body is not JSON") from None
    if text_flaw(json.dumps(payload, ensure_ascii=False)):
        raise Problem(422, "bad_text", "the body has characters that cannot be stored")
    return payload


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 150 and value.isprintable() else None
