"""Callback URLs of running jobs: a page with a button, and the signal that it sends."""

from __future__ import annotations

import math
from html import escape

from starlette.responses import HTMLResponse, Response

from tidemill.configuration import value_of
from tidemill.domain.callbacks import SIGNED_BY
from tidemill.domain.signal_links import SignalLink, read_link
from tidemill.domain.webhooks import MOST_BODY, BadSignature
from tidemill.errors import IllegalTransition, JobNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.hooks import payload_of
from tidemill.rest.routes import Routes
from tidemill.rest.signals import SentDocument
from tidemill.web.parsers import receive_body
from tidemill.web.problems import Problem

routes = Routes("signals")

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "x-robots-tag": "noindex",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem }}
button {{ font: inherit; padding: .6rem 1.4rem }}
</style></head>
<body><main><h1>{title}</h1><p>{text}</p>{form}</main></body></html>
"""
_FORM = '<form method="post"><button type="submit">Send {name}</button></form>'
_FORM_TYPE = "application/x-www-form-urlencoded"


@routes.get("/api/callbacks/{token}", role=None, answer=str, media="text/html")
async def show_callback(request: ApiRequest) -> Response:
    """Show what a callback URL sends, with a button. Nothing is sent, because programs open links to preview them."""
    try:
        link = _link(request)
    except Problem as problem:
        if not _in_browser(request):
            raise
        return _page("This link does not work", str(problem.detail), status=problem.status)
    until = f"{link.expires_at:%Y-%m-%d %H:%M} UTC"
    text = f"The button sends the signal {link.name}. It works once, until {until}."
    return _page(f"Send {link.name}?", text, _FORM.format(name=escape(link.name)))


@routes.post("/api/callbacks/{token}", role=None, answer=SentDocument, status=201, raw=True)
async def send_callback(request: ApiRequest) -> Response:
    """Send the signal of a callback URL to its job, with the JSON body as the payload. 200 means that it was sent before.

    A URL that was changed is answered with 404, one that has expired with 410, and one of an ended job with 409.
    """
    try:
        accepted = await _sent(request)
    except Problem as problem:
        if not _in_browser(request):
            raise
        return _page("Nothing was sent", str(problem.detail), status=problem.status)
    if _in_browser(request):
        return _page("Sent" if accepted else "This was sent before", "You can close this page.")
    return request.reply({"accepted": accepted}, 201 if accepted else 200)


async def _sent(request: ApiRequest) -> bool:
    link = _link(request)
    if request.service.settings.read_only:
        raise Problem(403, "read_only", "this server is read-only")
    if wait := request.service.guard.hook_wait(f"callback {link.nonce}"):
        raise Problem(429, None, "too many requests", headers={"retry-after": str(math.ceil(wait))})
    body = await receive_body(request.http, MOST_BODY)
    has_payload = bool(body.strip()) and _FORM_TYPE not in request.headers.get("content-type", "")
    try:
        accepted: bool = await request.read(
            request.app.signals.send,
            link.job_id,
            link.name,
            payload_of(body) if has_payload else None,
            key=link.key,
            tenant=link.tenant,
            by="callback URL",
        )
    except (IllegalTransition, JobNotFound):
        raise Problem(409, "ended", "the job has ended, so it takes no more signals") from None
    return accepted


def _link(request: ApiRequest) -> SignalLink:
    secret = value_of(SIGNED_BY)
    if not secret:
        raise Problem(404, None, f"this server takes no callbacks: {SIGNED_BY} is not set")
    try:
        link = read_link(secret, request.path["token"])
    except BadSignature as error:
        raise Problem(404, None, str(error)) from None
    if link.expires_at <= request.now():
        raise Problem(410, "expired", f"this callback URL expired on {link.expires_at:%Y-%m-%d %H:%M} UTC")
    return link


def _in_browser(request: ApiRequest) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _page(title: str, text: str, form: str = "", status: int = 200) -> Response:
    content = _PAGE.format(title=escape(title), text=escape(text), form=form)
    return HTMLResponse(content, status, _HEADERS)
