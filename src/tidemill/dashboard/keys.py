"""List, creation and revocation of API keys.

The secret of a new key is shown once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from starlette.responses import Response

from tidemill.client.documents import key_state
from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Key, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import KeyNotFound, UsageError
from tidemill.web.guard import TOKEN_IDENTITY
from tidemill.web.problems import Problem

pages = PageRoutes()

EXPIRIES = {
    "": "never",
    "1": "in a day",
    "7": "in a week",
    "30": "in 30 days",
    "90": "in 90 days",
    "365": "in a year",
}
"""Lifetimes of a new key in days, with their labels."""


class KeyRow(NamedTuple):
    """A key and its state: active, expired or revoked."""

    key: Key
    state: str


@pages.get("/settings/keys", role=Role.SUPER_ADMIN)
async def keys(request: PageRequest) -> Response:
    """Show the keys, with a form that creates one."""
    return await _show(request)


async def _show(
    request: PageRequest, status: int = 200, *, typed: dict[str, str] | None = None, wrong: str | None = None
) -> Response:
    """Render the page, optionally with invalid form input and its error message."""
    rows = await request.read(known_keys, request)
    empty = {
        "name": "",
        "role": "viewer",
        "tenant": request.query.get("tenant") or "",
        "days": "",
        "grants": "",
    }
    return request.render(
        "keys.html",
        status,
        keys=rows,
        key_typed=typed or empty,
        key_wrong=wrong,
        roles=[role.value for role in Role],
        expiries=EXPIRIES,
    )


def known_keys(request: PageRequest) -> list[KeyRow]:
    """Return the visible keys, active ones first."""
    rows = [
        KeyRow(key, key_state(key, request.now()))
        for key in request.app.keys.list()
        if request.tenant in (ALL_TENANTS, key.tenant)
    ]
    return sorted(rows, key=lambda row: row.state != "active")


@pages.post("/settings/keys", role=Role.SUPER_ADMIN)
async def create(request: PageRequest) -> Response:
    """Create a key. Only this response contains the secret, so it must not be a redirect."""
    typed = {name: request.form.get(name) or "" for name in ("name", "role", "tenant", "days", "grants")}
    try:
        if typed["days"] not in EXPIRIES:
            raise Problem(422, None, "choose when it expires from the list")
        tenant = request.chosen(typed["tenant"] or None) or request.identity.tenant
        made = await request.act(
            request.app.keys.create,
            typed["name"],
            role=typed["role"],
            tenant=None if tenant == ALL_TENANTS else tenant,
            expires=timedelta(days=int(typed["days"])) if typed["days"] else None,
            **request.key_permissions(
                [line.strip() for line in typed["grants"].splitlines() if line.strip()]
            ),
        )
    except UsageError as error:
        return await _show(request, 422, typed=typed, wrong=error.message)
    except Problem as problem:
        return await _show(request, problem.status, typed=typed, wrong=problem.detail)
    ends_token = request.identity is TOKEN_IDENTITY
    return request.render("key_made.html", key=made.key, secret=made.secret, ends_token=ends_token)


@pages.get("/settings/keys/revoke", role=Role.SUPER_ADMIN)
async def ask_revoke(request: PageRequest) -> Response:
    """Ask for confirmation before a key is revoked."""
    row = await _known(request, request.query.get("id"))
    key = row.key
    own = request.identity.who.startswith(f"key:{key.id} ")
    return ask(
        request,
        title=f"Revoke {key.name}?",
        words=f"The key {key.id} ({key.role.value}, {'all tenants' if key.tenant == ALL_TENANTS else f'tenant {key.tenant}'}) "
        "stops working immediately on this server and within seconds on others. This cannot be undone.",
        also="You are signed in with this key; revoking it signs you out." if own else None,
        action="/settings/keys/revoke",
        fields={"id": key.id},
        button="Revoke it",
        back="/settings/keys",
    )


@pages.post("/settings/keys/revoke", role=Role.SUPER_ADMIN)
async def revoke(request: PageRequest) -> Response:
    """Revoke a key."""
    row = await _known(request, request.form.get("id"))
    await request.act(request.app.keys.revoke, row.key.id)
    return request.back("/settings/keys", f"Key {row.key.name} is revoked.")


async def _known(request: PageRequest, id: str | None) -> KeyRow:
    for row in await request.read(known_keys, request):
        if row.key.id == id:
            return row
    raise KeyNotFound(f"there is no key {(id or '')[:100]!r}", id=id)
